//! JSON Schemas of the authored and compiled files and of the estimator's answers, generated from the types.
//!
//! `Option` means "may be left out", never `null`; enumerations are plain `enum` lists; there is no `anyOf`.
//! So every violation points at one key or value, and editors can complete the rest.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema, transform::transform_subschemas};
use serde_json::{Map, Value, json};

use crate::{
    authored::{Component, ComponentUse, Coverage, Hardware, Manifest, Role},
    compiled, estimate,
    family::{ComponentType, FAMILIES, GeometryKind, geometry_kind},
    plan, probe, program, questions,
    units::{Count, MAX_JSON_INTEGER},
};

/// An identifier: lower-case letters, digits, and `.`, `-`, `_` between them.
pub const ID: &str = r"^[a-z0-9]+([._-][a-z0-9]+)*$";
/// A partition identifier, such as `1g.10gb+me`.
pub const PARTITION_ID: &str = r"^[a-z0-9]+([._+-][a-z0-9]+)*$";
/// A count written as text.
pub const COUNT: &str = "^[1-9][0-9]{0,2}(_[0-9]{3})*$";
/// An address that a browser can open.
pub const URL: &str = r"^https?://[^\s/@:]+(:[0-9]+)?(/[^\s]*)?$";

/// The schemas that are committed in `schemas/`, by file name.
pub fn all() -> Vec<(&'static str, Value)> {
    FILES.iter().map(|(name, make)| (*name, make())).collect()
}

/// The schema called `name` in `schemas/`.
pub fn named(name: &str) -> Option<Value> {
    FILES.iter().find(|(n, _)| *n == name).map(|(_, make)| make())
}

type Make = fn() -> Value;

static FILES: &[(&str, Make)] = &[
    ("hardware.schema.json", || root::<BTreeMap<String, Hardware>>("Authored hardware.yaml")),
    ("transformers.schema.json", || components(ComponentType::Transformer)),
    ("encoders.schema.json", || components(ComponentType::Encoder)),
    ("vaes.schema.json", || components(ComponentType::Vae)),
    ("model.schema.json", || root::<Manifest>("Authored models/<key>.yaml")),
    ("run.schema.json", || root::<crate::authored::RunFile>("A file for fv-catalog add-run")),
    ("rules.schema.json", || root::<crate::authored::Rules>("Authored rules/<name>.yaml")),
    ("coverage.schema.json", || root::<Coverage>("Authored coverage.yaml")),
    ("compiled-index.schema.json", || root::<compiled::Index>("Compiled index.json")),
    ("compiled-hardware.schema.json", || root::<compiled::HardwareFile>("Compiled hardware.json")),
    ("compiled-model.schema.json", || root::<compiled::Model>("Compiled models/<id>.json")),
    ("compiled-rules.schema.json", || root::<compiled::RulesFile>("Compiled rules.json")),
    ("estimate.schema.json", || root::<estimate::Estimate>("fv-catalog estimate --format json")),
    ("explain.schema.json", || root::<estimate::Explanation>("fv-catalog explain --format json")),
    ("match.schema.json", || root::<estimate::EvidenceMatch>("fv-catalog match --format json")),
    ("assess.schema.json", || root::<estimate::Assessment>("fv-catalog assess --format json")),
    ("recommend.schema.json", || root::<estimate::Recommendations>("fv-catalog recommend --format json")),
    ("largest.schema.json", || root::<questions::LargestAnswer>("fv-catalog largest --format json")),
    ("minimum.schema.json", || root::<questions::Minimum>("fv-catalog minimum --format json")),
    ("compare.schema.json", || root::<questions::Comparison>("fv-catalog compare --format json")),
    ("plan.schema.json", || root::<plan::Plan>("An execution plan: fv-run plan --format json")),
    ("plan-refusal.schema.json", || root::<plan::refusal::Refusal>("A request that does not fit: fv-run plan --format json, exit code 4")),
    ("plan-unknown.schema.json", || {
        root::<plan::refusal::Unplanned>("A request that the policy has no rule for: fv-run plan --format json")
    }),
    ("plan-explain.schema.json", || root::<plan::answer::PlanExplanation>("fv-run plan explain --format json")),
    ("plan-diff.schema.json", || root::<plan::answer::PlanDiff>("fv-run plan diff --format json")),
    ("sweep.schema.json", || root::<questions::SweepRow>("A line of fv-catalog sweep --format jsonl")),
    ("sweep-report.schema.json", || root::<questions::SweepReport>("fv-catalog sweep --report")),
    ("program.schema.json", || root::<program::Program>("An op program of fv-run")),
    ("probe.schema.json", || root::<probe::Probe>("fv-run probe --json")),
];

fn root<T: JsonSchema>(title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(tidy);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    // The keys of a map of entries are ids.
    if schema.get("properties").is_none() && schema.get("additionalProperties").is_some() {
        schema.insert("propertyNames".into(), json!({ "pattern": ID }));
    }
    schema.to_value()
}

/// The schema of one component file: the common shape with the geometry of its type.
fn components(kind: ComponentType) -> Value {
    let mut schema = root::<BTreeMap<String, Component>>(&format!("Authored {}", kind.file()));
    schema["$defs"]["AnyGeometry"] = geometry(kind);
    if kind != ComponentType::Vae
        && let Some(properties) = schema["$defs"]["Component"]["properties"].as_object_mut()
    {
        properties.remove("decode_feature_multiplier");
    }
    schema
}

/// Geometry fields that a component of type `kind` may carry: the allowlist, and what families declare.
pub fn geometry_fields(kind: ComponentType) -> Vec<&'static str> {
    let mut fields: Vec<&str> = kind.geometry().to_vec();
    for family in FAMILIES {
        for field in family.declared(kind) {
            if !fields.contains(field) {
                fields.push(field);
            }
        }
    }
    fields
}

