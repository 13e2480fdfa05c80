// config/deck.cpp — the batch ramp, lengths in steps, and steps in samples.
#include "config/deck.hpp"

#include <algorithm>

namespace trireme::config {

namespace {

// 128 bits: samples of a ramp times its rises may exceed 64.
using wide_t = __int128;

index_t round_up(index_t a, index_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

index_t rises_of(const BatchConfig& batch) {
  return (batch.global - batch.ramp_up->start) / batch.ramp_up->increment;
}

bool has_ramp(const BatchConfig& batch) {
  return batch.ramp_up && batch.ramp_up->start > 0 && batch.ramp_up->increment > 0 &&
         batch.ramp_up->samples > 0 && rises_of(batch) > 0;
}

// Within the ramp: after how many samples the next batch size begins.
index_t end_of_size(const BatchConfig& batch, index_t taken) {
  const wide_t ramp = batch.ramp_up->samples, rises = rises_of(batch);
  const wide_t next = taken * rises / ramp + 1;
  return static_cast<index_t>((next * ramp + rises - 1) / rises);
}

}  // namespace

index_t BatchConfig::size_at(index_t samples) const {
  if (!has_ramp(*this) || samples >= ramp_up->samples) return global;
  // The ramp's samples are shared equally by the batch sizes below the full one.
  const auto risen =
      static_cast<index_t>(wide_t{samples} * rises_of(*this) / ramp_up->samples);
  return std::min(global, ramp_up->start + risen * ramp_up->increment);
}

index_t steps_of(const Length& length, const BatchConfig& batch, index_t sequence,
                 index_t begin) {
  if (length.unit == LengthUnit::steps || length.amount <= 0) return length.amount;
  if (batch.global <= 0 || sequence <= 0) return 0;  // errors reported elsewhere
  const index_t samples =
      begin + (length.unit == LengthUnit::tokens ? round_up(length.amount, sequence)
                                                 : length.amount);
  index_t taken = begin;
  index_t steps = 0;
  if (has_ramp(batch)) {
    // One batch size after the other, up to where the next one begins.
    while (taken < samples && taken < batch.ramp_up->samples) {
      const index_t end = end_of_size(batch, taken);
      const index_t size = batch.size_at(taken);
      const index_t count = round_up(std::min(end, samples) - taken, size);
      taken += count * size;
      steps += count;
    }
  }
  return taken >= samples ? steps : steps + round_up(samples - taken, batch.global);
}

index_t samples_of(index_t steps, const BatchConfig& batch) {
  index_t taken = 0;
  if (has_ramp(batch)) {
    while (steps > 0 && taken < batch.ramp_up->samples) {
      const index_t size = batch.size_at(taken);
      const index_t count =
          std::min(steps, round_up(end_of_size(batch, taken) - taken, size));
      taken += count * size;
      steps -= count;
    }
  }
  return taken + steps * batch.global;
}

}  // namespace trireme::config
