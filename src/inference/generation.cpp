// inference/generation.cpp — see generation.hpp.
//
// Texts of one batch go on in step: at each position the decoder is fed one token of each
// of them. A text that has ended keeps its place in the batch, and is fed tokens that
// nobody looks at, until all have ended. That is why only prompts of one length are put
// together: position p is the same for all, and no padding takes part in attention.
//
// Where the context is full and texts may slide, the newer half is read again from
// position 0 into an empty cache. The keys of GPT-2 hold their absolute positions, so
// that a cache cannot be moved: with a context of 8, tokens 4 to 7 are read again as 0 to
// 3, and four more can follow.
#include "inference/generation.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"

namespace trireme::inference {

using Clock = std::chrono::steady_clock;

std::string_view name_of(FinishReason reason) {
  constexpr std::array<std::string_view, 3> kNames = {"end_of_document", "max_tokens",
                                                      "context_limit"};
  return kNames.at(static_cast<std::size_t>(reason));
}

struct Generator::Text {
  const GenerationRequest* request = nullptr;
  std::size_t index = 0;
  std::vector<data::TokenId> tokens;  // all of it: prompt and continuation
  index_t prompt = 0;                 // tokens of the prompt, the one put in front too
  Generation result;
  bool done = false;
};

struct Generator::Job {
  const GenerationConfig& config;
  const OnToken& on_token;
  Sampler sampler;
  std::size_t usable;  // logits that are looked at
};

index_t texts_at_once(const step::DecoderMemory& of_one, std::size_t texts) {
  constexpr index_t kMost = 16;
  constexpr index_t kBytes = index_t{1} << 30;
  const index_t wanted = std::min(kMost, static_cast<index_t>(texts));
  return std::max<index_t>(1,
                           std::min(wanted, kBytes / static_cast<index_t>(of_one.cache)));
}

void Generator::check_prompt(const GenerationRequest& request,
                             const GenerationConfig& config) const {
  const auto length = static_cast<index_t>(request.prompt.size());
  TRIREME_REQUIRE_INPUT(length <= context() || config.at_limit == AtContextLimit::slide,
                        "prompt {} has {}, but this model's context has {}: shorten the "
                        "prompt by {}, or let it be cut (--slide reads its last {})",
                        request.number + 1, format_plural(length, "token"), context(),
                        length - context(), context());
  const auto vocabulary = static_cast<data::TokenId>(decoder_->vocabulary());
  for (const data::TokenId id : request.prompt) {
    TRIREME_REQUIRE_INPUT(id < vocabulary,
                          "prompt {} has the token {}, but this model's vocabulary has "
                          "{} (0 to {}): is this the model's own tokenizer?",
                          request.number + 1, id, format_plural(vocabulary, "token"),
                          vocabulary - 1);
  }
  TRIREME_REQUIRE_INPUT(length > 0 || config.end_of_document,
                        "prompt {} is empty, and without an end-of-document token there "
                        "is nothing to begin with: give at least one token",
                        request.number + 1);
}

void Generator::check(const std::vector<GenerationRequest>& requests,
                      const GenerationConfig& config) const {
  config.sampling.validate();
  TRIREME_REQUIRE_INPUT(config.max_tokens >= 0, "{} new tokens: expected 0 or more",
                        config.max_tokens);
  TRIREME_REQUIRE(config.usable_vocabulary <= decoder_->vocabulary(),
                  "tokens below {} of a model with {}", config.usable_vocabulary,
                  decoder_->vocabulary());
  for (const GenerationRequest& request : requests) check_prompt(request, config);
}

std::vector<Generation> Generator::run(const std::vector<GenerationRequest>& requests,
                                       const GenerationConfig& config,
                                       const OnToken& on_token) {
  check(requests, config);
  std::vector<Text> waiting;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Text text;
    text.request = &requests[i];
    text.index = i;
    text.tokens = requests[i].prompt;
    if (text.tokens.empty()) text.tokens.push_back(*config.end_of_document);
    text.prompt = std::min<index_t>(std::ssize(text.tokens), context());
    text.result.unread = std::ssize(text.tokens) - text.prompt;
    text.tokens.reserve(text.tokens.size() +
                        static_cast<std::size_t>(std::min(config.max_tokens, context())));
    text.done = config.max_tokens == 0;
    waiting.push_back(std::move(text));
  }
  const index_t vocabulary =
      config.usable_vocabulary > 0 ? config.usable_vocabulary : decoder_->vocabulary();
  Job job{config, on_token, Sampler(config.sampling, vocabulary),
          static_cast<std::size_t>(vocabulary)};
  std::vector<Generation> results(requests.size());
  // The first that waits, and with it those of the same length.
  while (!waiting.empty()) {
    std::vector<Text> batch, rest;
    for (Text& text : waiting) {
      const bool joins = batch.empty() || (text.prompt == batch[0].prompt &&
                                           std::ssize(batch) < decoder_->most_texts());
      (joins ? batch : rest).push_back(std::move(text));
    }
    waiting = std::move(rest);
    run_batch(batch, job);
    for (Text& text : batch) results[text.index] = std::move(text.result);
  }
  return results;
}

