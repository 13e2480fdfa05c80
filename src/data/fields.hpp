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

#include "base/types.hpp"

namespace trireme::data {

// A sample as it is cut from a corpus.
struct Sample {
  // Inputs and labels overlap: s + 1 tokens, or fewer in a last window.
  std::span<const std::int32_t> tokens;
  index_t sequence = 0;  // s: positions to be filled
  std::int32_t end_of_document = 0;
  // Nothing is learned from predicting past the end of a document.
  bool mask_end_of_document = false;

  index_t labels() const { return std::ssize(tokens) - 1; }
};

// Where a field of one sample goes: element i is at data[i * stride], of the type that
// the spec gives.
struct FieldColumn {
  void* data = nullptr;
  index_t stride = 1;

  template <class T>
  T& at(index_t i) const {
    return static_cast<T*>(data)[i * stride];
  }
};

using FillField = void (*)(const Sample& sample, const FieldColumn& column);
// Error where there is no such field.
FillField field_named(std::string_view name);

}  // namespace trireme::data

#endif  // TRIREME_DATA_FIELDS_HPP_
