// check/deck_check.cpp — see deck_check.hpp.
//
// DeckCheck::run() is the order of the checks: values, corpora, their tokenizers, the
// vocabulary, samples, and the checkpoint last. A later check looks only at keys that no
// earlier one has found wrong, so that one mistake is one line of the list. What samples
// lack in corpora that are not the checkpoint's is left out again once that is known.
#include "check/deck_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "ckpt/directory.hpp"
#include "config/check.hpp"
#include "config/composite_readers.hpp"
#include "config/enums.hpp"
#include "config/key_table.hpp"
#include "config/load.hpp"
#include "data/deck_rules.hpp"
#include "data/sample_index.hpp"
#include "io/files.hpp"

namespace trireme::check {

namespace fs = std::filesystem;

namespace {

// A corpus where the deck names it.
struct NamedCorpus {
  std::string key;   // data.train or data.validation
  std::string part;  // of the key, with a line of its own: data.train.0
  std::string name;  // of its samples: train, or the validation set's
  std::string path;
  std::shared_ptr<const data::Corpus> corpus = {};  // none where it cannot be opened
  std::string missing = {};  // in what way; empty where it is there
  // What its tokens are cut into; none where it gives no samples, or where that is not
  // known.
  std::optional<data::Windows> windows = {};

  bool is_for_training() const { return key == "data.train"; }
  // For people: data.train, data.validation.books.
  const std::string& shown() const { return is_for_training() ? key : part; }
};

std::string missing_text(const io::Path& path) {
  if (path.is_absolute()) return "does not exist";
  std::error_code ignored;
  return fmt::format("does not exist (paths are relative to the working directory, '{}')",
                     fs::current_path(ignored).string());
}

class DeckCheck {
 public:
  explicit DeckCheck(const DeckCheckOptions& options)
      : options_(options),
        examined_(config::examine(options.deck,
                                  {.overrides = options.overrides,
                                   .run_dir = options.run_dir,
                                   .ranks = options.ranks,
                                   .before_job = options.purpose != Purpose::train})) {}

  CheckedDeck run() {
    check_training();
    check_weights();
    find_corpora();
    find_repeats();
    check_tokenizers();
    find_vocabulary();
    check_samples();
    if (options_.purpose != Purpose::train || options_.looks_at_start ||
        !errors().empty()) {
      check_start();
    }
    if (!errors().empty()) throw config::DeckErrors(std::move(examined_.errors));
    if (options_.purpose != Purpose::train && deck().parallel.is_to_be_measured()) {
      result_.not_checked.push_back({"parallel.balance: measured",
                                     "only a start can measure, the layers are dealt by "
                                     "modelled costs here"});
    }
    result_.deck = std::move(examined_.deck);
    return std::move(result_);
  }

 private:
  config::Deck& deck() { return examined_.deck; }
  std::vector<config::DeckError>& errors() { return examined_.errors; }
  bool is_known(const std::string& key) const { return examined_.bad.count(key) == 0; }
  bool has_error(const std::string& prefix) const {
    return std::ranges::any_of(examined_.errors, [&](const config::DeckError& error) {
      return error.key.starts_with(prefix);
    });
  }
  void add(std::vector<config::DeckError> more) {
    std::ranges::move(more, std::back_inserter(errors()));
  }
  void add(const NamedCorpus& of, std::string what, std::string allowed,
           std::string fix = "") {
    const auto& origins = deck().origins;
    std::string place = "default";
    for (const std::string& key : {of.key, of.part}) {
      if (origins.count(key) > 0) place = origins.at(key);
    }
    errors().push_back({of.shown(), place, of.path, std::move(what), std::move(allowed),
                        std::move(fix)});
  }

  void check_training() {
    result_.not_trained = config::not_trained(deck(), examined_.bad);
    if (options_.purpose == Purpose::plan) return;
    if (is_known("data.train") && is_known("model.vocab") && deck().data.train.empty()) {
      // Where no corpus is named, that none says the vocabulary is no error of its own.
      std::erase_if(errors(), [&](const config::DeckError& error) {
        return error.key == "model.vocab" && deck().model.vocab == 0;
      });
    }
    add(config::errors_of_training(deck(), examined_.bad));
  }

