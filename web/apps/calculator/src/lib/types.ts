// What crosses from the estimator and the catalog: the package's types, which are made from schemas/.

import type { CapacityModel, Device } from "fv-estimator";

export type {
  Assessment,
  Buffer,
  BufferKind,
  Change,
  Clip,
  Decision,
  Device,
  Estimate,
  EvidenceMatch,
  Extent,
  Interval,
  LargestAnswer,
  Legal,
  Minimum,
  PeakBytes,
  Placement,
  Plan,
  Problem,
  Reason,
  Refusal,
  Stage,
  StageName,
  TimeForecast,
  Unplanned,
  Verdict,
} from "fv-estimator";

export type Model = CapacityModel;
export type Example = Model["examples"][number];
/** A device, or the description of one's own. */
export type Hardware = Device | import("fv-estimator").CustomDevice;
