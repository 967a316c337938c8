//! Every fault of `tests/faults/` causes exactly the findings that its table names, at their places.

use std::collections::BTreeSet;

use fv_catalog::{
    check::{Keep, check},
    codes::Code,
    finding::Finding,
    sources::Sources,
};
use fv_tests::{DISK_FAULTS, Fault, base, places};

fn findings(sources: &Sources) -> Vec<Finding> {
    check(sources, Keep::Nothing).findings
}

/// What any finding must be, wherever it comes from.
fn sound(name: &str, findings: &[Finding]) {
    for Finding { file, message, labels, help, .. } in findings {
        assert!(message.chars().count() <= 200 && !message.contains('\n'), "{name}: {message}");
        for text in [Some(message), help.as_ref()].into_iter().flatten() {
            assert!(!text.contains("anyOf"), "{name}: {text}");
        }
        let spans = labels.iter().map(|label| &label.span).chain(file.secrets().iter().map(|secret| &secret.value));
        for span in spans {
            assert!(file.text.get(span.clone()).is_some(), "{name}: {span:?} is no part of {}", file.path);
        }
    }
}

#[test]
fn the_base_catalog_is_sound() {
    assert_eq!(places(&findings(&base()), ""), <[&str; 0]>::default());
}

#[test]
fn every_fault_causes_exactly_its_findings() {
    let faults = Fault::all();
    assert!(faults.len() >= 140, "only {} faults", faults.len());
    let mut wrong = Vec::new();
    let mut names = BTreeSet::new();
    for (table, fault) in &faults {
        let name = format!("{table}: {}", fault.name);
        assert!(names.insert(name.clone()), "{name}: named twice");
        let found = findings(&fault.sources());
        sound(&name, &found);
        let found_places = places(&found, &fault.file);
        if found_places != fault.expect {
            let messages: Vec<&str> = found.iter().map(|finding| finding.message.as_str()).collect();
            wrong.push(format!("{name}\n  expected {:?}\n  found    {found_places:?}\n  {messages:?}", fault.expect));
        }
    }
    assert!(wrong.is_empty(), "{} of {} faults\n{}", wrong.len(), faults.len(), wrong.join("\n"));
}

#[test]
fn faults_of_files_cause_exactly_their_findings() {
    let wrong = DISK_FAULTS.iter().filter_map(|fault| {
        let found = findings(&fault.sources());
        sound(fault.name, &found);
        let found = places(&found, "");
        (found != fault.expect).then(|| format!("{}\n  {found:?}", fault.name))
    });
    assert_eq!(wrong.collect::<Vec<_>>().join("\n"), "");
}

#[test]
fn every_code_has_a_fault() {
    let tables = Fault::all();
    let texts = tables.iter().flat_map(|(_, fault)| fault.expect.iter().map(String::as_str));
    let disks = DISK_FAULTS.iter().flat_map(|fault| fault.expect).copied();
    let slugs: BTreeSet<&str> = texts.chain(disks).filter_map(|expected| expected.split("catalog::").nth(1)?.split(' ').next()).collect();
    // What only measured rows can tell is in tests/accuracy.rs.
    let known: BTreeSet<&str> = Code::ALL.iter().filter(|code| **code != Code::NotFitted).map(|code| code.slug()).collect();
    assert_eq!(known.difference(&slugs).collect::<Vec<_>>(), <[&&str; 0]>::default(), "codes without a fault");
    assert_eq!(slugs.difference(&known).collect::<Vec<_>>(), <[&&str; 0]>::default(), "faults of no code");
}
