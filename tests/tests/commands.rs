//! The program as people and scripts meet it: transcripts in `tests/cmd`, and what transcripts cannot say.
//!
//! `TRYCMD=overwrite cargo test -p fv-tests --test commands transcripts` rewrites the transcripts.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use fv_catalog::{
    check::{Keep, check},
    sources::Sources,
    write,
};
use fv_tests::{base, edited, program, root, runner, write_sources};

const MODEL: &str = "models/example.yaml";

/// A temporary folder with the base catalog in `catalog/`, or none.
struct Place(tempfile::TempDir);

impl Place {
    fn empty() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn with(sources: &Sources) -> Self {
        let place = Self::empty();
        write_sources(sources, &place.path("catalog"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).current_dir(self.0.path()).env_remove("FV_CATALOG").env_remove("NO_COLOR");
        command
    }

    /// Exit code, output and error stream.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        finish(self.command(arguments))
    }
}

fn finish(mut command: Command) -> (i32, String, String) {
    let done = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
    (done.status.code().expect("no signal"), text(done.stdout), text(done.stderr))
}

/// A fault in each of three files.
fn faulty() -> Sources {
    let sources = edited(base(), "hardware.yaml", "backend: cuda", "backend: cdua");
    let sources = edited(sources, "transformers.yaml", "1_489_821_760", "1_48_821_760");
    edited(sources, MODEL, "ref: example-encoder", "ref: exmple-encoder")
}

/// What the transcripts of the planner read.
fn planner_files(place: &Place) {
    let probe = fs::read_to_string(root().join("tests/data/probes/desktop-rtx-4090.json")).expect("a probe");
    let mut none: serde_json::Value = serde_json::from_str(&probe).expect("JSON");
    none["gpus"] = serde_json::json!([]);
    let header = "system,arch,precision,width,height,frames,free_vram_gib,free_ram_gib";
    let plan = Command::new(runner()).args(["plan", "--vram-gib=16", "--ram-gib=32", "--system=linux", "--format=json"]).output();
    let plan = String::from_utf8(plan.expect("the program starts").stdout).expect("UTF-8");
    for (name, text) in [
        ("no-gpu.json", none.to_string()),
        ("edited-plan.json", plan.replacen("\"count\": 8", "\"count\": 9", 1)),
        ("requests.csv", format!("{header}\nLinux,ada,int8,1344,768,124,10,8\nWindows,blackwell-rtx,int8,1344,768,243,6,16\n")),
        ("wrong.csv", format!("{header}\nLinux,adda,int8,1344,768,124,10,8\nLinux,ada,int8,1000,768,124,10,8\n")),
    ] {
        fs::write(place.path(name), text).expect("written");
    }
}

#[test]
fn transcripts() {
    let place = Place::with(&base());
    write_sources(&faulty(), &place.path("faulty"));
    write_sources(&Sources::read(&root().join("tests/small")).expect("tests/small"), &place.path("small"));
    fs::copy(root().join("tests/data/device.json"), place.path("device.json")).expect("copied");
    let probe = fs::read_to_string(root().join("tests/data/probes/desktop-rtx-4090.json")).expect("a probe");
    for (name, old, new) in [
        ("desktop.json", "", ""),
        ("newer.json", "\"version\": 1", "\"version\": 2"),
        ("edited.json", "\"free_bytes\": 23270260736", "\"free_bytes\": 232702607360"),
    ] {
        fs::write(place.path(name), probe.replacen(old, new, 1)).expect("written");
    }
    fs::create_dir_all(place.path("full/models")).expect("made");
    for (path, text) in fv_data::embedded_files() {
        fs::write(place.path("full").join(path), text).expect("written");
    }
    planner_files(&place);
    // The only test here that looks at the current folder.
    std::env::set_current_dir(place.0.path()).expect("the folder is there");
    trycmd::TestCases::new()
        .register_bin("fv-catalog", program())
        .register_bin("fv-run", runner())
        .case(root().join("tests/cmd/*.md"))
        .run();
}

