//! Tables of requests: where their columns stand, and the words in them.

use crate::error::{InputError, did_you_mean, listed, quoted};

/// For each column that says what is asked where it stands; absent where an optional one is missing. Columns of what is decided may be
/// there, as they are written anew.
///
/// # Errors
/// A column that is missing, that is there twice, or that means nothing.
pub fn places<'a, const N: usize>(
    given: &[&'static str; N],
    optional: &[&str],
    decided: &[&'static str],
    header: impl IntoIterator<Item = &'a str>,
) -> Result<[Option<usize>; N], Vec<InputError>> {
    let mut found = [None; N];
    let mut errors = Vec::new();
    let known = || given.iter().chain(decided).copied();
    let mut seen = Vec::new();
    for (at, name) in header.into_iter().enumerate() {
        if seen.contains(&name) {
            errors.push(InputError::new("duplicate-column", format!("the column {} is there twice", quoted(name))));
        } else if let Some(place) = given.iter().position(|given| *given == name) {
            found[place] = Some(at);
        } else if !decided.contains(&name) {
            let message = format!("the column {} is not known{}; known: {}", quoted(name), did_you_mean(name, known()), listed(known()));
            errors.push(InputError::new("unknown-column", message));
        }
        seen.push(name);
    }
    let needed = |name: &&str| !optional.contains(name);
    for (name, _) in given.iter().copied().zip(found).filter(|(name, place)| place.is_none() && needed(name)) {
        let all = listed(given.iter().copied().filter(needed));
        errors.push(InputError::new("missing-column", format!("the column `{name}` is missing; needed: {all}")));
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// One of some words, letter case aside; another one is an error.
pub fn word<T: Copy>(
    name: &str,
    text: &str,
    known: impl IntoIterator<Item = (T, &'static str)>,
    errors: &mut Vec<InputError>,
) -> Option<T> {
    let known: Vec<(T, &str)> = known.into_iter().collect();
    let found = known.iter().find(|(_, word)| word.eq_ignore_ascii_case(text)).map(|(value, _)| *value);
    if found.is_none() {
        let words = || known.iter().map(|(_, word)| *word);
        let message = format!("{name}: found {}, allowed: {}{}", quoted(text), listed(words()), did_you_mean(text, words()));
        errors.push(InputError::new("invalid-value", message));
    }
    found
}
