//! The committed catalog: sound, current, embedded, described by its schemas, and as its documentation says.

use std::{collections::BTreeSet, fs};

use fv_catalog::{
    check::{Checked, Keep, check},
    sources::Sources,
    write,
};
use fv_spec::{
    authored::{Role, SourceKind},
    family::{ComponentType, FAMILIES},
    schema,
};
use fv_tests::root;
use serde_json::Value;

fn catalog() -> fv_data::Catalog {
    let Checked { findings, catalog, .. } = check(&Sources::read(&root().join("catalog")).expect("catalog/"), Keep::Catalog);
    assert!(findings.is_empty(), "{:?}", findings.iter().map(|f| format!("{}: {}", f.file.path, f.message)).collect::<Vec<_>>());
    catalog.expect("no findings")
}

#[test]
fn the_embedded_catalog_is_what_the_authored_one_compiles_to() {
    let files = write::compiled(&catalog());
    let embedded: Vec<(&str, &str)> = fv_data::embedded_files().collect();
    assert_eq!(files.len(), embedded.len(), "run `make docs`");
    for (name, text) in &files {
        let (_, embedded) = embedded.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name} is not embedded: run `make docs`"));
        assert!(text == embedded, "{name} is not current: run `make docs`");
    }
    assert_eq!(fv_data::Catalog::embedded().expect("readable"), sorted(catalog()));
}

/// Names as people write them, and what has to come first.
#[test]
fn words_find_the_device_that_bears_them() {
    let catalog = catalog();
    for (query, id, exact) in [
        ("rtx 3060", "rtx-3060-12gb", true),
        ("RTX_3060", "rtx-3060-12gb", true),
        ("rtx-3060 12gb", "rtx-3060-12gb", true),
        ("rtx 4090", "rtx-4090-24gb", true),
        ("geforce rtx 3060", "rtx-3060-12gb", false),
        ("rtx 3060 laptop", "rtx-3060-laptop-6gb", true),
        ("wan21 t2v 1.3b", "wan21-t2v-1.3b", true),
    ] {
        let first = fv_data::find(&catalog, query).into_iter().next().expect(query);
        assert_eq!((first.id.as_str(), first.exact), (id, exact), "{query}");
    }
    // A point is part of a number.
    assert!(fv_data::find(&catalog, "wan21 t2v 13b").iter().all(|found| !found.exact));
}

fn sorted(mut catalog: fv_data::Catalog) -> fv_data::Catalog {
    catalog.devices.sort_by(|a, b| a.id.cmp(&b.id));
    catalog
}

