//! Cases as benchmarks write them: `(480, 832, 81)b1`, `704x1280x121:bfloat16:tile=False params=704688668`, `512 tokens:bf16:b1`.

use fv_spec::authored::Dtype;

/// What a case says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the case")]
pub struct Case {
    /// Numbers of the geometry: height, width and frames; height and width; or tokens.
    pub numbers: Vec<u64>,
    /// Whether the number is one of tokens.
    pub tokens: bool,
    /// Videos, prompts or images.
    pub batch: Option<u64>,
    /// The type of weights and activations.
    pub dtype: Option<Dtype>,
    /// Whether the VAE was tiled.
    pub tiled: bool,
    /// Whether the VAE took one video of a batch at a time.
    pub sliced: bool,
    /// Whether each token had its own timestep.
    pub expand_timesteps: bool,
    /// Whether a text encoder was given a mask of the padding.
    pub masked: bool,
    /// Text tokens, where they are not the usual number.
    pub text_tokens: Option<u64>,
    /// The measured component's own count of parameters.
    pub parameters: Option<u64>,
    /// Words that mean nothing here.
    pub unknown: Vec<String>,
}

const MOST: u64 = 1 << 20;

impl Case {
    /// Reads a case. `Err` says what is wrong with its geometry.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut case = Self::default();
        let text = text.trim();
        let rest = if let Some(inner) = text.strip_prefix('(') {
            let (inner, rest) = inner.split_once(')').ok_or_else(|| format!("{text:?}: a parenthesis is not closed"))?;
            case.numbers = inner.split(',').map(|part| number(part.trim())).collect::<Result<_, _>>()?;
            rest
        } else {
            let end = text.find(|c: char| !(c.is_ascii_digit() || c == 'x')).unwrap_or(text.len());
            case.numbers = text[..end].split('x').map(number).collect::<Result<_, _>>()?;
            let rest = &text[end..];
            // Sound is counted in latents, which are its tokens.
            match ["tokens", "latents"].iter().find_map(|word| rest.trim_start().strip_prefix(word)) {
                Some(after) => {
                    case.tokens = true;
                    after
                }
                None => rest,
            }
        };
        for word in rest.split([':', ' ']).filter(|word| !word.is_empty()) {
            case.word(word);
        }
        if case.numbers.len() > 3 {
            return Err(format!("{text:?}: height, width and frames are three numbers"));
        }
        Ok(case)
    }

    fn word(&mut self, word: &str) {
        let value = |name: &str| word.strip_prefix(name);
        match word {
            "float32" | "fp32" => self.dtype = Some(Dtype::Fp32),
            "float16" | "fp16" => self.dtype = Some(Dtype::Fp16),
            "bfloat16" | "bf16" => self.dtype = Some(Dtype::Bf16),
            "tile=True" | "tile=true" | "tiled" => self.tiled = true,
            "tile=False" | "tile=false" => self.tiled = false,
            "slice" | "slice=True" => self.sliced = true,
            "slice=False" => self.sliced = false,
            "mask" => self.masked = true,
            "expand_timesteps" | "row" | "timesteps" => self.expand_timesteps = true,
            _ => {
                if let Some(n) = value("params=").and_then(|n| n.parse().ok()) {
                    self.parameters = Some(n);
                } else if let Some(n) = value("text").and_then(|n| n.parse().ok()).filter(|n| (1..=MOST).contains(n)) {
                    self.text_tokens = Some(n);
                } else if let Some(n) = value("b").and_then(|n| n.parse().ok()).filter(|n| (1..=4096).contains(n)) {
                    self.batch = Some(n);
                } else {
                    self.unknown.push(word.to_owned());
                }
            }
        }
    }

    /// Height, width and frames.
    pub fn video(&self) -> Option<[u64; 3]> {
        (!self.tokens).then(|| <[u64; 3]>::try_from(self.numbers.as_slice()).ok()).flatten()
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if (1..=MOST).contains(&n) => Ok(n),
        Ok(n) => Err(format!("{n} is not an extent between 1 and {MOST}")),
        Err(_) => Err(format!("found {text:?} where a number of the geometry is expected, as in (480, 832, 81) or 480x832x81")),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_was_seen_is_read() {
        let case = |text: &str| Case::read(text).unwrap();
        for text in
            ["(480, 832, 81)b1", "480x832x81", "480x832x81:bfloat16:tile=False params=704688668", "(480, 832, 81):float32:tile=True"]
        {
            assert_eq!(case(text).video(), Some([480, 832, 81]), "{text}");
            assert!(case(text).unknown.is_empty(), "{text}");
        }
        assert_eq!(case("(480, 832, 81)b2").batch, Some(2));
        assert_eq!(case("(352, 640, 17):bfloat16:tile=False:b2").batch, Some(2));
        assert!(case("(480, 832, 81):float32:tile=True").tiled);
        assert!(!case("(480, 832, 81):float32:tile=False").tiled);
        assert_eq!(case("704x1280x121:bfloat16:tile=False params=704688668").parameters, Some(704_688_668));
        assert!(case("(704, 1280, 121)b1:expand_timesteps").expand_timesteps);
        let tokens = case("512 tokens:bf16:b1");
        assert_eq!((tokens.tokens, tokens.numbers, tokens.dtype, tokens.batch), (true, vec![512], Some(Dtype::Bf16), Some(1)));
        assert_eq!(case("224x224:fp32:b2").numbers, [224, 224]);
        assert_eq!(case("480x832x243 text300").text_tokens, Some(300));
        assert_eq!(case("480x832x81:quanto").unknown, ["quanto"]);
        for text in ["", "a", "(480, 832", "(480, 832, -1)", "480x", "0x832x81", "1x2x3x4", "99999999999999999999x1x1"] {
            assert!(Case::read(text).is_err(), "{text:?}");
        }
    }
}
