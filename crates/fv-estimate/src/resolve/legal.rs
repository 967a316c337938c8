//! Which sizes and frame counts a deployment takes, from small to large.

use fv_spec::compiled::{Example, Model};

use super::request::{FrameRule, fps, frame_bounds, multiples, only_size};
pub use super::request::{MAX_BATCH, MAX_FRAMES, MAX_SIDE};
use super::{Context, Overrides};

/// The rules of one deployment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Legal {
    /// The smallest and the largest frame count, and from one to the next.
    first: u32,
    last: u32,
    step: u32,
    multiples: [u32; 2],
    /// The one size, where there is but one.
    only: Option<[u32; 2]>,
    /// Frames a second, where the model has a frame rate.
    pub fps: Option<f64>,
}

/// What `example` takes.
pub fn legal(model: &Model, example: &Example) -> Legal {
    let overrides = Overrides::default();
    let context = Context::new(model, example, &overrides);
    // What is wrong with a rate is said when a request is resolved.
    let fps = fps(&context, &mut Vec::new()).filter(|fps| *fps > 0.0);
    Legal { only: only_size(&context), ..Legal::new(FrameRule::of(&context), frame_bounds(&context), multiples(&context), fps) }
}

impl Legal {
    fn new(FrameRule { step, rest }: FrameRule, [least, most]: [u32; 2], multiples: [u32; 2], fps: Option<f64>) -> Self {
        let first = if rest == 0 { step } else { rest };
        let first = first + least.saturating_sub(first).div_ceil(step) * step;
        Self { first, last: most, step, multiples, only: None, fps }
    }

    /// How many frame counts are legal.
    pub fn frame_counts(&self) -> u32 {
        self.last.checked_sub(self.first).map_or(0, |rest| rest / self.step + 1)
    }

    /// The legal frame count at a place, from 0.
    pub fn frames(&self, place: u32) -> u32 {
        self.first.saturating_add(place.saturating_mul(self.step))
    }

    /// From one legal frame count to the next.
    pub fn frame_step(&self) -> u32 {
        self.step
    }

    /// What heights and widths are multiples of.
    pub fn multiples(&self) -> [u32; 2] {
        self.multiples
    }

    /// Height and width, where only one size is legal.
    pub fn only_size(&self) -> Option<[u32; 2]> {
        self.only
    }

    /// The place of a legal frame count; of others, that of the next smaller.
    pub fn place_of_frames(&self, frames: u32) -> u32 {
        frames.saturating_sub(self.first) / self.step
    }

    /// Whether a frame count is legal.
    pub fn takes_frames(&self, frames: u32) -> bool {
        (self.first..=self.last).contains(&frames) && self.frames(self.place_of_frames(frames)) == frames
    }

    /// Whether a size is legal.
    pub fn takes_size(&self, height: u32, width: u32) -> bool {
        let side = |side: u32, multiple: u32| (1..=MAX_SIDE).contains(&side) && side.is_multiple_of(multiple);
        side(height, self.multiples[0]) && side(width, self.multiples[1]) && self.only.is_none_or(|only| only == [height, width])
    }

    /// Sizes with the sides of `height` x `width` in the same ratio, as nearly as multiples allow, from small to large. The
    /// shorter side takes every legal value; a legal `height` x `width` is one of them.
    pub fn sizes(&self, height: u32, width: u32) -> Vec<[u32; 2]> {
        if let Some(only) = self.only {
            return vec![only];
        }
        let tall = height > width;
        let ([short, long], [step, other]) =
            if tall { ([width, height], [self.multiples[1], self.multiples[0]]) } else { ([height, width], self.multiples) };
        if short == 0 {
            return Vec::new();
        }
        let beside = |side: u32| {
            let wanted = u64::from(side) * u64::from(long);
            let unit = u64::from(short) * u64::from(other);
            // To the nearest multiple, and at least one.
            u32::try_from(((wanted + unit / 2) / unit).max(1) * u64::from(other)).ok().filter(|side| *side <= MAX_SIDE)
        };
        let all = (1..=MAX_SIDE / step).map(|n| n * step).map_while(|side| Some([side, beside(side)?]));
        all.map(|[short, long]| if tall { [long, short] } else { [short, long] }).collect()
    }

    /// The duration of so many frames.
    pub fn seconds(&self, frames: u32) -> Option<f64> {
        self.fps.map(|fps| f64::from(frames) / fps)
    }

    /// Which sizes are legal, in words.
    pub fn sizes_in_words(&self) -> String {
        match (self.only, self.multiples) {
            (Some([height, width]), _) => format!("allowed is {width}x{height} alone"),
            (None, [height, width]) if height == width => format!("allowed are multiples of {height} up to {MAX_SIDE}"),
            (None, [height, width]) => {
                format!("allowed are widths in multiples of {width} and heights in multiples of {height}, up to {MAX_SIDE}")
            }
        }
    }

    /// Which frame counts are legal, in words.
    pub fn frames_in_words(&self) -> String {
        let last = self.frames(self.frame_counts().saturating_sub(1));
        match self.step {
            1 => format!("allowed are {} to {last}", self.first),
            step => format!("allowed are {}, {} and so on in steps of {step}, up to {last}", self.frames(0), self.frames(1)),
        }
    }

    /// The largest legal side and frame count, in words.
    pub fn most(&self) -> String {
        format!("at most {MAX_SIDE} pixels a side and {} frames", self.frames(self.frame_counts().saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wan() -> Legal {
        Legal::new(FrameRule { step: 4, rest: 1 }, [1, MAX_FRAMES], [16, 16], Some(16.0))
    }

    #[test]
    fn frame_counts_are_numbered() {
        let legal = wan();
        assert_eq!([legal.frames(0), legal.frames(20), legal.frames(legal.frame_counts() - 1)], [1, 81, 16381]);
        for place in [0, 1, 20, legal.frame_counts() - 1] {
            assert_eq!(legal.place_of_frames(legal.frames(place)), place);
            assert!(legal.takes_frames(legal.frames(place)) && !legal.takes_frames(legal.frames(place) + 1));
        }
        assert!(!legal.takes_frames(0) && !legal.takes_frames(16385));
        let h3 = Legal::new(FrameRule { step: 17, rest: 5 }, [120, 360], [16, 16], None);
        assert_eq!([h3.frames(0), h3.frames(h3.frame_counts() - 1)], [124, 345]);
        assert!(h3.takes_frames(141) && !h3.takes_frames(107) && !h3.takes_frames(362));
        let plain = Legal::new(FrameRule { step: 1, rest: 0 }, [1, MAX_FRAMES], [16, 16], None);
        assert_eq!([plain.frames(0), plain.frames(1), plain.frame_counts()], [1, 2, 16384]);
        assert_eq!(legal.seconds(80), Some(5.0));
    }

    #[test]
    fn sizes_keep_the_ratio_and_grow() {
        let legal = wan();
        for (height, width) in [(480, 832), (832, 480), (720, 1280), (704, 1280), (16, 16), (16, 16384), (1024, 1024)] {
            let sizes = legal.sizes(height, width);
            assert!(sizes.contains(&[height, width]), "{height} {width}");
            assert!(sizes.iter().all(|[height, width]| legal.takes_size(*height, *width)));
            assert!(sizes.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1] && pair[0] != pair[1]));
        }
        assert_eq!(legal.sizes(480, 832)[..3], [[16, 32], [32, 48], [48, 80]]);
        assert!(legal.sizes(0, 832).is_empty());
        assert!(!legal.takes_size(0, 16) && !legal.takes_size(16, 16400) && !legal.takes_size(20, 16));
    }
}