#[test]
fn compiled_files_have_the_shape_that_their_schemas_say() {
    let validator =
        |name: &str| jsonschema::options().should_validate_formats(true).build(&schema::named(name).expect("ours")).expect("valid");
    let schemas = ["index", "hardware", "rules", "model"].map(|name| validator(&format!("compiled-{name}.schema.json")));
    for (name, text) in fv_data::embedded_files() {
        let which = ["index.json", "hardware.json", "rules.json"].iter().position(|n| *n == name).unwrap_or(3);
        let value: Value = serde_json::from_str(text).expect("JSON");
        let errors: Vec<String> = schemas[which].iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn the_catalog_is_as_large_as_promised() {
    let catalog = catalog();
    assert!(catalog.devices.len() >= 120 && catalog.models.len() >= 16);
    for id in [
        "fastwan21",
        "wan21-t2v-1.3b",
        "wan21-t2v-14b",
        "wan21-i2v-14b",
        "wan22-ti2v-5b",
        "fastwan22-ti2v-5b",
        "wan22-t2v-a14b",
        "wan22-i2v-a14b",
        "minimax-h3",
        "fasth3",
        "hunyuanvideo",
        "hunyuanvideo-1.5",
        "ltx-video-2b",
        "ltx-video-13b",
        "cogvideox-2b",
        "cogvideox-5b",
        "mochi-1",
    ] {
        assert!(catalog.models.contains_key(id), "{id}");
    }
    for (alias, id) in [
        ("h100", "h100-sxm-80gb"),
        ("H200", "h200-sxm-141gb"),
        ("rtx-4090", "rtx-4090-24gb"),
        ("4090", "rtx-4090-24gb"),
        ("rtx-3060-12gb", "rtx-3060-12gb"),
    ] {
        assert_eq!(catalog.device(alias).map(|device| device.id.as_str()), Some(id), "{alias}");
    }
    let vendors: BTreeSet<&str> = catalog.devices.iter().map(|device| device.vendor.as_str()).collect();
    assert_eq!(vendors.into_iter().collect::<Vec<_>>(), ["amd", "apple", "intel", "nvidia"]);
}

#[test]
fn the_readme_and_the_changelog_give_the_true_numbers() {
    let catalog = catalog();
    let (devices, models, components) = (catalog.devices.len(), catalog.models.len(), fv_data::components(&catalog).len());
    let page = |name: &str| fs::read_to_string(root().join(name)).expect(name).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page("README.md").contains(&format!("{devices} devices and {models} models")));
    assert!(page("CHANGELOG.md").contains(&format!("{devices} devices, {models} models, {components} shared components")));
    assert!(page("docs/models-coverage.md").contains(&format!("{models} models, {components} components")));
}

#[test]
fn fastwan_is_the_sparse_transformer_with_its_gates() {
    let catalog = catalog();
    let model = &catalog.models["fastwan21"];
    assert_eq!(model.model_id, "FastVideo/FastWan2.1-T2V-1.3B-Diffusers");
    let (transformer, vae) = (&model.components[&Role::Transformer], &model.components[&Role::Vae]);
    let plain = &catalog.models["wan21-t2v-1.3b"].components[&Role::Transformer];
    // A gate is one linear layer of the hidden size, with bias, in each of the 30 blocks.
    assert_eq!(transformer.parameter_count.get(), plain.parameter_count.get() + 30 * (1536 * 1536 + 1536));
    assert_eq!(transformer.parameter_count.get(), 1_489_821_760);
    assert_eq!(vae.decode_feature_multiplier, Some(48.0));
    assert_eq!(model.examples[0].env["FASTVIDEO_ATTENTION_BACKEND"], "VIDEO_SPARSE_ATTN");
    assert_eq!(model.examples[0].base_config["generator"]["engine"]["num_gpus"], 1);
}

/// Wan's closed form: every count of the family follows from its geometry.
#[test]
fn wan_transformer_counts_follow_from_their_geometry() {
    let catalog = catalog();
    let mut seen = 0;
    for (id, component) in fv_data::components(&catalog) {
        let Some(geometry) = component.geometry.as_ref().filter(|g| id.contains("wan") && g.contains_key("text_dim")) else { continue };
        let get = |name: &str| geometry[name].as_u64().expect(name);
        let (hidden, ffn, blocks) = (get("hidden_size"), get("ffn_size"), component.block_count.expect("blocks").get());
        let gate = if id.contains("vsa") { hidden * hidden + hidden } else { 0 };
        let image = id.contains("2.1-i2v") || id.contains("flf2v") || id.contains("fun");
        let image_block = if image { 2 * (hidden * hidden + hidden) + hidden } else { 0 };
        let block =
            8 * (hidden * hidden + hidden) + 4 * hidden + 2 * hidden + 2 * hidden * ffn + ffn + hidden + 6 * hidden + gate + image_block;
        assert_eq!(component.block_parameter_count.expect("blocks").get(), block, "{id}: block");
        let patch = 4;
        let outside = get("in_channels") * patch * hidden + hidden // patch embedding
            + get("text_dim") * hidden + hidden + hidden * hidden + hidden // text
            + 256 * hidden + hidden + hidden * hidden + hidden // time
            + 6 * hidden * hidden + 6 * hidden // time projection
            + hidden * get("out_channels") * patch + get("out_channels") * patch // head
            + 2 * hidden;
        let rest = component.parameter_count.get() - blocks * block;
        if image {
            assert!(rest > outside, "{id}: the image branch has an embedding of its own");
        } else {
            assert_eq!(rest, outside, "{id}: outside the blocks");
        }
        seen += 1;
    }
    assert!(seen >= 8, "{seen} Wan transformers");
}

#[test]
fn class_default_counts_are_marked_and_say_how_they_were_obtained() {
    let catalog = catalog();
    for (id, component) in fv_data::components(&catalog) {
        let noted = component.sources.iter().any(|source| source.note.is_some() && source.checked.is_some());
        assert!(noted, "{id} does not say how its count was obtained");
        for source in component.sources.iter().filter(|source| source.kind == Some(SourceKind::ClassDefault)) {
            assert!(source.note.is_some(), "{id}: a class default without a note");
        }
    }
}

/// Text of every fenced block of `language` in a page.
fn fenced(page: &str, language: &str) -> Vec<String> {
    page.split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix(language))
        .map(|text| text.trim_start_matches('\n').to_owned())
        .collect()
}

