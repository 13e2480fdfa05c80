// inference/embedding.hpp — a vector of each text of a file, by a BERT.
//
// Texts are taken in windows, in the order of the file; those of a window are sorted by
// their length and cut into micro-batches, which ranks share. Neither depends on how many
// ranks there are, so that the vectors do not either, to the bit.
#ifndef TRIREME_INFERENCE_EMBEDDING_HPP_
#define TRIREME_INFERENCE_EMBEDDING_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/types.hpp"
#include "comm/communicator.hpp"

namespace trireme::inference {

// What of a text's rows becomes its vector: their mean, that of [CLS] and [SEP] included,
// or the row of [CLS].
enum class Pool { mean, cls };

struct EmbedOptions {
  std::string checkpoint;
  std::string texts;     // a file, one text a line
  std::string json_key;  // of JSON lines; empty: the lines are texts
  Pool pool = Pool::mean;
  bool normalize = false;  // to length 1
  std::string out;
  std::vector<std::string> overrides = {};  // --set, as load_model() takes them
};

struct EmbedSummary {
  index_t texts = 0, columns = 0;
  index_t cut = 0;          // texts that were longer than the model's sequence
  index_t sequence = 0;     // which is so long
  index_t blank_lines = 0;  // of the file, which are no texts
  std::int64_t tokens = 0;  // that were read
  std::int64_t replaced_sequences = 0;  // of the texts, that were no UTF-8
};

// How many texts are done, and how many there are.
using EmbedProgress = std::function<void(index_t done, index_t all)>;

// Collective. Writes `out`, an HDF5 file, whole or not at all, and replaces what had its
// name:
//   /embeddings (n, h)  float32, in the order of the file
//   /offsets (n)        int64, the byte at which a text's line begins
//   /tokens (n)         int32, that were read of it, with [CLS] and [SEP]
// InputError: no such checkpoint or file, no BERT, no text in it, a line that is no JSON,
// weights that give no numbers.
EmbedSummary embed(const EmbedOptions& options, comm::Communicator& world, Log& log,
                   const EmbedProgress& progress = {});

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_EMBEDDING_HPP_
