// nn/cross_attention.cpp — see cross_attention.hpp.
//
// The memory is one tensor, which all layers of a decoder read, and each adds to its
// gradient. With sequence parallelism a rank has a part of the memory's positions as it
// has one of the text's, and each layer gathers it again for its products: keys and
// values of all positions are made, of this rank's heads. Example: a source of 512
// positions on 4 tensor ranks, 8 heads of 64: a rank has 128 positions of the memory,
// and makes keys (512, 128) of 2 heads from the 512 that it gathers.
#include "nn/cross_attention.hpp"

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/timers.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/reductions.hpp"
#include "nn/dropout.hpp"

namespace trireme::nn {

template <class T>
CrossAttention<T>::CrossAttention(const Builder<T>& builder, const std::string& name,
                                  const AttentionForm& form)
    : form_(form),
      heads_(heads_of_rank(builder, name, form)),
      q_(builder, name + "/q", form.hidden, form.heads * form.head_size,
         {.init = Initializer::normal(form.query_std), .has_bias = form.has_bias}),
      kv_(builder, name + "/kv", form.hidden, 2 * form.kv_heads * form.head_size,
          {.init = stacked_init({{form.kv_heads * form.head_size, form.key_std},
                                 {form.kv_heads * form.head_size, form.value_std}}),
           .has_bias = form.has_bias,
           .blocks = {form.kv_heads * form.head_size, form.kv_heads * form.head_size}}),
      projection_(
          builder, name + "/projection", form.heads * form.head_size, form.hidden,
          {.init = Initializer::normal(form.output_std), .has_bias = form.has_bias}) {}

template <class T>
void CrossAttention<T>::forward(const Context& context, View2<const T> x,
                                View2<const T> memory, View2<T> y, Saved& saved) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const Context source = source_of(context);
  const index_t rows = context.rows();
  Arena& arena = *context.saved;
  saved.x = x;
  saved.memory = memory;
  saved.q = arena.matrix<T>(Category::attention, rows, q_.out_tp());
  saved.kv = arena.matrix<T>(Category::attention, source.rows(), kv_.out_tp());
  saved.o = arena.matrix<T>(Category::attention, rows, q_.out_tp());
  saved.lse = arena.vector<Accumulator<T>>(Category::attention, rows * heads_.heads);
  q_.forward(context, x, saved.q);
  kv_.forward(source, memory, saved.kv);
  kernels::attention_forward<T>(context.exec, describe(context), context.step,
                                heads_of(context, as_const(saved.q)),
                                heads_of(context, as_const(saved.kv)),
                                heads_of(context, as_const(saved.kv), values_begin()),
                                heads_of(context, saved.o), saved.lse);
  projection_.forward(context, as_const(saved.o), y);
}

template <class T>
comm::Request CrossAttention<T>::start_backward_input(const Context& context,
                                                      View2<const T> d_y,
                                                      const Saved& saved, View2<T> d_x,
                                                      const MemoryGradient<T>& d_memory,
                                                      Held& held) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const Context source = source_of(context);
  const index_t rows = context.rows();
  held.d_y = projection_.whole_output_gradient(context, d_y);
  held.d_q = context.held.matrix<T>(Category::gradient, rows, q_.out_tp());
  held.d_kv = context.held.matrix<T>(Category::gradient, source.rows(), kv_.out_tp());
  {
    const ArenaScope scope(context.scratch);
    const kernels::AttentionDesc desc = describe(context);
    const auto d_o = context.scratch.matrix<T>(Category::gradient, rows, q_.out_tp());
    const auto scratch = context.scratch.vector<Accumulator<T>>(
        Category::attention, kernels::attention_backward_scratch_elements<T>(desc));
    projection_.backward_input(context, held.d_y, d_o);
    kernels::attention_backward<T>(
        context.exec, desc, context.step, heads_of(context, as_const(saved.q)),
        heads_of(context, as_const(saved.kv)),
        heads_of(context, as_const(saved.kv), values_begin()),
        heads_of(context, as_const(saved.o)), as_const(saved.lse),
        heads_of(context, as_const(d_o)), scratch, heads_of(context, held.d_q),
        heads_of(context, held.d_kv), heads_of(context, held.d_kv, values_begin()));
  }
  backward_memory(source, d_memory, as_const(held.d_kv));
  return q_.start_backward_input(context, as_const(held.d_q), d_x);
}

