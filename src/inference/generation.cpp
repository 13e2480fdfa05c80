// inference/generation.cpp — see generation.hpp.
//
// A text takes a place of the decoder, its prompt is read there, and then it goes on with
// the others, a token of each in a step, until it ends and leaves the place to the next
// that waits. Samples of one prompt that begin together have it read once.
//
// Where the context is full and texts may slide, the newer half is read again from
// position 0. The keys of GPT-2 hold their absolute positions, so that they cannot be
// moved: with a context of 8, tokens 4 to 7 are read again as 0 to 3, and four more can
// follow.
#include "inference/generation.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/plural.hpp"
#include "base/types.hpp"
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
  std::vector<data::TokenId> tokens;  // all of it: prompt and continuation
  index_t prompt = 0;                 // tokens of the prompt that are read
  index_t place = 0;                  // of the decoder, while it is under way
  Generation result;
};

struct Generator::Job {
  const GenerationConfig& config;
  const OnToken& on_token;
  Sampler sampler;
  std::size_t usable;            // logits that are looked at
  std::vector<Text> texts = {};  // in the order of the requests
  std::size_t waiting = 0;       // the first text that has not begun
  // The text in each place; kNone: it is free.
  std::vector<std::size_t> in_place = {};
  // Room for the texts of a step, to allocate it once.
  std::vector<std::size_t> stepping = {};
  std::vector<step::Decoder::Next> next = {};
  std::vector<step::Decoder::Continued> continued = {};

  static constexpr std::size_t kNone = ~std::size_t{0};

  std::size_t index_of(const Text& text) const {
    return static_cast<std::size_t>(&text - texts.data());
  }
  void leave(const Text& text) { in_place.at(extent(text.place)) = kNone; }
};

index_t texts_at_once(const step::DecoderMemory& of_one, std::size_t texts) {
  constexpr index_t kMost = 16;
  constexpr index_t kBytes = index_t{1} << 30;
  const index_t wanted = std::min(kMost, static_cast<index_t>(texts));
  return std::max<index_t>(1,
                           std::min(wanted, kBytes / static_cast<index_t>(of_one.cache)));
}

Generator::Generator(std::unique_ptr<step::Decoder> decoder)
    : Generator(std::move(decoder),
                kHostExecution ? DrawingPlace::host : DrawingPlace::device) {}

Generator::Generator(std::unique_ptr<step::Decoder> decoder, DrawingPlace drawing)
    : decoder_(std::move(decoder)),
      draws_on_device_(drawing == DrawingPlace::device && decoder_->draws() &&
                       decoder_->places() <= step::Decoder::kStepTexts) {}

void Generator::check_tokens(const GenerationRequest& request,
                             const std::vector<data::TokenId>& tokens) const {
  const auto vocabulary = static_cast<data::TokenId>(decoder_->vocabulary());
  for (const data::TokenId id : tokens) {
    TRIREME_REQUIRE_INPUT(id < vocabulary,
                          "prompt {} has the token {}, but this model's vocabulary has "
                          "{} (0 to {}): is this the model's own tokenizer?",
                          request.number + 1, id, format_plural(vocabulary, "token"),
                          vocabulary - 1);
  }
}

// Of a model that has sources a prompt, as users know it, is one.
void Generator::check_source(const GenerationRequest& request,
                             const GenerationConfig& config) const {
  const auto length = static_cast<index_t>(request.source.size());
  TRIREME_REQUIRE(decoder_->has_source() || length == 0,
                  "a text of this kind of model is made from no other");
  if (!decoder_->has_source()) return;
  TRIREME_REQUIRE_INPUT(length > 0,
                        "prompt {} is empty, and this kind of model makes its texts from "
                        "others: give it one",
                        request.number + 1);
  TRIREME_REQUIRE_INPUT(
      length <= decoder_->source_context(),
      "prompt {} has {} with the end of its text, but this model reads {} at most: "
      "shorten it by {}",
      request.number + 1, format_plural(length, "token"), decoder_->source_context(),
      length - decoder_->source_context());
  TRIREME_REQUIRE_INPUT(config.at_limit == AtContextLimit::stop,
                        "--slide: this kind of model makes its texts from others, and "
                        "forgets nothing of them: leave it out");
  check_tokens(request, request.source);
}

