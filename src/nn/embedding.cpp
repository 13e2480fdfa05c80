// nn/embedding.cpp — see embedding.hpp.
//
// The rows of the word table are split over the tensor ranks. Each rank looks up the
// tokens whose rows it has and writes zeros for the others; the sum over the ranks is the
// embedding, exactly, because one summand of each row is not zero. Example: a vocabulary
// of 10 on 2 ranks, which begin at 0 and 5. For the tokens 3, 7 rank 0 writes (row 3, 0),
// rank 1 (0, its row 2). Gradients go the same way back: a rank adds those of its rows.
#include "nn/embedding.hpp"

#include <fmt/format.h>

#include "comm/group.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/reductions.hpp"
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
Embedding<T>::Embedding(const Builder<T>& builder, const EmbeddingForm& form,
                        const VocabParallelEmbedding<T>& word)
    : form_(form), word_(word) {
  const auto table = [&](const char* name, index_t rows) {
    return builder.add({.name = fmt::format("{}/{}/weight", form.name, name),
                        .shard = replicated({rows, form.hidden}),
                        .init = Initializer::normal(form.init_std),
                        .decay = true,
                        .in_sequence_region = true});
  };
  if (form.places > 0) position_ = table("position", form.places);
  if (form.types > 0) type_ = table("type", form.types);
  if (form.norm) {
    norm_ = Norm<T>(builder, form.name + "/norm", form.hidden, *form.norm);
  }
}

template <class T>
View1<const std::int32_t> Embedding<T>::local(const Context& context,
                                              View1<const std::int32_t> ids) const {
  if (!context.sequence_parallel() || ids.extent(0) == 0) return ids;
  // A shape-only pass has no memory to point into.
  const std::int32_t* first =
      ids.data() == nullptr ? nullptr
                            : ids.data() + context.sequence_begin() * context.samples();
  return {first, static_cast<std::size_t>(context.local_rows())};
}

// Where one rank has all words, they are looked up in the same pass as what is added.
template <class T>
void Embedding<T>::sum(const Context& context, const Ids& ids,
                       const kernels::DropoutDesc& dropout, View2<T> x) const {
  if (!position_) {
    word_.forward(context, ids.tokens, x);
    drop_rows(context, dropout, x);
    return;
  }
  const bool is_whole = context.groups.tensor->size() == 1;
  if (!is_whole) word_.forward(context, ids.tokens, x);
  kernels::TokenTypes<T> types;
  if (type_) types = {local(context, ids.types), type_->matrix()};
  kernels::embedding_dropout_forward<T>(
      context.exec, dropout, context.step,
      is_whole ? ids.tokens : View1<const std::int32_t>(),
      is_whole ? word_.rows() : as_const(x), local(context, ids.positions),
      position_->matrix(), x, types);
}

template <class T>
void Embedding<T>::forward(const Context& context, const Ids& ids, View2<T> x,
                           Saved& saved) const {
  const kernels::DropoutDesc desc = dropout(context);
  if (!norm_) {
    sum(context, ids, desc, x);
    return;
  }
  kernels::DropoutDesc keeps_all = desc;
  keeps_all.probability = 0.0;
  const auto before =
      context.saved->matrix<T>(Category::hidden, context.local_rows(), form_.hidden);
  sum(context, ids, keeps_all, before);
  norm_->forward(context, as_const(before), x, saved.norm);
  saved.norm_values = norm_->saved_values(context);
  drop_rows(context, desc, x);
}

template <class T>
void Embedding<T>::backward_weight(const Context& context, const Ids& ids,
                                   View2<const T> d_x, const Saved& saved) const {
  const ArenaScope scope(context.scratch);
  const kernels::DropoutDesc desc = dropout(context);
  const auto rows_of_scratch = [&] {
    return context.scratch.matrix<T>(Category::gradient, context.local_rows(),
                                     form_.hidden);
  };
  View2<const T> d_sum = d_x;
  if (desc.probability > 0.0) {
    const auto masked = rows_of_scratch();
    kernels::dropout_backward<T>(context.exec, desc, context.step, d_x, masked);
    d_sum = masked;
  }
  if (norm_) {
    norm_->backward_weight(context, d_sum, saved.norm);
    const auto d_before = rows_of_scratch();
    Norm<T>::backward_input(context, saved.norm_values, d_sum, saved.norm, d_before);
    d_sum = d_before;
  }
  word_.backward_weight(context, ids.tokens, d_sum);
  if (position_) {
    table_gradient<T>(context, local(context, ids.positions), d_sum, 0, *position_,
                      form_.places);
  }
  if (type_) type_gradient(context, local(context, ids.types), d_sum);
}

// Half of all rows ask for one of the types: sums of each over blocks of rows are taken,
// as for a bias.
template <class T>
void Embedding<T>::type_gradient(const Context& context, View1<const std::int32_t> types,
                                 View2<const T> d_sum) const {
  using Acc = Accumulator<T>;
  const ArenaScope scope(context.scratch);
  const auto rows = static_cast<index_t>(d_sum.extent(0));
  const auto partials = context.scratch.matrix<Acc>(
      Category::gradient, kernels::partial_count(rows, form_.hidden),
      form_.types * form_.hidden);
  kernels::embedding_backward_types<T>(context.exec, types, d_sum, partials);
  type_->write_matrix_gradient(
      [&]<class G>(kernels::Accumulate accumulate, View2<G> d_table) {
        kernels::add_partials<Acc, G>(
            context.exec, as_const(partials), accumulate,
            View1<G>(d_table.data(), d_table.extent(0) * d_table.extent(1)));
      });
}

#define TRIREME_INSTANTIATE(T)              \
  template class VocabParallelEmbedding<T>; \
  template class Embedding<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
