// data/draws.cpp — see draws.hpp.
#include "data/draws.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::data {

Draws::Draws(std::uint64_t seed, const SampleId& sample, Purpose purpose)
    : generator_{.seed = seed,
                 .owner = static_cast<std::uint64_t>(sample.window),
                 .layer = static_cast<std::uint16_t>(sample.epoch & 0xffff),
                 .site = static_cast<random::Site>(purpose),
                 .stream = random::Stream::samples},
      next_block_(static_cast<std::uint64_t>(sample.corpus) << 32) {}

std::uint32_t Draws::word() {
  if (taken_ == 4) {
    block_ = generator_.block(next_block_++);
    taken_ = 0;
  }
  return block_.word[taken_++];
}

index_t Draws::below(index_t n) {
  TRIREME_REQUIRE(n >= 1, "a draw below {}, expected 1 or more", n);
  const auto range = static_cast<std::uint64_t>(n);
  if (range > std::uint64_t{1} << 32) return below_many(range);
  // The product's high half is the result. Results have 2^32 / n words each, rounded down
  // or up: where the low half is below 2^32 mod n, it is one too many.
  const std::uint64_t surplus = (std::uint64_t{1} << 32) % range;
  std::uint64_t product = 0;
  do {
    product = word() * range;
  } while ((product & 0xffffffffu) < surplus);
  return static_cast<index_t>(product >> 32);
}

index_t Draws::below_many(std::uint64_t n) {
  const std::uint64_t surplus = (~std::uint64_t{0} % n + 1) % n;  // 2^64 mod n
  unsigned __int128 product = 0;
  do {
    const std::uint64_t high = word();
    product = static_cast<unsigned __int128>(high << 32 | word()) * n;
  } while (static_cast<std::uint64_t>(product) < surplus);
  return static_cast<index_t>(product >> 64);
}

bool Draws::happens(double probability) {
  return word() < probability * 4294967296.0;
}

void Draws::choose(index_t chosen, std::span<std::uint8_t> marks) {
  const auto all = std::ssize(marks);
  TRIREME_REQUIRE(chosen >= 0 && chosen <= all, "a choice of {} among {}", chosen, all);
  std::ranges::fill(marks, std::uint8_t{0});
  for (index_t last = all - chosen; last < all; ++last) {
    const auto drawn = static_cast<std::size_t>(below(last + 1));
    marks[marks[drawn] != 0 ? static_cast<std::size_t>(last) : drawn] = 1;
  }
}

}  // namespace trireme::data