void Generator::check_prompt(const GenerationRequest& request,
                             const GenerationConfig& config) const {
  const auto length = static_cast<index_t>(request.prompt.size());
  TRIREME_REQUIRE_INPUT(length <= context() || config.at_limit == AtContextLimit::slide,
                        "prompt {} has {}, but this model's context has {}: shorten the "
                        "prompt by {}, or let it be cut (--slide reads its last {})",
                        request.number + 1, format_plural(length, "token"), context(),
                        length - context(), context());
  check_tokens(request, request.prompt);
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
  for (const GenerationRequest& request : requests) {
    check_source(request, config);
    check_prompt(request, config);
  }
}

std::vector<Generation> Generator::run(const std::vector<GenerationRequest>& requests,
                                       const GenerationConfig& config,
                                       const OnToken& on_token) {
  check(requests, config);
  const index_t vocabulary =
      config.usable_vocabulary > 0 ? config.usable_vocabulary : decoder_->vocabulary();
  Job job{.config = config,
          .on_token = on_token,
          .sampler = Sampler(config.sampling, vocabulary),
          .usable = extent(vocabulary)};
  job.in_place.assign(extent(decoder_->places()), Job::kNone);
  job.stepping.reserve(job.in_place.size());
  job.next.reserve(job.in_place.size());
  job.continued.reserve(job.in_place.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Text text;
    text.request = &requests[i];
    text.tokens = requests[i].prompt;
    if (text.tokens.empty()) text.tokens.push_back(*config.end_of_document);
    text.prompt = std::min<index_t>(std::ssize(text.tokens), context());
    text.result.unread = std::ssize(text.tokens) - text.prompt;
    text.tokens.reserve(text.tokens.size() +
                        static_cast<std::size_t>(std::min(config.max_tokens, context())));
    job.texts.push_back(std::move(text));
  }
  if (config.max_tokens == 0) job.waiting = job.texts.size();
  const auto is_done = [&] {
    return job.waiting == job.texts.size() &&
           std::ranges::all_of(job.in_place,
                               [](auto text) { return text == Job::kNone; });
  };
  while (!is_done()) {
    fill_places(job);
    draws_on_device_ ? draw(job) : advance(job);
  }
  std::vector<Generation> results;
  for (Text& text : job.texts) results.push_back(std::move(text.result));
  return results;
}

// Texts that wait take the free places, and get their first token.
void Generator::fill_places(Job& job) {
  const Text* read = nullptr;  // the text whose prompt was read last, and where
  index_t read_place = -1;
  std::span<const step::Logit> logits;
  for (std::size_t place = 0; place < job.in_place.size(); ++place) {
    if (job.in_place[place] != Job::kNone) continue;
    if (job.waiting == job.texts.size()) return;
    Text& text = job.texts[job.waiting];
    job.in_place[place] = job.waiting++;
    text.place = static_cast<index_t>(place);
    decoder_->clear(text.place);
    // Where the other one is done with its first token, its keys are still there: this
    // text has taken a place behind it.
    if (read != nullptr && read->request->prompt == text.request->prompt &&
        read->request->source == text.request->source) {
      decoder_->copy_text(read_place, text.place);
    } else {
      begin_text(text);
      logits = read_last(text, text.prompt);
      read = &text;
      read_place = text.place;
    }
    const auto begin = Clock::now();
    choose_token(job, text, logits);
    speed_.seconds += seconds_since(begin);
  }
}

