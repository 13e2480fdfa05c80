// nn/attention.cpp — see attention.hpp.
//
// q, k and v are columns of one matrix, the output of one product: kernels get them as
// HeadsViews, a pointer to the first column with the strides of the whole matrix, so that
// nothing is copied apart. Their gradients are columns of one matrix in the same way.
// Example: 4 heads and 2 key heads of size 8 on 2 tensor ranks. A rank has 2 heads and 1
// key head, and its rows are [q 0..15 | k 16..23 | v 24..31]. Only generation copies k
// and v out, to the places of their texts behind those of the positions before.
#include "nn/attention.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/timers.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/reductions.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

kernels::AttentionDesc describe_attention(const Context& context,
                                          const AttentionForm& form,
                                          const HeadRange& range) {
  const int key_stream = form.key_stream < 0 ? context.stream : form.key_stream;
  kernels::AttentionDesc desc{
      .batch = context.samples(),
      .q_length = context.sequence(),
      .kv_length = context.on_stream(key_stream).sequence(),
      .heads = range.heads,
      .kv_heads = range.kv_heads,
      .head_dim = form.head_size,
      .mask = form.mask,
      .query_lengths = context.lengths(context.stream).data(),
      .scale = form.scale,
      .dropout = context.mode == Mode::training ? form.dropout : 0.0,
      .head_begin = range.begin,
      .mask_queries = form.queries,
      .mask_keys = form.keys,
      .layer = form.layer,
      .site = form.site,
      .library = context.attention};
  if (form.mask == kernels::MaskKind::padding) {
    desc.key_lengths = context.lengths(key_stream).data();
  }
  if (form.mask == kernels::MaskKind::segment) {
    desc.document_begins = context.ids(extent(form.begins)).data();
    desc.document_ends = context.ids(extent(form.ends)).data();
  }
  return desc;
}

Initializer stacked_init(std::initializer_list<StackedRows> matrices) {
  std::vector<Initializer::RowBlock> blocks;
  index_t begin = 0;
  bool is_one = true;
  for (const StackedRows& matrix : matrices) {
    blocks.push_back({begin, matrix.std});
    begin += matrix.rows;
    is_one = is_one && matrix.std == blocks[0].std;
  }
  return is_one ? Initializer::normal(blocks[0].std) : Initializer::normal(blocks);
}

template <class T>
void attend_cached(const Context& context, kernels::AttentionDesc desc, View2<const T> q,
                   const CachedKeys<T>& keys, View2<T> o) {
  using Acc = Accumulator<T>;
  const kernels::CachedTexts& texts = keys.texts;
  if (context.sequence() == 1) {
    const kernels::CachedHeads of_one{desc.heads, desc.kv_heads, desc.head_dim,
                                      desc.scale};
    const auto scratch = context.scratch.vector<Acc>(
        Category::attention, kernels::decode_attention_scratch_elements(texts, of_one));
    kernels::decode_attention<T>(context.exec, texts, of_one, q, keys.k, keys.v, scratch,
                                 o, keys.bias);
    return;
  }
  TRIREME_REQUIRE(texts.places.data() == nullptr && texts.lengths.data() == nullptr,
                  "{} at a time of texts of unlike length",
                  format_plural(context.sequence(), "position"));
  desc.kv_length = texts.longest;
  const auto cached = [&](const View2<const T>& view) -> kernels::HeadsView<const T> {
    const auto columns = static_cast<index_t>(view.extent(1));
    const T* const data =
        view.data() == nullptr ? nullptr : view.data() + texts.first_row(0) * columns;
    return {data, columns, texts.capacity * columns};
  };
  const auto lse =
      context.scratch.vector<Acc>(Category::attention, context.rows() * desc.heads);
  kernels::attention_forward<T>(context.exec, desc, context.step, heads_of(context, q),
                                cached(keys.k), cached(keys.v), heads_of(context, o), lse,
                                keys.bias);
}

template <class T>
Attention<T>::Attention(const Builder<T>& builder, const std::string& name,
                        const AttentionForm& form,
                        std::optional<RelativeBias<T>> relative_bias)
    : form_(form),
      heads_(heads_of_rank(builder, name, form)),
      relative_bias_(std::move(relative_bias)),
      qkv_(builder, name + "/qkv", form.hidden,
           (form.heads + 2 * form.kv_heads) * form.head_size,
           {.init = stacked_init({{form.heads * form.head_size, form.query_std},
                                  {form.kv_heads * form.head_size, form.key_std},
                                  {form.kv_heads * form.head_size, form.value_std}}),
            .has_bias = form.has_bias,
            .blocks = {form.heads * form.head_size, form.kv_heads * form.head_size,
                       form.kv_heads * form.head_size}}),
      projection_(
          builder, name + "/projection", form.heads * form.head_size, form.hidden,
          {.init = Initializer::normal(form.output_std), .has_bias = form.has_bias}) {}

