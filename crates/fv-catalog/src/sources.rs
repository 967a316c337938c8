//! Reading the authored files of a catalog, without following what should not be followed.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::Path,
};

use walkdir::WalkDir;

use crate::codes::Code;

/// Authored files larger than this are refused unread: 16 MiB.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// The shared files that every catalog has.
pub const SHARED: [&str; 4] = ["hardware.yaml", "transformers.yaml", "encoders.yaml", "vaes.yaml"];

/// What was found at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text without a byte-order mark.
    Text(String),
    /// Not readable as text, and why. The text before the bad byte, where there is some.
    Refused(Code, String, String),
}

/// The authored files of a catalog by path relative to it, with `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The catalog's folder as people wrote it; empty for texts that are in no folder.
    pub root: String,
    /// Contents by relative path.
    pub files: BTreeMap<String, Content>,
}

impl Sources {
    /// Reads a catalog folder. Files that cannot be read become findings later.
    ///
    /// # Errors
    /// When `root` itself is not a readable folder.
    pub fn read(root: &Path) -> io::Result<Self> {
        fs::read_dir(root)?;
        let mut sources = Self { root: root.display().to_string().replace('\\', "/"), files: BTreeMap::new() };
        let walk = WalkDir::new(root).follow_links(true).sort_by_file_name().max_depth(2).min_depth(1);
        for entry in walk.into_iter().filter_entry(|e| !hidden(e)) {
            match entry {
                Ok(entry) => {
                    let relative = entry.path().strip_prefix(root).unwrap_or(entry.path()).display().to_string().replace('\\', "/");
                    let folder = entry.file_type().is_dir();
                    if folder && matches!(relative.as_str(), "models" | "rules") {
                        continue;
                    }
                    let content = if folder { not_a_file("a folder") } else { read(entry.path()) };
                    sources.files.insert(relative, content);
                }
                Err(error) => {
                    let path = error.path().unwrap_or(root);
                    let relative = path.strip_prefix(root).unwrap_or(path).display().to_string().replace('\\', "/");
                    let is_loop = error.loop_ancestor().is_some() || error.io_error().is_some_and(is_link_loop);
                    let content = if is_loop {
                        Content::Refused(Code::LinkLoop, "a symbolic link that leads back to itself".into(), String::new())
                    } else {
                        let why = error.io_error().map_or_else(|| "cannot be read".to_owned(), describe);
                        Content::Refused(Code::Unreadable, why, String::new())
                    };
                    sources.files.insert(relative, content);
                }
            }
        }
        if !root.join("models").exists() {
            let missing = Content::Refused(Code::MissingFile, "there is no `models` folder".into(), String::new());
            sources.files.entry("models".into()).or_insert(missing);
        }
        Ok(sources)
    }

    /// The path as it is shown to people.
    pub fn shown(&self, relative: &str) -> String {
        if self.root.is_empty() { relative.to_owned() } else { format!("{}/{relative}", self.root.trim_end_matches('/')) }
    }
}

/// Whether a folder looks like an authored catalog.
pub fn is_catalog(root: &Path) -> bool {
    // A link that leads nowhere is still meant as a file of the catalog.
    SHARED.iter().any(|name| root.join(name).symlink_metadata().is_ok())
}

fn hidden(entry: &walkdir::DirEntry) -> bool {
    entry.depth() > 0 && entry.file_name().to_string_lossy().starts_with('.')
}

fn not_a_file(what: &str) -> Content {
    Content::Refused(Code::NotAFile, format!("{what} where a file is expected"), String::new())
}

/// ELOOP on Linux and macOS.
fn is_link_loop(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(40 | 62)) && cfg!(unix)
}

fn describe(error: &io::Error) -> String {
    format!("cannot be read: {}", error.kind())
}

/// Reads one authored file.
pub fn read(path: &Path) -> Content {
    match bytes(path, MAX_FILE_BYTES) {
        Ok(bytes) => text(bytes),
        Err((code, message)) => Content::Refused(code, message, String::new()),
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// Why it was not read.
pub fn bytes(path: &Path, limit: u64) -> Result<Vec<u8>, (Code, String)> {
    let unreadable = |error: &io::Error| {
        if is_link_loop(error) {
            (Code::LinkLoop, "a symbolic link that leads back to itself".to_owned())
        } else {
            (Code::Unreadable, describe(error))
        }
    };
    let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !metadata.is_file() {
        return Err((
            Code::NotAFile,
            format!("{} where a file is expected", if metadata.is_dir() { "a folder" } else { "a device or pipe" }),
        ));
    }
    let too_large = || (Code::TooLarge, format!("larger than {} MiB, not read", limit >> 20));
    if metadata.len() > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// Bytes as text without a byte-order mark.
pub fn text(mut bytes: Vec<u8>) -> Content {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    String::from_utf8(bytes).map_or_else(
        |error| {
            let valid = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
            Content::Refused(Code::NotUtf8, "not UTF-8 from here".into(), before)
        },
        Content::Text,
    )
}
