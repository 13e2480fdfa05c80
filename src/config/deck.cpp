// config/deck.cpp — the batch ramp and lengths in steps.
#include "config/deck.hpp"

#include <algorithm>

namespace trireme::config {

index_t BatchConfig::size_at(index_t samples) const {
  if (!ramp_up || samples >= ramp_up->samples || ramp_up->increment <= 0) return global;
  const index_t rises = (global - ramp_up->start) / ramp_up->increment;
  if (rises <= 0) return global;
  // The ramp's samples are shared equally by the batch sizes below the full one.
  const index_t risen = samples * rises / ramp_up->samples;
  return std::min(global, ramp_up->start + risen * ramp_up->increment);
}

index_t steps_of(const Length& length, const BatchConfig& batch, index_t sequence) {
  if (length.unit == LengthUnit::steps || length.amount <= 0) return length.amount;
  if (batch.global <= 0 || sequence <= 0) return 0;  // errors reported elsewhere
  const auto round_up = [](index_t a, index_t b) { return a / b + (a % b != 0 ? 1 : 0); };
  const index_t samples = length.unit == LengthUnit::tokens
                              ? round_up(length.amount, sequence)
                              : length.amount;
  index_t taken = 0;
  index_t steps = 0;
  // Step by step through the ramp only.
  while (batch.ramp_up && batch.ramp_up->start > 0 && taken < samples &&
         taken < batch.ramp_up->samples) {
    taken += batch.size_at(taken);
    ++steps;
  }
  return taken >= samples ? steps : steps + round_up(samples - taken, batch.global);
}

}  // namespace trireme::config
