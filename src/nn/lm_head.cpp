// nn/lm_head.cpp — see lm_head.hpp.
//
// The rows of a micro-batch are taken in parts. For example 2048 rows of 50304 words in
// float are four parts of 512 rows, whose logits take 103 MB in the place of 412:
//
//   part          1    2    3    4
//   logits        o    o    o    o
//   d_logits      o    o    o    o      in place
//   d_LN(x)       o    o    o    o      rows of their own
//   d_E            o    o    o     o    all into one sum, the last beside the message
//
// Each of the three products reads the whole table (or writes its gradient) once for each
// part, which is why parts are not as small as the nearest cache would like them.
#include "nn/lm_head.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "comm/group.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/gemm.hpp"
#include "nn/weight_gradients.hpp"

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
LmHead<T>::LmHead(const Builder<T>& builder, index_t hidden,
                  const VocabParallelEmbedding<T>& word,
                  kernels::ObjectiveScale objective, index_t most_rows)
    : hidden_(hidden),
      norm_(builder, "final_norm", hidden),
      word_weight_(word.weight()),
      range_{word.begin(), word.valid_rows()},
      objective_(objective),
      most_rows_(most_rows) {
  if (most_rows_ > 0) return;
  const index_t bytes_of_row = vocabulary_tp() * static_cast<index_t>(sizeof(T));
  most_rows_ = std::max(kFewestRows, kLogitBytes / bytes_of_row);
}

template <class T>
void LmHead<T>::forward(const Context& context, View2<const T> x,
                        View1<const std::int32_t> labels, View1<const float> mask,
                        View1<double> totals, Saved& saved) const {
  using Acc = Accumulator<T>;
  const bool takes_gradients = context.takes_gradients();
  const index_t rows = context.rows();
  const auto kept =
      context.saved->matrix<T>(Category::norm, context.local_rows(), hidden_);
  saved.loss = context.saved->vector<Acc>(Category::logits, rows);
  saved.d_normed = takes_gradients ? kept : View2<T>();
  saved.normed = takes_gradients ? View2<T>() : kept;

  const ArenaScope scope(context.scratch);
  Arena& scratch = context.scratch;
  const View2<T> normed =
      takes_gradients ? scratch.matrix<T>(Category::norm, context.local_rows(), hidden_)
                      : kept;
  norm_.forward(context, x, normed, saved.norm);
  const Rows all{.normed = gather_rows(context, as_const(normed), scratch, "head input"),
                 .labels = labels,
                 .mask = mask,
                 .statistics = {scratch.vector<Acc>(Category::logits, rows),
                                scratch.matrix<Acc>(Category::logits, rows, 2)}};
  if (takes_gradients) {
    pass_with_gradients(context, all, saved.d_normed);
  } else {
    pass_alone(context, all);
  }
  kernels::cross_entropy_loss<T>(context.exec, as_const(all.statistics.row_max),
                                 as_const(all.statistics.sums), mask, saved.loss, totals);
}

template <class T>
void LmHead<T>::pass_alone(const Context& context, const Rows& all) const {
  const Parts parts = parts_of(context);
  for (index_t begin = 0; begin < parts.rows; begin += parts.step) {
    const Part part = make_logits(context.exec, all, parts, begin);
    parallel::vocab_parallel_softmax_statistics<T>(context.exec, *context.groups.tensor,
                                                   range_, as_const(part.logits),
                                                   part.labels, part.statistics);
  }
}

template <class T>
void LmHead<T>::pass_with_gradients(const Context& context, const Rows& all,
                                    const View2<T>& local_d_normed) const {
  const Exec& exec = context.exec;
  const Parts parts = parts_of(context);
  Part part;
  const auto pass = [&](const View2<T>& d_normed) {
    for (index_t begin = 0; begin < parts.rows; begin += parts.step) {
      if (begin > 0) add_word_gradient(exec, part);
      part = make_logits(exec, all, parts, begin);
      parallel::vocab_parallel_cross_entropy_in_place<T>(
          exec, *context.groups.tensor, range_, context.step, objective_, part.logits,
          part.labels, part.mask, part.statistics);
      input_gradient(exec, as_const(part.logits),
                     rows_of(d_normed, part.begin, part.end));
    }
  };
  comm::Request request =
      start_reduce_rows(context, local_d_normed, context.scratch, Category::gradient,
                        "head input gradient", pass);
  add_word_gradient(exec, part);  // beside the message
  request.wait(exec);
}

