//! What the end-to-end tests share.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use fv_catalog::{
    finding::{Finding, Place},
    sources::{Content, Sources},
};
use serde_json::Value;

pub mod fuzzing;
pub mod systems;

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

/// One way to break the base catalog, and every finding that it should cause. `tests/faults/*.toml` holds them.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What is wrong, in a few words.
    pub name: String,
    /// The file that is changed.
    pub file: String,
    /// Stands once in the file and becomes `new`.
    old: Option<String>,
    new: Option<String>,
    /// Added at the end of the file.
    append: Option<String>,
    /// The whole file.
    text: Option<String>,
    /// Whether the file's lines end in CR LF.
    #[serde(default)]
    crlf: bool,
    /// Whole texts of other files by path.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// `code line:column` of every finding in order, after `path: ` when it is in another file.
    pub expect: Vec<String>,
}

impl Fault {
    /// All faults, by the name of their table, in authored order.
    ///
    /// # Panics
    /// When a table cannot be read.
    pub fn all() -> Vec<(String, Self)> {
        #[derive(serde::Deserialize)]
        struct Table {
            fault: Vec<Fault>,
        }
        let read = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
            let table: Table = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            table.fault.into_iter().map(move |fault| (name.clone(), fault))
        };
        let folder = fs::read_dir(root().join("tests/faults")).unwrap_or_else(|error| panic!("tests/faults: {error}"));
        let mut paths: Vec<PathBuf> =
            folder.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
        paths.sort();
        paths.iter().flat_map(read).collect()
    }

    /// The base catalog with this fault.
    ///
    /// # Panics
    /// When the fault does not fit the base catalog.
    pub fn sources(&self) -> Sources {
        let mut sources = base();
        if let Some(old) = &self.old {
            sources = edited(sources, &self.file, old, self.new.as_deref().unwrap_or_default());
        }
        let mut text = match (&self.text, sources.files.get(&self.file)) {
            (Some(text), _) | (None, Some(Content::Text(text))) => text.clone(),
            _ => String::new(),
        };
        text.push_str(self.append.as_deref().unwrap_or_default());
        if self.crlf {
            text = text.replace('\n', "\r\n");
        }
        // As bytes, so that a byte-order mark goes the way it goes in a file.
        sources.files.insert(self.file.clone(), fv_catalog::sources::text(text.into_bytes()));
        let others = self.files.iter().map(|(path, text)| (path.clone(), Content::Text(text.clone())));
        sources.files.extend(others);
        sources
    }

    /// The lines that differ from the base catalog, after `-` and `+`.
    pub fn diff(&self) -> String {
        let text = |sources: &Sources| match sources.files.get(&self.file) {
            Some(Content::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let (old, new) = (text(&base()), text(&self.sources()));
        let (mut old, mut new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        old.drain(..same);
        new.drain(..same);
        while old.last().is_some_and(|last| new.last() == Some(last)) {
            old.pop();
            new.pop();
        }
        let marked = old.iter().map(|line| format!("-{line}\n")).chain(new.iter().map(|line| format!("+{line}\n")));
        marked.collect()
    }
}

/// A fault that no text can express: its name, what it should cause, and how to make it in a copy of the base catalog.
pub struct DiskFault {
    /// What is wrong, in a few words.
    pub name: &'static str,
    /// `path: code line:column` of every finding in order.
    pub expect: &'static [&'static str],
    make: fn(&Path) -> io::Result<()>,
}

impl DiskFault {
    /// The base catalog with this fault, read from a folder.
    ///
    /// # Panics
    /// When the folder cannot be made.
    pub fn sources(&self) -> Sources {
        let read = || {
            let folder = tempfile::tempdir()?;
            fs::create_dir(folder.path().join("models"))?;
            for (path, content) in base().files {
                let Content::Text(text) = content else { continue };
                fs::write(folder.path().join(path), text)?;
            }
            (self.make)(folder.path())?;
            Sources::read(folder.path())
        };
        let mut sources = read().unwrap_or_else(|error: io::Error| panic!("{}: {error}", self.name));
        sources.root = String::new();
        sources
    }
}

/// Faults that no text can express. Like `tests/run.sh`, they need Unix.
pub static DISK_FAULTS: &[DiskFault] = &[
    DiskFault {
        name: "not UTF-8 after é, in the second line",
        expect: &["models/other.yaml: catalog::not-utf8 2:4"],
        make: |root| fs::write(root.join("models/other.yaml"), b"title: x\n# \xc3\xa9\xff\n"),
    },
    DiskFault {
        name: "16 MiB and one byte",
        expect: &["models/other.yaml: catalog::too-large 1:1"],
        make: |root| fs::File::create(root.join("models/other.yaml"))?.set_len((16 << 20) + 1),
    },
    DiskFault {
        name: "a folder in place of a manifest",
        expect: &["models/other.yaml: catalog::not-a-file 1:1"],
        make: |root| fs::create_dir(root.join("models/other.yaml")),
    },
    DiskFault {
        name: "a file in place of the folder of models",
        expect: &["models: catalog::not-a-file 1:1"],
        make: |root| {
            fs::remove_dir_all(root.join("models"))?;
            fs::write(root.join("models"), "")
        },
    },
    DiskFault {
        name: "no folder of models",
        expect: &["models: catalog::missing-file 1:1"],
        make: |root| fs::remove_dir_all(root.join("models")),
    },
    DiskFault {
        name: "not UTF-8 in the only model leaves the components alone",
        expect: &["models/example.yaml: catalog::not-utf8 1:1"],
        make: |root| fs::write(root.join("models/example.yaml"), b"\xff"),
    },
    DiskFault {
        name: "not UTF-8 in hardware leaves the runs alone",
        expect: &["hardware.yaml: catalog::not-utf8 1:1"],
        make: |root| fs::write(root.join("hardware.yaml"), b"\xff"),
    },
    DiskFault {
        name: "a folder that leads back to the catalog",
        expect: &["models/all.yaml: catalog::link-loop 1:1"],
        make: |root| std::os::unix::fs::symlink("..", root.join("models/all.yaml")),
    },
    DiskFault {
        name: "a named pipe",
        expect: &["models/other.yaml: catalog::not-a-file 1:1"],
        make: |root| std::process::Command::new("mkfifo").arg(root.join("models/other.yaml")).status().map(drop),
    },
    DiskFault {
        name: "a folder in models that is not read",
        expect: &["models/old: catalog::unexpected-file 1:1"],
        make: |root| fs::create_dir(root.join("models/old")),
    },
    DiskFault {
        name: "hidden files and notes are not looked at",
        expect: &[],
        make: |root| fs::write(root.join("models/.other.yaml.swp"), b"\xff").and_then(|()| fs::write(root.join("README.md"), "notes")),
    },
    DiskFault {
        name: "a link to itself",
        expect: &["models/other.yaml: catalog::link-loop 1:1"],
        make: |root| std::os::unix::fs::symlink("other.yaml", root.join("models/other.yaml")),
    },
    DiskFault {
        name: "a link to nothing",
        expect: &["models/other.yaml: catalog::unreadable 1:1"],
        make: |root| std::os::unix::fs::symlink("nowhere.yaml", root.join("models/other.yaml")),
    },
    DiskFault {
        name: "no encoders.yaml",
        expect: &["encoders.yaml: catalog::missing-file 1:1"],
        make: |root| fs::remove_file(root.join("encoders.yaml")),
    },
    DiskFault {
        name: "a folder that no catalog has",
        expect: &["notes: catalog::unexpected-file 1:1"],
        make: |root| fs::create_dir(root.join("notes")),
    },
];

/// Every finding in order as faults expect them; the path is left out for `file`.
pub fn places(findings: &[Finding], file: &str) -> Vec<String> {
    let place = |finding: &Finding| {
        let Place { line, column } = finding.place();
        let path = Some(&finding.file.path).filter(|path| *path != file).map(|path| format!("{path}: ")).unwrap_or_default();
        format!("{path}{} {line}:{column}", finding.code)
    };
    findings.iter().map(place).collect()
}

/// `fv-catalog`, built when first asked for, since Cargo gives the tests of one package no programs of another.
///
/// # Panics
/// When it cannot be built.
pub fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("fv-catalog"));
    &PROGRAM
}