#[test]
fn exit_codes_tell_findings_from_wrong_usage() {
    let place = Place::with(&base());
    write_sources(&faulty(), &place.path("faulty"));
    fs::create_dir(place.path("nothing")).expect("made");
    assert_eq!(place.run(&["schema", "--out", "schemas"]).0, 0);
    fs::write(place.path("schemas/model.schema.json"), "{}\n").expect("written");
    for (code, line) in [
        (0, "--check"),
        (0, "--help"),
        (0, "--version"),
        (0, "find card"),
        (0, "find example card"),
        (1, "find zzzzzz"),
        (1, "--check --catalog faulty"),
        (1, "--check --catalog faulty --format json"),
        (1, "--preview example --catalog faulty"),
        (1, "build --out compiled --catalog faulty"),
        (1, "schema --check --out schemas"),
        (2, ""),
        (2, "--chekc"),
        (2, "--check build --out compiled"),
        (2, "--check --preview example"),
        (2, "--preview exmple"),
        (2, "list models --format sarif"),
        (2, "list"),
        (2, "--check --catalog nowhere"),
        (2, "--check --catalog nothing"),
        (2, "--check --format xml"),
        (2, "add-run nowhere.yaml"),
        (2, "inspect nowhere"),
    ] {
        let arguments: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let (found, out, err) = place.run(&arguments);
        assert_eq!(found, code, "`{line}` wrote\n{out}\n{err}");
        assert!(!err.contains("panicked"), "`{line}` wrote\n{err}");
        // Nothing is wrong with silence about; answers go to one stream, complaints to the other.
        assert_eq!(out.is_empty(), code > 0 && !line.contains("json"), "`{line}` wrote\n{out}\n{err}");
        assert!(code == 0 || line.contains("json") || !err.is_empty(), "`{line}` said nothing");
    }
    assert!(!place.path("compiled").exists(), "a faulty catalog is not compiled");
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let place = Place::with(&base());
    write_sources(&faulty(), &place.path("faulty"));
    let lines = [
        "completions bash",
        "--preview example",
        "--check",
        "--check --catalog faulty --format json",
        "--check --catalog faulty",
        "--help",
        "--chekc",
    ];
    for line in lines {
        for close_errors in [false, true] {
            let arguments: Vec<&str> = line.split(' ').collect();
            let mut child = place.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
            drop(child.stdout.take());
            let mut errors = String::new();
            let stream = child.stderr.take().expect("piped");
            if close_errors {
                drop(stream);
            } else {
                BufReader::new(stream).read_to_string(&mut errors).expect("text");
            }
            let code = child.wait().expect("ends").code();
            let want = if line.contains("chekc") { 2 } else { i32::from(line.contains("faulty")) };
            assert_eq!(code, Some(want), "`{line}` wrote {errors}");
            assert!(!errors.contains("panicked") && !errors.contains("roken pipe"), "`{line}` wrote {errors}");
        }
    }
}

#[test]
fn colour_is_for_terminals_unless_asked_for() {
    let place = Place::with(&faulty());
    let coloured = |arguments: &[&str], no_color: Option<&str>| {
        let mut command = place.command(&[&["--check"], arguments].concat());
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        finish(command).2.contains('\u{1b}')
    };
    assert!(!coloured(&[], None), "a pipe is no terminal");
    assert!(!coloured(&["--color", "never"], None));
    assert!(coloured(&["--color", "always"], None));
    assert!(coloured(&["--color", "always"], Some("1")), "the option was given, the variable was set once and for all");
}

#[test]
fn the_catalog_comes_from_the_option_then_the_variable_then_the_folder() {
    let place = Place::with(&base());
    write_sources(&faulty(), &place.path("faulty"));
    let code = |arguments: &[&str], variable: &str| {
        let mut command = place.command(&[&["--check"], arguments].concat());
        command.env("FV_CATALOG", variable);
        finish(command).0
    };
    assert_eq!(code(&[], "faulty"), 1);
    assert_eq!(code(&["--catalog", "catalog"], "faulty"), 0);
    assert_eq!(code(&[], "nowhere"), 2);
    assert_eq!(code(&[], ""), 0, "an empty variable is an unset one");
    assert_eq!(place.run(&["--check"]).0, 0);
}

