// Settings that people change most, by runtime; every other one is in the table of all settings.

import type { Json } from "./link.ts";

export interface Main {
  key: string;
  label: string;
  kind: "flag" | "choice";
  options?: { value: Json; label: string }[];
  /** Whether it is a variable of the environment. */
  environment?: true;
}

const dtypes = (...names: string[]): { value: Json; label: string }[] => names.map((name) => ({ value: name, label: name }));
const flag = (key: string, label: string): Main => ({ key, label, kind: "flag" });

const DIFFUSERS: Main[] = [
  { key: "torch_dtype", label: "Weights and activations", kind: "choice", options: dtypes("bf16", "fp16", "fp32") },
  { key: "vae_dtype", label: "VAE", kind: "choice", options: dtypes("fp32", "bf16", "fp16") },
  flag("model_cpu_offload", "Offload whole models to the host"),
  flag("sequential_cpu_offload", "Offload layer by layer"),
  {
    key: "group_offload",
    label: "Offload in groups",
    kind: "choice",
    options: [
      { value: false, label: "off" },
      { value: "block_level", label: "blocks" },
      { value: "leaf_level", label: "leaves" },
    ],
  },
  flag("vae_tiling", "Decode in tiles"),
  flag("vae_slicing", "Decode one video at a time"),
];

const FASTVIDEO: Main[] = [
  { key: "dit_precision", label: "Transformer", kind: "choice", options: dtypes("bf16", "fp16", "fp32") },
  { key: "vae_precision", label: "VAE", kind: "choice", options: dtypes("fp32", "bf16", "fp16") },
  {
    key: "text_encoder_precisions",
    label: "Text encoder",
    kind: "choice",
    options: ["fp32", "bf16", "fp16"].map((name) => ({ value: [name], label: name })),
  },
  flag("dit_cpu_offload", "Offload the transformer"),
  flag("dit_layerwise_offload", "Offload it block by block"),
  flag("text_encoder_cpu_offload", "Offload the text encoder"),
  flag("vae_cpu_offload", "Offload the VAE"),
  flag("pin_cpu_memory", "Page-lock host memory"),
  flag("vae_tiling", "Decode in tiles"),
];

export function mainSettings(runtime: string): Main[] {
  if (runtime === "diffusers") return DIFFUSERS;
  return runtime === "fastvideo" ? FASTVIDEO : [];
}

export function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** What a person writes for a setting: JSON where it can be read so, otherwise text, as on the command line. */
export function written(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

const PROVENANCE: Record<string, string> = {
  authored: "authored",
  environment: "environment",
  runtime_default: "default",
  forced: "forced",
  planner: "planned",
  user: "yours",
};

const MEANING: Record<string, string> = {
  authored: "from the deployment's configuration",
  environment: "from the launch environment",
  default: "what the runtime does when nobody says",
  forced: "another setting forces it",
  planned: "chosen by the planner",
  yours: "you chose it",
};

export function provenance(name: string): { word: string; meaning: string } {
  const word = PROVENANCE[name] ?? name;
  return { word, meaning: MEANING[word] ?? word };
}

/** Families that a planner covers. */
export function isPlanned(model: { memory_rules: string } | undefined): boolean {
  return model?.memory_rules === "wan" || model?.memory_rules === "minimax_h3";
}
