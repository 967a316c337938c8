//! Models of the catalog that our own runtime has programs for.

use fv_program::wan::geometry::{Dit, Model as Geometry, Request, Sparse, Umt5, Vae};
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::Reason;
use fv_spec::plan::{Plan, Sampler, Sampling};
use fv_spec::program::Schedule;
use serde_json::Value;

use crate::resolve::legal::{Legal, legal};
use crate::wan::geometry::FREQUENCIES;
use crate::wan::model::Wan;

/// Rows of text that the transformer sees (`max_sequence_length` of the published pipelines).
pub const TEXT_ROWS: u64 = 512;

/// A model with a program, and what its published pipelines ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Covered {
    /// Its extents.
    pub model: Geometry,
    /// What is asked for where nobody says.
    pub usual: Usual,
    /// Sizes that it takes.
    pub legal: Legal,
}

/// What published pipelines ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Usual {
    /// Pixel columns.
    pub width: u32,
    /// Pixel rows.
    pub height: u32,
    /// Frames.
    pub frames: u32,
    /// Steps.
    pub steps: u32,
    /// How steps are taken.
    pub sampling: Sampling,
}

/// How a model is sampled: the flow's shift in thousandths, timesteps of distribution matching, the boundary between experts, and the
/// guidance of the second one in thousandths.
struct Published {
    model: &'static str,
    shift: u32,
    timesteps: &'static [u32],
    boundary: Option<f64>,
    second_guidance: Option<u32>,
}

/// `fastvideo/configs/pipelines/wan.py` and `fastvideo/pipelines/basic/wan/presets.py` of FastVideo, at the commits that the models'
/// entries in the catalog name.
const PUBLISHED: [Published; 6] = [
    Published { model: "wan21-t2v-1.3b", shift: 3_000, timesteps: &[], boundary: None, second_guidance: None },
    Published { model: "wan21-t2v-14b", shift: 5_000, timesteps: &[], boundary: None, second_guidance: None },
    Published { model: "fastwan21", shift: 8_000, timesteps: &[1_000, 757, 522], boundary: None, second_guidance: None },
    Published { model: "wan22-ti2v-5b", shift: 5_000, timesteps: &[], boundary: None, second_guidance: None },
    Published { model: "fastwan22-ti2v-5b", shift: 5_000, timesteps: &[1_000, 757, 522], boundary: None, second_guidance: None },
    Published { model: "wan22-t2v-a14b", shift: 12_000, timesteps: &[], boundary: Some(0.875), second_guidance: Some(3_000) },
];

/// Reads a model of the catalog.
///
/// # Errors
/// Why there is no program for it.
pub fn covered(model: &Model) -> Result<Covered, Vec<Reason>> {
    let uncovered = |what: String| vec![Reason::new("uncovered-model", what)];
    let Some(example) = model.examples.first() else {
        return Err(uncovered(format!("{} has no deployment", model.id)));
    };
    if model.memory_rules != "wan" {
        let message = format!("fv-run has no program for the family {} of {}: only for Wan", model.memory_rules, model.id);
        return Err(uncovered(message));
    }
    let Some(published) = PUBLISHED.iter().find(|published| published.model == model.id) else {
        let names = PUBLISHED.map(|published| published.model).join(", ");
        return Err(uncovered(format!("fv-run has no program for {}: it has for {names}", model.id)));
    };
    let wan = Wan::read(model, example)?;
    let geometry = geometry(model, example, &wan, published)?;
    Ok(Covered { usual: usual(example, &geometry, published), model: geometry, legal: legal(model, example) })
}

fn geometry(model: &Model, example: &Example, wan: &Wan, published: &Published) -> Result<Geometry, Vec<Reason>> {
    let lacks = |what: &str| vec![Reason::new("missing-geometry", format!("{}: {what}", model.id))];
    let text = wan.text.as_ref().filter(|text| text.geometry).ok_or_else(|| lacks("the text encoder has no geometry"))?;
    if wan.dit.image_branch || wan.dit.in_channels != wan.dit.out_channels || wan.image.is_some() {
        return Err(vec![Reason::new("uncovered-model", format!("fv-run has no program for the image condition of {}", model.id))]);
    }
    if wan.dit2.is_some_and(|second| second != wan.dit) || wan.dit2.is_some() != published.boundary.is_some() {
        return Err(lacks("its transformers are not the two alike, or the one, that the program has"));
    }
    let pipeline = example.base_config.get("generator").and_then(|generator| generator.get("pipeline"));
    let sparsity = pipeline.and_then(|pipeline| pipeline.get("experimental")?.get("VSA_sparsity")).and_then(Value::as_f64);
    let sparse = match (wan.dit.sparse_gate, sparsity) {
        (true, Some(sparsity)) if (0.0..1.0).contains(&sparsity) => Some(Sparse { sparsity }),
        (true, _) => return Err(lacks("its deployment does not say the sparsity of its attention")),
        (false, _) => None,
    };
    let (layers, of_block) = text.blocks;
    let inner = text.heads * text.head;
    // What is beside the blocks is the table of embeddings and the last norm.
    let beside = text.parameters.checked_sub(layers * of_block).and_then(|beside| beside.checked_sub(text.hidden));
    let vocabulary =
        beside.filter(|_| text.hidden > 0).map(|beside| beside / text.hidden).ok_or_else(|| lacks("the text encoder's counts"))?;
    let buckets = of_block.checked_sub(4 * text.hidden * inner + 3 * text.hidden * text.ffn + 2 * text.hidden);
    let buckets = buckets.map(|table| table / text.heads.max(1)).filter(|buckets| *buckets > 0);
    let buckets = buckets.ok_or_else(|| lacks("the text encoder's blocks are not those of UMT5"))?;
    Ok(Geometry {
        id: model.id.clone(),
        // UMT5's relative_attention_max_distance.
        text: Umt5 {
            hidden: text.hidden,
            heads: text.heads,
            head_dim: text.head,
            ffn: text.ffn,
            layers,
            vocabulary,
            buckets,
            max_distance: 128,
        },
        transformer: Dit {
            hidden: wan.dit.hidden,
            heads: wan.dit.heads,
            ffn: wan.dit.ffn,
            blocks: wan.dit.blocks,
            patch: wan.dit.patch,
            in_channels: wan.dit.in_channels,
            out_channels: wan.dit.out_channels,
            text: wan.dit.text,
            frequencies: FREQUENCIES,
            sparse,
        },
        boundary: published.boundary,
        vae: Vae {
            latent: wan.vae.latent_channels,
            width: wan.vae.decoder_channels,
            residual_blocks: 2,
            output: wan.vae.output_channels,
            patch: wan.vae.pixel_patch,
            residual: wan.vae.residual,
        },
    })
}

