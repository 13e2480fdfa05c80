// apps/progress_line.cpp — see progress_line.hpp.
#include "apps/progress_line.hpp"

#include <unistd.h>

#include <cstdio>

#include "base/wall_time.hpp"

namespace trireme::apps {

ProgressLine::ProgressLine(bool is_shown)
    : is_shown_(is_shown), is_terminal_(::isatty(2) == 1) {}

ProgressLine::~ProgressLine() {
  if (has_printed_ && is_terminal_) std::fputs("\r\033[K", stderr);
}

double ProgressLine::seconds() const {
  return seconds_since(begin_);
}

void ProgressLine::show(const std::string& text) {
  next_ = seconds() + (is_terminal_ ? 0.1 : 10.0);
  has_printed_ = true;
  std::fprintf(stderr, is_terminal_ ? "\r%s\033[K" : "%s\n", text.c_str());
  std::fflush(stderr);
}

}  // namespace trireme::apps
