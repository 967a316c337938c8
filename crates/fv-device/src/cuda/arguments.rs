//! What kernels are told: one struct each, passed by value. The declarations that the kernels are compiled with are made from
//! these structs, offsets included, so that the two sides cannot differ: `kernels/arguments.cuh`.

use std::fmt::Write as _;
use std::mem::offset_of;

use cudarc::driver::DeviceRepr;
use fv_spec::program::kernel::{Function, Grid as Extents};
use fv_spec::program::{Element, View};

/// Fields of a struct as the kernels' language has them.
struct Declared {
    name: &'static str,
    bytes: usize,
    /// Type, name, offset and size.
    fields: Vec<(&'static str, &'static str, usize, usize)>,
}

/// Structs, and their declarations.
macro_rules! structs {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub(super) struct $name {
                $(pub(super) $field: $kind,)*
            }

            // SAFETY: it has the layout of C and nothing in it but numbers; kernels are compiled with the same offsets.
            #[expect(unsafe_code, reason = "the crate asks for the promise that kernels know this layout")]
            unsafe impl DeviceRepr for $name {}
        )*

        fn declared() -> Vec<Declared> {
            vec![$(Declared {
                name: stringify!($name),
                bytes: size_of::<$name>(),
                fields: vec![$((stringify!($kind), stringify!($field), offset_of!($name, $field), size_of::<$kind>())),*],
            }),*]
        }
    };
}

structs! {
    /// A matrix in device memory.
    Matrix {
        data: u64,
        pitch: u64,
        rows: u32,
        columns: u32,
        element: u32,
        reserved: u32,
    }

    /// Frames, rows and columns.
    Grid {
        frames: u32,
        height: u32,
        width: u32,
    }

    Pointwise {
        a: Matrix,
        b: Matrix,
        target: Matrix,
        op: u32,
        function: u32,
        scale: f32,
        reserved: u32,
    }

    GatedAdd {
        x: Matrix,
        y: Matrix,
        gate: Matrix,
        target: Matrix,
    }

    Dequantise {
        weights: Matrix,
        scales: Matrix,
        target: Matrix,
    }

    Product {
        x: Matrix,
        w: Matrix,
        bias: Matrix,
        target: Matrix,
        biased: u32,
        function: u32,
    }

    LayerNorm {
        x: Matrix,
        weight: Matrix,
        bias: Matrix,
        shift: Matrix,
        scale: Matrix,
        target: Matrix,
        epsilon: f32,
        affine: u32,
        modulated: u32,
        reserved: u32,
    }

    RmsNorm {
        x: Matrix,
        weight: Matrix,
        target: Matrix,
        epsilon: f32,
        reserved: u32,
    }

    RotaryTable {
        target: Matrix,
        grid: Grid,
        reserved: u32,
    }

    TimestepFeatures {
        target: Matrix,
        timestep: f64,
    }

    Rotate {
        x: Matrix,
        table: Matrix,
        target: Matrix,
    }

    Attention {
        q: Matrix,
        k: Matrix,
        v: Matrix,
        bias: Matrix,
        chosen: Matrix,
        target: Matrix,
        grid: Grid,
        tile: Grid,
        head_dim: u32,
        scale: f32,
        biased: u32,
        reserved: u32,
    }

    RelativeBias {
        table: Matrix,
        target: Matrix,
        max_distance: u32,
        reserved: u32,
    }

    TileMeans {
        x: Matrix,
        target: Matrix,
        grid: Grid,
        tile: Grid,
    }

    TileScores {
        q: Matrix,
        k: Matrix,
        v: Matrix,
        outputs: Matrix,
        chosen: Matrix,
        head_dim: u32,
        places: u32,
        scale: f32,
        reserved: u32,
    }

    TileAdd {
        x: Matrix,
        coarse: Matrix,
        gate: Matrix,
        target: Matrix,
        grid: Grid,
        tile: Grid,
        first_row: u32,
        reserved: u32,
    }

    Patches {
        whole: Matrix,
        rows: Matrix,
        latent: Grid,
        patch: Grid,
        first_row: u32,
        reserved: u32,
    }

    Sample {
        x: Matrix,
        prediction: Matrix,
        noise: Matrix,
        last: Matrix,
        before: Matrix,
        earlier: Matrix,
        target: Matrix,
        kind: u32,
        corrects: u32,
        change: f32,
        sigma: f32,
        keep: f32,
        next: f32,
        corrector: [f32; 4],
        predictor: [f32; 3],
        reserved: u32,
    }
}

