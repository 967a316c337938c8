//! Where weights come from.

use std::collections::BTreeMap;
use std::io;

use fv_device::reference::storage;
use fv_spec::program::{Element, Group, Order, Role, Tensor};
use rayon::prelude::*;

use super::memory::index;

/// Appended to the name of an eight-bit matrix, it is the name of its scales.
const SCALE: &str = ".scale";

/// A source of weights, in the elements and the order in which a program stores them.
pub trait Weights {
    /// Bytes of a group, from `first_byte` on; what lies between tensors is zero.
    fn read(&self, group: &Group, first_byte: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Random weights, the same for the same name and seed on every machine. They are rounded to `bf16` first, as checkpoints are.
#[derive(Debug, Clone, Default)]
pub struct Synthetic {
    /// Makes all of them different.
    pub seed: u64,
    /// Seeds of components that have their own.
    pub seeds: BTreeMap<Role, u64>,
}

impl Weights for Synthetic {
    fn read(&self, group: &Group, first_byte: u64, into: &mut [u8]) -> io::Result<()> {
        into.fill(0);
        let end = first_byte + into.len() as u64;
        for tensor in &group.tensors {
            let size = tensor.element.bytes();
            let begin = tensor.offset_bytes;
            let (from, to) = (first_byte.max(begin), end.min(begin + count(&tensor.shape) * size));
            if from >= to {
                continue;
            }
            // Whole elements, of which the first and the last may be asked for in part.
            let (first, last) = ((from - begin) / size, (to - begin).div_ceil(size));
            let mut bytes = Vec::new();
            self.elements(group, tensor, first, last, &mut bytes)?;
            let skipped = index(from - (begin + first * size));
            let length = index(to - from);
            into[index(from - first_byte)..][..length].copy_from_slice(&bytes[skipped..skipped + length]);
        }
        Ok(())
    }
}

impl Synthetic {
    /// Made side by side in runs, since each number depends on its place alone.
    fn elements(&self, group: &Group, tensor: &Tensor, first: u64, last: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        let seed = self.seeds.get(&group.component).copied().unwrap_or(self.seed);
        let runs: Vec<(u64, u64)> = (first..last).step_by(index(RUN)).map(|at| (at, (at + RUN).min(last))).collect();
        let made: io::Result<Vec<Vec<u8>>> = runs.into_par_iter().map(|run| numbers(group, tensor, seed, run)).collect();
        made?.iter().for_each(|made| bytes.extend_from_slice(made));
        Ok(())
    }
}

/// Elements that are made at a time.
const RUN: u64 = 1 << 16;

/// Elements of a tensor as they are stored.
fn numbers(group: &Group, tensor: &Tensor, seed: u64, (first, last): (u64, u64)) -> io::Result<Vec<u8>> {
    let values: Vec<f64> = match (tensor.name.strip_suffix(SCALE), most(tensor.element)) {
        (Some(matrix), _) => {
            let matrix = find(group, matrix)?;
            let rule = Rule::of(&matrix.name, &matrix.shape, seed);
            (first..last).map(|row| rule.scale(row, &matrix.shape, most(matrix.element).unwrap_or(1.0))).collect()
        }
        (None, None) => {
            let rule = Rule::of(&tensor.name, &tensor.shape, seed);
            (first..last).map(|at| rule.value(place(at, tensor))).collect()
        }
        (None, Some(most)) => {
            let rule = Rule::of(&tensor.name, &tensor.shape, seed);
            let columns = count(&tensor.shape[1..]);
            let mut scale = (u64::MAX, 1.0);
            let mut value = |at: u64| {
                let row = at / columns;
                if scale.0 != row {
                    scale = (row, rule.scale(row, &tensor.shape, most));
                }
                rule.value(place(at, tensor)) / scale.1
            };
            (first..last).map(&mut value).collect()
        }
    };
    let mut bytes = Vec::new();
    storage::encode(tensor.element, &values, &mut bytes);
    Ok(bytes)
}

fn find<'g>(group: &'g Group, name: &str) -> io::Result<&'g Tensor> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("scales of {name}, which its group does not have"));
    group.tensors.iter().find(|tensor| tensor.name == name).ok_or_else(missing)
}

/// The largest number of eight bits that a row is scaled to.
fn most(element: Element) -> Option<f64> {
    match element {
        Element::Fp8 => Some(storage::FP8_MAX),
        Element::Int8 => Some(storage::INT8_MAX),
        _ => None,
    }
}

/// The number in the checkpoint of an element that is stored at `at`.
fn place(at: u64, tensor: &Tensor) -> u64 {
    match tensor.order {
        Order::Checkpoint => at,
        Order::ChannelsLast => {
            // Stored: output channel, taps, input channel. In the checkpoint: output channel, input channel, taps.
            let (channels, taps) = (tensor.shape[1], count(&tensor.shape[2..]));
            let (output, rest) = (at / (channels * taps), at % (channels * taps));
            (output * channels + rest % channels) * taps + rest / channels
        }
    }
}

/// How the numbers of one tensor are made.
struct Rule {
    start: u64,
    offset: f64,
    scale: f64,
}

