// The first question, whose answer comes with the page: the estimator is ten times the size of everything else, and is loaded once
// there is something to work out. `vite.config.ts` asks the same estimator when the page is built.

import { type Choice, write } from "./link.ts";
import type { Assessment, Legal } from "./types.ts";

export const FIRST: Choice = {
  model: "fastwan21",
  device: { kind: "catalog", id: "rtx-4090-24gb" },
  request: {},
  settings: {},
  environment: {},
  compare: [],
  view: "memory",
};

export interface Prepared {
  /** The link of the question. */
  link: string;
  assessment: Assessment;
  legal: Legal;
  /** The estimator's version. */
  version: string;
}

export const FILE = "catalog/first.json";

/** The prepared answer; nothing where there is none, or one to another question. */
export async function loadPrepared(signal: AbortSignal): Promise<Prepared | undefined> {
  try {
    const response = await fetch(new URL(FILE, document.baseURI), { signal });
    const prepared = (await response.json()) as Partial<Prepared>;
    return response.ok && prepared.link === write(FIRST) ? (prepared as Prepared) : undefined;
  } catch {
    // Then the estimator answers.
    return undefined;
  }
}
