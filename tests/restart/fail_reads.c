// A library to preload, for reads of files whose path contains a text. Those of the text
// of TRIREME_TEST_FAIL_READS fail as those of a broken disk do; those of the text of
// TRIREME_TEST_NOTE_READS that begin at a file's beginning are noted in the file
// TRIREME_TEST_NOTES, one line with the number of bytes for each. (No data of a
// checkpoint are read but by pread, HDF5's neither.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t Read(int, void*, size_t, off64_t);

static int is_meant(int descriptor, const char* variable) {
  const char* part = getenv(variable);
  if (part == NULL || *part == '\0') return 0;
  char link[32], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return strstr(path, part) != NULL;
}

static ssize_t read_or_fail(int descriptor, void* to, size_t bytes, off64_t at) {
  if (is_meant(descriptor, "TRIREME_TEST_FAIL_READS")) {
    errno = EIO;
    return -1;
  }
  if (at == 0 && is_meant(descriptor, "TRIREME_TEST_NOTE_READS")) {
    FILE* const notes = fopen(getenv("TRIREME_TEST_NOTES"), "a");
    fprintf(notes, "%zu\n", bytes);
    fclose(notes);
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
