// inference/texts.hpp — texts of a model as programs take them: requests made of prompts,
// dealt to ranks, and their results as JSON.
#ifndef TRIREME_INFERENCE_TEXTS_HPP_
#define TRIREME_INFERENCE_TEXTS_HPP_

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "data/tokenizer.hpp"
#include "inference/generation.hpp"
#include "inference/prompts.hpp"
#include "model/blueprint.hpp"

namespace trireme::inference {

// Tokens as text: whole characters, or numbers where there is no tokenizer.
class Speller {
 public:
  explicit Speller(const std::optional<data::Tokenizer>& tokenizer) {
    if (tokenizer) decoder_.emplace(*tokenizer);
  }
  std::string next(data::TokenId id) {
    if (decoder_) return decoder_->next(id);
    return std::exchange(separator_, " ") + std::to_string(id);
  }
  std::string finish() { return decoder_ ? decoder_->finish() : ""; }

 private:
  std::optional<data::StreamDecoder> decoder_;
  std::string separator_;
};
std::string spell(const std::optional<data::Tokenizer>& tokenizer,
                  const std::vector<data::TokenId>& ids);

// Requests for so many texts of each prompt, one prompt's after the other's, for a model
// that decodes so: its continuations, or where texts are made from others, those that are
// made from the prompt. That one then ends as documents do, and before a text stands
// `first` (LoadedModel::first_word).
std::vector<GenerationRequest> make_requests(
    const std::vector<Prompt>& prompts, std::int64_t samples,
    const model::DecodedFields& decoded,
    const std::optional<data::TokenId>& end_of_document,
    const std::optional<data::TokenId>& first);

// One object for each text: prompt_number, sample, prompt, prompt_ids, text, ids, finish,
// slides, prompt_tokens_unread.
nlohmann::ordered_json result_of(const std::optional<data::Tokenizer>& tokenizer,
                                 const Prompt& prompt, const GenerationRequest& request,
                                 const Generation& generation);

// What a rank makes of its requests, in their order.
using Generate =
    std::function<std::vector<Generation>(const std::vector<GenerationRequest>&)>;

// Collective: request i is rank i mod size's. A list of all results, in the order of the
// requests, on rank 0.
nlohmann::ordered_json generate_on_ranks(comm::Communicator& world,
                                         const std::optional<data::Tokenizer>& tokenizer,
                                         const std::vector<Prompt>& prompts,
                                         const std::vector<GenerationRequest>& requests,
                                         const Generate& generate);

// Collective. Of all ranks: tokens added up, the time of the slowest.
GenerationSpeed total(const GenerationSpeed& own, comm::Communicator& world);

// Settings and speed, as the keys before "results".
nlohmann::ordered_json summary_of(const GenerationConfig& config,
                                  const GenerationSpeed& speed);

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_TEXTS_HPP_