  // Weights by which a corpus would never be taken, so that no job waits for them.
  void check_weights() {
    if (!is_known("data.train")) return;
    std::vector<double> weights;
    for (const config::WeightedPath& corpus : deck().data.train) {
      weights.push_back(corpus.weight);
    }
    const std::string problem = data::blend_problem(weights);
    if (problem.empty()) return;
    const double least = data::least_weight(weights);
    const std::string here = std::isfinite(least) ? fmt::format(" ({})", least) : "";
    errors().push_back(config::error_at(
        deck(), "data.train", problem,
        fmt::format("weights of at least {} of their sum{}", data::kLeastPart, here),
        with_weights(data::nearest_blend(weights))));
  }
  // The corpora with other weights, as the deck would say it; nothing where only a job
  // knows their paths, or where they are too many to be read.
  std::string with_weights(const std::vector<double>& weights) const {
    if (std::ssize(weights) > config::kMostShown) return {};
    config::Deck mended = examined_.deck;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      config::WeightedPath& corpus = mended.data.train[i];
      if (!job_reason(corpus.path).empty()) return {};
      corpus.weight = weights[i];
    }
    return "data.train: " + config::find_key("data.train")->write(mended);
  }

  void find_corpora() {
    const config::DataConfig& data = deck().data;
    if (is_known("data.train")) {
      for (std::size_t i = 0; i < data.train.size(); ++i) {
        train_.push_back({.key = "data.train",
                          .part = fmt::format("data.train.{}", i),
                          .name = "train",
                          .path = data.train[i].path});
      }
    }
    if (is_known("data.validation")) {
      for (const config::NamedPath& entry : data.validation) {
        validation_.push_back({.key = "data.validation",
                               .part = "data.validation." + entry.name,
                               .name = entry.name,
                               .path = entry.path});
      }
    }
    for (NamedCorpus* named : all()) open(*named);
    const bool is_whole = std::ranges::count(train_, nullptr, &NamedCorpus::corpus) == 0;
    if (!is_whole) return;
    for (const NamedCorpus& named : train_) result_.corpora.push_back(named.corpus);
  }

  // By their content: a copy of another name is the same text.
  void find_repeats() {
    std::map<std::uint64_t, const NamedCorpus*> trained;
    for (const NamedCorpus* named : all()) {
      if (!named->corpus) continue;
      const std::uint64_t content = named->corpus->checksum();
      const auto first = trained.find(content);
      if (first == trained.end()) {
        if (named->is_for_training()) trained.emplace(content, named);
      } else if (named->is_for_training()) {
        result_.warnings.push_back(fmt::format(
            "data.train: '{}' has the tokens of '{}': they are trained on with the "
            "weights of both",
            named->path, first->second->path));
      } else {
        result_.warnings.push_back(fmt::format(
            "{} is trained on, too ('{}' in data.train): its loss tells how well the "
            "model knows that text by heart, and nothing of others",
            named->part, first->second->path));
      }
    }
  }

  // Why a path cannot be looked at before the job that it is for; empty where it can.
  std::string job_reason(const std::string& path) const {
    const auto found = examined_.job_paths.find(path);
    if (found == examined_.job_paths.end()) return {};
    return fmt::format("${} is set only inside a job", found->second);
  }

  void open(NamedCorpus& named) {
    const std::string at_job = job_reason(named.path);
    if (!at_job.empty()) {
      named.missing = "is not known here (" + at_job + ")";
      result_.not_checked.push_back(
          {fmt::format("{}: {}", named.shown(), named.path), at_job});
      return;
    }
    std::error_code error;
    if (!fs::exists(named.path, error)) {
      if (!error) named.missing = missing_text(named.path);
      if (error) {
        add(named, fmt::format("cannot be looked at: {}", error.message()), kCorpus);
      } else if (options_.purpose == Purpose::train) {
        add(named, named.missing, kCorpus);
      } else {
        result_.not_checked.push_back(
            {fmt::format("{}: {}", named.shown(), named.path), "it is not there"});
      }
      return;
    }
    for (const NamedCorpus* other : all()) {
      if (other->path == named.path) named.corpus = other->corpus;
    }
    if (named.corpus) return;
    try {
      named.corpus = std::make_shared<const data::Corpus>(named.path);
      require_documents({named.corpus});
    } catch (const InputError& problem) {
      add(named, problem.what(), kCorpus);
    }
  }

