// inference/validation.cpp — see validation.hpp.
#include "inference/validation.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace trireme::inference {

namespace {

constexpr index_t kRoundsPerQuestion = 8;

}  // namespace

Validation::Validation(const config::Deck& deck, const comm::RankGrid& grid,
                       step::Replica& model, data::Batch batch)
    : deck_(deck), grid_(grid), model_(model), batch_(std::move(batch)) {}

// A pipeline runs empty before each question, and between pieces.
index_t Validation::samples_at_once() const {
  return kRoundsPerQuestion * deck_.parallel.pipeline * deck_.batch.micro *
         deck_.parallel.data;
}

// Ranks take micro-batches in turn.
HostBatch Validation::micro_batch(data::SampleMaker& maker, index_t first, index_t end,
                                  int m, const Look& look) {
  const index_t micro = deck_.batch.micro;
  const index_t at =
      first + (m * index_t{deck_.parallel.data} + grid_.coordinates().data) * micro;
  batch_.fill(maker, at, micro);
  batch_.discount_columns(end - at);
  if (look) look(batch_);
  return batch_.view();
}

step::LossSums Validation::part(const data::Dataset& samples, index_t first, index_t end,
                                const Look& look) {
  const index_t round = deck_.batch.micro * deck_.parallel.data;
  const auto rounds = static_cast<int>((end - first + round - 1) / round);
  const auto maker = data::make_sample_maker(samples);
  return model_.evaluate([&](int m) { return micro_batch(*maker, first, end, m, look); },
                         rounds);
}

std::optional<step::LossSums> Validation::loss_of(const data::ValidationSet& set,
                                                  const std::function<bool()>& stop) {
  const index_t samples = data::validated_samples(deck_, set);
  std::vector<double> sums;  // two for each objective
  for (index_t first = 0; first < samples; first += samples_at_once()) {
    if (first > 0 && stop && stop()) return std::nullopt;
    const step::LossSums mine =
        part(*set.samples, first, std::min(samples, first + samples_at_once()));
    sums.resize(2 * mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      sums[2 * i] += mine[i].sum;
      sums[2 * i + 1] += mine[i].count;
    }
  }
  grid_.groups().gradient->control().all_reduce(sums);
  step::LossSums all;
  for (std::size_t i = 0; i < sums.size(); i += 2) all.push_back({sums[i], sums[i + 1]});
  return all;
}

}  // namespace trireme::inference
