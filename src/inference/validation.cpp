// inference/validation.cpp — see validation.hpp.
#include "inference/validation.hpp"

#include <algorithm>
#include <vector>

namespace trireme::inference {

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

step::HostBatch host_batch(const data::Batch& batch) {
  return {batch.inputs().data(), batch.positions().data(), batch.labels().data(),
          batch.loss_mask().data(), static_cast<std::uint64_t>(batch.first_sample())};
}

template <class T>
Validation<T>::Validation(const config::Deck& deck, const comm::RankGrid& grid,
                          step::TrainStep<T>& step)
    : deck_(deck),
      grid_(grid),
      step_(step),
      batch_(deck.model.sequence, deck.batch.micro) {}

// A pipeline runs empty before each question, and between pieces.
template <class T>
index_t Validation<T>::samples_at_once() const {
  return kRoundsPerQuestion * deck_.parallel.pipeline * deck_.batch.micro *
         deck_.parallel.data;
}

// Ranks take micro-batches in turn.
template <class T>
step::HostBatch Validation<T>::micro_batch(const data::Dataset& samples, index_t first,
                                           index_t end, int m, const Look& look) {
  const index_t micro = deck_.batch.micro;
  const index_t at =
      first + (m * index_t{deck_.parallel.data} + grid_.coordinates().data) * micro;
  batch_.fill(samples, at, micro, deck_.data.mask_eod_loss);
  mask_columns_from(end - at, batch_);
  if (look) look(batch_);
  return host_batch(batch_);
}

template <class T>
step::LossTotals Validation<T>::part(const data::Dataset& samples, index_t first,
                                     index_t end, const Look& look) {
  const index_t round = deck_.batch.micro * deck_.parallel.data;
  const auto rounds = static_cast<int>((end - first + round - 1) / round);
  return step_.evaluate([&](int m) { return micro_batch(samples, first, end, m, look); },
                        rounds);
}

template <class T>
std::optional<step::LossTotals> Validation<T>::loss_of(
    const data::ValidationSet& set, const std::function<bool()>& stop) {
  const index_t samples = data::validated_samples(deck_, set);
  std::vector<double> sums = {0.0, 0.0};
  for (index_t first = 0; first < samples; first += samples_at_once()) {
    if (first > 0 && stop && stop()) return std::nullopt;
    const step::LossTotals mine =
        part(*set.samples, first, std::min(samples, first + samples_at_once()));
    sums[0] += mine.loss_sum;
    sums[1] += mine.tokens;
  }
  grid_.groups().gradient->control().all_reduce(sums);
  return step::LossTotals{sums[0], sums[1]};
}

#define TRIREME_INSTANTIATE(T) template class Validation<T>;
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::inference
