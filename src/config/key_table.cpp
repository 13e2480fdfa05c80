// config/key_table.cpp — the table of all keys.
//
// Reading, checking a value by itself, writing a resolved deck and docs/deck.md all walk
// along this one table, so that a key cannot be known to one of them and not to another.
// A key is a member of Deck, how its text is read and written, and what people are told
// of it. What several keys must agree in is asked in check.cpp. To add one: a member in
// deck.hpp, a line here, and docs/deck.md anew (see the head of that page).
#include "config/key_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/plural.hpp"
#include "base/random.hpp"
#include "base/words.hpp"
#include "config/capability.hpp"
#include "config/composite_readers.hpp"
#include "config/key_readers.hpp"
#include "config/kinds.hpp"
#include "config/text.hpp"

namespace trireme::config {
namespace {

constexpr index_t kLarge = index_t{1} << 40;

// A member of a Deck, const or not, and the key that it holds, which has its name. Not a
// lambda of each key's own: a hundred types would have a hundred copies of what is made
// of them compiled.
template <class T>
struct Member {
  T& (*of)(Deck&);
  const T& (*of_const)(const Deck&);
  const char* path;

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
    , #member                         \
  }

constexpr const char* kMustBeGiven = "none: must be given";

// What the page of keys says of one. A default that is not said is that of an empty Deck.
struct About {
  const char* description;
  const char* unit = "";
  const char* default_value = "";
};

struct NamedRange {
  NumberRange range;
  const char* allowed;
};
constexpr NamedRange kProbability = {{.least = 0.0, .most = 1.0, .open_above = true},
                                     "0 to below 1"};
// The rate of one word in 2^16, which is round(65536 p) = 1.
constexpr double kLeastDropout = 1.0 / random::DropoutWords::kValues;
constexpr NamedRange kPositive = {{.least = 0.0, .open_below = true}, "above 0"};
constexpr NamedRange kNotNegative = {{.least = 0.0}, "at least 0"};
constexpr NamedRange kShare = {{.least = 0.0, .most = 1.0}, "0 to 1"};
constexpr NamedRange kPart = {
    {.least = 0.0, .most = 1.0, .open_below = true, .open_above = true},
    "above 0, below 1"};

// The table while it is made: a function for each kind of value.
class Table {
 public:
  std::vector<Key> keys;

  void add(KeyInfo info, decltype(Key::read) read, decltype(Key::write) write) {
    const bool required = info.default_value == kMustBeGiven;
    if (info.default_value.empty()) info.default_value = write(Deck());
    keys.push_back({std::move(info), std::move(read), std::move(write), required});
  }

  template <class T>
  void integer(Member<T> at, const About& about, index_t least, index_t most = kLarge) {
    add_read(
        at, about, "integer",
        most == kLarge ? fmt::format("at least {}", least)
                       : fmt::format("{} to {}", least, most),
        [=](const YamlValue& value, T& out) {
          index_t number = 0;
          auto problem = read_integer(value, least, most, number);
          if (!problem) out = static_cast<T>(number);
          return problem;
        },
        [](const T& value) { return std::to_string(value); });
  }

  void number(Member<double> at, const About& about, const NamedRange& named) {
    add_read(
        at, about, "number", named.allowed,
        [range = named.range](const YamlValue& value, double& out) {
          return read_number(value, range, out);
        },
        number_text);
  }

  // A probability that masks can be drawn with. Those of the first definition, of words
  // of 32 bits, could be any.
  void dropout(Member<double> at, const About& about) {
    add_read(
        at, about, "number", "0, or 1/65536 to 65535/65536",
        [](const YamlValue& value, double& out) -> std::optional<Problem> {
          double probability = 0.0;
          auto problem = read_number(value, kProbability.range, probability);
          if (problem) return problem;
          out = probability;
          if (random::DropoutWords::can_express(probability)) return {};
          const bool is_small = probability < 0.5;
          return Problem{is_small ? "is too small: masks are drawn from 16-bit words"
                                  : "is too large: masks are drawn from 16-bit words",
                         is_small ? "0" : number_text(1.0 - kLeastDropout), true};
        },
        number_text);
  }

  void boolean(Member<bool> at, const About& about) {
    add_read(at, about, "true or false", "true, false", read_boolean,
             [](bool value) { return std::string(value ? "true" : "false"); });
  }

  template <class E>
  void choice(Member<E> at, const About& about) {
    add_read(at, about, "word", join_words(words_of<E>()), read_choice<E>,
             [](E value) { return std::string(name_of(value)); });
  }