template <class T>
void Attention<T>::forward(const Context& context, View2<const T> x, View2<T> y,
                           Saved& saved) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const index_t rows = context.rows(), s = context.sequence();
  saved.x = x;
  saved.qkv = context.saved->matrix<T>(Category::attention, rows, qkv_.out_tp());
  saved.o =
      context.saved->matrix<T>(Category::attention, rows, heads_.heads * form_.head_size);
  saved.lse =
      context.saved->vector<Accumulator<T>>(Category::attention, rows * heads_.heads);
  qkv_.forward(context, x, saved.qkv);
  const Parts<const T> in = parts_of(context, as_const(saved.qkv));
  {
    const ArenaScope scope(context.scratch);
    View2<Accumulator<T>> bias;
    if (relative_bias_) bias = relative_bias_->forward(context, s, s, context.scratch);
    kernels::attention_forward<T>(context.exec, describe(context), context.step, in.q,
                                  in.k, in.v, heads_of(context, saved.o), saved.lse,
                                  as_const(bias));
  }
  projection_.forward(context, as_const(saved.o), y);
}

template <class T>
void Attention<T>::backward_heads(const Context& context, View2<const T> d_y,
                                  const Saved& saved, Held& held) const {
  const index_t rows = context.rows(), s = context.sequence();
  held.d_y = projection_.whole_output_gradient(context, d_y);
  held.d_qkv = context.held.matrix<T>(Category::gradient, rows, qkv_.out_tp());
  const ArenaScope scope(context.scratch);
  const kernels::AttentionDesc desc = describe(context);
  const auto d_o =
      context.scratch.matrix<T>(Category::gradient, rows, heads_.heads * form_.head_size);
  const auto scratch = context.scratch.vector<Accumulator<T>>(
      Category::attention, kernels::attention_backward_scratch_elements<T>(desc));
  View2<Accumulator<T>> bias;
  if (relative_bias_) {
    held.d_bias = relative_bias_->take_gradient(s, s, context.held);
    bias = relative_bias_->forward(context, s, s, context.scratch);
  }
  projection_.backward_input(context, held.d_y, d_o);
  const Parts<const T> in = parts_of(context, as_const(saved.qkv));
  const Parts<T> d_in = parts_of(context, held.d_qkv);
  kernels::attention_backward<T>(context.exec, desc, context.step, in.q, in.k, in.v,
                                 heads_of(context, as_const(saved.o)),
                                 as_const(saved.lse), heads_of(context, as_const(d_o)),
                                 scratch, d_in.q, d_in.k, d_in.v, as_const(bias),
                                 held.d_bias);
}

template <class T>
comm::Request Attention<T>::start_backward_input(const Context& context,
                                                 View2<const T> d_y, const Saved& saved,
                                                 View2<T> d_x, Held& held) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  backward_heads(context, d_y, saved, held);
  return qkv_.start_backward_input(context, as_const(held.d_qkv), d_x);
}

template <class T>
void Attention<T>::add_backward_input(const Context& context, View2<const T> d_y,
                                      const Saved& saved, View2<T> d_x,
                                      Held& held) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  backward_heads(context, d_y, saved, held);
  qkv_.add_backward_input(context, as_const(held.d_qkv), d_x);
}

template <class T>
View2<Accumulator<T>> Attention<T>::take_bias_sums(const Context& context,
                                                   Arena& memory) const {
  if (!qkv_.has_bias()) return {};
  return memory.matrix<Accumulator<T>>(
      Category::gradient, kernels::tiled_partial_count(context.rows(), qkv_.out_tp()),
      qkv_.out_tp());
}

