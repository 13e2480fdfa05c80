// base/log.hpp — messages for people. Results go to stdout, notices to stderr.
//
// There is no global logger: who has something to say is handed a Log. Rank 0 speaks;
// warnings are also kept, so that the end of a run can repeat them. What is said may be
// recorded in a file, too.
#ifndef TRIREME_BASE_LOG_HPP_
#define TRIREME_BASE_LOG_HPP_

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

namespace trireme {

class Log {
 public:
  // One text, of one or more lines, without its last newline.
  using Record = std::function<void(const std::string& text)>;

  // speaks: false on every rank but the first.
  explicit Log(bool speaks = true) : speaks_(speaks) {}

  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    if (speaks_) write_info(fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    write_warning(fmt::format(format, std::forward<Args>(args)...));
  }

  // Where this rank speaks: what it says from now on, and what it has said, goes to
  // `record`, too; a warning as it is printed. `record` lives as long as the log.
  void record_to(Record record);
  // Said by other means (a progress bar, the error at the end), or for the record alone.
  void record(const std::string& text);

  bool speaks() const { return speaks_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void write_info(const std::string& text);
  void write_warning(const std::string& text);

  bool speaks_;
  std::vector<std::string> warnings_;
  Record record_;
  std::vector<std::string> said_;  // while there is no record_
};

}  // namespace trireme

#endif  // TRIREME_BASE_LOG_HPP_