void Generator::run_batch(std::vector<Text>& texts, Job& job) {
  if (texts[0].done) return;
  decoder_->start(std::ssize(texts));
  auto begin = Clock::now();
  auto logits = read_again(texts, texts[0].prompt);
  speed_.prompt_seconds += seconds_since(begin);
  begin = Clock::now();
  while (choose_tokens(texts, logits, job)) {
    if (decoder_->length() < context()) {
      history_.clear();
      for (const Text& text : texts) history_.push_back(text.tokens.back());
      logits = decoder_->feed(history_);
      continue;
    }
    if (job.config.at_limit == AtContextLimit::stop) {
      for (Text& text : texts) {
        if (!text.done) text.result.finish = FinishReason::context_limit;
      }
      break;
    }
    for (Text& text : texts) ++text.result.slides;
    decoder_->start(std::ssize(texts));
    logits = read_again(texts, std::max<index_t>(context() / 2, 1));
  }
  speed_.seconds += seconds_since(begin);
}

// Reads the last `keep` tokens of every text into an empty cache.
std::span<const double> Generator::read_again(const std::vector<Text>& texts,
                                              index_t keep) {
  history_.clear();
  for (index_t i = keep; i > 0; --i) {
    for (const Text& text : texts) {
      history_.push_back(text.tokens[text.tokens.size() - static_cast<std::size_t>(i)]);
    }
  }
  speed_.prompt_tokens += keep * std::ssize(texts);
  return decoder_->feed(history_);
}

// One more token for each text; false when all are done.
bool Generator::choose_tokens(std::vector<Text>& texts, std::span<const double> logits,
                              Job& job) {
  const auto vocabulary = static_cast<std::size_t>(decoder_->vocabulary());
  bool goes_on = false;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Text& text = texts[i];
    // Those that are done keep their place: any token will do.
    data::TokenId token = text.tokens.back();
    if (!text.done) {
      token = job.sampler.choose(logits.subspan(i * vocabulary, job.usable),
                                 {.prompt = text.request->number,
                                  .sample = text.request->sample,
                                  .position = text.tokens.size()});
      ++speed_.new_tokens;
      if (token == job.config.end_of_document) {
        text.result.finish = FinishReason::end_of_document;
        text.done = true;
      } else {
        text.result.tokens.push_back(token);
        if (job.on_token) job.on_token(text.index, token);
        text.done = std::ssize(text.result.tokens) >= job.config.max_tokens;
      }
    }
    text.tokens.push_back(token);
    goes_on = goes_on || !text.done;
  }
  return goes_on;
}

}  // namespace trireme::inference