#[test]
fn outside_a_checkout_the_built_in_catalog_answers() {
    let place = Place::empty();
    let (code, _, err) = place.run(&["--check"]);
    assert_eq!((code, err.as_str()), (0, "the catalog built into this program\n"));
    assert!(place.run(&["list", "models"]).1.lines().count() > 10);
    assert_eq!(place.run(&["build", "--out", "compiled"]).0, 0);
    for (path, text) in fv_data::embedded_files() {
        assert_eq!(fs::read_to_string(place.path("compiled").join(path)).ok().as_deref(), Some(text), "{path}");
    }
    for line in [&["watch"][..], &["docs"], &["add-run", "run.yaml"]] {
        let (code, _, err) = place.run(line);
        assert!(code == 2 && err.contains("--catalog DIR"), "{err}");
    }
}

#[test]
fn a_compiled_catalog_answers_as_the_authored_one_does() {
    let place = Place::with(&base());
    assert_eq!(place.run(&["build", "--out", "compiled"]).0, 0);
    let lines = [
        &["list", "models"][..],
        &["list", "components"],
        &["list", "hardware"],
        &["--preview", "example"],
        &["show", "CARD"],
        &["find", "example"],
    ];
    for line in lines {
        for format in ["human", "json"] {
            let line = [line, &["--format", format]].concat();
            assert_eq!(place.run(&line), place.run(&[&line[..], &["--catalog", "compiled"]].concat()), "{line:?}");
        }
    }
    assert_eq!(place.run(&["build", "--out", "again", "--catalog", "compiled"]).0, 0);
    assert!(files_below(&place.path("compiled")) == files_below(&place.path("again")));
}

#[test]
fn a_compiled_catalog_names_no_file_outside_its_folder() {
    let place = Place::with(&base());
    assert_eq!(place.run(&["build", "--out", "compiled"]).0, 0);
    fs::copy(place.path("compiled/models/example.json"), place.path("outside.json")).expect("copied");
    let index = fs::read_to_string(place.path("compiled/index.json")).expect("written");
    for elsewhere in ["../outside.json".to_owned(), place.path("outside.json").display().to_string()] {
        fs::write(place.path("compiled/index.json"), index.replace("models/example.json", &elsewhere)).expect("written");
        let (code, out, err) = place.run(&["--check", "--catalog", "compiled"]);
        assert_eq!(code, 2, "{elsewhere} was read: {out}{err}");
    }
    for file in ["index.json", "models/example.json"] {
        let path = place.path("compiled").join(file);
        let text = if file == "index.json" { index.clone() } else { fs::read_to_string(&path).expect("written") };
        fs::write(path, text.replace(r#""id": "example","#, r#""id": "../../escaped","#)).expect("written");
    }
    let (code, out, err) = place.run(&["build", "--out", "deep/out", "--catalog", "compiled"]);
    assert!(code == 2 && !place.path("escaped.json").exists() && !place.path("deep/escaped.json").exists(), "{out}{err}");
}

// Saving

/// Every file below `folder` by path, with its bytes.
fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), PathBuf::from(entry.file_name()));
        if path.is_dir() {
            found.extend(files_below(&path).into_iter().map(|(rest, bytes)| (name.join(rest), bytes)));
        } else {
            found.push((name, fs::read(&path).expect("readable")));
        }
    }
    found.sort();
    found
}

