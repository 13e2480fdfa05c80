// data/fields.hpp — how the fields of a batch are made from a sample: one function for
// each field that there is, found by its name in a table of the sample's kind.
//
// A kind of model declares which of them its batches have (BatchSpec). A new field is a
// function, its line in the table, and the block that reads it. The fields of a language
// model are here; a kind of samples with streams of its own has its table beside its
// maker (span_maker.cpp).
#ifndef TRIREME_DATA_FIELDS_HPP_
#define TRIREME_DATA_FIELDS_HPP_

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "base/types.hpp"

namespace trireme::data {

// A language model's sample as it is cut from a corpus: one window.
struct Sample {
  // Inputs and labels overlap: s + 1 tokens, or fewer in a last window.
  std::span<const std::int32_t> tokens;
  index_t sequence = 0;  // s: positions to be filled
  std::int32_t end_of_document = 0;
  // Nothing is learned from predicting past the end of a document.
  bool mask_end_of_document = false;

  index_t labels() const { return std::ssize(tokens) - 1; }
};

// Where a field of one sample goes: `rows` elements of a type, `stride` apart.
struct FieldColumn {
  void* data = nullptr;
  index_t stride = 1;
  index_t rows = 0;
  DType type = DType::int32;

  // Error where the batch has the field in another type, or not of so many elements.
  template <class T>
  auto elements(index_t count) const {
    TRIREME_REQUIRE(type == dtype_of<T> && rows == count,
                    "a field of {} in {}, made as {} in {}", rows, name_of(type), count,
                    name_of(dtype_of<T>));
    return
        [to = static_cast<T*>(data), by = stride](index_t i) -> T& { return to[i * by]; };
  }
};

// A line of the table of a kind of samples.
template <class S>
struct NamedField {
  std::string_view name;
  void (*fill)(const S& sample, const FieldColumn& column);
};

// Error where the table has no such field.
template <class S>
void fill_field(std::span<const NamedField<S>> table, std::string_view name,
                const S& sample, const FieldColumn& column) {
  for (const NamedField<S>& field : table) {
    if (field.name == name) return field.fill(sample, column);
  }
  throw Error(fmt::format("no field '{}' can be made of these samples", name));
}

void fill_field(std::string_view name, const Sample& sample, const FieldColumn& column);

// The numbers, and behind them `rest` up to `rows`.
void fill_ids(std::span<const std::int32_t> ids, index_t rows, std::int32_t rest,
              const FieldColumn& column);

}  // namespace trireme::data

#endif  // TRIREME_DATA_FIELDS_HPP_
