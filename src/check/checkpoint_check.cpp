// check/checkpoint_check.cpp — see checkpoint_check.hpp.
//
// The class at the top finds out which checkpoint a start would take, in the same way as
// the start itself (decide_start), and the functions below it compare that checkpoint
// with the deck. A difference that only follows from another is left out: the tensors of
// a model are not compared where a key of `model` differs already, and a vocabulary that
// comes from other corpora is not an error of its own.
#include "check/checkpoint_check.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "check/run_start.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/params.hpp"
#include "comm/process_groups.hpp"
#include "config/check.hpp"
#include "config/load.hpp"
#include "data/datasets.hpp"
#include "io/files.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::check {

namespace {

constexpr const char* kResume = "--resume";
constexpr const char* kInitFrom = "--init-from";

using Errors = std::vector<config::DeckError>;

bool has_key(const Errors& errors, const std::string& key) {
  return std::ranges::count(errors, key, &config::DeckError::key) > 0;
}

bool has_model_key(const Errors& errors) {
  return std::any_of(errors.begin(), errors.end(), [](const config::DeckError& error) {
    return error.key.starts_with("model.");
  });
}

// What the check throws; empty where it does not.
std::string problem_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

config::DeckError error_of_option(const char* option, const std::string& value,
                                  std::string what) {
  return {option, "", value, std::move(what), "", ""};
}

// What it counts is what its steps have taken: by its own deck, which knows the batches.
void check_progress(const ckpt::CheckpointReader& checkpoint, const config::Deck& deck) {
  const ckpt::TrainingState& state = checkpoint.state();
  config::Length samples = state.samples;
  samples.unit = config::LengthUnit::samples;
  TRIREME_REQUIRE_INPUT(
      config::steps_of(samples, deck.batch, deck.model.sequence) == state.step,
      "'{}' is of step {} after {}, which its own deck (batch.global, batch.ramp_up) "
      "cannot have: it was changed. Take another checkpoint",
      checkpoint.path().string(), state.step, format_plural(state.samples, "sample"));
  TRIREME_REQUIRE_INPUT(
      checked_multiply(state.samples, deck.model.sequence) == state.tokens,
      "'{}' counts {} in {} of {}: it was changed. Take another checkpoint",
      checkpoint.path().string(), format_plural(state.tokens, "token"),
      format_plural(state.samples, "sample"), deck.model.sequence);
}

// What is wrong with the tensors of the whole model. Where the deck's vocabulary is
// wrong, or that of a corpus that is not known or is another one, the checkpoint's is
// taken.
std::string problem_of_tensors(const ckpt::CheckpointReader& checkpoint,
                               const DeckInQuestion& question, ckpt::Content content,
                               bool is_vocabulary_own) {
  if (!question.has_tensors) return "";
  config::Deck deck = question.deck;
  if (!is_vocabulary_own || !question.has_vocabulary || deck.model.vocab == 0) {
    const std::string table = step::vocabulary_tensor(deck);
    if (!checkpoint.has(table)) return "";
    deck.model.vocab = checkpoint.tensor(table).shape.at(0);
  }
  const auto whole = step::make_replica(deck, comm::make_groups_of_one());  // no memory
  return problem_of(
      [&] { ckpt::require_params(checkpoint, whole->part().registry, content); });
}

// Empty where the corpora have the checkpoint's tokenizer, and where either is not known.
std::string problem_of_tokenizer(const ckpt::CheckpointReader& checkpoint,
                                 const DeckInQuestion& question) {
  if (question.corpora.empty()) return "";
  Log nobody(false);
  return problem_of(
      [&] { require_tokenizer_of(checkpoint, *question.corpora.front(), nobody); });
}

class StartCheck {
 public:
  StartCheck(const WantedStart& wanted, const DeckInQuestion& question,
             std::vector<NotChecked>& not_checked)
      : wanted_(wanted), question_(question), not_checked_(not_checked) {}

