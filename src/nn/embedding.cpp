// nn/embedding.cpp — see embedding.hpp.
//
// The rows of the word table are split over the tensor ranks. Each rank looks up the
// tokens whose rows it has and writes zeros for the others; the sum over the ranks is the
// embedding, exactly, because one summand of each row is not zero. Example: a vocabulary
// of 10 on 2 ranks, which begin at 0 and 5. For the tokens 3, 7 rank 0 writes (row 3, 0),
// rank 1 (0, its row 2). Gradients go the same way back: a rank adds those of its rows.
#include "nn/embedding.hpp"

#include "comm/group.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "nn/mappings.hpp"

namespace trireme::nn {

namespace {

template <class T>
void table_gradient(const Context& context, View1<const std::int32_t> ids,
                    View2<const T> d_y, index_t begin, kernels::Accumulate accumulate,
                    View2<Accumulator<T>> d_table) {
  const ArenaScope scope(context.scratch);
  const auto scratch = context.scratch.vector<std::int32_t>(
      Category::gradient,
      kernels::embedding_scratch_elements(static_cast<index_t>(ids.extent(0))));
  kernels::embedding_backward<T>(context.exec, ids, d_y, begin, scratch, accumulate,
                                 d_table);
}

}  // namespace

template <class T>
VocabParallelEmbedding<T>::VocabParallelEmbedding(const Builder<T>& builder,
                                                  const std::string& name,
                                                  index_t vocabulary, index_t hidden,
                                                  double init_std, Tie tie)
    : weight_(builder.add({.name = name + "/weight",
                           .shard = split({vocabulary, hidden}, 0, builder.tensor_size(),
                                          builder.tensor_rank(), kVocabularyMultiple),
                           .init = Initializer::normal(init_std),
                           .decay = true,
                           .tie = tie})) {}

template <class T>
index_t VocabParallelEmbedding<T>::begin() const {
  const auto& segments = weight_.spec().shard.segments;
  return segments.empty() ? weight_.global_shape()[0] : segments[0].global_begin;
}

template <class T>
index_t VocabParallelEmbedding<T>::valid_rows() const {
  const auto& segments = weight_.spec().shard.segments;
  return segments.empty() ? 0 : segments[0].extent;
}

template <class T>
void VocabParallelEmbedding<T>::forward(const Context& context,
                                        View1<const std::int32_t> ids, View2<T> y) const {
  reduce_rows(context, y, "word embedding", [&](const View2<T>& partial) {
    kernels::embedding_forward<T>(context.exec, ids, real(weight_.matrix()), begin(),
                                  kernels::Write::overwrite, partial);
  });
}

template <class T>
void VocabParallelEmbedding<T>::backward_weight(const Context& context,
                                                View1<const std::int32_t> ids,
                                                View2<const T> d_y) const {
  const ArenaScope scope(context.scratch);
  const View2<const T> d_rows =
      gather_rows(context, d_y, context.scratch, "word embedding gradient");
  table_gradient<T>(context, ids, d_rows, begin(), weight_.begin_gradient(),
                    real(weight_.matrix_gradient()));
}

template <class T>
Embedding<T>::Embedding(const Builder<T>& builder, const config::ModelConfig& config,
                        const VocabParallelEmbedding<T>& word)
    : config_(config),
      word_(word),
      position_(builder.add({.name = "embedding/position/weight",
                             .shard = replicated({config.sequence, config.hidden}),
                             .init = Initializer::normal(config.init_std),
                             .decay = true,
                             .in_sequence_region = true})) {}

template <class T>
View1<const std::int32_t> Embedding<T>::local(const Context& context,
                                              View1<const std::int32_t> ids) const {
  if (!context.sequence_parallel) return ids;
  // A shape-only pass has no memory to point into.
  const std::int32_t* first =
      ids.data() == nullptr ? nullptr
                            : ids.data() + context.sequence_begin() * context.samples();
  return {first, static_cast<std::size_t>(context.local_rows())};
}

template <class T>
kernels::DropoutDesc Embedding<T>::dropout(const Context& context) const {
  return {.probability = context.mode == Mode::training ? config_.dropout : 0.0,
          .batch = context.samples(),
          .sequence_begin = context.sequence_begin(),
          .site = random::Site::embedding};
}

template <class T>
void Embedding<T>::forward(const Context& context, View1<const std::int32_t> tokens,
                           View1<const std::int32_t> positions, View2<T> x) const {
  word_.forward(context, tokens, x);
  kernels::embedding_forward<T>(context.exec, local(context, positions),
                                position_.matrix(), 0, kernels::Write::add, x);
  const kernels::DropoutDesc dropout = this->dropout(context);
  if (dropout.probability > 0.0) {
    kernels::bias_dropout_add_forward<T>(context.exec, dropout, context.step, as_const(x),
                                         {}, {}, x);
  }
}

template <class T>
void Embedding<T>::backward_weight(const Context& context,
                                   View1<const std::int32_t> tokens,
                                   View1<const std::int32_t> positions,
                                   View2<const T> d_x) const {
  const ArenaScope scope(context.scratch);
  const auto d_sum =
      context.scratch.matrix<T>(Category::gradient, context.local_rows(), config_.hidden);
  kernels::dropout_backward<T>(context.exec, dropout(context), context.step, d_x, d_sum);
  word_.backward_weight(context, tokens, as_const(d_sum));
  table_gradient<T>(context, local(context, positions), as_const(d_sum), 0,
                    position_.begin_gradient(), position_.matrix_gradient());
}

#define TRIREME_INSTANTIATE(T)              \
  template class VocabParallelEmbedding<T>; \
  template class Embedding<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
