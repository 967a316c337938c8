//! The tensors of Wan's transformers and VAEs, in the order in which the classes declare them.
//! The sums are the parameter counts of the catalog, which a test holds for every Wan model.

use fv_spec::authored::Role;

use super::geometry::{Dit, FREQUENCIES, IMAGE_FEATURES, Vae};
use crate::modules::parameter::{Group, Parameter, Weights, kept, matrix, plain};

/// Positions of the rotary tables (`rope_max_seq_len`, Wan configuration).
const ROTARY_POSITIONS: u64 = 1024;

impl Dit {
    /// Weight and bias of a linear layer.
    fn linear(list: &mut Vec<Parameter>, inputs: u64, outputs: u64) {
        list.extend([plain(inputs * outputs), plain(outputs)]);
    }

    /// The same for a layer that quantisation covers.
    fn quantisable(list: &mut Vec<Parameter>, inputs: u64, outputs: u64) {
        list.extend([matrix(inputs, outputs), plain(outputs)]);
    }

    /// The parameters of one block.
    pub fn block_tensors(&self) -> Vec<Parameter> {
        let d = self.hidden;
        let mut list = vec![kept(6 * d)];
        for cross in [false, true] {
            for _ in 0..4 {
                Self::quantisable(&mut list, d, d);
            }
            list.extend([plain(d), plain(d)]);
            if cross && self.image_branch {
                for _ in 0..2 {
                    Self::linear(&mut list, d, d);
                }
                list.push(plain(d));
            }
        }
        if self.sparse_gate {
            Self::linear(&mut list, d, d);
        }
        list.extend([kept(d), kept(d)]);
        Self::quantisable(&mut list, d, self.ffn);
        Self::quantisable(&mut list, self.ffn, d);
        list
    }

    /// The rotary tables that diffusers' class holds beside its parameters: cosines and sines of 1,024 positions, in fp32 unless
    /// the whole model was cast.
    pub fn buffers(&self) -> [Parameter; 2] {
        [kept(ROTARY_POSITIONS * self.hidden / self.heads.max(1)); 2]
    }

    /// The transformer in `role` as it is loaded, with diffusers' rotary tables or without.
    pub fn weights(&self, role: Role, tables: bool) -> Weights {
        let buffers = if tables { self.buffers().to_vec() } else { Vec::new() };
        let groups = vec![Group { count: self.blocks, block: self.block_tensors() }];
        Weights { role, groups, buffers: buffers.len(), rest: buffers.into_iter().chain(self.other_tensors()).collect() }
    }

    /// The parameters outside the blocks.
    pub fn other_tensors(&self) -> Vec<Parameter> {
        let d = self.hidden;
        let patch: u64 = self.patch.iter().product();
        let mut list = vec![kept(2 * d)];
        Self::linear(&mut list, self.in_channels * patch, d);
        for (inputs, outputs) in [(FREQUENCIES, d), (d, d)] {
            list.extend([kept(inputs * outputs), kept(outputs)]);
        }
        Self::linear(&mut list, d, 6 * d);
        Self::linear(&mut list, self.text, d);
        Self::linear(&mut list, d, d);
        if self.image_branch {
            list.extend([kept(IMAGE_FEATURES), kept(IMAGE_FEATURES)]);
            Self::linear(&mut list, IMAGE_FEATURES, IMAGE_FEATURES);
            Self::linear(&mut list, IMAGE_FEATURES, d);
            list.extend([kept(d), kept(d)]);
        }
        Self::linear(&mut list, d, self.out_channels * patch);
        list
    }
}

/// Which halves of a VAE are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halves {
    /// Encoder and decoder.
    Both,
    /// The decoder and both small convolutions.
    Decoder,
}

impl Vae {
    fn convolution(list: &mut Vec<Parameter>, inputs: u64, outputs: u64, volume: u64) {
        list.extend([plain(inputs * outputs * volume), plain(outputs)]);
    }

    fn residual_block(list: &mut Vec<Parameter>, inputs: u64, outputs: u64) {
        list.push(plain(inputs));
        Self::convolution(list, inputs, outputs, 27);
        list.push(plain(outputs));
        Self::convolution(list, outputs, outputs, 27);
        if inputs != outputs {
            Self::convolution(list, inputs, outputs, 1);
        }
    }