  // The corpora in the order of the deck, those of training first.
  std::vector<NamedCorpus*> all() {
    std::vector<NamedCorpus*> list;
    for (NamedCorpus& named : train_) list.push_back(&named);
    for (NamedCorpus& named : validation_) list.push_back(&named);
    return list;
  }
  const NamedCorpus* first_opened() {
    for (const NamedCorpus* named : all()) {
      if (named->corpus) return named;
    }
    return nullptr;
  }

  void check_tokenizers() {
    const NamedCorpus* first = first_opened();
    for (const NamedCorpus* named : all()) {
      if (!named->corpus || data::same_tokenizer(*named->corpus, *first->corpus)) {
        continue;
      }
      const data::Corpus &its = *named->corpus, &other = *first->corpus;
      add(*named,
          fmt::format("was not made with the tokenizer of '{}': it has a vocabulary of "
                      "{} (end of document {}), that one of {} (end of document {})",
                      first->path, its.vocabulary_size(), its.end_of_document(),
                      other.vocabulary_size(), other.end_of_document()),
          "corpora of one tokenizer",
          "tokenize both with one (--tokenizer takes a corpus, too)");
    }
  }

  void find_vocabulary() {
    if (!is_known("model.vocab")) return;
    const NamedCorpus* first = first_opened();
    const bool is_given = deck().model.vocab > 0;
    if (first != nullptr && (is_given || first->is_for_training())) {
      add(config::set_vocabulary(deck(), first->corpus->vocabulary_size(), first->path));
    }
    if (is_given) return;
    if (deck().model.vocab == 0) {
      // Needed even where corpora may be missing.
      for (const NamedCorpus& named : train_) {
        if (named.missing.empty() || options_.purpose == Purpose::train) continue;
        add(named, named.missing + ", and only it says the vocabulary", kCorpus,
            deck().model.kind == config::ModelKind::gpt
                ? "the path of a corpus, or model.vocab: 50257"
                : "the path of a corpus");
      }
      return;
    }
    // Errors that come up only once the vocabulary's number is known.
    std::vector<config::DeckError> again;
    config::check_across(deck(), options_.ranks, examined_.bad, again);
    for (config::DeckError& error : again) {
      if (!has_error(error.key)) errors().push_back(std::move(error));
    }
  }

  // Whether all that samples are made by is right.
  bool knows_samples() const {
    for (const char* key :
         {"model.kind", "model.sequence", "model.decoder_sequence",
          "model.max_predictions", "data.mask_prob", "data.short_seq_prob",
          "data.max_ngrams", "data.pairs", "data.pack", "data.mean_noise_span_length"}) {
      if (!is_right(key)) return false;
    }
    return true;
  }

  void check_samples() {
    if (!knows_samples()) return;
    const auto before = std::ssize(errors());
    for (NamedCorpus* named : all()) {
      if (named->corpus) named->windows = windows_of(*named);
    }
    unfit_ = {before, std::ssize(errors())};
    for (const NamedCorpus* named : all()) {
      if (named->windows) check_parts(*named, *named->windows);
    }
  }

  // Those of one corpus; none where it cannot give samples of the deck's kind.
  std::optional<data::Windows> windows_of(const NamedCorpus& named) {
    try {
      return data::rules_of(deck(), {&named.corpus, 1}).windows_in(*named.corpus);
    } catch (const InputError& error) {
      add(named, error.what(),
          fmt::format("a corpus of which samples of a {} model can be made",
                      config::name_of(deck().model.kind)));
      return std::nullopt;
    }
  }