/// `fv-run`, likewise.
///
/// # Panics
/// When it cannot be built.
pub fn runner() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("fv-run"));
    &PROGRAM
}

fn built(package: &str) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(root()).args(["build", "--quiet", "--package", package, "--message-format", "json"]);
    let done = build.stderr(Stdio::inherit()).output().unwrap_or_else(|error| panic!("cargo: {error}"));
    let messages = String::from_utf8_lossy(&done.stdout);
    let executable = |line| serde_json::from_str::<Value>(line).ok()?["executable"].as_str().map(PathBuf::from);
    messages.lines().find_map(executable).unwrap_or_else(|| panic!("{package} cannot be built:\n{messages}"))
}

/// Looks that a generated page is current, or writes it where `UPDATE_DOCS` is set.
///
/// # Panics
/// When it is another, or cannot be written.
pub fn page_is(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let differs = found.lines().zip(text.lines()).find(|(found, wanted)| found != wanted);
    assert!(found == text, "{path} is not current, write it with UPDATE_DOCS=1; first difference: {differs:?}");
}

/// Writes the texts of `sources` below `folder`.
///
/// # Panics
/// When they cannot be written.
pub fn write_sources(sources: &Sources, folder: &Path) {
    for (path, content) in &sources.files {
        let Content::Text(text) = content else { panic!("{path} is not a text") };
        let path = folder.join(path);
        let parents = path.parent().map_or(Ok(()), fs::create_dir_all);
        parents.and_then(|()| fs::write(&path, text)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
