//! Writing files so that a reader sees the old text or the new one, never a part.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use serde::Serialize;
use tempfile::TempPath;

/// Indented JSON with a final newline. Our types always serialise: keys are text and numbers are finite.
pub fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_else(|error| unreachable!("wire types serialise: {error}"));
    text.push('\n');
    text
}

/// Replaces `path` by `text` in one step, keeping its permissions.
///
/// # Errors
/// When the new text cannot be written; the old file is then untouched.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    replace_by(path, |file| file.write_all(text.as_bytes()))
}

/// [`replace`] by what `write` writes.
///
/// # Errors
/// When the new file cannot be written; the old one is then untouched.
pub fn replace_by<E: From<io::Error>>(path: &Path, write: impl FnOnce(&mut fs::File) -> Result<(), E>) -> Result<(), E> {
    // A link is followed, so that its target is replaced and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let staged = stage_by(&path, write)?;
    staged.persist(&path).map_err(|error| E::from(error.error))
}

/// How the names of staged files begin and end.
pub const PART: (&str, &str) = (".fv-", ".part");

/// Writes `text` beside `path`, whose permissions it gets, to be put in its place.
///
/// # Errors
/// When it cannot be written.
pub fn stage(path: &Path, text: &str) -> io::Result<TempPath> {
    stage_by(path, |file| file.write_all(text.as_bytes()))
}

fn stage_by<E: From<io::Error>>(path: &Path, write: impl FnOnce(&mut fs::File) -> Result<(), E>) -> Result<TempPath, E> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(PART.0).suffix(PART.1).tempfile_in(folder).map_err(|error| {
        // The name of the staged file is nobody's business.
        io::Error::new(error.kind(), format!("no file can be made in the folder {}: {}", folder.display(), error.kind()))
    })?;
    write(file.as_file_mut())?;
    let permissions = fs::metadata(path).map(|m| m.permissions()).or_else(|_| new_file_permissions(folder))?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    // Closed at once: a large catalog has more files than a process may hold open.
    Ok(file.into_temp_path())
}

/// The permissions that an ordinary new file gets, which a temporary file does not.
#[cfg(unix)]
fn new_file_permissions(folder: &Path) -> io::Result<fs::Permissions> {
    use std::os::unix::fs::PermissionsExt;
    // Readable by whoever may read the folder.
    let folder = fs::metadata(folder)?.permissions().mode();
    Ok(fs::Permissions::from_mode(0o600 | (folder & 0o044)))
}

/// Other systems give a temporary file no permissions of its own.
#[cfg(not(unix))]
fn new_file_permissions(folder: &Path) -> io::Result<fs::Permissions> {
    tempfile::tempfile_in(folder)?.metadata().map(|file| file.permissions())
}
