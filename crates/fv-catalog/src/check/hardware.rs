//! `hardware.yaml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fv_spec::{
    authored::{Hardware, MemoryType},
    units::Capacity,
};

use super::{At, Devices, EntryFile, SHAPES, origin};
use crate::{codes::Code, finding::Finding, finding::SourceFile, yaml::short};

pub(crate) fn read(texts: &BTreeMap<String, Arc<SourceFile>>, findings: &mut Vec<Finding>) -> Devices {
    let devices: Devices = EntryFile::read(texts.get("hardware.yaml"), &SHAPES.hardware, findings);
    for (at, _, device) in devices.placed() {
        check(&at, device, findings);
    }
    aliases(&devices, findings);
    devices
}

fn check(at: &At, device: &Hardware, findings: &mut Vec<Finding>) {
    let memory = &device.memory;
    match (&memory.usable, &memory.policy) {
        (Some(_), None) => {
            let span = at.key(&["memory".into(), "usable".into()]);
            let help = "add the documented policy, or leave `usable` out: then a labelled default applies";
            findings
                .push(at.finding(Code::UsablePolicy, span, "needs `policy`", "`usable` without the `policy` that documents it").help(help));
        }
        (None, Some(_)) => {
            let span = at.key(&["memory".into(), "policy".into()]);
            findings.push(at.finding(
                Code::UsablePolicy,
                span,
                "needs `usable`",
                "`policy` without the `usable` capacity that it documents",
            ));
        }
        _ => {}
    }
    if let Some(usable) = memory.usable {
        larger(at, &["memory", "usable"], "usable memory", usable, memory.nominal, findings);
    }
    if let Some(reported) = memory.reported {
        // A driver's total is a little more or less than nominal, by the unit and by what it keeps.
        let (reported, nominal) = (u128::from(reported.value) << 20, u128::from(memory.nominal.bytes()));
        if reported * 10 > nominal * 12 || reported * 2 < nominal {
            let span = at.value(&["memory".into(), "reported".into()]);
            let message = format!("the reported total is {} % of the nominal memory", reported * 100 / nominal.max(1));
            findings.push(at.finding(Code::CapacityOrder, span, "not near nominal", message).help("drivers print MiB, 2^20 bytes"));
        }
    }
    if memory.kind == MemoryType::Unified && device.host_memory.is_some() {
        let span = at.key(&["host_memory".into()]);
        let help = "unified memory is one pool; `memory` already holds it";
        findings.push(
            at.finding(Code::UnifiedHostMemory, span, "apart from what?", "a device with unified memory has no separate host memory")
                .help(help),
        );
    }
    match (&device.family, &device.variant) {
        (Some(_), None) => {
            findings.push(at.finding(Code::FamilyVariant, at.key(&["family".into()]), "needs `variant`", "`family` without `variant`"));
        }
        (None, Some(_)) => {
            findings.push(at.finding(Code::FamilyVariant, at.key(&["variant".into()]), "needs `family`", "`variant` without `family`"));
        }
        _ => {}
    }
    partitions(at, device, findings);
    origin::check(at, &["sources".into()], &device.sources, findings);
    origin::check_vendor(at, &device.vendor, &device.sources, findings);
}

fn partitions(at: &At, device: &Hardware, findings: &mut Vec<Finding>) {
    let Some(partitions) = &device.partitions else { return };
    if device.partitionable != Some(true) {
        let span = at.key(&["partitions".into()]);
        let help = "add `partitionable: true`";
        findings.push(
            at.finding(Code::PartitionsNotAllowed, span, "not partitionable", "partitions on a device that is not partitionable")
                .help(help),
        );
    }
    let mut seen = BTreeMap::new();
    for (i, partition) in partitions.iter().enumerate() {
        let id = at.value(&["partitions".into(), i.into(), "id".into()]);
        if let Some(first) = seen.insert(partition.id.as_str(), id.clone()) {
            let message = format!("partition `{}` is listed twice", short(&partition.id));
            findings.push(at.finding(Code::DuplicateId, id, "again here", message).also(first, "first here"));
        }
        if partition.memory.bytes() > device.memory.nominal.bytes() {
            let span = at.value(&["partitions".into(), i.into(), "memory".into()]);
            let message = format!("partition `{}` is larger than the device", short(&partition.id));
            findings.push(at.finding(Code::CapacityOrder, span, "more than the device has", message));
        }
    }
}

fn larger(at: &At, path: &[&str], what: &str, part: Capacity, whole: Capacity, findings: &mut Vec<Finding>) {
    if part.bytes() > whole.bytes() {
        let steps: Vec<_> = path.iter().map(|name| (*name).into()).collect();
        findings.push(at.finding(
            Code::CapacityOrder,
            at.value(&steps),
            "more than nominal",
            format!("{what} is more than the nominal memory"),
        ));
    }
}

/// An alias equals no other id or alias, letter case aside.
fn aliases(devices: &Devices, findings: &mut Vec<Finding>) {
    let ids: BTreeSet<&str> = devices.entries.iter().map(|entry| entry.id.as_str()).collect();
    let mut owners: BTreeMap<String, (&str, crate::finding::Span)> = BTreeMap::new();
    for (at, entry, device) in devices.placed() {
        for (i, alias) in device.aliases.iter().flatten().enumerate() {
            let span = at.value(&["aliases".into(), i.into()]);
            let name = alias.to_lowercase();
            if ids.contains(name.as_str()) {
                let whose = if name == entry.id { "its own id" } else { "another device's id" };
                let message = format!("alias `{}` is {whose}", short(alias));
                let mut finding = at.finding(Code::AliasTaken, span, "already an id", message);
                if let Some(other) = devices.get(&name) {
                    finding = finding.also(other.key.clone(), "this id");
                }
                findings.push(finding);
            } else if let Some((owner, first)) = owners.get(&name) {
                let message = format!("alias `{}` already belongs to `{}`", short(alias), short(owner));
                findings.push(at.finding(Code::AliasTaken, span, "again here", message).also(first.clone(), "first here"));
            } else {
                owners.insert(name, (entry.id.as_str(), span));
            }
        }
    }
}
