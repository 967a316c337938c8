//! An operation with random operands, on a device and by the reference.

use fv_device::cuda::Device;
use fv_device::cuda::device::{Operand, Place, Queue};
use fv_device::cuda::memory::{DeviceArena, HostArena};
use fv_device::reference::{self, storage};
use fv_spec::program::{Element, Kernel, View};

use crate::cases::{Case, NO_STEP};

/// Random numbers.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    fn even(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed.
    pub(crate) fn normal(&mut self) -> f64 {
        let (size, turn) = (1.0 - self.even(), self.even());
        (-2.0 * size.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Different numbers below `end` in random order.
    fn choice(&mut self, end: u64, count: u64) -> Vec<f64> {
        let mut all: Vec<u64> = (0..end).collect();
        (0..usize::try_from(count).expect("few"))
            .for_each(|at| all.swap(at, at + usize::try_from(self.below(end - at as u64)).expect("few")));
        all.iter().take(usize::try_from(count).expect("few")).map(|number| *number as f64).collect()
    }
}

/// An operation whose operands are on a device.
pub(crate) struct Machine<'a> {
    device: &'a Device,
    case: Case,
    /// Of each operand: rows without gaps as they are stored, and where it begins in the arena.
    operands: Vec<(View, Vec<u8>, u64)>,
    arena: DeviceArena,
    host: HostArena,
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("it lies in memory")
}

impl<'a> Machine<'a> {
    pub(crate) fn new(device: &'a Device, case: &Case, numbers: &mut Numbers) -> Self {
        let mut operands = Vec::new();
        let mut end = 0;
        let targets = case.writes.iter().filter(|_| !case.in_place);
        for view in case.reads.iter().chain(targets) {
            let mut bytes = Vec::new();
            storage::encode(view.element, &random(case, view, numbers), &mut bytes);
            operands.push((*view, bytes, end));
            end += view.span_bytes().next_multiple_of(256);
        }
        let (arena, host) = (device.arena(end).expect("memory"), device.host(end).expect("memory"));
        assert_eq!(host.refused(), None, "host memory can be page-locked here");
        let mut machine = Self { device, case: case.clone(), operands, arena, host };
        machine.poison();
        machine
    }

    /// Operands as they were at first, and what is no number in targets.
    pub(crate) fn poison(&mut self) {
        self.arena.fill(0xFF).expect("memory");
        for at in 0..self.case.reads.len() {
            let (view, bytes, start) = &self.operands[at];
            let span = self.host.slice_mut(*start, view.span_bytes()).expect("it is there");
            let (row, distance) = (index(view.columns * view.element.bytes()), index(view.pitch * view.element.bytes()));
            span.chunks_mut(distance).zip(bytes.chunks(row)).for_each(|(to, from)| to[..row].copy_from_slice(from));
            let from = Operand { view: *view, place: Place::Host(&self.host, *start) };
            self.device.launch(Queue::CopyIn, &Kernel::Copy, &NO_STEP, &[from], &[self.operand(view)]).expect("a copy");
        }
        self.device.synchronize().expect("the device");
    }

