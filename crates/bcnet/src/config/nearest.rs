//! What somebody who mistyped a name probably meant.

/// `; did you mean …?` if one of `names` is near enough to `typed`, else nothing.
pub(crate) fn did_you_mean<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> String {
    nearest(typed, names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if typed.len() > LONGEST {
        return None;
    }
    let typed = typed.to_lowercase();
    let near = names.map(|name| (distance(&typed, &name.to_lowercase()), name));
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= (typed.len() / 3).max(1)).then_some(name)
}

/// How many letters to insert, delete, replace or swap with their neighbour (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

/// No key is longer, and the distance takes the product of both lengths.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits_and_swaps() {
        for (from, to, edits) in [("", "", 0), ("port", "port", 0), ("prot", "port", 1), ("pot", "port", 1)] {
            assert_eq!((distance(from, to), distance(to, from)), (edits, edits), "{from} {to}");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn only_near_names_are_suggested() {
        let names = || ["port", "password", "welcome"].into_iter();
        assert_eq!(did_you_mean("Pasword", names()), "; did you mean `password`?");
        assert_eq!(did_you_mean("colour", names()), "");
        assert_eq!(did_you_mean(&"p".repeat(100_000), names()), "");
    }
}
