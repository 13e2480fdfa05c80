// model/gpt_chunk.cpp — see gpt_chunk.hpp.
#include "model/gpt_chunk.hpp"

#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "config/capability.hpp"
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
  TRIREME_REQUIRE(context.sequence <= sequence, "samples of {}, the model has {}",
                  format_plural(context.sequence, "position"), sequence);
  const auto rows = static_cast<std::size_t>(context.rows());
  TRIREME_REQUIRE(batch.tokens.extent(0) == rows && batch.positions.extent(0) == rows &&
                      batch.labels.extent(0) == rows && batch.mask.extent(0) == rows,
                  "a micro-batch of {} of {} has {} of each of tokens, positions, labels "
                  "and mask; here {}, {}, {} and {}",
                  format_plural(context.sequence, "position"),
                  format_plural(context.batch, "sample"), rows, batch.tokens.extent(0),
                  batch.positions.extent(0), batch.labels.extent(0),
                  batch.mask.extent(0));
}

// Whoever reads decks refuses them before, by the same list.
void require_layers(const GptConfig& config) {
  const auto word = [](bool value) { return value ? "true" : "false"; };
  const std::pair<const char*, std::string_view> choices[] = {
      {"model.norm", name_of(config.norm)},
      {"model.activation", name_of(config.activation)},
      {"model.position", name_of(config.position)},
      {"model.bias", word(config.bias)},
      {"model.tie_embeddings", word(config.tie_embeddings)}};
  for (const auto& [key, value] : choices) {
    TRIREME_REQUIRE(config::is_trained(key, value),
                    "{}: {} needs layers that this version lacks", key, value);
  }
}

}  // namespace

template <class T>
GptChunk<T>::GptChunk(const nn::Builder<T>& builder, const GptConfig& config,
                      const ChunkRange& range)
    : config_(config), range_(range) {
  TRIREME_REQUIRE(range.begin >= 0 && range.begin <= range.end &&
                      range.end <= config.layers &&
                      (range.end > range.begin || range.is_first || range.is_last),
                  "a chunk of layers {} to {} of {}: outside of the model, or with "
                  "nothing in it",
                  range.begin, range.end, config.layers);
  require_layers(config);
  const bool has_embedding = range.is_first || range.is_last;
  embedding_unit_ = builder.registry.units().size();
  if (has_embedding) builder.registry.begin_unit("embedding");
  std::optional<nn::VocabParallelEmbedding<T>> word;
  if (range.is_first) {
    embedding_.emplace(builder, nn::EmbeddingConfig{.vocabulary = config.vocabulary,
                                                    .hidden = config.hidden,
                                                    .sequence = config.sequence,
                                                    .dropout = config.dropout,
                                                    .init_std = config.init_std,
                                                    .shares_word = !range.is_last});
    word = embedding_->word();
  } else if (range.is_last) {
    word.emplace(builder, "embedding/word", config.vocabulary, config.hidden,
                 config.init_std, Tie::copy);
  }
  first_layer_unit_ = builder.registry.units().size();
  embedding_units_ = first_layer_unit_ - embedding_unit_;
  for (index_t layer = range.begin; layer < range.end; ++layer) {
    builder.registry.begin_unit(fmt::format("layers/{}", layer));
    layers_.emplace_back(builder, transformer_config(config), layer);
  }
  if (range.is_last) {
    head_unit_ = builder.registry.begin_unit("head", embedding_unit_);
    head_.emplace(builder, config.hidden, *word);
  }
  set_slot_count(1);
}

