// model/blocks.cpp — the blocks that models are made of: embedding, Transformer layer and
// language-model head, each a layer of nn with a slot for every micro-batch in flight.
//
// A block adapts: it takes its fields out of the micro-batch, its tensors out of the
// borders' lists, and knows what nn's layer has saved. What is computed stands in nn.
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/timers.hpp"
#include "base/types.hpp"
#include "config/capability.hpp"
#include "kernels/step_state.hpp"
#include "model/block.hpp"
#include "nn/lm_head.hpp"
#include "nn/transformer_layer.hpp"
#include "tensor/arena.hpp"

namespace trireme::model {

namespace {

template <class T>
class EmbeddingBlock final : public Block<T> {
 public:
  explicit EmbeddingBlock(const Making<T>& making)
      : tokens_(making.blueprint.batch.field("tokens")),
        embedding_(begin_unit(making), making.blueprint.architecture, making.words()) {}

  void set_slot_count(int slots) override { d_out_.resize(extent(slots)); }

  void forward(const nn::Context& context, int, const Tensors<T>&,
               const Tensors<T>& out) override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    embed(context, out[0]);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>&, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    View2<T>& kept = d_out_.at(extent(slot));
    kept = d_out[0];
    if (weight_pass == WeightPass::now) {
      backward_weight(context, slot);
      return;
    }
    kept = context.held.matrix<T>(Category::gradient, context.local_rows(),
                                  static_cast<index_t>(kept.extent(1)));
    copy(context.exec, kept, d_out[0]);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    embedding_.backward_weight(context, context.ids(tokens_),
                               context.positions(context.stream),
                               nn::as_const(d_out_.at(extent(slot))));
  }
  void decode(const nn::Context& context, nn::KvCache<T>*, const Tensors<T>&,
              const Tensors<T>& out) const override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    embed(context, out[0]);
  }
  bool can_draw() const override { return true; }
  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>&,
                                int) const override {
    return {};  // it saves nothing
  }

 private:
  // The positions are in the table's unit, which is the registry's last for the table's
  // owner alone. Where other stages use the table as well it is cut alike everywhere, so
  // alone in its unit, and the positions begin another.
  static const nn::Builder<T>& begin_unit(const Making<T>& making) {
    const Blueprint& blueprint = making.blueprint;
    const std::size_t owner =
        blueprint.users(blueprint.table(making.spec().table)).front();
    TRIREME_REQUIRE(owner == making.block,
                    "block '{}' embeds words by table '{}', which is block '{}'s: an "
                    "embedding with positions must own its table",
                    making.spec().name, making.spec().table,
                    blueprint.blocks[owner].name);
    const bool is_shared = making.table().weight.spec().tie != Tie::none;
    if (is_shared) making.builder.registry.begin_unit("position");
    return making.builder;
  }
  void embed(const nn::Context& context, const View2<T>& out) const {
    embedding_.forward(context, context.ids(tokens_), context.positions(context.stream),
                       out);
  }

  std::size_t tokens_;  // field
  nn::Embedding<T> embedding_;
  std::vector<View2<T>> d_out_;  // of each slot, for the weight pass
};

template <class T>
class LayerBlock final : public Block<T> {
 public:
  explicit LayerBlock(const Making<T>& making)
      : name_(making.spec().name),
        layer_(begin_unit(making), making.blueprint.architecture, making.spec().number) {}

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
    layer_.backward_input(context, d_out[0], of.saved, d_in[0], of.held, weight_pass,
                          of.before);
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
  index_t cache_columns() const override { return layer_.kv_columns(); }
  bool can_draw() const override { return true; }

  std::string locate_non_finite(const nn::Context& context, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = slots_.at(extent(slot)).saved;
    // Norms that were not kept are named with what comes after them.
    const bool has_norms = !context.recompute.selective;
    if (has_norms && check.is_bad(saved.attention.x)) return name_ + "/input_norm";
    if (check.is_bad(saved.attention.qkv)) {
      return name_ + (has_norms ? "/attention/qkv" : "/input_norm or attention/qkv");
    }
    if (check.is_bad(saved.attention.o)) return name_ + "/attention";
    if (check.is_bad(saved.mlp_norm.x)) return name_ + "/attention/projection";
    if (has_norms && check.is_bad(saved.mlp.x)) return name_ + "/mlp_norm";
    // The bias comes with the activation.
    if (check.is_bad(saved.mlp.pre_activation) ||
        (has_norms && check.is_bad(saved.mlp.activation))) {
      return name_ + (has_norms ? "/mlp/fc1" : "/mlp_norm or mlp/fc1");
    }
    return {};
  }