template <class T>
void Attention<T>::backward_weight(const Context& context, const Saved& saved,
                                   const Held& held, View2<Accumulator<T>> qkv_bias,
                                   PartialGradients<T>& gradients) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const ArenaScope scope(context.scratch);
  GatheredRows<T> x = qkv_.start_weight_input(context, saved.x);  // beside the projection
  projection_.backward_weight(context, held.d_y, as_const(saved.o));
  qkv_.backward_weight(context, as_const(held.d_qkv), std::move(x));
  if (relative_bias_) {
    relative_bias_->backward_weight(context, as_const(held.d_bias), context.sequence());
  }
  if (!qkv_.has_bias()) return;
  kernels::sum_row_blocks<T>(context.exec, as_const(held.d_qkv), qkv_bias);
  qkv_.backward_bias(as_const(qkv_bias), gradients);
}

template <class T>
void Attention<T>::require_room(const Context& context,
                                const kernels::CachedTexts& texts) const {
  TRIREME_REQUIRE(texts.count == context.samples() && texts.longest >= context.sequence(),
                  "{} of {} for a cache of {} with {} of them",
                  format_plural(context.sequence(), "new position"),
                  format_plural(context.samples(), "text"),
                  format_plural(texts.count, "text"), texts.longest);
  TRIREME_REQUIRE(texts.longest <= texts.capacity,
                  "the key cache has room for {}, {} are in it, {} more come",
                  format_plural(texts.capacity, "position"),
                  texts.longest - context.sequence(), context.sequence());
}

template <class T>
void Attention<T>::forward_cached(const Context& context, View2<const T> x, View2<T> y,
                                  const KvCache<T>& cache) const {
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const ArenaScope scope(context.scratch);
  const kernels::CachedTexts& texts = cache.texts;
  require_room(context, texts);
  const index_t rows = context.rows(), d = form_.head_size;
  const auto qkv = context.scratch.matrix<T>(Category::attention, rows, qkv_.out_tp());
  const auto o = context.scratch.matrix<T>(Category::attention, rows, heads_.heads * d);
  qkv_.forward(context, x, qkv);
  kernels::append_to_cache<T>(context.exec, texts, as_const(qkv), heads_.heads * d,
                              cache.k, cache.v);
  View2<Accumulator<T>> bias;
  if (relative_bias_) {
    bias = relative_bias_->forward(context, context.sequence(), texts.longest,
                                   context.scratch);
  }
  attend_cached<T>(context, describe(context), as_const(qkv),
                   {texts, as_const(cache.k), as_const(cache.v), as_const(bias)}, o);
  projection_.forward(context, as_const(o), y);
}

template <class T>
bool Attention<T>::has_decode(const Context& context) const {
  const index_t widest = std::max(form_.hidden, heads_.heads * form_.head_size);
  return context.sequence() == 1 && !relative_bias_ &&
         kernels::has_decode_linear<T>(context.rows(), widest);
}

template <class T>
void Attention<T>::decode(const Context& context, const kernels::DecodeInput<T>& input,
                          View2<const T> residual, View2<T> y,
                          const KvCache<T>& cache) const {
  using Acc = Accumulator<T>;
  const ComponentRegion region(context.exec.timers(), Component::attention);
  const ArenaScope scope(context.scratch);
  const kernels::CachedTexts& texts = cache.texts;
  require_room(context, texts);
  const kernels::CachedHeads heads_of_one = cached_heads();
  kernels::DecodeOutput<T> qkv;
  qkv.y = context.scratch.matrix<T>(Category::attention, context.rows(),
                                    heads_.heads * form_.head_size);
  qkv.k = cache.k;
  qkv.v = cache.v;
  qkv.texts = texts;
  qkv_.decode(context, input, qkv);
  const auto tiles = context.scratch.vector<Acc>(
      Category::attention,
      kernels::decode_attention_scratch_elements(texts, heads_of_one));
  kernels::decode_attention_tiles<T>(context.exec, texts, heads_of_one, as_const(qkv.y),
                                     as_const(cache.k), as_const(cache.v), tiles);
  kernels::DecodeInput<T> attended;
  attended.tiles = tiles;
  attended.texts = texts;
  attended.heads = heads_of_one;
  projection_.decode(context, attended, residual, y);
}

template <class T>
void Attention<T>::add_to(kernels::DecodeLayer<T>& layer, const KvCache<T>& cache) const {
  layer.heads = cached_heads();
  layer.qkv = qkv_.weight();
  layer.qkv_bias = qkv_.bias();
  layer.projection = projection_.weight();
  layer.projection_bias = projection_.bias();
  layer.k = cache.k;
  layer.v = cache.v;
}

#define TRIREME_INSTANTIATE(T)                          \
  template decltype(attend_cached<T>) attend_cached<T>; \
  template class Attention<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