const RUN: &str = "model: example
run:
  id: third
  date: 2026-11-30
  hardware: card-80gb
  gpu_count: 1
  outcome: completed
  execution: first_request
  evidence_url: https://example.org/third
  context:
    runtime: fastvideo
    deployment: default
    revisions: { fastvideo: 2f3d40740, model: \"12e5\" }
    config: { generator: { model_path: example/model, engine: { num_gpus: 1 } } }
    request: { sampling: { height: 480, width: 832, num_frames: 81 } }
    env: { A: \"1\", B: \"yes\" }
";

#[test]
fn add_run_keeps_the_manifest_as_it_was_written() {
    for (mark, end) in [("", "\n"), ("\u{feff}", "\n"), ("", "\r\n"), ("\u{feff}", "\r\n")] {
        let place = Place::with(&base());
        let path = place.path("catalog").join(MODEL);
        let before = format!("{mark}{}", fs::read_to_string(&path).expect("written").replace('\n', end));
        fs::write(&path, &before).expect("written");
        fs::write(place.path("run.yaml"), RUN).expect("written");
        let others = files_below(&place.path("catalog"));

        let (code, out, err) = place.run(&["add-run", "run.yaml"]);
        assert_eq!((code, out.as_str()), (0, "Added run `third` to catalog/models/example.yaml\n"), "{err}");
        let after = fs::read_to_string(&path).expect("written");
        assert!(after.starts_with(&before), "the run comes last, and everything before it stays");
        assert!(after.split('\n').rev().skip(1).all(|line| line.ends_with('\r') == (end == "\r\n")), "{after:?}");
        assert_eq!(place.run(&["--check"]).0, 0);
        for ((path, before), (_, after)) in others.iter().zip(files_below(&place.path("catalog"))) {
            assert!(path == Path::new(MODEL) || *before == after, "{}", path.display());
        }
        let (code, _, err) = place.run(&["add-run", "run.yaml"]);
        assert!(code == 1 && err.contains("the model already has a run `third`"), "{err}");
    }
}

#[test]
fn a_wrong_run_changes_nothing() {
    let place = Place::with(&base());
    let before = files_below(&place.path("catalog"));
    for (old, new, want) in [
        ("model: example", "model: exmple", "did you mean `example`"),
        ("hardware: card-80gb", "hardware: card", "that is an alias"),
        ("gpu_count: 1", "gpu_count: 2", "num_gpus"),
        ("date: 2026-11-30", "date: 2026-11-31", "a day that exists"),
        ("  id: third", "  id: first", "already has a run `first`"),
        ("B: \"yes\"", "B: \"yes", "yaml-syntax"),
        ("B: \"yes\"", "API_TOKEN: s3cr3tvalue", "its value is hidden"),
        ("runtime: fastvideo", "runtime: fastvideo\n    unheard: of", "unknown field `unheard`"),
        (RUN, "", "holds no document"),
        (RUN, "\0", "catalog::"),
    ] {
        fs::write(place.path("run.yaml"), RUN.replace(old, new)).expect("written");
        let (code, _, err) = place.run(&["add-run", "run.yaml"]);
        assert_eq!(code, 1, "{new:?}: {err}");
        assert!(err.contains(want) && err.contains("run.yaml") && !err.contains("s3cr3tvalue"), "{new:?}: {err}");
        assert!(files_below(&place.path("catalog")) == before, "{new:?} changed the catalog");
    }
    // A catalog that is not sound takes no runs either.
    let place = Place::with(&faulty());
    let before = files_below(&place.path("catalog"));
    fs::write(place.path("run.yaml"), RUN).expect("written");
    assert_eq!(place.run(&["add-run", "run.yaml"]).0, 1);
    assert!(files_below(&place.path("catalog")) == before);
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_left_as_it_is() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let place = Place::with(&base());
    assert_eq!(place.run(&["build", "--out", "compiled"]).0, 0);
    fs::write(place.path("compiled/hardware.json"), "old\n").expect("written");
    fs::write(place.path("compiled/models/gone.json"), "old\n").expect("written");
    fs::write(place.path("taken"), "a file\n").expect("written");
    let mode = |name: &str, mode| fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).expect("set");
    for (name, bits) in [("", 0o755), ("compiled/models", 0o555), ("compiled", 0o555)] {
        mode(name, bits);
    }
    let before = files_below(&place.path("compiled"));
    // The superuser may write anywhere, so somebody else runs it: from a copy, since a checkout may be private.
    // `cp` makes the copy, since a file that this process holds open for writing cannot be run.
    let superuser = fs::metadata("/proc/self").expect("there").uid() == 0;
    assert!(Command::new("cp").arg(program()).arg(place.0.path()).status().expect("cp").success());

    for out in ["compiled", "taken", "taken/below", "/proc/fv", "compiled/new"] {
        let mut command = place.command(&["build", "--out", out]);
        if superuser {
            command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "./fv-catalog", "build", "--out", out]);
            command.current_dir(place.0.path()).env_remove("FV_CATALOG");
        }
        let (code, wrote, err) = finish(command);
        assert!(code == 2 && wrote.is_empty() && err.starts_with(&format!("error: {out}")), "{out}: {code} {wrote}{err}");
    }
    assert!(files_below(&place.path("compiled")) == before);
    assert_eq!(fs::read_to_string(place.path("taken")).ok().as_deref(), Some("a file\n"));
    for name in ["compiled", "compiled/models"] {
        mode(name, 0o755);
    }
}

