//! The commands of the estimator: what they refuse, that their JSON is what the schemas say, and that they answer alike
//! wherever the catalog comes from. Transcripts are in `tests/cmd`.

use std::{
    fs,
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
};

use fv_catalog::sources::Sources;
use fv_tests::{program, root, write_sources};
use serde_json::Value;

/// A temporary folder with the catalog of `tests/small` in `catalog/`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        write_sources(&Sources::read(&root().join("tests/small")).expect("tests/small"), &place.path("catalog"));
        place
    }

    /// With the catalog compiled in `compiled/`, which then answers.
    fn compiled() -> Self {
        let place = Self::new();
        assert_eq!(place.run("build --out compiled").0, 0);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(program());
        if self.path("compiled").exists() {
            // Much quicker than checking the authored one each time.
            command.env("FV_CATALOG", "compiled");
        } else {
            command.env_remove("FV_CATALOG");
        }
        command.args(line.split(' ').filter(|word| !word.is_empty()));
        command.current_dir(self.0.path()).env_remove("NO_COLOR");
        command
    }

    /// Exit code, output and error stream.
    fn run(&self, line: &str) -> (i32, String, String) {
        let done = self.command(line).output().expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        (done.status.code().expect("no signal"), text(done.stdout), text(done.stderr))
    }

    fn json(&self, line: &str) -> Value {
        let (code, out, err) = self.run(&format!("{line} --format json"));
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

const COMMANDS: [&str; 5] = ["estimate", "explain", "match", "assess", "recommend"];

/// A number of hundreds of digits is said in a line that people can read.
#[test]
fn endless_numbers_are_said_in_short() {
    let place = Place::compiled();
    let digits = "9".repeat(300);
    for line in [
        "--frames #",
        "--seconds #",
        "--guidance #",
        "--vram-gib #",
        "--set #=1",
        "--set vae_tiling=#",
        "--env PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:#",
    ] {
        let line = format!("estimate small {}", line.replace('#', &digits));
        let (code, out, err) = place.run(&line);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.lines().all(|line| line.len() < 300) && !err.contains("target type"), "{err}");
    }
}

