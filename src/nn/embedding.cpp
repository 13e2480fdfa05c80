// nn/embedding.cpp — see embedding.hpp.
#include "nn/embedding.hpp"

#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "parallel/mappings.hpp"

namespace trireme::nn {

namespace {

template <class T>
void table_gradient(const Context& context, View1<const std::int32_t> ids,
                    View2<const T> d_y, index_t begin, View2<Accumulator<T>> d_table) {
  const ArenaScope scope(context.scratch);
  const auto scratch = context.scratch.vector<std::int32_t>(
      Category::gradient, kernels::embedding_scratch_elements(context.rows()));
  kernels::embedding_backward<T>(context.exec, ids, d_y, begin, scratch, d_table);
}

}  // namespace

template <class T>
VocabParallelEmbedding<T>::VocabParallelEmbedding(const Builder<T>& builder,
                                                  const std::string& name,
                                                  index_t vocabulary, index_t hidden,
                                                  double init_std)
    : weight_(builder.add({.name = name + "/weight",
                           .shard = split({vocabulary, hidden}, 0, builder.tensor_size(),
                                          builder.tensor_rank(), /*pad=*/true),
                           .init = Initializer::normal(init_std),
                           .decay = true})) {}

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
  kernels::embedding_forward<T>(context.exec, ids, weight_.matrix(), begin(),
                                kernels::Write::overwrite, y);
  parallel::reduce_from_tensor_parallel_region(context.exec, *context.groups.tensor, y);
}

template <class T>
void VocabParallelEmbedding<T>::backward_weight(const Context& context,
                                                View1<const std::int32_t> ids,
                                                View2<const T> d_y) const {
  table_gradient<T>(context, ids, d_y, begin(), weight_.matrix_gradient());
}

template <class T>
Embedding<T>::Embedding(const Builder<T>& builder, const EmbeddingConfig& config)
    : config_(config),
      word_(builder, "embedding/word", config.vocabulary, config.hidden, config.init_std),
      position_(builder.add({.name = "embedding/position/weight",
                             .shard = replicated({config.sequence, config.hidden}),
                             .init = Initializer::normal(config.init_std),
                             .decay = true})) {}

template <class T>
void Embedding<T>::forward(const Context& context, View1<const std::int32_t> tokens,
                           View1<const std::int32_t> positions, View2<T> x) const {
  word_.forward(context, tokens, x);
  kernels::embedding_forward<T>(context.exec, positions, position_.matrix(), 0,
                                kernels::Write::add, x);
  if (config_.dropout > 0.0 && context.mode == Mode::training) {
    const kernels::DropoutDesc dropout{.probability = config_.dropout,
                                       .batch = context.batch,
                                       .site = random::Site::embedding};
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
      context.scratch.matrix<T>(Category::gradient, context.rows(), config_.hidden);
  const kernels::DropoutDesc dropout{
      .probability = context.mode == Mode::training ? config_.dropout : 0.0,
      .batch = context.batch,
      .site = random::Site::embedding};
  kernels::dropout_backward<T>(context.exec, dropout, context.step, d_x, d_sum);
  word_.backward_weight(context, tokens, as_const(d_sum));
  table_gradient<T>(context, positions, as_const(d_sum), 0, position_.matrix_gradient());
}

#define TRIREME_INSTANTIATE(T)              \
  template class VocabParallelEmbedding<T>; \
  template class Embedding<T>;
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