  void path(Member<std::string> at, const About& about) {
    add_read(at, about, "path", "a path", read_path, path_value);
  }

  // Empty: none.
  void optional_path(Member<std::string> at, const About& about) {
    add_read(
        at, about, "path", "a path, none",
        [](const YamlValue& value, std::string& out) -> std::optional<Problem> {
          if (!says(value, "none") || value.quoted) return read_path(value, out);
          out.clear();
          return {};
        },
        [](const std::string& path) { return path.empty() ? "none" : path_value(path); });
  }

  void length(Member<Length> at, const About& about, index_t least) {
    add_read(
        at, {about.description, kLengths, about.default_value}, "length",
        fmt::format("at least {}", least),
        [=](const YamlValue& value, Length& out) {
          return read_length(value, least, out);
        },
        to_text);
  }

  // A length, or a word for none.
  void length(Member<std::optional<Length>> at, const About& about, const char* word) {
    add_read(
        at, {about.description, kLengths, about.default_value}, "length",
        fmt::format("at least 1, or {}", word),
        [=](const YamlValue& value,
            std::optional<Length>& out) -> std::optional<Problem> {
          Length length;
          const bool is_word = says(value, word);
          auto problem = is_word ? std::nullopt : read_length(value, 1, length);
          if (problem && problem->fix.empty()) problem->fix = word;
          if (!problem) out = is_word ? std::nullopt : std::optional(length);
          return problem;
        },
        [=](const std::optional<Length>& length) {
          return length ? to_text(*length) : std::string(word);
        });
  }

  void time(Member<std::optional<double>> at, const About& about, const char* word) {
    add_read(
        at, {about.description, "s, m, h or d", about.default_value}, "time",
        fmt::format("a time above 0 (90s, 10m, 1h30m), or {}", word),
        [=](const YamlValue& value, std::optional<double>& out) {
          return read_time(value, word, out);
        },
        [=](const std::optional<double>& time) {
          return time ? time_text(*time) : std::string(word);
        });
  }

 private:
  static constexpr const char* kLengths = "steps, samples or tokens";