fn geometry(kind: ComponentType) -> Value {
    let properties: Map<String, Value> = geometry_fields(kind)
        .into_iter()
        .map(|name| {
            let dimension = json!({ "type": "integer", "minimum": 1, "maximum": 1_000_000_000 });
            let value = match geometry_kind(name) {
                GeometryKind::Integer => dimension,
                GeometryKind::Boolean => json!({ "type": "boolean" }),
                GeometryKind::Patch => json!({ "type": "array", "minItems": 3, "maxItems": 3, "items": dimension }),
            };
            (name.to_owned(), value)
        })
        .collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// Drops `null` from optional fields and turns documented enumerations into plain `enum` lists.
fn tidy(schema: &mut Schema) {
    transform_subschemas(&mut tidy, schema);
    schema.remove("format").filter(|f| f == "date").into_iter().for_each(|f| {
        schema.insert("format".into(), f);
    });
    // A written default would invite authors to repeat it.
    schema.remove("default");
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|t| t != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(list) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        list.retain(|v| !v.is_null());
    }
    if let Some(Value::Array(mut any)) = schema.remove("anyOf") {
        any.retain(|s| s["type"] != "null");
        if let [Value::Object(only)] = &any[..] {
            for (key, value) in only {
                schema.insert(key.clone(), value.clone());
            }
        } else {
            schema.insert("anyOf".into(), any.into());
        }
    }
    if let Some(Value::Array(one)) = schema.get("oneOf").cloned()
        && one.iter().all(|s| s.get("const").is_some() || s.get("enum").is_some())
    {
        let values: Vec<Value> =
            one.iter().flat_map(|s| s.get("const").cloned().into_iter().chain(s["enum"].as_array().cloned().unwrap_or_default())).collect();
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), values.into());
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A positive count: an integer, or digits grouped by thousands with _",
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": MAX_JSON_INTEGER,
            "pattern": COUNT
        })
    }
}

/// Declares a type that exists only to carry a schema.
macro_rules! schema_only {
    ($(#[$doc:meta])* $name:ident, |$generator:ident| $body:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                let value: Value = $body;
                Schema::try_from(value).unwrap_or_default()
            }
        }
    };
}

schema_only!(
    /// Geometry of a component of any type; the component files narrow it.
    AnyGeometry,
    |_generator| json!({ "type": "object", "additionalProperties": { "type": ["integer", "boolean", "array"] } })
);
schema_only!(
    /// A free-form mapping.
    FreeForm,
    |_generator| json!({ "type": "object" })
);
schema_only!(
    /// A launch environment: strings by name.
    Environment,
    |_generator| json!({ "type": "object", "propertyNames": { "pattern": "^[^=\u{0}]+$" }, "additionalProperties": { "type": "string" } })
);
schema_only!(
    /// A baseline serving configuration: free-form but for the model path and the GPU count.
    Baseline,
    |_generator| json!({
        "type": "object",
        "required": ["generator"],
        "properties": {
            "generator": {
                "type": "object",
                "required": ["model_path"],
                "properties": {
                    "model_path": { "type": "string", "minLength": 1 },
                    "engine": { "type": "object", "properties": { "num_gpus": { "type": "integer", "minimum": 1, "maximum": 4096 } } }
                }
            }
        }
    })
);
schema_only!(
    /// A normalised request: free-form but for the sampled size.
    Request,
    |_generator| {
        let dimension = json!({ "type": "integer", "minimum": 1, "maximum": 1_000_000 });
        json!({
            "type": "object",
            "required": ["sampling"],
            "properties": {
                "sampling": {
                    "type": "object",
                    "required": ["height", "width", "num_frames"],
                    "properties": { "height": dimension, "width": dimension, "num_frames": dimension }
                }
            }
        })
    }
);
schema_only!(
    /// The id of a memory-rule family.
    FamilyId,
    |_generator| json!({ "type": "string", "enum": FAMILIES.iter().map(|family| family.id).collect::<Vec<_>>() })
);
schema_only!(
    /// Components by role.
    Components,
    |generator| by_role(&generator.subschema_for::<ComponentUse>())
);
schema_only!(
    /// Revisions by role.
    RoleRevisions,
    |_generator| {
        let text = json_schema!({ "type": "string", "minLength": 1 });
        by_role(&text)
    }
);
schema_only!(
    /// Peaks in GiB by stage name.
    StagePeaks,
    |_generator| json!({
        "type": "object",
        "propertyNames": { "minLength": 1, "maxLength": 100 },
        "additionalProperties": { "type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000 }
    })
);
schema_only!(
    /// Lowest and highest value by input name.
    Ranges,
    |_generator| json!({
        "type": "object",
        "additionalProperties": { "type": "array", "minItems": 2, "maxItems": 2, "items": { "type": "number" } }
    })
);
schema_only!(
    /// Dense matrix rates by operand type, then by accumulator type.
    DenseTflops,
    |_generator| {
        let rate = json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000 });
        let accumulators = json!({
            "type": "object", "minProperties": 1, "additionalProperties": false,
            "properties": { "fp32": rate, "fp16": rate, "int32": rate }
        });
        let properties: Map<String, Value> =
            ["fp32", "fp16", "bf16", "fp8", "int8", "nvfp4"].into_iter().map(|dtype| (dtype.to_owned(), accumulators.clone())).collect();
        json!({ "type": "object", "minProperties": 1, "additionalProperties": false, "properties": properties })
    }
);

fn by_role(value: &Schema) -> Value {
    let properties: Map<String, Value> = Role::ALL.iter().map(|role| (role.word().to_owned(), value.clone().to_value())).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}
