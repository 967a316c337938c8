// From what a person chose to what the estimator is asked.

import { customDevice } from "./command.ts";
import type { Choice, DeviceChoice, Json, RequestChoice } from "./link.ts";
import type { Device, Example, Hardware, Model } from "./types.ts";

/** One question, as the estimator takes it. Plain data, so that it can go to a worker. */
export interface Question {
  /** The deployment's id. */
  config: string;
  workload: RequestChoice;
  model: Model;
  hardware?: Hardware;
  memoryBudgetGiB?: number;
  partitionId?: string;
  allocationMemoryGb?: number;
  hostMemoryGb?: number;
  settings?: Record<string, Json>;
  env?: Record<string, string>;
}

/** The deployment that is meant: the one that is named, otherwise the first. */
export function deployment(model: Model, id: string | undefined): Example | undefined {
  return id === undefined ? model.examples[0] : model.examples.find((example) => example.id === id);
}

/** The estimator knows devices by identity, so the same description stays the same object. */
let described: { text: string; device: Hardware } | undefined;
function own(device: Extract<DeviceChoice, { kind: "custom" }>): Hardware {
  const text = JSON.stringify(device);
  if (described?.text !== text) described = { text, device: customDevice(device) };
  return described.device;
}

export function question(choice: Choice, model: Model, config: Example, device: Device | undefined): Question {
  const chosen: DeviceChoice | undefined = choice.device;
  const hardware = chosen?.kind === "custom" ? own(chosen) : device;
  return {
    config: config.id,
    model,
    workload: { ...choice.request },
    ...(hardware !== undefined && { hardware }),
    ...(choice.budgetGiB !== undefined && { memoryBudgetGiB: choice.budgetGiB }),
    ...(chosen?.kind === "catalog" && chosen.partition !== undefined && { partitionId: chosen.partition }),
    ...(choice.allocationGb !== undefined && { allocationMemoryGb: choice.allocationGb }),
    ...(choice.hostGb !== undefined && { hostMemoryGb: choice.hostGb }),
    ...(Object.keys(choice.settings).length > 0 && { settings: { ...choice.settings } }),
    ...(Object.keys(choice.environment).length > 0 && { env: { ...choice.environment } }),
  };
}

/** The same on another device, with nothing that belongs to the first one alone. */
export function elsewhere(asked: Question, device: Device): Question {
  const { memoryBudgetGiB: _budget, partitionId: _partition, allocationMemoryGb: _allocation, ...rest } = asked;
  return { ...rest, hardware: device };
}
