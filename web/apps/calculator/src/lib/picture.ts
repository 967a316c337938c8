// The chart as a picture: the drawing with its styles written out, on the page's own ground, with the answer above it.

const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "paint-order", "opacity", "font-family", "font-size", "font-weight"];

function wrapped(text: string, letters: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > letters) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** A copy that stands alone: no style sheet, nothing from elsewhere. */
export function standalone(svg: SVGSVGElement, title: string): { text: string; width: number; height: number } {
  const style = getComputedStyle(document.documentElement);
  const body = getComputedStyle(document.body);
  const [ground, ink] = [getComputedStyle(svg.closest(".card") ?? document.body).backgroundColor, body.color];
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const [from, to] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((element, place) => {
    const computed = getComputedStyle(element);
    const target = to[place];
    if (!target) return;
    for (const name of DRAWN) {
      const value = computed.getPropertyValue(name);
      if (value !== "" && !(name === "fill" && value.startsWith("url"))) target.setAttribute(name, value);
    }
    for (const attribute of ["class", "tabindex", "role", "aria-label", "aria-pressed", "data-at"]) target.removeAttribute(attribute);
  });
  const [width, height] = [svg.width.baseVal.value, svg.height.baseVal.value];
  const pad = 20;
  const lines = wrapped(title, Math.floor((width - 4) / 7.6));
  const head = pad + lines.length * 20 + 8;
  copy.setAttribute("x", String(pad));
  copy.setAttribute("y", String(head));
  const escape = (text: string) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const words = lines.map((line, n) => `<text x="${pad}" y="${pad + 14 + n * 20}">${escape(line)}</text>`).join("");
  const [w, h] = [width + 2 * pad, height + head + pad];
  const text =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" style="color-scheme:${style.colorScheme}">` +
    `<rect width="100%" height="100%" fill="${ground}"/><g fill="${ink}" font-family="${escape(body.fontFamily).replace(/"/g, "'")}" font-size="15" font-weight="600">${words}</g>` +
    `${new XMLSerializer().serializeToString(copy)}</svg>`;
  return { text, width: w, height: h };
}

async function png(svg: SVGSVGElement, title: string): Promise<Blob> {
  const { text, width, height } = standalone(svg, title);
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const picture = new Image();
    picture.src = url;
    await picture.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width * 2, height * 2];
    canvas.getContext("2d")?.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the canvas gave no picture"))), "image/png"),
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Copies the picture, or saves it where copying pictures is not allowed. Says which. */
export async function copyImage(svg: SVGSVGElement, title: string): Promise<string> {
  let blob: Blob;
  try {
    blob = await png(svg, title);
  } catch (error) {
    return `No picture could be made: ${error instanceof Error ? error.message : String(error)}.`;
  }
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    return "Image copied.";
  } catch {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = "memory.png";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    return "Your browser does not let pages copy pictures, so it was saved as memory.png.";
  }
}
