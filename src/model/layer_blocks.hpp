// model/layer_blocks.hpp — nn's layers as blocks: Transformer layers with their norms
// before or behind, and a norm by itself. The form is the maker's, who knows the kind of
// model.
#ifndef TRIREME_MODEL_LAYER_BLOCKS_HPP_
#define TRIREME_MODEL_LAYER_BLOCKS_HPP_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/timers.hpp"
#include "base/types.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/decode_layers.hpp"
#include "kernels/dropout.hpp"
#include "model/block.hpp"
#include "nn/dropout.hpp"
#include "nn/layer_form.hpp"
#include "nn/norm.hpp"
#include "nn/post_norm_layer.hpp"
#include "nn/relative_bias.hpp"
#include "nn/transformer_layer.hpp"
#include "tensor/arena.hpp"

namespace trireme::model {

// Reads the residual stream, and with cross attention behind it the encoder's output.
template <class T>
class LayerBlock final : public Block<T> {
 public:
  LayerBlock(const Making<T>& making, const nn::LayerForm& form,
             std::optional<nn::RelativeBias<T>> relative_bias = {})
      : name_(making.spec().name),
        has_cross_(form.cross.has_value()),
        to_memory_(has_cross_ ? accumulate_of(making, 1) : kernels::Accumulate::no),
        layer_(begin_unit_of_block(making), form, std::move(relative_bias)) {}

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>& out) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    layer_.forward(context, in[0], out[0], slots_.at(extent(slot)).saved,
                   has_cross_ ? nn::as_const(in[1]) : View2<const T>());
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    Slot& of = slots_.at(extent(slot));
    nn::MemoryGradient<T> d_memory;
    if (has_cross_) d_memory = {d_in[1], to_memory_};
    layer_.backward_input(context, d_out[0], of.saved, d_in[0], of.held, weight_pass,
                          of.before, d_memory);
    of.before = {};
  }
  nn::BranchGradient<T> leave_branch_gradient(const nn::Context& context, int slot,
                                              WeightPass weight_pass,
                                              Arena& memory) override {
    return layer_.leave_branch_gradient(context, slots_.at(extent(slot)).held,
                                        weight_pass, memory);
  }
  bool makes_branch_gradients() const override { return true; }
  void make_branch_gradient(int slot, const nn::BranchGradient<T>& before) override {
    slots_.at(extent(slot)).before = before;
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    const Slot& of = slots_.at(extent(slot));
    layer_.backward_weight(context, of.saved, of.held);
  }
  void decode(const nn::Context& context, nn::KvCache<T>* cache, const Tensors<T>& in,
              const Tensors<T>& out) const override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    layer_.forward_cached(context, in[0], out[0], *cache);
  }
  void begin_text(const nn::Context& context, nn::KvCache<T>& cache,
                  const Tensors<T>& in) const override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    layer_.begin_text(context, nn::as_const(in[1]), cache);
  }
  std::optional<kernels::DecodeLayer<T>> decode_layer(
      const nn::KvCache<T>& cache) const override {
    return layer_.decode_layer(cache);
  }
  index_t cache_columns() const override { return layer_.kv_columns(); }
  index_t source_columns() const override { return layer_.source_columns(); }
  bool can_draw() const override { return !has_cross_; }

  std::string locate_non_finite(const nn::Context& context, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = slots_.at(extent(slot)).saved;
    // Norms that were not kept are named with what comes after them.
    const bool has_norms = !context.recompute.selective;
    const auto behind = [&](const char* norm, const char* part) {
      return name_ + (has_norms ? fmt::format("/{}", part)
                                : fmt::format("/{} or {}", norm, part));
    };
    if (has_norms && check.is_bad(saved.attention.x)) return name_ + "/input_norm";
    if (check.is_bad(saved.attention.qkv)) return behind("input_norm", "attention/qkv");
    if (check.is_bad(saved.attention.o)) return name_ + "/attention";
    if (has_cross_) {
      if (check.is_bad(saved.cross_norm.x)) return name_ + "/attention/projection";
      if (has_norms && check.is_bad(saved.cross.x)) return name_ + "/cross_norm";
      if (check.is_bad(saved.cross.q)) return behind("cross_norm", "cross/q");
      if (check.is_bad(saved.cross.kv)) return name_ + "/cross/kv";
      if (check.is_bad(saved.cross.o)) return name_ + "/cross";
    }
    if (check.is_bad(saved.mlp_norm.x)) {
      return name_ + (has_cross_ ? "/cross/projection" : "/attention/projection");
    }
    if (has_norms && check.is_bad(saved.mlp.x)) return name_ + "/mlp_norm";
    // The bias comes with the activation.
    if (check.is_bad(saved.mlp.pre_activation) ||
        (has_norms && check.is_bad(saved.mlp.activation))) {
      return behind("mlp_norm", "mlp/fc1");
    }
    return {};
  }

 private:
  struct Slot {
    typename nn::TransformerLayer<T>::Saved saved;
    typename nn::TransformerLayer<T>::Held held;
    nn::BranchGradient<T> before;  // what the next backward_input() makes, too
  };

  std::string name_;
  bool has_cross_;
  kernels::Accumulate to_memory_;
  nn::TransformerLayer<T> layer_;
  std::vector<Slot> slots_;
};

