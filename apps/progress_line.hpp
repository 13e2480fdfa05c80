// apps/progress_line.hpp — how far a long piece of work is, on stderr: redrawn ten times
// a second on a terminal, a line every ten seconds elsewhere; nothing of short work.
#ifndef TRIREME_APPS_PROGRESS_LINE_HPP_
#define TRIREME_APPS_PROGRESS_LINE_HPP_

#include <chrono>
#include <string>

namespace trireme::apps {

class ProgressLine {
 public:
  explicit ProgressLine(bool is_shown);
  ~ProgressLine();  // takes the line away again
  // A copy of the object shows a line of its own.
  ProgressLine(const ProgressLine& that) = default;
  ProgressLine& operator=(const ProgressLine&) = delete;

  double seconds() const;  // since it was made
  // Whether it is time for a text.
  bool is_due() const { return is_shown_ && seconds() >= next_; }
  void show(const std::string& text);

 private:
  bool is_shown_;
  bool is_terminal_;
  bool has_printed_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double next_ = 1.0;
};

}  // namespace trireme::apps

#endif  // TRIREME_APPS_PROGRESS_LINE_HPP_
