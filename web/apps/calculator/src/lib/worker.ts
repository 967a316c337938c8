// Answers the questions that take longer, away from the page: typing is never held up.

import { type Slow, loadEngine, problemsOf, slow } from "./engine.ts";
import type { Question } from "./ask.ts";
import type { Device, Model, Reason } from "./types.ts";

export type Asked = { [Name in keyof Slow]: { id: number; name: Name; arguments: Parameters<Slow[Name]> } }[keyof Slow];
export type Told = { id: number; ns: number } & ({ answer: unknown } | { problems: Reason[] });

const ready = loadEngine();

/** The estimator knows models and devices by identity, and messages carry copies: the first copy of each stands for all. */
const kept = new Map<string, object>();
function first<T extends object>(key: string, copy: T): T {
  const known = kept.get(key) ?? copy;
  kept.set(key, known);
  return known as T;
}

function known(given: unknown[]): unknown[] {
  const [question, devices] = given as [Question, (Device & object)[] | undefined];
  const { model, hardware } = question as { model: Model; hardware?: Device & { custom?: boolean } };
  const same = {
    ...question,
    model: first(`model ${model.id}`, model),
    ...(hardware && { hardware: hardware.custom ? hardware : first(`device ${hardware.id}`, hardware) }),
  };
  return Array.isArray(devices) ? [same, devices.map((device) => first(`device ${device.id}`, device))] : [same, ...given.slice(1)];
}

addEventListener("message", async ({ data }: MessageEvent<Asked>) => {
  const { id, name } = data;
  let told: Told;
  const start = performance.now();
  try {
    await ready;
    const ask = slow[name] as (...arguments_: unknown[]) => unknown;
    const begun = performance.now();
    const answer = ask(...known(data.arguments));
    told = { id, ns: (performance.now() - begun) * 1e6, answer };
  } catch (error) {
    told = { id, ns: (performance.now() - start) * 1e6, problems: problemsOf(error) };
  }
  postMessage(told);
});
