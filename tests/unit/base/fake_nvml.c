/* A management library of one device, which draws 1500 mJ between two looks. It knows
 * that device by its UUID alone, and TRIREME_FAKE_NVML_FAILS makes a reading fail. */
#include <stdlib.h>
#include <string.h>

static unsigned long long drawn = 7000;
static int device;

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** found) {
  if (strcmp(uuid, "GPU-one") != 0) return 6; /* NVML_ERROR_NOT_FOUND */
  *found = &device;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void* of, unsigned long long* millijoules) {
  if (of != &device || getenv("TRIREME_FAKE_NVML_FAILS") != NULL) return 3;
  *millijoules = drawn;
  drawn += 1500;
  return 0;
}