fn usual(example: &Example, model: &Geometry, published: &Published) -> Usual {
    let sampling = example.base_config.get("default_request").and_then(|request| request.get("sampling"));
    let number = |name: &str, otherwise: u32| {
        let value = sampling.and_then(|sampling| sampling.get(name)).and_then(Value::as_u64);
        value.and_then(|value| u32::try_from(value).ok()).unwrap_or(otherwise)
    };
    let guidance = sampling.and_then(|sampling| sampling.get("guidance_scale")).and_then(Value::as_f64).unwrap_or(5.0);
    // Distribution matching takes guidance into the weights.
    let distilled = !published.timesteps.is_empty();
    let first = if distilled { 1_000 } else { thousandths(guidance) };
    let guidance_thousandths = if model.boundary.is_some() { vec![first, published.second_guidance.unwrap_or(first)] } else { vec![first] };
    let steps = u32::try_from(published.timesteps.len()).unwrap_or(0);
    Usual {
        width: number("width", 832),
        height: number("height", 480),
        frames: number("num_frames", 81),
        steps: if distilled { steps } else { number("num_inference_steps", 50) },
        sampling: Sampling {
            sampler: if distilled { Sampler::Dmd } else { Sampler::UniPc },
            shift_thousandths: published.shift,
            timesteps: published.timesteps.to_vec(),
            negative_tokens: guidance_thousandths.iter().any(|scale| *scale != 1_000).then_some(TEXT_ROWS),
            guidance_thousandths,
        },
    }
}

/// A number in thousandths, to the nearest; what cannot be one is 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be within 0 and 1,000")]
pub(crate) fn thousandths(value: f64) -> u32 {
    if (0.0..=1e3).contains(&value) { (value * 1e3 + 0.5) as u32 } else { 1_000 }
}

/// The request of a plan in the terms of programs.
///
/// # Errors
/// When the plan does not say how steps are taken.
pub fn request(plan: &Plan) -> Result<Request, Reason> {
    let missing = || Reason::new("missing-sampling", "the plan does not say how steps are taken (request.sampling)");
    let sampling = plan.request.sampling.as_ref().ok_or_else(missing)?;
    Ok(of(&plan.request, sampling))
}

pub(super) fn of(request: &fv_spec::plan::PlanRequest, sampling: &Sampling) -> Request {
    let scale = |at: usize| {
        let thousandths = sampling.guidance_thousandths.get(at).or(sampling.guidance_thousandths.last());
        f64::from(*thousandths.unwrap_or(&1_000)) / 1e3
    };
    Request {
        height: request.height.into(),
        width: request.width.into(),
        frames: request.frames.into(),
        schedule: Schedule {
            sampler: sampling.sampler,
            steps: request.steps,
            shift: f64::from(sampling.shift_thousandths) / 1e3,
            timesteps: sampling.timesteps.clone(),
        },
        guidance: [scale(0), scale(1)],
        prompt_tokens: request.text_tokens.value,
        negative_tokens: sampling.negative_tokens.unwrap_or(1),
        text_rows: TEXT_ROWS,
    }
}

/// The usual request of a model, in the terms of programs.
pub(super) fn of_usual(covered: &Covered) -> Request {
    let usual = &covered.usual;
    Request {
        height: usual.height.into(),
        width: usual.width.into(),
        frames: usual.frames.into(),
        schedule: Schedule { sampler: usual.sampling.sampler, steps: usual.steps, shift: 1.0, timesteps: usual.sampling.timesteps.clone() },
        guidance: [1.0; 2],
        prompt_tokens: TEXT_ROWS,
        negative_tokens: TEXT_ROWS,
        text_rows: TEXT_ROWS,
    }
}
