//! What local safetensors files hold: names, shapes and sizes from their headers; tensor data is never read.
//!
//! The reader is our own, on `serde_json`: the `safetensors` crate refuses tensors that share a range of bytes,
//! which is how tied weights are stored and what a parameter count has to see. Files are taken for hostile:
//! nothing is allocated by a length that the file merely claims, and all arithmetic is checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    fs::{self, File},
    io::{self, Read},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use fv_spec::{authored::Component, units::Count};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, MapAccess, Visitor},
};

/// The largest header or index that is read, in bytes; the limit of the safetensors format.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

const WEIGHTS: &str = ".safetensors";
const INDEX: &str = ".safetensors.index.json";
/// In the name of every index, variants such as `model.safetensors.index.fp16.json` included.
const INDEX_MARK: &str = ".safetensors.index.";

/// Why a checkpoint could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The file system refused.
    #[error("{file}: {source}")]
    Io {
        /// The file or folder.
        file: String,
        /// What it said.
        source: io::Error,
    },
    /// A file or folder is not what it should be.
    #[error("{file}: found {found}; allowed: {allowed}")]
    File {
        /// The file or folder.
        file: String,
        /// What is there.
        found: String,
        /// What may be there.
        allowed: String,
    },
    /// The file is shorter than it says.
    #[error("{file}: the file ends early: {announced} bytes of {part} announced, {present} present; download it again")]
    Cut {
        /// The file.
        file: String,
        /// The header or the data.
        part: &'static str,
        /// The bytes that it should have.
        announced: u64,
        /// The bytes that it has.
        present: u64,
    },
    /// One tensor is not what it should be.
    #[error("{file}: tensor `{tensor}`: found {found}; allowed: {allowed}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is there.
        found: String,
        /// What may be there.
        allowed: String,
    },
}

/// What a checkpoint holds. Elements, parameters and bytes of shared storage count once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The files whose headers were read.
    pub files: Vec<String>,
    /// Shards of the same set that were not read; with any, there is no parameter count.
    pub missing_shards: Vec<String>,
    /// Tensors that the index assigns to a shard that does not hold them.
    pub missing_tensors: Vec<Placed>,
    /// Tensors in a shard to which the index does not assign them.
    pub unmapped_tensors: Vec<Placed>,
    /// Names of tensors.
    pub tensors: u64,
    /// Elements of floating and complex tensors; none unless every shard was read and agrees with the index.
    pub parameter_count: Option<u64>,
    /// Elements of integer, boolean and scale-only storage, which are no parameters one by one.
    pub packed_elements: u64,
    /// Bytes of tensor data.
    pub stored_bytes: u64,
    /// The same by storage type.
    pub by_dtype: Vec<DtypeTotal>,
    /// Parameters by the first part of the name.
    pub modules: Vec<Module>,
    /// Lists of numbered blocks, the largest first.
    pub blocks: Vec<BlockList>,
    /// Names that share storage.
    pub shared: Vec<Shared>,
    /// What a reader of the numbers has to know.
    pub notes: Vec<String>,
}

/// A tensor and the shard in question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The tensor.
    pub tensor: String,
    /// The shard.
    pub file: String,
}

/// Totals of one storage type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DtypeTotal {
    /// The type as the format spells it.
    pub dtype: String,
    /// Names of tensors.
    pub tensors: u64,
    /// Elements.
    pub elements: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A top-level module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Module {
    /// The first part of its tensors' names.
    pub name: String,
    /// Its parameters.
    pub parameters: u64,
}

/// Blocks named `prefix.0.`, `prefix.1.` and so on without a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockList {
    /// What precedes the number, such as `blocks.`.
    pub prefix: String,
    /// Number of blocks.
    pub count: u64,
    /// Parameters of all of them.
    pub parameters: u64,
    /// Parameters of each block, when alike.
    pub parameters_per_block: Option<u64>,
    /// Blocks of equal size, in order of their first block.
    pub groups: Vec<AlikeBlocks>,
}

/// Blocks of one list that have the same number of parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlikeBlocks {
    /// The number of the first of them.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// Parameters of each.
    pub parameters_per_block: u64,
}

/// Names that share one range of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// The file.
    pub file: String,
    /// The names; the first is the one that is counted.
    pub tensors: Vec<String>,
    /// The bytes that they share.
    pub bytes: u64,
}

/// A figure of the catalog that the checkpoint does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field of the component.
    pub field: String,
    /// What the catalog says.
    pub catalog: String,
    /// What the checkpoint holds.
    pub found: String,
}

/// Reads the headers of `path`: a `.safetensors` file, an index, or a folder that holds one set of weights.
pub fn inspect(path: &Path) -> Result<Report, InspectError> {
    let set = find(path)?;
    let parts: Vec<Part> = set.files.iter().map(|file| read_file(file)).collect::<Result<_, _>>()?;
    report(parts, set)
}

/// The files of one checkpoint.
#[derive(Default)]
struct Set {
    files: Vec<PathBuf>,
    missing: Vec<String>,
    weight_map: Option<BTreeMap<String, String>>,
    notes: Vec<String>,
}

fn find(path: &Path) -> Result<Set, InspectError> {
    let name = file_name(path);
    if fs::metadata(path).map_err(io_error(path))?.is_dir() {
        find_in_folder(path)
    } else if name.contains(INDEX_MARK) && path.extension() == Some("json".as_ref()) {
        find_by_index(path)
    } else if name.ends_with(WEIGHTS) {
        Ok(Set { files: vec![path.to_owned()], missing: absent_siblings(&[name]), ..Set::default() })
    } else {
        Err(file_error(path, "another kind of file", "*.safetensors, *.safetensors.index.json, or a folder with one of them"))
    }
}

fn find_in_folder(folder: &Path) -> Result<Set, InspectError> {
    let entries: Vec<PathBuf> =
        fs::read_dir(folder).and_then(|dir| dir.map(|entry| Ok(entry?.path())).collect()).map_err(io_error(folder))?;
    let ending = |suffix: &str| {
        let mut found: Vec<PathBuf> = entries.iter().filter(|path| file_name(path).ends_with(suffix)).cloned().collect();
        found.sort();
        found
    };
    let (indexes, weights) = (ending(INDEX), ending(WEIGHTS));
    if let [index] = indexes.as_slice() {
        let mut set = find_by_index(index)?;
        let others: Vec<String> = weights.iter().filter(|path| !set.files.contains(path)).map(|path| file_name(path)).collect();
        if !others.is_empty() {
            set.notes.push(format!("not in {}, and not read: {}", file_name(index), joined(&others)));
        }
        return Ok(set);
    }
    let names: Vec<String> = weights.iter().map(|path| file_name(path)).collect();
    let sets: BTreeSet<String> = names.iter().map(|name| shard_set(name)).collect();
    let several = |what: &[String]| Err(file_error(folder, &joined(what), "one index or one set of weights; name the file instead"));
    match (indexes.len(), sets.len()) {
        (2.., _) => several(&indexes.iter().map(|path| file_name(path)).collect::<Vec<_>>()),
        (_, 0) => Err(file_error(folder, "no weights", "one *.safetensors.index.json or one set of *.safetensors files")),
        (_, 1) => Ok(Set { missing: absent_siblings(&names), files: weights, ..Set::default() }),
        _ => several(&sets.into_iter().collect::<Vec<_>>()),
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: Unique<String>,
}

fn find_by_index(path: &Path) -> Result<Set, InspectError> {
    let (file, len) = open(path)?;
    if len > MAX_HEADER_BYTES {
        return Err(file_error(path, &format!("{len} bytes"), &format!("at most {MAX_HEADER_BYTES} bytes")));
    }
    let mut text = Vec::new();
    file.take(MAX_HEADER_BYTES).read_to_end(&mut text).map_err(io_error(path))?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|error| file_error(path, &shown(&error.to_string()), "a JSON object whose `weight_map` names the shard of each tensor"))?;
    let weight_map = index.weight_map.0;
    let shards: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
    if shards.is_empty() {
        return Err(file_error(path, "an empty `weight_map`", "at least one tensor"));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut set = Set::default();
    for shard in shards {
        // An index may not point elsewhere: only names of its own folder.
        if !shard.ends_with(WEIGHTS) || Path::new(shard).file_name() != Some(shard.as_ref()) {
            return Err(file_error(path, &format!("the shard `{}`", shown(shard)), "names of *.safetensors files in the index's folder"));
        }
        let file = folder.join(shard);
        match fs::metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => set.missing.push(shard.to_owned()),
            _ => set.files.push(file),
        }
    }
    set.weight_map = Some(weight_map);
    Ok(set)
}