#[test]
fn bad_input_is_refused_with_all_that_is_wrong_with_it() {
    let place = Place::compiled();
    for (line, wanted) in [
        ("", &["required arguments were not provided", "<MODEL>"][..]),
        ("smal", &["no model with capacity facts is called \"smal\"", "did you mean small?"]),
        ("card", &["\"card\" is the device card-24gb; name a model"]),
        ("small --model small", &["cannot be used with"]),
        (
            "small --deployment difusers",
            &["no deployment \"difusers\", only diffusers (diffusers), ours (freevideo)", "did you mean diffusers?"],
        ),
        ("small --runtime fastvideo", &["small has no deployment in fastvideo, only diffusers (diffusers), ours (freevideo)"]),
        ("small --runtime freevideo --deployment diffusers", &["deployment diffusers runs in diffusers, not in freevideo"]),
        ("small --runtime difusers", &["possible values: fastvideo, diffusers, freevideo, fv-run"]),
        ("small --height 0 --width 833 --frames 80", &["height: found 0", "width: found 833", "nearest: 832 or 848", "nearest: 77 or 81"]),
        (
            "small --batch 0 --steps 0 --text-tokens 513 --reference 1",
            &["batch: found 0", "steps: found 0", "from 1 to 512", "references: found 1"],
        ),
        ("small --frames -1", &["invalid value '-1'"]),
        ("small --frames 4294967295 --height 4294967295", &["frames: found 4294967295", "height: found 4294967295"]),
        ("small --frames 99999999999", &["invalid value '99999999999'", "allowed: a whole number from 0 to 4294967295, such as 81"]),
        ("small --frames 81.5", &["invalid value '81.5'", "found `81.5`, allowed: a whole number"]),
        ("small --guidance three", &["found `three`, allowed: a number such as 5 or 3.5"]),
        ("small --set vae_tiling=true --set vae_tiling=false", &["vae_tiling is set twice, to true and to false: leave out one"]),
        ("small --env A=1 --env A=2", &["--env A is given twice, with different values: leave out one"]),
        ("small --env PYTORCH_CUDA_ALLOC_CONF=garbage", &["found `garbage`, allowed: OPTION:VALUE"]),
        ("small --guidance NaN", &["guidance: found NaN"]),
        ("small --guidance -1 --seconds inf", &["guidance: found -1", "seconds: found inf"]),
        ("small --seconds 0", &["seconds: found 0"]),
        ("small --seconds 5 --frames 81", &["cannot be used with"]),
        ("small --set vae_tilng=true --set also=1", &["no setting is called \"vae_tilng\"; did you mean", "no setting is called \"also\""]),
        ("small --set vae_tiling=perhaps", &["vae_tiling: found the text \"perhaps\", allowed: true or false"]),
        ("small --set vae_tiling", &["a name, `=` and a value"]),
        ("small --set =1 --env =1", &["a name, `=` and a value"]),
        ("small --env NAME", &["a name, `=` and a value"]),
        ("small --format sarif", &["[possible values: human, json]"]),
        ("small --catalog nowhere", &["nowhere: no such folder"]),
        ("small --hardware crad", &["no device is called \"crad\"", "did you mean card"]),
        ("small --hardware zebra --frames 80", &["`fv-catalog find WORDS` searches by name", "frames: found 80"]),
        ("small --memory-budget-gib NaN", &["`--memory-budget-gib` is NaN GiB"]),
        (
            "small --memory-budget-gib 0 --reserve-gib -1 --host-gb 1e300",
            &["`--memory-budget-gib` is 0", "`--reserve-gib` is -1", "host memory"],
        ),
    ] {
        // Without a model, `recommend` looks at all of them.
        for command in COMMANDS.into_iter().filter(|command| *command != "recommend" || !line.is_empty()) {
            refused(&place, &format!("{command} {line}"), wanted);
        }
    }
    for (line, wanted) in [
        (
            "small --hardware split-80gb --partition 1g.10g",
            &["has no partition `1g.10g`, only 1g.10gb, 3g.40gb; did you mean `1g.10gb`?"][..],
        ),
        ("small --hardware card --partition 1g.10gb", &["none of `Example Card 24 GB` are recorded"]),
        ("small --hardware card --allocation-gb 26 --batch 0", &["batch: found 0", "more than the 23.99 GiB of `Example Card 24 GB`"]),
        ("small --hardware card --allocation-gb inf", &["the allocation is inf GB"]),
        ("small --partition 1g.10gb", &["a partition needs the device that it is part of"]),
        ("small --allocation-gb 8", &["an allocation needs the device that it is part of"]),
        ("small --hardware card --vram-gib 24", &["cannot be used with"]),
        ("small --hardware card --device-file x.json", &["cannot be used with"]),
        ("small --hardware card --ram-gib 24", &["cannot be used with '--ram-gib <GIB>'"]),
        ("small --ram-gib 24", &["--vram-gib <GIB>"]),
        (
            "small --vram-gib NaN --ram-gib 0 --dtypes bf166,fp8",
            &["`--vram-gib` is NaN", "`--ram-gib` is 0", "`bf166` is not a format", "did you mean `bf16`?"],
        ),
        ("small --vram-gib -5", &["`--vram-gib` is -5"]),
        ("small --device-file nowhere.json", &["nowhere.json: "]),
        ("small --device-file catalog", &["catalog: a folder where a file is expected"]),
        ("small --device-file catalog/vaes.yaml", &["catalog/vaes.yaml: not JSON"]),
        ("small --device-file wrong.json", &["`custom: true`", "has no field `bakcend`; did you mean `backend`?", "must be `GB`"]),
    ] {
        let wrong = r#"{ "bakcend": "cuda", "memory": { "type": "dedicated", "nominal": { "value": 1, "unit": "MB" } } }"#;
        fs::write(place.path("wrong.json"), wrong).expect("written");
        for command in ["estimate", "explain", "match", "assess"] {
            refused(&place, &format!("{command} {line}"), wanted);
        }
    }
    refused(&place, "recommend small --vendor intel", &["no vendor is called \"intel\", only apple, nvidia"]);
    refused(
        &place,
        "recommend small --vendor apple --kind gpu",
        &["no device of the catalog passes all of the filters: --kind gpu, --vendor apple"],
    );
    refused(&place, "recommend small --limit -1", &["--limit"]);
}

fn refused(place: &Place, line: &str, wanted: &[&str]) {
    for format in ["", " --format json"] {
        let format = if line.contains("--format") { "" } else { format };
        let (code, out, err) = place.run(&format!("{line}{format}"));
        assert_eq!((code, out.as_str()), (2, ""), "`{line}` wrote\n{err}");
        assert!(!err.contains("panicked"), "`{line}` wrote\n{err}");
        for wanted in wanted {
            assert!(err.contains(wanted), "`{line}` does not say {wanted:?}:\n{err}");
        }
    }
}

