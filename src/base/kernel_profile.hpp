// base/kernel_profile.hpp — what was launched while it is in use: for each kernel, region
// and cost the calls and their time.
//
// Launches on an Exec whose timers profile_to() it come here (KernelCall in exec.hpp). A
// kernel that launches others is charged what they leave of its time; where it has a cost
// and they have none, they are parts of it, as the tiles of a matrix product are, and it
// is charged all of it. Calls of one label that differ in their cost (matrix products of
// several shapes) stay apart, so that each can be set against its own bound.
#ifndef TRIREME_BASE_KERNEL_PROFILE_HPP_
#define TRIREME_BASE_KERNEL_PROFILE_HPP_

#include <array>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/kernel_clock.hpp"
#include "base/tally.hpp"
#include "base/timers.hpp"
#include "base/types.hpp"

namespace trireme {

struct KernelRecord {
  const char* label = "";
  Section section = Section::other;
  Component component = Component::none;
  Cost cost;  // of one call
  index_t calls = 0;
  double seconds = 0.0;  // of all calls that are resolved
};

class KernelProfile {
 public:
  explicit KernelProfile(std::unique_ptr<KernelClock> clock);

  void begin(const Kernel& kernel, Section section, Component component);
  void end();
  // A component's code is entered.
  void note_visit(Section section, Component component) {
    ++visits_[static_cast<std::size_t>(section)][static_cast<std::size_t>(component)];
  }

  // Waits for what was launched, and takes its time over to the records.
  void resolve();
  const std::vector<KernelRecord>& records() const { return records_; }
  index_t visits(Section section, Component component) const {
    return visits_[static_cast<std::size_t>(section)]
                  [static_cast<std::size_t>(component)];
  }

 private:
  struct Key {
    const char* label;
    Section section;
    Component component;
    double flops, masked_flops;
    index_t bytes;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  struct Stretch {
    std::size_t record;
    std::size_t outer;  // the stretch that it lies in, or kNone
  };
  bool is_part(const Kernel& kernel) const;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::unique_ptr<KernelClock> clock_;
  std::vector<KernelRecord> records_;
  std::unordered_map<Key, std::size_t, Hash> numbers_;  // of records
  std::vector<Stretch> stretches_;                      // not resolved
  std::size_t open_ = kNone;                            // the innermost that runs
  int parts_ = 0;                                       // of it, that run
  std::array<std::array<index_t, kComponentCount>, kSectionCount> visits_{};
};

}  // namespace trireme

#endif  // TRIREME_BASE_KERNEL_PROFILE_HPP_