/// `name-00002-of-00003.safetensors` as (`name`, `00002`, `00003`).
fn shard_parts(name: &str) -> Option<(&str, &str, &str)> {
    let (front, total) = name.strip_suffix(WEIGHTS)?.rsplit_once("-of-")?;
    let (prefix, number) = front.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(number) && digits(total)).then_some((prefix, number, total))
}

/// The name of the set that a file belongs to.
fn shard_set(name: &str) -> String {
    shard_parts(name).map_or_else(|| name.to_owned(), |(prefix, _, total)| format!("{prefix}-*-of-{total}{WEIGHTS}"))
}

/// The other shards of the set whose files are `names`.
fn absent_siblings(names: &[String]) -> Vec<String> {
    let held: BTreeSet<&String> = names.iter().collect();
    let Some((prefix, _, total)) = names.first().and_then(|name| shard_parts(name)) else { return Vec::new() };
    let count: u32 = total.parse().unwrap_or(0);
    (1..=count).map(|number| format!("{prefix}-{number:05}-of-{total}{WEIGHTS}")).filter(|name| !held.contains(name)).collect()
}

/// A storage type.
#[derive(Debug)]
struct Dtype {
    name: &'static str,
    bits: u8,
    /// Whether an element is a parameter. `F8_E8M0` holds powers of two only: scales of blocks.
    parameters: bool,
}

const fn dtype(name: &'static str, bits: u8, parameters: bool) -> Dtype {
    Dtype { name, bits, parameters }
}

static DTYPES: [Dtype; 22] = [
    dtype("C64", 64, true),
    dtype("F64", 64, true),
    dtype("F32", 32, true),
    dtype("F16", 16, true),
    dtype("BF16", 16, true),
    dtype("F8_E4M3", 8, true),
    dtype("F8_E5M2", 8, true),
    dtype("F8_E4M3FNUZ", 8, true),
    dtype("F8_E5M2FNUZ", 8, true),
    dtype("F6_E2M3", 6, true),
    dtype("F6_E3M2", 6, true),
    dtype("F4", 4, true),
    dtype("F8_E8M0", 8, false),
    dtype("I64", 64, false),
    dtype("I32", 32, false),
    dtype("I16", 16, false),
    dtype("I8", 8, false),
    dtype("U64", 64, false),
    dtype("U32", 32, false),
    dtype("U16", 16, false),
    dtype("U8", 8, false),
    dtype("BOOL", 8, false),
];

/// A JSON object whose names must not repeat; `__metadata__`, a map of strings, is left out.
struct Unique<T>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = BTreeMap<String, T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object by tensor name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut entries, mut metadata) = (BTreeMap::new(), None);
                while let Some(name) = map.next_key::<String>()? {
                    let label = shown(&name);
                    let repeated = if name == "__metadata__" {
                        metadata.replace(map.next_value::<BTreeMap<String, String>>()?).is_some()
                    } else {
                        let entry = map.next_value().map_err(|error| A::Error::custom(format!("tensor `{label}`: {error}")))?;
                        entries.insert(name, entry).is_some()
                    };
                    if repeated {
                        return Err(A::Error::custom(format!("tensor `{label}`: the name is used twice, allowed once")));
                    }
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Names(PhantomData)).map(Self)
    }
}

