// engine/validation.cpp — see validation.hpp.
#include "engine/validation.hpp"

#include <algorithm>
#include <vector>

namespace trireme::engine {

namespace {

constexpr index_t kRoundsPerQuestion = 8;

// Columns past the last sample are there to make up a micro-batch: they do not count.
void mask_columns_from(index_t first, data::Batch& batch) {
  const auto mask = batch.loss_mask();
  for (index_t column = std::max<index_t>(first, 0); column < batch.columns(); ++column) {
    for (std::size_t s = 0; s < mask.extent(0); ++s) mask(s, column) = 0.0f;
  }
}

}  // namespace

HostBatch host_batch(const data::Batch& batch) {
  return {batch.inputs().data(), batch.positions().data(), batch.labels().data(),
          batch.loss_mask().data(), static_cast<std::uint64_t>(batch.first_sample())};
}

template <class T>
Validation<T>::Validation(const config::Deck& deck, const comm::RankGrid& grid,
                          TrainStep<T>& step)
    : deck_(deck),
      grid_(grid),
      step_(step),
      batch_(deck.model.sequence, deck.batch.micro) {}

template <class T>
std::optional<LossTotals> Validation<T>::loss_of(const ValidationSet& set,
                                                 const std::function<bool()>& stop) {
  const index_t micro = deck_.batch.micro;
  const index_t ranks = deck_.parallel.data;
  const index_t samples = validated_samples(deck_, set);
  // Ranks take micro-batches in turn.
  const index_t rounds = (samples + micro * ranks - 1) / (micro * ranks);
  // A pipeline runs empty before each question.
  const index_t most = kRoundsPerQuestion * deck_.parallel.pipeline;
  std::vector<double> sums = {0.0, 0.0};
  for (index_t first_round = 0; first_round < rounds; first_round += most) {
    if (first_round > 0 && stop && stop()) return std::nullopt;
    const FetchBatch fetch = [&](int m) {
      const index_t round = first_round + m;
      const index_t first = (round * ranks + grid_.coordinates().data) * micro;
      batch_.fill(*set.samples, first, micro, deck_.data.mask_eod_loss);
      mask_columns_from(samples - first, batch_);
      return host_batch(batch_);
    };
    const auto count = static_cast<int>(std::min(most, rounds - first_round));
    const LossTotals local = step_.evaluate(fetch, count);
    sums[0] += local.loss_sum;
    sums[1] += local.tokens;
  }
  grid_.groups().data->all_reduce(sums);
  return LossTotals{sums[0], sums[1]};
}

#define TRIREME_INSTANTIATE(T) template class Validation<T>;
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::engine