impl Matrix {
    /// What is not there.
    pub(super) const NONE: Self = Self { data: 0, pitch: 0, rows: 0, columns: 0, element: 0, reserved: 0 };

    /// A view whose first element is at this address; nothing where an extent is beyond what kernels count to, or where no kernel
    /// has the format.
    pub(super) fn new(data: u64, view: &View) -> Option<Self> {
        let (rows, columns) = (u32::try_from(view.rows).ok()?, u32::try_from(view.columns).ok()?);
        Some(Self { data, pitch: view.pitch, rows, columns, element: element(view.element)?, reserved: 0 })
    }
}

impl Grid {
    pub(super) fn new(extents: Extents) -> Option<Self> {
        let side = |extent| u32::try_from(extent).ok();
        Some(Self { frames: side(extents.frames)?, height: side(extents.height)?, width: side(extents.width)? })
    }
}

/// The number of a format in the kernels.
pub(super) fn element(element: Element) -> Option<u32> {
    match element {
        Element::F32 => Some(0),
        Element::Bf16 => Some(1),
        Element::Fp8 => Some(2),
        Element::Int8 => Some(3),
        Element::I32 => Some(4),
        Element::U8 => Some(5),
        Element::F64 => None,
    }
}

/// The number of a function in the kernels.
pub(super) fn function(function: Function) -> u32 {
    match function {
        Function::Identity => 0,
        Function::Silu => 1,
        Function::GeluTanh => 2,
    }
}

/// What the declarations begin with. The run-time compiler cannot say at which offset a field is; sizes are checked there too.
const INTRODUCTION: &str = "// Made from crates/fv-device/src/cuda/arguments.rs: `make kernels` writes it.
#pragma once

#ifdef __CUDACC_RTC__
#define OFFSET(type, field, bytes) static_assert(true, \"\")
#else
#define OFFSET(type, field, bytes) static_assert(__builtin_offsetof(type, field) == bytes, \"offset\")
#endif
";

/// The declarations, as `kernels/arguments.cuh` has them.
pub fn header() -> String {
    let mut text = String::from(INTRODUCTION);
    for of in declared() {
        let _ = writeln!(text, "\nstruct {} {{", of.name);
        for (kind, name, _, _) in &of.fields {
            let (kind, count) = match kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')?.split_once("; ")) {
                Some((kind, count)) => (kind, format!("[{count}]")),
                None => (*kind, String::new()),
            };
            // The address of a matrix is a pointer there.
            let kind = if *name == "data" { "void*" } else { word(kind) };
            let _ = writeln!(text, "  {kind} {name}{count};");
        }
        let _ = writeln!(text, "}};");
        let _ = writeln!(text, "static_assert(sizeof({}) == {}, \"size\");", of.name, of.bytes);
        for (_, name, offset, _) in &of.fields {
            let _ = writeln!(text, "OFFSET({}, {name}, {offset});", of.name);
        }
    }
    text
}

fn word(kind: &'static str) -> &'static str {
    match kind {
        "u64" => "unsigned long long",
        "u32" => "unsigned int",
        "f32" => "float",
        "f64" => "double",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compiled_with_these_structs() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/arguments.cuh");
        if std::env::var_os("UPDATE_KERNELS").is_some() {
            std::fs::write(path, header()).expect("the header is written");
        }
        let found = std::fs::read_to_string(path).expect("the header is there");
        assert_eq!(found, header(), "run `make kernels`");
    }

    #[test]
    fn structs_have_no_hidden_gaps() {
        for of in declared() {
            let mut end = 0;
            for (kind, name, offset, bytes) in &of.fields {
                assert_eq!(end, *offset, "before {}.{name}, a {kind}", of.name);
                end += bytes;
            }
            assert_eq!(end, of.bytes, "after the last field of {}", of.name);
        }
    }
}