/// A size or an offset.
#[derive(Clone, Copy)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0 to 2^64 - 1")
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Size, E> {
                Ok(Size(value))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Size, E> {
                Err(E::custom(format!("{value} is negative; sizes and offsets are 0 or more")))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Size, E> {
                Err(E::custom(format!("{value} is no whole number below 2^64, as sizes and offsets are")))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// A tensor as the header states it.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<Size>,
    data_offsets: (Size, Size),
}

/// A tensor whose statement holds.
#[derive(Debug)]
struct Tensor {
    name: String,
    dtype: &'static Dtype,
    elements: u64,
    begin: u64,
    end: u64,
    /// Another name for bytes that are counted already.
    alias: bool,
}

impl Tensor {
    fn bytes(&self) -> u64 {
        if self.alias { 0 } else { self.end - self.begin }
    }

    fn elements(&self) -> u64 {
        if self.alias { 0 } else { self.elements }
    }

    fn parameters(&self) -> u64 {
        if self.dtype.parameters { self.elements() } else { 0 }
    }
}

/// One file.
#[derive(Debug)]
struct Part {
    file: String,
    tensors: Vec<Tensor>,
    shared: Vec<Shared>,
    unused_bytes: u64,
}

fn read_file(path: &Path) -> Result<Part, InspectError> {
    let (file, len) = open(path)?;
    read_part(file, len, path)
}

/// A regular file and its length; anything else could block or never end.
fn open(path: &Path) -> Result<(File, u64), InspectError> {
    let metadata = fs::metadata(path).map_err(io_error(path))?;
    if !metadata.is_file() {
        return Err(file_error(path, "no regular file", "a regular file or a link to one"));
    }
    Ok((File::open(path).map_err(io_error(path))?, metadata.len()))
}

fn read_part(mut reader: impl Read, len: u64, path: &Path) -> Result<Part, InspectError> {
    let Some(room) = len.checked_sub(8) else {
        return Err(file_error(path, &format!("{len} bytes"), "at least the 8 bytes of the header's length"));
    };
    let mut prefix = [0; 8];
    reader.read_exact(&mut prefix).map_err(io_error(path))?;
    let header_len = u64::from_le_bytes(prefix);
    if header_len > MAX_HEADER_BYTES {
        return Err(file_error(path, &format!("a header of {header_len} bytes"), &format!("at most {MAX_HEADER_BYTES} bytes")));
    }
    let cut = |part, announced, present| Err(InspectError::Cut { file: path.display().to_string(), part, announced, present });
    if header_len > room {
        return cut("header", header_len, room);
    }
    let mut header = Vec::new();
    reader.take(header_len).read_to_end(&mut header).map_err(io_error(path))?;
    let entries: Unique<Entry> = serde_json::from_slice(&header).map_err(|error| {
        let allowed = "a JSON object with `dtype`, `shape` and two `data_offsets` for each tensor, `__metadata__` with strings";
        file_error(path, &format!("a header that is wrong: {}", shown(&error.to_string())), allowed)
    })?;
    let data_len = room - header_len;
    let mut tensors = entries.0.into_iter().map(|(name, entry)| check(name, &entry, path)).collect::<Result<Vec<_>, _>>()?;
    let announced = tensors.iter().map(|tensor| tensor.end).max().unwrap_or(0);
    if announced > data_len {
        return cut("data", announced, data_len);
    }
    let shared = share(&mut tensors, path)?;
    let used = tensors.iter().map(Tensor::bytes).fold(0, u64::saturating_add);
    Ok(Part { file: path.display().to_string(), tensors, shared, unused_bytes: data_len.saturating_sub(used) })
}

fn check(name: String, entry: &Entry, path: &Path) -> Result<Tensor, InspectError> {
    let wrong = |found: String, allowed: String| Err(tensor_error(path, &name, found, allowed));
    let Some(dtype) = DTYPES.iter().find(|dtype| dtype.name == entry.dtype) else {
        let known: Vec<&str> = DTYPES.iter().map(|dtype| dtype.name).collect();
        return wrong(format!("the dtype `{}`", shown(&entry.dtype)), known.join(", "));
    };
    let (Size(begin), Size(end)) = entry.data_offsets;
    if begin > end {
        return wrong(format!("data_offsets [{begin}, {end}]"), "the offset of the first byte, then that behind the last".to_owned());
    }
    let shape = || shown(&format!("{:?}", entry.shape.iter().take(16).map(|size| size.0).collect::<Vec<_>>()));
    let Some(elements) = entry.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(size.0)) else {
        return wrong(format!("the shape {}", shape()), "fewer than 2^64 elements".to_owned());
    };
    let bits = u128::from(elements) * u128::from(dtype.bits);
    if bits != u128::from(end - begin) * 8 {
        let found = format!("{} bytes for {} {}", end - begin, dtype.name, shape());
        let whole = bits.is_multiple_of(8);
        return wrong(
            found,
            if whole { format!("{} bytes", bits / 8) } else { format!("a shape that fills whole bytes, not {bits} bits") },
        );
    }
    Ok(Tensor { name, dtype, elements, begin, end, alias: false })
}

/// Marks names of bytes that another name has already; ranges that overlap in part are an error.
fn share(tensors: &mut [Tensor], path: &Path) -> Result<Vec<Shared>, InspectError> {
    let mut order: Vec<&mut Tensor> = tensors.iter_mut().filter(|tensor| tensor.begin < tensor.end).collect();
    order.sort_by(|a, b| (a.begin, a.end, &a.name).cmp(&(b.begin, b.end, &b.name)));
    let mut shared: Vec<Shared> = Vec::new();
    let mut owner: Option<&Tensor> = None;
    let mut open = false;
    for tensor in order {
        let Some(first) = owner.filter(|first| tensor.begin < first.end) else {
            (owner, open) = (Some(&*tensor), false);
            continue;
        };
        let same_range = (tensor.begin, tensor.end) == (first.begin, first.end);
        if !same_range || tensor.dtype.name != first.dtype.name {
            let range = |t: &Tensor| format!("{} at [{}, {}]", t.dtype.name, t.begin, t.end);
            let found = format!("{}, which meets `{}`, {}", range(tensor), shown(&first.name), range(first));
            return Err(tensor_error(path, &tensor.name, found, "ranges apart, or the same range and dtype".to_owned()));
        }
        if !open {
            let bytes = first.end - first.begin;
            shared.push(Shared { file: file_name(path), tensors: vec![first.name.clone()], bytes });
            open = true;
        }
        if let Some(group) = shared.last_mut() {
            group.tensors.push(tensor.name.clone());
        }
        tensor.alias = true;
    }
    Ok(shared)
}

fn report(parts: Vec<Part>, set: Set) -> Result<Report, InspectError> {
    let Set { missing, weight_map, mut notes, .. } = set;
    let (missing_tensors, unmapped_tensors) = match &weight_map {
        Some(map) => against_index(map, &parts, &missing),
        None => (Vec::new(), Vec::new()),
    };
    if weight_map.is_none() {
        names_once(&parts)?;
    }
    let tensors: Vec<&Tensor> = parts.iter().flat_map(|part| &part.tensors).collect();
    // Sums saturate: a sparse file may claim any size.
    let sum = |of: &dyn Fn(&Tensor) -> u64| tensors.iter().map(|tensor| of(tensor)).fold(0, u64::saturating_add);
    let parameters = sum(&Tensor::parameters);
    let packed_elements = sum(&|tensor| tensor.elements() - tensor.parameters());
    let complete = missing.is_empty() && missing_tensors.is_empty() && unmapped_tensors.is_empty();
    if !complete {
        notes
            .push("shards or tensors are missing, or not as the index says: no parameter count; other sums cover what was read".to_owned());
    }
    if packed_elements > 0 {
        notes.push(format!(
            "{} elements are integers, booleans or block scales: packed or quantised storage is not a parameter count",
            grouped(packed_elements)
        ));
    }
    let scales = sum(&|tensor| if tensor.name.contains("scale") { tensor.parameters() } else { 0 });
    if scales > 0 && tensors.iter().any(|tensor| tensor.dtype.bits <= 8) {
        notes.push(format!(
            "{} counted elements are in tensors called `scale`; scales of quantised weights are not parameters",
            grouped(scales)
        ));
    }
    for part in parts.iter().filter(|part| part.unused_bytes > 0) {
        notes.push(format!("{}: {} bytes of data belong to no tensor", part.file, grouped(part.unused_bytes)));
    }
    Ok(Report {
        missing_shards: missing,
        missing_tensors,
        unmapped_tensors,
        tensors: tensors.len() as u64,
        parameter_count: complete.then_some(parameters),
        packed_elements,
        stored_bytes: sum(&Tensor::bytes),
        by_dtype: dtype_totals(&tensors),
        modules: modules(&tensors),
        blocks: block_lists(&tensors, parameters),
        notes,
        files: parts.iter().map(|part| part.file.clone()).collect(),
        shared: parts.into_iter().flat_map(|part| part.shared).collect(),
    })
}

/// Tensors that the index misplaces, and tensors that it does not place where they are.
fn against_index(map: &BTreeMap<String, String>, parts: &[Part], missing: &[String]) -> (Vec<Placed>, Vec<Placed>) {
    let placed = |tensor: &str, file: &str| Placed { tensor: tensor.to_owned(), file: file.to_owned() };
    let names: Vec<String> = parts.iter().map(|part| file_name(Path::new(&part.file))).collect();
    let missing: BTreeSet<&String> = missing.iter().collect();
    let held: BTreeSet<(&str, &str)> = parts
        .iter()
        .zip(&names)
        .flat_map(|(part, file)| part.tensors.iter().map(move |tensor| (tensor.name.as_str(), file.as_str())))
        .collect();
    let absent = map
        .iter()
        .filter(|(tensor, file)| !missing.contains(*file) && !held.contains(&(tensor.as_str(), file.as_str())))
        .map(|(tensor, file)| placed(tensor, file));
    let unmapped = held.iter().filter(|(tensor, file)| map.get(*tensor).is_none_or(|mapped| mapped != file));
    (absent.collect(), unmapped.map(|(tensor, file)| placed(tensor, file)).collect())
}

fn names_once(parts: &[Part]) -> Result<(), InspectError> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for part in parts {
        for tensor in &part.tensors {
            if let Some(other) = seen.insert(&tensor.name, &part.file) {
                let found = format!("the same name in {other}");
                return Err(tensor_error(Path::new(&part.file), &tensor.name, found, "each name once in a set of shards".to_owned()));
            }
        }
    }
    Ok(())
}