// As few parts as may be, and as equal as the multiple allows.
template <class T>
auto LmHead<T>::parts_of(const Context& context) const -> Parts {
  const index_t rows = context.rows();
  const index_t count = (rows + most_rows_ - 1) / most_rows_;
  const index_t equal = (rows + count - 1) / count;
  const index_t rounded = (equal + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  const index_t step = std::min({rounded, most_rows_, rows});
  return {rows, step, context.scratch.matrix<T>(Category::logits, step, vocabulary_tp())};
}

template <class T>
auto LmHead<T>::make_logits(const Exec& exec, const Rows& all, const Parts& parts,
                            index_t begin) const -> Part {
  const index_t end = std::min(begin + parts.step, parts.rows);
  const Part part{.begin = begin,
                  .end = end,
                  .normed = rows_of(all.normed, begin, end),
                  .logits = rows_of(parts.memory, 0, end - begin),
                  .labels = rows_of(all.labels, begin, end),
                  .mask = rows_of(all.mask, begin, end),
                  .statistics = {rows_of(all.statistics.row_max, begin, end),
                                 rows_of(all.statistics.sums, begin, end)}};
  kernels::linear_forward<T>(exec, part.normed, word_weight_.operand(), part.logits);
  return part;
}

// d_x = d_logits E. Words of padding add exact zeros to its sums. Tensor cores want them,
// for the size; a host does without, and sums in the order that it has without padding.
template <class T>
void LmHead<T>::input_gradient(const Exec& exec, View2<const T> d_logits,
                               View2<T> d_x) const {
  if (kHostExecution) d_logits = without_padding(d_logits);
  const auto words = word_weight_.operand().first_rows(d_logits.extent(1));
  kernels::linear_backward_input<T>(exec, d_logits, words, d_x);
}

// d_E += d_logits^T LN(x), of one part: the one place that adds the head's share.
template <class T>
void LmHead<T>::add_word_gradient(const Exec& exec, const Part& part) const {
  product_gradient(exec, word_weight_, as_const(part.logits), part.normed);
}

template <class T>
void LmHead<T>::backward_input(const Context& context, const Saved& saved, View2<T> d_x,
                               WeightPass weight_pass) const {
  norm_.backward_input(context, as_const(saved.d_normed), saved.norm, {}, d_x);
  if (weight_pass == WeightPass::now) backward_weight(context, saved);
}

template <class T>
void LmHead<T>::backward_weight(const Context& context, const Saved& saved) const {
  norm_.backward_weight(context, as_const(saved.d_normed), saved.norm);
}

template <class T>
void LmHead<T>::logits(const Context& context, View2<const T> x, View2<T> logits) const {
  const ArenaScope scope(context.scratch);
  const ArenaScope statistics(*context.saved);
  const auto rows = static_cast<index_t>(x.extent(0));
  if (kernels::has_decode_linear<T>(rows, hidden_)) {
    kernels::DecodeOutput<T> output;
    output.y = logits;
    kernels::decode_linear<T>(context.exec, norm_.decode_input(x), word_weight_.operand(),
                              output);
    return;
  }
  const auto normed = context.scratch.matrix<T>(Category::norm, rows, hidden_);
  typename LayerNorm<T>::Saved unused;
  norm_.forward(context, x, normed, unused);
  kernels::linear_forward<T>(context.exec, as_const(normed), word_weight_.operand(),
                             logits);
}

template <class T>
View2<T> LmHead<T>::logits_again(const Context& context, const Saved& saved,
                                 const View2<T>& memory) const {
  TRIREME_REQUIRE(saved.normed.extent(0) > 0,
                  "logits of a forward pass that took gradients, or of none");
  const ArenaScope scope(context.scratch);
  const View2<const T> normed =
      gather_rows(context, as_const(saved.normed), context.scratch, "head input");
  kernels::linear_forward<T>(context.exec, normed, word_weight_.operand(), memory);
  return without_padding(memory);
}

#define TRIREME_INSTANTIATE(T) template class LmHead<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
