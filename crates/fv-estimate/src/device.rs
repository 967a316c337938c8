//! The device that an estimate is for: of the catalog, or described by the user.
//!
//! A [`DeviceSpec`] keeps what is known and leaves out what is not; nothing is filled in here. What a device offers to a
//! process is worked out in [`crate::budget`].

use std::collections::BTreeMap;

use fv_spec::authored::{Accumulate, Backend, Dtype, MemoryType};
use fv_spec::compiled::Device;
use fv_spec::estimate::Reason;
use fv_spec::plan::Source;
use fv_spec::units::{Capacity, CapacityUnit};
use serde_json::{Map, Value};

use crate::error::{InputError, did_you_mean, listed, quoted, readable, rounded};
use crate::forecast::rates::{Rate, Rates};
use crate::planner::freevideo::is_geforce;

/// The smallest and largest number of GB or GiB that is believed. Drivers without a limit report figures such as 10^32.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;
/// The largest capacity that is believed, in bytes: 10^6 GiB. Below 2^53.
pub const MAX_CAPACITY: u64 = 1_000_000 << 30;

/// Backends as written in files.
pub(crate) const BACKENDS: [(Backend, &str); 6] = [
    (Backend::Cuda, "cuda"),
    (Backend::Rocm, "rocm"),
    (Backend::Xpu, "xpu"),
    (Backend::Mps, "mps"),
    (Backend::Musa, "musa"),
    (Backend::Npu, "npu"),
];

/// Formats as written in files.
const DTYPES: [(Dtype, &str); 6] = [
    (Dtype::Fp32, "fp32"),
    (Dtype::Fp16, "fp16"),
    (Dtype::Bf16, "bf16"),
    (Dtype::Fp8, "fp8"),
    (Dtype::Int8, "int8"),
    (Dtype::Nvfp4, "nvfp4"),
];

/// The software stack of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendName {
    /// One that rules can be written for.
    Known(Backend),
    /// A name that means nothing here.
    Other(String),
    /// Not said.
    Missing,
}

impl BackendName {
    /// The backend of that name.
    pub fn parse(text: &str) -> Self {
        BACKENDS.iter().find(|(_, word)| *word == text).map_or_else(|| Self::Other(text.to_owned()), |(backend, _)| Self::Known(*backend))
    }

    /// The name as it is written.
    pub fn word(&self) -> &str {
        match self {
            Self::Known(known) => backend_word(*known),
            Self::Other(name) => name,
            Self::Missing => "",
        }
    }

    /// Why nothing is known about a device with this backend; nothing for a known one.
    pub fn unknown(&self) -> Option<Reason> {
        let words = || BACKENDS.iter().map(|(_, word)| *word);
        let message = match self {
            Self::Known(_) => return None,
            Self::Missing => format!("the device does not say its backend, one of {}", listed(words())),
            Self::Other(name) => {
                format!("the backend {} is not known, only {}{}", quoted(name), listed(words()), did_you_mean(name, words()))
            }
        };
        Some(Reason::new("unknown-backend", message))
    }
}

/// The backend as written in files.
pub(crate) fn backend_word(backend: Backend) -> &'static str {
    BACKENDS.iter().find(|(known, _)| *known == backend).map_or("", |(_, word)| word)
}

/// The format as written in files.
pub fn dtype_word(dtype: Dtype) -> &'static str {
    DTYPES.iter().find(|(known, _)| *known == dtype).map_or("", |(_, word)| word)
}

/// A MIG, vGPU or compute partition with its own capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Unique within the device.
    pub id: String,
    /// Its capacity, when one that can be believed is recorded.
    pub bytes: Option<u64>,
}

/// A device as far as it is known. Sizes are bytes of one device: a record of a board with several says so elsewhere, and
/// their memory is never added up.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSpec {
    /// The catalog's id, or the user's.
    pub id: String,
    /// The name people know it by.
    pub name: String,
    /// Described by the user and not by the catalog.
    pub custom: bool,
    /// Whether its memory is its own.
    pub memory_type: Option<MemoryType>,
    /// The maker's figure.
    pub nominal: Option<u64>,
    /// The total that a driver was seen to report.
    pub reported: Option<u64>,
    /// What an application may use by a documented policy.
    pub usable: Option<u64>,
    /// That policy.
    pub policy: Option<String>,
    /// Host memory that comes with it.
    pub host_memory: Option<u64>,
    /// The software stack.
    pub backend: BackendName,
    /// CUDA compute capability, such as `9.0`.
    pub compute_capability: Option<String>,
    /// What it can be split into.
    pub partitions: Vec<PartitionSpec>,
    /// Formats that the hardware handles.
    pub supported_dtypes: Option<Vec<Dtype>>,
    /// How fast it is.
    pub rates: Rates,
    /// What was assumed in describing it.
    pub notes: Vec<String>,
}