fn dtype_totals(tensors: &[&Tensor]) -> Vec<DtypeTotal> {
    let total = |dtype: &Dtype| {
        let mut total = DtypeTotal { dtype: dtype.name.to_owned(), tensors: 0, elements: 0, bytes: 0 };
        for tensor in tensors.iter().filter(|tensor| tensor.dtype.name == dtype.name) {
            total.tensors += 1;
            total.elements = total.elements.saturating_add(tensor.elements());
            total.bytes = total.bytes.saturating_add(tensor.bytes());
        }
        total
    };
    DTYPES.iter().map(total).filter(|total| total.tensors > 0).collect()
}

fn modules(tensors: &[&Tensor]) -> Vec<Module> {
    let mut modules: BTreeMap<&str, u64> = BTreeMap::new();
    for tensor in tensors {
        let parameters = modules.entry(tensor.name.split('.').next().unwrap_or_default()).or_default();
        *parameters = parameters.saturating_add(tensor.parameters());
    }
    modules.into_iter().map(|(name, parameters)| Module { name: name.to_owned(), parameters }).collect()
}

/// Gapless lists of two blocks or more that hold at least 1 % of all parameters; smaller ones are mere layers.
fn block_lists(tensors: &[&Tensor], all: u64) -> Vec<BlockList> {
    let mut lists: BTreeMap<&str, BTreeMap<u64, u64>> = BTreeMap::new();
    for tensor in tensors {
        if let Some((prefix, number)) = block_of(&tensor.name) {
            let parameters = lists.entry(prefix).or_default().entry(number).or_default();
            *parameters = parameters.saturating_add(tensor.parameters());
        }
    }
    let gapless = |blocks: &BTreeMap<u64, u64>| blocks.len() >= 2 && blocks.keys().copied().eq(0..blocks.len() as u64);
    let mut lists: Vec<BlockList> = lists
        .into_iter()
        .filter(|(_, blocks)| gapless(blocks))
        .map(|(prefix, blocks)| block_list(prefix, &blocks))
        .filter(|list| list.parameters > 0 && list.parameters >= all / 100)
        .collect();
    lists.sort_by(|a, b| b.parameters.cmp(&a.parameters).then_with(|| a.prefix.cmp(&b.prefix)));
    lists
}

fn block_list(prefix: &str, blocks: &BTreeMap<u64, u64>) -> BlockList {
    // By size; the smallest number of each size puts the groups in order.
    let mut sizes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (number, parameters) in blocks {
        sizes.entry(*parameters).or_insert((*number, 0)).1 += 1;
    }
    let mut groups: Vec<AlikeBlocks> =
        sizes.into_iter().map(|(parameters_per_block, (first, count))| AlikeBlocks { first, count, parameters_per_block }).collect();
    groups.sort_by_key(|group| group.first);
    BlockList {
        prefix: prefix.to_owned(),
        count: blocks.len() as u64,
        parameters: blocks.values().copied().fold(0, u64::saturating_add),
        parameters_per_block: if let [all] = groups.as_slice() { Some(all.parameters_per_block) } else { None },
        groups,
    }
}

/// `encoder.block.3.layer.0.weight` as (`encoder.block.`, 3): the outermost number decides.
fn block_of(name: &str) -> Option<(&str, u64)> {
    let mut start = 0;
    for part in name.split('.') {
        let end = start + part.len();
        let is_number = (1..=6).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && start > 0 && end < name.len() {
            return Some((name.get(..start)?, part.parse().ok()?));
        }
        start = end + 1;
    }
    None
}

/// What an entry for the files at `path` would be called: the name of the file or folder, without endings and shard numbers.
pub fn draft_name(path: &Path) -> String {
    let name = file_name(path);
    if let Some((prefix, _, _)) = shard_parts(&name) {
        return prefix.to_owned();
    }
    name.split_once(INDEX_MARK).map(|(front, _)| front).or_else(|| name.strip_suffix(WEIGHTS)).unwrap_or(&name).to_owned()
}

/// A catalog entry for review, in the authored form, under an id made of `name`.
///
/// # Errors
/// Why nothing is drafted.
pub fn candidate_yaml(report: &Report, name: &str) -> Result<String, &'static str> {
    if report.tensors == 0 && report.missing_shards.is_empty() {
        return Err("the files hold no tensors");
    }
    let Some(parameters) = report.parameter_count else {
        return Err("shards or tensors are missing, or not where the index puts them, so that there is no parameter count");
    };
    let Some(parameters) = Count::new(parameters) else {
        return Err(if parameters == 0 {
            "no element of the files counts as a parameter"
        } else {
            "the parameters are more than a catalog may state"
        });
    };
    let id = id_text(name, "component");
    let name = if name.trim().is_empty() { &id } else { name };
    let mut out = format!("{}:\n  name: {}\n", yaml_text(&id), yaml_text(name));
    for note in &report.notes {
        let _ = writeln!(out, "  # {}", shown(note));
    }
    let _ = writeln!(out, "  parameter_count: {parameters}");
    // A list without two blocks alike, such as the stages of a VAE, says nothing about streaming block by block.
    let lists: Vec<&BlockList> = report.blocks.iter().filter(|list| (list.groups.len() as u64) < list.count).collect();
    match lists.as_slice() {
        [] => {}
        [BlockList { count, parameters_per_block: Some(parameters), .. }] => {
            let _ = writeln!(out, "  block_count: {}\n  block_parameter_count: {}", grouped(*count), grouped(*parameters));
        }
        lists => out.push_str(&block_groups(lists)),
    }
    out.push_str("  # Before this entry is used, add each source with its url and the day it was checked.\n  sources: []\n");
    Ok(out)
}

fn block_groups(lists: &[&BlockList]) -> String {
    let mut out = "  block_groups:\n".to_owned();
    let mut names = BTreeSet::new();
    for list in lists {
        for group in list.groups.iter().filter(|group| group.parameters_per_block > 0) {
            let base = id_text(&list.prefix, "blocks");
            let mut name = base.clone();
            while !names.insert(name.clone()) {
                name = format!("{base}-{}", names.len() + 1);
            }
            let (count, parameters) = (grouped(group.count), grouped(group.parameters_per_block));
            let _ = writeln!(out, "    - name: {}\n      count: {count}\n      parameter_count: {parameters}", yaml_text(&name));
        }
    }
    out
}