 private:
  struct Slot {
    typename nn::TransformerLayer<T>::Saved saved;
    typename nn::TransformerLayer<T>::Held held;
    nn::BranchGradient<T> before;  // what the next backward_input() makes, too
  };
  static const nn::Builder<T>& begin_unit(const Making<T>& making) {
    making.builder.registry.begin_unit(making.spec().name);
    return making.builder;
  }

  std::string name_;
  nn::TransformerLayer<T> layer_;
  std::vector<Slot> slots_;
};

template <class T>
class HeadBlock final : public Block<T> {
 public:
  explicit HeadBlock(const Making<T>& making)
      : objective_(making.objective()),
        labels_(field(making, &Objective::labels)),
        mask_(field(making, &Objective::mask)),
        head_(begin_unit(making), making.blueprint.architecture.hidden, making.words(),
              objective_) {
    TRIREME_REQUIRE(making.spec().gradients_in_forward,
                    "block '{}' takes its gradients in the forward pass, and its "
                    "blueprint does not say so",
                    making.spec().name);
  }

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.forward(context, in[0], context.ids(labels_), context.weights(mask_),
                  context.totals_of(objective_.index), slots_.at(extent(slot)));
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>&,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.backward_input(context, slots_.at(extent(slot)), d_in[0], weight_pass);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.backward_weight(context, slots_.at(extent(slot)));
  }
  void decode(const nn::Context& context, nn::KvCache<T>*, const Tensors<T>& in,
              const Tensors<T>& out) const override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    const auto rows = static_cast<index_t>(in[0].extent(0));
    const auto wanted = static_cast<index_t>(out[0].extent(0));
    const auto columns = static_cast<index_t>(in[0].extent(1));
    // A shape-only pass has a null input, and no address is computed from null.
    const T* const last =
        in[0].data() == nullptr ? nullptr : in[0].data() + (rows - wanted) * columns;
    head_.logits(context, View2<const T>(last, out[0].extent(0), in[0].extent(1)),
                 out[0]);
  }
  index_t logit_columns() const override { return head_.vocabulary_tp(); }
  bool can_draw() const override { return true; }
  View2<T> logits_again(const nn::Context& context, int slot,
                        const View2<T>& memory) const override {
    return head_.logits_again(context, slots_.at(extent(slot)), memory);
  }
  // A row of logits that has NaN or plus infinity has a loss that is not finite. Minus
  // infinity is the probability zero, and no fault unless the label has it.
  std::string locate_non_finite(const nn::Context& context, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = slots_.at(extent(slot));
    if (check.is_bad(saved.words.x)) return "final_norm";
    const FiniteCheck<Accumulator<T>> check_losses(context.exec);
    return check_losses.is_bad(saved.words.loss) ? "logits" : "";
  }

 private:
  static const nn::Builder<T>& begin_unit(const Making<T>& making) {
    making.builder.registry.begin_unit(making.spec().name, making.table().unit);
    return making.builder;
  }

  std::size_t field(const Making<T>& making, std::string Objective::*name) const {
    const Blueprint& blueprint = making.blueprint;
    return blueprint.batch.field(blueprint.objectives[extent(objective_.index)].*name);
  }

  kernels::ObjectiveScale objective_;
  std::size_t labels_, mask_;  // fields
  nn::LmHead<T> head_;
  std::vector<typename nn::LmHead<T>::Saved> slots_;
};

// Whoever reads decks refuses them before, by the same list. A blueprint may have them: a
// dry run tells of it what needs no layers.
void require_layers(const Architecture& architecture) {
  const auto word = [](bool value) { return value ? "true" : "false"; };
  const std::pair<const char*, std::string_view> choices[] = {
      {"model.norm", name_of(architecture.norm)},
      {"model.activation", name_of(architecture.activation)},
      {"model.position", name_of(architecture.position)},
      {"model.bias", word(architecture.bias)},
      {"model.tie_embeddings", word(architecture.tie_embeddings)}};
  for (const auto& [key, value] : choices) {
    TRIREME_REQUIRE(config::is_trained(architecture.kind, key, value),
                    "{}: {} needs layers that this version lacks", key, value);
  }
}

}  // namespace

template <class T>
std::unique_ptr<Block<T>> make_block(const Making<T>& making) {
  require_layers(making.blueprint.architecture);
  const std::string& kind = making.spec().kind;
  if (kind == "embedding") return std::make_unique<EmbeddingBlock<T>>(making);
  if (kind == "layer") return std::make_unique<LayerBlock<T>>(making);
  if (kind == "head") return std::make_unique<HeadBlock<T>>(making);
  throw Error(fmt::format("block '{}' is of kind '{}', which this version does not have",
                          making.spec().name, kind));
}

#define TRIREME_INSTANTIATE(T) \
  template std::unique_ptr<Block<T>> make_block<T>(const Making<T>&);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
