// A library to preload: the lock of a file `.lock` is taken only when there is a file of
// the name in TRIREME_TEST_LOCK_GATE. NAME.reached says that the process has come so far.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef int Flock(int, int);

static const int kMostTurns = 12000;
static const useconds_t kTurn = 10000;  // 10 ms; two minutes together

// HDF5 locks files, too.
static int is_lock_file(int descriptor) {
  char link[32], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return strstr(path, "/.lock") != NULL;
}

int flock(int descriptor, int operation) {
  const char* gate = getenv("TRIREME_TEST_LOCK_GATE");
  if (gate != NULL && *gate != '\0' && is_lock_file(descriptor)) {
    char reached[PATH_MAX];
    snprintf(reached, sizeof(reached), "%s.reached", gate);
    const int file = open(reached, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0) close(file);
    for (int turn = 0; access(gate, F_OK) != 0 && turn < kMostTurns; ++turn) {
      usleep(kTurn);
    }
  }
  Flock* const system = (Flock*)dlsym(RTLD_NEXT, "flock");
  return system(descriptor, operation);
}