/// Where the checkpoint contradicts the counts of a catalog entry.
pub fn against(report: &Report, component: &Component) -> Vec<Difference> {
    let difference = |field: &str, catalog: String, found: String| Difference { field: field.to_owned(), catalog, found };
    let mut total = component.parameter_count.to_string();
    if let Some(subset) = &component.loaded_subset {
        let _ = write!(total, " (loaded subset: {subset})");
    }
    let Some(parameters) = report.parameter_count else {
        return vec![difference("parameter_count", total, "no count: the checkpoint is incomplete".to_owned())];
    };
    let mut differences = Vec::new();
    if parameters != component.parameter_count.get() {
        differences.push(difference("parameter_count", total, grouped(parameters)));
    }
    let mut found: Vec<(u64, u64)> =
        report.blocks.iter().flat_map(|list| &list.groups).map(|group| (group.count, group.parameters_per_block)).collect();
    let mut take = |wanted: (u64, u64)| found.iter().position(|group| *group == wanted).map(|at| found.remove(at)).is_some();
    if let (Some(count), Some(each)) = (component.block_count, component.block_parameter_count)
        && !take((count.get(), each.get()))
    {
        let list = report.blocks.first();
        let none = || "no list of blocks".to_owned();
        let found_count = list.map_or_else(none, |list| grouped(list.count));
        let found_each = list.map_or_else(none, |list| list.parameters_per_block.map_or_else(|| sizes(&list.groups), grouped));
        for (field, catalog, found) in [("block_count", count, found_count), ("block_parameter_count", each, found_each)] {
            if catalog.to_string() != found {
                differences.push(difference(field, catalog.to_string(), found));
            }
        }
    }
    for group in component.block_groups.iter().flatten() {
        if !take((group.count.get(), group.parameter_count.get())) {
            let all: Vec<AlikeBlocks> = report.blocks.iter().flat_map(|list| list.groups.clone()).collect();
            let catalog = format!("{} x {}", group.count, group.parameter_count);
            differences.push(difference(&format!("block_groups.{}", group.name), catalog, sizes(&all)));
        }
    }
    differences
}

/// `20 x 339_831_296, 40 x 141_591_808`.
fn sizes(groups: &[AlikeBlocks]) -> String {
    let texts: Vec<String> =
        groups.iter().map(|group| format!("{} x {}", grouped(group.count), grouped(group.parameters_per_block))).collect();
    if texts.is_empty() { "no list of blocks".to_owned() } else { joined(&texts) }
}

/// The report for people; sums of an incomplete checkpoint say so.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let row = |cells: &[&str]| cells.iter().map(|cell| shown(cell)).collect::<Vec<_>>();
    let parameters = report.parameter_count.map_or_else(|| "unknown".to_owned(), grouped);
    let sum = |label: &str| if report.parameter_count.is_some() { label.to_owned() } else { format!("{label}, read so far") };
    table(
        &mut out,
        &[
            row(&["files", &grouped(report.files.len() as u64)]),
            row(&[&sum("tensors"), &grouped(report.tensors)]),
            row(&["parameters", &parameters]),
            row(&[&sum("packed elements"), &grouped(report.packed_elements)]),
            row(&[&sum("stored bytes"), &grouped(report.stored_bytes)]),
        ],
    );
    let mut dtypes = vec![row(&[&sum("dtype"), "tensors", "elements", "bytes"])];
    dtypes.extend(report.by_dtype.iter().map(|d| row(&[&d.dtype, &grouped(d.tensors), &grouped(d.elements), &grouped(d.bytes)])));
    table(&mut out, &dtypes);
    let mut modules = vec![row(&[&sum("module"), "parameters"])];
    modules.extend(report.modules.iter().map(|module| row(&[&module.name, &grouped(module.parameters)])));
    table(&mut out, &modules);
    let mut blocks = vec![row(&[&sum("blocks"), "first", "count", "parameters each"])];
    for list in &report.blocks {
        let groups = list.groups.iter();
        blocks.extend(groups.map(|g| row(&[&list.prefix, &g.first.to_string(), &grouped(g.count), &grouped(g.parameters_per_block)])));
    }
    table(&mut out, &blocks);
    let placed = |list: &[Placed]| list.iter().map(|placed| format!("{} in {}", placed.tensor, placed.file)).collect::<Vec<_>>();
    lines(&mut out, "files read", &report.files);
    lines(&mut out, "missing shards", &report.missing_shards);
    lines(&mut out, "tensors that their shard does not hold", &placed(&report.missing_tensors));
    lines(&mut out, "tensors where the index does not put them", &placed(&report.unmapped_tensors));
    let shared: Vec<String> = report.shared.iter().map(|s| format!("{} bytes: {}", grouped(s.bytes), joined(&s.tensors))).collect();
    lines(&mut out, "shared storage, counted once", &shared);
    lines(&mut out, "notes", &report.notes);
    out
}

/// Names to the left, numbers to the right; a table of its heading alone is left out.
fn table(out: &mut String, rows: &[Vec<String>]) {
    if rows.len() < 2 {
        return;
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 { write!(out, "{cell:<width$}") } else { write!(out, "  {cell:>width$}") };
        }
        out.push('\n');
    }
}

fn lines(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}:");
    for item in items {
        let _ = writeln!(out, "  {}", shown(item));
    }
}

/// Digits grouped by thousands, as in the catalog.
fn grouped(number: u64) -> String {
    Count::new(number).map_or_else(|| number.to_string(), |count| count.to_string())
}

