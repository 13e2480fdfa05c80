// nn/micro_batch.hpp — a micro-batch on the device, as layers get it: how many samples,
// how long their streams are, and the fields that this stage has loaded.
//
// Rows are (s, b) flattened, b fastest: row r is position r / b of sample r % b. A field
// is known by its index in the model's BatchSpec.
#ifndef TRIREME_NN_MICRO_BATCH_HPP_
#define TRIREME_NN_MICRO_BATCH_HPP_

#include <array>
#include <cstdint>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/plural.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::nn {

// One stream of the micro-batch.
struct Stream {
  index_t sequence = 1;  // s
  // Fields with its tokens' positions and its samples' lengths; -1: there is none.
  int positions = -1, lengths = -1;
  bool is_split = true;  // by sequence parallelism
};

class MicroBatch {
 public:
  static constexpr std::size_t kMostStreams = 3;

  MicroBatch() = default;
  // One stream of `sequence` positions, without fields.
  MicroBatch(index_t samples_in, index_t sequence) : samples(samples_in) {
    streams[0].sequence = sequence;
  }
  // Streams and shapes of a spec; the fields have no memory yet.
  MicroBatch(const BatchSpec& spec, index_t samples_in) : samples(samples_in) {
    TRIREME_REQUIRE(
        spec.streams.size() <= kMostStreams && spec.fields.size() <= kMostFields,
        "a batch of {} and {}; there is room for {} and {}",
        format_plural(spec.streams.size(), "stream"),
        format_plural(spec.fields.size(), "field"), kMostStreams, kMostFields);
    for (std::size_t i = 0; i < spec.streams.size(); ++i) {
      streams[i].sequence = spec.streams[i].sequence;
      streams[i].is_split = spec.streams[i].is_split;
    }
    for (std::size_t i = 0; i < spec.fields.size(); ++i) {
      const FieldSpec& field = spec.fields[i];
      Stream& stream = streams.at(extent(field.stream));
      if (field.holds == Holds::places) stream.positions = static_cast<int>(i);
      if (field.holds == Holds::lengths) stream.lengths = static_cast<int>(i);
      set(i, nullptr, spec.elements(field, samples));
    }
  }

  void set(std::size_t field, const void* data, index_t elements) {
    fields_.at(field) = {data, elements};
  }
  index_t elements(std::size_t field) const { return fields_.at(field).elements; }
  // Null where the field is not loaded: layers ask the Context, which minds that.
  template <class T>
  View1<const T> view(std::size_t field) const {
    const Field& of = fields_.at(field);
    return {static_cast<const T*>(of.data), extent(of.elements)};
  }
  const Stream& at(int stream) const { return streams[static_cast<std::size_t>(stream)]; }

  index_t samples = 1;  // b
  std::array<Stream, kMostStreams> streams = {};

 private:
  struct Field {
    const void* data = nullptr;
    index_t elements = 0;
  };
  std::array<Field, kMostFields> fields_ = {};
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_MICRO_BATCH_HPP_
