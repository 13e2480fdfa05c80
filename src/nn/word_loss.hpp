// nn/word_loss.hpp — logits by a table of words, and the loss; in training with the
// gradients of both in the forward pass. What heads over a vocabulary have behind their
// norm.
//
//   logits = x E^T (+ b);   loss = -log softmax(logits)[label]
//   d_logits = c mask (softmax(logits) - one_hot(label))
//   d_x = d_logits E;   d_E += d_logits^T x;   d_b += sum over rows of d_logits
// The vocabulary is split over the tensor group; logits are never gathered, and never
// whole: some rows of them are made at a time, turned into d_logits in place, and used up
// by both products before the next rows are made. That needs the normaliser of the loss
// (c = ObjectiveScale::in(step)) before the forward pass, which the step has counted by
// then.
#ifndef TRIREME_NN_WORD_LOSS_HPP_
#define TRIREME_NN_WORD_LOSS_HPP_

#include <optional>
#include <string>
#include <utility>

#include "base/exec.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/decode_linear.hpp"
#include "nn/embedding.hpp"
#include "nn/mappings.hpp"
#include "parallel/cross_entropy.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::nn {

// Bytes of the logits that are made at a time: few enough to be a small part of a step's
// memory, as many as the time that every product takes to read (or write) the whole table
// once more asks for. docs/math/cross_entropy.md has the figures.
inline constexpr index_t kLogitBytes = index_t{kHostExecution ? 128 : 512} << 20;

struct WordLossOptions {
  kernels::ObjectiveScale objective{};
  index_t most_rows = 0;  // whose logits are made at a time; 0: kLogitBytes' worth
  std::string bias{};     // name of b, (vocabulary); empty: there is none
};

template <class T>
class WordLoss {
 public:
  struct Saved {
    View2<const T> x;              // (local rows, h), where no gradients were taken
    View2<T> d_x;                  // (local rows, h), where they were
    View1<Accumulator<T>> d_bias;  // (v_tp), the same
    View1<Accumulator<T>> loss;    // (rows)
  };

  // `word`: the table, which is registered already; b goes to the registry's last unit.
  WordLoss(const Builder<T>& builder, const VocabParallelEmbedding<T>& word,
           const WordLossOptions& options);

  // x: (local rows, h), which must live as long as `saved` where no gradients are taken.
  // totals[0] += sum of mask * loss, totals[1] += sum of mask. Where the context
  // takes_gradients(), those of sum(mask * loss) * objective.in(step), too: the table's
  // is added to, those of x and b are kept.
  void forward(const Context& context, View2<const T> x, View1<const std::int32_t> labels,
               View1<const float> mask, View1<double> totals, Saved& saved) const;
  // What is left of the gradients: b's. Nothing where there is none.
  void backward_weight(const Context& context, const Saved& saved) const;

  // Logits only: x (n, h) of any number of rows, all of them here, logits (n, v_tp).
  void logits(const Context& context, View2<const T> x, View2<T> logits) const;
  // The same as the model's output, of all words on each rank of the tensor group.
  void give_logits(const Context& context, View2<const T> x) const;
  void decode(const Context& context, const kernels::DecodeInput<T>& input,
              View2<T> logits) const;
  // Logits of a forward pass that took no gradients, once more, in `memory` (rows, v_tp);
  // returned are the columns of real words alone.
  View2<T> logits_again(const Context& context, const Saved& saved,
                        const View2<T>& memory) const;
  index_t vocabulary_tp() const { return word_weight_.local_shape()[0]; }
  View2<const T> weights() const { return word_weight_.matrix(); }  // (v_tp, h)

 private:
  // All rows of a micro-batch.
  struct Rows {
    View2<const T> x;  // (rows, h)
    View1<const std::int32_t> labels;
    View1<const float> mask;
    parallel::SoftmaxStatistics<T> statistics;
    View1<Accumulator<T>> d_bias;
  };
  // How they are taken: `step` rows at a time, their logits in `memory`.
  struct Parts {
    index_t rows = 0, step = 0;
    View2<T> memory;  // (step, v_tp)
  };
  // Rows [begin, end), what belongs to them, and their logits, which become d_logits.
  struct Part {
    index_t begin = 0, end = 0;
    View2<const T> x;
    View2<T> logits;  // (end - begin, v_tp)
    View1<const std::int32_t> labels;
    View1<const float> mask;
    parallel::SoftmaxStatistics<T> statistics;
  };

  void pass_alone(const Context& context, const Rows& all) const;
  void pass_with_gradients(const Context& context, const Rows& all,
                           const View2<T>& local_d_x) const;
  Parts parts_of(const Context& context) const;
  Part make_part(const Exec& exec, const Rows& all, const Parts& parts,
                 index_t begin) const;
  void make_logits(const Exec& exec, View2<const T> x, const View2<T>& logits) const;
  void input_gradient(const Exec& exec, View2<const T> d_logits, View2<T> d_x) const;
  void add_word_gradient(const Exec& exec, const Part& part) const;
  void sum_bias_gradient(const Context& context, const Part& part,
                         const View1<Accumulator<T>>& d_bias) const;

  // Columns of real words alone; rows stay as far apart as they are.
  template <class U>
  View2<U> without_padding(const View2<U>& logits) const {
    return Kokkos::subview(logits, Kokkos::ALL,
                           std::pair<index_t, index_t>(0, range_.valid_columns));
  }

  ParamRef<T> word_weight_;          // (v_tp, h)
  std::optional<ParamRef<T>> bias_;  // (v_tp)
  kernels::VocabRange range_;
  kernels::ObjectiveScale objective_;
  index_t most_rows_;  // whose logits are made at a time
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_WORD_LOSS_HPP_