impl From<&Device> for DeviceSpec {
    /// The device of the catalog. A capacity that cannot be believed counts as not known.
    fn from(device: &Device) -> Self {
        let memory = &device.memory;
        Self {
            id: device.id.clone(),
            name: device.name.clone(),
            custom: false,
            memory_type: Some(memory.kind),
            nominal: believed(memory.nominal),
            reported: memory.reported.and_then(|reported| mib(reported.value)),
            usable: memory.usable.and_then(believed),
            policy: memory.policy.clone(),
            host_memory: device
                .host_memory_gb
                .filter(|_| memory.kind == MemoryType::Dedicated)
                .and_then(|value| believed(Capacity { value, unit: CapacityUnit::Gb })),
            backend: BackendName::Known(device.backend),
            compute_capability: device.compute_capability.clone(),
            partitions: device
                .partitions
                .iter()
                .map(|partition| PartitionSpec { id: partition.id.clone(), bytes: believed(partition.memory) })
                .collect(),
            supported_dtypes: device.supported_dtypes.clone(),
            rates: Rates::of(device),
            notes: Vec::new(),
        }
    }
}

impl DeviceSpec {
    /// Whether it is a `GeForce` card, by its name. The name of a device that a user describes may be anything, so there only a yes counts.
    pub fn geforce(&self) -> Option<bool> {
        let geforce = is_geforce(&self.name);
        (geforce || !self.custom).then_some(geforce)
    }
}

/// Bytes of a capacity that can be believed.
fn believed(capacity: Capacity) -> Option<u64> {
    BELIEVED.contains(&capacity.value).then(|| capacity.bytes())
}

/// Bytes of a driver's MiB that can be believed.
fn mib(value: u64) -> Option<u64> {
    value.checked_mul(1 << 20).filter(|bytes| (1..=MAX_CAPACITY).contains(bytes))
}

/// Bytes of a number of GiB (2^30 bytes), rounded to the nearest byte.
///
/// # Errors
/// Unless the number lies between 0.001 and 1,000,000; `what` names the input in the message.
pub fn gib_to_bytes(what: &str, value: f64) -> Result<u64, InputError> {
    to_bytes(what, Capacity { value, unit: CapacityUnit::Gib })
}

/// Bytes of a number of GiB that is kept back, rounded to the nearest byte: it may be none.
///
/// # Errors
/// Unless the number lies between 0 and 1,000,000; `what` names the input in the message.
pub fn reserve_to_bytes(what: &str, value: f64) -> Result<u64, InputError> {
    if (0.0..=*BELIEVED.end()).contains(&value) {
        return Ok(Capacity { value, unit: CapacityUnit::Gib }.bytes());
    }
    let message = format!("{what} is {} GiB; it must lie between 0 and {}", readable(value), BELIEVED.end());
    Err(InputError::new("invalid-reserve", message))
}

/// Bytes of a number of decimal GB (10^9 bytes), rounded to the nearest byte.
///
/// # Errors
/// Unless the number lies between 0.001 and 1,000,000; `what` names the input in the message.
pub fn gb_to_bytes(what: &str, value: f64) -> Result<u64, InputError> {
    to_bytes(what, Capacity { value, unit: CapacityUnit::Gb })
}

fn to_bytes(what: &str, capacity: Capacity) -> Result<u64, InputError> {
    believed(capacity).ok_or_else(|| {
        let unit = if capacity.unit == CapacityUnit::Gb { "GB" } else { "GiB" };
        let shown = readable(capacity.value);
        InputError::new("invalid-capacity", format!("{what} is {shown} {unit}; it must lie between 0.001 and 1000000"))
    })
}

