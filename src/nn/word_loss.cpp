// nn/word_loss.cpp — see word_loss.hpp.
//
// The rows of a micro-batch are taken in parts. For example 2048 rows of 50304 words in
// float are four parts of 512 rows, whose logits take 103 MB in the place of 412:
//
//   part          1    2    3    4
//   logits        o    o    o    o
//   d_logits      o    o    o    o      in place
//   d_x           o    o    o    o      rows of their own
//   d_E            o    o    o     o    all into one sum, the last beside the message
//
// Each of the three products reads the whole table (or writes its gradient) once for each
// part, which is why parts are not as small as the nearest cache would like them.
#include "nn/word_loss.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "comm/group.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/gather_rows.hpp"
#include "kernels/gemm.hpp"
#include "kernels/initialize.hpp"
#include "kernels/reductions.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::nn {

namespace {

// Parts are multiples of what matrix units take at a time, and not so few rows that a
// product is nothing but the reading of the table.
constexpr index_t kRowMultiple = 32, kFewestRows = 128;

template <class T>
View1<T> rows_of(const View1<T>& whole, index_t begin, index_t end) {
  return {whole.data() == nullptr ? nullptr : whole.data() + begin, extent(end - begin)};
}
template <class T>
View2<T> rows_of(const View2<T>& whole, index_t begin, index_t end) {
  const std::size_t columns = whole.extent(1);
  T* const data = whole.data();
  return {data == nullptr ? nullptr : data + extent(begin) * columns, extent(end - begin),
          columns};
}

}  // namespace

template <class T>
WordLoss<T>::WordLoss(const Builder<T>& builder, const VocabParallelEmbedding<T>& word,
                      const WordLossOptions& options)
    : word_weight_(word.weight()),
      range_{word.begin(), word.valid_rows()},
      objective_(options.objective),
      most_rows_(options.most_rows) {
  if (!options.bias.empty()) {
    bias_ = builder.add(
        {.name = options.bias,
         .shard = split({word_weight_.global_shape()[0]}, 0, builder.tensor_size(),
                        builder.tensor_rank(), kVocabularyMultiple),
         .init = Initializer::constant(0)});
  }
  if (most_rows_ > 0) return;
  const index_t bytes_of_row = vocabulary_tp() * static_cast<index_t>(sizeof(T));
  most_rows_ = std::max(kFewestRows, kLogitBytes / bytes_of_row);
}

template <class T>
void WordLoss<T>::forward(const Context& context, View2<const T> x,
                          View1<const std::int32_t> labels, View1<const float> mask,
                          View1<double> totals, Saved& saved) const {
  using Acc = Accumulator<T>;
  const bool takes_gradients = context.takes_gradients();
  const index_t rows = context.rows();
  const index_t hidden = word_weight_.local_shape()[1];
  TRIREME_REQUIRE(
      static_cast<index_t>(x.extent(0)) == context.local_rows() &&
          static_cast<index_t>(x.extent(1)) == hidden,
      "the loss of words: x is {} x {}, and not {} x {}, as the rows here and "
      "'{}' are",
      x.extent(0), x.extent(1), context.local_rows(), hidden, word_weight_.name());
  saved = {};
  if (takes_gradients) {
    saved.d_x = context.saved->matrix<T>(Category::norm, context.local_rows(), hidden);
    if (bias_) {
      saved.d_bias = context.saved->vector<Acc>(Category::gradient, vocabulary_tp());
    }
  } else {
    saved.x = x;
  }
  saved.loss = context.saved->vector<Acc>(Category::logits, rows);

  const ArenaScope scope(context.scratch);
  Arena& scratch = context.scratch;
  const Rows all{.x = gather_rows(context, x, scratch, "head input"),
                 .labels = labels,
                 .mask = mask,
                 .statistics = {scratch.vector<Acc>(Category::logits, rows),
                                scratch.matrix<Acc>(Category::logits, rows, 2)},
                 .d_bias = saved.d_bias};
  if (takes_gradients) {
    pass_with_gradients(context, all, saved.d_x);
  } else {
    pass_alone(context, all);
  }
  kernels::cross_entropy_loss<T>(context.exec, as_const(all.statistics.row_max),
                                 as_const(all.statistics.sums), mask, saved.loss, totals);
}

template <class T>
void WordLoss<T>::pass_alone(const Context& context, const Rows& all) const {
  const Parts parts = parts_of(context);
  for (index_t begin = 0; begin < parts.rows; begin += parts.step) {
    const Part part = make_part(context.exec, all, parts, begin);
    parallel::vocab_parallel_softmax_statistics<T>(context.exec, *context.groups.tensor,
                                                   range_, as_const(part.logits),
                                                   part.labels, part.statistics);
  }
}

template <class T>
void WordLoss<T>::pass_with_gradients(const Context& context, const Rows& all,
                                      const View2<T>& local_d_x) const {
  const Exec& exec = context.exec;
  const Parts parts = parts_of(context);
  Part part;
  const auto pass = [&](const View2<T>& d_x) {
    for (index_t begin = 0; begin < parts.rows; begin += parts.step) {
      if (begin > 0) add_word_gradient(exec, part);
      part = make_part(exec, all, parts, begin);
      parallel::vocab_parallel_cross_entropy_in_place<T>(
          exec, *context.groups.tensor, range_, context.step, objective_, part.logits,
          part.labels, part.mask, part.statistics);
      if (bias_) sum_bias_gradient(context, part, all.d_bias);
      input_gradient(exec, as_const(part.logits), rows_of(d_x, part.begin, part.end));
    }
  };
  comm::Request request =
      start_reduce_rows(context, local_d_x, context.scratch, Category::gradient,
                        "head input gradient", pass);
  add_word_gradient(exec, part);  // beside the message
  request.wait(exec);
}

