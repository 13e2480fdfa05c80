// base/log.cpp — see log.hpp.
#include "base/log.hpp"

#include <cstdio>

namespace trireme {

void Log::write_info(const std::string& text) {
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
}

void Log::write_warning(const std::string& text) {
  warnings_.push_back(text);
  if (speaks_) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

}  // namespace trireme
