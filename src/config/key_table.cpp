// config/key_table.cpp — the table of all keys. To add one: a member in deck.hpp, a line
// here, and docs/deck.md anew (see the head of that page).
#include "config/key_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/plural.hpp"
#include "config/capability.hpp"
#include "config/key_readers.hpp"
#include "config/paths.hpp"
#include "config/text.hpp"

namespace trireme::config {
namespace {

constexpr index_t kLarge = index_t{1} << 40;

// A member of a Deck, const or not. Not a lambda of each key's own: a hundred types would
// have a hundred copies of what is made of them compiled.
template <class T>
struct Member {
  T& (*of)(Deck&);
  const T& (*of_const)(const Deck&);

  T& operator()(Deck& deck) const { return of(deck); }
  const T& operator()(const Deck& deck) const { return of_const(deck); }
};

#define TRIREME_AT(member)            \
  Member<decltype(Deck::member)> {    \
    [](Deck & deck) -> auto& {        \
      return deck.member;             \
    }                                 \
    , [](const Deck& deck) -> auto& { \
      return deck.member;             \
    }                                 \
  }

struct About {
  const char* path;
  const char* unit;
  const char* default_value;
  const char* description;
};

template <class T>
Key integer_key(const About& about, Member<T> at, index_t least, index_t most = kLarge) {
  const std::string allowed = most == kLarge ? fmt::format("at least {}", least)
                                             : fmt::format("{} to {}", least, most);
  return {{about.path, "integer", about.unit, about.default_value, allowed,
           about.description},
          [=](const YamlValue& value, Deck& deck) {
            index_t number = 0;
            auto problem = read_integer(value, least, most, number);
            if (!problem) at(deck) = static_cast<T>(number);
            return problem;
          },
          [=](const Deck& deck) { return std::to_string(at(deck)); }};
}

template <class T>
Key number_key(const About& about, Member<T> at, const NumberRange& range,
               const char* allowed) {
  return {
      {about.path, "number", about.unit, about.default_value, allowed, about.description},
      [=](const YamlValue& value, Deck& deck) {
        return read_number(value, range, at(deck));
      },
      [=](const Deck& deck) { return number_text(at(deck)); }};
}

template <class T>
Key boolean_key(const About& about, Member<T> at) {
  return {
      {about.path, "true or false", about.unit, about.default_value, "true, false",
       about.description},
      [=](const YamlValue& value, Deck& deck) { return read_boolean(value, at(deck)); },
      [=](const Deck& deck) { return std::string(at(deck) ? "true" : "false"); }};
}

template <class E>
Key choice_key(const About& about, Member<E> at) {
  return {
      {about.path, "word", about.unit, about.default_value, join_words(words_of<E>()),
       about.description},
      [=](const YamlValue& value, Deck& deck) { return read_choice<E>(value, at(deck)); },
      [=](const Deck& deck) { return std::string(name_of(at(deck))); }};
}

std::string path_value(const std::string& path) {
  return yaml_text(path_text(path));
}

Key path_key(const About& about, Member<std::string> at) {
  return {
      {about.path, "path", about.unit, about.default_value, "a path", about.description},
      [=](const YamlValue& value, Deck& deck) { return read_path(value, at(deck)); },
      [=](const Deck& deck) { return path_value(at(deck)); }};
}

template <class T>
Key length_key(const About& about, Member<T> at, index_t least) {
  return {{about.path, "length", "steps, samples or tokens", about.default_value,
           fmt::format("at least {}", least), about.description},
          [=](const YamlValue& value, Deck& deck) {
            return read_length(value, least, at(deck));
          },
          [=](const Deck& deck) { return to_text(at(deck)); }};
}

template <class T>
Key time_key(const About& about, Member<T> at, const char* word) {
  return {
      {about.path, "time", "s, m, h or d", about.default_value,
       fmt::format("a time above 0 (90s, 10m, 1h30m), or {}", word), about.description},
      [=](const YamlValue& value, Deck& deck) {
        return read_time(value, word, at(deck));
      },
      [=](const Deck& deck) {
        return at(deck) ? time_text(*at(deck)) : std::string(word);
      }};
}

// A length, or `word` for none.
Key optional_length_key(const About& about, Member<std::optional<Length>> at,
                        const char* word) {
  return {{about.path, "length", "steps, samples or tokens", about.default_value,
           fmt::format("at least 1, or {}", word), about.description},
          [=](const YamlValue& value, Deck& deck) -> std::optional<Problem> {
            if (value.is_scalar() && value.text == word) {
              at(deck).reset();
              return std::nullopt;
            }
            Length length;
            auto problem = read_length(value, 1, length);
            if (problem && problem->fix.empty()) problem->fix = word;
            if (!problem) at(deck) = length;
            return problem;
          },
          [=](const Deck& deck) {
            return at(deck) ? to_text(*at(deck)) : std::string(word);
          }};
}

Key required(Key key) {
  key.required = true;
  key.info.default_value = "none: must be given";
  return key;
}

// ---- keys of a shape of their own ----

std::optional<Problem> unknown_inner_key(const YamlValue::Entry& entry,
                                         const std::vector<std::string_view>& known) {
  if (std::find(known.begin(), known.end(), entry.key) != known.end())
    return std::nullopt;
  return Problem{fmt::format("has a key '{}' that is not known here", entry.key),
                 nearest_word(entry.key, known)};
}

Key vocab_key() {
  const char* allowed = "at least 2, or corpus";
  return {{"model.vocab", "integer", "tokens", "corpus", allowed,
           "Size of the vocabulary, unpadded. corpus: as the training corpus says. A "
           "number is "
           "needed where there is no corpus yet (--dry-run)."},
          [](const YamlValue& value, Deck& deck) -> std::optional<Problem> {
            if (value.is_scalar() && value.text == "corpus") {
              deck.model.vocab = 0;
              return std::nullopt;
            }
            return read_integer(value, 2, index_t{1} << 31, deck.model.vocab);
          },
          [](const Deck& deck) {
            return deck.model.vocab == 0 ? std::string("corpus")
                                         : std::to_string(deck.model.vocab);
          }};
}

std::optional<Problem> read_corpus(const YamlValue& value, WeightedPath& out) {
  if (!value.is_map()) return read_path(value, out.path);
  for (const auto& entry : value.entries) {
    std::optional<Problem> problem = unknown_inner_key(entry, {"path", "weight"});
    if (!problem && entry.key == "path") problem = read_path(entry.value, out.path);
    if (!problem && entry.key == "weight") {
      problem = read_number(entry.value, {.least = 0.0, .open_below = true}, out.weight);
      if (problem) {
        problem->what = fmt::format("weight: {} {}", brief(entry.value), problem->what);
      }
    }
    if (problem) return problem;
  }
  if (out.path.empty())
    return Problem{"has a corpus without path", "{path: corpus.h5, weight: 1}"};
  return std::nullopt;
}

std::optional<Problem> read_train(const YamlValue& value, Deck& deck) {
  std::vector<WeightedPath> corpora;
  if (value.is_scalar() && value.text == "none" && !value.quoted) {
    deck.data.train.clear();
    return std::nullopt;
  }
  const bool list = value.is_list();
  if (!list && !value.is_scalar()) {
    return Problem{
        fmt::format("is {}; a path or a list of paths is wanted", kind_of(value)), ""};
  }
  for (const YamlValue& item : list ? value.items : std::vector<YamlValue>{value}) {
    if (auto problem = read_corpus(item, corpora.emplace_back())) return problem;
  }
  if (corpora.empty()) return Problem{"is an empty list", "the path of a corpus"};
  deck.data.train = corpora;
  return std::nullopt;
}

std::string write_train(const Deck& deck) {
  const auto& train = deck.data.train;
  if (train.empty()) return "none";
  if (train.size() == 1 && train[0].weight == 1.0) return path_value(train[0].path);
  std::vector<std::string> items;
  for (const WeightedPath& corpus : train) {
    items.push_back(fmt::format("{{path: {}, weight: {}}}", path_value(corpus.path),
                                number_text(corpus.weight)));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::optional<Problem> read_validation(const YamlValue& value, Deck& deck) {
  std::vector<NamedPath> sets;
  if (value.is_scalar() && value.text == "none" && !value.quoted) {
    deck.data.validation.clear();
    return std::nullopt;
  }
  if (!value.is_map()) {
    return Problem{fmt::format("is {}; names with paths are wanted", kind_of(value)),
                   value.is_scalar() ? fmt::format("{{main: {}}}", value.text) : ""};
  }
  for (const auto& entry : value.entries) {
    NamedPath set{entry.key, ""};
    if (auto problem = read_path(entry.value, set.path)) {
      problem->what = fmt::format("{}: {}", entry.key, problem->what);
      return problem;
    }
    for (const NamedPath& other : sets) {
      if (other.name == set.name) {
        return Problem{fmt::format("has the name '{}' twice", set.name), set.name + "_2"};
      }
    }
    sets.push_back(set);
  }
  deck.data.validation = sets;
  return std::nullopt;
}

std::string write_validation(const Deck& deck) {
  if (deck.data.validation.empty()) return "none";
  std::vector<std::string> items;
  for (const NamedPath& set : deck.data.validation) {
    items.push_back(fmt::format("{}: {}", yaml_text(set.name), path_value(set.path)));
  }
  return fmt::format("{{{}}}", fmt::join(items, ", "));
}

// N numbers in a list.
template <std::size_t N>
std::optional<Problem> read_numbers(const YamlValue& value, const NumberRange& range,
                                    std::array<double, N>& out) {
  if (!value.is_list() || value.items.size() != N) {
    return Problem{
        fmt::format("is {}{}; a list of {} is wanted", kind_of(value),
                    value.is_list() ? fmt::format(" of {}", value.items.size()) : "",
                    format_plural(N, "number")),
        ""};
  }
  std::array<double, N> numbers{};
  for (std::size_t i = 0; i < N; ++i) {
    if (auto problem = read_number(value.items[i], range, numbers[i])) {
      problem->what = fmt::format("{} {}", brief(value.items[i]), problem->what);
      problem->fix = "";
      return problem;
    }
  }
  out = numbers;
  return std::nullopt;
}

template <std::size_t N>
std::string write_numbers(const std::array<double, N>& numbers) {
  std::vector<std::string> items;
  for (const double number : numbers) items.push_back(number_text(number));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::optional<Problem> read_ramp_up(const YamlValue& value, Deck& deck) {
  if (value.is_scalar() && value.text == "none") {
    deck.batch.ramp_up.reset();
    return std::nullopt;
  }
  const char* example = "{start: 8, increment: 8, samples: 10000}";
  if (!value.is_map()) {
    return Problem{
        fmt::format("is {}; start, increment and samples are wanted", kind_of(value)),
        example};
  }
  RampUp ramp;
  for (const auto& entry : value.entries) {
    auto problem = unknown_inner_key(entry, {"start", "increment", "samples"});
    if (!problem) {
      index_t& out = entry.key == "start"
                         ? ramp.start
                         : (entry.key == "increment" ? ramp.increment : ramp.samples);
      problem = read_integer(entry.value, 1, kLarge, out);
      if (problem) {
        problem->what =
            fmt::format("{}: {} {}", entry.key, brief(entry.value), problem->what);
      }
    }
    if (problem) return problem;
  }
  if (ramp.start == 0 || ramp.increment == 0 || ramp.samples == 0) {
    return Problem{"lacks one of start, increment and samples", example};
  }
  deck.batch.ramp_up = ramp;
  return std::nullopt;
}

std::string write_ramp_up(const Deck& deck) {
  if (!deck.batch.ramp_up) return "none";
  const RampUp& ramp = *deck.batch.ramp_up;
  return fmt::format("{{start: {}, increment: {}, samples: {}}}", ramp.start,
                     ramp.increment, ramp.samples);
}

std::optional<Problem> read_data_axis(const YamlValue& value, Deck& deck) {
  index_t extent = 1;
  if (value.is_scalar() && value.text == "auto") {
    deck.parallel.data_auto = true;
    return std::nullopt;
  }
  if (auto problem = read_integer(value, 1, 1 << 24, extent)) return problem;
  deck.parallel.data = static_cast<int>(extent);
  deck.parallel.data_auto = false;
  return std::nullopt;
}

std::optional<Problem> read_order(const YamlValue& value, Deck& deck) {
  const char* fix = "[tensor, context, data, pipeline]";
  if (!value.is_list() || value.items.size() != 4) {
    return Problem{"is not a list of the four axes", fix};
  }
  AxisOrder order{};
  for (std::size_t i = 0; i < 4; ++i) {
    if (auto problem = read_choice<Axis>(value.items[i], order[i])) {
      return Problem{fmt::format("'{}' is not an axis", brief(value.items[i])), fix};
    }
    if (std::count(order.begin(), order.begin() + i, order[i]) > 0) {
      return Problem{fmt::format("names {} twice", name_of(order[i])), fix};
    }
  }
  deck.parallel.order = order;
  return std::nullopt;
}

std::string write_order(const Deck& deck) {
  std::vector<std::string_view> words;
  for (const Axis axis : deck.parallel.order) words.push_back(name_of(axis));
  return fmt::format("[{}]", join_words(words));
}

std::optional<Problem> read_stages(const YamlValue& value, Deck& deck) {
  deck.parallel.stages.clear();
  if (value.is_scalar() && value.text == "auto") return std::nullopt;
  if (!value.is_list() || value.items.empty()) {
    return Problem{
        fmt::format("is {}; auto or a list of layers is wanted", kind_of(value)), "auto"};
  }
  std::vector<index_t> stages;
  for (const YamlValue& item : value.items) {
    if (auto problem = read_integer(item, 0, kLarge, stages.emplace_back())) {
      problem->what = fmt::format("{} {}", brief(item), problem->what);
      problem->fix = "";
      return problem;
    }
  }
  deck.parallel.stages = stages;
  return std::nullopt;
}

constexpr const char* kPerRank = "per_rank";
constexpr const char* kPerNode = "per_node";

std::optional<Problem> read_writers(const YamlValue& value, Deck& deck) {
  index_t& writers = deck.checkpoint.writers;
  if (value.is_scalar() && (value.text == kPerRank || value.text == kPerNode)) {
    writers = value.text == kPerRank ? kWriterPerRank : kWriterPerNode;
    return std::nullopt;
  }
  if (value.is_scalar() && !parse_integer(value.text) && !parse_number(value.text)) {
    return Problem{"is neither of the words nor a number of files",
                   nearest_word(value.text, {kPerRank, kPerNode})};
  }
  return read_integer(value, 1, kLarge, writers);
}

std::string write_writers(const Deck& deck) {
  const index_t writers = deck.checkpoint.writers;
  if (writers == kWriterPerRank) return kPerRank;
  return writers == kWriterPerNode ? kPerNode : std::to_string(writers);
}

std::optional<Problem> read_signals(const YamlValue& value, Deck& deck) {
  if (!value.is_list()) {
    return Problem{fmt::format("is {}; a list of signals is wanted", kind_of(value)),
                   value.is_scalar() ? fmt::format("[{}]", value.text) : ""};
  }
  std::vector<SignalName> signals;
  std::vector<std::string> without_sig;
  for (const YamlValue& item : value.items) {
    without_sig.push_back(item.text.rfind("SIG", 0) == 0 ? item.text.substr(3)
                                                         : item.text);
  }
  for (const YamlValue& item : value.items) {
    SignalName signal{};
    if (auto problem = read_choice(item, signal)) {
      problem->what = fmt::format("'{}' {}", brief(item), problem->what);
      if (item.text.rfind("SIG", 0) == 0) {
        problem->fix = fmt::format("[{}]", fmt::join(without_sig, ", "));
      }
      return problem;
    }
    signals.push_back(signal);
  }
  deck.checkpoint.on_signal = signals;
  return std::nullopt;
}

std::string write_signals(const Deck& deck) {
  std::vector<std::string_view> words;
  for (const SignalName signal : deck.checkpoint.on_signal)
    words.push_back(name_of(signal));
  return fmt::format("[{}]", join_words(words));
}

constexpr NumberRange kProbability = {.least = 0.0, .most = 1.0, .open_above = true};
constexpr NumberRange kPositive = {.least = 0.0, .open_below = true};
constexpr NumberRange kNotNegative = {.least = 0.0};
// Far below the 16 bits that random::Generator has for the layer; what is planned by
// running every layer's code is planned within seconds.
constexpr index_t kMostLayers = 1 << 12;

void add_model(std::vector<Key>& keys) {
  keys.push_back(choice_key<ModelKind>({"model.kind", "", "gpt", "Architecture."},
                                       TRIREME_AT(model.kind)));
  keys.push_back(
      required(integer_key({"model.layers", "layers", "", "Transformer layers."},
                           TRIREME_AT(model.layers), 1, kMostLayers)));
  keys.push_back(
      required(integer_key({"model.hidden", "elements", "",
                            "Width of the residual stream; a multiple of heads."},
                           TRIREME_AT(model.hidden), 1, 1 << 24)));
  keys.push_back(required(integer_key({"model.heads", "heads", "", "Attention heads."},
                                      TRIREME_AT(model.heads), 1, 1 << 20)));
  keys.push_back(integer_key({"model.ffn_hidden", "elements", "4 × model.hidden",
                              "Inner width of the feed-forward block."},
                             TRIREME_AT(model.ffn_hidden), 1, 1 << 26));
  keys.push_back(required(integer_key(
      {"model.sequence", "tokens", "", "Length of a sample, and of the position table."},
      TRIREME_AT(model.sequence), 1, 1 << 26)));
  keys.push_back(vocab_key());
  keys.push_back(
      number_key({"model.dropout", "probability", "0.1",
                  "Dropout after the embedding, attention and feed-forward blocks."},
                 TRIREME_AT(model.dropout), kProbability, "0 to below 1"));
  keys.push_back(number_key({"model.attention_dropout", "probability", "0.1",
                             "Dropout of attention probabilities."},
                            TRIREME_AT(model.attention_dropout), kProbability,
                            "0 to below 1"));
  keys.push_back(number_key({"model.init_std", "", "0.02",
                             "Standard deviation of initial weights; projections into "
                             "the residual stream have it "
                             "divided by sqrt(2 × layers)."},
                            TRIREME_AT(model.init_std), kPositive, "above 0"));
  keys.push_back(
      integer_key({"model.kv_heads", "heads", "model.heads",
                   "Key and value heads (fewer than heads: grouped-query attention)."},
                  TRIREME_AT(model.kv_heads), 1, 1 << 20));
  keys.push_back(choice_key<Norm>({"model.norm", "", "layernorm", "Normalisation."},
                                  TRIREME_AT(model.norm)));
  keys.push_back(choice_key<Activation>(
      {"model.activation", "", "gelu_tanh", "Activation of the feed-forward block."},
      TRIREME_AT(model.activation)));
  keys.push_back(
      choice_key<Position>({"model.position", "", "learned", "Position encoding."},
                           TRIREME_AT(model.position)));
  keys.push_back(
      boolean_key({"model.bias", "", "true", "Biases in linear layers and norms."},
                  TRIREME_AT(model.bias)));
  keys.push_back(boolean_key({"model.tie_embeddings", "", "true",
                              "The output head uses the token embedding's weights."},
                             TRIREME_AT(model.tie_embeddings)));
}

void add_data(std::vector<Key>& keys) {
  keys.push_back({{"data.train", "path, or list of {path, weight}", "", "none",
                   "files made by trireme tokenize; weights above 0; or none",
                   "Training corpus, or several blended by weight. Needed for training."},
                  read_train,
                  write_train});
  keys.push_back(
      {{"data.validation", "{name: path, ...}", "", "none",
        "names with paths of corpora; or none",
        "Corpora for validation. Without any, split cuts validation from train."},
       read_validation,
       write_validation});
  keys.push_back(
      {{"data.split", "list of 3 numbers", "fractions of tokens", "[0.98, 0.02, 0.0]",
        "0 to 1 each, together 1; only where no validation is given",
        "Contiguous parts of the corpus for training, validation and test."},
       [](const YamlValue& value, Deck& deck) {
         return read_numbers(value, {.least = 0.0, .most = 1.0}, deck.data.split);
       },
       [](const Deck& deck) {
         return deck.data.validation.empty() ? write_numbers(deck.data.split)
                                             : std::string();
       }});
  keys.push_back(
      integer_key({"data.seed", "", "run.seed", "Seed of the order of samples."},
                  TRIREME_AT(data.seed), 0, (index_t{1} << 62)));
  keys.push_back(
      boolean_key({"data.mask_eod_loss", "", "false",
                   "Leave the token after an end-of-document out of the loss."},
                  TRIREME_AT(data.mask_eod_loss)));
}

void add_batch(std::vector<Key>& keys) {
  keys.push_back(integer_key({"batch.micro", "samples", "1",
                              "Samples that one rank takes through the model at a time."},
                             TRIREME_AT(batch.micro), 1, 1 << 24));
  keys.push_back(
      integer_key({"batch.global", "samples", "32",
                   "Samples of one optimizer step; a multiple of micro × data."},
                  TRIREME_AT(batch.global), 1, 1 << 24));
  keys.push_back(
      {{"batch.ramp_up", "{start, increment, samples}", "samples", "none",
        "whole numbers above 0; or none",
        "Batch size grows from start to global by increments over that many samples."},
       read_ramp_up,
       write_ramp_up});
}

void add_parallel(std::vector<Key>& keys) {
  keys.push_back(
      integer_key({"parallel.tensor", "ranks", "1",
                   "Ranks that share every matrix; divides heads, kv_heads and "
                   "ffn_hidden."},
                  TRIREME_AT(parallel.tensor), 1, 1 << 20));
  keys.push_back(integer_key({"parallel.pipeline", "ranks", "1",
                              "Pipeline stages, each with a part of the layers."},
                             TRIREME_AT(parallel.pipeline), 1, 1 << 20));
  keys.push_back(
      integer_key({"parallel.virtual_pipeline", "chunks", "1",
                   "Chunks of layers on each stage: several make the bubble of "
                   "the pipeline smaller, and the messages more."},
                  TRIREME_AT(parallel.virtual_pipeline), 1, 1 << 16));
  keys.push_back(
      integer_key({"parallel.context", "ranks", "1", "Ranks that share a sequence."},
                  TRIREME_AT(parallel.context), 1, 1 << 20));
  keys.push_back(
      {{"parallel.data", "integer", "ranks", "auto", "at least 1, or auto",
        "Copies of the model. auto: all ranks / (tensor × pipeline × context)."},
       read_data_axis,
       [](const Deck& deck) {
         return deck.parallel.data_auto ? std::string("auto")
                                        : std::to_string(deck.parallel.data);
       }});
  keys.push_back(
      boolean_key({"parallel.sequence", "", "false",
                   "Sequence parallelism: norms and dropout are split over the tensor "
                   "ranks too, by positions; tensor divides sequence. Without effect on "
                   "one tensor rank."},
                  TRIREME_AT(parallel.sequence)));
  keys.push_back(integer_key({"parallel.zero", "", "1",
                              "What data-parallel ranks share: 0 nothing, 1 optimizer "
                              "state, 2 and gradients, 3 and "
                              "weights. Without effect on one data rank."},
                             TRIREME_AT(parallel.zero), 0, 3));
  keys.push_back(
      {{"parallel.order", "list of 4 words", "", "[tensor, context, data, pipeline]",
        "each axis once",
        "Axes of the process grid, fastest first: by default neighbouring ranks are a "
        "tensor group."},
       read_order,
       write_order});
}

void add_pipeline(std::vector<Key>& keys) {
  keys.push_back(choice_key<PipelineSchedule>(
      {"parallel.schedule", "", "1f1b",
       "Order of a pipeline's passes. 1f1b: one forward, one backward in turn "
       "(interleaved "
       "where stages have several chunks); zero_bubble: the same, with weight gradients "
       "computed where a stage would be idle; gpipe: all forward, then all backward."},
      TRIREME_AT(parallel.schedule)));
  keys.push_back(
      {{"parallel.stages", "list of integers", "layers", "auto",
        "pipeline × virtual_pipeline numbers with sum model.layers, 0 for the first and "
        "the last chunk only; or auto",
        "Layers of each chunk, in order of the model: chunk c of stage r is number c × "
        "pipeline + r; the first has the embedding, too, the last the head. auto: dealt "
        "so "
        "that a step takes least time by simulation."},
       read_stages,
       [](const Deck& deck) {
         return deck.parallel.stages.empty()
                    ? std::string("auto")
                    : fmt::format("[{}]", fmt::join(deck.parallel.stages, ", "));
       }});
}

void add_precision_and_memory(std::vector<Key>& keys) {
  keys.push_back(
      choice_key<Precision>({"precision.compute", "", "fp32",
                             "Type of activations and of the weights used with them; "
                             "master weights, gradients and "
                             "optimizer state are fp32."},
                            TRIREME_AT(precision.compute)));
  keys.push_back(number_key({"precision.loss_scale.initial", "", "65536",
                             "First factor on the loss (fp16 only)."},
                            TRIREME_AT(precision.loss_scale.initial), kPositive,
                            "above 0"));
  keys.push_back(number_key(
      {"precision.loss_scale.minimum", "", "1", "The factor never falls below this."},
      TRIREME_AT(precision.loss_scale.minimum), kPositive, "above 0"));
  keys.push_back(integer_key({"precision.loss_scale.window", "steps", "1000",
                              "Steps without overflow after which the factor doubles."},
                             TRIREME_AT(precision.loss_scale.window), 1));
  keys.push_back(integer_key({"precision.loss_scale.hysteresis", "steps", "2",
                              "Overflows before the factor is halved."},
                             TRIREME_AT(precision.loss_scale.hysteresis), 1));
  keys.push_back(choice_key<Recompute>({"memory.recompute", "", "none",
                                        "Activations made again in the backward pass: "
                                        "none; norms and the MLP's activation "
                                        "(attention scores are never kept); all of a "
                                        "layer."},
                                       TRIREME_AT(memory.recompute)));
  keys.push_back(integer_key({"memory.recompute_layers", "layers", "0",
                              "With full: layers that are made again, the first of each "
                              "chunk of a stage; 0: all."},
                             TRIREME_AT(memory.recompute_layers), 0));
}

void add_optimizer(std::vector<Key>& keys) {
  keys.push_back(choice_key<OptimizerKind>(
      {"optimizer.kind", "", "adamw", "Optimizer; weight decay on matrices only."},
      TRIREME_AT(optimizer.kind)));
  keys.push_back(number_key({"optimizer.lr", "", "0.0003", "Peak learning rate."},
                            TRIREME_AT(optimizer.lr), kPositive, "above 0"));
  keys.push_back(number_key({"optimizer.min_lr", "", "0.1 × optimizer.lr",
                             "Learning rate at the end of the schedule."},
                            TRIREME_AT(optimizer.min_lr), kNotNegative,
                            "0 to optimizer.lr"));
  keys.push_back(choice_key<Schedule>(
      {"optimizer.schedule", "", "cosine",
       "From lr to min_lr after the warm-up; wsd stays at lr until the cool-down."},
      TRIREME_AT(optimizer.schedule)));
  keys.push_back(length_key({"optimizer.warmup", "", "0",
                             "Linear warm-up: update k (from 1) of W uses lr × k / W."},
                            TRIREME_AT(optimizer.warmup), 0));
  keys.push_back(
      length_key({"optimizer.decay", "", "run.steps",
                  "Where the schedule reaches min_lr, counted from the first step."},
                 TRIREME_AT(optimizer.decay), 1));
  keys.push_back(
      length_key({"optimizer.cooldown", "", "0.1 × optimizer.decay",
                  "Last part of decay in which wsd falls; other schedules ignore it."},
                 TRIREME_AT(optimizer.cooldown), 0));
  keys.push_back({{"optimizer.betas", "list of 2 numbers", "", "[0.9, 0.95]",
                   "0 to below 1 each", "Decay of the first and second moment."},
                  [](const YamlValue& value, Deck& deck) {
                    return read_numbers(value, kProbability, deck.optimizer.betas);
                  },
                  [](const Deck& deck) { return write_numbers(deck.optimizer.betas); }});
  keys.push_back(number_key({"optimizer.eps", "", "1e-08", "Added to the denominator."},
                            TRIREME_AT(optimizer.eps), kPositive, "above 0"));
  keys.push_back(number_key(
      {"optimizer.weight_decay", "", "0.1", "Decoupled weight decay, on matrices only."},
      TRIREME_AT(optimizer.weight_decay), kNotNegative, "at least 0"));
  keys.push_back(number_key({"optimizer.clip_norm", "", "1",
                             "Largest global norm of the gradient; 0: no clipping."},
                            TRIREME_AT(optimizer.clip_norm), kNotNegative, "at least 0"));
}

void add_run(std::vector<Key>& keys) {
  keys.push_back(length_key({"run.steps", "", "1000", "Length of the run."},
                            TRIREME_AT(run.steps), 1));
  keys.push_back(optional_length_key(
      {"run.stop_after", "", "never",
       "Each start ends after so much, with a checkpoint and status 0, and the next one "
       "goes on. Schedules stay those of run.steps."},
      TRIREME_AT(run.stop_after), "never"));
  keys.push_back(
      integer_key({"run.seed", "", "1234", "Seed of initial weights and dropout."},
                  TRIREME_AT(run.seed), 0, (index_t{1} << 62)));
  keys.push_back(
      path_key({"run.dir", "", "runs/ and the deck's name", "The run's directory."},
               TRIREME_AT(run.dir)));
  keys.push_back(length_key({"run.log_every", "", "10",
                             "Between records of training; 0: only the last step's."},
                            TRIREME_AT(run.log_every), 0));
  keys.push_back(length_key(
      {"run.validate_every", "", "100", "Between validations; 0: only at the end."},
      TRIREME_AT(run.validate_every), 0));
  keys.push_back(integer_key(
      {"run.validate_samples", "samples", "4096",
       "The first so many samples of each validation set are looked at; 0: all."},
      TRIREME_AT(run.validate_samples), 0));
  keys.push_back(length_key(
      {"run.sample_every", "", "0", "Between samples of generated text; 0: none."},
      TRIREME_AT(run.sample_every), 0));
  keys.push_back(
      boolean_key({"run.deterministic", "", "true",
                   "The same layout gives the same bits. Today it does either way."},
                  TRIREME_AT(run.deterministic)));
  keys.push_back(time_key({"run.time_limit", "", "none",
                           "Stop with a checkpoint and status 75 within this time. "
                           "Under SLURM the job's own limit counts, too."},
                          TRIREME_AT(run.time_limit), "none"));
  keys.push_back(
      time_key({"run.hang_timeout", "", "10m",
                "A rank that waits longer for another ends the run and says where."},
               TRIREME_AT(run.hang_timeout), "none"));
  keys.push_back(integer_key(
      {"run.max_idle_starts", "starts", "3",
       "--resume auto gives up after so many that saved no new step, or one in a small "
       "part of their time; 0: never."},
      TRIREME_AT(run.max_idle_starts), 0));
  keys.push_back(boolean_key(
      {"run.probe", "", "false", "Measure the memory of a step before the first one."},
      TRIREME_AT(run.probe)));
  keys.push_back(boolean_key({"run.preflight", "", "false",
                              "Try every node first: writing, memory, computing, "
                              "messages; name those that fail or "
                              "are much slower."},
                             TRIREME_AT(run.preflight)));
}

void add_checkpoint(std::vector<Key>& keys) {
  keys.push_back(length_key(
      {"checkpoint.every", "", "500", "Between checkpoints; 0: only at the end."},
      TRIREME_AT(checkpoint.every), 0));
  keys.push_back(integer_key({"checkpoint.keep", "checkpoints", "3",
                              "Newest verified checkpoints that are kept; 0: all."},
                             TRIREME_AT(checkpoint.keep), 0));
  keys.push_back(
      length_key({"checkpoint.keep_every", "", "0",
                  "Checkpoints at multiples of this are kept for good; 0: none."},
                 TRIREME_AT(checkpoint.keep_every), 0));
  keys.push_back(
      boolean_key({"checkpoint.keep_best", "", "true",
                   "Keep the best of those after whose step the loss was validated."},
                  TRIREME_AT(checkpoint.keep_best)));
  keys.push_back(boolean_key(
      {"checkpoint.async", "", "true",
       "Training goes on while a checkpoint is written, from a copy on the host."},
      TRIREME_AT(checkpoint.async)));
  keys.push_back({{"checkpoint.writers", "word or integer", "files", "per_rank",
                   "per_rank, per_node, or at least 1", "How many files ranks share."},
                  read_writers,
                  write_writers});
  keys.push_back(integer_key({"checkpoint.max_misses", "checkpoints", "3",
                              "So many failed in a row end the run; 0: none do."},
                             TRIREME_AT(checkpoint.max_misses), 0));
  keys.push_back(path_key(
      {"checkpoint.dir", "", "checkpoints in run.dir", "Directory of the checkpoints."},
      TRIREME_AT(checkpoint.dir)));
  keys.push_back({{"checkpoint.on_signal", "list of words", "", "[USR1, TERM]",
                   join_words(words_of<SignalName>()) + "; [] for none",
                   "Signals that end the run with a checkpoint and status 75."},
                  read_signals,
                  write_signals});
  keys.push_back(time_key(
      {"checkpoint.wall_time_margin", "", "auto",
       "Time kept before the limit for the last checkpoint. auto: 1.5 × the longest "
       "save so far; before the first a tenth of the time, at most 5m, or 1.5 × the "
       "longest of the start before if that is more."},
      TRIREME_AT(checkpoint.wall_time_margin), "auto"));
}
#undef TRIREME_AT

// What other systems call these keys.
const std::map<std::string, std::string>& other_names() {
  static const std::map<std::string, std::string> names = {
      {"n_layer", "model.layers"},
      {"num_layers", "model.layers"},
      {"num_hidden_layers", "model.layers"},
      {"n_embd", "model.hidden"},
      {"d_model", "model.hidden"},
      {"hidden_size", "model.hidden"},
      {"n_head", "model.heads"},
      {"num_attention_heads", "model.heads"},
      {"num_query_groups", "model.kv_heads"},
      {"num_key_value_heads", "model.kv_heads"},
      {"ffn_hidden_size", "model.ffn_hidden"},
      {"intermediate_size", "model.ffn_hidden"},
      {"seq_length", "model.sequence"},
      {"seq_len", "model.sequence"},
      {"block_size", "model.sequence"},
      {"n_positions", "model.sequence"},
      {"vocab_size", "model.vocab"},
      {"hidden_dropout", "model.dropout"},
      {"data_path", "data.train"},
      {"micro_batch_size", "batch.micro"},
      {"global_batch_size", "batch.global"},
      {"rampup_batch_size", "batch.ramp_up"},
      {"tensor_model_parallel_size", "parallel.tensor"},
      {"pipeline_model_parallel_size", "parallel.pipeline"},
      {"context_parallel_size", "parallel.context"},
      {"sequence_parallel", "parallel.sequence"},
      {"dtype", "precision.compute"},
      {"learning_rate", "optimizer.lr"},
      {"lr_decay_style", "optimizer.schedule"},
      {"lr_warmup_iters", "optimizer.warmup"},
      {"warmup_iters", "optimizer.warmup"},
      {"lr_decay_iters", "optimizer.decay"},
      {"clip_grad", "optimizer.clip_norm"},
      {"grad_clip", "optimizer.clip_norm"},
      {"train_iters", "run.steps"},
      {"max_steps", "run.steps"},
      {"max_iters", "run.steps"},
      {"log_interval", "run.log_every"},
      {"eval_interval", "run.validate_every"},
      {"save_interval", "checkpoint.every"},
      {"out_dir", "run.dir"}};
  return names;
}

}  // namespace

const std::vector<Key>& key_table() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> all;
    for (const auto add :
         {add_model, add_data, add_batch, add_parallel, add_pipeline,
          add_precision_and_memory, add_optimizer, add_run, add_checkpoint}) {
      add(all);
    }
    for (Key& key : all) key.info.allowed = mark_not_yet(key.info);
    return all;
  }();
  return keys;
}

const Key* find_key(const std::string& path) {
  static const std::unordered_map<std::string, const Key*> index = [] {
    std::unordered_map<std::string, const Key*> all;
    for (const Key& key : key_table()) all.emplace(key.info.path, &key);
    return all;
  }();
  const auto found = index.find(path);
  return found == index.end() ? nullptr : found->second;
}

bool is_section(const std::string& path) {
  const std::string prefix = path + ".";
  for (const Key& key : key_table()) {
    if (key.info.path.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

const char* followed_key(std::string_view path) {
  static const std::map<std::string_view, const char*> followed = {
      {"model.ffn_hidden", "model.hidden"},
      {"model.kv_heads", "model.heads"},
      {"data.seed", "run.seed"},
      {"optimizer.min_lr", "optimizer.lr"},
      {"optimizer.decay", "run.steps"},
      {"optimizer.cooldown", "optimizer.decay"},
      {"checkpoint.dir", "run.dir"}};
  const auto found = followed.find(path);
  return found == followed.end() ? nullptr : found->second;
}

std::string nearest_key(const std::string& path) {
  const auto last_part = [](const std::string& p) { return p.substr(p.rfind('.') + 1); };
  const std::string section = path.substr(0, path.rfind('.') + 1);
  std::string word = last_part(path);
  std::replace(word.begin(), word.end(), '-', '_');
  if (const auto known = other_names().find(word); known != other_names().end()) {
    return known->second;
  }
  // A key of another section, then a misspelt one of this, then a misspelt whole path.
  std::vector<std::string_view> siblings, paths, sections;
  for (const Key& key : key_table()) {
    if (last_part(key.info.path) == word) return key.info.path;
    paths.push_back(key.info.path);
    const std::string& p = key.info.path;
    if (!section.empty() && p.rfind(section, 0) == 0) {
      siblings.push_back(std::string_view(p).substr(section.size()));
    }
    const auto first = std::string_view(p).substr(0, p.find('.'));
    if (sections.empty() || sections.back() != first) sections.push_back(first);
  }
  if (section.empty()) {
    const std::string near = nearest_word(word, sections);
    if (!near.empty()) return near;
  }
  const std::string near = nearest_word(word, siblings);
  if (!near.empty()) return section + near;
  for (const Key& key : key_table()) {
    if (edit_distance(word, last_part(key.info.path)) <= 1 && word.size() > 3) {
      return key.info.path;
    }
  }
  return nearest_word(path, paths);
}

}  // namespace trireme::config
