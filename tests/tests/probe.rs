//! `fv-run probe` on this machine, with driver libraries that are made here, and with folders that are read.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use fv_spec::probe::{Architecture, FreeSource, PageCache, Probe, Severity};
use fv_tests::{root, runner, systems::Recorded};
use serde_json::Value;

/// Exit code, output and error stream.
fn run(command: &mut Command) -> (i32, String, String) {
    let done = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
    (done.status.code().expect("no signal"), text(done.stdout), text(done.stderr))
}

/// What `fv-run probe --json` finds with more arguments.
fn probe(command: &mut Command, arguments: &[&str]) -> Probe {
    let (code, out, err) = run(command.args(["probe", "--json"]).args(arguments));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    fv_estimate::probe::read(&out).unwrap_or_else(|errors| panic!("{errors:?}\n{out}"))
}

#[test]
fn this_machine_is_probed_whatever_it_has() {
    let found = probe(&mut Command::new(runner()), &[]);
    let schema = fs::read_to_string(root().join("schemas/probe.schema.json")).expect("committed");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let value = serde_json::to_value(&found).expect("a probe");
    assert!(jsonschema::validator_for(&schema).expect("a schema").is_valid(&value), "{value:#}");
    let host = found.host.expect("this machine has memory");
    assert!(host.total_bytes > 256 << 20, "{host:?}");
    let (code, table, err) = run(Command::new(runner()).arg("probe"));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(table.contains("Host memory") && !table.contains('\u{1b}'), "{table}");
}

