// run/dropout_words.cpp — see dropout_words.hpp.
#include "run/dropout_words.hpp"

#include "base/error.hpp"
#include "base/random.hpp"

namespace trireme::run {

namespace {
constexpr char kDefinition[] = "dropout_words";
constexpr char kSince[] = "dropout_words_since";
constexpr auto kOwn = static_cast<double>(random::DropoutWords::kVersion);
}  // namespace

std::string adopt_dropout_words(ckpt::TrainingState& state, bool drops) {
  const auto found = state.numbers.find(kDefinition);
  const double stored =
      state.step == 0 ? kOwn : (found == state.numbers.end() ? 1.0 : found->second);
  TRIREME_REQUIRE_INPUT(
      stored <= kOwn,
      "the checkpoint's dropout masks are of definition {}; this program knows them up "
      "to {}. Continue the run with the program that wrote it ({}), or a later one",
      stored, kOwn, state.version);
  if (found != state.numbers.end() && stored == kOwn) return {};
  state.numbers[kDefinition] = kOwn;
  state.numbers[kSince] = static_cast<double>(state.step);
  if (stored == kOwn || !drops) return {};
  return fmt::format(
      "dropout masks are drawn by definition {} from step {} on: the checkpoint, of step "
      "{}, is of a run whose masks were of definition {}. They are as random as before, "
      "but not those which that program would have drawn",
      kOwn, state.step + 1, state.step, stored);
}

}  // namespace trireme::run
