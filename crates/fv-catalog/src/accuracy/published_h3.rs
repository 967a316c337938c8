//! Published measurements of MiniMax H3 under other engines, and under FastVideo's unreleased code.
//!
//! A row of FastVideo's notes is a peak over the whole request and so stands beside the largest stage that is derived.

use fv_data::Catalog;
use fv_estimate::estimate::Workload;
use fv_estimate::resolve::Overrides;
use fv_spec::authored::Role;
use fv_spec::estimate::{PeakBytes, StageName};
use fv_spec::request::PartialRequest;

use super::published::{self, Line};

/// Peaks to compare with, whether the inputs are complete and the engine is ours, and a remark.
pub(super) fn compare(catalog: &Catalog, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    match line.metric.as_str() {
        "device_used" => Err("the allocator fills the card, so what the device shows is no minimum".to_owned()),
        "resident_sum" | "torch_peak_breakdown" => weights(catalog, line),
        "torch_peak_allocated" => notes(catalog, line),
        _ if line.source.starts_with("sgl-project") => {
            Err("another engine on two ranks, whose layerwise offload keeps other blocks, and no exact number of frames".to_owned())
        }
        _ => Err("another engine, and weights in a quantised storage whose layout is not stated".to_owned()),
    }
}

/// Weights of components: parameters times bytes.
fn weights(catalog: &Catalog, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    let model = |id: &str| catalog.model(id).ok_or_else(|| format!("the catalog has no {id}"));
    let (h3, trim) = (model("minimax-h3")?, model("fasth3")?);
    let count = |role| h3.components.get(&role).map_or(0, |component| component.parameter_count.get());
    let (encoder, vae, audio) = (2 * count(Role::TextEncoder), 4 * count(Role::Vae), 4 * count(Role::AudioVae));
    let small =
        h3.components.get(&Role::Transformer).and_then(|dit| dit.alternatives.first()).map_or(0, |dit| 2 * dit.parameter_count.get());
    let gated = trim.components.get(&Role::Transformer).map_or(0, |dit| 2 * dit.parameter_count.get());
    let decoder = vae - 4 * ENCODER;
    let plain = "parameters of the catalog times bytes of a value, against a rounded figure";
    let (bytes, remark) = match line.model.as_str() {
        "MiniMax H3 encoder" => (encoder, plain),
        "MiniMax H3 DiT rank16 bf16" => (small, plain),
        "MiniMax H3 VAE fp32" | "MiniMax H3 video VAE fp32" => (vae, plain),
        "MiniMax H3 audio VAE" | "MiniMax H3 audio VAE fp32" => (audio, plain),
        "MiniMax H3 sum" => (encoder + small + vae + audio, plain),
        "MiniMax H3 FastH3 sum" => (encoder + gated + vae + audio, "the same with the whole modulation and gates"),
        "MiniMax H3 autocast fp16 weight cache" => (decoder / 2, "half-precision copies of the decoder's weights"),
        "H3 text encoder NVFP4" => {
            (nvfp4(count(Role::TextEncoder)), "half a byte a value, a scale byte for sixteen, embedding and vision tower in bf16")
        }
        "H3 text encoder FP8 (projected)" => (encoder - MATRICES, "a byte a value of the matrices; scales are left out"),
        _ => return Err("another engine, and weights in a storage whose layout is not stated".to_owned()),
    };
    Ok((published::weights(bytes), false, format!("{remark}; what an engine allocates around them is not in it")))
}

/// Parameters of the video VAE's encoder with both small convolutions.
const ENCODER: u64 = 180_338_488;
/// Values of the matrices in the text encoder's fifty layers.
const MATRICES: u64 = 24_379_392_000;

fn nvfp4(parameters: u64) -> u64 {
    2 * (parameters - MATRICES) + MATRICES / 2 + MATRICES / 16
}

/// Rows of FastVideo's notes on one RTX 4090: those of the arrangement that the rule for them describes.
fn notes(catalog: &Catalog, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    let setting = line.precision_offload.as_str();
    let resident = setting.split([';', ' ']).collect::<Vec<_>>().windows(2).find_map(|pair| (pair[1] == "resident").then(|| pair[0]));
    let remark = match setting {
        _ if setting.starts_with("streamed encoder") => "",
        _ if setting.starts_with("release core") => {
            "; a later build that makes no copies in the kernel's order, which are counted all the same"
        }
        _ if setting.starts_with("12 resident") => "; its variables are not all published",
        _ if setting.starts_with("cached") || setting.starts_with("FP8") => {
            return Err(
                "the text encoder is whole on the device, and how it is expanded is not published: the peak is in conditioning".to_owned()
            );
        }
        _ => return Err("profiling and capture were on".to_owned()),
    };
    let Some(resident) = resident else { return Err("the number of resident blocks is not given".to_owned()) };
    let model = catalog.model("fasth3-trim").ok_or("the catalog has no fasth3-trim")?;
    let example = model.examples.iter().find(|example| example.id == "rtx4090-12gib-cap").ok_or("no such deployment")?;
    let request = PartialRequest { height: line.height, width: line.width, num_frames: line.frames, ..PartialRequest::default() };
    // The later builds scale the decoder's products in one kernel.
    let fused = if setting.starts_with("release core") { "1" } else { "0" };
    let env = [
        ("FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS", resident),
        ("FASTVIDEO_CUDA_MEMORY_CAP_GIB", "0"),
        ("FASTVIDEO_H3_VAE_INT8_FUSED_DEQUANT", fused),
    ];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let workload = Workload::evaluate(model, example, &request, &Overrides { env, ..Overrides::default() }, &catalog.rules, false)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let all = workload.peaks().ok_or("not covered")?;
    let stages = StageName::ALL.into_iter().filter(|stage| *stage != StageName::Load);
    let widest = stages.max_by_key(|stage| all[*stage as usize].allocated.value).ok_or("no stage")?;
    let why = format!(
        "{}, derived from what the notes say of unreleased code; the measured checkpoint is a private predecessor{remark}",
        widest.word()
    );
    Ok((all[widest as usize], false, why))
}