#[test]
fn the_authoring_guide_shows_what_the_checker_accepts() {
    let guide = fs::read_to_string(root().join("docs/catalog.md")).expect("docs/catalog.md");
    let blocks = fenced(&guide, "yaml");
    assert!(blocks.len() >= 6);
    let block = |start: &str| blocks.iter().find(|b| b.contains(start)).unwrap_or_else(|| panic!("no example with {start}")).clone();
    let real = Sources::read(&root().join("catalog")).expect("catalog/");
    let shared = |name: &str| match &real.files[name] {
        fv_catalog::sources::Content::Text(text) => text.clone(),
        fv_catalog::sources::Content::Refused(..) => panic!("{name}"),
    };
    // The walkthrough's two pieces make one manifest; the component and the card stand in for the real ones.
    let manifest = block("title: FastWan2.1") + &block("memory_rules: wan");
    let replaced = |file: &str, id: &str, example: &str| {
        let text = shared(file);
        let start = text.find(&format!("\n{id}:\n")).unwrap_or_else(|| panic!("{id}")) + 1;
        let end = text[start..]
            .match_indices('\n')
            .map(|(i, _)| start + i + 1)
            .find(|i| text[*i..].starts_with(|c: char| c.is_ascii_lowercase()))
            .unwrap_or(text.len());
        format!("{}{example}{}", &text[..start], &text[end..])
    };
    let mut sources = real.clone();
    let text = fv_catalog::sources::Content::Text;
    sources.files.insert("models/fastwan21.yaml".into(), text(manifest));
    sources.files.insert("vaes.yaml".into(), text(replaced("vaes.yaml", "wan2.1-vae-decoder", &block("wan2.1-vae-decoder:  "))));
    sources.files.insert("hardware.yaml".into(), text(replaced("hardware.yaml", "rtx-4090-24gb", &block("rtx-4090-24gb:"))));
    let findings: Vec<String> = check(&sources, Keep::Nothing)
        .findings
        .iter()
        // The shorter manifest uses one component less.
        .filter(|f| f.code != fv_catalog::codes::Code::UnusedComponent)
        .map(|f| format!("{}:{}: {}", f.file.path, f.place().line, f.message))
        .collect();
    assert!(findings.is_empty(), "{findings:?}");
    let run = std::sync::Arc::new(fv_catalog::finding::SourceFile::new("run.yaml", block("model: fastwan21")));
    let added = fv_catalog::check::check_run(&real, &run);
    assert_eq!(added.expect("the example run is sound").0, "fastwan21");
}

#[test]
fn the_authoring_guide_lists_every_family_field_and_code() {
    let guide = fs::read_to_string(root().join("docs/catalog.md")).expect("docs/catalog.md");
    for family in FAMILIES {
        let row = guide
            .lines()
            .find(|line| line.starts_with('|') && line.contains(&format!("`{}`", family.id)))
            .unwrap_or_else(|| panic!("{}", family.id));
        for kind in ComponentType::ALL {
            for field in family.required(kind).iter().chain(family.declared(kind)) {
                assert!(row.contains(&format!("`{field}`")), "{}: {field}", family.id);
            }
        }
    }
    for kind in ComponentType::ALL {
        for field in kind.geometry() {
            assert!(guide.contains(&format!("`{field}`")), "{field}");
        }
    }
    for role in Role::ALL {
        assert!(guide.contains(&format!("`{}`", role.word())), "{}", role.word());
    }
}
