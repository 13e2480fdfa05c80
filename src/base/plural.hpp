// base/plural.hpp — numbers of things in messages: "1 rank", "9,830 ranks".
#ifndef TRIREME_BASE_PLURAL_HPP_
#define TRIREME_BASE_PLURAL_HPP_

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// "9,830,400"
std::string format_grouped(std::int64_t count);
// "1 rank", "9,830 ranks"; of a unit whose plural has more than an s both forms are
// given: "1 batch", "2 batches".
std::string format_plural(std::int64_t count, std::string_view unit);
std::string format_plural(std::int64_t count, std::string_view unit,
                          std::string_view units);

}  // namespace trireme

#endif  // TRIREME_BASE_PLURAL_HPP_
