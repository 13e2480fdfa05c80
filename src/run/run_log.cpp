// run/run_log.cpp — see run_log.hpp.
#include "run/run_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "base/format.hpp"

namespace trireme::run {

RunLog::RunLog(const io::Path& directory, std::string_view title, Warn warn)
    : path_(directory / kRunLogName), warn_(std::move(warn)) {
  open();
  write(fmt::format("=== {} ===", title));
}

RunLog::~RunLog() {
  if (file_ >= 0) ::close(file_);
}

void RunLog::open() {
  // A pipe of this name, without a reader, would be waited for; a link would be followed
  // to a file that is none of the run's.
  constexpr int kFlags =
      O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  file_ = ::open(path_.c_str(), kFlags, 0666);
  if (file_ < 0 && errno == ELOOP) {
    complain(fmt::format("'{}' is a link, which is not followed", path_.string()));
    return;
  }
  struct stat status = {};
  if (file_ < 0 || ::fstat(file_, &status) != 0) {
    complain(io::system_message("cannot write", path_, errno));
    return;
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(std::exchange(file_, -1));
    complain(fmt::format("'{}' is no regular file", path_.string()));
    return;
  }
  if (status.st_size == 0) return;
  char last = '\n';
  is_torn_ = ::pread(file_, &last, 1, status.st_size - 1) == 1 && last != '\n';
  append("\n");  // a blank line before this start
}

void RunLog::write(std::string_view text) {
  append(plain_text(text) + "\n");
}

void RunLog::append(const std::string& lines) {
  if (file_ < 0) return;
  const std::string all = (is_torn_ ? "\n" : "") + lines;
  const ssize_t put = ::write(file_, all.data(), all.size());
  if (put == static_cast<ssize_t>(all.size())) {
    is_torn_ = false;
    return;
  }
  const int error = put < 0 ? errno : ENOSPC;
  if (put > 0) is_torn_ = all[static_cast<std::size_t>(put) - 1] != '\n';
  complain(io::system_message("cannot write", path_, error));
}

void RunLog::complain(const std::string& problem) {
  if (std::exchange(has_complained_, true)) return;
  warn_(problem + "; training goes on, and what it says is not all kept there");
}

void warn_for_others(comm::Communicator& world, Log& log) {
  std::string mine;
  for (const std::string& warning : log.warnings()) mine += warning + '\0';
  const std::vector<std::string> all = world.gather_to_first(mine);
  std::set<std::string> said(log.warnings().begin(), log.warnings().end());
  if (world.rank() != 0) return;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t at = 0; at < all[rank].size();) {
      const std::size_t end = all[rank].find('\0', at);
      const std::string warning = all[rank].substr(at, end - at);
      if (said.insert(warning).second) log.warning("rank {}: {}", rank, warning);
      at = end + 1;
    }
  }
}

}  // namespace trireme::run