  void check_parts(const NamedCorpus& named, const data::Windows& windows) {
    const bool is_cut = is_known("data.validation") && deck().data.validation.empty() &&
                        is_known("data.split") && !has_error("data.split");
    const index_t tokens = named.corpus->token_count();
    if (!is_cut || tokens < windows.tokens) {  // too short before it is cut
      check_part(named, windows, {0, tokens}, named.name, named.is_for_training());
      return;
    }
    const auto& shares = deck().data.split;
    const auto parts = data::split_tokens(tokens, {shares.begin(), shares.end()});
    check_part(named, windows, parts.at(0), "train", true);
    if (shares[1] > 0.0) check_part(named, windows, parts.at(1), "validation", false);
  }

  // Each corpus of a blend is to have room in each part, and what counts there: what one
  // lacks no other has for its samples. What pairs are learnt from is asked of training
  // alone, and of a run that begins: one under way cannot have other samples any more.
  void check_part(const NamedCorpus& named, const data::Windows& windows,
                  data::TokenRange range, const std::string& part, bool trains) {
    const char* allowed = "room for one sample in each part";
    try {
      data::SampleIndex(range, windows, deck().data.seed, data::Order::sequential,
                        fmt::format("'{}' of corpus '{}'", part, named.path));
      allowed = "samples of which something counts";
      data::require_counted(deck(), *named.corpus, range, part);
      if (trains && !goes_on()) data::require_pairs(deck(), *named.corpus, range, part);
    } catch (const InputError& error) {
      add(named, error.what(), allowed);
    }
  }

  // Whether a run is under way: with --resume auto one that has a checkpoint.
  bool goes_on() {
    if (options_.resume == "never") return false;
    const std::string& directory = deck().checkpoint.dir;
    return options_.resume != "auto" || (std::filesystem::is_directory(directory) &&
                                         !ckpt::list_checkpoints(directory).empty());
  }

  void check_start() {
    std::set<std::string> bad = examined_.bad;
    for (const auto& [key, path] : {std::pair("run.dir", deck().run.dir),
                                    std::pair("checkpoint.dir", deck().checkpoint.dir)}) {
      const std::string at_job = job_reason(path);
      if (at_job.empty()) continue;
      bad.insert(key);
      if (deck().given(key)) {
        result_.not_checked.push_back({fmt::format("{}: {}", key, path), at_job});
      }
    }
    const DeckInQuestion question{.deck = deck(),
                                  .bad = std::move(bad),
                                  .has_tensors = tells_tensors(),
                                  .has_vocabulary = is_right("model.vocab"),
                                  .corpora = result_.corpora};
    StartErrors start = errors_of_start({.resume = options_.resume,
                                         .init_from = options_.init_from,
                                         .begins = options_.purpose != Purpose::plan},
                                        question, result_.not_checked);
    if (start.has_other_corpora) {
      errors().erase(errors().begin() + unfit_.first, errors().begin() + unfit_.second);
    }
    add(std::move(start.errors));
  }

  bool is_right(const std::string& key) const { return is_known(key) && !has_error(key); }
  // Whether the model's tensors are known, but for the number of rows, which the
  // vocabulary says.
  bool tells_tensors() const {
    for (const char* key :
         {"model.kind", "model.layers", "model.hidden", "model.heads", "model.head_size",
          "model.ffn_hidden", "model.sequence", "model.kv_heads", "model.norm",
          "model.activation", "model.position", "model.bias", "model.tie_embeddings",
          "model.decoder_layers", "model.norm_placement", "model.type_vocab_size",
          "model.binary_head", "model.relative_attention_num_buckets"}) {
      if (!is_right(key)) return false;
    }
    return std::ranges::count(result_.not_trained, config::Told::memory,
                              &config::NotTrained::told) ==
           std::ssize(result_.not_trained);
  }

  static constexpr const char* kCorpus = "a file made by trireme tokenize";

  const DeckCheckOptions& options_;
  config::Examined examined_;
  CheckedDeck result_;
  std::vector<NamedCorpus> train_, validation_;
  // Among the errors, those of corpora that cannot give samples of the kind: from, to.
  std::pair<std::ptrdiff_t, std::ptrdiff_t> unfit_;
};

}  // namespace

CheckedDeck check_deck(const DeckCheckOptions& options) {
  return DeckCheck(options).run();
}

}  // namespace trireme::check