/// A device with dedicated memory from the flags `--vram-gib`, `--ram-gib`, `--backend` and `--dtypes`.
///
/// Without a backend CUDA is assumed; without formats their list stays unknown, which lets fp32, fp16 and bf16 pass as an
/// assumption (see [`storage_supported`]). The notes say what was assumed.
///
/// # Errors
/// For every capacity that cannot be believed and every format that does not exist.
pub fn from_flags(vram_gib: f64, ram_gib: Option<f64>, backend: Option<&str>, dtypes: Option<&str>) -> Result<DeviceSpec, Vec<InputError>> {
    let mut errors = Vec::new();
    let mut keep = |result: Result<u64, InputError>| result.map_err(|error| errors.push(error)).ok();
    let nominal = keep(gib_to_bytes("`--vram-gib`", vram_gib));
    let host_memory = ram_gib.and_then(|value| keep(gib_to_bytes("`--ram-gib`", value)));
    let supported_dtypes = dtypes.map(|list| parse_dtypes(list.split(',').map(str::trim), "`--dtypes`", &mut errors));
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut notes = vec![format!("assumed: a device with {vram_gib} GiB of its own")];
    if backend.is_none() {
        notes.push("assumed: its backend is cuda".to_owned());
    }
    if supported_dtypes.is_none() {
        notes.push("assumed: it handles fp32, fp16 and bf16".to_owned());
    }
    Ok(DeviceSpec {
        id: "custom".to_owned(),
        name: format!("Custom device, {} GiB", rounded(vram_gib)),
        custom: true,
        memory_type: Some(MemoryType::Dedicated),
        nominal,
        reported: None,
        usable: None,
        policy: None,
        host_memory,
        backend: BackendName::parse(backend.unwrap_or("cuda")),
        compute_capability: None,
        partitions: Vec::new(),
        supported_dtypes,
        rates: Rates { device: "custom".to_owned(), ..Rates::default() },
        notes,
    })
}

fn parse_dtypes<'a>(words: impl Iterator<Item = &'a str>, what: &str, errors: &mut Vec<InputError>) -> Vec<Dtype> {
    let mut dtypes = Vec::new();
    for word in words {
        match DTYPES.iter().find(|(_, known)| *known == word) {
            Some((dtype, _)) if dtypes.contains(dtype) => {}
            Some((dtype, _)) => dtypes.push(*dtype),
            None => {
                let known = || DTYPES.iter().map(|(_, word)| *word);
                let message = format!("{what}: {} is not a format, only {}{}", quoted(word), listed(known()), did_you_mean(word, known()));
                errors.push(InputError::new("unknown-dtype", message));
            }
        }
    }
    dtypes
}

/// A device that the user describes in JSON, in the words of the hardware catalog.
///
/// ```json
/// {"id": "custom", "name": "Custom accelerator", "custom": true, "backend": "cuda",
///  "memory": {"type": "dedicated", "nominal": {"value": 48, "unit": "GB"}}, "supported_dtypes": ["fp32", "bf16"]}
/// ```
///
/// `memory` may also hold `reported`, and `usable` together with its `policy`; beside it may stand `host_memory`,
/// `compute_capability`, `partitions`, `gpu_count`, and `rates` by hand. What is left out is unknown: without backend, memory type or capacity
/// there is a device and no budget.
///
/// # Errors
/// All that is wrong, in the order of the fields: unknown fields, other types than expected, capacities that cannot be
/// believed or contradict each other, formats that do not exist.
pub fn custom_from_json(value: &Value) -> Result<DeviceSpec, Vec<InputError>> {
    let mut reader = Reader { errors: Vec::new() };
    let device = reader.device(value);
    match device {
        Some(device) if reader.errors.is_empty() => Ok(device),
        _ => Err(reader.errors),
    }
}

/// Reads JSON and collects what is wrong.
struct Reader {
    errors: Vec<InputError>,
}

/// A field that is there; `null` is not.
fn field<'v>(map: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    map.get(key).filter(|value| !value.is_null())
}

impl Reader {
    fn wrong(&mut self, code: &'static str, message: String) {
        self.errors.push(InputError::new(code, message));
    }

    fn expected(&mut self, path: &str, what: &str) {
        self.wrong("device-shape", format!("`{path}` must be {what}"));
    }

