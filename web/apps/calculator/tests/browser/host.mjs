// A static host as docs/deploy.md describes it: dist/ below /page/, with that page's policy, and nothing else.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const here = import.meta.dirname;
const dist = join(here, "../../dist");
const deploy = await readFile(join(here, "../../../../../docs/deploy.md"), "utf8");
const policy = /Content-Security-Policy: (.+)/.exec(deploy)?.[1];
if (!policy) throw new Error("docs/deploy.md names no Content-Security-Policy");
const kinds = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".wasm": "application/wasm", ".svg": "image/svg+xml", ".webmanifest": "application/manifest+json" };

createServer(async (request, response) => {
  const path = new URL(request.url ?? "", "http://host").pathname;
  const name = path === "/page/" ? "index.html" : normalize(path.replace(/^\/page\//, ""));
  try {
    if (!path.startsWith("/page/") || name.startsWith("..")) throw new Error("outside");
    const body = await readFile(join(dist, name));
    response.writeHead(200, { "content-type": kinds[extname(name)] ?? "application/octet-stream", "content-security-policy": policy, "cache-control": "no-cache" });
    response.end(body);
  } catch {
    response.writeHead(404, { "content-type": "text/plain" });
    response.end("not found\n");
  }
}).listen(Number(process.argv[2]), "127.0.0.1");