// As few parts as may be, and as equal as the multiple allows.
template <class T>
auto WordLoss<T>::parts_of(const Context& context) const -> Parts {
  const index_t rows = context.rows();
  const index_t count = (rows + most_rows_ - 1) / most_rows_;
  const index_t equal = (rows + count - 1) / count;
  const index_t rounded = (equal + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  const index_t step = std::min({rounded, most_rows_, rows});
  return {rows, step, context.scratch.matrix<T>(Category::logits, step, vocabulary_tp())};
}

template <class T>
auto WordLoss<T>::make_part(const Exec& exec, const Rows& all, const Parts& parts,
                            index_t begin) const -> Part {
  const index_t end = std::min(begin + parts.step, parts.rows);
  const Part part{.begin = begin,
                  .end = end,
                  .x = rows_of(all.x, begin, end),
                  .logits = rows_of(parts.memory, 0, end - begin),
                  .labels = rows_of(all.labels, begin, end),
                  .mask = rows_of(all.mask, begin, end),
                  .statistics = {rows_of(all.statistics.row_max, begin, end),
                                 rows_of(all.statistics.sums, begin, end)}};
  make_logits(exec, part.x, part.logits);
  return part;
}

template <class T>
void WordLoss<T>::make_logits(const Exec& exec, View2<const T> x,
                              const View2<T>& logits) const {
  if (bias_) {
    kernels::linear_forward<T>(exec, x, word_weight_.operand(),
                               kernels::Epilogue<T>{.bias = bias_->vector()}, logits);
  } else {
    kernels::linear_forward<T>(exec, x, word_weight_.operand(), logits);
  }
}

// d_x = d_logits E. Words of padding add exact zeros to its sums. Tensor cores want them,
// for the size; a host does without, and sums in the order that it has without padding.
template <class T>
void WordLoss<T>::input_gradient(const Exec& exec, View2<const T> d_logits,
                                 View2<T> d_x) const {
  if (kHostExecution) d_logits = without_padding(d_logits);
  const auto words = word_weight_.operand().first_rows(d_logits.extent(1));
  kernels::linear_backward_input<T>(exec, d_logits, words, d_x);
}

// d_E += d_logits^T x, of one part: the one place that adds the head's share.
template <class T>
void WordLoss<T>::add_word_gradient(const Exec& exec, const Part& part) const {
  product_gradient(exec, word_weight_, as_const(part.logits), part.x);
}

// The head's own parameters get their gradients in backward_weight(), which may follow
// much later; until then the sums over rows are kept, part after part.
template <class T>
void WordLoss<T>::sum_bias_gradient(const Context& context, const Part& part,
                                    const View1<Accumulator<T>>& d_bias) const {
  using Acc = Accumulator<T>;
  const ArenaScope scope(context.scratch);
  const auto partials = context.scratch.vector<Acc>(
      Category::gradient, kernels::sum_rows_scratch_elements(vocabulary_tp()));
  kernels::sum_rows<T, Acc>(
      context.exec, as_const(part.logits), partials,
      part.begin > 0 ? kernels::Accumulate::yes : kernels::Accumulate::no, d_bias);
}

template <class T>
void WordLoss<T>::backward_weight(const Context& context, const Saved& saved) const {
  if (!bias_) return;
  PartialGradients<T> gradients;
  gradients.gather(*bias_, View2<const Accumulator<T>>(saved.d_bias.data(), 1,
                                                       saved.d_bias.extent(0)));
  gradients.add_all(context.exec);
}

template <class T>
void WordLoss<T>::logits(const Context& context, View2<const T> x,
                         View2<T> logits) const {
  make_logits(context.exec, x, logits);
}

template <class T>
void WordLoss<T>::give_logits(const Context& context, View2<const T> x) const {
  const ArenaScope scope(context.scratch);
  const auto logits = context.scratch.matrix<T>(
      Category::logits, static_cast<index_t>(x.extent(0)), vocabulary_tp());
  make_logits(context.exec, x, logits);
  const View2<float>& all = context.output;
  const View2<float> own = Kokkos::subview(
      all, Kokkos::ALL,
      std::pair<index_t, index_t>(range_.begin, range_.begin + range_.valid_columns));
  const bool is_shared = context.groups.tensor->size() > 1;
  if (is_shared) {
    kernels::fill<float>(context.exec, View1<float>(all.data(), all.size()), 0.0f);
  }
  kernels::copy_rows_as_float<T>(context.exec, as_const(without_padding(logits)), own);
  // One rank has each word's, so that the sum is exact.
  if (is_shared) {
    context.groups.tensor->all_reduce(context.exec, comm::span_of(all), comm::Op::sum,
                                      "logits of all words");
  }
}

template <class T>
void WordLoss<T>::decode(const Context& context, const kernels::DecodeInput<T>& input,
                         View2<T> logits) const {
  kernels::DecodeOutput<T> output;
  output.y = logits;
  if (bias_) output.bias = bias_->vector();
  kernels::decode_linear<T>(context.exec, input, word_weight_.operand(), output);
}

template <class T>
View2<T> WordLoss<T>::logits_again(const Context& context, const Saved& saved,
                                   const View2<T>& memory) const {
  TRIREME_REQUIRE(saved.x.extent(0) > 0,
                  "logits of a forward pass that took gradients, or of none");
  const ArenaScope scope(context.scratch);
  make_logits(context.exec, gather_rows(context, saved.x, context.scratch, "head input"),
              memory);
  return without_padding(memory);
}

#define TRIREME_INSTANTIATE(T) template class WordLoss<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
