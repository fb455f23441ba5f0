//! A table of keys. Its one definition gives the struct, its defaults, how it is read, and its part of the sample and
//! of the documentation.

use toml::de::DeValue;

/// A key of a table.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What it does, line by line.
    pub(crate) about: &'static [&'static str],
    /// What may stand behind it.
    pub(crate) form: fn() -> String,
}

/// A value as it is given.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// In a file.
    Toml(&'a DeValue<'a>),
    /// In the environment or on the command line.
    Text(&'a str),
}

/// A table whose keys are known.
pub(crate) trait Table {
    /// Returns what the table is about, line by line.
    fn about(&self) -> &'static [&'static str];

    /// Returns its keys, in the order of the sample.
    fn keys(&self) -> &'static [Key];

    /// Sets `key`, which is one of [`keys`](Self::keys). An error says what was expected.
    fn set(&mut self, key: &str, given: Given<'_>) -> Result<(), String>;

    /// Returns the value of `key` as TOML.
    fn show(&self, key: &str) -> String;
}

/// Defines a struct that is a [`Table`].
macro_rules! table {
    ($(#[doc = $about:literal])* $name:ident {
        $($(#[doc = $doc:literal])* $key:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $name { $($(#[doc = $doc])* pub(crate) $key: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $crate::config::table::Table for $name {
            fn about(&self) -> &'static [&'static str] {
                &[$($about),*]
            }

            fn keys(&self) -> &'static [$crate::config::table::Key] {
                &[$($crate::config::table::Key {
                    name: stringify!($key),
                    about: &[$($doc),*],
                    form: <$type as $crate::config::value::Value>::form,
                },)*]
            }

            fn set(&mut self, key: &str, given: $crate::config::table::Given<'_>) -> Result<(), String> {
                match key {
                    $(stringify!($key) => self.$key = $crate::config::table::read(given)?,)*
                    _ => return Err("unknown key".into()),
                }
                Ok(())
            }

            fn show(&self, key: &str) -> String {
                match key {
                    $(stringify!($key) => $crate::config::value::Value::to_toml(&self.$key),)*
                    _ => String::new(),
                }
            }
        }
    };
}
pub(crate) use table;

/// Reads a value of the type that its place asks for.
pub(crate) fn read<T: super::value::Value>(given: Given<'_>) -> Result<T, String> {
    match given {
        Given::Toml(value) => T::from_toml(value),
        Given::Text(text) => T::from_text(text),
    }
}
