// inference/generation.cpp — see generation.hpp.
#include "inference/generation.hpp"

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/group.hpp"

namespace trireme::inference {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The first `count` elements, on the Exec's queue.
template <class To, class From>
void copy_front(const Exec& exec, const To& to, const From& from, index_t count) {
  const auto front = Kokkos::make_pair(index_t{0}, count);
  copy(exec, Kokkos::subview(to, front), Kokkos::subview(from, front));
}

}  // namespace

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::end_of_document:
      return "end_of_document";
    case FinishReason::max_tokens:
      return "max_tokens";
    case FinishReason::context_limit:
      return "context_limit";
  }
  throw Error("name_of: not a FinishReason");
}

template <class T>
struct Generator<T>::Text {
  const GenerationRequest* request = nullptr;
  std::size_t index = 0;
  std::vector<data::TokenId> tokens;  // all of it: prompt and continuation
  index_t prompt = 0;                 // tokens of the prompt, the one put in front too
  Generation result;
  bool done = false;
};

template <class T>
struct Generator<T>::Job {
  const GenerationConfig& config;
  const OnToken& on_token;
  Sampler sampler;
  std::size_t usable;  // logits that are looked at
};

template <class T>
Generator<T>::Generator(const Exec& exec, step::ModelState<T>& state, index_t max_batch)
    : exec_(exec), state_(state), max_batch_(max_batch) {
  TRIREME_REQUIRE(max_batch >= 1, "a generator of {}", format_plural(max_batch, "text"));
  const auto allocate = [&](auto& array, const char* label, index_t count) {
    using Array = std::remove_reference_t<decltype(array)>;
    bytes_ += extent(count) * sizeof(typename Array::value_type);
    if (!exec.is_shape_only()) array = Array(label, extent(count));
  };
  const index_t rows = std::max(kPieceRows, max_batch);
  const index_t ranks = state.groups.tensor->size();
  const index_t logits = max_batch * state.whole().logit_columns();
  allocate(cache_, "generation cache", cache_elements(state, max_batch));
  allocate(step_, "generation step", 1);
  allocate(tokens_, "generation tokens", rows);
  allocate(positions_, "generation positions", rows);
  allocate(logits_, "generation logits", logits);
  if (ranks > 1) allocate(gathered_, "generation gather", ranks * logits);
  layers_.caches.resize(state.whole().cache_columns().size());
  if (exec.is_shape_only()) {
    find_workspace(rows);
    return;
  }
  step::ModelState<T> shapes = state.without_memory();
  const Generator planned(Exec::shape_only(), shapes, max_batch);
  workspace_ = Workspace(planned.workspace_.peaks());
  bytes_ += workspace_.bytes();
  host_tokens_ = HostArray<std::int32_t>("generation tokens (host)", extent(rows));
  host_positions_ = HostArray<std::int32_t>("generation positions (host)", extent(rows));
  host_logits_ = HostArray<T>("generation logits (host)", extent(ranks * logits));
  whole_logits_.resize(
      static_cast<std::size_t>(max_batch * state.architecture().vocabulary));
  history_.reserve(static_cast<std::size_t>(max_batch * context()));
}

// On shapes: as many rows as there ever are, and all of them with logits where that can
// be, as what the arenas hand out grows with rows only.
template <class T>
void Generator<T>::find_workspace(index_t rows) {
  workspace_ = Workspace({1}, {1});
  const std::vector<index_t> columns = state_.whole().cache_columns();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const View2<T> cache(static_cast<T*>(nullptr), extent(rows), extent(columns[i]));
    layers_.caches[i] = {cache, cache, 0};
  }
  run_layers(1, rows,
             View2<T>(static_cast<T*>(nullptr), extent(max_batch_),
                      extent(state_.whole().logit_columns())));
  bytes_ += workspace_.peaks().total();
}

template <class T>
index_t Generator<T>::batch_for(const step::ModelState<T>& state, std::size_t texts) {
  constexpr index_t kMost = 16;
  constexpr index_t kBytes = index_t{1} << 30;
  const index_t bytes = cache_elements(state, 1) * index_t{sizeof(T)};
  const index_t wanted = std::min(kMost, static_cast<index_t>(texts));
  return std::max<index_t>(1, std::min(wanted, kBytes / bytes));
}

template <class T>
index_t Generator<T>::cache_elements(const step::ModelState<T>& state,
                                     index_t max_batch) {
  index_t columns = 0;  // of keys, and the same of values
  for (const index_t of_layer : state.whole().cache_columns()) columns += of_layer;
  return 2 * columns * state.architecture().sequence * max_batch;
}

