// ckpt/convert.hpp — Hugging Face directories to checkpoints and back.
//
// A checkpoint made of a model holds weights only, at step 0, with a deck whose `model`
// section is the model's: it can be trained from (--init-from), generated from,
// evaluated. One rank's work. Nothing is left under the new name after an error.
#ifndef TRIREME_CKPT_CONVERT_HPP_
#define TRIREME_CKPT_CONVERT_HPP_

#include <cstdint>
#include <span>

#include "base/log.hpp"
#include "base/shape.hpp"
#include "ckpt/hugging_face.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

// What a conversion has made.
struct Converted {
  io::Path from;
  io::Path to;
  index_t parameters = 0;
  std::size_t tensors = 0;  // of ours
  std::size_t files = 0;    // that an export's weights are
  std::int64_t step = 0;    // of the checkpoint
  bool has_tokenizer = false;
  bool drops_optimizer = false;  // the checkpoint had optimizer state, which is not kept
};

// `out` becomes a directory of checkpoints: step_00000000 and `latest`. Weights that the
// dialect lets be missing are those of a new model with the deck's seed.
Converted import_hugging_face(const io::Path& directory, const io::Path& out, Log& log,
                              std::span<const Dialect> dialects = known_dialects());
// The newest checkpoint of `checkpoint` (a run directory, its `checkpoints`, one step_*
// directory or `latest`), its weights in files of at most `max_shard_bytes`. InputError
// for models that no dialect can express.
Converted export_hugging_face(const io::Path& checkpoint, const io::Path& out, Log& log,
                              std::uint64_t max_shard_bytes = kDefaultShardBytes,
                              std::span<const Dialect> dialects = known_dialects());

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_CONVERT_HPP_
