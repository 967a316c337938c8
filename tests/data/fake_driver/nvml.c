/* NVML with two devices. Functions that a probe asks for and that are not here are those of a newer driver. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
static int asked;

int nvmlInit_v2(void) { return getenv("FAKE_NVML") ? atoi(getenv("FAKE_NVML")) : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, "580.00"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  if (strncmp(uuid, "GPU-", 4)) return 6; /* not found */
  *device = (void *)(long)(uuid[4] == 'a' ? 1 : 2);
  return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) { snprintf(name, length, "Fake card"); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  char digit = device == (void *)1 ? 'a' : 'b';
  snprintf(uuid, length, "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
  for (char *at = uuid; *at; at++) if (*at == 'x') *at = digit;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 8; *minor = 9; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *device, memory *found) {
  found->total = 24ull << 30;
  found->reserved = 1ull << 29;
  found->free = (22ull << 30) - (unsigned long long)asked * (1ull << 28); /* less each time, as with a context */
  found->used = found->total - found->free - found->reserved;
  asked++;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value) { *value = 0xffffffffu; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *value) { *value = 4; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *value) { *value = 16; return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) { return 3; /* not supported */ }
