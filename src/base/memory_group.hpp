// base/memory_group.hpp — the control groups of Linux (version 2) that a process is in,
// by which a job or a container has a part of its node's memory.
#ifndef TRIREME_BASE_MEMORY_GROUP_HPP_
#define TRIREME_BASE_MEMORY_GROUP_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

struct MemoryGroup {
  std::int64_t limit = 0;  // bytes that all processes of it may have together
  // Bytes that are left of it. What files are kept there for later reading is given back
  // where memory is asked for, and counts as left.
  std::int64_t left = 0;
};

// Of the groups from the root down to the process' own the limit that is least, and what
// is left of the one that has least left; nothing where none has a limit. `root` is where
// they are mounted, `own` the text of /proc/self/cgroup.
std::optional<MemoryGroup> memory_group(const std::string& root, std::string_view own);

}  // namespace trireme

#endif  // TRIREME_BASE_MEMORY_GROUP_HPP_
