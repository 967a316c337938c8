// The calls of tests/conformance/calls.jsonl, answered by the WebAssembly build and compared with the native answers. Runs in Node and in
// Chromium alike: whoever runs it brings the module, the catalog, the calls and the kept estimates.

/**
 * @param glue The module's functions, started.
 * @param files `rules`, `hardware`, `calls`, `estimates`: texts of the files of these names. `model(id)`: the text of a model's file.
 * @param sha256 The digest of a text in hexadecimal, or a promise of it.
 * @returns How many calls were answered, and what differs.
 */
export async function conformance(glue, files, sha256) {
  const devices = new Map(JSON.parse(files.hardware).devices.map((device) => [device.id, JSON.stringify(device)]));
  const checked = (text) => {
    if (text.startsWith('{"error"')) throw new Error(text);
    return JSON.parse(text);
  };
  checked(glue.readRules(files.rules));
  checked(glue.readReference(devices.get("h200-sxm-141gb")));
  const estimates = new Map(
    lines(files.estimates).map((line) => {
      const [, name] = /^\{"vector":("(?:[^"\\]|\\.)*"),"estimate":/.exec(line);
      return [JSON.parse(name), line.slice(`{"vector":${name},"estimate":`.length, -1)];
    }),
  );
  const models = new Map();
  const differences = [];
  let exact = 0;
  const calls = lines(files.calls).map((line) => JSON.parse(line));
  for (const call of calls) {
    if (!models.has(call.model)) models.set(call.model, checked(glue.readModel(await files.model(call.model))));
    const device = (hardware) => checked(glue.readDevice(typeof hardware === "string" ? devices.get(hardware) : JSON.stringify(hardware)));
    const handles = [call.hardware].flat().map(device);
    // The order of keys is that of the line.
    const answer = ask(glue, call.function, models.get(call.model), handles, JSON.stringify(call.subject), JSON.stringify(call.options));
    handles.forEach((handle) => glue.forgetDevice(handle));
    const kept = call.options.withoutForecast ? estimates.get(call.vector) : undefined;
    if (kept?.startsWith("{")) {
      exact += 1;
      if (answer !== kept) differences.push(`${call.vector}: ${around(answer, kept)}`);
    }
    const bytes = new TextEncoder().encode(answer).length;
    const digest = await sha256(answer);
    if (bytes !== call.answer.bytes || digest !== call.answer.sha256) differences.push(`${call.vector}: ${bytes} bytes, ${digest}`);
  }
  return { calls: calls.length, exact, differences };
}

const lines = (text) => text.split("\n").filter((line) => line !== "");

function ask(glue, name, model, devices, subject, options) {
  const [device] = devices;
  switch (name) {
    case "legal":
      return glue.legal(model, subject);
    case "recommend":
      return glue.recommend(model, Uint32Array.from(devices), subject, options);
    case "largest":
      return glue.largest(Uint32Array.of(model), device, subject, options);
    case "minimum":
      return glue.minimum(model, device, Uint32Array.from(devices), subject, options);
    case "compare":
      return glue.compare(Uint32Array.of(model), Uint32Array.from(devices), subject, options);
    default:
      return glue[name](model, device, subject, options);
  }
}

function around(found, wanted) {
  let at = 0;
  while (found[at] === wanted[at]) at += 1;
  return `...${found.slice(Math.max(0, at - 60), at + 60)}... in place of ...${wanted.slice(Math.max(0, at - 60), at + 60)}...`;
}
