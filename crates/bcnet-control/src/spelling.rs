//! Suggestions for mistyped names.

use strsim::osa_distance;

/// Returns `; did you mean …?` if one of `names` is similar enough to `typed`, else an empty string.
#[must_use]
pub fn did_you_mean<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> String {
    nearest_name(typed, names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Returns the first 64 characters of a key, escaped for a one-line message.
#[must_use]
pub fn escape_key(key: &str) -> String {
    key.chars().take(64).flat_map(char::escape_debug).collect()
}

fn nearest_name<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if typed.len() > MAX_TYPED_LEN {
        return None;
    }
    let typed = typed.to_lowercase();
    let near = names.map(|name| (osa_distance(&typed, &name.to_lowercase()), name));
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= (typed.len() / 3).max(1)).then_some(name)
}

/// Returns the name that `typed` almost certainly means, if there is one.
///
/// `typed` may have one typing error if it has 4 or 5 letters, two if it is longer, and none if it is
/// shorter.
#[must_use]
pub fn correct_spelling<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = match typed.len() {
        ..4 => 0,
        4..6 => 1,
        6..=MAX_TYPED_LEN => 2,
        _ => return None,
    };
    let near = names.map(|name| (osa_distance(typed, name), name));
    near.min_by_key(|(distance, _)| *distance).filter(|(distance, _)| *distance <= most).map(|(_, name)| name)
}

/// Longer input is not compared. No name is longer, and a comparison takes time proportional to the product
/// of both lengths.
const MAX_TYPED_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits_and_swaps() {
        for (from, to, edits) in [("", "", 0), ("port", "port", 0), ("prot", "port", 1), ("pot", "port", 1)] {
            assert_eq!((osa_distance(from, to), osa_distance(to, from)), (edits, edits), "{from} {to}");
        }
        assert_eq!(osa_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn only_near_names_are_suggested() {
        let names = || ["port", "password", "welcome"].into_iter();
        assert_eq!(did_you_mean("Pasword", names()), "; did you mean `password`?");
        assert_eq!(did_you_mean("colour", names()), "");
        assert_eq!(did_you_mean(&"p".repeat(100_000), names()), "");
    }

    #[test]
    fn short_names_allow_fewer_misspelled_letters() {
        let names = || ["bind", "port", "name", "password", "mission"].into_iter();
        for (typed, meant) in [("prot", "port"), ("passwd", "password"), ("pasword", "password")] {
            assert_eq!(correct_spelling(typed, names()), Some(meant), "{typed}");
        }
        for typed in ["bin", "home", "host", "version", "", &"p".repeat(100_000)] {
            assert_eq!(correct_spelling(typed, names()), None, "{}", &typed[..typed.len().min(9)]);
        }
    }
}
