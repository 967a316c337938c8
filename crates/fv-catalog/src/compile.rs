//! Authored records to compiled ones: capacities normalised, references expanded, configurations merged.

use fv_spec::{
    authored::{Component, ComponentUse, Hardware, Manifest, Role},
    compiled::{ComponentMap, Device, DevicePartition, Example, ExpandedComponent, Model, VERSION},
};
use serde_json::{Map, Value};

use crate::check::Components;

/// A device with its capacities in decimal GB.
pub(crate) fn device(id: &str, hardware: &Hardware) -> Device {
    let Hardware {
        name,
        vendor,
        kind,
        family,
        variant,
        form_factor,
        gpu_count,
        memory,
        host_memory,
        backend,
        partitionable,
        partitions,
        supported_dtypes,
        compute_capability,
        memory_bandwidth_gbps,
        dense_tflops,
        pcie,
        tdp_watts,
        aliases,
        notes,
        sources,
    } = hardware.clone();
    let partitions = partitions.into_iter().flatten();
    Device {
        id: id.to_owned(),
        name,
        vendor,
        kind,
        family,
        variant,
        form_factor,
        gpu_count,
        memory_type: memory.kind,
        memory_gb: memory.nominal.gb(),
        usable_memory_gb: memory.usable.map(fv_spec::units::Capacity::gb),
        host_memory_gb: host_memory.map(fv_spec::units::Capacity::gb),
        memory,
        backend,
        partitionable,
        partitions: partitions.map(|p| DevicePartition { id: p.id, label: p.label, memory_gb: p.memory.gb(), memory: p.memory }).collect(),
        supported_dtypes,
        compute_capability,
        memory_bandwidth_gbps,
        dense_tflops,
        pcie,
        tdp_watts,
        aliases: aliases.unwrap_or_default(),
        notes,
        sources,
    }
}

/// A model with its components expanded; nothing for a manifest without capacity, or with a broken reference.
pub(crate) fn model(key: &str, manifest: Manifest, components: &Components) -> Option<Model> {
    let Manifest { title, baseline, deployments, capacity } = manifest;
    let capacity = capacity?;
    let model_id = baseline["generator"]["model_path"].as_str()?.to_owned();
    let expand = |uses: &std::collections::BTreeMap<Role, ComponentUse>| -> Option<ComponentMap> {
        uses.iter().map(|(role, used)| Some((*role, expand(*role, used, components)?))).collect()
    };
    let examples = deployments
        .iter()
        .map(|deployment| {
            Some(Example {
                id: deployment.id.clone(),
                runtime: deployment.runtime,
                base_config: merged(&baseline, &deployment.defaults),
                env: deployment.env.clone(),
                components: expand(&deployment.components)?,
            })
        })
        .collect::<Option<_>>()?;
    Some(Model {
        version: VERSION,
        id: key.to_owned(),
        name: title,
        model_id,
        memory_rules: capacity.memory_rules,
        components: expand(&capacity.components)?,
        examples,
        sources: capacity.sources,
        reference_runs: capacity.reference_runs,
    })
}

fn expand(role: Role, used: &ComponentUse, components: &Components) -> Option<ExpandedComponent> {
    let file = components.of(role.component_type());
    let one = |id: &str| -> Option<ExpandedComponent> {
        let component = file.get(id)?.value.clone()?;
        let Component {
            name,
            parameter_count,
            block_count,
            block_parameter_count,
            block_groups,
            loaded_subset,
            decode_feature_multiplier,
            geometry,
            sources,
        } = component;
        Some(ExpandedComponent {
            component: id.to_owned(),
            name,
            parameter_count,
            block_count,
            block_parameter_count,
            block_groups,
            loaded_subset,
            decode_feature_multiplier,
            geometry,
            sources,
            alternatives: Vec::new(),
        })
    };
    let mut expanded = one(&used.component)?;
    expanded.alternatives = used.alternatives.iter().map(|id| one(id)).collect::<Option<_>>()?;
    Some(expanded)
}

/// `over` merged into `base`: mappings merge, lists and scalars replace; the base's key order is kept.
pub(crate) fn merged(base: &Map<String, Value>, over: &Map<String, Value>) -> Map<String, Value> {
    let mut result = base.clone();
    for (key, value) in over {
        match (result.get_mut(key), value) {
            (Some(Value::Object(mine)), Value::Object(theirs)) => *mine = merged(mine, theirs),
            (Some(slot), value) => *slot = value.clone(),
            (None, value) => {
                result.insert(key.clone(), value.clone());
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::merged;

    #[test]
    fn mappings_merge_and_everything_else_replaces() {
        let base = json!({"a": {"x": 1, "y": [1, 2]}, "b": 1, "experimental": {"vae_config.use_feature_cache": true}});
        let over = json!({"a": {"y": [3], "z": null}, "b": {"c": 1}, "experimental": {"vae_config.use_feature_cache": false, "vae_config.tile": 512}});
        let (Value::Object(base), Value::Object(over)) = (base, over) else { unreachable!() };
        let want = json!({"a": {"x": 1, "y": [3], "z": null}, "b": {"c": 1}, "experimental": {"vae_config.use_feature_cache": false, "vae_config.tile": 512}});
        let got = Value::Object(merged(&base, &over));
        assert_eq!(got.to_string(), want.to_string(), "values and key order");
    }
}
