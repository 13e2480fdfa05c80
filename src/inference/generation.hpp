// inference/generation.hpp — text from a model: prompts in, tokens out, with the keys and
// values of earlier positions kept (KV cache).
//
// Memory is taken once, for the model's longest sequence and a number of texts side by
// side. Prompts of equal length are continued together; each text's random numbers depend
// on the number of its prompt and sample only (sampler.hpp), so that grouping changes
// nothing but the rounding of matrix products. With a tensor group every rank of it makes
// the same calls and gets the same tokens.
#ifndef TRIREME_INFERENCE_GENERATION_HPP_
#define TRIREME_INFERENCE_GENERATION_HPP_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/bpe.hpp"
#include "inference/sampler.hpp"
#include "kernels/step_state.hpp"
#include "model/chunk.hpp"
#include "nn/micro_batch.hpp"
#include "step/model_state.hpp"
#include "tensor/arena.hpp"

namespace trireme::inference {

// What happens when a text has as many tokens as the model has positions.
//   stop   the text ends there (as most users of GPT-2 expect)
//   slide  the older half is forgotten, the newer read again from position 0, and so on;
//          of a prompt that is longer than that, the last tokens are read
enum class AtContextLimit { stop, slide };

struct GenerationConfig {
  SamplingConfig sampling = {};
  index_t max_tokens = 200;  // new ones, for each text
  // Only ids below this are drawn (vocabularies padded to a round number); 0: all.
  index_t usable_vocabulary = 0;
  // Ends a text (it is not part of what is returned), and stands before an empty prompt.
  // None: texts go on to max_tokens.
  std::optional<data::TokenId> end_of_document = {};
  AtContextLimit at_limit = AtContextLimit::stop;
};

struct GenerationRequest {
  std::vector<data::TokenId> prompt;  // empty: a document's beginning
  std::uint64_t number = 0;           // of the prompt, in the user's count
  std::uint64_t sample = 0;           // which of several continuations
};

enum class FinishReason { end_of_document, max_tokens, context_limit };
// "end_of_document", "max_tokens", "context_limit"
std::string_view name_of(FinishReason reason);

struct Generation {
  std::vector<data::TokenId> tokens;  // without the prompt
  FinishReason finish = FinishReason::max_tokens;
  int slides = 0;      // how often the older half was forgotten
  index_t unread = 0;  // tokens at the beginning of a prompt that was too long
};

struct GenerationSpeed {
  index_t prompt_tokens = 0;  // read, those read again after a slide included
  index_t new_tokens = 0;
  double prompt_seconds = 0.0;
  double seconds = 0.0;  // of new tokens
};

template <class T>
class Generator {
 public:
  // request: index in the list that run() was given.
  using OnToken = std::function<void(std::size_t request, data::TokenId token)>;
  // Tokens of one decode call at most: bounds the workspace whatever the prompt's length.
  static constexpr index_t kPieceRows = 512;

  // The weights in `state` must be allocated and outlive the generator; they may change
  // between runs. max_batch: texts side by side. On a shape-only Exec it finds what it
  // would take, and can do no more.
  Generator(const Exec& exec, step::ModelState<T>& state, index_t max_batch = 1);
  // A good number of texts side by side where there are `texts`: 16 at most, less where
  // their keys and values would take more than 1 GiB.
  static index_t batch_for(const step::ModelState<T>& state, std::size_t texts);

  // Throws InputError for a prompt that is longer than the context (unless texts slide)
  // or has a token outside the vocabulary, and for settings out of range.
  void check(const std::vector<GenerationRequest>& requests,
             const GenerationConfig& config) const;
  // Checks, and generates; in the order of the requests.
  std::vector<Generation> run(const std::vector<GenerationRequest>& requests,
                              const GenerationConfig& config,
                              const OnToken& on_token = {});

  // Below run(): `batch` empty texts; then tokens (n, batch) are added to them, and the
  // logits (batch, V) of the last n come back, valid until the next call.
  void start(index_t batch);
  std::span<const double> feed(std::span<const data::TokenId> tokens);
  // Positions filled since start().
  index_t length() const { return length_; }

  index_t context() const { return state_.architecture().sequence; }
  const GenerationSpeed& speed() const { return speed_; }
  // Memory of the cache, the workspace and the logits, known before any is allocated.
  static std::size_t planned_bytes(const step::ModelState<T>& state,
                                   index_t max_batch = 1);

 private:
  struct Text;  // a request under way

  struct Job;  // what one run() works with

  static index_t cache_elements(const step::ModelState<T>& state, index_t max_batch);
  void find_workspace(index_t rows);
  void check_prompt(const GenerationRequest& request,
                    const GenerationConfig& config) const;
  void run_batch(std::vector<Text>& texts, Job& job);
  bool choose_tokens(std::vector<Text>& texts, std::span<const double> logits, Job& job);
  std::span<const double> read_again(const std::vector<Text>& texts, index_t keep);
  void decode(std::span<const data::TokenId> tokens, View2<T> logits);
  void run_layers(index_t sequence, index_t samples, View2<T> logits);
  std::span<const double> fetch_logits();

  Exec exec_;
  step::ModelState<T>& state_;
  index_t max_batch_;
  std::size_t bytes_ = 0;  // of device memory, allocated or planned
  index_t batch_ = 0;      // of the texts under way
  index_t length_ = 0;     // their positions in the cache
  DeviceArray<T> cache_;
  model::DecodeState<T> layers_;
  Workspace workspace_;
  DeviceArray<kernels::StepState> step_;          // unused values; layers ask for one
  DeviceArray<std::int32_t> tokens_, positions_;  // (kPieceRows)
  // This rank's logits, and those of the tensor group, rank by rank.
  DeviceArray<T> logits_, gathered_;
  HostArray<std::int32_t> host_tokens_, host_positions_;
  HostArray<T> host_logits_;
  std::vector<double> whole_logits_;    // (batch, V)
  std::vector<data::TokenId> history_;  // what feed() is given
  GenerationSpeed speed_;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_GENERATION_HPP_
