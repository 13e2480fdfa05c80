// tests/slurm/stand_in.hpp — scripts that play SLURM's commands and the ranks.
#ifndef TRIREME_TESTS_SLURM_STAND_IN_HPP_
#define TRIREME_TESTS_SLURM_STAND_IN_HPP_

#include <filesystem>
#include <string>

#include "unit/io/scratch.hpp"

namespace trireme::test {

// A program of that name; of bash where its text does not say of what.
inline void spill_program(const std::filesystem::path& path, const std::string& text) {
  spill(path, (text.starts_with("#!") ? "" : "#!/bin/bash\n") + text);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SLURM_STAND_IN_HPP_
