//! The codes that decisions, alternatives, refusals and peaks give as their reason. Programs compare codes; people read
//! [`ReasonCode::meaning`].

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The codes with their meanings, declared once.
macro_rules! reasons {
    ($($name:ident $code:literal $meaning:literal;)*) => {
        words! {
            /// Why something was decided.
            ReasonCode { $(#[doc = $meaning] $name $code,)* }
        }

        impl ReasonCode {
            /// What it means, in a sentence without its full stop.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

reasons! {
    // Reserves.
    ReserveGiven "reserve-given" "the reserve was given";
    ReserveShare "reserve-share" "the reserve is a fixed share of what is free";
    ReserveFloor "reserve-floor" "the share of what is free is below the least reserve";
    ReserveCeiling "reserve-ceiling" "the share of what is free is above the largest reserve";
    ReserveFixed "reserve-fixed" "this system keeps a fixed reserve";
    ReserveRelaxed "reserve-relaxed" "with the usual reserve the working set would not fit, so the least reserve is kept";
    PlacementWorkspace "placement-workspace" "adapters, and the tables of more steps than the measured working set holds";
    RetentionDemonstrated "retention-demonstrated" "an earlier complete run of the same request got by with more";
    // Groups of heads.
    WidestHeadGroup "widest-head-group" "the widest group of heads whose measured working set fits the budget";
    NarrowestHeadGroup "narrowest-head-group" "no group's measured working set fits the budget, so the narrowest is taken";
    HeadGroupOfPath "head-group-of-path" "the way in which little memory is used goes with the narrowest group";
    HeadGroupNotTried "head-group-not-tried" "wider than this system starts with at this budget";
    HeadGroupConditions "head-group-conditions" "the wider group is kept for short and small requests with one attention implementation";
    WorkingSetTooLarge "working-set-too-large" "its measured working set exceeds the budget";
    WorkspaceTooLarge "workspace-too-large" "its workspace exceeds the budget";
    // Residency.
    VramLimit "vram-limit" "as many blocks as fit beside the working set";
    ResidentCeiling "resident-ceiling" "more blocks than this are never kept on the device";
    ResidentTarget "resident-target" "host memory keeps the rest, and more blocks on the device are hardly faster";
    HostCannotKeepMore "host-cannot-keep-more" "host memory cannot keep more blocks, so these stay on the device";
    SmallBandKeeps "small-band-keeps" "below the small budget the count that device memory allows is kept";
    // Disk.
    WeightsExceedHost "weights-exceed-host" "blocks off the device and the working memory exceed what host memory keeps";
    WeightsFitHost "weights-fit-host" "blocks off the device and the working memory fit into host memory";
    SystemStreams "system-streams" "this system reads blocks off the device from disk whenever there are any";
    // Page-locked memory.
    PinCeiling "pin-ceiling" "more is never page-locked";
    PinHeadroom "pin-headroom" "what host memory leaves above its headroom";
    PinEveryBlock "pin-every-block" "every block off the device is page-locked";
    PinBeyondFitting "pin-beyond-fitting" "as many as the device has no room for; more are off it, as fewer stay there than fit";
    PinAllOrNothing "pin-all-or-nothing" "below the small budget either every block off the device is page-locked or none";
    PinNothingLeft "pin-nothing-left" "host memory has nothing left above its headroom";
    // Slots.
    SlotsByLowerThreshold "slots-by-lower-threshold" "this system and card have the second slot from a lower budget on";
    SlotsByBudget "slots-by-budget" "from this budget on there is room for a second slot";
    SlotsBelowBudget "slots-below-budget" "below this budget there is one slot";
    SlotWorkspace "slot-workspace" "the second slot would take the workspace over the budget";
    SlotKeepsWeightsOffDisk "slot-keeps-weights-off-disk" "without the second slot every block off the device stays in host memory";
    SlotNarrowPath "slot-narrow-path" "the way in which little memory is used has one slot";
    // Activations.
    OutputsFit "outputs-fit" "attention outputs fit on the device";
    OutputsExceedAllowance "outputs-exceed-allowance" "the budget does not cover the working set and the allowance for attention outputs";
    ResidualFits "residual-fits" "the residual stream fits on the device";
    ResidualWithOutputs "residual-with-outputs" "attention outputs in host memory always bring the residual stream with them";
    RecomputeNotNeeded "recompute-not-needed" "the wide activation is kept";
    RecomputeInTrial "recompute-in-trial" "a trial below the admitted memory computes the wide activation again";
    CapacityTrial "capacity-trial" "a trial below the admitted memory, with everything in its smallest form";
    // Small budgets.
    PathTable "path-table" "the reserve of this group of heads fits the budget";
    PathNoWeights "path-no-weights" "free memory covers the peak without weights, so no block stays on the device";
    PathHostOutputs "path-host-outputs" "free memory covers the peak with attention outputs in host memory";
    PathResidual "path-residual" "the budget covers the peak with the residual stream in host memory";
    PathWorkspace "path-workspace" "the workspace exceeds the budget, so activations are kept in host memory";
    TableExceedsBudget "table-exceeds-budget" "the reserve of this group of heads exceeds the budget";
    NoWeightsExceedsFree "no-weights-exceeds-free" "the peak without weights exceeds free memory";
    HostOutputsOutOfRange "host-outputs-out-of-range" "memory is outside the range in which attention outputs alone go to host memory";
    // Computation.
    GemmByPrecision "gemm-by-precision" "the stored weights and the card decide how products are computed";
    AttentionFirstAvailable "attention-first-available" "the first in the order of preference that is available";
    AttentionAsked "attention-asked" "as asked for";
    AttentionUnavailable "attention-unavailable" "it is not available";
    AttentionLater "attention-later" "it comes later in the order of preference";
    PublishedConstant "published-constant" "the policy has one value";
    CardConstant "card-constant" "the policy has one value for this card and these weights";
    OnlyAfterSearch "only-after-search" "taken only after a search on the machine has found it faster";
    // Encoders and decoders.
    EncoderSeparate "encoder-separate" "the encoder's memory is free again before the transformer is loaded";
    ConditioningAtHand "conditioning-at-hand" "the encoder's output is at hand";
    DecoderWhole "decoder-whole" "from this budget on every block of the decoder is on the device";
    DecoderOffload "decoder-offload" "below this budget blocks of the decoder are copied to the device as they are needed";
    DecoderEveryBlock "decoder-every-block" "every block fits beside the decoder's workspace";
    DecoderSmallBand "decoder-small-band" "below the small budget there is one slot";
    DecoderNotOffloaded "decoder-not-offloaded" "every block is on the device";
    HostAbove "host-above" "host memory is at or above the threshold";
    HostBelow "host-below" "host memory is below the threshold";
    HostHoldsVideo "host-holds-video" "host memory holds the whole decoded video";
    HostCannotHoldVideo "host-cannot-hold-video" "host memory cannot hold the whole decoded video";
    CardHasHalfCache "card-has-half-cache" "this card and system keep the decoder's linear weights in FP16";
    CardHasNoHalfCache "card-has-no-half-cache" "this card and system keep the decoder's linear weights in FP32";
    UpscalerEstimate "upscaler-estimate" "an estimate of what scaling up between the passes takes";
    // Passes.
    TwoPassAsked "two-pass-asked" "two passes were asked for";
    SinglePassAsked "single-pass-asked" "one pass was asked for";
    HalfCanvas "half-canvas" "the first pass has half of each side, rounded up to a legal size";
    SmallCanvas "small-canvas" "the shorter side is too small to be halved, so the sides' ratio is kept with a smaller multiple";
    SameCanvas "same-canvas" "the canvas is too small for a smaller first pass";
    CacheByFirstPass "cache-by-first-pass" "as many blocks as the first pass has room for";
    CacheByFreeMemory "cache-by-free-memory" "as many blocks as the device has free at the time";
    // Peaks.
    MeasuredTable "measured-table" "a measured table of the whole device, blocks on the device added";
    WindowsWorkspace "windows-workspace" "the workspace that the policy reckons with on Windows, blocks on the device added";
    FixedReserve "fixed-reserve" "the policy's fixed reserve for this way to use little memory, blocks on the device added";
    DecoderWorkspace "decoder-workspace" "the decoder's workspace, blocks on the device added";
    HostAccount "host-account" "blocks in host memory and the policy's working memory";
    OverOwnFigure "over-own-figure" "the policy admits the request although its own table needs more than the budget";
    // The fastest plan.
    FastestWithinBudgets "fastest-within-budgets" "the fastest of all ways within both budgets, and of those that are as fast the one that moves least and has the fewest pieces";
    SlowerForecast "slower-forecast" "its forecast is at least a percent later";
    MovesMore "moves-more" "its forecast is within the same percent, and it moves more";
    MorePieces "more-pieces" "its forecast is within the same percent, it moves as much, and it has more pieces";
    ExceedsBudgets "exceeds-budgets" "no way with it fits both budgets";
    EveryBlockFits "every-block-fits" "every block fits beside what is computed";
    NothingRead "nothing-read" "host memory has room for every block that is not on the device";
    OwnKernels "own-kernels" "the runtime has one way to compute it";
    PrecisionAsked "precision-asked" "as asked for";
    PrecisionUnchanged "precision-unchanged" "weights are stored as they are computed with, unless other weights are asked for";
    UntiledFits "untiled-fits" "whole frames fit the budgets";
    NothingUntiledFits "nothing-untiled-fits" "no way to decode whole frames fits the budgets";
    PackedLayout "packed-layout" "the packed layout of the program, the context, and what the driver takes for page-locked memory";
    PackedHost "packed-host" "the packed layout of the program in page-locked memory";
    NoLayoutFits "no-layout-fits" "no way to compute fits the budget";
    EightBitWeights "eight-bit-weights" "store the weights of blocks in eight bits";
    // Refusals.
    BelowMinimum "below-minimum" "the budget is below the least that the policy admits";
    BelowWorkingSet "below-working-set" "no way to use little memory fits the budget";
    BelowUnified "below-unified" "what is left of the shared memory is below the least that the policy admits";
    // Changes.
    FreeVram "free-vram" "end other uses of the device's memory";
    FreeHost "free-host" "end other uses of host memory";
    LowerReserve "lower-reserve" "keep less in reserve";
    TryBelowMinimum "try-below-minimum" "try below the admitted memory";
    WithoutAdapter "without-adapter" "run without adapters";
    FewerSteps "fewer-steps" "take fewer steps, whose tables are smaller";
    FewerReferences "fewer-references" "give fewer or smaller references";
    // Revisions.
    OutOfMemory "out-of-memory" "the device ran out of memory";
    HostPressure "host-pressure" "host memory came under pressure";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unlike_each_other_and_are_what_is_written() {
        let mut codes: Vec<&str> = ReasonCode::ALL.iter().map(|reason| reason.word()).collect();
        for (reason, code) in ReasonCode::ALL.iter().zip(&codes) {
            assert_eq!(serde_json::to_value(reason).ok().as_ref().and_then(|value| value.as_str()), Some(*code));
            assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{code}");
            assert!(!reason.meaning().ends_with('.'), "{code}");
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ReasonCode::ALL.len());
    }
}
