//! Where system files are read from: the running system, or texts of another one.

use std::{
    fs::File,
    io::{self, Read},
};

/// System files by absolute path.
pub trait Files {
    /// The text of a file; bytes that are not UTF-8 become marks.
    ///
    /// # Errors
    /// When there is no such file or it cannot be read.
    fn read(&self, path: &str) -> io::Result<String>;
}

/// The running system.
#[derive(Debug, Clone, Copy)]
pub struct Running;

impl Files for Running {
    fn read(&self, path: &str) -> io::Result<String> {
        /// More than any system file that is read here; what is longer is cut.
        const LONGEST: u64 = 4 << 20;
        let mut bytes = Vec::new();
        File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