template <class T>
std::size_t Generator<T>::planned_bytes(const step::ModelState<T>& state,
                                        index_t max_batch) {
  step::ModelState<T> shapes = state.without_memory();
  return Generator(Exec::shape_only(), shapes, max_batch).bytes_;
}

template <class T>
void Generator<T>::start(index_t batch) {
  TRIREME_REQUIRE(batch >= 1 && batch <= max_batch_,
                  "{} for a generator that has room for {}", format_plural(batch, "text"),
                  max_batch_);
  batch_ = batch;
  length_ = 0;
  const auto rows = static_cast<std::size_t>(context() * batch);
  const std::vector<index_t> all_columns = state_.whole().cache_columns();
  T* next = cache_.data();
  for (std::size_t i = 0; i < all_columns.size(); ++i) {
    nn::KvCache<T>& layer = layers_.caches[i];
    const std::size_t columns = extent(all_columns[i]);
    layer.k = View2<T>(next, rows, columns);
    layer.v = View2<T>(next + rows * columns, rows, columns);
    layer.length = 0;
    next += 2 * rows * columns;
  }
}

template <class T>
std::span<const double> Generator<T>::feed(std::span<const data::TokenId> tokens) {
  const auto count = static_cast<index_t>(tokens.size());
  TRIREME_REQUIRE(batch_ > 0 && count > 0 && count % batch_ == 0,
                  "{} do not give {} the same number of new ones",
                  format_plural(count, "token"), format_plural(batch_, "text"));
  TRIREME_REQUIRE(length_ + count / batch_ <= context(),
                  "{} are filled, {} more exceed the model's {}",
                  format_plural(length_, "position"),
                  format_plural(count / batch_, "token"), context());
  const auto columns = static_cast<std::size_t>(state_.whole().logit_columns());
  const index_t piece = std::max<index_t>(kPieceRows / batch_, 1) * batch_;
  for (index_t at = 0; at < count; at += piece) {
    const index_t rows = std::min(piece, count - at);
    const index_t logit_rows = at + rows == count ? batch_ : 0;
    decode(tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(rows)),
           View2<T>(logits_.data(), static_cast<std::size_t>(logit_rows), columns));
  }
  return fetch_logits();
}

template <class T>
void Generator<T>::decode(std::span<const data::TokenId> tokens, View2<T> logits) {
  const auto rows = static_cast<index_t>(tokens.size());
  for (index_t r = 0; r < rows; ++r) {
    const auto i = static_cast<std::size_t>(r);
    host_tokens_(i) = static_cast<std::int32_t>(tokens[i]);
    host_positions_(i) = static_cast<std::int32_t>(length_ + r / batch_);
  }
  copy_front(exec_, tokens_, host_tokens_, rows);
  copy_front(exec_, positions_, host_positions_, rows);
  run_layers(rows / batch_, batch_, logits);
  length_ += rows / batch_;
  // The host's copies are written again by the next call.
  exec_.fence("trireme::inference::decode");
}

// New tokens of `samples` texts, `sequence` of each: those in tokens_ and positions_.
template <class T>
void Generator<T>::run_layers(index_t sequence, index_t samples, View2<T> logits) {
  BatchSpec spec = state_.blueprint.batch;
  spec.streams.at(0).sequence = sequence;
  nn::MicroBatch batch(spec, samples);
  const index_t rows = sequence * samples;
  batch.set(spec.field("tokens"), tokens_.data(), rows);
  batch.set(spec.field("positions"), positions_.data(), rows);
  const nn::Context context{.exec = exec_,
                            .groups = state_.groups,
                            .step = kernels::StepStateView(step_.data()),
                            .saved = &workspace_.saved(0, 0),
                            .scratch = workspace_.scratch(),
                            .held = workspace_.held(),
                            .batch = batch,
                            .mode = nn::Mode::evaluation,
                            .params = state_.use};
  state_.whole().decode(context, layers_, logits);
}

template <class T>
std::span<const double> Generator<T>::fetch_logits() {
  comm::Group& tensor = *state_.groups.tensor;
  const index_t ranks = tensor.size();
  const index_t columns = state_.whole().logit_columns();
  const index_t part = batch_ * columns;
  if (ranks > 1) {
    tensor.all_gather(exec_, comm::ConstSpan(logits_.data(), part, dtype_of<T>),
                      {gathered_.data(), ranks * part, dtype_of<T>});
  }
  copy_front(exec_, host_logits_, ranks > 1 ? gathered_ : logits_, ranks * part);
  exec_.fence("trireme::inference::fetch_logits");
  const index_t vocabulary = state_.architecture().vocabulary;
  for (index_t sample = 0; sample < batch_; ++sample) {
    for (index_t id = 0; id < vocabulary; ++id) {
      const index_t from = id / columns * part + sample * columns + id % columns;
      whole_logits_[static_cast<std::size_t>(sample * vocabulary + id)] =
          static_cast<double>(host_logits_(static_cast<std::size_t>(from)));
    }
  }
  return {whole_logits_.data(), static_cast<std::size_t>(batch_ * vocabulary)};
}

