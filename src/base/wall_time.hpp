// base/wall_time.hpp — the time of day, for what outlives the process: files and logs.
#ifndef TRIREME_BASE_WALL_TIME_HPP_
#define TRIREME_BASE_WALL_TIME_HPP_

#include <string>

namespace trireme {

// Seconds since 1970.
double wall_seconds();
// "2025-03-01T12:30:05.250Z"
std::string iso_time(double wall_seconds);

}  // namespace trireme

#endif  // TRIREME_BASE_WALL_TIME_HPP_
