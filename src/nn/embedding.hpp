// nn/embedding.hpp — word embedding split over the vocabulary, learned positions,
// dropout.
//
//   x = dropout(E[token] + P[position])
// Rows of E outside this rank's range give zero, and an all-reduce over the tensor group
// completes the sum (Shoeybi et al. 2019, section 3). The gradient has one pass only: it
// belongs to backward_weight.
//
// A rank's rows are padded to a multiple of kVocabularyMultiple, as matrix products on
// tensor cores are fast on such sizes alone. Words are looked up among the real rows
// only: the word behind a rank's last is the next rank's first, not padding.
#ifndef TRIREME_NN_EMBEDDING_HPP_
#define TRIREME_NN_EMBEDDING_HPP_

#include "base/exec.hpp"
#include "config/deck.hpp"
#include "kernels/dropout.hpp"
#include "nn/context.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::nn {

inline constexpr index_t kVocabularyMultiple = 128;

// V rows of h numbers, this rank's range of them.
template <class T>
class VocabParallelEmbedding {
 public:
  // `tie`: whether another pipeline stage uses the same weight.
  VocabParallelEmbedding(const Builder<T>& builder, const std::string& name,
                         index_t vocabulary, index_t hidden, double init_std,
                         Tie tie = Tie::none);

  // y (local rows, h) = E[ids]; ids: of all rows.
  void forward(const Context& context, View1<const std::int32_t> ids, View2<T> y) const;
  void backward_weight(const Context& context, View1<const std::int32_t> ids,
                       View2<const T> d_y) const;

  const ParamRef<T>& weight() const { return weight_; }
  // This rank's real rows.
  View2<const T> rows() const {
    const View2<const T> all = weight_.matrix();
    return {all.data(), static_cast<std::size_t>(valid_rows()), all.extent(1)};
  }
  // First row of this rank, and how many of its rows are real (not padding).
  index_t begin() const;
  index_t valid_rows() const;

 private:
  ParamRef<T> weight_;  // (v_tp, h)
};

template <class T>
class Embedding {
 public:
  // The table of positions goes to the registry's last unit; `word` is registered
  // already.
  Embedding(const Builder<T>& builder, const config::ModelConfig& config,
            const VocabParallelEmbedding<T>& word);

  // tokens, positions: (rows). x: (local rows, h).
  void forward(const Context& context, View1<const std::int32_t> tokens,
               View1<const std::int32_t> positions, View2<T> x) const;
  void backward_weight(const Context& context, View1<const std::int32_t> tokens,
                       View1<const std::int32_t> positions, View2<const T> d_x) const;

  const VocabParallelEmbedding<T>& word() const { return word_; }

 private:
  View1<const std::int32_t> local(const Context& context,
                                  View1<const std::int32_t> ids) const;
  kernels::DropoutDesc dropout(const Context& context) const;

  config::ModelConfig config_;
  VocabParallelEmbedding<T> word_;
  ParamRef<T> position_;  // (S, h), the same on every rank of the tensor group
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_EMBEDDING_HPP_
