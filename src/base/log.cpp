// base/log.cpp — see log.hpp.
#include "base/log.hpp"

#include <cstdio>
#include <utility>

namespace trireme {

void Log::record_to(Record record) {
  if (!speaks_) return;
  record_ = std::move(record);
  for (const std::string& text : std::exchange(said_, {})) record_(text);
}

void Log::record(const std::string& text) {
  if (record_) {
    record_(text);
  } else if (speaks_) {
    said_.push_back(text);
  }
}

void Log::write_info(const std::string& text) {
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
  record(text);
}

void Log::write_warning(const std::string& text) {
  warnings_.push_back(text);
  if (!speaks_) return;
  const std::string line = "warning: " + text;
  std::fprintf(stderr, "%s\n", line.c_str());
  record(line);
}

}  // namespace trireme
