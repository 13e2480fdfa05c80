// inference/evaluation.hpp — what a trained model makes of a corpus: loss, perplexity,
// bits per token and per byte, on any grid, in pieces that a killed evaluation goes on
// from.
//
// What counts (docs/evaluation.md): the tokens of a range in windows of model.sequence,
// as training cuts them; each token but the range's first is predicted once, from what
// stands before it in its window. A whole corpus is counted to its last token, in a last,
// shorter window; of a split that is cut as training cuts it, the tokens behind the last
// whole window are left out unless `tail` is set, so that its loss is that of the run's
// own validation.
#ifndef TRIREME_INFERENCE_EVALUATION_HPP_
#define TRIREME_INFERENCE_EVALUATION_HPP_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/environment.hpp"
#include "config/deck.hpp"
#include "data/datasets.hpp"
#include "io/files.hpp"
#include "model/losses.hpp"
#include "step/train_step.hpp"

namespace trireme::inference {

struct EvaluateOptions {
  std::string checkpoint;         // run directory, `checkpoints`, step_*, latest
  std::vector<std::string> data;  // corpora, each by itself; empty: those of the run
  std::optional<data::Split> split = {};    // none: whole corpora
  std::vector<std::string> overrides = {};  // --set: what evaluation_deck() takes
  index_t samples = 0;                      // of each set, at most; 0: all
  bool tail = false;                        // of splits too
  std::string progress_file = {};           // empty: none is kept
  std::string fault = {};                   // what shall go wrong: base/fault_plan.hpp
};

// Sums over samples. They add up, so that pieces can be evaluated alone.
struct EvaluationSums {
  index_t samples = 0;             // windows
  step::LossSums objectives = {};  // nats, of each of the model's; none before the first
  double bytes = 0.0;              // of the text that the tokens stand for
  double seconds = 0.0;
  std::size_t words = 0;  // the objective over words, of which perplexity and bits are

  double tokens() const { return objectives.empty() ? 0.0 : objectives.at(words).count; }
};

struct EvaluatedSet {
  std::string name;
  std::vector<std::string> corpora;    // paths
  std::vector<std::string> checksums;  // theirs
  index_t windows = 0;                 // in all
  index_t left_out = 0;                // tokens behind the last whole window
  EvaluationSums sums;
  model::Losses losses = {};
  bool has_bytes = true;  // false: without a tokenizer no token has a length
  // Of some words of a text (model::Objective) the loss says nothing of its bits.
  bool every_word = true;

  double loss() const { return losses.total; }  // of all objectives
  double perplexity() const;                    // of the words that are predicted
  double bits_per_token() const;
  double bits_per_byte() const;
};

struct Evaluation {
  io::Path checkpoint;
  std::int64_t step = 0;
  index_t sequence = 0;
  std::string compute;   // the type, as decks name it
  std::string products;  // step::ProductWays::names
  std::map<std::string, std::int64_t> grid;
  bool mask_end_of_document = false;
  std::vector<EvaluatedSet> sets;

  // For people, ending with a newline; and as JSON, where one set's numbers stand at the
  // top, too.
  std::string text() const;
  std::string json() const;
};

// How far a set is, on rank 0.
struct EvaluationStatus {
  std::string set;
  double share = 0.0;              // of its samples
  double tokens_per_second = 0.0;  // of those that count, in this start
  bool every_word = true;          // EvaluatedSet::every_word
  double seconds_left = 0.0;
};
// What counts as a token of an evaluation, for people.
constexpr const char* counted_words(bool every_word) {
  return every_word ? "tokens" : "predicted words";
}
using EvaluationProgress = std::function<void(const EvaluationStatus&)>;

// Collective. InputError: no such checkpoint or corpus, a corpus of another tokenizer, a
// split without tokens, a grid that does not fit, a progress file of something else,
// weights that give no number. What was done before a kill stands in the progress file,
// as of some seconds before; the result is the same, to the bit on the same grid.
Evaluation evaluate(const EvaluateOptions& options, comm::Environment& environment,
                    Log& log, const EvaluationProgress& progress = {});

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_EVALUATION_HPP_
