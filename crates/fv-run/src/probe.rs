//! A whole probe.

use std::{io, path::Path, process::Command, time::Duration};

use fv_spec::probe::{Host, Probe, Problem, System, VERSION};

use crate::{
    child::{self, Answer},
    disk,
    files::Files,
    gpu,
};

/// What is to be found out. What is given need not be measured.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// The time to write down, as RFC 3339 writes it, in UTC.
    pub time: String,
    /// Whether to ask for GPUs.
    pub gpus: bool,
    /// Whether to ask for the host's memory.
    pub host: bool,
    /// The folder whose file system is to be looked at.
    pub weights: Option<&'a Path>,
    /// Whether to measure how fast that folder's files are read.
    pub read_rate: bool,
    /// How long a driver may say nothing.
    pub silence: Duration,
}

/// The libraries that are asked, each in a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The driver's management library.
    Nvml,
    /// The driver.
    Cuda,
}

/// Probes this machine. `reader` makes the process that prints what a library answers.
///
/// # Errors
/// When the folder's file system cannot be looked at.
pub fn probe(ask: &Ask<'_>, reader: impl Fn(Library) -> io::Result<Command>) -> io::Result<Probe> {
    let files = &crate::files::Running;
    let mut problems = Vec::new();
    let mut gpus = Vec::new();
    if ask.gpus {
        // NVML first: the other process' context is no use by others.
        let [nvml, cuda] = [Library::Nvml, Library::Cuda].map(|library| match reader(library) {
            Ok(command) => child::ask(command, ask.silence),
            Err(error) => Answer { lines: Vec::new(), broke_off: Some(format!("it could not be started: {error}")) },
        });
        gpus = gpu::gpus(&nvml, &cuda, &mut problems);
    }
    // After the readers have gone with all that they held.
    let host = if ask.host { host(files, &mut problems) } else { None };
    let mut disk = ask.weights.map(|folder| disk::space(folder, files)).transpose()?;
    if let (Some(disk), Some(folder), true) = (&mut disk, ask.weights, ask.read_rate) {
        disk.read = disk::read_rate(folder, disk.filesystem.as_deref(), disk::MEASURE, &mut problems);
    }
    Ok(Probe { version: VERSION, time: ask.time.clone(), system: system(files), gpus, host, disk, problems })
}

#[cfg(target_os = "linux")]
fn host(files: &dyn Files, problems: &mut Vec<Problem>) -> Option<Host> {
    crate::linux::host(files, problems)
}

#[cfg(target_os = "linux")]
fn system(files: &dyn Files) -> System {
    crate::linux::system(files)
}

#[cfg(windows)]
fn host(_: &dyn Files, problems: &mut Vec<Problem>) -> Option<Host> {
    match fv_device::windows::memory() {
        Ok(memory) => crate::windows::host(&memory, problems),
        Err(error) => {
            problems.push(Problem::error("host-memory-unreadable", format!("GlobalMemoryStatusEx: {error}")));
            None
        }
    }
}

#[cfg(windows)]
fn system(_: &dyn Files) -> System {
    System { name: fv_spec::probe::OperatingSystem::Windows, kernel: None, wsl: None, container: None }
}

#[cfg(target_os = "macos")]
fn host(_: &dyn Files, problems: &mut Vec<Problem>) -> Option<Host> {
    let mut text = |command: &mut Command| match command.output() {
        // `sysctl` fails for a name that it does not know, and has printed the others.
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            problems.push(Problem::warning("command-failed", format!("{}: {error}", command.get_program().display())));
            String::new()
        }
    };
    let sysctl = text(Command::new("/usr/sbin/sysctl").args(crate::macos::SYSCTL));
    let vm_stat = text(&mut Command::new("/usr/bin/vm_stat"));
    crate::macos::host(&sysctl, &vm_stat, problems)
}

#[cfg(target_os = "macos")]
fn system(_: &dyn Files) -> System {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    System { name: fv_spec::probe::OperatingSystem::Macos, kernel: Some(kernel), wsl: None, container: None }
}