// A product that is all there is of the sum adds to what is there by itself; one that
// ranks have parts of is summed over them first.
template <class T>
void CrossAttention<T>::backward_memory(const Context& source,
                                        const MemoryGradient<T>& gradient,
                                        View2<const T> d_kv) const {
  const View2<T>& d_memory = gradient.d_memory;
  if (gradient.accumulate == kernels::Accumulate::no) {
    kv_.start_backward_input(source, d_kv, d_memory).wait(source.exec);
    return;
  }
  if (source.groups.tensor->size() == 1) {
    kv_.add_backward_input(source, d_kv, d_memory);
    return;
  }
  const ArenaScope scope(source.scratch);
  const auto mine =
      source.scratch.matrix<T>(Category::gradient, source.local_rows(), form_.hidden);
  kv_.start_backward_input(source, d_kv, mine).wait(source.exec);
  add_rows(source, as_const(mine), d_memory);
}

template <class T>
typename CrossAttention<T>::BiasSums CrossAttention<T>::take_bias_sums(
    const Context& context, Arena& memory) const {
  if (!q_.has_bias()) return {};
  const auto sums = [&](index_t rows, index_t columns) {
    return memory.matrix<Accumulator<T>>(
        Category::gradient, kernels::tiled_partial_count(rows, columns), columns);
  };
  BiasSums taken;
  taken.q = sums(context.rows(), q_.out_tp());
  taken.kv = sums(source_of(context).rows(), kv_.out_tp());
  return taken;
}

template <class T>
void CrossAttention<T>::backward_weight(const Context& context, const Saved& saved,
                                        const Held& held, const BiasSums& sums,
                                        PartialGradients<T>& gradients) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const ArenaScope scope(context.scratch);
  const Context source = source_of(context);
  GatheredRows<T> x = q_.start_weight_input(context, saved.x);  // beside the projection
  GatheredRows<T> memory = kv_.start_weight_input(source, saved.memory);
  projection_.backward_weight(context, held.d_y, as_const(saved.o));
  q_.backward_weight(context, as_const(held.d_q), std::move(x));
  kv_.backward_weight(source, as_const(held.d_kv), std::move(memory));
  if (!q_.has_bias()) return;
  kernels::sum_row_blocks<T>(context.exec, as_const(held.d_q), sums.q);
  kernels::sum_row_blocks<T>(context.exec, as_const(held.d_kv), sums.kv);
  q_.backward_bias(as_const(sums.q), gradients);
  kv_.backward_bias(as_const(sums.kv), gradients);
}

template <class T>
void CrossAttention<T>::begin_text(const Context& context, View2<const T> memory,
                                   const KvCache<T>& cache) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const ArenaScope scope(context.scratch);
  const Context source = source_of(context);
  const auto kv =
      context.scratch.matrix<T>(Category::attention, source.rows(), kv_.out_tp());
  kv_.forward(source, memory, kv);
  kernels::append_to_cache<T>(context.exec, cache.sources, as_const(kv), 0,
                              cache.source_k, cache.source_v);
}

// A cache has no rows behind the end of a source: none of it is masked.
template <class T>
void CrossAttention<T>::forward_cached(const Context& context, View2<const T> x,
                                       View2<T> y, const KvCache<T>& cache) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const ArenaScope scope(context.scratch);
  const index_t rows = context.rows();
  const auto q = context.scratch.matrix<T>(Category::attention, rows, q_.out_tp());
  const auto o = context.scratch.matrix<T>(Category::attention, rows, q_.out_tp());
  q_.forward(context, x, q);
  kernels::AttentionDesc desc = describe(context);
  desc.mask = kernels::MaskKind::none;
  attend_cached<T>(context, desc, as_const(q),
                   {cache.sources, as_const(cache.source_k), as_const(cache.source_v)},
                   o);
  projection_.forward(context, as_const(o), y);
}

#define TRIREME_INSTANTIATE(T) template class CrossAttention<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
