// run/run_log.hpp — log.txt: what a run says on the terminal, kept in its directory.
// Banner, progress, messages, warnings, tables and errors of all starts, one start after
// the other.
//
// Plain text, without escape sequences and with lines in place of the bar. Each text is
// one write of whole lines, past no buffer of ours: a killed start loses its last at
// most. What cannot be written (a full disk, another file of this name) is no reason to
// end a training, and is said once. Rank 0 only.
#ifndef TRIREME_RUN_RUN_LOG_HPP_
#define TRIREME_RUN_RUN_LOG_HPP_

#include <functional>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "io/files.hpp"

namespace trireme::run {

inline constexpr const char* kRunLogName = "log.txt";

class RunLog {
 public:
  using Warn = std::function<void(const std::string& problem)>;

  // `directory` is the run's; `title` begins what this start says. `warn` is called once
  // at most, and may write.
  RunLog(const io::Path& directory, std::string_view title, Warn warn);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // One or more lines, without the last newline.
  void write(std::string_view text);

 private:
  void open();
  void append(const std::string& lines);
  void complain(const std::string& problem);

  io::Path path_;
  Warn warn_;
  int file_ = -1;
  bool is_torn_ = false;  // the last line has no end
  bool has_complained_ = false;
};

// Collective. Rank 0 says what others have warned of and it has not, each thing once.
void warn_for_others(comm::Communicator& world, Log& log);

}  // namespace trireme::run

#endif  // TRIREME_RUN_RUN_LOG_HPP_
