//! `/proc/meminfo`: lines such as `MemTotal:       24684084 kB`, where `kB` means 1,024 bytes.

use crate::believed;

/// Where it is.
pub const PATH: &str = "/proc/meminfo";

/// The lines that count. A line that is missing or cannot be read is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal`.
    pub total_bytes: Option<u64>,
    /// `MemAvailable`.
    pub available_bytes: Option<u64>,
    /// `SwapTotal`.
    pub swap_bytes: Option<u64>,
}

/// Reads the file's text.
pub fn parse(text: &str) -> MemInfo {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
        kibibytes.checked_mul(1024).and_then(believed)
    };
    MemInfo { total_bytes: value("MemTotal"), available_bytes: value("MemAvailable"), swap_bytes: value("SwapTotal") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_name_and_unit() {
        for (line, bytes) in [
            ("MemTotal:       24684084 kB", Some(24_684_084 * 1024)),
            ("MemTotal:0 kB", Some(0)),
            ("MemTotal: 24684084", None),
            ("MemTotal: 24684084 MB", None),
            ("MemTotal: -1 kB", None),
            ("MemTotal: 18446744073709551615 kB", None),
            ("MemTotal: 9007199254740991 kB", None),
            ("HugeMemTotal: 5 kB", None),
            ("", None),
        ] {
            assert_eq!(parse(&format!("MemFree: 7 kB\n{line}\nBuffers: 1 kB\n")).total_bytes, bytes, "{line}");
        }
    }
}