#[test]
fn a_catalog_of_a_newer_version_is_refused() {
    let place = Place::compiled();
    for (file, lines) in
        [("index.json", &COMMANDS[..]), ("rules.json", &COMMANDS), ("models/small.json", &COMMANDS), ("hardware.json", &COMMANDS)]
    {
        let path = place.path("compiled").join(file);
        let text = fs::read_to_string(&path).expect("written");
        fs::write(&path, text.replacen("\"version\": 1", "\"version\": 2", 1)).expect("written");
        for command in lines {
            let message = format!("compiled/{file}: format version 2 is not supported, this program reads version 1");
            refused(&place, &format!("{command} small --hardware card --catalog compiled"), &[&message]);
        }
        fs::write(&path, text).expect("written");
    }
}

#[test]
fn a_compiled_catalog_answers_as_the_authored_one_does() {
    let place = Place::compiled();
    for command in COMMANDS {
        for format in ["human", "json"] {
            let line = format!("{command} small --hardware CARD --format {format}");
            assert_eq!(place.run(&line), place.run(&format!("{line} --catalog catalog")), "{line}");
        }
    }
}

#[test]
fn json_is_what_its_schema_says() {
    let place = Place::compiled();
    let devices = ["", "--hardware card", "--hardware card-6gb", "--hardware desk-64gb", "--hardware split-80gb --partition 3g.40gb"];
    for command in COMMANDS {
        let path = root().join(format!("schemas/{command}.schema.json"));
        let schema: Value = serde_json::from_str(&fs::read_to_string(path).expect("committed")).expect("JSON");
        let schema = jsonschema::options().offline().build(&schema).expect("a schema");
        let rest = ["--vram-gib 16 --ram-gib 8", "--hardware card --deployment ours", "--hardware card --runtime-revision 0.42.1"];
        for line in devices.into_iter().chain(rest) {
            let own = match command {
                "recommend" => !line.contains("vram") && !line.contains("--partition "),
                "estimate" | "explain" => !line.contains("revision"),
                _ => true,
            };
            if !own {
                continue;
            }
            let document = place.json(&format!("{command} small {line}"));
            let wrong: Vec<String> = schema.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
            assert!(wrong.is_empty(), "{command} {line}: {wrong:?}");
            sound(&document);
        }
    }
    // A program may count on what is always there.
    let estimate = place.json("estimate small --hardware card");
    for field in ["version", "status", "reasons", "capacityGiB", "memory", "host", "stages", "settings", "coverage", "notes"] {
        assert!(!estimate[field].is_null(), "{field}");
    }
    let names: Vec<&str> = estimate["stages"].as_array().expect("stages").iter().filter_map(|stage| stage["name"].as_str()).collect();
    assert_eq!(names, ["load", "encoding", "denoising", "decoding"]);
}

/// Integers that JavaScript keeps, and no negative size.
fn sound(value: &Value) {
    match value {
        Value::Number(number) => {
            assert!(number.as_f64().is_some_and(|number| (0.0..=9_007_199_254_740_991.0).contains(&number)), "{number}");
        }
        Value::Array(items) => items.iter().for_each(sound),
        Value::Object(map) => map.values().for_each(sound),
        _ => {}
    }
}

#[test]
fn the_verdict_becomes_the_exit_code_where_that_is_asked_for() {
    let place = Place::compiled();
    for (line, fits) in [
        ("--hardware card", true),
        ("--hardware card --host-gb 1", false),
        ("--hardware card-6gb", false),
        ("--hardware old-16gb", false),
        ("--hardware card --deployment ours", false),
        ("", false),
    ] {
        for command in ["estimate", "explain", "assess"] {
            let line = format!("{command} small {line}");
            assert_eq!(place.run(&line).0, 0, "{line}");
            let (code, out, err) = place.run(&format!("{line} --require-fit"));
            assert_eq!((code, err.as_str()), (i32::from(!fits), ""), "{line}");
            assert!(!out.is_empty(), "the answer is given either way");
        }
    }
    assert_eq!(place.run("recommend small --require-fit").0, 0);
    assert_eq!(place.run("recommend small --hardware card-6gb --require-fit").0, 1);
}

