// check/corpus_checks.hpp — are the corpora that a start has opened those that are
// meant: the same on every rank, those that a checkpoint was trained on, of its
// tokenizer?
#ifndef TRIREME_CHECK_CORPUS_CHECKS_HPP_
#define TRIREME_CHECK_CORPUS_CHECKS_HPP_

#include <string>

#include "base/log.hpp"
#include "ckpt/reader.hpp"
#include "comm/communicator.hpp"
#include "data/datasets.hpp"

namespace trireme::check {

// Where a checkpoint keeps the checksums of what it was trained on
// (TrainingState::texts).
inline constexpr const char* kCorporaText = "training_corpora";

// InputError, with the document, where offsets do not ascend. It reads 8 bytes for each
// document, of each file once: a thing for one rank.
void require_documents(const data::Corpora& corpora);

// Collective. A name may be another file on another node. `identity`: of all corpora that
// this rank has opened.
void require_same_corpora(comm::Communicator& world, const std::string& host,
                          const std::string& identity);

// A restart on others of the same names would go on with other samples and not know it.
void require_corpora_of(const ckpt::CheckpointReader& checkpoint,
                        const data::Corpora& corpora);

// Weights would mean nothing to other tokens. A warning where the checkpoint names no
// tokenizer.
void require_tokenizer_of(const ckpt::CheckpointReader& checkpoint,
                          const data::Corpus& corpus, Log& log);

}  // namespace trireme::check

#endif  // TRIREME_CHECK_CORPUS_CHECKS_HPP_