/// A text of unknown origin for messages: one line, at most 200 characters, no control characters.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String =
        text.chars().take(200).map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { '\u{fffd}' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A few of many names.
fn joined(names: &[String]) -> String {
    let mut text = names.iter().take(8).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    if names.len() > 8 {
        let _ = write!(text, " and {} more", names.len() - 8);
    }
    text
}

/// A YAML scalar that every reader takes for this text.
fn yaml_text(text: &str) -> String {
    let word = !matches!(text, "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n");
    let plain =
        text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if word && plain { text.to_owned() } else { serde_json::Value::from(shown(text)).to_string() }
}

/// `text` as a catalog id: lower-case letters, digits and single separators; `fallback` when nothing is left.
pub(crate) fn id_text(text: &str, fallback: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut id = String::new();
    for c in lower.chars() {
        let ends_in_word = id.ends_with(|last: char| last.is_ascii_alphanumeric());
        match c {
            'a'..='z' | '0'..='9' => id.push(c),
            '.' | '-' if ends_in_word => id.push(c),
            _ if ends_in_word => id.push('_'),
            _ => {}
        }
    }
    let id = id.trim_end_matches(['.', '-', '_']);
    if id.is_empty() { fallback.to_owned() } else { id.to_owned() }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> InspectError {
    move |source| InspectError::Io { file: path.display().to_string(), source }
}

fn file_error(path: &Path, found: &str, allowed: &str) -> InspectError {
    InspectError::File { file: path.display().to_string(), found: found.to_owned(), allowed: allowed.to_owned() }
}

fn tensor_error(path: &Path, tensor: &str, found: String, allowed: String) -> InspectError {
    InspectError::Tensor { file: path.display().to_string(), tensor: shown(tensor), found, allowed }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tempfile::TempDir;

    use super::*;

    type Row<'a> = (&'a str, &'a str, &'a [u64], [u64; 2]);

    fn header(rows: &[Row<'_>]) -> String {
        let entries: Vec<String> = rows
            .iter()
            .map(|(name, dtype, shape, offsets)| format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":{offsets:?}}}"#))
            .collect();
        format!(r#"{{"__metadata__":{{"format":"pt"}},{}}}"#, entries.join(","))
    }

    fn bytes(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    /// F32 vectors of the given lengths, one after the other.
    fn vectors(tensors: &[(&str, u64)]) -> Vec<u8> {
        let mut end = 0;
        let shapes: Vec<[u64; 1]> = tensors.iter().map(|(_, elements)| [*elements]).collect();
        let rows: Vec<Row<'_>> = tensors
            .iter()
            .zip(&shapes)
            .map(|((name, elements), shape)| {
                let begin = end;
                end += elements * 4;
                (*name, "F32", &shape[..], [begin, end])
            })
            .collect();
        bytes(&header(&rows), usize::try_from(end).expect("small"))
    }

    fn folder(files: &[(&str, &[u8])]) -> TempDir {
        let dir = TempDir::new().expect("a temporary folder");
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).expect("written");
        }
        dir
    }

    fn inspect_bytes(bytes: &[u8]) -> Result<Report, String> {
        inspect(&folder(&[("m.safetensors", bytes)]).path().join("m.safetensors")).map_err(|error| error.to_string())
    }

    fn inspect_rows(rows: &[Row<'_>], data: usize) -> Result<Report, String> {
        inspect_bytes(&bytes(&header(rows), data))
    }

    /// Fails with a message that holds every one of `parts`.
    fn refused(result: Result<Report, String>, parts: &[&str]) {
        let message = result.expect_err("refused");
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    }

    fn component(yaml: &str) -> Component {
        let mut map: BTreeMap<String, Component> = serde_yaml::from_str(yaml).expect("a component");
        map.remove("x").expect("the entry x")
    }

    #[test]
    fn one_file() {
        let file = vectors(&[("embed.weight", 10), ("blocks.0.w", 100), ("blocks.1.w", 100), ("head", 3)]);
        let report = inspect_bytes(&file).expect("valid");
        assert_eq!((report.tensors, report.parameter_count, report.packed_elements, report.stored_bytes), (4, Some(213), 0, 852));
        assert_eq!(report.by_dtype, [DtypeTotal { dtype: "F32".into(), tensors: 4, elements: 213, bytes: 852 }]);
        let modules: Vec<_> = report.modules.iter().map(|m| (m.name.as_str(), m.parameters)).collect();
        assert_eq!(modules, [("blocks", 200), ("embed", 10), ("head", 3)]);
        let [list] = report.blocks.as_slice() else { panic!("{:?}", report.blocks) };
        assert_eq!((list.prefix.as_str(), list.count, list.parameters_per_block), ("blocks.", 2, Some(100)));
        assert!(report.notes.is_empty() && report.shared.is_empty(), "{report:?}");
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["by_dtype"][0]["elements"], 213);
    }

    #[test]
    fn shards_by_index() {
        let index = br#"{"metadata":{"total_size":7},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#;
        let (one, two) = (vectors(&[("a", 5)]), vectors(&[("b", 6)]));
        let dir =
            folder(&[("m.safetensors.index.json", index), ("m-1.safetensors", &one), ("m-2.safetensors", &two), ("x.safetensors", &one)]);
        for path in [dir.path().to_owned(), dir.path().join("m.safetensors.index.json")] {
            let report = inspect(&path).expect("valid");
            assert_eq!((report.files.len(), report.parameter_count), (2, Some(11)));
        }
        assert!(inspect(dir.path()).expect("valid").notes.iter().any(|note| note.contains("x.safetensors")));
    }

    #[test]
    fn a_missing_shard_leaves_no_count() {
        let index = br#"{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#;
        let dir = folder(&[("m.safetensors.index.json", index), ("m-1.safetensors", &vectors(&[("a", 5)]))]);
        let report = inspect(dir.path()).expect("valid");
        assert_eq!((report.missing_shards.as_slice(), report.parameter_count), (["m-2.safetensors".to_owned()].as_slice(), None));
        assert!(report.missing_tensors.is_empty());
        assert!(candidate_yaml(&report, "x").expect_err("nothing").starts_with("shards or tensors are missing"));
        let text = render(&report);
        assert!(text.contains("stored bytes, read so far") && text.contains("module, read so far  parameters\n"), "{text}");
        let differences = against(&report, &component("x: {name: X, parameter_count: 5, sources: []}"));
        assert!(differences[0].found.contains("incomplete"), "{differences:?}");
        let numbered =
            folder(&[("m-00001-of-00003.safetensors", &vectors(&[("a", 5)])), ("m-00003-of-00003.safetensors", &vectors(&[("c", 5)]))]);
        let report = inspect(numbered.path()).expect("valid");
        assert_eq!(
            (report.missing_shards.as_slice(), report.parameter_count),
            (["m-00002-of-00003.safetensors".to_owned()].as_slice(), None)
        );
    }

    #[test]
    fn index_and_shards_that_disagree() {
        let index = br#"{"weight_map":{"a":"m.safetensors","gone":"m.safetensors"}}"#;
        let dir = folder(&[("m.safetensors.index.json", index), ("m.safetensors", &vectors(&[("a", 5), ("extra", 1)]))]);
        let report = inspect(dir.path()).expect("valid");
        let placed = |name: &str| vec![Placed { tensor: name.into(), file: "m.safetensors".into() }];
        assert_eq!((report.missing_tensors.clone(), report.unmapped_tensors.clone()), (placed("gone"), placed("extra")));
        assert_eq!(report.parameter_count, None);
        assert!(render(&report).contains("gone in m.safetensors"));
    }

    #[test]
    fn an_index_stays_in_its_folder() {
        for (map, part) in [
            (r#"{"a":"../m.safetensors"}"#, "../m.safetensors"),
            (r#"{"a":"/etc/m.safetensors"}"#, "/etc/m"),
            (r#"{"a":"..safetensors/"}"#, "..safetensors/"),
            (r#"{"a":"passwd"}"#, "passwd"),
            (r#"{"a":"m.safetensors","a":"m.safetensors"}"#, "used twice"),
            ("{}", "empty"),
            ("[]", "expected"),
        ] {
            let dir = folder(&[("m.safetensors.index.json", format!(r#"{{"weight_map":{map}}}"#).as_bytes())]);
            refused(inspect(dir.path()).map_err(|error| error.to_string()), &["m.safetensors.index.json", part, "allowed"]);
        }
    }

    #[test]
    fn tied_weights_count_once() {
        let rows: &[Row<'_>] = &[
            ("lm_head.weight", "F16", &[4, 2], [0, 16]),
            ("embed.weight", "F16", &[4, 2], [0, 16]),
            ("view", "F16", &[8], [0, 16]),
            ("norm", "F16", &[2], [16, 20]),
            ("empty_a", "F16", &[0], [20, 20]),
            ("empty_b", "F16", &[0, 9], [20, 20]),
        ];
        let report = inspect_rows(rows, 20).expect("valid");
        assert_eq!((report.tensors, report.parameter_count, report.stored_bytes), (6, Some(10), 20));
        let [shared] = report.shared.as_slice() else { panic!("{:?}", report.shared) };
        assert_eq!(
            (shared.tensors.as_slice(), shared.bytes),
            (["embed.weight", "lm_head.weight", "view"].map(String::from).as_slice(), 16)
        );
    }

    #[test]
    fn quantised_storage_is_told_apart() {
        let rows: &[Row<'_>] = &[
            ("a.weight", "F8_E4M3", &[4, 4], [0, 16]),
            ("a.weight_scale", "F32", &[1], [16, 20]),
            ("b.weight", "U8", &[8], [20, 28]),
            ("c.weight", "F4", &[3, 2], [28, 31]),
            ("c.scales", "F8_E8M0", &[1], [31, 32]),
            ("d", "F6_E2M3", &[4], [32, 35]),
            ("ids", "I64", &[], [35, 43]),
            ("e", "F8_E4M3FNUZ", &[3], [43, 46]),
            ("f", "F8_E5M2FNUZ", &[2], [46, 48]),
            ("freqs", "C64", &[2], [48, 64]),
        ];
        let report = inspect_rows(rows, 64).expect("valid");
        assert_eq!((report.parameter_count, report.packed_elements), (Some(16 + 1 + 6 + 4 + 3 + 2 + 2), 8 + 1 + 1));
        assert!(report.notes.iter().any(|note| note.contains("not a parameter count")));
        assert!(report.notes.iter().any(|note| note.contains("`scale`")));
        assert!(candidate_yaml(&report, "x").expect("a candidate").contains("# 10 elements"));
    }

    #[test]
    fn tensors_that_do_not_fit() {
        let one = |dtype: &'static str, shape: &'static [u64], offsets| inspect_rows(&[("t", dtype, shape, offsets)], 16);
        refused(one("F32", &[2, 3], [0, 16]), &["m.safetensors", "`t`", "16 bytes for F32 [2, 3]", "24 bytes"]);
        refused(one("F4", &[3], [0, 2]), &["`t`", "not 12 bits"]);
        refused(one("F128", &[1], [0, 16]), &["`t`", "`F128`", "BF16"]);
        refused(
            one("F32", &[8], [0, 32]),
            &["m.safetensors: the file ends early: 32 bytes of data announced, 16 present; download it again"],
        );
        refused(one("F32", &[1], [8, 4]), &["`t`", "[8, 4]"]);
        refused(one("U8", &[1], [u64::MAX, u64::MAX]), &["`t`", "0 bytes for U8 [1]"]);
        refused(one("U8", &[0], [u64::MAX, u64::MAX]), &["ends early: 18446744073709551615 bytes"]);
        refused(one("F64", &[u64::MAX, u64::MAX, 0], [0, 16]), &["`t`", "2^64"]);
        refused(one("F64", &[u64::MAX], [0, 16]), &["`t`", "bytes"]);
        refused(inspect_rows(&[("a", "U8", &[8], [0, 8]), ("b", "U8", &[8], [4, 12])], 12), &["`b`", "[4, 12]", "`a`", "ranges apart"]);
        refused(inspect_rows(&[("a", "U8", &[8], [0, 8]), ("b", "U8", &[2], [2, 4])], 12), &["`b`", "`a`"]);
        refused(inspect_rows(&[("a", "U8", &[8], [0, 8]), ("b", "F32", &[2], [0, 8])], 12), &["`b`", "same range and dtype"]);
        assert!(inspect_rows(&[("a", "U8", &[8], [0, 8])], 12).expect("valid").notes[1].contains("4 bytes of data belong to no tensor"));
    }

    #[test]
    fn headers_that_are_wrong() {
        let header_of = |text: &str| inspect_bytes(&bytes(text, 8));
        refused(header_of("not JSON"), &["m.safetensors", "allowed: a JSON object"]);
        refused(header_of("[]"), &["a JSON object by tensor name"]);
        refused(header_of(""), &["EOF"]);
        refused(header_of(&"[".repeat(100_000)), &["allowed"]);
        refused(header_of(r#"{"t":{"dtype":"U8","shape":[8]}}"#), &["`t`", "missing field `data_offsets`"]);
        let with =
            |shape: &str, offsets: &str| header_of(&format!(r#"{{"t":{{"dtype":"U8","shape":[{shape}],"data_offsets":[{offsets}]}}}}"#));
        refused(with("-8", "0,8"), &["tensor `t`: -8 is negative; sizes and offsets are 0 or more"]);
        refused(with("8", "-8,0"), &["tensor `t`: -8 is negative"]);
        refused(with("1.5", "0,8"), &["tensor `t`: 1.5 is no whole number"]);
        refused(with("18446744073709551616", "0,8"), &["`t`", "no whole number below 2^64"]);
        refused(with(r#""8""#, "0,8"), &["`t`", "a whole number from 0 to 2^64 - 1"]);
        for error in ["-8", "1.5"].map(|shape| with(shape, "0,8").expect_err("refused")) {
            assert!(!error.contains("u64") && !error.contains("invalid"), "{error}");
        }
        refused(header_of(r#"{"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8,9]}}"#), &["`t`"]);
        refused(header_of(r#"{"__metadata__":{"format":1}}"#), &["expected a string"]);
        let twice = r#""t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}"#;
        refused(header_of(&format!("{{{twice},{twice}}}")), &["`t`", "used twice"]);
        refused(inspect_bytes(b"1234567"), &["7 bytes", "at least the 8 bytes"]);
        for (length, words) in [
            (u64::MAX, "a header of 18446744073709551615 bytes; allowed: at most 100000000 bytes"),
            (MAX_HEADER_BYTES + 1, "allowed: at most"),
            (MAX_HEADER_BYTES, "ends early: 100000000 bytes of header announced, 2 present"),
            (3, "the file ends early: 3 bytes of header announced, 2 present; download it again"),
        ] {
            let mut bomb = length.to_le_bytes().to_vec();
            bomb.extend_from_slice(b"{}");
            refused(inspect_bytes(&bomb), &[words]);
        }
        let mut cut = vectors(&[("t", 4)]);
        cut.truncate(cut.len() - 1);
        refused(inspect_bytes(&cut), &["ends early: 16 bytes of data announced, 15 present; download it again"]);
    }

    #[test]
    fn long_and_hidden_names_stay_on_one_short_line() {
        let name = format!(r"\u001b[31m\n{}", "x".repeat(5000));
        let message = inspect_rows(&[(&name, "U8", &[9], [0, 8])], 8).expect_err("refused");
        assert!(message.len() < 700 && !message.contains(['\u{1b}', '\n']), "{message}");
    }

    #[test]
    fn folders_with_no_or_several_sets() {
        let file = vectors(&[("t", 1)]);
        let text = |dir: &TempDir| inspect(dir.path()).map_err(|error| error.to_string());
        refused(text(&folder(&[("readme.md", b"")])), &["no weights", "*.safetensors"]);
        refused(text(&folder(&[("a.safetensors", &file), ("b.safetensors", &file)])), &["a.safetensors, b.safetensors", "one set"]);
        let index = br#"{"weight_map":{}}"#;
        refused(
            text(&folder(&[("a.safetensors.index.json", index), ("b.safetensors.index.json", index)])),
            &["a.safetensors.index.json, b."],
        );
        let shards: &[(&str, &[u8])] = &[("m-00001-of-00002.safetensors", &file), ("m-00002-of-00002.safetensors", &file)];
        refused(text(&folder(shards)), &["m-00002-of-00002", "`t`", "the same name in", "m-00001-of-00002"]);
        let dir = folder(&[("weights.bin", &file)]);
        refused(inspect(&dir.path().join("weights.bin")).map_err(|error| error.to_string()), &["another kind of file"]);
        refused(inspect(&dir.path().join("absent.safetensors")).map_err(|error| error.to_string()), &["absent.safetensors"]);
        fs::create_dir(dir.path().join("d.safetensors")).expect("made");
        refused(text(&dir), &["d.safetensors", "no regular file"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_loops_are_errors() {
        let dir = folder(&[("blob", &vectors(&[("t", 2)]))]);
        std::os::unix::fs::symlink("blob", dir.path().join("m.safetensors")).expect("linked");
        assert_eq!(inspect(dir.path()).expect("valid").parameter_count, Some(2));
        let looped = folder(&[]);
        std::os::unix::fs::symlink("m.safetensors", looped.path().join("m.safetensors")).expect("linked");
        for path in [looped.path().to_owned(), looped.path().join("m.safetensors")] {
            assert!(matches!(inspect(&path), Err(InspectError::Io { .. })));
        }
    }

    #[test]
    fn candidates_are_components() {
        let file = vectors(&[
            ("transformer_blocks.0.w", 50),
            ("transformer_blocks.1.w", 50),
            ("single_transformer_blocks.0.w", 20),
            ("single_transformer_blocks.1.w", 20),
            ("single_transformer_blocks.2.w", 30),
            ("up.0.w", 7),
            ("up.1.w", 8),
            ("text.0.w", 9),
            ("text.2.w", 9),
            ("1.w", 9),
        ]);
        let report = inspect_bytes(&file).expect("valid");
        let prefixes: Vec<&str> = report.blocks.iter().map(|list| list.prefix.as_str()).collect();
        assert_eq!(prefixes, ["transformer_blocks.", "single_transformer_blocks.", "up."]);
        let found = component(&candidate_yaml(&report, "x").expect("a candidate"));
        let groups: Vec<_> =
            found.block_groups.iter().flatten().map(|g| (g.name.as_str(), g.count.get(), g.parameter_count.get())).collect();
        assert_eq!(groups, [("transformer_blocks", 2, 50), ("single_transformer_blocks", 2, 20), ("single_transformer_blocks-3", 1, 30)]);
        assert!(against(&report, &found).is_empty());
        let pair = inspect_bytes(&vectors(&[("encoder.block.0.layer.0.w", 1000), ("encoder.block.1.layer.0.w", 1000)])).expect("valid");
        let yaml = candidate_yaml(&pair, "on").expect("a candidate");
        assert_eq!(
            yaml,
            "\"on\":\n  name: \"on\"\n  parameter_count: 2_000\n  block_count: 2\n  block_parameter_count: 1_000\n  # Before this entry is \
             used, add each source with its url and the day it was checked.\n  sources: []\n"
        );
        for (odd, id, name) in [
            ("1.5", "1.5", "1.5"),
            ("a: b\n- c", "a_b_c", "a: b\u{fffd}- c"),
            ("null", "null", "null"),
            ("é", "component", "é"),
            (" ", "component", "component"),
            ("", "component", "component"),
            ("Wan2.1 (DiT)__fp8.", "wan2.1_dit_fp8", "Wan2.1 (DiT)__fp8."),
        ] {
            let yaml = candidate_yaml(&pair, odd).expect("a candidate");
            let map: BTreeMap<String, Component> = serde_yaml::from_str(&yaml).expect("YAML");
            let found: Vec<_> = map.iter().map(|(id, component)| (id.as_str(), component.name.as_str())).collect();
            assert_eq!(found, [(id, name)], "{yaml}");
        }
    }

    #[test]
    fn names_of_drafts() {
        for (path, name) in [
            ("a/wan2.1", "wan2.1"),
            ("a/model.safetensors", "model"),
            ("a/m.fp16.safetensors", "m.fp16"),
            ("m.safetensors.index.json", "m"),
            ("m.safetensors.index.fp16.json", "m"),
            ("m-00002-of-00003.safetensors", "m"),
            (".", ""),
            ("", ""),
        ] {
            assert_eq!(draft_name(Path::new(path)), name, "{path}");
        }
    }

    #[test]
    fn nothing_is_drafted_without_parameters() {
        let draft = |file: &[u8]| candidate_yaml(&inspect_bytes(file).expect("valid"), "x").expect_err("nothing");
        assert_eq!(draft(&bytes("{}", 0)), "the files hold no tensors");
        assert_eq!(draft(&bytes(&header(&[("i", "I8", &[1], [0, 1])]), 1)), "no element of the files counts as a parameter");
        assert_eq!(draft(&bytes(&header(&[("empty", "F32", &[0], [0, 0])]), 0)), "no element of the files counts as a parameter");
    }

    #[test]
    fn differences_from_the_catalog() {
        let report = inspect_bytes(&vectors(&[("blocks.0.w", 1000), ("blocks.1.w", 1000), ("head", 5)])).expect("valid");
        let found = |rest: &str| -> Vec<(String, String, String)> {
            let differences = against(&report, &component(&format!("x: {{name: X, sources: [], {rest}}}")));
            differences.into_iter().map(|d| (d.field, d.catalog, d.found)).collect()
        };
        let text = |rows: &[[&str; 3]]| rows.iter().map(|[a, b, c]| ((*a).into(), (*b).into(), (*c).into())).collect::<Vec<_>>();
        assert_eq!(found("parameter_count: 2_005, block_count: 2, block_parameter_count: 1_000"), []);
        assert_eq!(found("parameter_count: 2_005"), []);
        assert_eq!(
            found("parameter_count: 2_004, block_count: 3, block_parameter_count: 1_000"),
            text(&[["parameter_count", "2_004", "2_005"], ["block_count", "3", "2"]])
        );
        assert_eq!(
            found(
                "parameter_count: 2_005, block_groups: [{name: a, count: 2, parameter_count: 1_000}, {name: b, count: 1, parameter_count: 7}]"
            ),
            text(&[["block_groups.b", "1 x 7", "2 x 1_000"]])
        );
        let subset = found("parameter_count: 1, loaded_subset: decoder");
        assert_eq!(subset[0].1, "1 (loaded subset: decoder)");
    }

    #[test]
    fn numbers_are_aligned() {
        let text = render(&inspect_bytes(&vectors(&[("blocks.0.w", 1000), ("blocks.1.w", 1000), ("head", 5)])).expect("valid"));
        assert!(text.starts_with("files                1\ntensors              3\nparameters       2_005\n"), "{text}");
        assert!(text.contains("module  parameters\nblocks       2_000\nhead             5\n"), "{text}");
        assert!(text.contains("blocks   first  count  parameters each\nblocks.      0      2            1_000\n"), "{text}");
    }

    #[test]
    fn mutated_headers_never_panic() {
        let rows: &[Row<'_>] = &[
            ("blocks.0.w", "F32", &[2, 2], [0, 16]),
            ("blocks.1.w", "F32", &[2, 2], [16, 32]),
            ("tied", "F32", &[4], [16, 32]),
            ("q", "F4", &[2], [32, 33]),
            ("n", "I64", &[], [33, 41]),
        ];
        let valid = bytes(&header(rows), 41);
        let path = Path::new("m.safetensors");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).expect("small")
        };
        let alphabet = b"0123456789{}[]\":,.-eBFIU\\\xff\0";
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let mut file = valid.clone();
            for _ in 0..=random(3) {
                // The length and the start of the header are hit as often as the rest.
                let at = if random(8) == 0 { random(8) } else { random(file.len().max(1)) };
                match random(6) {
                    0 if at < file.len() => drop(file.remove(at)),
                    1 => file.insert(at.min(file.len()), alphabet[random(alphabet.len())]),
                    2 if random(4) == 0 => file.truncate(at),
                    _ => file.get_mut(at).into_iter().for_each(|byte| *byte = alphabet[random(alphabet.len())]),
                }
            }
            let len = file.len() as u64;
            let result = read_part(Cursor::new(&file), len, path).and_then(|part| report(vec![part], Set::default()));
            if let Ok(report) = result {
                good += 1;
                assert!(report.stored_bytes <= len, "{report:?}");
                assert!(!render(&report).is_empty());
                if let Ok(yaml) = candidate_yaml(&report, "x") {
                    let _ = component(&yaml);
                }
            } else {
                bad += 1;
            }
        }
        assert!(good > 1000 && bad > 1000, "{good} good, {bad} bad");
    }
}