  StartErrors run() {
    look();
    return {std::move(errors_), has_other_corpora_};
  }

 private:
  void look() {
    if (wanted_.resume != "never" || wanted_.begins) decide();
    if (!candidates_.empty()) {
      judge(kResume, resumed_, [&](const ckpt::CheckpointReader& checkpoint) {
        const Errors differences = compare_with_run(checkpoint, question_).errors;
        has_other_corpora_ = has_key(differences, "data.train");
        add(differences);
      });
    } else if (!wanted_.init_from.empty() && begins_afresh()) {
      if (!collect(kInitFrom, wanted_.init_from)) return;
      judge(kInitFrom, wanted_.init_from, [&](const ckpt::CheckpointReader& checkpoint) {
        has_other_corpora_ = !problem_of_tokenizer(checkpoint, question_).empty();
        add(errors_of_weights(checkpoint, question_, wanted_.init_from));
        note_unknown_tokenizer(checkpoint);
      });
    }
  }

  bool names_checkpoint() const {
    return wanted_.resume != "never" && wanted_.resume != "auto";
  }
  // Whether a run begins afresh, as far as is known: one that is there is not begun.
  bool begins_afresh() const {
    return wanted_.resume == "never" || (start_ && start_->kind == StartKind::afresh);
  }
  // Adds errors but those said already, of weights without the state of an optimizer.
  void add(const Errors& more) {
    for (const config::DeckError& error : more) {
      if (std::ranges::count(errors_, error.what, &config::DeckError::what) > 0) continue;
      errors_.push_back(error);
    }
  }

  // A start warns of it; a check has nobody to warn.
  void note_unknown_tokenizer(const ckpt::CheckpointReader& checkpoint) {
    if (!checkpoint.state().tokenizer.empty() || question_.corpora.empty()) return;
    not_checked_.push_back(
        {"whether the tokens of data.train are those of the weights",
         fmt::format("'{}' names no tokenizer", checkpoint.path().string())});
  }

  // Finds out what there is to go on from.
  void decide() {
    const config::Deck& deck = question_.deck;
    const std::set<std::string>& bad = question_.bad;
    if (bad.count("run.dir") + bad.count("checkpoint.dir") + bad.count("run.steps") > 0) {
      if (names_checkpoint()) collect(kResume, wanted_.resume);
      return;
    }
    const std::string problem = problem_of([&] {
      start_ = decide_start({.path = deck.run.dir,
                             .checkpoints = deck.checkpoint.dir,
                             .resume = wanted_.resume,
                             .steps = deck.run.steps.steps});
    });
    if (problem.empty()) {
      if (start_->kind == StartKind::afresh) return;
      resumed_ = start_->checkpoint.string();
      take(start_->checkpoint, start_->older, std::move(start_->manifest));
      // A finished run trains on no corpora.
      if (start_->kind == StartKind::finished) question_.corpora.clear();
      return;
    }
    if (!names_checkpoint()) {
      errors_.push_back(config::error_at(deck, "run.dir", problem, "", ""));
      return;
    }
    errors_.push_back(error_of_option(kResume, wanted_.resume, problem));
    // The directory may be the mistake, and the checkpoint be there.
    if (!collect(kResume, wanted_.resume)) errors_.pop_back();
  }

  // The checkpoints that a path stands for.
  bool collect(const char* option, const std::string& path) {
    resumed_ = path;
    const std::string problem = problem_of([&] {
      ckpt::Search search = ckpt::find_whole(path, ckpt::Depth::sizes);
      take(*search.found, search.older, std::move(search.manifest));
    });
    if (!problem.empty()) errors_.push_back(error_of_option(option, path, problem));
    return problem.empty();
  }

  void take(const io::Path& newest, const std::vector<io::Path>& older,
            std::optional<ckpt::Manifest> manifest) {
    candidates_ = {newest};
    candidates_.insert(candidates_.end(), older.begin(), older.end());
    manifest_ = std::move(manifest);
  }

