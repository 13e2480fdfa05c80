// ckpt/initial_values.cpp — see initial_values.hpp.
#include "ckpt/initial_values.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/impl/normal.hpp"

namespace trireme::ckpt {

std::vector<float> initial_values(const std::string& name, const Shape& shape,
                                  const Initializer& initializer, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  if (initializer.kind == Initializer::Kind::constant) {
    std::ranges::fill(values, static_cast<float>(initializer.value));
    return values;
  }
  TRIREME_REQUIRE(shape.size() == 2, "'{}' {}: only matrices are drawn at random", name,
                  to_string(shape));
  const random::Generator generator{.seed = seed,
                                    .owner = random::owner_of(name),
                                    .stream = random::Stream::initialisation};
  const index_t columns = shape[1];
  const std::uint64_t blocks =
      random::blocks_per_row(static_cast<std::uint64_t>(columns));
  const auto fill_row = [&](index_t row, double std) {
    float* const out = values.data() + row * columns;
    for (index_t column = 0; column < columns; column += 4) {
      const random::Words words =
          generator.block(static_cast<std::uint64_t>(row) * blocks +
                          static_cast<std::uint64_t>(column / 4));
      double normals[4];
      kernels::box_muller(words.word[0], words.word[1], normals[0], normals[1]);
      kernels::box_muller(words.word[2], words.word[3], normals[2], normals[3]);
      for (index_t k = 0; k < std::min<index_t>(4, columns - column); ++k) {
        out[column + k] = static_cast<float>(std * normals[k]);
      }
    }
  };
  initializer.visit_rows(0, shape[0], [&](index_t begin, index_t end, double std) {
    for (index_t row = begin; row < end; ++row) fill_row(row, std);
  });
  return values;
}

}  // namespace trireme::ckpt
