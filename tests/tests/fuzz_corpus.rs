//! The fuzz targets over their committed seeds, and over every cut of the small ones.

use std::fs;

use fv_tests::{fuzzing, root, systems::Recorded};

fn each_seed(target: &str, body: fn(&[u8])) {
    let folder = root().join("tests/fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).expect("a folder of seeds").flatten().map(|entry| entry.path()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "{} holds only {} seeds", folder.display(), paths.len());
    let mut wrong = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).expect("a seed");
        let cuts = if bytes.len() <= 64 { 0..bytes.len() } else { 0..0 };
        let fails = |end: &usize| std::panic::catch_unwind(|| body(&bytes[..*end])).is_err();
        wrong.extend(cuts.chain([bytes.len()]).find(fails).map(|end| format!("the first {end} bytes of {}", path.display())));
    }
    assert!(wrong.is_empty(), "{target} fails on {}", wrong.join(", "));
}

#[test]
fn seeds_of_the_yaml_target() {
    each_seed("yaml", fuzzing::yaml);
}

#[test]
fn seeds_of_the_compiled_target() {
    each_seed("compiled", fuzzing::compiled);
}

#[test]
fn seeds_of_the_system_files_target() {
    each_seed("system_files", fuzzing::system_files);
}

#[test]
fn seeds_of_the_requests_target() {
    each_seed("requests", fuzzing::requests);
}

/// The recorded systems are seeds: `UPDATE_SEEDS=1 cargo test -p fv-tests --test fuzz_corpus` writes them.
#[test]
fn recorded_systems_are_seeds() {
    for (name, system) in Recorded::all() {
        for (kind, bytes) in system.seeds() {
            let path = root().join("tests/fuzz/corpus/system_files").join(format!("{kind}-{name}"));
            if std::env::var_os("UPDATE_SEEDS").is_some() {
                fs::write(&path, &bytes).expect("written");
            }
            assert!(fs::read(&path).is_ok_and(|found| found == bytes), "{} is not current", path.display());
        }
    }
}

#[test]
fn seeds_of_the_plan_target() {
    each_seed("plan", fuzzing::plan);
}
