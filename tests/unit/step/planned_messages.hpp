// The messages of a step as its plan has them, each site once, for tests that know how
// many they are by a formula.
#ifndef TRIREME_UNIT_STEP_PLANNED_MESSAGES_HPP_
#define TRIREME_UNIT_STEP_PLANNED_MESSAGES_HPP_

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/tally.hpp"

namespace trireme::test {

// (axis, site, operation) -> calls and elements of all of them.
using Messages =
    std::map<std::array<std::string, 3>, std::pair<std::int64_t, std::int64_t>>;

inline Messages messages_of(const Tally& tally) {
  Messages messages;
  for (const MessageTally& message : tally.messages()) {
    const bool is_double = message.site == "loss totals" ||
                           message.site == "gradient norm" ||
                           message.site == "objective counts";
    EXPECT_EQ(message.bytes, message.elements * (is_double ? 8 : 4)) << message.site;
    const bool is_new = messages
                            .insert({{message.axis, std::string(message.site),
                                      std::string(message.operation)},
                                     {message.calls, message.elements}})
                            .second;
    EXPECT_TRUE(is_new) << message.site << " stands there twice";
  }
  return messages;
}

}  // namespace trireme::test

#endif  // TRIREME_UNIT_STEP_PLANNED_MESSAGES_HPP_
