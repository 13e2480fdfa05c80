// inference/validation.hpp — the mean loss of a set of samples, without dropout.
#ifndef TRIREME_INFERENCE_VALIDATION_HPP_
#define TRIREME_INFERENCE_VALIDATION_HPP_

#include <functional>
#include <optional>

#include "base/types.hpp"
#include "comm/rank_grid.hpp"
#include "config/deck.hpp"
#include "data/batch.hpp"
#include "data/datasets.hpp"
#include "data/sample_maker.hpp"
#include "step/replica.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::inference {

class Validation {
 public:
  // Uses the forward pass and the memory of `model`. `batch` has the fields that it
  // reads, and those that a Look wants to see.
  Validation(const config::Deck& deck, const comm::RankGrid& grid, step::Replica& model,
             data::Batch batch);

  // Collective. Sums over the first run.validate_samples samples of the set, or all of
  // them; the same whatever the grid, up to rounding. Asks every few micro-batches
  // whether to stop, on all ranks, which must get the same answer: none then.
  std::optional<step::LossSums> loss_of(const data::ValidationSet& set,
                                        const std::function<bool()>& stop = {});

  // How many samples go through the model of all data ranks at a time.
  index_t samples_at_once() const;
  // What sees the micro-batches of this rank before the model does.
  using Look = std::function<void(const data::Batch&)>;
  // This data rank's sums over its share of the samples [first, end), so many at most; on
  // each rank of its pipeline and tensor group. Collective over these.
  step::LossSums part(const data::Dataset& samples, index_t first, index_t end,
                      const Look& look = {});
  // Micro-batch m of that share; past its end one without a sample that counts. Valid
  // until the next one.
  HostBatch micro_batch(data::SampleMaker& maker, index_t first, index_t end, int m,
                        const Look& look = {});

 private:
  const config::Deck& deck_;
  const comm::RankGrid& grid_;
  step::Replica& model_;
  data::Batch batch_;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_VALIDATION_HPP_
