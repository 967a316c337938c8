//! A write that fails or is cut off leaves whole files: the old ones, or the new ones.

#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use fv_catalog::{sources::Sources, write};
use fv_tests::{base, edited, program, write_sources};

/// The base catalog with another text in every compiled file, and with more devices than the old one.
fn newer() -> Sources {
    let device = |i| {
        format!(
            "new-{i}:\n  name: New {i}\n  vendor: other\n  kind: gpu\n  memory: {{ type: dedicated, nominal: {{ value: 8, unit: GB }} }}\n  backend: cuda\n  sources:\n    - {{ url: https://example.org/, checked: 2026-11-30, kind: vendor }}\nlaptop-32gb:"
        )
    };
    let devices = (0..40).fold("laptop-32gb:".to_owned(), |text, i| text.replace("laptop-32gb:", &device(i)));
    let sources = edited(base(), "hardware.yaml", "laptop-32gb:", &devices);
    edited(sources, "models/example.yaml", "title: Example T2V", "title: Newer T2V")
}

/// A folder with the old catalog compiled in `out`, and the newer one authored in `newer`.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    write_sources(&base(), &place.path().join("catalog"));
    write_sources(&newer(), &place.path().join("newer"));
    assert!(run(place.path(), "exec \"$FV\" build --out out").status.success());
    place
}

/// Runs a line of Bash in `folder`, with the program as `$FV`.
fn run(folder: &Path, line: &str) -> Output {
    shell(folder, line).output().expect("bash")
}

fn shell(folder: &Path, line: &str) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", line]).current_dir(folder).env("FV", program()).env_remove("FV_CATALOG");
    shell
}

/// Every file below `folder`, by path, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("readable"));
        }
    }
    found
}

fn failed(done: &Output) {
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.code() == Some(2) && err.starts_with("error: "), "{}: {out}{err}", done.status);
}

/// Nothing that is larger can be written, as on a full disk; the signal that says so is ignored, so that writing fails.
const SMALL_FILES: &str = "trap '' XFSZ; ulimit -f 8";

#[test]
fn a_build_that_cannot_write_one_file_changes_none() {
    let place = place();
    let before = files(&place.path().join("out"));
    // The new model fits, the devices do not, and the model is written first.
    failed(&run(place.path(), &format!("{SMALL_FILES}; exec \"$FV\" build --out out --catalog newer")));
    assert!(files(&place.path().join("out")) == before);
    assert!(run(place.path(), "exec \"$FV\" build --out out --catalog newer").status.success());
    assert_eq!(files(&place.path().join("out")).len(), before.len());
}

#[test]
fn a_build_over_a_folder_in_place_of_a_file_changes_none() {
    for taken in ["rules.json", "models/example.json", "index.json"] {
        let place = place();
        let path = place.path().join("out").join(taken);
        fs::remove_file(&path).expect("there");
        fs::create_dir(&path).expect("made");
        let before = files(&place.path().join("out"));
        failed(&run(place.path(), "exec \"$FV\" build --out out --catalog newer"));
        assert!(files(&place.path().join("out")) == before, "a folder in place of {taken}");
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let place = place();
    let before = files(&place.path().join("out"));
    // A disk of our own, in a mount namespace that ends with the shell.
    let line = "mkdir disk seen && mount -t tmpfs -o size=32k none disk || exit 77
        cp -r out/. disk; \"$FV\" build --out disk --catalog newer; code=$?; cp -r disk/. seen; exit $code";
    let done = shell(place.path(), &format!("exec unshare --mount --map-root-user bash -c '{line}'")).output().expect("bash");
    let err = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(77) || err.contains("unshare") {
        return; // Not allowed here; the other tests show the same on an ordinary disk.
    }
    failed(&done);
    let seen = files(&place.path().join("seen"));
    assert_eq!(seen.len(), before.len(), "{:?}", seen.keys());
    for ((path, seen), before) in seen.iter().zip(before.values()) {
        assert!(seen == before, "{}", path.display());
    }
}

#[test]
fn a_run_that_cannot_be_saved_leaves_the_manifest() {
    let place = place();
    let run_file = "model: example\nrun:\n  id: third\n  date: 2026-11-30\n  hardware: card-80gb\n  gpu_count: 1\n  outcome: completed\n  execution: first_request\n  evidence_url: https://example.org/third\n  context:\n    runtime: fastvideo\n    deployment: default\n    revisions: { fastvideo: abc, model: def }\n    config: { generator: { model_path: example/model, engine: { num_gpus: 1 } } }\n    request: { sampling: { height: 480, width: 832, num_frames: 81 } }\n    env: {}\n";
    fs::write(place.path().join("run.yaml"), run_file).expect("written");
    let before = files(&place.path().join("catalog"));
    failed(&run(place.path(), "trap '' XFSZ; ulimit -f 1; exec \"$FV\" add-run run.yaml"));
    assert!(files(&place.path().join("catalog")) == before);
    assert!(run(place.path(), "exec \"$FV\" add-run run.yaml").status.success());
    assert_eq!(files(&place.path().join("catalog")).len(), before.len());
}

#[test]
fn a_build_that_is_killed_leaves_whole_files() {
    let place = place();
    let out = place.path().join("out");
    let [old, new] = [base(), newer()].map(|sources| {
        let catalog = fv_catalog::check::check(&sources, fv_catalog::check::Keep::Catalog).catalog.expect("sound");
        write::compiled(&catalog).into_iter().map(|(path, text)| (out.join(path), text.into_bytes())).collect::<BTreeMap<_, _>>()
    });
    let part = |path: &Path| path.to_string_lossy().ends_with(".part");
    let mut cut_off = 0;
    for round in 0..12 {
        let catalog = ["newer", "catalog"][round % 2];
        let line = format!("exec \"$FV\" build --out out --catalog {catalog}");
        let mut build = shell(place.path(), &line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bash");
        // Killed once the first new file is under way.
        while build.try_wait().expect("known").is_none() {
            let parts =
                [out.clone(), out.join("models")].map(|folder| fs::read_dir(folder).expect("a folder").flatten().any(|e| part(&e.path())));
            if parts != [false, false] {
                build.kill().expect("killed");
                build.wait().expect("ended");
                cut_off += 1;
            }
        }
        for (path, bytes) in files(&out).iter().filter(|(path, _)| !part(path)) {
            assert!(old.get(path) == Some(bytes) || new.get(path) == Some(bytes), "{} is cut off", path.display());
        }
    }
    assert!(cut_off > 0, "no build was caught at work");
    // The next build makes everything good, and sweeps up what the killed ones left.
    assert!(run(place.path(), "exec \"$FV\" build --out out --catalog newer").status.success());
    assert!(files(&out) == new, "{:?}", files(&out).keys());
}

#[test]
fn a_link_is_followed_and_permissions_stay() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().expect("a folder");
    let (target, link) = (place.path().join("target"), place.path().join("link"));
    fs::write(&target, "old").expect("written");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("set");
    std::os::unix::fs::symlink("target", &link).expect("linked");
    write::replace(&link, "new").expect("replaced");
    assert_eq!(fs::read_to_string(&target).ok().as_deref(), Some("new"));
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(fs::metadata(&target).expect("there").permissions().mode() & 0o777, 0o640);
    assert!(write::replace(&place.path().join("nowhere/file"), "new").is_err());
    assert_eq!(files(place.path()).len(), 2);
}
