// base/temporary_name.hpp — names of what is not yet whole: ".NAME.tmp-HOST-PID-RANDOM".
//
// Who opens one says O_EXCL | O_NOFOLLOW: nobody can guess it, and a link that was
// planted under it is not written through. It says whose it is, so that what a killed
// process has left can be told from what another is writing.
#ifndef TRIREME_BASE_TEMPORARY_NAME_HPP_
#define TRIREME_BASE_TEMPORARY_NAME_HPP_

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

// For what shall be called `path`, in the same directory; another one at each call.
std::filesystem::path temporary_name(const std::filesystem::path& path);

// Made by temporary_name(), of this or an earlier version; more may follow it.
bool is_temporary(std::string_view name);

struct TemporaryOwner {
  std::string of;  // the name that it shall have
  std::string host;
  int process = 0;
};
// None where the name does not tell.
std::optional<TemporaryOwner> owner_of_temporary(std::string_view name);
// It may be at work still: a process of another host, or one of this host that is there.
bool may_be_alive(const TemporaryOwner& owner);

}  // namespace trireme

#endif  // TRIREME_BASE_TEMPORARY_NAME_HPP_