    fn object<'v>(&mut self, value: &'v Value, path: &str, allowed: &[&str]) -> Option<&'v Map<String, Value>> {
        let Value::Object(map) = value else {
            self.expected(path, "an object");
            return None;
        };
        for key in map.keys().filter(|key| !allowed.contains(&key.as_str())) {
            let hint = did_you_mean(key, allowed.iter().copied());
            self.wrong("unknown-field", format!("`{path}` has no field {}{hint}", quoted(key)));
        }
        Some(map)
    }

    fn text(&mut self, map: &Map<String, Value>, path: &str, key: &str) -> Option<String> {
        const LONGEST: usize = 500;
        match field(map, key)? {
            Value::String(text) if !text.trim().is_empty() && text.len() <= LONGEST && !text.contains(char::is_control) => {
                Some(text.clone())
            }
            _ => {
                self.expected(&format!("{path}.{key}"), "text on one line, of at most 500 bytes");
                None
            }
        }
    }

    fn capacity(&mut self, map: &Map<String, Value>, path: &str, key: &str) -> Option<u64> {
        let path = format!("{path}.{key}");
        let capacity = self.object(field(map, key)?, &path, &["value", "unit"])?;
        let unit = match capacity.get("unit").and_then(Value::as_str) {
            Some("GB") => CapacityUnit::Gb,
            Some("GiB") => CapacityUnit::Gib,
            _ => {
                self.expected(&format!("{path}.unit"), "`GB` (10^9 bytes) or `GiB` (2^30 bytes)");
                return None;
            }
        };
        let Some(value) = capacity.get("value").and_then(Value::as_f64) else {
            self.expected(&format!("{path}.value"), "a number");
            return None;
        };
        to_bytes(&format!("`{path}`"), Capacity { value, unit }).map_err(|error| self.errors.push(error)).ok()
    }

    fn reported(&mut self, map: &Map<String, Value>) -> Option<u64> {
        let path = "device.memory.reported";
        let reported = self.object(field(map, "reported")?, path, &["value", "unit"])?;
        if reported.get("unit").and_then(Value::as_str) != Some("MiB") {
            self.expected(&format!("{path}.unit"), "`MiB`, as drivers print it");
            return None;
        }
        let bytes = reported.get("value").and_then(Value::as_u64).and_then(mib);
        if bytes.is_none() {
            self.wrong("invalid-capacity", format!("`{path}.value` must be a whole number of MiB between 1 and 1024000000"));
        }
        bytes
    }

    fn device(&mut self, value: &Value) -> Option<DeviceSpec> {
        const FIELDS: [&str; 11] = [
            "id",
            "name",
            "custom",
            "memory",
            "backend",
            "supported_dtypes",
            "host_memory",
            "compute_capability",
            "partitions",
            "gpu_count",
            "rates",
        ];
        let map = self.object(value, "device", &FIELDS)?;
        if map.get("custom") != Some(&Value::Bool(true)) {
            self.wrong("not-custom", "a device that the catalog does not hold says `custom: true`".to_owned());
        }
        let id = self.text(map, "device", "id").unwrap_or_else(|| "custom".to_owned());
        let name = self.text(map, "device", "name").unwrap_or_else(|| "Custom device".to_owned());
        let mut device = DeviceSpec {
            notes: vec![format!("{} is described by the user and was not compared with any source", quoted(&name))],
            id,
            name,
            custom: true,
            memory_type: None,
            nominal: None,
            reported: None,
            usable: None,
            policy: None,
            host_memory: self.capacity(map, "device", "host_memory"),
            backend: BackendName::Missing,
            compute_capability: None,
            partitions: Vec::new(),
            supported_dtypes: None,
            rates: Rates::default(),
        };
        device.rates.device.clone_from(&device.id);
        if let Some(memory) = field(map, "memory") {
            self.memory(memory, &mut device);
        }
        if let Some(backend) = self.text(map, "device", "backend") {
            device.backend = BackendName::parse(&backend);
        }
        if let Some(dtypes) = field(map, "supported_dtypes") {
            match dtypes.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>()) {
                Some(Some(words)) if !words.is_empty() => {
                    device.supported_dtypes = Some(parse_dtypes(words.into_iter(), "`device.supported_dtypes`", &mut self.errors));
                }
                _ => self.expected("device.supported_dtypes", "a list of formats; left out, they are unknown"),
            }
        }
        device.compute_capability = self.text(map, "device", "compute_capability");
        if device.compute_capability.as_deref().is_some_and(|version| architecture(version).is_none()) {
            self.expected("device.compute_capability", "text such as \"9.0\"");
        }
        if field(map, "gpu_count").is_some_and(|count| !count.as_u64().is_some_and(|count| (1..=1024).contains(&count))) {
            self.expected("device.gpu_count", "a whole number between 1 and 1024; memory is that of one device");
        }
        device.rates.capability.clone_from(&device.compute_capability);
        if let Some(rates) = field(map, "rates") {
            self.rates(rates, &mut device.rates);
        }
        if let Some(partitions) = field(map, "partitions") {
            self.partitions(partitions, &mut device);
        }
        if device.memory_type == Some(MemoryType::Unified) && device.host_memory.is_some() {
            let message = "unified memory is one pool: `device.host_memory` would count it twice".to_owned();
            self.wrong("unified-host-memory", message);
        }
        Some(device)
    }

    /// Rates by hand: GB/s, and dense products in TFLOP/s in the form of the catalog, `{"fp8": {"fp32": 1979}}`.
    fn rates(&mut self, value: &Value, rates: &mut Rates) {
        let path = "device.rates";
        let Some(map) = self.object(value, path, &["dense_tflops", "memory_gbps", "host_to_device_gbps", "disk_gbps"]) else { return };
        let mut number = |key: &str| {
            let rate = Rate::new(field(map, key)?.as_f64().unwrap_or(0.0), Source::Given);
            if rate.is_none() {
                self.expected(&format!("{path}.{key}"), "a rate in GB/s above 0");
            }
            rate
        };
        rates.memory = number("memory_gbps");
        rates.copies = number("host_to_device_gbps");
        rates.disk = number("disk_gbps");
        let Some(dense) = field(map, "dense_tflops") else { return };
        match serde_json::from_value::<BTreeMap<Dtype, BTreeMap<Accumulate, f64>>>(dense.clone()) {
            Ok(found) => {
                for (dtype, by) in found {
                    for (accumulate, value) in by {
                        match Rate::new(value, Source::Given) {
                            Some(rate) => drop(rates.dense.insert((dtype, accumulate), rate)),
                            None => self.expected(&format!("{path}.dense_tflops"), "rates in TFLOP/s above 0"),
                        }
                    }
                }
            }
            Err(_) => self.expected(
                &format!("{path}.dense_tflops"),
                "rates by format and accumulator (fp32, fp16, int32), such as {\"fp8\": {\"fp32\": 1979}}",
            ),
        }
    }

    fn memory(&mut self, value: &Value, device: &mut DeviceSpec) {
        let path = "device.memory";
        let Some(memory) = self.object(value, path, &["type", "nominal", "reported", "usable", "policy"]) else { return };
        device.memory_type = match field(memory, "type").map(Value::as_str) {
            None => None,
            Some(Some("dedicated")) => Some(MemoryType::Dedicated),
            Some(Some("unified")) => Some(MemoryType::Unified),
            Some(_) => {
                self.expected("device.memory.type", "`dedicated` or `unified`; left out, it is unknown");
                None
            }
        };
        device.nominal = self.capacity(memory, path, "nominal");
        device.reported = self.reported(memory);
        device.usable = self.capacity(memory, path, "usable");
        device.policy = self.text(memory, path, "policy");
        if field(memory, "usable").is_some() != field(memory, "policy").is_some() {
            self.wrong("usable-policy", "`device.memory.usable` and the `policy` that documents it come together".to_owned());
        }
        let (usable, reported) = (device.usable, device.reported);
        if let Some(nominal) = device.nominal {
            if usable > Some(nominal).max(reported) {
                self.wrong("capacity-order", "`device.memory.usable` is more than there is".to_owned());
            }
            let far =
                |reported: u64| u128::from(reported) * 10 > u128::from(nominal) * 12 || u128::from(reported) * 2 < u128::from(nominal);
            if reported.is_some_and(far) {
                self.wrong("capacity-order", "`device.memory.reported` is not near `nominal`; drivers print MiB, 2^20 bytes".to_owned());
            }
        }
    }

    fn partitions(&mut self, value: &Value, device: &mut DeviceSpec) {
        let Some(list) = value.as_array() else { return self.expected("device.partitions", "a list") };
        for (i, value) in list.iter().enumerate() {
            let path = format!("device.partitions[{i}]");
            let Some(map) = self.object(value, &path, &["id", "label", "memory"]) else { continue };
            let bytes = self.capacity(map, &path, "memory");
            let Some(id) = self.text(map, &path, "id") else {
                if field(map, "id").is_none() {
                    self.expected(&format!("{path}.id"), "given");
                }
                continue;
            };
            if device.partitions.iter().any(|other| other.id == id) {
                self.wrong("capacity-order", format!("`{path}`: partition {} is listed twice", quoted(&id)));
            }
            if bytes.zip(device.nominal).is_some_and(|(part, whole)| part > whole) {
                self.wrong("capacity-order", format!("`{path}`: partition {} is larger than the device", quoted(&id)));
            }
            device.partitions.push(PartitionSpec { id, bytes });
        }
    }
}

