// A library to preload into ranks that are more than cores: MPICH waits in its own calls
// (MPI_Init, MPI_Comm_split, MPI_Finalize) by asking UCX for messages again and again, and
// never gives up the core, which the rank that it waits for may need. On two cores eight
// ranks take 20 ms of each one's time to make a group so, and 1 ms in naps. Waits of
// Trireme's own ask by MPI_Test and nap themselves: they are left as they are. Where MPI is
// not on UCX nobody calls what is here, and tests take longer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <time.h>

typedef int Test(void*, int*, void*);
typedef unsigned Progress(void*);

static const int kTriesWithoutNap = 20;
static const struct timespec kNap = {0, 10000};  // 10 us

static _Thread_local int is_in_test = 0, tries = 0;

int MPI_Test(void* request, int* flag, void* status) {
  static Test* library = 0;
  if (library == 0) library = (Test*)dlsym(RTLD_NEXT, "PMPI_Test");
  is_in_test = 1;
  const int code = library(request, flag, status);
  is_in_test = 0;
  return code;
}

unsigned ucp_worker_progress(void* worker) {
  static Progress* library = 0;
  if (library == 0) library = (Progress*)dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned events = library(worker);
  if (events > 0 || is_in_test) {
    tries = 0;
  } else if (++tries <= kTriesWithoutNap) {
    sched_yield();
  } else {
    nanosleep(&kNap, 0);
  }
  return events;
}
