// ckpt/describe.hpp — what a file or directory of ours holds, as JSON: for `inspect`.
//
// Keys by kind:
//   checkpoint  path, format, run, save, step, generation, contents (training|weights),
//               parameters, bytes, files, tensors (name, dtype, shape, bytes, blocks; by
//               layer), note (of old formats), state {samples ...}, grid, tokenizer, deck
//   run         path, checkpoints (name, step, generation, bytes, latest, problems),
//               newest: the checkpoint
//   corpus      path, bytes, tokens, documents, vocabulary_size, end_of_document, dtype,
//               checksum, unigram_entropy, tokenizer
//   hdf5        path, bytes, attributes, datasets (name, dtype, shape): of any other file
// and always: kind, checked (sizes|checksums), problems (empty when all is well).
#ifndef TRIREME_CKPT_DESCRIBE_HPP_
#define TRIREME_CKPT_DESCRIBE_HPP_

#include <string>

#include "ckpt/verify.hpp"

namespace trireme::ckpt {

// Survives any damage: what cannot be read is said in `problems`. InputError where there
// is nothing of that name, or nothing of ours in it.
std::string describe(const Path& path, Depth depth);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DESCRIBE_HPP_