/// Driver libraries that are compiled here, in a folder that the loader looks into.
#[cfg(target_os = "linux")]
struct Driver(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl Driver {
    /// `sources` by the name that the loader asks for; an empty source is a library without a function.
    fn with(sources: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (library, source) in sources {
            let file = root().join("tests/data/fake_driver").join(source);
            let empty = folder.path().join("empty.c");
            fs::write(&empty, "int nothing;\n").expect("written");
            let file = if source.is_empty() { empty } else { file };
            let done = Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(folder.path().join(library)).arg(file).status();
            assert!(done.expect("a C compiler").success());
        }
        Self(folder)
    }

    fn complete() -> Self {
        Self::with(&[("libcuda.so.1", "cuda.c"), ("libnvidia-ml.so.1", "nvml.c")])
    }

    fn command(&self, mode: &str) -> Command {
        let mut command = Command::new(runner());
        command.env("LD_LIBRARY_PATH", self.0.path()).env("FAKE_DRIVER", mode);
        command
    }
}

#[cfg(target_os = "linux")]
fn codes(probe: &Probe) -> Vec<&str> {
    probe.problems.iter().map(|problem| problem.code.as_str()).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn a_driver_is_asked_from_within_a_context_and_nvml_stands_in_where_there_is_none() {
    let found = probe(&mut Driver::complete().command("works"), &[]);
    let [first, second] = &found.gpus[..] else { panic!("{found:#?}") };
    assert_eq!((first.total_bytes, first.free_bytes), (Some(23 << 30), Some(20 << 30)));
    assert_eq!(first.free_source, Some(FreeSource::DriverContext));
    // This NVML has a quarter of a GiB less at each question; the second question is behind the context.
    assert_eq!(first.context_bytes, Some(1 << 28));
    assert_eq!((first.reported_bytes, first.used_by_others_bytes), (Some(24 << 30), Some(3 << 29)));
    assert_eq!(first.architecture.map(Architecture::word), Some("ada"));
    assert_eq!(first.pcie.map(|link| (link.generation, link.max_generation, link.max_lanes)), Some((None, Some(4), Some(16))));
    assert_eq!((first.driver_version.as_deref(), first.cuda_driver_version.as_deref()), (Some("580.00"), Some("13.0")));
    assert_eq!((second.free_source, second.total_bytes), (Some(FreeSource::Nvml), Some(24 << 30)));
    assert_eq!(codes(&found), ["context-refused"]);
    assert!(found.problems[0].message.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{:?}", found.problems);
}

#[test]
#[cfg(target_os = "linux")]
fn no_driver_library_can_stop_a_probe() {
    let driver = Driver::complete();
    for (mode, source, problems) in [
        ("no-device", FreeSource::Nvml, &["no-cuda"][..]),
        ("stub", FreeSource::Nvml, &["no-cuda"]),
        ("mismatch", FreeSource::Nvml, &["cuda-failed"]),
        ("crash", FreeSource::Nvml, &["cuda-failed"]),
        ("crash-late", FreeSource::DriverContext, &["cuda-failed"]),
    ] {
        let found = probe(&mut driver.command(mode), &[]);
        assert_eq!((codes(&found), found.gpus[0].free_source), (problems.to_vec(), Some(source)), "{mode}");
        assert_eq!(found.gpus.len(), 2, "{mode}");
        assert!(found.host.is_some(), "{mode}");
    }
    let found = probe(&mut driver.command("hang"), &["--driver-timeout", "1"]);
    assert_eq!((codes(&found), found.gpus[0].free_source), (vec!["cuda-failed"], Some(FreeSource::Nvml)));
    assert!(found.problems[0].message.ends_with("it said nothing for 1 s and was ended"), "{:?}", found.problems);
}

#[test]
#[cfg(target_os = "linux")]
fn missing_libraries_and_functions_are_answers() {
    // The bindings panic for a function that is missing; that is the end of the reader and not of the probe.
    let found = probe(&mut Driver::with(&[("libcuda.so.1", ""), ("libnvidia-ml.so.1", "")]).command("works"), &[]);
    assert_eq!((codes(&found), found.gpus.len()), (vec!["nvml-failed", "cuda-failed"], 0));
    let found = probe(&mut Driver::with(&[("libcuda.so.1", "cuda.c")]).command("works"), &[]);
    assert_eq!((codes(&found), found.gpus.len()), (vec!["no-nvml", "context-refused"], 2));
    assert_eq!(found.gpus[0].free_source, Some(FreeSource::DriverContext));
    let found = probe(&mut Driver::with(&[("libnvidia-ml.so.1", "nvml.c")]).command("works"), &[]);
    assert_eq!((codes(&found), found.gpus[1].free_source), (vec!["no-cuda"], Some(FreeSource::Nvml)));
    // NVML's code 9: the driver is not loaded. 4: no permission.
    let driver = Driver::with(&[("libnvidia-ml.so.1", "nvml.c")]);
    assert_eq!(codes(&probe(driver.command("works").env("FAKE_NVML", "9"), &[])), ["no-gpu"]);
    assert_eq!(codes(&probe(driver.command("works").env("FAKE_NVML", "4"), &[])), ["no-cuda", "nvml-failed"]);
    for library in ["nvml", "cuda"] {
        let (code, out, err) = run(Command::new(runner()).args(["reader", library]).env("LD_LIBRARY_PATH", "/nowhere"));
        assert_eq!((code, err.as_str()), (0, ""), "{library}");
        assert!(out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()) && !out.is_empty(), "{out}");
    }
}

/// What is found with the read rate of a folder.
fn weights(folder: &Path) -> Probe {
    probe(Command::new(runner()).current_dir(folder), &["--weights", ".", "--read-rate"])
}

/// Paths, sizes and times of change below a folder.
fn listing(folder: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let entry = |path: PathBuf| {
        let data = fs::metadata(&path).expect("is there");
        (path, (data.len(), data.modified().expect("a time")))
    };
    let all = fs::read_dir(folder).expect("a folder").flatten();
    all.map(|found| entry(found.path())).chain([entry(folder.to_owned())]).collect()
}

#[test]
fn files_are_read_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    // Neither size is a multiple of a block.
    fs::write(folder.path().join("a.safetensors"), vec![7; (20 << 20) + 1]).expect("written");
    fs::write(folder.path().join("b.safetensors"), vec![7; (3 << 20) - 5]).expect("written");
    fs::write(folder.path().join("config.json"), "{}").expect("written");
    let before = listing(folder.path());
    let found = weights(folder.path());
    assert_eq!(listing(folder.path()), before);
    let disk = found.disk.expect("a file system");
    assert!(disk.total_bytes >= disk.free_bytes && disk.total_bytes > 0, "{disk:?}");
    let read = disk.read.expect("a rate");
    assert_eq!(read.read_bytes, (20 << 20) + 1 + (3 << 20) - 5);
    assert!(read.bytes_per_second > 0 && read.nanoseconds > 0);
    assert!(found.problems.iter().any(|problem| problem.code == "little-to-read"));
    let warned = found.problems.iter().any(|problem| problem.code == "page-cache");
    assert_eq!(warned, read.page_cache != PageCache::Bypassed);
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_system_in_memory_is_not_taken_for_a_disk() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    fs::write(folder.path().join("a.safetensors"), vec![7; 2 << 20]).expect("written");
    let found = weights(folder.path());
    let disk = found.disk.expect("a file system");
    assert_eq!(disk.filesystem.as_deref(), Some("tmpfs"));
    // Kernels from 6.6 on let such files be opened past the page cache, and serve them from memory all the same.
    let codes: Vec<&str> = found.problems.iter().map(|problem| problem.code.as_str()).collect();
    assert!(codes.contains(&"page-cache"), "{:?} {codes:?}", disk.read);
}

#[test]
fn a_folder_without_weights_has_no_rate() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = weights(folder.path());
    assert_eq!(found.disk.and_then(|disk| disk.read), None);
    assert!(found.problems.iter().any(|problem| (problem.severity, problem.code.as_str()) == (Severity::Note, "nothing-to-read")));
}

/// Version 1 of the format, as it was first written: what these files say can be read for as long as version 1 is.
#[test]
fn probe_files_of_version_1_are_read() {
    let mut read = 0;
    for (name, system) in Recorded::all() {
        let path = root().join(format!("tests/data/probes/{name}.json"));
        let Ok(text) = fs::read_to_string(&path) else { continue };
        assert_eq!(fv_estimate::probe::read(&text), Ok(system.probe()), "{name}");
        read += 1;
    }
    assert_eq!(read, fs::read_dir(root().join("tests/data/probes")).expect("a folder").count());
    assert!(read >= 3);
}
