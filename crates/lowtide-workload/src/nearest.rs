//! Suggestions for a name that does not exist.
//!
//! Names are few and short, so all of them are compared: the nearest is the one with the fewest
//! insertions, deletions and substitutions of characters (Levenshtein).

use strsim::levenshtein;

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
        let distances = known.iter().map(|name| (levenshtein(part(name), given), *name));
        let near = distances.filter(|(distance, name)| 2 * distance <= part(name).len());
        near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
    };
    near(|name| name).or_else(|| near(|name| name.split('-').next().unwrap_or(name)))
}
