// base/temporary_name.hpp — names of what is not yet whole: ".NAME.tmp-HOST-PID-RANDOM".
//
// Who opens one says O_EXCL | O_NOFOLLOW: nobody can guess it, and a link that was
// planted under it is not written through. It says whose it is, so that what a killed
// process has left can be told from what another is writing.
#ifndef TRIREME_BASE_TEMPORARY_NAME_HPP_
#define TRIREME_BASE_TEMPORARY_NAME_HPP_

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// For what shall be called `path`, in the same directory; another one at each call.
std::filesystem::path temporary_name(const std::filesystem::path& path);

// The name that it shall have, where temporary_name() made this, of this or an earlier
// version, and more may follow it; else empty.
std::string_view name_to_be(std::string_view temporary);

struct TemporaryOwner {
  std::string of;  // the name that it shall have
  std::string host;
  int process = 0;
};
// The owner that a temporary name tells of; none where it does not tell.
std::optional<TemporaryOwner> owner_of_temporary(std::string_view name);
// What of a directory bears a temporary name for something that `is_wanted`: the one way
// to find what was left behind. Empty where the directory cannot be listed.
std::vector<std::filesystem::path> temporaries_in(
    const std::filesystem::path& directory,
    const std::function<bool(std::string_view)>& is_wanted);
// Whether the owner may be at work still: a process of another host, or one of this host
// that is there.
bool may_be_alive(const TemporaryOwner& owner);

}  // namespace trireme

#endif  // TRIREME_BASE_TEMPORARY_NAME_HPP_