    /// A view of one of the operands, on the device.
    fn operand(&self, view: &View) -> Operand<'_> {
        let start = self.operands[view.buffer as usize].2;
        Operand { view: *view, place: Place::Device(&self.arena, start + view.offset_bytes) }
    }

    pub(crate) fn try_launch(&self, case: &Case) -> Result<(), fv_device::cuda::Error> {
        let operands = |views: &[View]| views.iter().map(|view| self.operand(view)).collect::<Vec<_>>();
        self.device.launch(Queue::Compute, &case.kernel, &case.step, &operands(&case.reads), &operands(&case.writes))
    }

    pub(crate) fn launch(&self, case: &Case) {
        self.try_launch(case).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    }

    /// Computes everything, and gives the numbers of all targets.
    pub(crate) fn run(&mut self) -> Vec<Vec<f64>> {
        let bytes = self.bytes();
        let decode = |(view, bytes): (&View, Vec<u8>)| {
            let mut numbers = Vec::new();
            storage::decode(view.element, &bytes, &mut numbers);
            numbers
        };
        self.case.writes.iter().zip(bytes).map(decode).collect()
    }

    /// Computes everything, and gives the bytes of all targets.
    pub(crate) fn bytes(&mut self) -> Vec<Vec<u8>> {
        let case = self.case.clone();
        self.launch(&case);
        self.written()
    }

    /// The bytes of all targets, without those between rows.
    pub(crate) fn written(&self) -> Vec<Vec<u8>> {
        self.device.synchronize().unwrap_or_else(|error| panic!("{}: {error}", self.case.name));
        let read = |view: &View| {
            let start = self.operands[view.buffer as usize].2;
            let to = Operand { view: *view, place: Place::Host(&self.host, start) };
            self.device.launch(Queue::CopyOut, &Kernel::Copy, &NO_STEP, &[self.operand(view)], &[to]).expect("a copy");
            self.device.synchronize().expect("the device");
            let span = self.host.slice(start, view.span_bytes()).expect("it is there");
            let (row, distance) = (index(view.columns * view.element.bytes()), index(view.pitch * view.element.bytes()));
            span.chunks(distance).flat_map(|chunk| &chunk[..row]).copied().collect()
        };
        self.case.writes.iter().map(read).collect()
    }

    /// What the reference makes of the same stored numbers in double precision.
    pub(crate) fn reference(&self) -> Vec<Vec<f64>> {
        let wide = |at: usize| {
            let (view, bytes, _) = &self.operands[at];
            let (mut numbers, mut wide) = (Vec::<f64>::new(), Vec::new());
            storage::decode(view.element, bytes, &mut numbers);
            storage::encode(Element::F64, &numbers, &mut wide);
            wide
        };
        let bytes: Vec<Vec<u8>> = (0..self.operands.len()).map(wide).collect();
        let operand = |view: &View| {
            let columns = index(view.columns);
            reference::Operand {
                bytes: &bytes[view.buffer as usize],
                element: Element::F64,
                rows: index(view.rows),
                columns,
                pitch: columns,
            }
        };
        let operands = |views: &[View]| views.iter().map(operand).collect::<Vec<_>>();
        let (reads, writes) = (operands(&self.case.reads), operands(&self.case.writes));
        let written = reference::compute(&self.case.kernel, &self.case.step, &reads, &writes);
        let written = written.unwrap_or_else(|mismatch| panic!("{}: {mismatch}", self.case.name));
        let decode = |bytes: &[u8]| {
            let mut numbers = Vec::new();
            storage::decode(Element::F64, bytes, &mut numbers);
            numbers
        };
        written.iter().map(|written| decode(&written.bytes)).collect()
    }
}

/// Rows that differ: making more of them would take longer than what is timed.
const DISTINCT: u64 = 10_000;

/// Numbers for an operand: tiles that are chosen are all different, keys and queries have channels that stand out, all others are
/// normal.
fn random(case: &Case, view: &View, numbers: &mut Numbers) -> Vec<f64> {
    if let (Kernel::TileAttention { grid, tile, .. }, Element::I32) = (&case.kernel, view.element) {
        return (0..view.rows).flat_map(|_| numbers.choice(grid.tiles(*tile).len(), view.columns)).collect();
    }
    let attends = matches!(case.kernel, Kernel::Attention { .. } | Kernel::TileAttention { .. }) && view.buffer < 2;
    let stands_out = |column: u64| attends && column % 128 == 5;
    let distinct = (0..view.rows.min(DISTINCT)).flat_map(|_| 0..view.columns).map(|column| (column, numbers.normal()));
    let distinct: Vec<f64> = distinct.map(|(column, number)| number * case.spread * if stands_out(column) { 2.0 } else { 1.0 }).collect();
    distinct.iter().copied().cycle().take(index(view.len())).collect()
}
