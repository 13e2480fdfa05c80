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

// d_table = or += what the rows of the ids have in d_y; of the table, its first rows.
template <class T>
void table_gradient(const Context& context, View1<const std::int32_t> ids,
                    View2<const T> d_y, index_t begin, const ParamRef<T>& table,
                    index_t table_rows) {
  const ArenaScope scope(context.scratch);
  const auto rows = static_cast<index_t>(ids.extent(0));
  table.write_matrix_gradient([&]<class G>(kernels::Accumulate accumulate, View2<G> all) {
    const auto scratch = context.scratch.vector<std::int32_t>(
        Category::gradient, kernels::embedding_scratch_elements<T, G>(rows, table_rows));
    const View2<G> d_table(all.data(), extent(table_rows), all.extent(1));
    kernels::embedding_backward<T, G>(context.exec, ids, d_y, begin, scratch, accumulate,
                                      d_table);
  });
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
    kernels::embedding_forward<T>(context.exec, ids, rows(), begin(),
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
  table_gradient<T>(context, ids, d_rows, begin(), weight_, valid_rows());
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
  if (!context.sequence_parallel()) return ids;
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
  // Where one rank has all words, they are looked up in the same pass.
  const bool is_whole = context.groups.tensor->size() == 1;
  if (!is_whole) word_.forward(context, tokens, x);
  kernels::embedding_dropout_forward<T>(context.exec, dropout(context), context.step,
                                        is_whole ? tokens : View1<const std::int32_t>(),
                                        is_whole ? word_.rows() : as_const(x),
                                        local(context, positions), position_.matrix(), x);
}

template <class T>
void Embedding<T>::backward_weight(const Context& context,
                                   View1<const std::int32_t> tokens,
                                   View1<const std::int32_t> positions,
                                   View2<const T> d_x) const {
  const ArenaScope scope(context.scratch);
  const kernels::DropoutDesc dropout = this->dropout(context);
  View2<const T> d_sum = d_x;
  if (dropout.probability > 0.0) {
    const auto masked = context.scratch.matrix<T>(Category::gradient,
                                                  context.local_rows(), config_.hidden);
    kernels::dropout_backward<T>(context.exec, dropout, context.step, d_x, masked);
    d_sum = masked;
  }
  word_.backward_weight(context, tokens, d_sum);
  table_gradient<T>(context, local(context, positions), d_sum, 0, position_,
                    config_.sequence);
}

#define TRIREME_INSTANTIATE(T)              \
  template class VocabParallelEmbedding<T>; \
  template class Embedding<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
