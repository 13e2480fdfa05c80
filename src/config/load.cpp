// config/load.cpp — from text to Deck: leaves of the YAML tree by key path, overrides on
// top, each key read by its table entry, defaults that depend on others, checks across
// keys.
//
// The steps go on after an error, with the keys in error left out, so that one try shows
// everything that is wrong. A resolved deck is read by the same steps as one that a user
// wrote; it differs in its paths, which are not filled in or moved a second time, and in
// that values are right which were so to the version that wrote it into a checkpoint.
#include "config/load.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/words.hpp"
#include "config/check.hpp"
#include "config/key_table.hpp"
#include "config/kinds.hpp"
#include "config/paths.hpp"
#include "config/text.hpp"

namespace trireme::config {
namespace {

// What is done with the paths of a deck.
enum class Paths { fill_in, fill_in_before_job, as_written };

struct Leaf {
  YamlValue value;
  std::string place;
  bool in_file = false;  // so that its parts have lines of their own
};

class Loader {
 public:
  Loader(std::string file, Paths paths) : file_(std::move(file)), paths_(paths) {}

  void read(const std::string& text) {
    const YamlValue root = read_yaml(text, file_, errors_);
    broken_ = !errors_.empty() || !root.is_map();
    if (!errors_.empty()) return;
    if (!root.is_map()) {
      const std::string what = root.is_null() ? "is empty" : "is not a list of sections";
      add("", file_, brief(root), what, sections_text(), "see inputs/quickstart.yaml");
      return;
    }
    walk(root, "");
  }

  void override_with(const std::string& assignment) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      add("", "--set", assignment, "is not an override",
          "key=value, as in model.layers=2", "");
      return;
    }
    std::string path = assignment.substr(0, equals);
    while (!path.empty() && path.back() == ' ') path.pop_back();  // "key = value"
    const std::string text = assignment.substr(equals + 1);
    if (find_key(path) == nullptr) {
      if (is_section(path)) {
        add(path, "--set", text, "is a section; one of its keys is set at a time",
            path + ".<key>=value", "");
      } else {
        unknown(path, "--set", text);
      }
      return;
    }
    std::vector<DeckError> problems;
    const YamlValue value = read_yaml(text, "--set " + path, problems);
    for (DeckError& error : problems) {
      error.key = path;
      errors_.push_back(error);
    }
    if (path == "run.dir") let_checkpoints_follow();
    if (problems.empty()) leaves_[path] = {value, "--set"};
  }

  void set_run_dir(const std::string& dir) {
    let_checkpoints_follow();
    YamlValue value;
    value.kind = YamlValue::Kind::scalar;
    value.text = path_text(dir);  // the shell has filled in what it should
    value.quoted = true;
    leaves_["run.dir"] = {value, "--run-dir"};
  }

  Examined finish(const std::string& name, int ranks) {
    Deck deck;
    deck.name = name;
    for (const Key& key : key_table()) {
      const std::string& path = key.info.path;
      const auto found = leaves_.find(path);
      if (found == leaves_.end()) {
        if (key.required && !broken_ && bad_.count(path) == 0) {
          add(path, file_, "", "is missing", key.info.allowed, "");
          bad_.insert(path);
        }
        if (broken_) bad_.insert(path);
        continue;
      }
      read_key(key, found->second, deck);
    }
    fill_defaults(deck);
    // Keys are marked in the table's order, in which decay comes before the cooldown that
    // follows it.
    for (const Key& key : key_table()) mark_follower(key.info.path, deck);
    if (!broken_) check_across(deck, ranks, bad_, errors_);
    return {std::move(deck), std::move(errors_), std::move(bad_), std::move(job_paths_)};
  }

 private:
  void read_key(const Key& key, const Leaf& leaf, Deck& deck) {
    const std::string& path = key.info.path;
    const auto& [value, place, in_file] = leaf;
    deck.origins[path] = place;
    if (!is_of_kind(path, deck)) {
      add_of_other_kind(path, leaf, deck.model.kind);
      return;
    }
    if (in_file) note_parts(path, value, deck);
    std::optional<Problem> problem = Problem{"has no value", ""};
    if (!value.is_null()) {
      problem = key.read(has_paths(path) ? fitted(value) : value, deck);
    }
    if (problem && problem->was_right && paths_ == Paths::as_written) problem.reset();
    if (!problem) return;
    std::string fix = problem->fix.empty() ? "" : path + ": " + problem->fix;
    if (value.is_null())
      fix = "remove the key for its default, " + key.info.default_value;
    if (value.is_null() && key.required) fix = "";
    add(path, place, brief(value), problem->what,
        fmt::format("{}: {}", key.info.type, key.info.allowed), fix);
    bad_.insert(path);
  }