template <class T>
class PostNormLayerBlock final : public Block<T> {
 public:
  PostNormLayerBlock(const Making<T>& making, const nn::LayerForm& form)
      : name_(making.spec().name), layer_(begin_unit_of_block(making), form) {}

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>& out) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    layer_.forward(context, in[0], out[0], slots_.at(extent(slot)).saved);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    Slot& of = slots_.at(extent(slot));
    layer_.backward_input(context, d_out[0], of.saved, d_in[0], of.held, weight_pass);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    const Slot& of = slots_.at(extent(slot));
    layer_.backward_weight(context, of.saved, of.held);
  }

  std::string locate_non_finite(const nn::Context& context, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = slots_.at(extent(slot)).saved;
    const bool has_norms = !context.recompute.selective;
    if (check.is_bad(saved.attention.qkv)) return name_ + "/attention/qkv";
    if (check.is_bad(saved.attention.o)) return name_ + "/attention";
    if (check.is_bad(saved.attention_norm.x)) return name_ + "/attention/projection";
    if (has_norms && check.is_bad(saved.mlp.x)) return name_ + "/attention_norm";
    if (check.is_bad(saved.mlp.pre_activation) ||
        (has_norms && check.is_bad(saved.mlp.activation))) {
      return name_ + (has_norms ? "/mlp/fc1" : "/attention_norm or mlp/fc1");
    }
    return check.is_bad(saved.mlp_norm.x) ? name_ + "/mlp/fc2" : "";
  }

 private:
  struct Slot {
    typename nn::PostNormLayer<T>::Saved saved;
    typename nn::PostNormLayer<T>::Held held;
  };

  std::string name_;
  nn::PostNormLayer<T> layer_;
  std::vector<Slot> slots_;
};

// A norm where a stack of layers ends, and dropout behind it.
template <class T>
class NormBlock final : public Block<T> {
 public:
  NormBlock(const Making<T>& making, const nn::NormForm& form, double dropout = 0.0,
            std::uint16_t layer = 0)
      : dropout_(dropout),
        layer_(layer),
        norm_(begin_unit_of_block(making), making.spec().name, columns_of(making), form) {
  }

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>& out) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    norm_.forward(context, in[0], out[0], slots_.at(extent(slot)).saved);
    nn::drop_rows(context, dropout(context), out[0]);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    Slot& of = slots_.at(extent(slot));
    const ArenaScope scope(context.scratch);
    View2<const T> d_y = d_out[0];
    const kernels::DropoutDesc desc = dropout(context);
    if (desc.probability > 0.0) {
      const auto masked = context.scratch.matrix<T>(
          Category::gradient, context.local_rows(), static_cast<index_t>(d_y.extent(1)));
      kernels::dropout_backward<T>(context.exec, desc, context.step, d_y, masked);
      d_y = masked;
    }
    of.sums = norm_.backward(context, d_y, of.saved, {}, d_in[0]);
    if (weight_pass == WeightPass::now) backward_weight(context, slot);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::norms);
    nn::PartialGradients<T> gradients;
    norm_.backward_weight(slots_.at(extent(slot)).sums, gradients);
    gradients.add_all(context.exec);
  }
  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>&,
                                int) const override {
    return {};  // what it makes is looked at by the chunk
  }

 private:
  struct Slot {
    typename nn::Norm<T>::Saved saved;
    typename nn::Norm<T>::Partials sums;
  };
  static index_t columns_of(const Making<T>& making) {
    const BlockSpec& spec = making.spec();
    return std::ranges::find(spec.border, spec.makes.at(0), &BorderTensor::name)->columns;
  }
  kernels::DropoutDesc dropout(const nn::Context& context) const {
    return nn::dropout_of(context, dropout_, layer_, random::Site::embedding);
  }

  double dropout_;
  std::uint16_t layer_;  // coordinate of dropout
  nn::Norm<T> norm_;
  std::vector<Slot> slots_;
};

}  // namespace trireme::model

#endif  // TRIREME_MODEL_LAYER_BLOCKS_HPP_
