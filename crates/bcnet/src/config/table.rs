//! The `table!` macro: one definition gives a struct, its defaults, its parser and its documentation.

use toml::de::DeValue;

/// A key of a table.
pub(crate) struct KeyInfo {
    pub(crate) name: &'static str,
    /// Description, line by line.
    pub(crate) about: &'static [&'static str],
    /// Returns the accepted values, for people.
    pub(crate) form: fn() -> String,
}

/// A value as given in a source, before parsing.
#[derive(Clone, Copy)]
pub(crate) enum RawValue<'a> {
    /// From a file.
    Toml(&'a DeValue<'a>),
    /// From the environment or the command line.
    Text(&'a str),
}

/// A table with known keys.
pub(crate) trait Table {
    /// Returns the description of the table, line by line.
    fn about(&self) -> &'static [&'static str];

    /// Returns the keys, in the order of the default file.
    fn keys(&self) -> &'static [KeyInfo];

    /// Sets `key`, which must be one of [`keys`](Self::keys).
    ///
    /// # Errors
    ///
    /// Returns a message with the expected form.
    fn set(&mut self, key: &str, given: RawValue<'_>) -> Result<(), String>;

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

            fn keys(&self) -> &'static [$crate::config::table::KeyInfo] {
                &[$($crate::config::table::KeyInfo {
                    name: stringify!($key),
                    about: &[$($doc),*],
                    form: <$type as $crate::config::value::ConfigValue>::form,
                },)*]
            }

            fn set(&mut self, key: &str, given: $crate::config::table::RawValue<'_>) -> Result<(), String> {
                match key {
                    $(stringify!($key) => self.$key = $crate::config::table::parse_value(given)?,)*
                    _ => return Err("unknown key".into()),
                }
                Ok(())
            }

            fn show(&self, key: &str) -> String {
                match key {
                    $(stringify!($key) => $crate::config::value::ConfigValue::to_toml(&self.$key),)*
                    _ => String::new(),
                }
            }
        }
    };
}
pub(crate) use table;

/// Parses a value as the type of its key.
pub(crate) fn parse_value<T: super::value::ConfigValue>(given: RawValue<'_>) -> Result<T, String> {
    match given {
        RawValue::Toml(value) => T::from_toml(value),
        RawValue::Text(text) => T::from_text(text),
    }
}
