// tensor/batch_spec.hpp — what a batch is made of: named fields, as a kind of model
// declares them.
//
// A *stream* is a run of positions that tokens stand at. GPT has one; T5 has two of
// different lengths, for the encoder and the decoder; the words that BERT predicts are a
// second one beside its text, too few to be split over ranks. A *field* is an array with
// one element for each token of a stream, or for each sample. The corpus side fills the
// fields by name, the step carries them to the device in one loop, and a layer asks for
// those that it reads: nobody in between knows their names. Who must know what a field's
// numbers are, as does whoever makes some up to time a block, asks what it *holds*.
//
// Worked example, a micro-batch of b = 2 samples of s = 3 positions: a field per token
// has 6 elements, that of position 1 of sample 0 at 1 * b + 0 = 2, as activations lie; a
// field per sample has 2.
#ifndef TRIREME_TENSOR_BATCH_SPEC_HPP_
#define TRIREME_TENSOR_BATCH_SPEC_HPP_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"

namespace trireme {

enum class Per { token, sample };

struct StreamSpec {
  std::string name;
  index_t sequence = 1;  // s: positions of a training sample
  // Whether sequence parallelism deals its positions to the ranks of the tensor group; of
  // a stream that is not split each of them has all.
  bool is_split = true;
};

// What the numbers of a field are.
enum class Holds {
  words,  // rows of a table, one for each word: below FieldSpec::below; 0: not known yet
  classes,  // of something else, numbered from 0: below FieldSpec::below
  places,   // where the tokens of its stream stand in their text, often 0, 1, 2 ...
  lengths,  // how many positions of each sample of its stream are real: the first ones
  rows,     // positions of the stream FieldSpec::rows_of, each once; -1: of none
  begins,   // for each token where its document begins, a position of its stream
  ends,     // and where it ends: one behind the document's last token
  weights   // how much each element counts: the only ones with a fraction
};

struct FieldSpec {
  std::string name;
  Per per = Per::token;
  int stream = 0;
  Holds holds = Holds::words;
  index_t below = 0;
  int rows_of = 0;

  DType type() const { return holds == Holds::weights ? DType::float32 : DType::int32; }
};

struct BatchSpec {
  std::vector<StreamSpec> streams;
  std::vector<FieldSpec> fields;

  // Index of a field; throws Error where there is none of that name.
  std::size_t field(std::string_view name) const {
    const auto found =
        std::ranges::find_if(fields, [&](const auto& f) { return f.name == name; });
    TRIREME_REQUIRE(found != fields.end(), "the batch has no field '{}'", name);
    return static_cast<std::size_t>(found - fields.begin());
  }
  // Elements of a field in a micro-batch of so many samples.
  index_t elements(const FieldSpec& field, index_t samples) const {
    return field.per == Per::sample
               ? samples
               : samples * streams.at(static_cast<std::size_t>(field.stream)).sequence;
  }
};

inline constexpr std::size_t kMostFields = 12;

// A micro-batch on the host: where each field of a spec lies, null for those that nobody
// asked for, and the global number of its first sample. It does not own them.
struct HostBatch {
  std::array<const void*, kMostFields> fields = {};
  std::uint64_t first_sample = 0;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_BATCH_SPEC_HPP_
