//! Memory-rule families: what each one requires of the geometry of its components.
//!
//! This table is the only place that says so. The checker asks it, the JSON Schemas list its fields, and the
//! authoring guide prints it.

/// The file, and so the type, a component is defined in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ComponentType {
    /// `transformers.yaml`
    Transformer,
    /// `encoders.yaml`
    Encoder,
    /// `vaes.yaml`
    Vae,
}

impl ComponentType {
    /// All types, in the order of their files.
    pub const ALL: [Self; 3] = [Self::Transformer, Self::Encoder, Self::Vae];

    /// The word used in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Transformer => "transformer",
            Self::Encoder => "encoder",
            Self::Vae => "VAE",
        }
    }

    /// The authored file that defines components of this type.
    pub fn file(self) -> &'static str {
        match self {
            Self::Transformer => "transformers.yaml",
            Self::Encoder => "encoders.yaml",
            Self::Vae => "vaes.yaml",
        }
    }

    /// Geometry that any component of this type may carry.
    pub fn geometry(self) -> &'static [&'static str] {
        match self {
            Self::Transformer => &["hidden_size", "ffn_size", "patch_size", "num_attention_heads", "attention_head_dim", "gated_ffn"],
            Self::Encoder => &["hidden_size", "ffn_size", "num_attention_heads", "attention_head_dim", "gated_ffn"],
            Self::Vae => &["temporal_compression", "spatial_compression", "vae_decoder_channels", "latent_channels", "output_channels"],
        }
    }
}

/// The kind of value a geometry field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeometryKind {
    /// A positive integer.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// Exactly three positive integers: time, height, width.
    Patch,
}

/// The kind of value that the geometry field `name` takes.
pub fn geometry_kind(name: &str) -> GeometryKind {
    match name {
        "patch_size" => GeometryKind::Patch,
        "gated_ffn" => GeometryKind::Boolean,
        _ => GeometryKind::Integer,
    }
}

/// One family of memory rules, named by a manifest's `memory_rules`.
#[derive(Debug)]
pub struct Family {
    /// The value of `memory_rules`.
    pub id: &'static str,
    /// What it covers, in a few words.
    pub about: &'static str,
    /// Geometry that the rule cannot do without, by component type.
    pub requires: &'static [(ComponentType, &'static [&'static str])],
    /// Named scalar fields beyond the common allowlist, by component type.
    pub declares: &'static [(ComponentType, &'static [&'static str])],
}

impl Family {
    /// The family called `id`.
    pub fn find(id: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.id == id)
    }

    /// Geometry that this family requires of components of type `kind`.
    pub fn required(&self, kind: ComponentType) -> &'static [&'static str] {
        of(self.requires, kind)
    }

    /// Extra geometry that this family declares for components of type `kind`.
    pub fn declared(&self, kind: ComponentType) -> &'static [&'static str] {
        of(self.declares, kind)
    }
}

fn of(table: &'static [(ComponentType, &'static [&'static str])], kind: ComponentType) -> &'static [&'static str] {
    table.iter().find(|(t, _)| *t == kind).map_or(&[], |(_, fields)| fields)
}

use ComponentType::{Transformer, Vae};

/// Every family, in the order of the authoring guide.
pub static FAMILIES: &[Family] = &[
    Family {
        id: "wan",
        about: "Wan 2.1 and 2.2, their FastWan sparse variants and the two-expert A14B",
        requires: &[
            (Transformer, &["hidden_size", "ffn_size", "patch_size"]),
            (Vae, &["temporal_compression", "spatial_compression", "vae_decoder_channels"]),
        ],
        declares: &[(Transformer, &["in_channels", "out_channels", "text_dim"])],
    },
    Family {
        id: "minimax_h3",
        about: "MiniMax H3 and FastH3",
        requires: &[],
        declares: &[(Transformer, &["text_dim", "video_channels", "audio_channels"])],
    },
    Family { id: "hunyuan_video", about: "HunyuanVideo", requires: &[], declares: &[(Transformer, &["in_channels", "out_channels"])] },
    Family {
        id: "hunyuan_video_15",
        about: "HunyuanVideo 1.5",
        requires: &[],
        declares: &[(Transformer, &["in_channels", "out_channels"])],
    },
    Family { id: "ltx_video", about: "LTX-Video and LTX-2", requires: &[], declares: &[(Transformer, &["in_channels", "out_channels"])] },
    Family {
        id: "cogvideox",
        about: "CogVideoX and CogVideoX 1.5",
        requires: &[],
        declares: &[(Transformer, &["in_channels", "out_channels"])],
    },
    Family { id: "mochi", about: "Mochi 1", requires: &[], declares: &[(Transformer, &["in_channels", "out_channels"])] },
    Family { id: "cosmos", about: "Cosmos Predict 2", requires: &[], declares: &[(Transformer, &["in_channels", "out_channels"])] },
    Family {
        id: "kandinsky5",
        about: "Kandinsky 5 Lite and Pro",
        requires: &[],
        declares: &[(Transformer, &["in_channels", "out_channels"])],
    },
];
