//! What the end-to-end tests share.

use std::path::{Path, PathBuf};

use fv_catalog::sources::{Content, Sources};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The small sound catalog under `tests/base`, by path relative to it.
///
/// # Panics
/// When it cannot be read.
pub fn base() -> Sources {
    let mut sources = Sources::read(&root().join("tests/base")).unwrap_or_else(|error| panic!("tests/base: {error}"));
    sources.root = String::new();
    sources
}

/// `sources` with the only occurrence of `old` in `file` replaced by `new`.
///
/// # Panics
/// When `old` does not stand there exactly once.
pub fn edited(mut sources: Sources, file: &str, old: &str, new: &str) -> Sources {
    let Some(Content::Text(text)) = sources.files.get_mut(file) else { panic!("{file} is not a text of tests/base") };
    assert_eq!(text.matches(old).count(), 1, "{old:?} stands once in {file}");
    *text = text.replacen(old, new, 1);
    sources
}
