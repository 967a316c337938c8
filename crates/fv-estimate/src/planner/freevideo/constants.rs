//! The policy's own figures. Source: FlashML-org/FreeVideo (Apache-2.0), the adaptive planner's code as read on 2026-11-30, and
//! its document; docs/planner.md says where the two differ. Measured ones are from one H200 with FP8 on Linux.
//!
//! What the catalog knows of the model (blocks, widths, heads, the decoder's blocks) is not here.

/// 2^30 bytes.
pub(super) const GIB: i64 = 1 << 30;
/// 2^20 bytes.
pub(super) const MIB: i64 = 1 << 20;

/// Bytes of a transformer block in its eight-bit cache, int8 and FP8 alike.
pub const BLOCK: i64 = 432_500_000;
/// Blocks on the device that are aimed at, and the most that are ever kept there.
pub(super) const RESIDENT: [i64; 2] = [8, 44];

/// Rows of the packed sequence that activations were measured at; the middle one is the reference.
pub const ROWS: [i64; 3] = [41_472, REFERENCE_ROWS, 102_816];
/// Rows of 1344 x 768 pixels and 243 frames.
pub(super) const REFERENCE_ROWS: i64 = 72_576;
/// Pixels of that canvas.
pub(super) const REFERENCE_AREA: i64 = 1344 * 768;
/// Heads that one group takes, and what the whole device shows at these rows beside resident blocks, in hundredths of a GiB.
pub const NEEDS: [(u32, [i64; 3]); 3] = [(4, [611, 769, 997]), (8, [611, 803, 1053]), (16, [675, 1005, 1421])];

/// Hundredths of a GiB by which figures of the reference request grow when its rows double.
pub(super) const GROWTH: i64 = 460;
/// What the small ways need at the reference, in hundredths of a GiB: a table for groups of 8 and 4 heads, the allowance for
/// attention outputs on the device, the peak without weights, the peak with outputs on the host, the end of that way's range,
/// and the residual stream on the host as it is built and as it is admitted on Linux.
pub(super) const TABLE_8: i64 = 820;
pub(super) const TABLE_4: i64 = 760;
pub(super) const OUTPUTS: i64 = 30;
pub(super) const NO_WEIGHTS: i64 = 780;
pub(super) const HOST_OUTPUTS: i64 = 670;
pub(super) const HOST_OUTPUTS_END: i64 = 700;
pub(super) const RESIDUAL: i64 = 640;
pub(super) const RESIDUAL_ADMITTED: i64 = 625;
/// Rows and frames up to which Windows keeps groups of 8 heads with little memory.
pub(super) const SHORT: [i64; 2] = [18_144, 243];

/// The workspace on Windows: a constant and a part that grows with rows, in hundredths of a GiB.
pub(super) const WINDOWS_WORKSPACE: [i64; 2] = [650, 600];

/// The decoder's workspace on the reference canvas, in hundredths of a GiB; it grows with the area and never shrinks.
pub(super) const DECODER: i64 = 325;

/// Budgets of device memory in hundredths of a GiB: below the first is the small band, on Windows up to the second where the
/// workspace does not fit; second slots from the third, or from the fourth where the threshold is lower; wide groups of heads on
/// Windows and the whole decoder on the device from the last.
pub(super) const SMALL: i64 = 1000;
pub(super) const SMALL_WINDOWS: i64 = 1100;
pub(super) const SLOTS: i64 = 1400;
pub(super) const SLOTS_LOWER: i64 = 1350;
pub(super) const LARGE: i64 = 2000;

/// The least that is admitted, in hundredths of a GiB: device memory where the residual way needs more than this, host memory
/// for a request, and for its text encoder alone.
pub(super) const VRAM_MINIMUM: i64 = 500;
pub(super) const HOST_MINIMUM: i64 = 400;
pub(super) const ENCODER_HOST: i64 = 360;

/// Reserves of device memory in hundredths of a GiB: the least that may be given, which is also what little memory is relaxed
/// to; Windows's; the least and the most of a share of one part in forty. Memory below which reserves are relaxed.
pub(super) const RESERVE_LEAST: i64 = 20;
pub(super) const RESERVE_WINDOWS: i64 = 25;
pub(super) const RESERVE_VRAM: [i64; 2] = [50, 100];
pub(super) const RESERVE_VRAM_PART: i64 = 40;
pub(super) const RELAXED_BELOW: i64 = 1000;
/// Reserves of host memory: a share of one part in twenty, at least 1 GiB, on Windows 2 GiB, at most 4 GiB.
pub(super) const RESERVE_HOST_PART: i64 = 20;
pub(super) const RESERVE_HOST: [i64; 2] = [100, 400];
pub(super) const RESERVE_HOST_WINDOWS: i64 = 200;

