//! Systems that are not here, as texts in the formats that real ones print: `tests/systems/*.toml`.

use std::{collections::BTreeMap, fs, io};

use fv_device::reading::WindowsMemory;
use fv_run::{child::Answer, files::Files, gpu, linux, macos, windows};
use fv_spec::probe::{OperatingSystem, Probe, System, VERSION};

use crate::root;

/// A system that is not here.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// What is special about it.
    pub about: String,
    /// Texts of system files by path.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Paths of files that may not be read.
    #[serde(default)]
    unreadable: Vec<String>,
    /// What the process prints that asks NVML.
    nvml: String,
    /// What the process prints that asks CUDA.
    cuda: String,
    /// Memory of Windows.
    windows: Option<WindowsMemory>,
    /// What `sysctl` prints.
    sysctl: Option<String>,
    /// What `vm_stat` prints.
    #[serde(default)]
    vm_stat: String,
}

impl Recorded {
    /// All of them by name, in order.
    ///
    /// # Panics
    /// When one cannot be read.
    pub fn all() -> Vec<(String, Self)> {
        let folder = fs::read_dir(root().join("tests/systems")).unwrap_or_else(|error| panic!("tests/systems: {error}"));
        let mut paths: Vec<_> = folder.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let read = |path: std::path::PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            let system = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, system)
        };
        paths.into_iter().map(read).collect()
    }

    /// The system's files.
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// Puts `text` in place of a file.
    pub fn replace(&mut self, path: String, text: String) {
        self.files.insert(path, text);
    }

    /// What the processes print that ask NVML and CUDA.
    pub fn readers(&self) -> [&str; 2] {
        [&self.nvml, &self.cuda]
    }

    /// This system as seeds of the fuzz target `system_files`, by the kind of seed.
    pub fn seeds(&self) -> Vec<(&'static str, Vec<u8>)> {
        let seed = |kind: &'static str, parts: &[&str]| (kind, format!("{}{}", &kind[..1], parts.join("\0")).into_bytes());
        let mut seeds = vec![seed("gpu", &self.readers())];
        if let Some(memory) = &self.windows {
            let WindowsMemory { total_physical, available_physical, commit_limit, commit_available, installed } = *memory;
            let figures = [total_physical, available_physical, commit_limit, commit_available, installed.unwrap_or(0)];
            let texts = figures.map(|figure| figure.to_string());
            seeds.push(seed("windows", &texts.each_ref().map(String::as_str)));
        } else if let Some(sysctl) = &self.sysctl {
            seeds.push(seed("macos", &[sysctl, &self.vm_stat]));
        } else {
            let ending = |end: &str| self.files.iter().find(|(path, _)| path.ends_with(end)).map_or("", |(_, text)| text);
            let either = |one, other| if ending(one).is_empty() { ending(other) } else { ending(one) };
            let limit = either("memory.max", "memory.limit_in_bytes");
            let usage = either("memory.current", "memory.usage_in_bytes");
            let names = ["/osrelease", "/meminfo", "/self/cgroup", "/mountinfo"].map(ending);
            seeds.push(seed("linux", &[names[0], names[1], names[2], names[3], limit, usage, ending("memory.stat")]));
        }
        let probe = serde_json::to_string(&self.probe()).unwrap_or_default();
        seeds.push(seed("probe", &[&probe]));
        seeds
    }

    /// What a probe finds on it.
    pub fn probe(&self) -> Probe {
        let mut problems = Vec::new();
        let [nvml, cuda] = self.readers().map(Answer::recorded);
        let gpus = gpu::gpus(&nvml, &cuda, &mut problems);
        let bare = |name, kernel: Option<&str>| System { name, kernel: kernel.map(str::to_owned), wsl: None, container: None };
        let (host, system) = match (&self.windows, &self.sysctl) {
            (Some(memory), _) => (windows::host(memory, &mut problems), bare(OperatingSystem::Windows, None)),
            (_, Some(sysctl)) => (macos::host(sysctl, &self.vm_stat, &mut problems), bare(OperatingSystem::Macos, Some("24.6.0"))),
            _ => (linux::host(self, &mut problems), linux::system(self)),
        };
        Probe { version: VERSION, time: "2026-11-18T09:30:00Z".to_owned(), system, gpus, host, disk: None, problems }
    }
}

impl Files for Recorded {
    fn read(&self, path: &str) -> io::Result<String> {
        if self.unreadable.iter().any(|unreadable| unreadable == path) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "Permission denied (os error 13)"));
        }
        let missing = || io::Error::new(io::ErrorKind::NotFound, "No such file or directory (os error 2)");
        self.files.get(path).cloned().ok_or_else(missing)
    }
}
