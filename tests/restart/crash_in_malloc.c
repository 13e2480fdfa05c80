// A library to preload: the process crashes when it locks a file `.lock`. As
// TRIREME_TEST_CRASH says, "malloc" within malloc(), with its lock held, as where the heap
// is damaged or the stack overflows, or "plain" by a read of address 16.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef int Flock(int, int);

// glibc keeps a freed chunk of this size in a list that the next larger request walks.
static void crash_in_malloc(void) {
  volatile size_t* volatile freed = malloc(0x1500);
  void* volatile guard = malloc(0x1500);  // keeps it apart from what is free behind it
  free((void*)freed);
  freed[1] = 0x4141414141414140;  // its neighbour in the list
  void* volatile larger = malloc(0x2500);
  free(larger);
  free(guard);
}

static void crash_plainly(void) {
  volatile int* volatile nowhere = (volatile int*)16;
  *nowhere = 1;
}

static int is_lock_file(int descriptor) {
  char link[32], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return strstr(path, "/.lock") != NULL;
}

int flock(int descriptor, int operation) {
  const char* crash = getenv("TRIREME_TEST_CRASH");
  if (crash != NULL && is_lock_file(descriptor)) {
    if (strcmp(crash, "malloc") == 0) crash_in_malloc();
    if (strcmp(crash, "plain") == 0) crash_plainly();
  }
  Flock* const system = (Flock*)dlsym(RTLD_NEXT, "flock");
  return system(descriptor, operation);
}