/// Host memory for the transformer's work: with little device memory or outputs on the host, else; and what is kept beside it.
pub(super) const HOST_WORK: [i64; 2] = [200, 50];
pub(super) const HOST_BESIDE: i64 = 200;

/// The most that is page-locked where nothing is read from disk.
pub(super) const PIN_CEILING: i64 = 22_000_000_000;
/// Host memory left beside page-locked blocks, in hundredths of a GiB: where nothing is read from disk, and below so much budget;
/// with outputs on the device; with outputs on the host on Linux and on Windows, and how that grows with rows.
pub(super) const PIN_HEADROOM: i64 = 800;
pub(super) const PIN_HEADROOM_BELOW: i64 = 800;
pub(super) const PIN_HEADROOM_DEVICE: i64 = 350;
pub(super) const PIN_HEADROOM_HOST: [i64; 2] = [500, 800];
pub(super) const PIN_HEADROOM_GROWTH: i64 = 250;

/// Windows has the second slot from the lower budget with less host memory than this.
pub(super) const SLOTS_HOST: i64 = 800;

/// Rows of the feed-forward layer and of the projections at a time; windows together, and on Ampere from FP8 weights.
pub(super) const FEED_FORWARD_CHUNK: u32 = 2048;
pub(super) const PROJECTION_CHUNK: u32 = 1024;
pub(super) const WINDOW_BATCH: [u32; 2] = [4, 1];
/// Groups of heads in flight.
pub(super) const HEAD_PARALLELISM: u32 = 1;

/// Host memory in hundredths of a GiB: page-locked decoder blocks from, decoder blocks from disk below, and beside three copies of
/// the video in bytes the least at which it is kept whole.
pub(super) const DECODER_PINS: i64 = 1600;
pub(super) const DECODER_DISK: i64 = 1400;
pub(super) const DECODER_OUTPUT: i64 = 800;

/// Adapters: a constant beside two blocks' and the root's bytes, in MiB.
pub(super) const ADAPTER_MIB: i64 = 128;
/// Steps whose tables the measured working set holds.
pub(super) const TABLE_STEPS: u32 = 8;

/// Steps: the most of a pass, of a refining pass, and what is usual.
pub(super) const STEPS: u32 = 32;
pub(super) const REFINE_STEPS: u32 = 31;
pub(super) const USUAL_STEPS: u32 = 8;
pub(super) const USUAL_REFINE_STEPS: u32 = 3;
/// The usual canvas and length.
pub(super) const USUAL: [u32; 3] = [1344, 768, 243];
/// Text rows where nobody says how many.
pub const TEXT_TOKENS: u32 = 367;

/// Two passes: sides from which each is halved, the least of a smaller canvas, and the step of sizes, in pixels.
pub(super) const HALVED_FROM: u32 = 512;
pub(super) const LEAST_SIDE: u32 = 256;
/// Bytes of the checkpoint that scales up; its workspace is 2 GiB and six times a feature map of 512 channels in 16 bits, of which
/// at least 4 GiB.
pub(super) const UPSCALER: u64 = 690_592_672;
pub(super) const UPSCALER_GIB: [i64; 2] = [200, 400];
/// Device memory that the cache of blocks never takes, in MiB.
pub(super) const CACHE_MARGIN_MIB: i64 = 512;

/// macOS, in hundredths of a GiB: the least and the usual reserve, and the least that must be left.
pub(super) const UNIFIED_RESERVE: [i64; 2] = [100, 200];
pub(super) const UNIFIED_MINIMUM: i64 = 200;

/// Bytes of so many hundredths of a GiB, rounded down.
pub(super) const fn hundredths(value: i64) -> i64 {
    // At most some thousands of GiB are written here, so that the product stays far below 2^63.
    value * GIB / 100
}

/// Bytes of `value` hundredths of a GiB times `part` / `whole`, rounded towards zero.
pub(super) fn scaled(value: i64, part: i64, whole: i64) -> i64 {
    let exact = i128::from(value) * i128::from(GIB) * i128::from(part) / (i128::from(whole) * 100);
    i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN / 4 } else { i64::MAX / 4 })
}
