// The estimator as the page uses it. Everything it says is JSON of the same kind as the command line's.

import * as estimator from "fv-estimator";
import type { Question } from "./ask.ts";
import type { Assessment, Hardware, Legal, Model, Reason } from "./types.ts";

export interface Engine {
  version(): string;
  assess(question: Question): Assessment;
  legal(of: { model: Model; config: string }): Legal;
}

/** What is wrong with a question, as the estimator says it; of any other error its message. */
export function problemsOf(error: unknown): Reason[] {
  if (error instanceof estimator.EstimatorError) return error.errors;
  return [{ code: "error", message: error instanceof Error ? error.message : String(error) }];
}

export async function loadEngine(): Promise<Engine> {
  await estimator.init();
  return {
    version: () => estimator.version().version,
    assess: (question) => estimator.assessCapacity(question),
    legal: (of) => estimator.legal(of),
  };
}

/** The questions that take longer, for a worker. */
export const slow = {
  largest: (question: Question & { hardware: Hardware }) => estimator.largest(question),
  minimum: (question: Question, devices: readonly Hardware[]) => estimator.minimum({ ...question, devices }),
  plan: (question: Question & { precision?: "bf16" | "fp8" | "int8" }) => estimator.planExecution(question),
  grid: (question: Question, axes: estimator.Axes): estimator.Grid => estimator.estimateGrid({ ...question, axes }),
};
export type Slow = typeof slow;

export type { Axes, Grid } from "fv-estimator";
