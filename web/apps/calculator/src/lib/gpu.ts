// What a browser lets on about its GPU, as a suggestion only: the strings are for people, vague by design, and can be masked.

/** The words of a renderer's string that name a product, such as "GeForce RTX 3060" of an ANGLE string. */
export function productWords(renderer: string): string | undefined {
  if (/swiftshader|llvmpipe|softpipe|basic render|software/i.test(renderer)) return undefined;
  let text = renderer;
  // ANGLE (NVIDIA, NVIDIA GeForce RTX 3060 (0x00002504) Direct3D11 vs_5_0 ps_5_0, D3D11)
  const angle = /^ANGLE \(([^,]+),\s*(.+)\)$/s.exec(text);
  if (angle) text = (angle[2] ?? "").replace(/,\s*[^,]*$/, "");
  // ANGLE Metal Renderer: Apple M3 Max, Unspecified Version
  text = text.replace(/^ANGLE Metal Renderer:\s*/, "");
  text = text
    .replace(/\(0x[0-9a-f]+\)/gi, " ")
    .replace(/Direct3D\S*|vs_\S+|ps_\S+|OpenGL( Engine| ES)?( \d[\d.]*)?|Vulkan [\d.]+|PCIe?\/?SSE2|\/PCIe|\/SSE2/gi, " ")
    .replace(/\((TM|R|C)\)|[™®]/gi, " ")
    .replace(/, or similar/i, "")
    .replace(/\(.*?\)/g, " ")
    .replace(/\s+/g, " ")
    .trim();
  if (text === "" || /^(webkit webgl|mozilla)$/i.test(text)) return undefined;
  const product =
    /(GeForce )?(RTX|GTX) ?(PRO )?(A)?\d{3,4}( ?(Ti|SUPER|D|Ada))*( Laptop GPU)?/i.exec(text) ??
    /Radeon( \w+)*? (RX|PRO|VII)? ?\w+( XTX?| GRE| M)?/i.exec(text) ??
    /Apple M\d+( Pro| Max| Ultra)?/i.exec(text) ??
    /Arc( Pro)? [AB]\d{2,3}\w?/i.exec(text) ??
    /(NVIDIA )?(H\d00|A\d0+|L\d+S?|V100|T4|B\d00)\b/i.exec(text);
  return (product?.[0] ?? text).trim();
}

/** Every name that the browser gives, the most telling first. */
export async function gpuNames(): Promise<string[]> {
  const names: string[] = [];
  try {
    const canvas = document.createElement("canvas");
    const gl = canvas.getContext("webgl2") ?? canvas.getContext("webgl");
    if (gl) {
      const extension = gl.getExtension("WEBGL_debug_renderer_info");
      const renderer: unknown = gl.getParameter(extension ? extension.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
      if (typeof renderer === "string") names.push(renderer);
      gl.getExtension("WEBGL_lose_context")?.loseContext();
    }
  } catch {
    // No WebGL: WebGPU may still say something.
  }
  try {
    const gpu = (navigator as { gpu?: { requestAdapter(): Promise<{ info?: Record<string, string> } | null> } }).gpu;
    const info = (await gpu?.requestAdapter())?.info;
    const said = [info?.["description"], info?.["device"], [info?.["vendor"], info?.["architecture"]].filter(Boolean).join(" ")];
    names.push(...said.filter((name): name is string => typeof name === "string" && name.trim() !== ""));
  } catch {
    // No WebGPU.
  }
  return [...new Set(names)];
}
