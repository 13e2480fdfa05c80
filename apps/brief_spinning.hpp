// apps/brief_spinning.hpp — how long the threads of a team wait for each other awake.
//
// Between two loops threads poll for the next one, and sleep when it does not come:
// libgomp after 300,000 polls, some milliseconds. On cores of their own that is never
// noticed, as loops follow each other within microseconds. On cores that others use, too,
// a thread spends the time that it gets on polls, and then has to wait for milliseconds
// when there is work. Waiting awake for as long as waking up would take (Karlin et al.
// 1990: at most twice the cost of knowing beforehand) loses little in both cases.
#ifndef TRIREME_APPS_BRIEF_SPINNING_HPP_
#define TRIREME_APPS_BRIEF_SPINNING_HPP_

namespace trireme::apps {

// Starts the program anew, once, with GOMP_SPINCOUNT set to what this CPU polls in some
// 100 microseconds: libgomp reads its settings before main() begins, and knows no call
// for this one. Returns where the environment says already how to wait (GOMP_SPINCOUNT,
// OMP_WAIT_POLICY), where nothing waits (one thread), or where that cannot be done (a
// loader was called with the program: `ld-linux.so trireme`), which costs speed on shared
// cores and nothing else.
void spin_briefly(char** argv);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_BRIEF_SPINNING_HPP_