  // Of a kind that is not known every key may be. The table has the kind first, so that
  // it is known here.
  bool is_of_kind(const std::string& path, const Deck& deck) const {
    return bad_.count("model.kind") > 0 || has_key(deck.model.kind, path);
  }
  void add_of_other_kind(const std::string& path, const Leaf& leaf, ModelKind kind) {
    const std::vector<ModelKind> kinds = kinds_with(path);
    std::string right;
    for (const ModelKind one : kinds) {
      right += fmt::format("{}{}", right.empty() ? "" : " or ", name_of(one));
    }
    add(path, leaf.place, brief(leaf.value),
        fmt::format("is a key of {}, and model.kind is {}", kinds_text(kinds),
                    name_of(kind)),
        fmt::format("model.kind: {}", right), "remove " + path);
    bad_.insert(path);
  }

  // The lines of the corpora in a list or map, for errors of one of them.
  void note_parts(const std::string& path, const YamlValue& value, Deck& deck) const {
    const auto note = [&](const auto& name, int line) {
      deck.origins[fmt::format("{}.{}", path, name)] = fmt::format("{}:{}", file_, line);
    };
    for (std::size_t i = 0; i < value.items.size(); ++i) note(i, value.items[i].line);
    for (const YamlValue::Entry& entry : value.entries) note(entry.key, entry.line);
  }

  static bool has_paths(const std::string& key) {
    return key == "data.train" || key == "data.validation" || key == "run.dir" ||
           key == "checkpoint.dir";
  }
  // A value with paths as its key's reader is to have it, which fills in what is there.
  YamlValue fitted(YamlValue value) {
    for (YamlValue& item : value.items) item = fitted(std::move(item));
    for (YamlValue::Entry& entry : value.entries) {
      entry.value = fitted(std::move(entry.value));
    }
    if (!value.is_scalar()) return value;
    if (paths_ == Paths::as_written) {
      value.text = path_text(written_path(value.text));
    } else if (paths_ == Paths::fill_in_before_job) {
      auto [text, variable] = leave_job_variables(value.text);
      const auto path = expand_path(text);
      if (!variable.empty() && path.value) job_paths_[*path.value] = variable;
      value.text = std::move(text);
    }
    return value;
  }

  // What a key is by default is not known where the key that it follows is not.
  void mark_follower(const std::string& path, const Deck& deck) {
    if (deck.given(path) || !is_of_kind(path, deck)) return;
    const auto is_bad = [&](const std::string& key) { return bad_.count(key) > 0; };
    if (std::ranges::any_of(followed_keys(path), is_bad)) bad_.insert(path);
  }

  // A resolved deck names its checkpoint directory: where that is the run directory's, it
  // moves with it.
  void let_checkpoints_follow() {
    const auto run = leaves_.find("run.dir");
    const auto checkpoints = leaves_.find("checkpoint.dir");
    if (run != leaves_.end() && checkpoints != leaves_.end() &&
        checkpoints->second.value.text == run->second.value.text + "/checkpoints") {
      leaves_.erase(checkpoints);
    }
  }

  void add(const std::string& key, const std::string& place, const std::string& value,
           const std::string& what, const std::string& allowed, const std::string& fix) {
    errors_.push_back({key, place, value, what, allowed, fix});
  }

  static std::string sections_text() {
    std::string text;
    std::string last;
    for (const Key& key : key_table()) {
      const std::string section = key.info.path.substr(0, key.info.path.find('.'));
      if (section != last) text += (text.empty() ? "" : ", ") + section;
      last = section;
    }
    return "the sections " + text;
  }

  void unknown(const std::string& path, const std::string& place,
               const std::string& value) {
    const std::string near = nearest_key(path);
    // Probably meant: what it would be is not known, checks leave it out.
    if (!near.empty()) bad_.insert(near);
    mark_section(near);
    const std::string section = path.substr(0, path.rfind('.') + 1);
    std::string allowed;
    for (const Key& key : key_table()) {
      const std::string& p = key.info.path;
      if (section.empty() || p.rfind(section, 0) != 0) continue;
      const std::string word =
          p.substr(section.size(), p.find('.', section.size()) - section.size());
      if (allowed.find(word + ",") == std::string::npos) allowed += word + ", ";
    }
    if (!allowed.empty()) {
      allowed = "keys of " + section.substr(0, section.size() - 1) + ": " +
                allowed.substr(0, allowed.size() - 2);
    } else {
      allowed = sections_text();
    }
    add(path, place, value, "is not a key of the deck", allowed, near);
  }

  // Marks all keys of a section as in error: what they say is not known.
  void mark_section(const std::string& section) {
    for (const Key& key : key_table()) {
      if (key.info.path.starts_with(section + ".")) bad_.insert(key.info.path);
    }
  }

