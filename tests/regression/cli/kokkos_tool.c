/* tests/regression/cli/kokkos_tool.c — a tool of Kokkos (KOKKOS_TOOLS_LIBS): writes what it
 * is told to the file TRIREME_KOKKOS_TOOL_FILE, a line each, two blanks further in within a
 * region:
 *
 *   region forward
 *     region norms
 *       kernel trireme::kernels::layer_norm_forward
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;
static int depth;

static void note(const char *what, const char *name) {
  if (file != NULL) fprintf(file, "%*s%s %s\n", 2 * depth, "", what, name);
}

void kokkosp_init_library(const int sequence, const uint64_t version,
                          const uint32_t devices, void *device_info) {
  (void)sequence, (void)version, (void)devices, (void)device_info;
  const char *name = getenv("TRIREME_KOKKOS_TOOL_FILE");
  if (name != NULL) file = fopen(name, "w");
}

void kokkosp_finalize_library(void) {
  note("end", depth == 0 ? "whole" : "open");
  if (file != NULL) fclose(file);
  file = NULL;
}

void kokkosp_begin_parallel_for(const char *name, const uint32_t device, uint64_t *id) {
  (void)device;
  *id = 0;
  note("kernel", name);
}

void kokkosp_push_profile_region(const char *name) {
  note("region", name);
  ++depth;
}

void kokkosp_pop_profile_region(void) { --depth; }