  template <class T, class Read, class Write>
  void add_read(Member<T> at, const About& about, const char* type, std::string allowed,
                const Read& read, const Write& write) {
    add(
        {at.path, type, about.unit, about.default_value, std::move(allowed),
         about.description},
        [=](const YamlValue& value, Deck& deck) { return read(value, at(deck)); },
        [=](const Deck& deck) { return write(at(deck)); });
  }
};

// ---- keys of a shape of their own ----

std::optional<Problem> read_vocab(const YamlValue& value, Deck& deck) {
  if (!says(value, "corpus")) {
    return read_integer(value, 2, index_t{1} << 31, deck.model.vocab);
  }
  deck.model.vocab = 0;
  return std::nullopt;
}

std::string write_vocab(const Deck& deck) {
  return deck.model.vocab == 0 ? "corpus" : std::to_string(deck.model.vocab);
}

// The items of a list, all of one kind.
template <class Out, class Read>
std::optional<Problem> read_items(const YamlValue& list, Out& out, const Read& read) {
  Out items = out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (auto problem = read(list.items[i], items[i])) {
      return Problem{fmt::format("{} {}", brief(list.items[i]), problem->what), ""};
    }
  }
  out = items;
  return std::nullopt;
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
  return read_items(value, out, [&](const YamlValue& item, double& number) {
    return read_number(item, range, number);
  });
}

template <std::size_t N>
std::string write_numbers(const std::array<double, N>& numbers) {
  std::vector<std::string> items;
  for (const double number : numbers) items.push_back(number_text(number));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::optional<Problem> read_data_axis(const YamlValue& value, Deck& deck) {
  index_t extent = 1;
  if (says(value, "auto")) {
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
  if (says(value, "auto")) return std::nullopt;
  if (!value.is_list() || value.items.empty()) {
    return Problem{
        fmt::format("is {}; auto or a list of layers is wanted", kind_of(value)), "auto"};
  }
  std::vector<index_t> stages(value.items.size());
  auto problem = read_items(value, stages, [](const YamlValue& item, index_t& layers) {
    return read_integer(item, 0, kLarge, layers);
  });
  if (!problem) deck.parallel.stages = stages;
  return problem;
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

// Far below the 16 bits that random::Generator has for the layer; what is planned by
// running every layer's code is planned within seconds.
constexpr index_t kMostLayers = 1 << 12;

// How long a sample, a vocabulary and a table of positions may be, and some more.
constexpr index_t kMostTokens = 1 << 26;

void add_model_sizes(Table& table) {
  table.choice(TRIREME_AT(model.kind), {"Architecture."});
  table.integer(TRIREME_AT(model.layers),
                {"Transformer layers; t5: those of the encoder.", "layers", kMustBeGiven},
                1, kMostLayers);
  table.integer(TRIREME_AT(model.decoder_layers),
                {"Layers of the decoder.", "layers", "model.layers"}, 1, kMostLayers);
  table.integer(TRIREME_AT(model.hidden),
                {"Width of the residual stream; without head_size a multiple of heads.",
                 "elements", kMustBeGiven},
                1, 1 << 24);
  table.integer(TRIREME_AT(model.heads), {"Attention heads.", "heads", kMustBeGiven}, 1,
                1 << 20);
  table.integer(TRIREME_AT(model.head_size),
                {"Width of a head's queries, keys and values; heads × head_size need not "
                 "be hidden.",
                 "elements", "model.hidden / model.heads"},
                1, 1 << 20);
  table.integer(
      TRIREME_AT(model.ffn_hidden),
      {"Inner width of the feed-forward block.", "elements", "4 × model.hidden"}, 1,
      1 << 26);
  table.integer(TRIREME_AT(model.sequence),
                {"Length of a sample, and of the position table; t5: what the encoder "
                 "reads. bert: at least 5, without pairs 3; t5: at least 3.",
                 "tokens", kMustBeGiven},
                1, kMostTokens);
  table.integer(TRIREME_AT(model.decoder_sequence),
                {"Length of what the decoder writes; at least what the corruption of a "
                 "full sample makes.",
                 "tokens", "what the corruption of a full sample makes: 114 for 512"},
                1, kMostTokens);
  table.add({"model.vocab", "integer", "tokens", "", "at least 2, or corpus",
             "Size of the vocabulary, unpadded. corpus: as the training corpus says. A "
             "number is needed where there is no corpus yet (--dry-run)."},
            read_vocab, write_vocab);
}

void add_model_variants(Table& table) {
  table.dropout(
      TRIREME_AT(model.dropout),
      {"Dropout after the embedding, attention and feed-forward blocks.", "probability"});
  table.dropout(TRIREME_AT(model.attention_dropout),
                {"Dropout of attention probabilities.", "probability"});
  table.number(TRIREME_AT(model.init_std),
               {"Standard deviation of initial weights; projections into the residual "
                "stream have it divided by sqrt(2 × layers)."},
               kPositive);
  table.integer(TRIREME_AT(model.kv_heads),
                {"Key and value heads (fewer than heads: grouped-query attention).",
                 "heads", "model.heads"},
                1, 1 << 20);
  table.choice(TRIREME_AT(model.norm), {"Normalisation.", "", "layernorm; t5: rmsnorm"});
  table.number(TRIREME_AT(model.norm_epsilon),
               {"Added to the variance, or mean square, that norms divide by.", "",
                "bert: 1e-12; t5: 1e-06"},
               kPositive);
  table.choice(TRIREME_AT(model.norm_placement),
               {"Where norms stand. pre: before attention and the feed-forward block, "
                "and one at the end; post: behind the sum with each, as BERT has it."});
  table.choice(TRIREME_AT(model.activation), {"Activation of the feed-forward block.", "",
                                              "gelu_tanh; bert: gelu; t5: relu"});
  table.choice(TRIREME_AT(model.position),
               {"Position encoding.", "", "learned; t5: relative"});
  table.integer(TRIREME_AT(model.relative_attention_num_buckets),
                {"Distances that the bias of attention tells apart; half of them each "
                 "way in the encoder. Even.",
                 "buckets"},
                4, 1 << 16);
  table.integer(
      TRIREME_AT(model.relative_attention_max_distance),
      {"From this distance on all are one bucket's; above half the buckets.", "tokens"},
      1, kMostTokens);
  table.boolean(TRIREME_AT(model.bias),
                {"Biases in linear layers and norms.", "", "true; t5: false"});
  table.boolean(TRIREME_AT(model.tie_embeddings),
                {"The output head uses the token embedding's weights."});
}

void add_model_of_pairs(Table& table) {
  table.integer(TRIREME_AT(model.type_vocab_size),
                {"Rows of the table of token types, by which segments differ; 0: none.",
                 "types", "2"},
                0, 1 << 16);
  table.boolean(TRIREME_AT(model.binary_head),
                {"A head that says of a pair of segments how it was made (data.pairs): "
                 "an objective beside that of masked tokens.",
                 "", "true"});
  table.integer(TRIREME_AT(model.max_predictions),
                {"Masked tokens of a sample that are predicted at most.", "tokens",
                 "data.mask_prob × model.sequence, rounded up"},
                1, kMostTokens);
}

void add_data(Table& table) {
  table.add({"data.train", "path, or list of {path, weight}", "", "",
             "files made by trireme tokenize; weights above 0, each at least 2.4e-10 of "
             "their sum; or none",
             "Training corpus, or several blended by weight. Needed for training."},
            read_train, write_train);
  table.add({"data.validation", "{name: path, ...}", "", "",
             "names with paths of corpora; or none",
             "Corpora for validation. Without any, split cuts validation from train."},
            read_validation, write_validation);
  table.add(
      {"data.split", "list of 3 numbers", "fractions of tokens", "[0.98, 0.02, 0.0]",
       "0 to 1 each, together 1; only where no validation is given",
       "Contiguous parts of the corpus for training, validation and test."},
      [](const YamlValue& value, Deck& deck) {
        return read_numbers(value, {.least = 0.0, .most = 1.0}, deck.data.split);
      },
      [](const Deck& deck) {
        return deck.data.validation.empty() ? write_numbers(deck.data.split)
                                            : std::string();
      });
  table.integer(TRIREME_AT(data.seed), {"Seed of the order of samples.", "", "run.seed"},
                0, (index_t{1} << 62));
  table.boolean(TRIREME_AT(data.mask_eod_loss),
                {"Leave the token after an end-of-document out of the loss."});
}

void add_samples(Table& table) {
  table.number(
      TRIREME_AT(data.mask_prob),
      {"Share of tokens that the model is to find: masked ones, or t5's noise.", "share"},
      kPart);
  table.integer(
      TRIREME_AT(data.max_ngrams),
      {"Words that are masked together, at most; n of them 1/n as often.", "words"}, 1,
      16);
  table.boolean(TRIREME_AT(data.whole_words), {"Mask all pieces of a word, or none."});
  table.number(TRIREME_AT(data.mean_noise_span_length),
               {"Tokens of a span of noise, on average.", "tokens"},
               {{.least = 1.0}, "at least 1"});
  table.choice(
      TRIREME_AT(data.pairs),
      {"A sample's second segment. order: the text behind the first, swapped "
       "with it in half of the samples; next: in half of them a piece of another "
       "document; none: there is one segment. With model.binary_head only.",
       "", "order; without model.binary_head none"});
  table.boolean(TRIREME_AT(data.pack),
                {"Samples are full: windows across documents, as GPT's are always. "
                 "Without pairs.",
                 "", "bert: false; t5: true"});
  table.number(TRIREME_AT(data.short_seq_prob),
               {"Share of samples that are shorter, by a length drawn evenly.", "share",
                "0.1; with pack 0"},
               kShare);
  table.boolean(TRIREME_AT(data.reset_attention_mask),
                {"With pack: tokens see only those of their own document."});
  table.boolean(TRIREME_AT(data.reset_position_ids),
                {"With pack: positions begin with each document anew."});
}

void add_batch(Table& table) {
  table.integer(TRIREME_AT(batch.micro),
                {"Samples that one rank takes through the model at a time.", "samples"},
                1, 1 << 24);
  table.integer(TRIREME_AT(batch.global),
                {"Samples of one optimizer step; a multiple of micro × data.", "samples"},
                1, 1 << 24);
  table.add(
      {"batch.ramp_up", "{start, increment, samples}", "samples", "",
       "whole numbers above 0; or none",
       "Batch size grows from start to global by increments over that many samples."},
      read_ramp_up, write_ramp_up);
}

void add_parallel(Table& table) {
  table.integer(
      TRIREME_AT(parallel.tensor),
      {"Ranks that share every matrix; divides heads, kv_heads and ffn_hidden.", "ranks"},
      1, 1 << 20);
  table.integer(TRIREME_AT(parallel.pipeline),
                {"Pipeline stages, each with a part of the layers.", "ranks"}, 1,
                1 << 20);
  table.integer(TRIREME_AT(parallel.virtual_pipeline),
                {"Chunks of layers on each stage: several make the bubble of the "
                 "pipeline smaller, and the messages more.",
                 "chunks"},
                1, 1 << 16);
  table.integer(TRIREME_AT(parallel.context), {"Ranks that share a sequence.", "ranks"},
                1, 1 << 20);
  table.add({"parallel.data", "integer", "ranks", "", "at least 1, or auto",
             "Copies of the model. auto: all ranks / (tensor × pipeline × context)."},
            read_data_axis, [](const Deck& deck) {
              return deck.parallel.data_auto ? std::string("auto")
                                             : std::to_string(deck.parallel.data);
            });
  table.boolean(
      TRIREME_AT(parallel.sequence),
      {"Sequence parallelism: norms and dropout are split over the tensor ranks too, by "
       "positions; tensor divides sequence. Without effect on one tensor rank."});
  table.integer(TRIREME_AT(parallel.zero),
                {"What data-parallel ranks share: 0 nothing, 1 optimizer state, 2 and "
                 "gradients, 3 and weights. Without effect on one data rank."},
                0, 3);
  table.add({"parallel.order", "list of 4 words", "", "", "each axis once",
             "Axes of the process grid, fastest first: by default neighbouring ranks are "
             "a tensor group."},
            read_order, write_order);
}

void add_pipeline(Table& table) {
  table.choice(TRIREME_AT(parallel.schedule),
               {"Order of a pipeline's passes. 1f1b: one forward, one backward in turn "
                "(interleaved where stages have several chunks); zero_bubble: the same, "
                "with weight gradients computed where a stage would be idle; gpipe: all "
                "forward, then all backward."});
  table.add(
      {"parallel.stages", "list of integers", "layers", "",
       "pipeline × virtual_pipeline numbers with the model's layers as sum, 0 for the "
       "first and the last chunk only; or auto",
       "Layers of each chunk, in order of the model, t5's decoder behind its encoder: "
       "chunk c of stage r is number "
       "c × pipeline + r; the first has the embedding, too, the last the head. "
       "auto: evenly, unless a step is shorter by a hundredth or more, by simulation, "
       "with other numbers; memory that these take counts as time."},
      read_stages, [](const Deck& deck) {
        return deck.parallel.stages.empty()
                   ? std::string("auto")
                   : fmt::format("[{}]", fmt::join(deck.parallel.stages, ", "));
      });
  table.add(
      {"parallel.split", "integer", "chunks", "none", "at least 1",
       "Chunks that have the encoder's layers; the others have the decoder's. Both are "
       "dealt evenly, and the resolved deck has them as stages. Without it a chunk may "
       "have the end of one and the beginning of the other."},
      [](const YamlValue& value, Deck& deck) {
        return read_integer(value, 1, kLarge, deck.parallel.split);
      },
      [](const Deck& deck) {
        const index_t split = deck.parallel.split;
        return split > 0 ? std::to_string(split) : std::string();
      });
  table.choice(TRIREME_AT(parallel.balance),
               {"Costs by which stages: auto deals the layers. modelled: their matrix "
                "products; measured: the first start times one block of each kind on its "
                "machine; the resolved deck has the result as stages."});
}

void add_precision_and_memory(Table& table) {
  table.choice(TRIREME_AT(precision.compute),
               {"Type of activations and of the weights used with them; master weights "
                "and optimizer state are fp32."});
  table.choice(
      TRIREME_AT(precision.gradients),
      {"Type in which gradients of weights are added up over micro-batches, kept "
       "and sent between data ranks. bf16, with compute: bf16 only, halves their "
       "memory and messages."});
  table.choice(
      TRIREME_AT(precision.gemm),
      {"Matrix products of 16-bit elements: by the device's own instructions for "
       "them, or by those for fp32 after the operands were widened. auto: the "
       "faster of the two where that was measured, else widened."});
  table.choice(
      TRIREME_AT(precision.attention),
      {"Attention on a GPU: by Trireme's own kernels, or by NVIDIA's cuDNN, in builds "
       "that have it, for compute: bf16 or fp16 and model.attention_dropout: 0. "
       "auto: cuDNN's on GPUs where that is proven (H100, H200), if its library is "
       "there, else own. With run.deterministic cuDNN's memory grows with the square of "
       "the sequence, and auto takes own beyond 2 GiB."});
  table.boolean(TRIREME_AT(precision.loss_scale.dynamic),
                {"Whether the factor on the loss (fp16 only) follows overflows of "
                 "gradients; false: it stays at initial, and the 16th overflow in a row "
                 "ends the run."});
  table.number(TRIREME_AT(precision.loss_scale.initial),
               {"First factor on the loss (fp16 only). At a restart that changes it, "
                "the one from there on."},
               {kPositive.range, "above 0, at least minimum"});
  table.number(TRIREME_AT(precision.loss_scale.minimum),
               {"The factor never falls below this."}, kPositive);
  table.integer(TRIREME_AT(precision.loss_scale.window),
                {"Steps without overflow after which the factor doubles.", "steps"}, 1);
  table.integer(TRIREME_AT(precision.loss_scale.hysteresis),
                {"Overflows before the factor is halved.", "steps"}, 1);
  table.choice(TRIREME_AT(memory.recompute),
               {"Activations made again in the backward pass: none; norms and the MLP's "
                "activation (attention scores are never kept); all of a layer."});
  table.integer(TRIREME_AT(memory.recompute_layers),
                {"With full: layers that are made again, the first of each chunk of a "
                 "stage; 0: all.",
                 "layers"},
                0);
}

void add_optimizer(Table& table) {
  table.choice(TRIREME_AT(optimizer.kind), {"Optimizer; weight decay on matrices only."});
  table.number(TRIREME_AT(optimizer.lr), {"Peak learning rate."}, kPositive);
  table.number(TRIREME_AT(optimizer.min_lr),
               {"Learning rate at the end of the schedule.", "", "0.1 × optimizer.lr"},
               {kNotNegative.range, "0 to optimizer.lr"});
  table.choice(
      TRIREME_AT(optimizer.schedule),
      {"From lr to min_lr after the warm-up; wsd stays at lr until the cool-down."});
  table.length(TRIREME_AT(optimizer.warmup),
               {"Linear warm-up: update k (from 1) of W uses lr × k / W."}, 0);
  table.length(TRIREME_AT(optimizer.decay),
               {"Where the schedule reaches min_lr, counted from the first step.", "",
                "run.steps"},
               1);
  table.length(TRIREME_AT(optimizer.cooldown),
               {"Last part of decay in which wsd falls; other schedules ignore it.", "",
                "0.1 × optimizer.decay"},
               0);
  table.add(
      {"optimizer.betas", "list of 2 numbers", "", "", "0 to below 1 each",
       "Decay of the first and second moment."},
      [](const YamlValue& value, Deck& deck) {
        return read_numbers(value, kProbability.range, deck.optimizer.betas);
      },
      [](const Deck& deck) { return write_numbers(deck.optimizer.betas); });
  table.number(TRIREME_AT(optimizer.eps), {"Added to the denominator."}, kPositive);
  table.number(TRIREME_AT(optimizer.weight_decay),
               {"Decoupled weight decay, on matrices only."}, kNotNegative);
  table.number(TRIREME_AT(optimizer.clip_norm),
               {"Largest global norm of the gradient; 0: no clipping."}, kNotNegative);
}

void add_run(Table& table) {
  table.length(TRIREME_AT(run.steps), {"Length of the run."}, 1);
  table.length(TRIREME_AT(run.stop_after),
               {"Each start ends after so much, with a checkpoint and status 0, and the "
                "next one goes on. Schedules stay those of run.steps."},
               "never");
  table.integer(TRIREME_AT(run.seed), {"Seed of initial weights and dropout."}, 0,
                (index_t{1} << 62));
  table.path(TRIREME_AT(run.dir),
             {"The run's directory.", "", "runs/ and the deck's name"});
  table.length(TRIREME_AT(run.log_every),
               {"Between records of training; 0: only the last step's."}, 0);
  table.length(TRIREME_AT(run.validate_every),
               {"Between validations; 0: only at the end."}, 0);
  table.integer(
      TRIREME_AT(run.validate_samples),
      {"The first so many samples of each validation set are looked at; 0: all.",
       "samples"},
      0);
  table.length(TRIREME_AT(run.sample_every),
               {"Between samples of generated text; 0: none."}, 0);
  table.boolean(
      TRIREME_AT(run.deterministic),
      {"The same layout gives the same bits. false: on a GPU each product of "
       "matrices is computed by the fastest of its algorithms, timed when the "
       "run begins; a restart takes the same, another run perhaps not; and NCCL "
       "may add in the switches, in the order in which numbers arrive. true sets "
       "NCCL_ALGO, NCCL_NVLS_ENABLE, NCCL_COLLNET_ENABLE and NCCL_TUNER_PLUGIN, "
       "and refuses other values in the environment."});
  table.time(TRIREME_AT(run.time_limit),
             {"Stop with a checkpoint and status 75 within this time. Under SLURM the "
              "job's own limit counts, too."},
             "none");
  table.time(TRIREME_AT(run.hang_timeout),
             {"A rank that waits longer for another ends the run and says where."},
             "none");
  table.integer(TRIREME_AT(run.max_idle_starts),
                {"--resume auto gives up after so many that saved no new step, or one in "
                 "a small part of their time; 0: never.",
                 "starts"},
                0);
  table.boolean(TRIREME_AT(run.probe),
                {"Measure the memory's and the links' speed before the first step: what "
                 "kernels and messages reach is set against it in efficiency.json. About "
                 "a second."});
  table.optional_path(TRIREME_AT(run.reference),
                      {"A run of the same model to compare with, its directory or its "
                       "efficiency.json: how computation scales is said against it."});
  table.boolean(TRIREME_AT(run.preflight),
                {"Try every node first: writing, memory, computing, messages; name those "
                 "that fail or are much slower."});
  table.boolean(TRIREME_AT(run.tensorboard),
                {"Write the records of train.jsonl for TensorBoard, too: event files in "
                 "tensorboard/ of run.dir."});
}

void add_checkpoint(Table& table) {
  table.length(TRIREME_AT(checkpoint.every), {"Between checkpoints; 0: only at the end."},
               0);
  table.integer(TRIREME_AT(checkpoint.keep),
                {"Newest verified checkpoints that are kept; 0: all.", "checkpoints"}, 0);
  table.length(TRIREME_AT(checkpoint.keep_every),
               {"Checkpoints at multiples of this are kept for good; 0: none."}, 0);
  table.boolean(TRIREME_AT(checkpoint.keep_best),
                {"Keep the best of those after whose step the loss was validated."});
  table.boolean(
      TRIREME_AT(checkpoint.async),
      {"Training goes on while a checkpoint is written, from a copy on the host."});
  table.add({"checkpoint.writers", "word or integer", "files", "",
             "per_rank, per_node, or at least 1", "How many files ranks share."},
            read_writers, write_writers);
  table.integer(TRIREME_AT(checkpoint.max_misses),
                {"So many failed in a row end the run; 0: none do.", "checkpoints"}, 0);
  table.path(TRIREME_AT(checkpoint.dir),
             {"Directory of the checkpoints.", "", "checkpoints in run.dir"});
  table.add({"checkpoint.on_signal", "list of words", "", "",
             join_words(words_of<SignalName>()) + "; [] for none",
             "Signals that end the run with a checkpoint and status 75."},
            read_signals, write_signals);
  table.time(TRIREME_AT(checkpoint.wall_time_margin),
             {"Time kept before the limit for the last checkpoint. auto: 1.5 × the "
              "longest save so far; before the first a tenth of the time, at most 5m, or "
              "1.5 × the longest of the start before if that is more."},
             "auto");
}
#undef TRIREME_AT

// What other systems call these keys.
struct OtherNames {
  const char* key;
  std::vector<std::string_view> names;
};

const std::vector<OtherNames>& other_names() {
  static const std::vector<OtherNames> all = {
      {"model.layers",
       {"n_layer", "num_layers", "num_hidden_layers", "encoder_num_layers"}},
      {"model.decoder_layers", {"num_decoder_layers", "decoder_num_layers"}},
      {"model.hidden", {"n_embd", "d_model", "hidden_size"}},
      {"model.heads", {"n_head", "num_attention_heads"}},
      {"model.head_size", {"kv_channels", "head_dim", "d_kv"}},
      {"model.kv_heads", {"num_query_groups", "num_key_value_heads"}},
      {"model.ffn_hidden", {"ffn_hidden_size", "intermediate_size"}},
      {"model.sequence", {"seq_length", "seq_len", "block_size", "n_positions"}},
      {"model.decoder_sequence", {"decoder_seq_length"}},
      {"model.vocab", {"vocab_size"}},
      {"model.dropout", {"hidden_dropout"}},
      {"model.norm_epsilon", {"layer_norm_eps", "layer_norm_epsilon"}},
      {"model.binary_head", {"bert_binary_head"}},
      {"model.max_predictions", {"max_predictions_per_seq"}},
      {"data.train", {"data_path"}},
      {"data.mask_prob", {"masked_lm_prob", "noise_density"}},
      {"data.whole_words", {"whole_word_mask"}},
      {"batch.micro", {"micro_batch_size"}},
      {"batch.global", {"global_batch_size"}},
      {"batch.ramp_up", {"rampup_batch_size"}},
      {"parallel.tensor", {"tensor_model_parallel_size"}},
      {"parallel.pipeline", {"pipeline_model_parallel_size"}},
      {"parallel.split", {"pipeline_model_parallel_split_rank"}},
      {"parallel.context", {"context_parallel_size"}},
      {"parallel.sequence", {"sequence_parallel"}},
      {"precision.compute", {"dtype"}},
      {"optimizer.lr", {"learning_rate"}},
      {"optimizer.schedule", {"lr_decay_style"}},
      {"optimizer.warmup", {"lr_warmup_iters", "warmup_iters"}},
      {"optimizer.decay", {"lr_decay_iters"}},
      {"optimizer.clip_norm", {"clip_grad", "grad_clip"}},
      {"run.steps", {"train_iters", "max_steps", "max_iters"}},
      {"run.log_every", {"log_interval"}},
      {"run.validate_every", {"eval_interval"}},
      {"checkpoint.every", {"save_interval"}},
      {"run.dir", {"out_dir"}}};
  return all;
}

// Of a key that some kinds of models have: says which, and is written for these only.
void keep_to_its_kinds(Key& key) {
  const std::vector<ModelKind> kinds = kinds_with(key.info.path);
  if (kinds.size() == all_kinds().size()) return;
  std::vector<std::string_view> words;
  for (const ModelKind kind : kinds) words.push_back(name_of(kind));
  key.info.description = fmt::format("{}: {}", join_words(words), key.info.description);
  key.write = [write = std::move(key.write), path = key.info.path](const Deck& deck) {
    return has_key(deck.model.kind, path) ? write(deck) : std::string();
  };
}

}  // namespace

const std::vector<Key>& key_table() {
  static const std::vector<Key> keys = [] {
    Table table;
    for (const auto add :
         {add_model_sizes, add_model_variants, add_model_of_pairs, add_data, add_samples,
          add_batch, add_parallel, add_pipeline, add_precision_and_memory, add_optimizer,
          add_run, add_checkpoint}) {
      add(table);
    }
    for (Key& key : table.keys) {
      key.info.allowed = mark_not_yet(key.info);
      keep_to_its_kinds(key);
    }
    return std::move(table.keys);
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

std::vector<std::string> followed_keys(std::string_view path) {
  static const std::map<std::string_view, std::vector<std::string>> followed = {
      {"model.head_size", {"model.hidden", "model.heads"}},
      {"model.ffn_hidden", {"model.hidden"}},
      {"model.kv_heads", {"model.heads"}},
      {"model.norm", {"model.kind"}},
      {"model.norm_epsilon", {"model.kind"}},
      {"model.activation", {"model.kind"}},
      {"model.position", {"model.kind"}},
      {"model.bias", {"model.kind"}},
      {"model.type_vocab_size", {"model.kind"}},
      {"model.binary_head", {"model.kind"}},
      {"model.decoder_layers", {"model.layers"}},
      {"model.decoder_sequence",
       {"model.sequence", "data.mask_prob", "data.mean_noise_span_length"}},
      {"model.max_predictions",
       {"model.sequence", "model.binary_head", "data.mask_prob", "data.pairs"}},
      {"data.seed", {"run.seed"}},
      {"data.pairs", {"model.binary_head"}},
      {"data.pack", {"model.kind"}},
      {"data.short_seq_prob", {"data.pack"}},
      {"optimizer.min_lr", {"optimizer.lr"}},
      {"optimizer.decay", {"run.steps"}},
      {"optimizer.cooldown", {"optimizer.decay"}},
      {"checkpoint.dir", {"run.dir"}}};
  const auto found = followed.find(path);
  return found == followed.end() ? std::vector<std::string>() : found->second;
}

std::string nearest_key(const std::string& path) {
  const auto last_part = [](const std::string& p) { return p.substr(p.rfind('.') + 1); };
  const std::string section = path.substr(0, path.rfind('.') + 1);
  std::string word = last_part(path);
  std::replace(word.begin(), word.end(), '-', '_');
  for (const auto& [key, names] : other_names()) {
    if (std::find(names.begin(), names.end(), word) != names.end()) return key;
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
