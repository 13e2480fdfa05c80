// A library to preload: the system's clock is TRIREME_TEST_CLOCK_SHIFT seconds ahead (or
// behind) from when there is a file of the name in TRIREME_TEST_CLOCK_GATE. No other
// clock is moved.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int is_shifted = 0;

static time_t shift(void) {
  const char* gate = getenv("TRIREME_TEST_CLOCK_GATE");
  const char* seconds = getenv("TRIREME_TEST_CLOCK_SHIFT");
  if (gate == NULL || seconds == NULL) return 0;
  if (!is_shifted && access(gate, F_OK) != 0) return 0;
  is_shifted = 1;
  return atol(seconds);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += shift();
  }
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec time;
  const int result = clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return result;
}

time_t time(time_t* now) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  if (now != NULL) *now = time.tv_sec;
  return time.tv_sec;
}
