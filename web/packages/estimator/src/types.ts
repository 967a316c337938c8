export type * from "./types.gen.js";

import type { Estimate } from "./types.gen.js";

type Stages = Estimate["stages"][number];

/** A request as asked for: sizes in pixels, and counts. */
export interface PartialRequest {
  height?: number;
  width?: number;
  num_frames?: number;
  /** In place of `num_frames`, where the family has a frame rate. */
  seconds?: number;
  batch?: number;
  guidance_scale?: number;
  num_inference_steps?: number;
  text_tokens?: number;
  references?: number;
}

/** Verdict, stage peaks and margin. */
export interface Summary {
  status: Estimate["status"];
  stages: { name: string; peakBytes: NonNullable<Stages["peakBytes"]> }[];
  /** Budget less the largest device peak; negative when it does not fit. */
  marginBytes?: number;
}

/** Which sizes and frame counts a deployment takes. */
export interface Legal {
  /** Every `step` from `first` to `last`. */
  frames: { first: number; last: number; step: number };
  /** Sides are multiples of these, in pixels. */
  multiples: { height: number; width: number };
  maxSide: number;
  /** The one size, where there is but one. */
  only?: { height: number; width: number };
  /** Frames a second, where the model has a frame rate. */
  fps?: number;
}

/** The estimator's version. */
export interface Version {
  version: string;
  /** Differs where another build may answer otherwise. */
  sources: string;
  /** Whether every family of models and every question is there. */
  whole: boolean;
}
