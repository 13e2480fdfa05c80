// inference/texts.cpp — see texts.hpp.
#include "inference/texts.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.hpp"
#include "comm/on_ranks.hpp"
#include "io/json.hpp"

namespace trireme::inference {

using Json = nlohmann::ordered_json;

std::string spell(const std::optional<data::Tokenizer>& tokenizer,
                  const std::vector<data::TokenId>& ids) {
  Speller speller(tokenizer);
  std::string text;
  for (const data::TokenId id : ids) text += speller.next(id);
  return text + speller.finish();
}

namespace {

std::string repaired(const std::string& text) {
  std::string valid;
  append_repaired(text, valid);
  return valid;
}

}  // namespace

Json result_of(const std::optional<data::Tokenizer>& tokenizer, const Prompt& prompt,
               const GenerationRequest& request, const Generation& generation) {
  return {{"prompt_number", request.number},
          {"sample", request.sample},
          {"prompt", repaired(prompt.text)},
          {"prompt_ids", prompt.ids},
          {"text", spell(tokenizer, generation.tokens)},
          {"ids", generation.tokens},
          {"finish", name_of(generation.finish)},
          {"slides", generation.slides},
          {"prompt_tokens_unread", generation.unread}};
}

std::vector<GenerationRequest> make_requests(
    const std::vector<Prompt>& prompts, std::int64_t samples,
    const model::DecodedFields& decoded,
    const std::optional<data::TokenId>& end_of_document,
    const std::optional<data::TokenId>& first) {
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    GenerationRequest request{.prompt = prompts[i].ids, .number = i};
    if (decoded.has_source()) {
      request.source = std::exchange(request.prompt, {});
      if (!request.source.empty() && end_of_document) {
        request.source.push_back(*end_of_document);
      }
      if (first) request.prompt = {*first};
    }
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      request.sample = static_cast<std::uint64_t>(sample);
      requests.push_back(request);
    }
  }
  return requests;
}

Json generate_on_ranks(comm::Communicator& world,
                       const std::optional<data::Tokenizer>& tokenizer,
                       const std::vector<Prompt>& prompts,
                       const std::vector<GenerationRequest>& requests,
                       const Generate& generate) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<GenerationRequest> mine;
  for (std::size_t i = static_cast<std::size_t>(world.rank()); i < requests.size();
       i += ranks) {
    mine.push_back(requests[i]);
  }
  Json own = Json::array();
  comm::on_every_rank(world, [&] {
    const auto texts = generate(mine);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      own.push_back(result_of(tokenizer, prompts[mine[i].number], mine[i], texts[i]));
    }
  });
  const std::vector<std::string> parts = world.gather(io::json_text(own));
  std::vector<Json> lists;
  for (const std::string& part : parts) lists.push_back(io::parse_json<Json>(part));
  Json results = Json::array();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    results.push_back(std::move(lists[i % ranks][i / ranks]));
  }
  return results;
}

GenerationSpeed total(const GenerationSpeed& own, comm::Communicator& world) {
  return {world.all_reduce(own.prompt_tokens), world.all_reduce(own.new_tokens),
          world.all_reduce(own.prompt_seconds, comm::Op::max),
          world.all_reduce(own.seconds, comm::Op::max)};
}

Json summary_of(const GenerationConfig& config, const GenerationSpeed& speed) {
  const SamplingConfig& sampling = config.sampling;
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"seed", sampling.seed},
          {"max_tokens", config.max_tokens},
          {"prompt_tokens", speed.prompt_tokens},
          {"prompt_seconds", speed.prompt_seconds},
          {"new_tokens", speed.new_tokens},
          {"seconds", speed.seconds}};
}

}  // namespace trireme::inference
