// A library to preload: reads of every file whose path contains the text of
// TRIREME_TEST_FAIL_READS fail as those of a broken disk do. (No data of a checkpoint are
// read but by pread, HDF5's neither.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t Read(int, void*, size_t, off64_t);

static int fails(int descriptor) {
  const char* part = getenv("TRIREME_TEST_FAIL_READS");
  if (part == NULL || *part == '\0') return 0;
  char link[32], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return strstr(path, part) != NULL;
}

static ssize_t read_or_fail(int descriptor, void* to, size_t bytes, off64_t at) {
  if (fails(descriptor)) {
    errno = EIO;
    return -1;
  }
  Read* const system = (Read*)dlsym(RTLD_NEXT, "pread64");
  return system(descriptor, to, bytes, at);
}

ssize_t pread(int descriptor, void* to, size_t bytes, off_t at) {
  return read_or_fail(descriptor, to, bytes, at);
}

ssize_t pread64(int descriptor, void* to, size_t bytes, off64_t at) {
  return read_or_fail(descriptor, to, bytes, at);
}