// A token more for every text that is in a place.
void Generator::advance(Job& job) {
  job.stepping.clear();
  job.next.clear();
  for (const std::size_t index : job.in_place) {
    if (index == Job::kNone) continue;
    Text& text = job.texts[index];
    if (!make_room(job, text)) continue;
    job.stepping.push_back(index);
    job.next.push_back({text.place, text.tokens.back()});
  }
  if (job.next.empty()) return;
  const auto begin = Clock::now();
  const auto logits = decoder_->step(job.next);
  const auto vocabulary = static_cast<std::size_t>(decoder_->vocabulary());
  for (std::size_t i = 0; i < job.stepping.size(); ++i) {
    choose_token(job, job.texts[job.stepping[i]],
                 logits.subspan(i * vocabulary, vocabulary));
  }
  speed_.seconds += seconds_since(begin);
}

// Some tokens more for every text that is in a place, drawn on the device.
void Generator::draw(Job& job) {
  job.stepping.clear();
  job.continued.clear();
  index_t most = 0;
  for (const std::size_t index : job.in_place) {
    if (index == Job::kNone) continue;
    Text& text = job.texts[index];
    if (!make_room(job, text)) continue;
    const index_t left = job.config.max_tokens - std::ssize(text.result.tokens);
    most = std::max(most, left);
    job.stepping.push_back(index);
    job.continued.push_back({text.place, text.tokens.back(), std::ssize(text.tokens),
                             left, text.request->number | (text.request->sample << 32)});
  }
  if (job.continued.empty()) return;
  const auto begin = Clock::now();
  const SamplingConfig& sampling = job.config.sampling;
  const auto& end = job.config.end_of_document;
  decoder_->draw(
      {.rule = {sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed},
       .usable = static_cast<index_t>(job.usable),
       .end_of_document = end ? static_cast<std::int32_t>(*end) : -1},
      job.continued, std::min(most, step::Decoder::kDrawnSteps));
  for (const std::size_t index : job.stepping) {
    Text& text = job.texts[index];
    for (const std::int32_t token : decoder_->drawn(text.place)) {
      take_token(job, text, static_cast<data::TokenId>(token));
    }
  }
  speed_.seconds += seconds_since(begin);
}

// Whether a text's last token can be added to its positions. Where they are full it ends,
// or forgets its older half and gets its next token here.
bool Generator::make_room(Job& job, Text& text) {
  if (decoder_->length(text.place) < context()) return true;
  if (job.config.at_limit == AtContextLimit::stop) {
    text.result.finish = FinishReason::context_limit;
    job.leave(text);
    return false;
  }
  ++text.result.slides;
  decoder_->clear(text.place);
  choose_token(job, text, read_last(text, std::max<index_t>(context() / 2, 1)));
  return false;
}

// Takes in what the text is made from, where it is made from another.
void Generator::begin_text(const Text& text) {
  if (!decoder_->has_source()) return;
  const auto begin = Clock::now();
  decoder_->begin_text(text.place, text.request->source);
  speed_.prompt_tokens += std::ssize(text.request->source);
  speed_.prompt_seconds += seconds_since(begin);
}

// Reads the last `count` tokens of a text into its place, which is empty.
std::span<const step::Logit> Generator::read_last(const Text& text, index_t count) {
  const auto begin = Clock::now();
  const auto logits =
      decoder_->read(text.place, std::span(text.tokens).last(extent(count)));
  speed_.prompt_tokens += count;
  speed_.prompt_seconds += seconds_since(begin);
  return logits;
}

void Generator::choose_token(Job& job, Text& text, std::span<const step::Logit> logits) {
  const data::TokenId token =
      job.sampler.choose(logits.first(job.usable), {.prompt = text.request->number,
                                                    .sample = text.request->sample,
                                                    .position = text.tokens.size()});
  take_token(job, text, token);
}

void Generator::take_token(Job& job, Text& text, data::TokenId token) {
  ++speed_.new_tokens;
  if (token == job.config.end_of_document) {
    text.result.finish = FinishReason::end_of_document;
    job.leave(text);
    return;
  }
  text.tokens.push_back(token);
  text.result.tokens.push_back(token);
  if (job.on_token) job.on_token(job.index_of(text), token);
  if (std::ssize(text.result.tokens) >= job.config.max_tokens) job.leave(text);
}

}  // namespace trireme::inference
