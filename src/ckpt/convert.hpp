// ckpt/convert.hpp — Hugging Face GPT-2 directories to checkpoints and back.
//
// A checkpoint made of a model holds weights only, at step 0, with a deck whose `model`
// section is the model's: it can be trained from (--init-from), generated from,
// evaluated. One rank's work. Nothing is left under the new name after an error.
#ifndef TRIREME_CKPT_CONVERT_HPP_
#define TRIREME_CKPT_CONVERT_HPP_

#include <cstdint>

#include "base/log.hpp"
#include "base/shape.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

// What a conversion has made.
struct Converted {
  io::Path from;
  io::Path to;
  index_t parameters = 0;
  std::size_t tensors = 0;
  std::int64_t step = 0;  // of the checkpoint
  bool has_tokenizer = false;
  bool drops_optimizer = false;  // the checkpoint had optimizer state, which is not kept
};

// `out` becomes a directory of checkpoints: step_00000000 and `latest`.
Converted import_hugging_face(const io::Path& directory, const io::Path& out, Log& log);
// The newest checkpoint of `checkpoint` (a run directory, its `checkpoints`, one step_*
// directory or `latest`). InputError for models that GPT-2 in transformers cannot
// express.
Converted export_hugging_face(const io::Path& checkpoint, const io::Path& out, Log& log);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_CONVERT_HPP_