  void walk(const YamlValue& map, const std::string& prefix) {
    for (const YamlValue::Entry& entry : map.entries) {
      const std::string path = prefix + entry.key;
      const std::string place = fmt::format("{}:{}", file_, entry.line);
      if (const auto [seen, fresh] = lines_.emplace(path, entry.line); !fresh) {
        add(path, place, brief(entry.value),
            fmt::format("stands here a second time; the first is in line {}",
                        seen->second),
            "each key once", "remove one of the two");
        continue;
      }
      if (find_key(path) != nullptr) {
        leaves_[path] = {entry.value, place, true};
      } else if (!is_section(path)) {
        unknown(path, place, brief(entry.value));
      } else if (entry.value.is_map()) {
        walk(entry.value, path + ".");
      } else if (!entry.value.is_null()) {
        add(path, place, brief(entry.value), "is a section; its keys are wanted below it",
            fmt::format("{}: {{key: value, ...}}", path), "");
        mark_section(path);
      }
    }
  }

  void fill_defaults(Deck& deck) {
    const auto given = [&](const char* key) { return deck.given(key); };
    fill_model_defaults(deck, given);
    if (!given("optimizer.min_lr")) {
      // Shortest decimal: 0.1 x 0.0003 is to be written 3e-05.
      deck.optimizer.min_lr =
          *parse_number(fmt::format("{:.15g}", 0.1 * deck.optimizer.lr));
    }
    if (!given("optimizer.decay")) deck.optimizer.decay = deck.run.steps;
    if (!given("optimizer.cooldown")) {
      deck.optimizer.cooldown = deck.optimizer.decay;
      deck.optimizer.cooldown.amount = deck.optimizer.decay.amount / 10;
    }
    if (!given("run.dir")) deck.run.dir = "runs/" + deck.name;
    if (!given("checkpoint.dir")) {
      deck.checkpoint.dir = deck.run.dir + "/checkpoints";
      const auto run = job_paths_.find(deck.run.dir);
      if (run != job_paths_.end()) job_paths_[deck.checkpoint.dir] = run->second;
    }
    for (Length* length :
         {&deck.optimizer.warmup, &deck.optimizer.decay, &deck.optimizer.cooldown,
          &deck.run.steps, &deck.run.log_every, &deck.run.validate_every,
          &deck.run.sample_every, &deck.checkpoint.every, &deck.checkpoint.keep_every}) {
      length->steps = steps_of(*length, deck.batch, deck.model.sequence);
    }
  }

  std::string file_;
  Paths paths_;
  std::map<std::string, std::string> job_paths_;
  std::map<std::string, Leaf> leaves_;
  std::map<std::string, int> lines_;
  std::set<std::string> bad_;
  std::vector<DeckError> errors_;
  bool broken_ = false;  // the text could not be read: nothing can be said about keys
};

}  // namespace

namespace {

Examined examine_text(const std::string& text, const std::string& name,
                      const LoadOptions& options, Paths paths) {
  Loader loader(name, paths);
  loader.read(text);
  for (const std::string& assignment : options.overrides)
    loader.override_with(assignment);
  if (!options.run_dir.empty()) loader.set_run_dir(options.run_dir);
  std::string stem = std::filesystem::path(name).stem().string();
  return loader.finish(stem.empty() ? "deck" : stem, options.ranks);
}

Paths paths_of(const LoadOptions& options) {
  return options.before_job ? Paths::fill_in_before_job : Paths::fill_in;
}

Deck deck_or_throw(Examined examined) {
  if (!examined.errors.empty()) throw DeckErrors(std::move(examined.errors));
  return std::move(examined.deck);
}

}  // namespace

Deck parse(const std::string& text, const std::string& name, const LoadOptions& options) {
  return deck_or_throw(examine_text(text, name, options, paths_of(options)));
}

Examined examine(const std::string& path, const LoadOptions& options) {
  TRIREME_REQUIRE_INPUT(!std::filesystem::is_directory(path),
                        "deck '{}' is a directory; a YAML file is wanted (see inputs/)",
                        path);
  std::ifstream file(path, std::ios::binary);
  const int error = errno;
  TRIREME_REQUIRE_INPUT(file.is_open(), "deck '{}' cannot be opened: {}", path,
                        std::strerror(error));
  std::ostringstream text;
  text << file.rdbuf();
  return examine_text(text.str(), path, options, paths_of(options));
}

Deck load(const std::string& path, const LoadOptions& options) {
  return deck_or_throw(examine(path, options));
}

std::string resolved_text(const Deck& deck) {
  std::string text = "# Resolved deck: every default is written out.\n";
  std::vector<std::string_view> open;  // sections around the current key
  for (const Key& key : key_table()) {
    const std::string value = key.write(deck);
    if (value.empty()) continue;
    const std::vector<std::string_view> parts = split(key.info.path, ".");
    std::size_t same = 0;
    while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same])
      ++same;
    open.assign(parts.begin(), parts.end() - 1);
    for (; same < open.size(); ++same) {
      text += fmt::format("{}{}:\n", std::string(2 * same, ' '), open[same]);
    }
    text +=
        fmt::format("{}{}: {}\n", std::string(2 * open.size(), ' '), parts.back(), value);
  }
  return text;
}

Deck parse_resolved(const std::string& text, int ranks) {
  LoadOptions options;
  options.ranks = ranks;
  return deck_or_throw(examine_text(text, "resolved deck", options, Paths::as_written));
}

}  // namespace trireme::config
