// run/definitions.cpp — see definitions.hpp.
#include "run/definitions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace trireme::run {

namespace {

// The version by which `state` came here, which is now `own`. Where a run has begun and
// none is on record it is 1, which may still be the program's own: then nothing changed
// since the first step.
int adopt(ckpt::TrainingState& state, const std::string& name, int own,
          const std::string& what) {
  const auto found = state.numbers.find(name);
  const int first = state.step == 0 ? own : 1;
  const double stored = found == state.numbers.end() ? first : found->second;
  TRIREME_REQUIRE_INPUT(stored >= 1.0 && stored == std::floor(stored),
                        "the checkpoint's {} is {}, which is no version: it is damaged. "
                        "Continue from another one",
                        name, stored);
  TRIREME_REQUIRE_INPUT(
      stored <= own,
      "the checkpoint's {} {}; this program knows them up to {}. Continue the run with "
      "the program that wrote it ({}), or a later one",
      what, stored, own, state.version);
  const int before = static_cast<int>(stored);
  if (found != state.numbers.end() && before == own) return own;
  state.numbers[name] = own;
  state.numbers[name + "_since"] = before == own ? 0.0 : static_cast<double>(state.step);
  return before;
}

// Whether a set of validation is of another corpus than the one that is trained.
bool has_other_corpora(const data::Datasets& datasets) {
  const auto is_own = [&](const data::ValidationSet& set) {
    return set.samples->parts().front().corpus->checksum() == datasets.first().checksum();
  };
  return !std::ranges::all_of(datasets.validation, is_own);
}

}  // namespace

std::string adopt_dropout_words(ckpt::TrainingState& state, bool drops) {
  constexpr auto kOwn = static_cast<int>(random::DropoutWords::kVersion);
  const int before =
      adopt(state, "dropout_words", kOwn, "dropout masks are of definition");
  if (before == kOwn || !drops) return {};
  return fmt::format(
      "dropout masks are drawn by definition {} from step {} on: the checkpoint, of step "
      "{}, is of a run whose masks were of definition {}. They are as random as before, "
      "but not those which that program would have drawn",
      kOwn, state.step + 1, state.step, before);
}

std::string adopt_sample_rules(ckpt::TrainingState& state,
                               const data::Datasets& datasets) {
  const int own = datasets.train->rules().version();
  const int before = adopt(state, "sample_rules", own, "samples are by rules of version");
  // What version 2 changed: windows of one corpus followed from the others of training.
  constexpr int kOwnWindows = 2;
  if (before >= kOwnWindows || !datasets.train->rules().have_documents_length) return {};
  const bool trains_on_others = datasets.corpora.size() > 1;
  if (!trains_on_others && !has_other_corpora(datasets)) return {};
  const std::string windows = fmt::format(
      "made by version {} of the rules from step {} on, and by {} before: windows are "
      "now as long as documents of their own corpus, not of all corpora of training",
      own, state.step + 1, before);
  if (!trains_on_others) {
    return fmt::format(
        "samples of data.validation are {}. Losses of validation cannot be "
        "set against those of before; samples of training are the same",
        windows);
  }
  return fmt::format(
      "samples are {}. Texts may come again, or wait for the next epoch. For the samples "
      "of before, go on with the program that wrote the checkpoint ({})",
      windows, state.version);
}

}  // namespace trireme::run