#[test]
fn recommendations_agree_with_estimates() {
    let place = Place::compiled();
    let found = place.json("recommend small --deployment diffusers --partitions");
    let mut seen = 0;
    for (list, status) in [("analytical", "fits"), ("uncertain", "uncertain"), ("unknown", "unknown")] {
        for one in found[list].as_array().expect("a list") {
            let partition = one["partition"].as_str().map_or(String::new(), |partition| format!(" --partition {partition}"));
            let line = format!("estimate small --hardware {}{partition}", one["hardware"].as_str().expect("an id"));
            let estimate = place.json(&line);
            assert_eq!(estimate["status"], status, "{line}");
            assert_eq!(estimate["memory"]["budgetBytes"], one["budgetBytes"], "{line}");
            seen += 1;
        }
    }
    assert!(seen > 3, "{found}");
    let limited = place.json("recommend small --deployment diffusers --partitions --limit 1");
    assert_eq!(limited["analytical"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_deployment_that_cannot_take_a_setting_is_left_out_and_named() {
    let place = Place::new();
    let manifest = place.path("catalog/models/small.yaml");
    let text = fs::read_to_string(&manifest).expect("written");
    fs::write(&manifest, text.replace("  - id: ours\n    runtime: freevideo\n", "  - id: served\n    runtime: fastvideo\n"))
        .expect("written");
    let (code, out, err) =
        place.run("recommend small --set group_offload=leaf_level --set model_cpu_offload=false --hardware card --format json");
    assert_eq!(code, 0, "{err}");
    assert!(err.starts_with("note: served is left out: no setting is called \"group_offload\""), "{err}");
    assert!(out.contains("diffusers") && !out.contains("served"), "{out}");
    refused(&place, "recommend small --set group_offload=block_level --deployment served", &["no setting is called"]);
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let place = Place::compiled();
    for command in COMMANDS {
        for line in ["--hardware card", "--hardware card --format json"] {
            let mut child =
                place.command(&format!("{command} small {line}")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
            drop(child.stdout.take());
            let mut errors = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
            assert_eq!((child.wait().expect("ends").code(), errors.as_str()), (Some(0), ""), "{command} {line}");
        }
    }
}

#[test]
fn colour_is_for_terminals_unless_asked_for() {
    let place = Place::new();
    let coloured = |option: &str| place.run(&format!("estimate small --hardware card{option}")).1.contains('\u{1b}');
    assert!(!coloured(""), "a pipe is no terminal");
    assert!(!coloured(" --color never"));
    assert!(coloured(" --color always"));
    assert!(!place.run("estimate small --format json --color always").1.contains('\u{1b}'));
}

#[test]
fn no_value_of_the_environment_is_repeated_unless_it_is_a_setting() {
    let place = Place::compiled();
    for command in COMMANDS {
        for format in ["human", "json"] {
            let (code, out, err) = place.run(&format!("{command} small --hardware card --env HF_TOKEN=s3cr3t --format {format}"));
            assert!(code == 0 && !out.contains("s3cr3t") && !err.contains("s3cr3t"), "{command}: {out}{err}");
        }
    }
}

/// The catalog of this repository: every model on every kind of device has an answer.
#[test]
fn every_model_has_an_answer() {
    let place = Place::new();
    fs::remove_dir_all(place.path("catalog")).expect("removed");
    let places = ["--hardware rtx-4090", "--hardware h100 --partition 1g.10gb --host-gb 64", ""];
    for (id, line) in fv_data::Catalog::embedded().expect("sound").models.keys().zip(places.into_iter().cycle()) {
        let found = place.json(&format!("recommend {id} --partitions"));
        let count: usize =
            ["measured", "analytical", "uncertain", "unknown"].iter().filter_map(|list| found[list].as_array().map(Vec::len)).sum();
        assert!(count > 0, "{id}");
        sound(&found);
        let (code, out, err) = place.run(&format!("explain {id} {line}"));
        assert_eq!((code, err.as_str()), (0, ""), "{id} {line}");
        for wrong in ["NaN", "inf ", "GiB -"] {
            assert!(!out.contains(wrong), "{id} {line}: {out}");
        }
    }
}

/// Null leaves the runtime's default, and a run of what the deployment says is then a run of something else.
#[test]
fn a_setting_taken_back_does_not_match_the_deployments_runs() {
    let place = Place::compiled();
    let group = |set: &str| {
        let found = place.json(&format!("match small --hardware card --runtime-revision 0.42.1{set}"));
        let of = |group: &str| found[group].as_array().is_some_and(|runs| runs.iter().any(|run| run["id"] == "card"));
        ["applicable", "unverified", "rejected"].into_iter().find(|name| of(name)).map(str::to_owned).expect("the run is in a group")
    };
    assert_eq!(group(""), "applicable");
    for name in ["model_cpu_offload", "pipeline.model_cpu_offload", "generator.pipeline.model_cpu_offload", "vae_dtype", "torch_dtype"] {
        assert_eq!(group(&format!(" --set {name}=null")), "rejected", "{name}");
    }
    // As the default is.
    assert_eq!(group(" --set workload_type=null"), "applicable");
    let assessed = place.json("assess small --hardware card --runtime-revision 0.42.1 --set model_cpu_offload=null");
    assert_eq!(assessed["basis"], "analytical");
    // Of a runtime whose settings nobody resolves, every setting counts.
    let (_, out, _) = place.run("match small --deployment ours --hardware card --runtime-revision 0.42.1 --set anything=1 --format json");
    assert!(out.contains("does not record `anything`"), "{out}");
}
