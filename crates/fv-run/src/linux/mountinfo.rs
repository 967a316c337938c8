//! `/proc/self/mountinfo`: one mount a line, in the order in which they were made.
//!
//! `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue`: after the root within the mounted file
//! system and the mount point come options, any number of tagged fields, a hyphen, the kind, the source and options of the
//! file system. Spaces, tabs, line ends and backslashes in paths are written as `\` and three octal digits.

/// Where it is.
pub const PATH: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// What of the file system is mounted.
    pub root: String,
    /// Where.
    pub point: String,
    /// The kind of file system.
    pub kind: String,
    /// Options of the file system, separated by commas.
    pub options: String,
}

impl Mount {
    /// Whether the file system has this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|found| found == option)
    }
}

/// Reads the file's text; lines of another shape are passed over.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let root = unescaped(fields.nth(3)?);
    let point = unescaped(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != "-").skip(1);
    let kind = fields.next()?.to_owned();
    let options = fields.nth(1).unwrap_or_default().to_owned();
    (root.starts_with('/') && point.starts_with('/')).then_some(Mount { root, point, kind, options })
}

fn unescaped(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        // The four that are escaped are all below 128.
        let escaped = rest.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        match escaped {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &rest[3..];
            }
            None => text.push('\\'),
        }
    }
    text + rest
}

/// The mount that a path is on: the deepest mount point above it, the last where several are.
pub fn of<'m>(mounts: &'m [Mount], path: &str) -> Option<&'m Mount> {
    let on = mounts.iter().filter(|mount| below(&mount.point, path).is_some());
    on.max_by_key(|mount| mount.point.len())
}

/// `path` as seen from `folder`, with a leading `/` unless it is the folder itself; `None` outside of it.
pub fn below<'p>(folder: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?.trim_end_matches('/');
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_tags_may_stand_before_the_hyphen() {
        for tags in ["", "shared:1 ", "shared:1 master:2 propagate_from:3 unbindable "] {
            let mounts = parse(&format!("36 35 98:0 /a\\040b /mnt\\134c rw,noatime {tags}- ext3 /dev/root rw,errors=continue\n"));
            let [mount] = &mounts[..] else { panic!("{mounts:?}") };
            assert_eq!((mount.root.as_str(), mount.point.as_str(), mount.kind.as_str()), ("/a b", "/mnt\\c", "ext3"));
            assert!(mount.has("errors=continue") && mount.has("rw") && !mount.has("errors"));
        }
        for line in ["", "36 35", "36 35 98:0 / /mnt rw", "36 35 98:0 / /mnt rw -", "36 35 98:0 net:[4026] /run rw - nsfs nsfs rw"] {
            assert_eq!(parse(line), [], "{line}");
        }
    }

    #[test]
    fn escapes_that_are_none_stay() {
        for (field, text) in
            [("\\", "\\"), ("\\04", "\\04"), ("\\999", "\\999"), ("\\777é", "\\777é"), ("é\\012", "é\n"), ("\\é40", "\\é40")]
        {
            assert_eq!(unescaped(field), text);
        }
    }

    #[test]
    fn paths_are_below_whole_names() {
        for (folder, path, rest) in [
            ("/", "/a/b", Some("/a/b")),
            ("/a", "/a/b", Some("/b")),
            ("/a", "/a", Some("")),
            ("/a/", "/a/", Some("")),
            ("/", "/", Some("")),
            ("/a", "/ab", None),
            ("/a/b", "/a", None),
        ] {
            assert_eq!(below(folder, path), rest, "{path} below {folder}");
        }
    }
}
