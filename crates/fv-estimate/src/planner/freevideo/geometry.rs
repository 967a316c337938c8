//! What a request becomes on the model: legal frames, latent frames, rows.

use fv_spec::plan::budget::Resource;

use super::constants::{HALVED_FROM, LEAST_SIDE};
use super::facts::Canvas;
use crate::error::{InputError, readable};
use crate::minimax_h3::geometry::{ROW, latent_frames};
use crate::resolve::legal::{MAX_FRAMES, MAX_SIDE};

/// Pixels that sides are multiples of.
#[expect(clippy::cast_possible_truncation, reason = "32")]
const STEP: u32 = ROW as u32;
/// Frames a second.
pub const FPS: u32 = 24;
/// The least frames: twelve latent ones.
pub const LEAST_FRAMES: u32 = 39;
/// Frames are 5 more than a multiple of 17.
pub(super) const FRAME_STEP: u32 = 17;
const FRAME_REST: u32 = 5;

/// The next legal number of frames that is no smaller; at most [`MAX_FRAMES`] are asked for.
fn aligned(frames: u32) -> u32 {
    frames + (FRAME_REST + FRAME_STEP - frames % FRAME_STEP) % FRAME_STEP
}

/// The legal number of frames that a request for `frames` becomes; nothing where the model makes no video of so few or many.
pub fn legal_frames(frames: u32) -> Option<u32> {
    (frames <= MAX_FRAMES).then(|| aligned(frames)).filter(|frames| *frames >= LEAST_FRAMES)
}

/// Frames of a duration, rounded up.
///
/// # Errors
/// Unless it is a positive number that gives at least [`LEAST_FRAMES`] and at most [`MAX_FRAMES`] frames.
pub(super) fn frames_of(seconds: f64) -> Result<u32, InputError> {
    let frames = seconds * f64::from(FPS);
    let wrong = || {
        let least = f64::from(LEAST_FRAMES) / f64::from(FPS);
        // Cut off to thousandths, so that what is said is allowed.
        let most = u64::from(MAX_FRAMES) * 1000 / u64::from(FPS);
        let (whole, part) = (most / 1000, most % 1000);
        let found = readable(seconds);
        let words = format!("from {least} ({LEAST_FRAMES} frames) to {whole}.{part:03} ({MAX_FRAMES} frames)");
        InputError::new("invalid-frames", format!("seconds: found {found}, allowed: {words}"))
    };
    if !(frames.is_finite() && frames > f64::from(LEAST_FRAMES - 1) && frames <= f64::from(MAX_FRAMES)) {
        return Err(wrong());
    }
    // Through text, since there is no checked conversion from floating point: to the nearest, and up where that is below.
    let near: u32 = format!("{frames:.0}").parse().map_err(|_| wrong())?;
    Ok(if f64::from(near) < frames { near + 1 } else { near })
}

/// A canvas of legal frames.
pub fn canvas(width: u32, height: u32, frames: u32) -> Canvas {
    let latent = latent_frames(frames.into());
    let video_tokens = latent * u64::from(width / STEP) * u64::from(height / STEP);
    Canvas { width, height, frames, latent_frames: u32::try_from(latent).unwrap_or(u32::MAX), video_tokens }
}

/// What is wrong with a size.
pub fn check_side(name: &str, side: u32, errors: &mut Vec<InputError>) {
    if !(LEAST_SIDE..=MAX_SIDE).contains(&side) {
        let message = format!("{name}: found {side}, allowed: multiples of {STEP} pixels from {LEAST_SIDE} to {MAX_SIDE}");
        errors.push(InputError::new("invalid-size", message));
    } else if !side.is_multiple_of(STEP) {
        let below = side / STEP * STEP;
        let message = format!("{name}: found {side}, allowed: multiples of {STEP} pixels; nearest: {below} or {}", below + STEP);
        errors.push(InputError::new("invalid-size", message));
    }
}

/// The first canvas of two passes, and whether it is a smaller one.
pub(in crate::planner) fn first_canvas(target: &Canvas) -> Canvas {
    let Canvas { width, height, frames, .. } = *target;
    let [width, height] =
        if width.min(height) >= HALVED_FROM { [width, height].map(|side| side.div_ceil(2 * STEP) * STEP) } else { smaller(width, height) };
    canvas(width, height, frames)
}

/// A smaller canvas with the sides in the same ratio: about half as many of its smallest units, and enough of them that the shorter
/// side keeps the least legal length. The same where there is none.
fn smaller(width: u32, height: u32) -> [u32; 2] {
    let [across, down] = [width / STEP, height / STEP];
    let common = gcd(across, down);
    let [across, down] = [across / common, down / common];
    let units = common.div_ceil(2).max((LEAST_SIDE / STEP).div_ceil(across.min(down)));
    if units >= common { [width, height] } else { [across * units * STEP, down * units * STEP] }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The pool's word in messages.
pub(super) fn pool_word(resource: Resource) -> &'static str {
    match resource {
        Resource::Vram => "device memory",
        Resource::Host => "host memory",
        Resource::Unified => "unified memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_rounded_up_to_five_more_than_a_multiple_of_seventeen() {
        for (asked, frames, latent) in
            [(1, 5, 2), (5, 5, 2), (6, 22, 7), (39, 39, 12), (40, 56, 17), (124, 124, 37), (240, 243, 72), (243, 243, 72), (345, 345, 102)]
        {
            assert_eq!(aligned(asked), frames, "{asked}");
            assert_eq!(canvas(1344, 768, frames).latent_frames, latent, "{frames}");
        }
        for frames in 1..=MAX_FRAMES {
            let found = aligned(frames);
            assert!(found >= frames && found - frames < 17 && found % 17 == 5, "{frames}: {found}");
        }
    }

    #[test]
    fn tokens_of_the_reference_canvas() {
        for (frames, tokens) in [(39, 12_096), (124, 37_296), (243, 72_576), (345, 102_816), (362, 107_856), (481, 143_136)] {
            assert_eq!(canvas(1344, 768, frames).video_tokens, tokens);
        }
        assert_eq!(canvas(672, 384, 243).video_tokens, 18_144);
        assert_eq!(canvas(1920, 1088, 362).video_tokens, 218_280);
    }

    #[test]
    fn durations_are_rounded_up() {
        for (seconds, frames) in [(1.6, 39), (1.625, 39), (10.0, 240), (10.125, 243), (10.1251, 244)] {
            assert_eq!(frames_of(seconds).ok(), Some(frames), "{seconds}");
        }
        for seconds in [0.0, 0.001, 1.5, -1.0, f64::NAN, f64::INFINITY, 1e9, 682.667] {
            let message = frames_of(seconds).expect_err("not as many frames as are made").message;
            assert!(message.ends_with("allowed: from 1.625 (39 frames) to 682.666 (16384 frames)"), "{seconds}: {message}");
        }
        assert_eq!(frames_of(682.666).ok(), Some(16_384));
    }

    #[test]
    fn the_first_canvas() {
        for (target, first) in [
            ([1344, 768], [672, 384]),
            ([1920, 1088], [960, 544]),
            ([512, 512], [256, 256]),
            ([544, 960], [288, 480]),
            // Shorter than 512: half of the common multiple, but no side below 256.
            ([768, 448], [768, 448]),
            ([480, 480], [256, 256]),
            ([960, 480], [512, 256]),
            ([256, 256], [256, 256]),
        ] {
            let found = first_canvas(&canvas(target[0], target[1], 243));
            assert_eq!([found.width, found.height], first, "{target:?}");
        }
    }
}
