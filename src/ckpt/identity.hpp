// ckpt/identity.hpp — which save of which run a file is of.
//
// Checksums tell that a file is as it was written, not that it belongs to the others. So
// manifest.json, index.h5 and every shard carry the same identity, and whoever opens a
// checkpoint compares them: an index or a shard of another step, of another save of the
// same step, or of another run is found.
#ifndef TRIREME_CKPT_IDENTITY_HPP_
#define TRIREME_CKPT_IDENTITY_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::ckpt {

struct Identity {
  std::string run;   // 32 hexadecimal digits, drawn when a run begins, kept by restarts
  std::string save;  // the same, drawn for each save
  std::int64_t step = 0;

  bool operator==(const Identity&) const = default;
  // "run 0123..., save 4567..., step 240", for people.
  std::string text() const;
};

// 32 hexadecimal digits from the system's source of randomness: no seed of a run, as two
// runs may well have the same.
std::string random_id();
inline constexpr std::size_t kIdLength = 32;
bool is_id(std::string_view text);

// What a checkpoint's directory is called, "step_00001000"; and back, none for other
// names.
std::string step_name(std::int64_t step);
std::optional<std::int64_t> step_of(const std::string& name);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_IDENTITY_HPP_
