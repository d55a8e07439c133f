//! Suggestions for a name that does not exist.
//!
//! Names are few and short, so all of them are compared: the nearest is the one with the fewest
//! insertions, deletions and substitutions of characters (Levenshtein).

/// The known name nearest to the given one, if one is near: beyond half the name, a suggestion is a
/// guess and not a help. Where none is, the first word of a name stands for it. Of several at the
/// same distance, the first.
///
/// ```
/// use lowtide_workload::nearest;
///
/// assert_eq!(nearest("laptpo", ["phone", "laptop"]), Some("laptop"));
/// assert_eq!(nearest("xenon", ["phone", "xeon-96t"]), Some("xeon-96t"));
/// assert_eq!(nearest("mainframe", ["phone", "laptop"]), None);
/// ```
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let near = |part: fn(&str) -> &str| {
        let distances = known.iter().map(|name| (edit_distance(part(name), given), *name));
        let near = distances.filter(|(distance, name)| 2 * distance <= part(name).len());
        near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
    };
    near(|name| name).or_else(|| near(|name| name.split('-').next().unwrap_or(name)))
}

/// The number of insertions, deletions and substitutions of characters that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.chars().enumerate() {
            let substitute = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances() {
        for (a, b, distance) in
            [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("scan", "scna", 2)]
        {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
            assert_eq!(edit_distance(b, a), distance, "{b} {a}");
        }
    }
}
