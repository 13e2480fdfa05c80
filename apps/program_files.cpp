// apps/program_files.cpp — see program_files.hpp.
#include "apps/program_files.hpp"

#include <system_error>

namespace trireme::apps {

std::filesystem::path program_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

std::filesystem::path shared_files() {
  return program_path().parent_path().parent_path() / "share" / "trireme";
}

}  // namespace trireme::apps
