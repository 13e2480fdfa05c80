// step/drawn_texts.cpp — see drawn_texts.hpp.
#include "step/drawn_texts.hpp"

#include <algorithm>
#include <limits>

namespace trireme::step {

DrawnTexts::DrawnTexts(const Exec& exec, index_t rows, index_t most)
    : rows_(rows), most_(most) {
  if (exec.is_shape_only()) return;
  const std::size_t numbers = extent((kFields + most) * rows);
  numbers_ = DeviceArray<std::int32_t>("drawn texts", numbers);
  owners_ = DeviceArray<std::uint64_t>("drawn texts' owners", extent(rows));
  host_numbers_ = PinnedArray<std::int32_t>("drawn texts (host)", numbers);
  host_owners_ = PinnedArray<std::uint64_t>("drawn texts' owners (host)", extent(rows));
}

std::size_t DrawnTexts::device_bytes() const {
  return extent(rows_) *
         (extent(kFields + most_) * sizeof(std::int32_t) + sizeof(std::uint64_t));
}

kernels::TextRows DrawnTexts::rows() const {
  std::int32_t* const data = numbers_.data();
  const auto at = [&](index_t begin) {
    return data == nullptr ? nullptr : data + begin * rows_;
  };
  const auto of = [&](Field field) {
    return View1<std::int32_t>(at(field), extent(rows_));
  };
  return {.tokens = of(token),
          .positions = of(position),
          .lengths = of(length),
          .sizes = of(size),
          .left = of(left),
          .owners = View1<std::uint64_t>(owners_.data(), extent(rows_)),
          .counts = of(count),
          .drawn = View2<std::int32_t>(at(kFields), extent(rows_), extent(most_))};
}

std::int32_t& DrawnTexts::number(Field field, index_t row) {
  return host_numbers_(extent(field * rows_ + row));
}

void DrawnTexts::clear() {
  std::fill_n(host_numbers_.data(), host_numbers_.extent(0), 0);
}

void DrawnTexts::set(index_t row, const Row& text) {
  number(token, row) = static_cast<std::int32_t>(text.token);
  number(position, row) = static_cast<std::int32_t>(text.position);
  number(length, row) = static_cast<std::int32_t>(text.position + 1);
  number(size, row) = static_cast<std::int32_t>(text.size);
  constexpr index_t kMost = std::numeric_limits<std::int32_t>::max();
  number(left, row) = static_cast<std::int32_t>(std::min(text.left, kMost));
  host_owners_(extent(row)) = text.owner;
}

void DrawnTexts::send(const Exec& exec) const {
  copy_to_device(exec, numbers_, host_numbers_.data());
  copy_to_device(exec, owners_, host_owners_.data());
}

void DrawnTexts::fetch(const Exec& exec) {
  copy_to_host(exec, host_numbers_.data(), numbers_);
  exec.fence("trireme::step::fetch_drawn_texts");
}

std::span<const std::int32_t> DrawnTexts::drawn(index_t row) const {
  const std::int32_t* const numbers = host_numbers_.data();
  return {numbers + kFields * rows_ + row * most_, extent(numbers[count * rows_ + row])};
}

}  // namespace trireme::step