impl Rule {
    fn of(name: &str, shape: &[u64], seed: u64) -> Self {
        let mut parts = name.rsplit('.');
        let (last, owner) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let embedding = ["relative_attention_bias", "embed_tokens"].iter().any(|part| name.contains(part)) || name == "shared.weight";
        let (offset, scale) = if last == "bias" && !owner.is_empty() {
            (0.0, 0.1)
        } else if name.ends_with("gamma") || (last == "weight" && owner.contains("norm")) {
            (1.0, 0.1)
        } else if name.contains("scale_shift_table") {
            (0.0, 0.5)
        } else if embedding {
            (0.0, 1.0)
        } else {
            (0.0, (3.0 / storage::whole(count(shape.get(1..).unwrap_or(&[])))).sqrt())
        };
        Self { start: splitmix64(fnv1a64(name) ^ seed), offset, scale }
    }

    fn value(&self, at: u64) -> f64 {
        storage::to_bf16(self.offset + uniform(self.start, at) * self.scale)
    }

    /// What the numbers of a row are divided by, so that the largest one is `most`.
    fn scale(&self, row: u64, shape: &[u64], most: f64) -> f64 {
        let columns = count(shape.get(1..).unwrap_or(&[]));
        let largest = (row * columns..(row + 1) * columns).map(|at| self.value(at).abs()).fold(0.0, f64::max);
        // As it is stored: in single precision.
        storage::to_f32(if largest > 0.0 { largest / most } else { 1.0 })
    }
}

/// The hash that names are hashed with.
pub fn fnv1a64(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// What `splitmix64` increments its state by.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// The next number of a `splitmix64` generator in this state.
pub fn splitmix64(state: u64) -> u64 {
    let z = state.wrapping_add(INCREMENT);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Number `at` of a sequence of numbers that are evenly distributed from -1 to 1.
pub fn uniform(start: u64, at: u64) -> f64 {
    let bits = splitmix64(start.wrapping_add(at.wrapping_mul(INCREMENT))) >> 40;
    storage::whole(bits) / storage::whole(1 << 24) * 2.0 - 1.0
}

fn count(shape: &[u64]) -> u64 {
    shape.iter().product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[u64], element: Element, offset_bytes: u64, order: Order) -> Tensor {
        Tensor { name: name.to_owned(), shape: shape.to_vec(), element, offset_bytes, order }
    }

    fn group(tensors: Vec<Tensor>) -> Group {
        Group { component: Role::Transformer, block: None, bytes: 4096, tensors }
    }

    fn numbers(element: Element, bytes: &[u8]) -> Vec<f64> {
        let mut numbers = Vec::new();
        storage::decode(element, bytes, &mut numbers);
        numbers
    }

    fn read(group: &Group, first: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![1; bytes];
        Synthetic::default().read(group, first, &mut read).expect("it is made");
        read
    }

    #[test]
    fn parts_of_a_group_are_the_same_as_the_whole() {
        let all = [Element::F64, Element::Bf16, Element::Int8].into_iter().zip([0, 512, 768]);
        let group = group(all.map(|(element, at)| tensor("a.weight", &[6, 7], element, at, Order::Checkpoint)).collect());
        let whole = read(&group, 0, 1024);
        for (first, bytes) in [(0, 1024), (3, 100), (331, 13), (335, 200), (510, 5), (800, 224)] {
            assert_eq!(read(&group, first as u64, bytes), whole[first..first + bytes], "{bytes} from {first}");
        }
        assert!(whole[336..512].iter().all(|byte| *byte == 0), "what lies between tensors is zero");
    }

    #[test]
    fn channels_come_last_where_a_program_wants_them_there() {
        let of = |order| group(vec![tensor("conv.weight", &[2, 3, 1, 2, 2], Element::F64, 0, order)]);
        let numbers = |order| numbers(Element::F64, &read(&of(order), 0, 192));
        let (checkpoint, last) = (numbers(Order::Checkpoint), numbers(Order::ChannelsLast));
        for (output, tap, channel) in [(0, 0, 0), (0, 3, 1), (1, 2, 2), (1, 0, 1)] {
            assert_eq!(last[(output * 4 + tap) * 3 + channel].to_bits(), checkpoint[(output * 3 + channel) * 4 + tap].to_bits());
        }
    }

    #[test]
    fn eight_bits_and_their_scales_are_close_to_the_numbers() {
        for (element, share) in [(Element::Fp8, 1.0 / 16.0), (Element::Int8, 0.5 / 127.0)] {
            let exact = group(vec![tensor("a.weight", &[5, 33], Element::F64, 0, Order::Checkpoint)]);
            let eight = group(vec![
                tensor("a.weight", &[5, 33], element, 0, Order::Checkpoint),
                tensor("a.weight.scale", &[5], Element::F32, 256, Order::Checkpoint),
            ]);
            let (exact, scales) = (numbers(Element::F64, &read(&exact, 0, 5 * 33 * 8)), numbers(Element::F32, &read(&eight, 256, 20)));
            let stored = numbers(element, &read(&eight, 0, 5 * 33));
            for row in 0..5 {
                let numbers = &exact[row * 33..(row + 1) * 33];
                let largest = numbers.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
                for (number, stored) in numbers.iter().zip(&stored[row * 33..]) {
                    let error = (stored * scales[row] - number).abs();
                    assert!(error <= share * if element == Element::Fp8 { number.abs() + largest / 448.0 } else { largest } * 1.001);
                }
            }
        }
    }
}
