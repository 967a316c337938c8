//! How VAEs cut a video into tiles.

/// The sizes of the pieces of `extent`: each at most `piece`, one every `stride`, so that the last ones may be smaller.
pub(crate) fn pieces(extent: u64, piece: u64, stride: u64) -> Vec<u64> {
    let stride = stride.max(1);
    (0..extent.div_ceil(stride)).map(|i| piece.min(extent - i * stride)).collect()
}

/// Equal values that follow each other, with their number.
pub(crate) fn runs(values: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for value in values {
        match runs.last_mut() {
            Some((last, many)) if last == value => *many += 1,
            _ => runs.push((*value, 1)),
        }
    }
    runs
}
