//! What is wrong with an input, and the words that messages share.

use std::fmt;

use fv_spec::estimate::Reason;

/// An input that cannot be used. Nothing is estimated from it: unlike an unknown fact, somebody has to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// Lower case with hyphens, such as `unknown-partition`.
    pub code: &'static str,
    /// A sentence that names the input, what is wrong and, where that is known, what would be right.
    pub message: String,
}

impl InputError {
    /// An error.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InputError {}

impl From<InputError> for Reason {
    fn from(error: InputError) -> Self {
        Self::new(error.code, error.message)
    }
}

/// Text of an input as it may stand in a message: in backquotes, without control characters, and not endless.
pub fn quoted(text: &str) -> String {
    let shown: String = short(text).chars().flat_map(char::escape_debug).collect();
    format!("`{shown}`")
}

/// Text of an input that is not endless.
pub(crate) fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    let end = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
    text.chars().take(LONGEST).chain(end.chars()).collect()
}

/// A number that was given, exactly, and 1e300 or 1e-300 in place of 301 digits.
pub fn readable(number: f64) -> String {
    let size = number.abs();
    if size >= 1e15 || (size > 0.0 && size < 1e-6) { format!("{number:e}") } else { number.to_string() }
}

/// A number with at most three digits behind the point: for names.
pub(crate) fn rounded(number: f64) -> String {
    format!("{number:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Words in a sentence: `a, b, c`.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().collect::<Vec<_>>().join(", ")
}

/// `; did you mean ...?`, or nothing when no candidate is near.
pub(crate) fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// The candidate that takes the fewest edits, letter case aside, when a third of the word or less has to change. The first
/// of several.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    let letters = |text: &str| text.chars().take(LONGEST).flat_map(char::to_lowercase).collect::<String>();
    let word = letters(word);
    let bound = (word.chars().count() / 3).max(1);
    let near = candidates.into_iter().map(|candidate| (strsim::levenshtein(&word, &letters(candidate)), candidate));
    near.filter(|(distance, _)| *distance <= bound).min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Bytes as people read them: GiB with two decimals, or bytes where that would be nothing.
pub fn gib(bytes: u128) -> String {
    const GIB: u128 = 1 << 30;
    let hundredths = bytes.checked_mul(100).map_or(u128::MAX, |scaled| scaled.saturating_add(GIB / 2)) / GIB;
    if hundredths == 0 { format!("{bytes} bytes") } else { format!("{}.{:02} GiB", hundredths / 100, hundredths % 100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let ids = ["1g.10gb", "1g.20gb", "7g.80gb"];
        for (word, near) in [
            ("1g.10g", Some("1g.10gb")),
            ("1G.10GB", Some("1g.10gb")),
            ("1g.20b", Some("1g.20gb")),
            ("7g.80gb!", Some("7g.80gb")),
            ("half", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, ids), near, "{word}");
        }
        assert_eq!(nearest("cdua", ["cuda", "rocm"]), None, "two edits in four letters");
        assert_eq!(nearest("cud", ["cuda", "rocm"]), Some("cuda"));
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, count) in [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)] {
            assert_eq!(strsim::levenshtein(a, b), count, "{a} {b}");
        }
    }

    #[test]
    fn input_text_cannot_break_a_message() {
        assert_eq!(quoted("a\u{1b}[31m\nb"), "`a\\u{1b}[31m\\nb`");
        assert_eq!(quoted(&"x".repeat(1000)).len(), 65);
    }

    #[test]
    fn numbers_are_readable() {
        for (number, exact, short) in
            [(24.0, "24", "24"), (19.103_322_179_988_027, "19.103322179988027", "19.103"), (0.001, "0.001", "0.001"), (100.0, "100", "100")]
        {
            assert_eq!((readable(number).as_str(), rounded(number).as_str()), (exact, short));
        }
        assert_eq!((readable(1e300).as_str(), readable(-1e20).as_str()), ("1e300", "-1e20"));
    }

    #[test]
    fn sizes_are_readable() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 bytes"),
            (1 << 30, "1.00 GiB"),
            (25_757_220_864, "23.99 GiB"),
            (5_000_000, "5000000 bytes"),
            (6_000_000, "0.01 GiB"),
        ] {
            assert_eq!(gib(bytes), text);
        }
        assert!(gib(u128::MAX).ends_with("GiB"));
    }
}