  // The first of the candidates that can be opened, as a start would take it.
  void judge(const char* option, const std::string& value,
             const std::function<void(const ckpt::CheckpointReader&)>& compare) {
    std::string problems;
    for (const io::Path& candidate : candidates_) {
      std::optional<ckpt::CheckpointReader> checkpoint;
      const std::string problem = problem_of(
          [&] { checkpoint.emplace(candidate, std::exchange(manifest_, {})); });
      if (problem.empty()) {
        const std::string wrong = problem_of([&] { compare(*checkpoint); });
        if (!wrong.empty()) errors_.push_back(error_of_option(option, value, wrong));
        return;
      }
      problems += (problems.empty() ? "" : "\n") + problem;
    }
    errors_.push_back(error_of_option(option, value, problems));
  }

  const WantedStart& wanted_;
  DeckInQuestion question_;
  std::vector<NotChecked>& not_checked_;
  std::optional<RunStart> start_;  // none where it is not known
  std::string resumed_;
  std::vector<io::Path> candidates_;        // newest first
  std::optional<ckpt::Manifest> manifest_;  // of the first of them, parsed once
  Errors errors_;
  bool has_other_corpora_ = false;
};

}  // namespace

std::string NotChecked::text() const {
  return fmt::format("not checked, as {}: {}", reason, what);
}

config::Comparison compare_with_run(const ckpt::CheckpointReader& checkpoint,
                                    const DeckInQuestion& question) {
  const config::Deck& deck = question.deck;
  const config::Deck theirs = config::parse_resolved(checkpoint.state().deck);
  check_progress(checkpoint, theirs);
  const std::string other_corpora = question.corpora.empty() ? "" : problem_of([&] {
    require_corpora_of(checkpoint, question.corpora);
  });
  // Those that are not known here are checked by the start that trains on them.
  const bool may_have_moved =
      other_corpora.empty() && checkpoint.state().texts.contains(kCorporaText);
  config::Comparison result = config::compare_for_resume(
      theirs, deck, question.bad,
      may_have_moved ? config::Corpora::may_have_moved : config::Corpora::at_their_paths);
  if (!other_corpora.empty() && !has_key(result.errors, "data.train")) {
    result.errors.push_back(config::error_at(deck, "data.train", other_corpora, "", ""));
  }
  const bool is_vocabulary_own =
      deck.given("model.vocab") || !has_key(result.errors, "data.train");
  if (!is_vocabulary_own) {
    std::erase_if(result.errors, [](const config::DeckError& error) {
      return error.key == "model.vocab";  // it is that of the other corpora
    });
  }
  // The tensors of another model are others.
  if (has_model_key(result.errors)) return result;
  const std::string problem = problem_of_tensors(
      checkpoint, question, ckpt::Content::training, is_vocabulary_own);
  if (!problem.empty()) {
    result.errors.push_back(
        error_of_option(kResume, checkpoint.path().string(), problem));
  }
  return result;
}

std::vector<config::DeckError> errors_of_weights(const ckpt::CheckpointReader& checkpoint,
                                                 const DeckInQuestion& question,
                                                 const std::string& option) {
  Errors errors;
  const auto note = [&](const std::string& problem) {
    if (problem.empty()) return;
    errors.push_back(error_of_option(kInitFrom, option, problem));
  };
  note(problem_of_tokenizer(checkpoint, question));
  const bool is_vocabulary_own = errors.empty() || question.deck.given("model.vocab");
  note(problem_of_tensors(checkpoint, question, ckpt::Content::weights,
                          is_vocabulary_own));
  return errors;
}

StartErrors errors_of_start(const WantedStart& wanted, const DeckInQuestion& question,
                            std::vector<NotChecked>& not_checked) {
  return StartCheck(wanted, question, not_checked).run();
}

}  // namespace trireme::check