    fn middle(list: &mut Vec<Parameter>, channels: u64) {
        Self::residual_block(list, channels, channels);
        Self::residual_block(list, channels, channels);
        list.push(plain(channels));
        Self::convolution(list, channels, 3 * channels, 1);
        Self::convolution(list, channels, channels, 1);
    }

    /// The parameters of the decoder.
    pub fn decoder_tensors(&self) -> Vec<Parameter> {
        let c = self.decoder_channels;
        let mut list = Vec::new();
        Self::convolution(&mut list, self.latent_channels, 4 * c, 27);
        Self::middle(&mut list, 4 * c);
        let levels = [(4 * c, 4 * c, Some(true)), (4 * c, 4 * c, Some(true)), (4 * c, 2 * c, Some(false)), (2 * c, c, None)];
        for (i, (inputs, width, up)) in levels.into_iter().enumerate() {
            // In Wan 2.1 upsampling halves the width, in Wan 2.2 it keeps it.
            let mut inputs = if self.residual || i == 0 { inputs } else { inputs / 2 };
            for _ in 0..3 {
                Self::residual_block(&mut list, inputs, width);
                inputs = width;
            }
            if let Some(time) = up {
                Self::convolution(&mut list, width, if self.residual { width } else { width / 2 }, 9);
                if time {
                    Self::convolution(&mut list, width, 2 * width, 3);
                }
            }
        }
        list.push(plain(c));
        Self::convolution(&mut list, c, self.output_channels, 27);
        list
    }

    /// The parameters of the encoder.
    pub fn encoder_tensors(&self) -> Vec<Parameter> {
        let c = self.encoder_channels;
        let mut list = Vec::new();
        Self::convolution(&mut list, 3 * self.pixel_patch * self.pixel_patch, c, 27);
        let levels = [(c, c, Some(false)), (c, 2 * c, Some(true)), (2 * c, 4 * c, Some(true)), (4 * c, 4 * c, None)];
        for (mut inputs, width, down) in levels {
            for _ in 0..2 {
                Self::residual_block(&mut list, inputs, width);
                inputs = width;
            }
            if let Some(time) = down {
                Self::convolution(&mut list, width, width, 9);
                if time {
                    Self::convolution(&mut list, width, width, 3);
                }
            }
        }
        Self::middle(&mut list, 4 * c);
        list.push(plain(4 * c));
        Self::convolution(&mut list, 4 * c, 2 * self.latent_channels, 27);
        list
    }

    /// The parameters of what is loaded.
    pub fn tensors(&self, halves: Halves) -> Vec<Parameter> {
        let mut list = if halves == Halves::Both { self.encoder_tensors() } else { Vec::new() };
        Self::convolution(&mut list, 2 * self.latent_channels, 2 * self.latent_channels, 1);
        Self::convolution(&mut list, self.latent_channels, self.latent_channels, 1);
        list.extend(self.decoder_tensors());
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(list: &[Parameter]) -> u64 {
        list.iter().map(|p| p.elements).sum()
    }

    #[test]
    fn the_tensors_add_up_to_the_published_counts() {
        let dit = |hidden, ffn, blocks, input, output, image_branch, sparse_gate| Dit {
            hidden,
            ffn,
            heads: hidden / 128,
            blocks,
            patch: [1, 2, 2],
            in_channels: input,
            out_channels: output,
            text: 4096,
            image_branch,
            sparse_gate,
        };
        for (name, dit, count) in [
            ("1.3B", dit(1536, 8960, 30, 16, 16, false, false), 1_418_996_800),
            ("1.3B with gates", dit(1536, 8960, 30, 16, 16, false, true), 1_489_821_760),
            ("14B", dit(5120, 13824, 40, 16, 16, false, false), 14_288_491_584),
            ("14B image to video", dit(5120, 13824, 40, 36, 16, true, false), 16_394_878_784),
            ("5B", dit(3072, 14336, 30, 48, 48, false, false), 4_999_787_712),
        ] {
            assert_eq!(sum(&dit.block_tensors()) * dit.blocks + sum(&dit.other_tensors()), count, "{name}");
        }
        assert_eq!(sum(&Vae::WAN21.tensors(Halves::Both)), 126_892_531);
        assert_eq!(sum(&Vae::WAN21.tensors(Halves::Decoder)), 73_296_659);
        assert_eq!(sum(&Vae::WAN22.tensors(Halves::Both)), 704_688_668);
    }
}