/// `90` for compute capability `9.0`.
pub(crate) fn architecture(version: &str) -> Option<String> {
    let (major, minor) = version.split_once('.')?;
    let digits = |text: &str, longest| (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(major, 2) && digits(minor, 1) && !major.starts_with('0')).then(|| format!("{major}{minor}"))
}

/// Whether a device is known to hold weights of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Supported {
    /// The hardware handles it.
    Yes,
    /// Nobody says so, and every device is taken to.
    Assumed,
    /// Nobody says so, and some do not.
    Unknown,
}

/// Whether weights may be stored in `dtype`, and why not or on what assumption.
///
/// What the hardware handles is not what a kernel does: weights in a format that the hardware lacks can be converted on
/// the way. Nobody has recorded whether a runtime does so, so a format that is missing from the list is unknown, too, and not
/// refused.
pub fn storage_supported(device: &DeviceSpec, dtype: Dtype) -> (Supported, Option<Reason>) {
    let (name, word) = (quoted(&device.name), dtype_word(dtype));
    match &device.supported_dtypes {
        Some(list) if list.contains(&dtype) => (Supported::Yes, None),
        Some(list) => {
            let listed = listed(list.iter().map(|dtype| dtype_word(*dtype)));
            let message = format!("{name} lists {listed}; whether {word} weights are converted on the way is not recorded");
            (Supported::Unknown, Some(Reason::new("format-not-listed", message)))
        }
        None if matches!(dtype, Dtype::Fp32 | Dtype::Fp16 | Dtype::Bf16) => {
            let message = format!("assumed: {name} handles {word}, though its formats are not recorded");
            (Supported::Assumed, Some(Reason::new("format-assumed", message)))
        }
        None => {
            let message = format!("the formats of {name} are not recorded, and not every device handles {word}");
            (Supported::Unknown, Some(Reason::new("format-unknown", message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn codes(result: Result<DeviceSpec, Vec<InputError>>) -> Vec<&'static str> {
        result.map_or_else(|errors| errors.into_iter().map(|error| error.code).collect(), |_| Vec::new())
    }

    #[test]
    fn a_custom_device_is_read() {
        let device = custom_from_json(&json!({
            "id": "custom", "name": "Custom accelerator", "custom": true,
            "memory": { "type": "dedicated", "nominal": { "value": 48, "unit": "GB" } },
            "backend": "cuda", "supported_dtypes": ["fp32", "fp16", "bf16", "fp8"],
        }))
        .expect("complete");
        assert_eq!(device.nominal, Some(48_000_000_000));
        assert_eq!(device.memory_type, Some(MemoryType::Dedicated));
        assert_eq!(device.backend, BackendName::Known(Backend::Cuda));
        assert_eq!(storage_supported(&device, Dtype::Fp8), (Supported::Yes, None));
        assert!(device.custom && device.notes.len() == 1);

        let device = custom_from_json(&json!({
            "custom": true, "backend": "cuda", "compute_capability": "8.9", "gpu_count": 2,
            "memory": { "type": "dedicated", "nominal": { "value": 24, "unit": "GB" }, "reported": { "value": 24564, "unit": "MiB" },
                        "usable": { "value": 22.5, "unit": "GiB" }, "policy": "the display keeps the rest" },
            "host_memory": { "value": 64, "unit": "GiB" },
            "partitions": [{ "id": "half", "label": "Half", "memory": { "value": 12, "unit": "GB" } }],
        }))
        .expect("complete");
        assert_eq!((device.reported, device.usable), (Some(24_564 << 20), Some(24_159_191_040)));
        assert_eq!(device.host_memory, Some(64 << 30));
        assert_eq!(device.partitions, [PartitionSpec { id: "half".into(), bytes: Some(12_000_000_000) }]);
        assert_eq!(device.supported_dtypes, None);
    }

    #[test]
    fn what_is_left_out_is_unknown() {
        for missing in [json!({ "custom": true }), json!({ "custom": true, "memory": null, "backend": null, "supported_dtypes": null })] {
            let device = custom_from_json(&missing).expect("unknown is no error");
            assert_eq!((device.memory_type, device.nominal, device.supported_dtypes), (None, None, None));
            assert_eq!(device.backend, BackendName::Missing);
        }
        let device = custom_from_json(&json!({ "custom": true, "backend": "cud" })).expect("an unknown backend is no error");
        let reason = device.backend.unknown().expect("unknown");
        assert_eq!(reason.code, "unknown-backend");
        assert!(reason.message.ends_with("did you mean `cuda`?"), "{}", reason.message);
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let with = |key: &str, value: Value| {
            let mut device = json!({
                "custom": true, "backend": "cuda", "memory": { "type": "dedicated", "nominal": { "value": 48, "unit": "GB" } }
            });
            device[key] = value;
            device
        };
        let nominal = |value: Value| with("memory", json!({ "type": "dedicated", "nominal": { "value": value, "unit": "GB" } }));
        for (value, expected) in [
            (json!(7), vec!["device-shape"]),
            (json!([]), vec!["device-shape"]),
            (json!({}), vec!["not-custom"]),
            (with("custom", json!("true")), vec!["not-custom"]),
            (with("memroy", json!({})), vec!["unknown-field"]),
            (with("id", json!("a\nb")), vec!["device-shape"]),
            (with("name", json!("")), vec!["device-shape"]),
            (with("memory", json!(48)), vec!["device-shape"]),
            (with("memory", json!({ "type": "shared" })), vec!["device-shape"]),
            (with("memory", json!({ "nominal": 48 })), vec!["device-shape"]),
            (with("memory", json!({ "nominal": { "value": 48, "unit": "gb" } })), vec!["device-shape"]),
            (with("memory", json!({ "nominal": { "value": 48, "unit": "MiB" } })), vec!["device-shape"]),
            (with("memory", json!({ "nominal": { "value": 48, "unit": "GB", "of": 1 } })), vec!["unknown-field"]),
            (nominal(json!("48")), vec!["device-shape"]),
            (nominal(json!(0)), vec!["invalid-capacity"]),
            (nominal(json!(-48)), vec!["invalid-capacity"]),
            (nominal(json!(0.000_000_1)), vec!["invalid-capacity"]),
            (nominal(json!(1e32)), vec!["invalid-capacity"]),
            (nominal(json!(u64::MAX)), vec!["invalid-capacity"]),
            (with("host_memory", json!({ "value": 0, "unit": "GB" })), vec!["invalid-capacity"]),
            (
                with("memory", json!({ "nominal": { "value": 48, "unit": "GB" }, "usable": { "value": 40, "unit": "GB" } })),
                vec!["usable-policy"],
            ),
            (with("memory", json!({ "nominal": { "value": 48, "unit": "GB" }, "policy": "p" })), vec!["usable-policy"]),
            (
                with("memory", json!({ "nominal": { "value": 48, "unit": "GB" }, "usable": { "value": 49, "unit": "GB" }, "policy": "p" })),
                vec!["capacity-order"],
            ),
            (
                with("memory", json!({ "nominal": { "value": 48, "unit": "GB" }, "reported": { "value": 24564, "unit": "GiB" } })),
                vec!["device-shape"],
            ),
            (
                with("memory", json!({ "nominal": { "value": 48, "unit": "GB" }, "reported": { "value": 4000, "unit": "MiB" } })),
                vec!["capacity-order"],
            ),
            (with("memory", json!({ "reported": { "value": 1e32, "unit": "MiB" } })), vec!["invalid-capacity"]),
            (with("memory", json!({ "reported": { "value": 0, "unit": "MiB" } })), vec!["invalid-capacity"]),
            (with("backend", json!(1)), vec!["device-shape"]),
            (with("supported_dtypes", json!("fp32")), vec!["device-shape"]),
            (with("supported_dtypes", json!([])), vec!["device-shape"]),
            (with("supported_dtypes", json!(["fp32", 8])), vec!["device-shape"]),
            (with("supported_dtypes", json!(["fp64"])), vec!["unknown-dtype"]),
            (with("compute_capability", json!("sm_90")), vec!["device-shape"]),
            (with("compute_capability", json!(9.0)), vec!["device-shape"]),
            (with("gpu_count", json!(0)), vec!["device-shape"]),
            (with("partitions", json!({})), vec!["device-shape"]),
            (with("partitions", json!([{ "memory": { "value": 4, "unit": "GB" } }])), vec!["device-shape"]),
            (with("partitions", json!([{ "id": "a", "memory": { "value": 400, "unit": "GB" } }])), vec!["capacity-order"]),
            (with("partitions", json!([{ "id": "a" }, { "id": "a" }])), vec!["capacity-order"]),
            (
                json!({ "custom": true, "host_memory": { "value": 64, "unit": "GB" }, "memory": { "type": "unified" } }),
                vec!["unified-host-memory"],
            ),
            (json!({ "x": 1, "backend": 1, "memory": { "type": 1 } }), vec!["unknown-field", "not-custom", "device-shape", "device-shape"]),
        ] {
            assert_eq!(codes(custom_from_json(&value)), expected, "{value}");
        }
        let errors = custom_from_json(&with("memroy", json!({}))).expect_err("unknown field");
        assert!(errors[0].message.ends_with("did you mean `memory`?"), "{}", errors[0]);
    }

    #[test]
    fn flags_describe_a_device() {
        let device = from_flags(24.0, None, None, None).expect("believable");
        assert_eq!((device.nominal, device.memory_type), (Some(24 << 30), Some(MemoryType::Dedicated)));
        assert_eq!((device.host_memory, &device.backend), (None, &BackendName::Known(Backend::Cuda)));
        assert_eq!(device.notes.len(), 3);
        assert_eq!(storage_supported(&device, Dtype::Bf16).0, Supported::Assumed);
        assert_eq!(storage_supported(&device, Dtype::Fp8).0, Supported::Unknown);

        let device = from_flags(7.5, Some(31.25), Some("rocm"), Some("fp16, fp8,fp16")).expect("believable");
        assert_eq!((device.nominal, device.host_memory), (Some(15 << 29), Some(33_554_432_000)));
        assert_eq!(device.supported_dtypes, Some(vec![Dtype::Fp16, Dtype::Fp8]));
        assert_eq!((device.backend, device.notes.len()), (BackendName::Known(Backend::Rocm), 1));

        assert_eq!(from_flags(8.0, None, Some("vulkan"), None).map(|d| d.backend), Ok(BackendName::Other("vulkan".into())));
        for (vram, ram, dtypes, expected) in [
            (0.0, None, None, vec!["invalid-capacity"]),
            (f64::NAN, Some(-1.0), Some("fp9,"), vec!["invalid-capacity", "invalid-capacity", "unknown-dtype", "unknown-dtype"]),
            (f64::INFINITY, None, None, vec!["invalid-capacity"]),
            (1e32, Some(f64::NEG_INFINITY), None, vec!["invalid-capacity", "invalid-capacity"]),
            (1_000_000.5, None, None, vec!["invalid-capacity"]),
        ] {
            assert_eq!(codes(from_flags(vram, ram, None, dtypes)), expected, "{vram}");
        }
    }

    #[test]
    fn capacities_become_whole_bytes() {
        for (value, bytes) in [(1.0, 1 << 30), (0.001, 1_073_742), (0.5, 1 << 29), (1e6, MAX_CAPACITY)] {
            assert_eq!(gib_to_bytes("x", value), Ok(bytes));
        }
        assert_eq!(gb_to_bytes("x", 10.0), Ok(10_000_000_000));
        for value in [0.0, -0.0, 0.000_9, -1.0, 1e32, f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1_000_001.0] {
            let error = gib_to_bytes("`--vram-gib`", value).expect_err("refused");
            assert_eq!(error.code, "invalid-capacity");
            assert!(error.message.len() < 100, "{error}");
        }
    }

    #[test]
    fn formats_are_never_refused_and_never_taken_for_granted() {
        let device = |dtypes: Option<&str>| from_flags(8.0, None, None, dtypes).expect("believable");
        for (list, dtype, supported, code) in [
            (Some("fp32,fp16"), Dtype::Fp16, Supported::Yes, None),
            (Some("fp32,fp16"), Dtype::Bf16, Supported::Unknown, Some("format-not-listed")),
            (Some("fp32,fp16"), Dtype::Nvfp4, Supported::Unknown, Some("format-not-listed")),
            (None, Dtype::Fp32, Supported::Assumed, Some("format-assumed")),
            (None, Dtype::Fp8, Supported::Unknown, Some("format-unknown")),
            (None, Dtype::Int8, Supported::Unknown, Some("format-unknown")),
            (None, Dtype::Nvfp4, Supported::Unknown, Some("format-unknown")),
        ] {
            let (found, reason) = storage_supported(&device(list), dtype);
            assert_eq!((found, reason.map(|reason| reason.code)), (supported, code.map(str::to_owned)), "{list:?} {dtype:?}");
        }
    }

    #[test]
    fn architectures_are_read() {
        for (version, name) in [("9.0", Some("90")), ("12.1", Some("121")), ("8.9", Some("89"))] {
            assert_eq!(architecture(version).as_deref(), name);
        }
        for version in ["", "9", "9.", ".0", "09.0", "9.00", "123.0", "9.x", "-9.0"] {
            assert_eq!(architecture(version), None, "{version}");
        }
    }
}
