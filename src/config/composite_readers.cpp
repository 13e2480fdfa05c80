// config/composite_readers.cpp — see composite_readers.hpp.
//
// A fix replaces the whole value of its key, so one for a part of the value says all of
// it: of `data.train: [{path: a.h5, weight: '3'}]` the fix `data.train: 3` would be a
// corpus of that name. A reader finds the first part that is wrong and says in what way.
// Then a copy of the value is made in which every part is mended that can be, and that is
// the fix where the same reader takes it; else there is none.
#include "config/composite_readers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plural.hpp"
#include "config/key_readers.hpp"
#include "config/text.hpp"

namespace trireme::config {
namespace {

// ---- parts, and how they are mended ----

// Of a map that is one value: each of its keys is known, and stands there once.
std::optional<Problem> inner_keys_problem(const YamlValue& map,
                                          const std::vector<std::string_view>& known) {
  for (auto entry = map.entries.begin(); entry != map.entries.end(); ++entry) {
    const std::string& key = entry->key;
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Problem{fmt::format("has a key '{}' that is not known here", key), ""};
    }
    if (std::any_of(map.entries.begin(), entry,
                    [&key](const YamlValue::Entry& other) { return other.key == key; })) {
      return Problem{fmt::format("has '{}' a second time; remove one of the two", key),
                     ""};
    }
  }
  return std::nullopt;
}

// Misspelt keys of a map become the known ones that were meant.
void mend_inner_keys(YamlValue& map, const std::vector<std::string_view>& known) {
  for (YamlValue::Entry& entry : map.entries) {
    const std::string near = nearest_word(entry.key, known);
    if (!near.empty()) entry.key = near;
  }
}

// A number in quotes, or alone in a list, becomes that number.
void mend_number(YamlValue& value) {
  if (value.is_list() && value.items.size() == 1) {
    const YamlValue only = value.items.front();
    value = only;
  }
  if (value.is_scalar() && parse_number(value.text)) value.quoted = false;
}

// A path that is a file's in another spelling becomes that.
void mend_path(YamlValue& value) {
  std::string ignored;
  const auto problem = read_path(value, ignored);
  if (problem && !problem->fix.empty()) value.text = problem->fix;
}

// A value in one line of YAML that can stand inside of brackets.
std::string flow_text(const YamlValue& value) {
  if (value.is_null()) return "";
  if (value.is_scalar()) {
    const bool is_number = !value.quoted && parse_number(value.text);
    return is_number ? value.text : yaml_text(value.text);
  }
  std::vector<std::string> parts;
  for (const YamlValue& item : value.items) parts.push_back(flow_text(item));
  for (const YamlValue::Entry& entry : value.entries) {
    parts.push_back(fmt::format("{}: {}", yaml_text(entry.key), flow_text(entry.value)));
  }
  const std::string inner = fmt::format("{}", fmt::join(parts, ", "));
  return value.is_list() ? "[" + inner + "]" : "{" + inner + "}";
}

// The mended value as a fix, where its reader takes it. Paths with variables are left to
// who wrote them: before a job the value has them in another form than the deck.
template <class Read>
std::string fix_with(const YamlValue& mended, const Read& read) {
  const std::string text = flow_text(mended);
  return read(mended) || text.find('$') != std::string::npos ? "" : text;
}

YamlValue scalar_of(std::string text) {
  YamlValue value;
  value.kind = YamlValue::Kind::scalar;
  value.text = std::move(text);
  return value;
}

// ---- corpora with weights ----

std::vector<std::string_view> corpus_keys() {
  return {"path", "weight"};
}

// The value of a key in an entry of the list; none where there is none.
const YamlValue* part_of(const YamlValue& corpus, std::string_view key) {
  if (!corpus.is_map()) return key == "path" ? &corpus : nullptr;
  const auto found = std::ranges::find(corpus.entries, key, &YamlValue::Entry::key);
  return found == corpus.entries.end() ? nullptr : &found->value;
}

// The number that a plain value is.
std::optional<double> plain_number(const YamlValue& value) {
  return value.is_scalar() && !value.quoted ? parse_number(value.text) : std::nullopt;
}

std::optional<Problem> read_weight(const YamlValue& value, double& out) {
  const auto problem = read_number(value, {.least = 0.0, .open_below = true}, out);
  if (!problem) return std::nullopt;
  std::string what = problem->what;
  if (plain_number(value)) {
    what += "; a corpus of which no sample is wanted is left out of the list";
  } else if (value.is_scalar() && !value.quoted) {
    what += "; a finite one above 0 is wanted";
  }
  const std::string shown = brief(value);
  return Problem{fmt::format("weight: {}{}{}", shown, shown.empty() ? "" : " ", what),
                 ""};
}

std::optional<Problem> read_corpus(const YamlValue& value, WeightedPath& out) {
  if (!value.is_map()) return read_path(value, out.path);
  if (auto problem = inner_keys_problem(value, corpus_keys())) return problem;
  for (const auto& [key, line, part] : value.entries) {
    auto problem =
        key == "path" ? read_path(part, out.path) : read_weight(part, out.weight);
    if (problem) return problem;
  }
  if (out.path.empty()) return Problem{"has a corpus without path", ""};
  return std::nullopt;
}

// Weights that only some corpora have: what the others are to have nobody has said.
std::optional<Problem> weights_problem(const std::vector<YamlValue>& corpora) {
  std::vector<std::string> without;
  for (const YamlValue& corpus : corpora) {
    if (part_of(corpus, "weight") == nullptr) {
      without.push_back(part_of(corpus, "path")->text);
    }
  }
  const std::ptrdiff_t lacking = std::ssize(without);
  if (lacking == 0 || lacking == std::ssize(corpora)) return std::nullopt;
  const std::string more =
      lacking > kMostShown ? fmt::format(", and {} more", lacking - kMostShown) : "";
  if (lacking > kMostShown) without.resize(kMostShown);
  return Problem{
      fmt::format("has {} and {}: none for {}{}; all have one, or none has for equal "
                  "shares of the samples",
                  format_plural(std::ssize(corpora), "corpus", "corpora"),
                  format_plural(std::ssize(corpora) - lacking, "weight"),
                  fmt::join(without, ", "), more),
      ""};
}

std::optional<Problem> read_corpora(const YamlValue& list,
                                    std::vector<WeightedPath>& out) {
  if (list.items.empty()) return Problem{"is an empty list", "corpus.h5"};
  for (const YamlValue& item : list.items) {
    if (auto problem = read_corpus(item, out.emplace_back())) {
      return Problem{problem->what, ""};  // one of a path by itself is no list
    }
  }
  return weights_problem(list.items);
}

// A corpus with a path and a weight, which is 1 where none was said.
YamlValue mended_corpus(const YamlValue& corpus) {
  YamlValue mended = corpus;
  if (!corpus.is_map()) {
    mended = YamlValue();
    mended.kind = YamlValue::Kind::map;
    mended.entries.push_back({"path", corpus.line, corpus});
  }
  mend_inner_keys(mended, corpus_keys());
  std::erase_if(mended.entries, [](const YamlValue::Entry& entry) {
    return entry.key == "weight" && entry.value.is_null();
  });
  for (YamlValue::Entry& entry : mended.entries) {
    if (entry.key == "weight") mend_number(entry.value);
    if (entry.key == "path") mend_path(entry.value);
  }
  if (part_of(mended, "weight") == nullptr) {
    mended.entries.push_back({"weight", corpus.line, scalar_of("1")});
  }
  return mended;
}

// The list with mended entries, without those of which no sample is wanted.
std::string fix_of_corpora(const std::vector<YamlValue>& corpora) {
  if (std::ssize(corpora) > kMostShown) return "";
  YamlValue mended;
  mended.kind = YamlValue::Kind::list;
  for (const YamlValue& corpus : corpora) {
    YamlValue item = mended_corpus(corpus);
    if (inner_keys_problem(item, corpus_keys())) return "";
    if (plain_number(*part_of(item, "weight")).value_or(1.0) > 0.0) {
      mended.items.push_back(std::move(item));
    }
  }
  return fix_with(mended, [](const YamlValue& list) {
    std::vector<WeightedPath> ignored;
    return read_corpora(list, ignored);
  });
}

// ---- names with paths ----

std::optional<Problem> read_sets(const YamlValue& map, std::vector<NamedPath>& out) {
  for (const auto& entry : map.entries) {
    NamedPath set{entry.key, ""};
    if (auto problem = read_path(entry.value, set.path)) {
      return Problem{fmt::format("{}: {}", entry.key, problem->what), ""};
    }
    if (std::ranges::count(out, set.name, &NamedPath::name) > 0) {
      return Problem{fmt::format("has the name '{}' twice", set.name), ""};
    }
    out.push_back(set);
  }
  return std::nullopt;
}

// The map with what mends a path by itself, and a second of one name under another.
std::string fix_of_sets(const YamlValue& map) {
  YamlValue mended = map;
  for (auto entry = mended.entries.begin(); entry != mended.entries.end(); ++entry) {
    mend_path(entry->value);
    const bool is_taken = std::any_of(
        mended.entries.begin(), entry,
        [&](const YamlValue::Entry& other) { return other.key == entry->key; });
    if (is_taken) entry->key += "_2";
  }
  return fix_with(mended, [](const YamlValue& value) {
    std::vector<NamedPath> ignored;
    return read_sets(value, ignored);
  });
}

// ---- the ramp of the batch ----

constexpr index_t kMostOfRamp = index_t{1} << 40;
constexpr const char* kExampleOfRamp = "{start: 8, increment: 8, samples: 10000}";

std::vector<std::string_view> ramp_keys() {
  return {"start", "increment", "samples"};
}

std::optional<Problem> read_ramp(const YamlValue& map, RampUp& out) {
  if (auto problem = inner_keys_problem(map, ramp_keys())) return problem;
  for (const auto& [key, line, value] : map.entries) {
    index_t& number =
        key == "start" ? out.start : (key == "increment" ? out.increment : out.samples);
    if (auto problem = read_integer(value, 1, kMostOfRamp, number)) {
      return Problem{fmt::format("{}: {} {}", key, brief(value), problem->what), ""};
    }
  }
  if (out.start == 0 || out.increment == 0 || out.samples == 0) {
    return Problem{"lacks one of start, increment and samples", kExampleOfRamp};
  }
  return std::nullopt;
}

std::string fix_of_ramp(const YamlValue& map) {
  YamlValue mended = map;
  mend_inner_keys(mended, ramp_keys());
  for (YamlValue::Entry& entry : mended.entries) {
    mend_number(entry.value);
    index_t ignored = 0;
    const auto problem = read_integer(entry.value, 1, kMostOfRamp, ignored);
    if (problem && !problem->fix.empty()) entry.value = scalar_of(problem->fix);
  }
  return fix_with(mended, [](const YamlValue& value) {
    RampUp ignored;
    return read_ramp(value, ignored);
  });
}

}  // namespace

