// inference/generation.hpp — text from a model: prompts in, tokens out.
//
// Prompts of any lengths are continued together. A text's tokens do not depend on the
// others: its logits are the same to the bit (step/decoder.hpp), and its random numbers
// are those of its prompt and sample (sampler.hpp). With a tensor group every rank of it
// makes the same calls and gets the same tokens.
#ifndef TRIREME_INFERENCE_GENERATION_HPP_
#define TRIREME_INFERENCE_GENERATION_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/bpe.hpp"
#include "inference/sampler.hpp"
#include "step/decoder.hpp"

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
  // What the text is made from, where the kind of model has such; the prompt is then what
  // stands before the text.
  std::vector<data::TokenId> source = {};
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
  double seconds = 0.0;  // of steps, and of choosing tokens
};

// A good number of texts side by side where there are `texts`: 16 at most, less where
// their keys and values would take more than 1 GiB.
index_t texts_at_once(const step::DecoderMemory& of_one, std::size_t texts);

// Where tokens are drawn; they are the same. Of texts that get theirs on the device, the
// host sees up to step::Decoder::kDrawnSteps tokens at a time.
enum class DrawingPlace { host, device };

class Generator {
 public:
  // request: index in the list that run() was given.
  using OnToken = std::function<void(std::size_t request, data::TokenId token)>;

  // On a GPU tokens are drawn on the device, where the decoder can do that and has no
  // more places than it takes.
  explicit Generator(std::unique_ptr<step::Decoder> decoder);
  Generator(std::unique_ptr<step::Decoder> decoder, DrawingPlace drawing);

  // Throws InputError for a prompt that is longer than the context (unless texts slide),
  // or a source than there is room for, or that has a token outside the vocabulary, and
  // for settings out of range.
  void check(const std::vector<GenerationRequest>& requests,
             const GenerationConfig& config) const;
  // Checks, and generates; in the order of the requests.
  std::vector<Generation> run(const std::vector<GenerationRequest>& requests,
                              const GenerationConfig& config,
                              const OnToken& on_token = {});

  index_t context() const { return decoder_->context(); }
  const GenerationSpeed& speed() const { return speed_; }

 private:
  struct Text;  // a request under way
  struct Job;   // what one run() works with

  void check_prompt(const GenerationRequest& request,
                    const GenerationConfig& config) const;
  void check_source(const GenerationRequest& request,
                    const GenerationConfig& config) const;
  void check_tokens(const GenerationRequest& request,
                    const std::vector<data::TokenId>& tokens) const;
  void fill_places(Job& job);
  void advance(Job& job);
  void draw(Job& job);
  bool make_room(Job& job, Text& text);
  void begin_text(const Text& text);
  std::span<const step::Logit> read_last(const Text& text, index_t count);
  void choose_token(Job& job, Text& text, std::span<const step::Logit> logits);
  void take_token(Job& job, Text& text, data::TokenId token);

  std::unique_ptr<step::Decoder> decoder_;
  bool draws_on_device_;
  GenerationSpeed speed_;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_GENERATION_HPP_
