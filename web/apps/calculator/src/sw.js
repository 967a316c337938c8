// Keeps the page usable without a network. Its own folder only: nothing else is ever asked for or kept.
const NAME = `calculator-${"VERSION"}`;
const FILES = ["FILES"];

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(NAME)
      // Past the HTTP cache: files without a hash in their name may be stale there.
      .then((cache) => cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" }))))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter((name) => name.startsWith("calculator-") && name !== NAME).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(self.registration.scope)) return;
  event.respondWith(
    caches.open(NAME).then(async (cache) => {
      const kept = await cache.match(request, { ignoreSearch: true });
      // Names with a hash never change: those are served from here first. The page and the catalog are asked for anew.
      if (kept && new URL(request.url).pathname.includes("/assets/")) return kept;
      try {
        const fresh = await fetch(request);
        return fresh.ok || !kept ? fresh : kept;
      } catch (error) {
        if (kept) return kept;
        throw error;
      }
    }),
  );
});
