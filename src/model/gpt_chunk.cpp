// model/gpt_chunk.cpp — see gpt_chunk.hpp.
#include "model/gpt_chunk.hpp"

#include <utility>

#include "base/error.hpp"
#include "kernels/initialize.hpp"
#include "kernels/reductions.hpp"

namespace trireme::model {

namespace {

nn::TransformerConfig transformer_config(const GptConfig& config) {
  return {.layers = config.layers,
          .hidden = config.hidden,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .ffn_hidden = config.ffn_hidden,
          .sequence = config.sequence,
          .dropout = config.dropout,
          .attention_dropout = config.attention_dropout,
          .init_std = config.init_std};
}

void require_fit(const nn::Context& context, const Batch& batch, index_t sequence) {
  TRIREME_REQUIRE(context.sequence <= sequence,
                  "samples of {} positions, the model has {}", context.sequence,
                  sequence);
  const auto rows = static_cast<std::size_t>(context.rows());
  TRIREME_REQUIRE(batch.tokens.extent(0) == rows && batch.positions.extent(0) == rows &&
                      batch.labels.extent(0) == rows && batch.mask.extent(0) == rows,
                  "a micro-batch of {} positions of {} samples has {} of each of tokens, "
                  "positions, labels and mask; here {}, {}, {} and {}",
                  context.sequence, context.batch, rows, batch.tokens.extent(0),
                  batch.positions.extent(0), batch.labels.extent(0),
                  batch.mask.extent(0));
}

}  // namespace

template <class T>
GptChunk<T>::GptChunk(const nn::Builder<T>& builder, const GptConfig& config,
                      const ChunkRange& range)
    : config_(config), range_(range) {
  TRIREME_REQUIRE(range.is_first && range.is_last,
                  "a GPT in several chunks needs the pipeline, which this version lacks");
  TRIREME_REQUIRE(config.is_gpt2(),
                  "a GPT with another norm, activation, position encoding, bias or head "
                  "than GPT-2 needs layers that this version lacks");
  embedding_unit_ = builder.registry.begin_unit("embedding");
  embedding_.emplace(builder, nn::EmbeddingConfig{.vocabulary = config.vocabulary,
                                                  .hidden = config.hidden,
                                                  .sequence = config.sequence,
                                                  .dropout = config.dropout,
                                                  .init_std = config.init_std});
  for (index_t layer = range.begin; layer < range.end; ++layer) {
    const auto unit = builder.registry.begin_unit(fmt::format("layers/{}", layer));
    if (layer == range.begin) first_layer_unit_ = unit;
    layers_.emplace_back(builder, transformer_config(config), layer);
  }
  head_unit_ = builder.registry.begin_unit("head", embedding_unit_);
  head_.emplace(builder, config.hidden, embedding_->word());
  set_slot_count(1);
}

template <class T>
void GptChunk<T>::set_slot_count(int slots) {
  slots_.resize(static_cast<std::size_t>(slots));
  for (Slot& slot : slots_) {
    slot.layers.resize(layers_.size());
    slot.layers_held.resize(layers_.size());
  }
}

template <class T>
typename GptChunk<T>::Slot& GptChunk<T>::slot_at(int slot) {
  TRIREME_REQUIRE(slot >= 0 && slot < std::ssize(slots_),
                  "slot {} of {}: set_slot_count says how many there are", slot,
                  slots_.size());
  return slots_[static_cast<std::size_t>(slot)];
}

template <class T>
void GptChunk<T>::forward(const nn::Context& context, int slot_number, const Batch& batch,
                          const Boundary<T>&, Boundary<T>& out, View1<double> totals) {
  require_fit(context, batch, config_.sequence);
  Slot& slot = slot_at(slot_number);
  const index_t rows = context.local_rows();
  slot.embedded = context.saved.matrix<T>(Category::hidden, rows, config_.hidden);
  ParamUseScope embedding(context.params, embedding_unit_, Pass::forward);
  embedding_->forward(context, batch.tokens, batch.positions, slot.embedded);
  embedding.end();
  View2<const T> x = slot.embedded;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto y = context.saved.matrix<T>(Category::hidden, rows, config_.hidden);
    ParamUseScope layer(context.params, first_layer_unit_ + i, Pass::forward);
    layers_[i].forward(context, x, y, slot.layers[i]);
    layer.end();
    x = y;
  }
  ParamUseScope head(context.params, head_unit_, Pass::forward);
  head_->forward(context, x, batch.labels, batch.mask, totals, slot.head);
  head.end();
  out.count = 0;
}

template <class T>
void GptChunk<T>::backward(const nn::Context& context, int slot_number,
                           const Batch& batch, const Boundary<T>&, const Boundary<T>&,
                           WeightPass weight_pass) {
  Slot& slot = slot_at(slot_number);
  const index_t rows = context.local_rows();
  const bool now = weight_pass == WeightPass::now;
  const ArenaScope scope(context.scratch);
  auto d_y = context.scratch.matrix<T>(Category::gradient, rows, config_.hidden);
  auto d_x = context.scratch.matrix<T>(Category::gradient, rows, config_.hidden);

  // Weight gradients together with the input gradients of the same part: what they need
  // from each other is then held for one layer at a time.
  const std::size_t mark = context.held.used();
  ParamUseScope head(context.params, head_unit_, Pass::backward);
  head_->backward_input(context, batch.labels, batch.mask, slot.head, d_y, slot.head_held,
                        weight_pass);
  if (now) {
    context.held.release_to(mark);
    head.end();
  }
  for (std::size_t i = layers_.size(); i-- > 0;) {
    ParamUseScope layer(context.params, first_layer_unit_ + i, Pass::backward);
    layers_[i].backward_input(context, nn::as_const(d_y), slot.layers[i], d_x,
                              slot.layers_held[i], weight_pass);
    if (now) {
      context.held.release_to(mark);
      layer.end();
    }
    std::swap(d_x, d_y);
  }
  if (now) {
    ParamUseScope embedding(context.params, embedding_unit_, Pass::backward);
    embedding_->backward_weight(context, batch.tokens, batch.positions,
                                nn::as_const(d_y));
    embedding.end();
  } else {
    slot.d_embedded = context.held.matrix<T>(Category::gradient, rows, config_.hidden);
    copy(context.exec, slot.d_embedded, d_y);
  }
}