template <class T>
void GptChunk<T>::set_slot_count(int slots) {
  slots_.resize(static_cast<std::size_t>(slots));
  for (Slot& slot : slots_) {
    slot.inputs.resize(layers_.size());
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
Boundary<T> GptChunk<T>::boundary(const nn::Context& context) const {
  Boundary<T> shapes;
  shapes.count = 1;
  shapes.tensors[0] = {"hidden", View2<T>(static_cast<T*>(nullptr),
                                          static_cast<std::size_t>(context.local_rows()),
                                          static_cast<std::size_t>(config_.hidden))};
  return shapes;
}

// The embedding has no gradient of its input: a backward pass reads none of it but what
// the head borrows.
template <class T>
PassUnits GptChunk<T>::weight_units(Pass pass) const {
  const bool has_embedding = pass == Pass::forward && range_.is_first;
  return {has_embedding ? embedding_unit_ : first_layer_unit_,
          first_layer_unit_ + layers_.size() + (range_.is_last ? 1 : 0), pass};
}

template <class T>
void GptChunk<T>::require_boundaries(const nn::Context& context, const Boundary<T>& in,
                                     const Boundary<T>& out) const {
  const auto require = [&](const Boundary<T>& tensors, bool is_end, const char* what) {
    const Boundary<T> shapes = boundary(context);
    const View2<T>& wanted = shapes.tensors[0].value;
    const View2<T>& given = tensors.tensors[0].value;
    TRIREME_REQUIRE(
        is_end ? tensors.count == 0
               : tensors.count == 1 && given.extent(0) == wanted.extent(0) &&
                     given.extent(1) == wanted.extent(1),
        "layers {} to {} of GPT: {} of {} x {} at the {}; {} wanted", range_.begin,
        range_.end, format_plural(tensors.count, "tensor"), given.extent(0),
        given.extent(1), what,
        is_end ? std::string("none is")
               : fmt::format("one of {} x {} is", wanted.extent(0), wanted.extent(1)));
  };
  require(in, range_.is_first, "input");
  require(out, range_.is_last, "output");
}

template <class T>
template <class Run>
void GptChunk<T>::use_embedding(const nn::Context& context, Pass pass,
                                const Run& run) const {
  ParamUse* const use = context.params;
  for (std::size_t i = 0; use != nullptr && i < embedding_units_; ++i) {
    use->begin(embedding_unit_ + i, pass);
  }
  run();
  for (std::size_t i = embedding_units_; use != nullptr && i-- > 0;) {
    use->end(embedding_unit_ + i, pass);
  }
}

template <class T>
template <class Run>
void GptChunk<T>::use_head(const nn::Context& context, Pass pass, const Run& run) const {
  ParamUseScope head(context.params, head_unit_, pass);
  run();
  head.end();
  // Its copy of the word embedding, with which nobody else here does anything.
  if (!range_.is_first && context.params != nullptr) {
    context.params->end(embedding_unit_, pass);
  }
}

template <class T>
void GptChunk<T>::forward(const nn::Context& context, int slot_number, const Batch& batch,
                          const Boundary<T>& in, const Boundary<T>& out,
                          View1<double> totals) {
  require_fit(context, batch, config_.sequence);
  require_boundaries(context, in, out);
  Slot& slot = slot_at(slot_number);
  const index_t rows = context.local_rows();
  // Where part i of the chunk writes: the last one what goes out.
  const auto output = [&](bool is_last_part) {
    return is_last_part && !range_.is_last
               ? out.tensors[0].value
               : context.saved.matrix<T>(Category::hidden, rows, config_.hidden);
  };
  if (range_.is_first) {
    const View2<T> embedded = output(layers_.empty());
    use_embedding(context, Pass::forward, [&] {
      embedding_->forward(context, batch.tokens, batch.positions, embedded);
    });
    slot.input = embedded;
  } else {
    slot.input = in.tensors[0].value;
  }
  View2<const T> x = slot.input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const View2<T> y = output(i + 1 == layers_.size());
    ParamUseScope layer(context.params, first_layer_unit_ + i, Pass::forward);
    slot.inputs[i] = x;
    if (is_recomputed(context, i)) {
      const ArenaScope thrown_away(context.held);
      layers_[i].forward(context.saving_in(context.held), x, y, slot.layers[i]);
    } else {
      layers_[i].forward(context, x, y, slot.layers[i]);
    }
    layer.end();
    x = y;
  }
  if (!range_.is_last) return;
  use_head(context, Pass::forward, [&] {
    head_->forward(context, x, batch.labels, batch.mask, totals, slot.head);
  });
}

// What a layer saves, with what is held until its weight gradients are taken.
template <class T>
void GptChunk<T>::recompute(const nn::Context& context, Slot& slot, std::size_t i) const {
  const ArenaScope scope(context.scratch);
  const auto y =
      context.scratch.matrix<T>(Category::hidden, context.local_rows(), config_.hidden);
  layers_[i].forward(context.saving_in(context.held), slot.inputs[i], y, slot.layers[i]);
}

template <class T>
void GptChunk<T>::backward(const nn::Context& context, int slot_number,
                           const Batch& batch, const Boundary<T>& d_out,
                           const Boundary<T>& d_in, WeightPass weight_pass) {
  require_boundaries(context, d_in, d_out);
  Slot& slot = slot_at(slot_number);
  const index_t rows = context.local_rows();
  const bool now = weight_pass == WeightPass::now;
  const Pass pass = now ? Pass::backward : Pass::backward_input;
  const ArenaScope scope(context.scratch);
  auto free = context.scratch.matrix<T>(Category::gradient, rows, config_.hidden);
  auto other = context.scratch.matrix<T>(Category::gradient, rows, config_.hidden);
  // Where a part writes the gradient of its input: the first one what goes out.
  const auto gradient = [&](bool is_first_part) {
    return is_first_part && !range_.is_first ? d_in.tensors[0].value : free;
  };

  // Weight gradients together with the input gradients of the same part: what they need
  // from each other is then held for one layer at a time.
  const std::size_t mark = context.held.used();
  View2<const T> d_y;
  if (range_.is_last) {
    const View2<T> d_x = gradient(layers_.empty());
    use_head(context, pass, [&] {
      head_->backward_input(context, batch.labels, batch.mask, slot.head, d_x,
                            slot.head_held, weight_pass);
    });
    if (now) context.held.release_to(mark);
    d_y = d_x;
    std::swap(free, other);
  } else {
    d_y = d_out.tensors[0].value;
  }
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const View2<T> d_x = gradient(i == 0);
    ParamUseScope layer(context.params, first_layer_unit_ + i, pass);
    if (is_recomputed(context, i)) recompute(context, slot, i);
    layers_[i].backward_input(context, d_y, slot.layers[i], d_x, slot.layers_held[i],
                              weight_pass);
    layer.end();
    if (now) context.held.release_to(mark);
    d_y = d_x;
    std::swap(free, other);
  }
  if (!range_.is_first) return;
  if (now) {
    use_embedding(context, Pass::backward_weight, [&] {
      embedding_->backward_weight(context, batch.tokens, batch.positions, d_y);
    });
  } else {
    slot.d_embedded = context.held.matrix<T>(Category::gradient, rows, config_.hidden);
    copy(context.exec, slot.d_embedded, d_y);
  }
}