std::optional<Problem> read_train(const YamlValue& value, Deck& deck) {
  std::vector<WeightedPath> corpora;
  if (says(value, "none") && !value.quoted) {
    deck.data.train.clear();
    return std::nullopt;
  }
  if (value.is_map()) {
    return Problem{"is a section with keys; a path or a list of paths is wanted",
                   fix_of_corpora({value})};
  }
  if (value.is_list()) {
    if (auto problem = read_corpora(value, corpora)) {
      if (problem->fix.empty()) problem->fix = fix_of_corpora(value.items);
      return problem;
    }
  } else if (auto problem = read_path(value, corpora.emplace_back().path)) {
    return problem;
  }
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
  if (says(value, "none") && !value.quoted) {
    deck.data.validation.clear();
    return std::nullopt;
  }
  if (!value.is_map()) {
    YamlValue named;
    named.kind = YamlValue::Kind::map;
    named.entries.push_back({"main", value.line, value});
    return Problem{fmt::format("is {}; names with paths are wanted", kind_of(value)),
                   fix_of_sets(named)};
  }
  if (auto problem = read_sets(value, sets)) {
    problem->fix = fix_of_sets(value);
    return problem;
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

std::optional<Problem> read_ramp_up(const YamlValue& value, Deck& deck) {
  if (says(value, "none")) {
    deck.batch.ramp_up.reset();
    return std::nullopt;
  }
  if (!value.is_map()) {
    return Problem{
        fmt::format("is {}; start, increment and samples are wanted", kind_of(value)),
        kExampleOfRamp};
  }
  RampUp ramp;
  if (auto problem = read_ramp(value, ramp)) {
    if (problem->fix.empty()) problem->fix = fix_of_ramp(value);
    return problem;
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

}  // namespace trireme::config