template <class T>
void Generator<T>::check_prompt(const GenerationRequest& request,
                                const GenerationConfig& config) const {
  const auto length = static_cast<index_t>(request.prompt.size());
  TRIREME_REQUIRE_INPUT(length <= context() || config.at_limit == AtContextLimit::slide,
                        "prompt {} has {}, but this model's context has {}: shorten the "
                        "prompt by {}, or let it be cut (--slide reads its last {})",
                        request.number + 1, format_plural(length, "token"), context(),
                        length - context(), context());
  const auto vocabulary = static_cast<data::TokenId>(state_.architecture().vocabulary);
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

template <class T>
void Generator<T>::check(const std::vector<GenerationRequest>& requests,
                         const GenerationConfig& config) const {
  config.sampling.validate();
  TRIREME_REQUIRE_INPUT(config.max_tokens >= 0, "{} new tokens: expected 0 or more",
                        config.max_tokens);
  TRIREME_REQUIRE(config.usable_vocabulary <= state_.architecture().vocabulary,
                  "tokens below {} of a model with {}", config.usable_vocabulary,
                  state_.architecture().vocabulary);
  for (const GenerationRequest& request : requests) check_prompt(request, config);
}

template <class T>
std::vector<Generation> Generator<T>::run(const std::vector<GenerationRequest>& requests,
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
  const index_t vocabulary = config.usable_vocabulary > 0
                                 ? config.usable_vocabulary
                                 : state_.architecture().vocabulary;
  Job job{config, on_token, Sampler(config.sampling, vocabulary),
          static_cast<std::size_t>(vocabulary)};
  std::vector<Generation> results(requests.size());
  // The first that waits, and with it those of the same length.
  while (!waiting.empty()) {
    std::vector<Text> batch, rest;
    for (Text& text : waiting) {
      const bool joins = batch.empty() || (text.prompt == batch[0].prompt &&
                                           std::ssize(batch) < max_batch_);
      (joins ? batch : rest).push_back(std::move(text));
    }
    waiting = std::move(rest);
    run_batch(batch, job);
    for (Text& text : batch) results[text.index] = std::move(text.result);
  }
  return results;
}

template <class T>
void Generator<T>::run_batch(std::vector<Text>& texts, Job& job) {
  if (texts[0].done) return;
  start(std::ssize(texts));
  auto begin = Clock::now();
  auto logits = read_again(texts, texts[0].prompt);
  speed_.prompt_seconds += seconds_since(begin);
  begin = Clock::now();
  while (choose_tokens(texts, logits, job)) {
    if (length_ < context()) {
      history_.clear();
      for (const Text& text : texts) history_.push_back(text.tokens.back());
      logits = feed(history_);
      continue;
    }
    if (job.config.at_limit == AtContextLimit::stop) {
      for (Text& text : texts) {
        if (!text.done) text.result.finish = FinishReason::context_limit;
      }
      break;
    }
    for (Text& text : texts) ++text.result.slides;
    start(batch_);
    logits = read_again(texts, std::max<index_t>(context() / 2, 1));
  }
  speed_.seconds += seconds_since(begin);
}

// The last `keep` tokens of every text, into an empty cache.
template <class T>
std::span<const double> Generator<T>::read_again(const std::vector<Text>& texts,
                                                 index_t keep) {
  history_.clear();
  for (index_t i = keep; i > 0; --i) {
    for (const Text& text : texts) {
      history_.push_back(text.tokens[text.tokens.size() - static_cast<std::size_t>(i)]);
    }
  }
  speed_.prompt_tokens += keep * batch_;
  return feed(history_);
}

// One more token for each text; false when all are done.
template <class T>
bool Generator<T>::choose_tokens(std::vector<Text>& texts, std::span<const double> logits,
                                 Job& job) {
  const auto vocabulary = static_cast<std::size_t>(state_.architecture().vocabulary);
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

#define TRIREME_INSTANTIATE(T) template class Generator<T>;
TRIREME_FOR_EACH_MODEL_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::inference