template <class T>
void GptChunk<T>::backward_weight(const nn::Context& context, int slot_number,
                                  const Batch& batch) {
  Slot& slot = slot_at(slot_number);
  if (range_.is_last) {
    use_head(context, Pass::backward_weight,
             [&] { head_->backward_weight(context, slot.head, slot.head_held); });
  }
  for (std::size_t i = layers_.size(); i-- > 0;) {
    ParamUseScope layer(context.params, first_layer_unit_ + i, Pass::backward_weight);
    layers_[i].backward_weight(context, slot.layers[i], slot.layers_held[i]);
    layer.end();
  }
  if (range_.is_first) {
    use_embedding(context, Pass::backward_weight, [&] {
      embedding_->backward_weight(context, batch.tokens, batch.positions,
                                  nn::as_const(slot.d_embedded));
    });
  }
  context.held.reset();
}

template <class T>
void GptChunk<T>::decode(const nn::Context& context, View1<const std::int32_t> tokens,
                         View1<const std::int32_t> positions, DecodeState<T>& state,
                         View2<T> logits) const {
  TRIREME_REQUIRE(range_.is_first && range_.is_last,
                  "text is generated by whole models, not by chunks of a pipeline");
  TRIREME_REQUIRE(!context.sequence_parallel,
                  "generation is not split along the sequence: its calls are short");
  const ArenaScope scope(context.scratch);
  auto x = context.scratch.matrix<T>(Category::hidden, context.rows(), config_.hidden);
  auto y = context.scratch.matrix<T>(Category::hidden, context.rows(), config_.hidden);
  use_embedding(context, Pass::forward,
                [&] { embedding_->forward(context, tokens, positions, x); });
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
  use_head(context, Pass::forward, [&] {
    head_->logits(context, View2<const T>(last, logits.extent(0), x.extent(1)), logits);
  });
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
  if (is_bad(slot.input)) {
    // What the chunk before it did not find in its own saved tensors.
    if (range_.is_first) return "embedding";
    const std::string before = fmt::format("layers/{}", range_.begin - 1);
    return context.recompute.layers > 0 ? before : before + "/mlp/fc2";
  }
  for (std::size_t i = 0; i < slot.layers.size(); ++i) {
    const auto& saved = slot.layers[i];
    const std::string name =
        fmt::format("layers/{}", static_cast<std::size_t>(range_.begin) + i);
    const bool is_output = i + 1 == slot.layers.size();
    const bool hands_on = is_output && !range_.is_last;  // to the next chunk, which looks
    const View2<const T> next = hands_on    ? View2<const T>()
                                : is_output ? slot.head.norm.x
                                            : slot.inputs[i + 1];
    if (is_recomputed(context, i)) {  // nothing else was kept
      if (!hands_on && is_bad(next)) return name;
      continue;
    }
    // Norms that were not kept are named with what comes after them.
    const bool has_norms = !context.recompute.selective;
    if (has_norms && is_bad(saved.attention.x)) return name + "/input_norm";
    if (is_bad(saved.attention.qkv)) {
      return name + (has_norms ? "/attention/qkv" : "/input_norm or attention/qkv");
    }
    if (is_bad(saved.attention.o)) return name + "/attention";
    if (is_bad(saved.mlp_norm.x)) return name + "/attention/projection";
    if (has_norms && is_bad(saved.mlp.x)) return name + "/mlp_norm";
    if (is_bad(saved.mlp.pre_activation) || (has_norms && is_bad(saved.mlp.activation))) {
      // The bias comes with the activation.
      return name + (has_norms ? "/mlp/fc1" : "/mlp_norm or mlp/fc1");
    }
    if (!hands_on && is_bad(next)) return name + "/mlp/fc2";
  }
  if (!range_.is_last) return {};
  if (is_bad(slot.head.normed)) return "final_norm";
  return is_bad(slot.head.logits) ? "logits" : "";
}

template <class T>
View2<T> GptChunk<T>::saved_logits(int slot) const {
  return slots_.at(static_cast<std::size_t>(slot)).head.logits;
}

#define TRIREME_INSTANTIATE(T) template class GptChunk<T>;
TRIREME_FOR_EACH_MODEL_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