#[test]
fn a_model_that_is_gone_takes_its_file_with_it() {
    let place = Place::with(&base());
    let model = fs::read_to_string(place.path("catalog").join(MODEL)).expect("written");
    fs::write(place.path("catalog/models/other.yaml"), model).expect("written");
    let build = |models, changed| {
        let want = format!("Compiled {models} model(s) and 2 device(s) to compiled, {changed} file(s) changed\n");
        assert_eq!(place.run(&["build", "--out", "compiled"]).1, want);
    };
    build(2, 5);
    build(2, 0);
    fs::write(place.path("compiled/models/mine.json"), "{}").expect("written");
    fs::remove_file(place.path("catalog/models/other.yaml")).expect("removed");
    build(1, 2); // The model and the index.

    let catalog = check(&base(), Keep::Catalog).catalog.expect("sound");
    let files = write::compiled(&catalog).into_iter().chain([("models/mine.json".to_owned(), "{}".to_owned())]);
    let mut want: Vec<(PathBuf, Vec<u8>)> = files.map(|(path, text)| (path.into(), text.into_bytes())).collect();
    want.sort();
    assert!(files_below(&place.path("compiled")) == want);
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn watch_checks_again_after_a_save() {
    let place = Place::with(&base());
    let mut child = Killed(place.command(&["watch"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts"));
    let (sender, lines) = mpsc::channel();
    let (out, err) = (child.0.stdout.take().expect("piped"), child.0.stderr.take().expect("piped"));
    let streams: [Box<dyn Read + Send>; 2] = [Box::new(out), Box::new(err)];
    for stream in streams {
        let sender = sender.clone();
        thread::spawn(move || BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    }
    let next = |want: &str| {
        let patience = Duration::from_secs(20);
        while !lines.recv_timeout(patience).unwrap_or_else(|_| panic!("no line with {want:?} came")).contains(want) {}
    };
    next("Validated 1 capacity model(s) and 2 hardware variant(s)");
    let path = place.path("catalog").join(MODEL);
    let text = fs::read_to_string(&path).expect("written");
    fs::write(&path, text.replace("title:", "titel:")).expect("written");
    next("unknown field `titel`");
    next("1 finding in 1 file");
    // Many editors write a new file and move it over the old one.
    fs::write(place.path("catalog/.example.yaml.swp"), &text).expect("written");
    fs::rename(place.path("catalog/.example.yaml.swp"), &path).expect("moved");
    next("Validated 1 capacity model(s)");
    assert!(child.0.try_wait().expect("known").is_none(), "it goes on");
}

/// A build writes among its own files only.
#[test]
fn a_build_touches_nothing_of_anybody_else() {
    let place = Place::with(&base());
    fs::create_dir_all(place.path("theirs/models")).expect("made");
    fs::write(place.path("theirs/models/llama.json"), "{\"version\": 1}").expect("written");
    fs::create_dir_all(place.path("other/models")).expect("made");
    fs::write(place.path("other/rules.json"), "{\"version\": 1}").expect("written");
    let before = files_below(&place.path(""));
    for out in ["catalog", "catalog/below", "catalog/models/deep", "other"] {
        let (code, _, err) = place.run(&["build", "--out", out]);
        assert_eq!(code, 2, "{out}: {err}");
        assert!(err.contains("choose another folder"), "{out}: {err}");
        assert!(files_below(&place.path("")) == before, "{out} changed something");
    }
    // Beside files of other names it builds, and leaves them.
    assert_eq!(place.run(&["build", "--out", "theirs"]).0, 0);
    assert_eq!(place.run(&["build", "--out", "theirs"]).0, 0);
    assert!(place.path("theirs/models/llama.json").exists());
}

/// Two runs added at once are both there afterwards.
#[test]
fn runs_added_at_once_are_all_kept() {
    let place = Place::with(&base());
    let names: Vec<String> = (0..6).map(|i| format!("run{i}")).collect();
    for name in &names {
        fs::write(place.path(&format!("{name}.yaml")), RUN.replace("  id: third", &format!("  id: {name}"))).expect("written");
    }
    let adding: Vec<_> = names.iter().map(|name| place.command(&["add-run", &format!("{name}.yaml")]).spawn().expect("started")).collect();
    for mut child in adding {
        assert!(child.wait().expect("ended").success());
    }
    let manifest = fs::read_to_string(place.path("catalog/models/example.yaml")).expect("there");
    for name in &names {
        assert!(manifest.contains(&format!("id: {name}\n")), "{name} is lost");
    }
}
