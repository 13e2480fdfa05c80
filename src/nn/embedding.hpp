// nn/embedding.hpp — word embedding split over the vocabulary, learned positions, types
// of tokens, a norm, dropout.
//
//   x = dropout(N(E[token] + P[position] + Q[type]))
// GPT has neither types nor the norm, which BERT has where its layers end with norms; T5
// has words alone. With a norm the sum, its statistics and the norm's weight are saved
// (a pass that hands on no gradient has no weights in use), else nothing.
// Rows of E outside this rank's range give zero, and an all-reduce over the tensor group
// completes the sum (Shoeybi et al. 2019, section 3). The gradient has one pass only: it
// belongs to backward_weight.
//
// A rank's rows are padded to a multiple of kVocabularyMultiple, as matrix products on
// tensor cores are fast on such sizes alone. Words are looked up among the real rows
// only: the word behind a rank's last is the next rank's first, not padding.
#ifndef TRIREME_NN_EMBEDDING_HPP_
#define TRIREME_NN_EMBEDDING_HPP_

#include <optional>
#include <string>

#include "base/exec.hpp"
#include "kernels/dropout.hpp"
#include "nn/context.hpp"
#include "nn/dropout.hpp"
#include "nn/norm.hpp"
#include "nn/weight_gradients.hpp"
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

struct EmbeddingForm {
  std::string name = "embedding";  // of its parameters
  index_t hidden = 0;
  index_t places = 0;  // rows of the table of positions; 0: there is none
  index_t types = 0;   // rows of that of types; 0: there is none
  std::optional<NormForm> norm = {};
  double init_std = 0.02;
  double dropout = 0.0;
  std::uint16_t layer = 0;  // coordinate of dropout: which of the model's embeddings
};

template <class T>
class Embedding {
 public:
  // What is looked up, (rows) each; null what there is no table for.
  struct Ids {
    View1<const std::int32_t> tokens, positions = {}, types = {};
  };
  struct Saved {
    typename Norm<T>::Saved norm;
    typename Norm<T>::Values norm_values;
  };

  // Its own parameters go to the registry's last unit; `word` is registered already.
  Embedding(const Builder<T>& builder, const EmbeddingForm& form,
            const VocabParallelEmbedding<T>& word);

  // x: (local rows, h).
  void forward(const Context& context, const Ids& ids, View2<T> x, Saved& saved) const;
  void backward_weight(const Context& context, const Ids& ids, View2<const T> d_x,
                       const Saved& saved) const;

  const VocabParallelEmbedding<T>& word() const { return word_; }

 private:
  View1<const std::int32_t> local(const Context& context,
                                  View1<const std::int32_t> ids) const;
  kernels::DropoutDesc dropout(const Context& context) const {
    return dropout_of(context, form_.dropout, form_.layer, random::Site::embedding);
  }
  // The sum of what is looked up, with what is dropped of it.
  void sum(const Context& context, const Ids& ids, const kernels::DropoutDesc& dropout,
           View2<T> x) const;
  void type_gradient(const Context& context, View1<const std::int32_t> types,
                     View2<const T> d_sum) const;

  EmbeddingForm form_;
  VocabParallelEmbedding<T> word_;
  std::optional<ParamRef<T>> position_;  // (S, h), the same on every rank of the group
  std::optional<ParamRef<T>> type_;      // (types, h), the same
  std::optional<Norm<T>> norm_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_EMBEDDING_HPP_