template <class T>
void GptChunk<T>::backward_weight(const nn::Context& context, int slot_number,
                                  const Batch& batch) {
  Slot& slot = slot_at(slot_number);
  const auto done = [&](std::size_t unit) {
    if (context.params != nullptr) context.params->end(unit, Pass::backward);
  };
  head_->backward_weight(context, slot.head, slot.head_held);
  done(head_unit_);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layers_[i].backward_weight(context, slot.layers[i], slot.layers_held[i]);
    done(first_layer_unit_ + i);
  }
  ParamUseScope embedding(context.params, embedding_unit_, Pass::backward);
  embedding_->backward_weight(context, batch.tokens, batch.positions,
                              nn::as_const(slot.d_embedded));
  embedding.end();
  context.held.reset();
}

template <class T>
void GptChunk<T>::decode(const nn::Context& context, View1<const std::int32_t> tokens,
                         View1<const std::int32_t> positions, DecodeState<T>& state,
                         View2<T> logits) const {
  TRIREME_REQUIRE(!context.sequence_parallel,
                  "generation is not split along the sequence: its calls are short");
  const ArenaScope scope(context.scratch);
  auto x = context.scratch.matrix<T>(Category::hidden, context.rows(), config_.hidden);
  auto y = context.scratch.matrix<T>(Category::hidden, context.rows(), config_.hidden);
  ParamUseScope embedding(context.params, embedding_unit_, Pass::forward);
  embedding_->forward(context, tokens, positions, x);
  embedding.end();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    ParamUseScope layer(context.params, first_layer_unit_ + i, Pass::forward);
    layers_[i].forward_cached(context, nn::as_const(x), y, state.layers.at(i));
    layer.end();
    std::swap(x, y);
  }
  const auto wanted = static_cast<index_t>(logits.extent(0));
  if (wanted == 0) return;
  // No View of memory that is not there: a shape-only pass has a null x.
  const T* last = x.data() == nullptr
                      ? nullptr
                      : x.data() + (context.rows() - wanted) * config_.hidden;
  ParamUseScope head(context.params, head_unit_, Pass::forward);
  head_->logits(context, View2<const T>(last, logits.extent(0), x.extent(1)), logits);
  head.end();
}

template <class T>
index_t GptChunk<T>::cache_columns() const {
  return layers_.empty() ? 0 : layers_.front().kv_columns();
}

template <class T>
std::string GptChunk<T>::locate_non_finite(const nn::Context& context,
                                           int slot_number) const {
  const Slot& slot = slots_.at(static_cast<std::size_t>(slot_number));
  const DeviceArray<std::int64_t> count("non-finite values", 1);
  const auto is_bad = [&](const auto& view) {
    const View1<const T> flat(view.data(), view.size());
    kernels::fill(context.exec, View1<std::int64_t>(count), std::int64_t{0});
    kernels::count_non_finite<T>(context.exec, flat, View0<std::int64_t>(count.data()));
    const auto host = Kokkos::create_mirror_view(count);
    Kokkos::deep_copy(context.exec.space(), host, count);
    context.exec.fence("locate_non_finite");
    return host(0) > 0;
  };
  if (is_bad(slot.embedded)) return "embedding";
  for (std::size_t i = 0; i < slot.layers.size(); ++i) {
    const auto& saved = slot.layers[i];
    const std::string name =
        fmt::format("layers/{}", static_cast<std::size_t>(range_.begin) + i);
    if (is_bad(saved.attention.x)) return name + "/input_norm";
    if (is_bad(saved.attention.qkv)) return name + "/attention/qkv";
    if (is_bad(saved.attention.o)) return name + "/attention";
    if (is_bad(saved.mlp_norm.x)) return name + "/attention/projection";
    if (is_bad(saved.mlp.x)) return name + "/mlp_norm";
    if (is_bad(saved.mlp.pre_activation) || is_bad(saved.mlp.activation)) {
      return name + "/mlp/fc1";  // whose bias comes with the activation
    }
    if (is_bad(i + 1 < slot.layers.size() ? slot.layers[i + 1].input_norm.x
                                          : slot.head.norm.x)) {
      return name + "/mlp/fc2";
    }
  }
  if (is_bad(slot.head.normed)) return "final_norm";
  return is_bad(slot.head.logits) ? "logits" : "";
}

template <class T>
View2<T> GptChunk<T>::saved_logits(int slot) const {
  return slots_.at(static_cast<std::size_t>(slot)).head.logits;
}

#define TRIREME_INSTANTIATE(T) template class GptChunk<T>;
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
