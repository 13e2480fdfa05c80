// run/definitions.cpp — see definitions.hpp.
#include "run/definitions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"

namespace trireme::run {

namespace {

// The version by which `state` came here, which is now `own`.
int adopt(ckpt::TrainingState& state, const std::string& name, int own,
          const std::string& what) {
  const auto found = state.numbers.find(name);
  const int first = state.step == 0 ? own : 1;
  const double stored = found == state.numbers.end() ? first : found->second;
  TRIREME_REQUIRE_INPUT(
      stored <= own,
      "the checkpoint's {} {}; this program knows them up to {}. Continue the run with "
      "the program that wrote it ({}), or a later one",
      what, stored, own, state.version);
  const int before = static_cast<int>(stored);
  if (found != state.numbers.end() && before == own) return own;
  state.numbers[name] = own;
  state.numbers[name + "_since"] = static_cast<double>(state.step);
  return before;
}

// Whether there are corpora that the windows of others followed from (MaskedRules).
bool had_common_windows(const data::Datasets& datasets) {
  if (!datasets.train->rules().have_documents_length) return false;
  const auto is_own = [&](const data::ValidationSet& set) {
    return set.samples->parts().front().corpus == datasets.corpora.front();
  };
  return datasets.corpora.size() > 1 || !std::ranges::all_of(datasets.validation, is_own);
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
  if (before == own || !had_common_windows(datasets)) return {};
  return fmt::format(
      "samples are made by version {} of the rules from step {} on, and by {} before: "
      "windows are now as long as documents of their own corpus, not of all corpora of "
      "training. Texts may come again, or wait for the next epoch. For the samples of "
      "before, go on with the program that wrote the checkpoint ({})",
      own, state.step + 1, before, state.version);
}

}  // namespace trireme::run
