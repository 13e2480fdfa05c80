// data/fields.hpp — how the fields of a batch are made from a window of tokens: one
// function for each field that there is, found by its name.
//
// A kind of model declares which of them its batches have (BatchSpec). A new field is a
// function here, its line in the table at the end of fields.cpp, and the block that reads
// it.
#ifndef TRIREME_DATA_FIELDS_HPP_
#define TRIREME_DATA_FIELDS_HPP_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "base/types.hpp"

namespace trireme::data {

// A sample as it is cut from a corpus: one window, for the first of the model's streams.
// A kind of model whose streams have texts of their own needs a window for each.
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

using FillField = void (*)(const Sample& sample, const FieldColumn& column);
// Error where there is no such field.
FillField field_named(std::string_view name);

}  // namespace trireme::data

#endif  // TRIREME_DATA_FIELDS_HPP_
