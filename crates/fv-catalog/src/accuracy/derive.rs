//! From a measured row to what the rules say about it.

use fv_data::Catalog;
use fv_estimate::settings::{Attention, Placement, Tiling};
use fv_estimate::spread::Work;
use fv_estimate::wan::component::{ComponentPeaks, Part, peaks};
use fv_estimate::wan::diffusers_dit::Forward;
use fv_estimate::wan::diffusers_vae::{Coder, Style};
use fv_estimate::wan::geometry::{Dit, Latent, Vae};
use fv_estimate::wan::model::{Encoder, IMAGE_TOKENS};
use fv_estimate::wan::weights::Halves;
use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::compiled::{ExpandedComponent, Model};

use super::case::Case;
use super::rows::{Row, bare};

/// What the rules say about a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The component of the catalog that was taken.
    pub component: String,
    /// Its peaks.
    pub peaks: ComponentPeaks,
    /// What the memory comes from.
    pub work: Work,
    /// Rows of one geometry are left out together when fits are judged.
    pub geometry: String,
    /// Pixels, frames and batch, where it is a video.
    pub video: Option<[u64; 3]>,
}

/// Why there is no figure for a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// No rule covers it.
    NotCovered(String),
    /// Its case cannot be read.
    Malformed(String),
}

/// The peaks that the rules give for `row`.
pub fn derive(catalog: &Catalog, row: &Row) -> Result<Derived, Why> {
    match row.runtime {
        Runtime::Diffusers => diffusers(catalog, row),
        other => Err(Why::NotCovered(format!("no rule for single components under {}", other.word()))),
    }
}

fn uncovered<T>(why: impl Into<String>) -> Result<T, Why> {
    Err(Why::NotCovered(why.into()))
}

/// A component of the catalog by the name that a benchmark gives it, the role that it has, and a model that uses it.
fn find<'a>(catalog: &'a Catalog, name: &str) -> Option<(&'a ExpandedComponent, Role, &'a Model)> {
    let uses = || {
        catalog.models.values().flat_map(|model| {
            let overrides = model.examples.iter().flat_map(|example| &example.components);
            model.components.iter().chain(overrides).flat_map(move |(role, component)| {
                std::iter::once(component).chain(&component.alternatives).map(move |one| (one, *role, model))
            })
        })
    };
    // A component may serve several families, and benchmarks shorten names: the covered family, then the shortest id.
    let called = |id: &str| id == name || id.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    uses().filter(|(one, ..)| called(&one.component)).min_by_key(|(one, _, model)| (one.component.len(), model.memory_rules != "wan"))
}

fn diffusers(catalog: &Catalog, row: &Row) -> Result<Derived, Why> {
    let name = bare(&row.component);
    let name = name.strip_suffix("-cast").or_else(|| name.strip_suffix("-loaded")).unwrap_or(name);
    let Some((component, role, model)) = find(catalog, name) else {
        return uncovered(format!("the catalog has no component `{name}`"));
    };
    if model.memory_rules != "wan" {
        return uncovered(format!("no rule covers {} x diffusers", model.memory_rules));
    }
    let case = Case::read(&row.case).map_err(Why::Malformed)?;
    if let Some(word) = case.unknown.first() {
        return uncovered(format!("`{word}` in the case means nothing here"));
    }
    if case.parameters.is_some_and(|n| n != component.parameter_count.get()) {
        return uncovered("the measured component has another number of parameters than the catalog's");
    }
    let act = |default: Dtype| if case.dtype.unwrap_or(default) == Dtype::Fp32 { 4 } else { 2 };
    let batch = case.batch.unwrap_or(1);
    let video = || case.video().ok_or_else(|| Why::Malformed("height, width and frames are expected".to_owned()));
    let geometry = |error: String| Why::NotCovered(error);
    let part = match role {
        Role::Transformer | Role::Transformer2 => {
            let dit = Dit::read(component).map_err(geometry)?;
            let vae = model.components.get(&Role::Vae).ok_or_else(|| geometry(format!("{} has no VAE", model.id)))?;
            let vae = Vae::read(vae).map_err(geometry)?;
            let [height, width, frames] = video()?;
            let placement = match row.stage.as_str() {
                "denoise_forward" => Placement::Resident,
                "denoise_forward_group_offload" => {
                    Placement::Streamed { resident: 0, prefetch: 1, group: 1, pinned: true, rest_resident: false }
                }
                other => return uncovered(format!("no rule for the stage `{other}` of a transformer")),
            };
            Part::Dit(
                Forward {
                    dit,
                    latent: Latent::of(&vae, batch, frames, height, width),
                    text_tokens: case.text_tokens.unwrap_or(TEXT_TOKENS),
                    image_tokens: if dit.image_branch { IMAGE_TOKENS } else { 0 },
                    act: act(Dtype::Bf16),
                    keep_fp32: !row.cast,
                    attention: Attention::Cudnn,
                    per_token_timesteps: case.expand_timesteps,
                },
                placement,
            )
        }
        Role::Vae => {
            let vae = Vae::read(component).map_err(geometry)?;
            let coder = Coder { vae, act: act(Dtype::Fp32), workspace: true, style: Style::Diffusers };
            let [height, width, frames] = video()?;
            let tiling = case.tiled.then_some(TILING);
            if case.sliced && batch > 1 {
                return uncovered("no rule for slices of a VAE on its own");
            }
            let whole: u64 = vae.tensors(Halves::Both).iter().map(|parameter| parameter.elements).sum();
            if component.parameter_count.get() != whole {
                return uncovered("only a part of the VAE is loaded");
            }
            match row.stage.as_str() {
                "decode" => Part::Decode(coder, Latent::of(&vae, batch, frames, height, width), tiling),
                "encode" => Part::Encode(coder, [batch, frames, height, width], tiling),
                other => return uncovered(format!("no rule for the stage `{other}` of a VAE")),
            }
        }
        Role::TextEncoder if case.tokens && row.stage == "encode_prompt" => {
            Part::Encoder(Encoder::read(component, 0), [batch, case.numbers.first().copied().unwrap_or(TEXT_TOKENS)], act(Dtype::Bf16))
        }
        Role::ImageEncoder if row.stage == "encode_image" => {
            Part::Encoder(Encoder::read(component, IMAGE_TOKENS), [batch, IMAGE_TOKENS], act(Dtype::Fp32))
        }
        _ => return uncovered(format!("no rule for the stage `{}` of a {}", row.stage, role.word())),
    };
    let extents = if let Some(video) = case.video() { video.to_vec() } else { case.numbers.clone() };
    let key: Vec<String> = extents.iter().chain([&batch]).map(u64::to_string).collect();
    let too_large = || Why::NotCovered("a size beyond what the rules count in".to_owned());
    Ok(Derived {
        component: component.component.clone(),
        peaks: peaks(&part).ok_or_else(too_large)?,
        work: if role_is_vae(role) { Work::Vae } else { Work::Plain },
        geometry: key.join("x"),
        video: case.video().map(|[height, width, frames]| [height * width, frames, batch]),
    })
}

fn role_is_vae(role: Role) -> bool {
    role == Role::Vae
}

/// What the pipelines pad a prompt to.
const TEXT_TOKENS: u64 = 512;
/// Tile sizes of diffusers' class where a row only says that it was tiled.
const TILING: Tiling = Tiling { tile: [256, 256], stride: [192, 192], temporal: None };
