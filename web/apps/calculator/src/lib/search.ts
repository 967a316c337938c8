// Finding a device or model by what people type: ids, aliases, "4090", "my MacBook 36 GB".

export interface Entry {
  id: string;
  name: string;
  /** Further names, and words that people use for it. */
  terms: string[];
  /** Memory in GB, where "36 GB" should find it. */
  memoryGb?: number;
}

/** Words that say nothing about which one is meant. */
const EMPTY = new Set(["my", "a", "an", "the", "with", "of", "and", "gpu", "card", "graphics", "on", "memory", "ram", "vram"]);

/** Lower case, with letters and digits apart from everything else and from each other where they change: rtx4090 is rtx 4090. */
export function tokens(text: string): string[] {
  const parts = text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f]/g, "").split(/[^a-z0-9.]+/);
  return parts.map((part) => part.replace(/^\.+|\.+$/g, "")).filter((part) => part !== "");
}

interface Query {
  words: string[];
  /** Sizes such as 36gb. */
  sizes: number[];
}

function understand(text: string): Query {
  const found = tokens(text);
  const words: string[] = [];
  const sizes: number[] = [];
  for (let at = 0; at < found.length; at += 1) {
    const word = found[at] ?? "";
    const joined = /^(\d+(?:\.\d+)?)(?:g|gb|gib)$/.exec(word);
    const next = found[at + 1] ?? "";
    if (joined) sizes.push(Number(joined[1]));
    else if (/^\d+(?:\.\d+)?$/.test(word) && /^(?:g|gb|gib)$/.test(next)) {
      sizes.push(Number(word));
      at += 1;
    } else words.push(word);
  }
  const telling = words.filter((word) => !EMPTY.has(word));
  // A query of empty words alone is still a query.
  return { words: telling.length > 0 || sizes.length > 0 ? telling : words, sizes };
}

interface Prepared {
  entry: Entry;
  words: string[];
  text: string;
  names: string[];
}

export type Index = Prepared[];

export function prepare(entries: Entry[]): Index {
  return entries.map((entry) => {
    const names = [entry.id, entry.name, ...entry.terms].map((name) => name.toLowerCase());
    const words = [...new Set(names.flatMap(tokens))];
    return { entry, names, words, text: words.join(" ") };
  });
}

/** What matches all of the words, best first. An exact name comes before everything else. */
export function find(index: Index, text: string, most = 50): Entry[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return index.slice(0, most).map((prepared) => prepared.entry);
  const query = understand(wanted);
  const squeezed = wanted.replace(/[^a-z0-9]/g, "");
  const ranked: { score: number; place: number; entry: Entry }[] = [];
  index.forEach((prepared, place) => {
    const score = rate(prepared, query, wanted, squeezed);
    if (score > 0) ranked.push({ score, place, entry: prepared.entry });
  });
  ranked.sort((a, b) => b.score - a.score || a.place - b.place);
  return ranked.slice(0, most).map((hit) => hit.entry);
}

function rate({ entry, words, names }: Prepared, query: Query, wanted: string, squeezed: string): number {
  if (names.includes(wanted)) return 1_000;
  if (squeezed.length > 2 && names.some((name) => name.replace(/[^a-z0-9]/g, "") === squeezed)) return 900;
  let score = 0;
  for (const size of query.sizes) {
    if (entry.memoryGb === undefined || Math.abs(entry.memoryGb - size) > size * 0.03) return 0;
    score += 30;
  }
  for (const word of query.words) {
    if (words.includes(word)) score += 20;
    else if (words.some((own) => own.startsWith(word))) score += 12;
    else if (word.length > 2 && words.some((own) => own.includes(word))) score += 5;
    // Written together: rtx4090, m3max.
    else if (word.length > 3 && names.some((name) => name.replace(/[^a-z0-9]/g, "").includes(word))) score += 8;
    else return 0;
  }
  // Of several that match alike, the one with the fewest further words is the plainest.
  return score > 0 ? score - words.length * 0.05 : 0;
}

interface Searchable {
  id: string;
  name: string;
  vendor: string;
  kind: string;
  family?: string;
  aliases?: string[];
  memory_gb: number;
  memory_type: string;
}

/** What a device is also called. */
export function deviceEntry(device: Searchable): Entry {
  const terms = [device.vendor, ...(device.aliases ?? []), ...(device.family ? [device.family] : [])];
  if (device.vendor === "apple") terms.push("macbook mac imac mini studio silicon");
  if (device.vendor === "amd" && device.kind === "gpu") terms.push("radeon");
  if (device.memory_type === "unified") terms.push("unified integrated");
  return { id: device.id, name: device.name, terms, memoryGb: device.memory_gb };
}
