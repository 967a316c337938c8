/* A CUDA driver with two devices, as far as a probe asks. FAKE_DRIVER says how it behaves. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *mode) {
  const char *set = getenv("FAKE_DRIVER");
  return set && !strcmp(set, mode);
}

int cuInit(unsigned flags) {
  if (is("hang")) sleep(600);
  if (is("crash")) abort();
  if (is("no-device")) return 100;
  if (is("stub")) return 34;
  return is("mismatch") ? 803 : 0;
}
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "Fake card", length); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, device ? 0xbb : 0xaa, 16); return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (device == 1 && is("crash-late")) abort();
  *context = (void *)(long)(device + 1);
  return device == 1 ? 2 : 0; /* the second is full */
}
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxGetCurrent(void **context) { *context = 0; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 9 : 0; /* compute capability 8.9, not integrated */
  return 0;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 20ul << 30; *total = 23ul << 30; return 0; }
int cuGetErrorName(int error, const char **name) {
  *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_NO_DEVICE";
  return 0;
}
int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }
