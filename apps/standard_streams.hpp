// apps/standard_streams.hpp — descriptors 0, 1 and 2, and whether what was printed has
// arrived.
#ifndef TRIREME_APPS_STANDARD_STREAMS_HPP_
#define TRIREME_APPS_STANDARD_STREAMS_HPP_

#include <string>

namespace trireme::apps {

// Where a caller has closed one of them (>&-), the next file or pipe that is opened would
// take its number, and what is printed would go there. /dev/null takes it, opened the
// other way round, so that reading and writing fail as on a closed stream. Before
// anything else is opened.
void hold_standard_streams();

// Hands over what was printed to stdout. What is wrong; empty: all has arrived.
std::string flush_output();

}  // namespace trireme::apps

#endif  // TRIREME_APPS_STANDARD_STREAMS_HPP_
