// tests/layouts/layout_masks.cpp — see layout_masks.hpp.
#include "layouts/layout_masks.hpp"

#include <cmath>
#include <string>

#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "nn/transformer_layer.hpp"

namespace trireme::test {
namespace {

constexpr index_t kLongVocabulary = 1201;  // more than there are tokens in a step
constexpr int kSourceStream = 1;           // stream that cross attention's keys are of

config::ModelConfig layer_config() {
  return {.layers = 3,
          .hidden = kMaskHidden,
          .heads = kMaskHeads,
          .kv_heads = kMaskHeads,
          .head_size = kMaskHidden / kMaskHeads,
          .ffn_hidden = 24,
          .sequence = kSequence,
          .dropout = 0.5,
          .attention_dropout = 0.5};
}

// Cross attention to all of a source.
nn::LayerForm decoder_form() {
  nn::LayerForm form = nn::layer_form(layer_config(), kMaskDecoderLayer);
  nn::AttentionForm cross = form.attention;
  cross.mask = kernels::MaskKind::none;
  cross.head_size = kMaskCrossDim;
  cross.keys = kMaskSource;
  cross.key_stream = kSourceStream;
  cross.site = random::Site::cross_attention_probabilities;
  form.cross = cross;
  return form;
}

template <class V>
auto on_host(const V& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
}

// An embedding, a layer and a decoder's layer on some groups, and the masks that they
// draw.
class MaskRun {
 public:
  MaskRun(const comm::ProcessGroups& groups, bool sequence_parallel)
      : groups_(groups),
        sequence_parallel_(sequence_parallel),
        embedding_(builder(),
                   {.hidden = kMaskHidden, .places = kSequence, .dropout = 0.5},
                   {builder(), "embedding/word", kLongVocabulary, kMaskHidden, 0.02}),
        layer_(builder(), nn::layer_form(layer_config(), kMaskLayer)),
        decoder_(builder(), decoder_form()) {
    params_.allocate(registry_, ParamBuffer<float>::Use::training);
    set_weights();
  }

  // Samples [first, first + count) of the step in micro-batches of `micro`.
  Masks draw(index_t first, index_t count, index_t micro) {
    Masks masks;
    for (index_t at = first; at < first + count; at += micro) {
      micro_batch(at, micro, masks);
    }
    embedding_gradient(first, count, masks.embedding_backward);
    return masks;
  }

 private:
  struct Arrays {
    View1<std::int32_t> tokens, positions;
    View2<float> embedded, x, y, ones, d_x;
    View2<float> decoded, memory, d_memory;
  };

  nn::Builder<float> builder() { return {registry_, params_, groups_}; }

  template <class Value>
  void set(const std::string& name, const Value& value) {
    const auto weight = params_.slice(Slab::weight, registry_.find(name));
    const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, weight);
    for (std::size_t i = 0; i < host.extent(0); ++i) {
      host(i) = value(static_cast<index_t>(i));
    }
    Kokkos::deep_copy(weight, host);
  }
  // A matrix that makes values, behind those of so many heads of queries and keys, from
  // rows with a 1 in the column of their position.
  static auto values_of_keys(index_t heads_before, index_t head_dim) {
    return [=](index_t i) {
      const index_t row = i / kMaskHidden, key = i % kMaskHidden;
      const bool is_value = row >= heads_before * head_dim;
      if (!is_value || key / kMaskBits != row % head_dim) return 0.0f;
      return static_cast<float>(1 << key % kMaskBits);
    };
  }
  void set_weights() {
    const auto constant = [](float value) { return [value](index_t) { return value; }; };
    set("embedding/word/weight", constant(1.0f));
    for (const char* layer : {"layers/2", "layers/5"}) {
      set(layer + std::string("/attention/projection/bias"), constant(1.0f));
      set(layer + std::string("/mlp/fc2/bias"), constant(2.0f));
    }
    set("layers/5/cross/projection/bias", constant(4.0f));
    // x has a 1 in the column of its position; so has, up to rounding, its norm.
    const float share = 1.0f / kMaskHidden;
    set("layers/2/input_norm/bias", constant(share));
    set("layers/2/input_norm/weight",
        constant(std::sqrt(share * (1.0f - share) +
                           static_cast<float>(nn::NormForm().epsilon))));
    const index_t heads = kMaskHeads / groups_.tensor->size();
    set("layers/2/attention/qkv/weight", values_of_keys(2 * heads, kMaskHeadDim));
    set("layers/5/cross/kv/weight", values_of_keys(heads, kMaskCrossDim));
    params_.refresh_compute(exec_);
  }

  nn::Context context(const Exec& exec, index_t first, index_t micro) {
    const auto host = Kokkos::create_mirror_view(step_);
    host().seed = kMaskSeed;
    host().sample_base = static_cast<std::uint64_t>(kMaskFirst + first);
    Kokkos::deep_copy(step_, host);
    nn::MicroBatch batch(micro, kSequence);
    batch.streams[kSourceStream].sequence = kMaskSource;
    return {.exec = exec,
            .groups = groups_,
            .step = kernels::StepStateView(step_.data()),
            .saved = &saved_,
            .scratch = scratch_,
            .held = held_,
            .batch = batch,
            .splits_sequence = sequence_parallel_};
  }

  Arrays arrays(const nn::Context& context) {
    const auto rows_of = [&](const nn::Context& stream) {
      return saved_.matrix<float>(Category::hidden, stream.local_rows(), kMaskHidden);
    };
    const auto matrix = [&] { return rows_of(context); };
    const auto of_source = [&] { return rows_of(context.on_stream(kSourceStream)); };
    const auto ids = [&] {
      return saved_.vector<std::int32_t>(Category::hidden, context.rows());
    };
    return {ids(),    ids(),    matrix(), matrix(),    matrix(),
            matrix(), matrix(), matrix(), of_source(), of_source()};
  }

  void pass(const nn::Context& context, const Arrays& a) {
    using nn::as_const;
    const nn::Embedding<float>::Ids ids{a.tokens, a.positions};
    nn::Embedding<float>::Saved nothing;
    embedding_.forward(context, ids, a.embedded, nothing);
    embedding_.backward_weight(context, ids, as_const(a.ones), nothing);
    layer_.forward(context, as_const(a.x), a.y, layer_saved_);
    layer_.backward_input(context, as_const(a.ones), layer_saved_, a.d_x, layer_held_);
    decoder_.forward(context, as_const(a.x), a.decoded, decoder_saved_,
                     as_const(a.memory));
    decoder_.backward_input(context, as_const(a.ones), decoder_saved_, a.d_x,
                            decoder_held_, nn::WeightPass::later, {}, {a.d_memory});
  }

  void micro_batch(index_t first, index_t micro, Masks& masks) {
    const Exec shapes = Exec::shape_only();
    saved_ = scratch_ = held_ = Arena();
    const nn::Context planning = context(shapes, first, micro);
    pass(planning, arrays(planning));
    const auto allocate = [](Arena& arena, DeviceArray<std::byte>& memory) {
      memory = DeviceArray<std::byte>("arena", arena.peak() + 1);
      arena = Arena(memory.data(), memory.extent(0));
    };
    allocate(saved_, memory_[0]);
    allocate(scratch_, memory_[1]);
    allocate(held_, memory_[2]);
    const nn::Context here = context(exec_, first, micro);
    const Arrays a = arrays(here);
    fill(here, first, a);
    pass(here, a);
    exec_.fence("test");
    read(here, first, a, masks);
  }

  void fill(const nn::Context& context, index_t first, const Arrays& a) {
    const index_t b = context.samples();
    const auto tokens = Kokkos::create_mirror(Kokkos::HostSpace{}, a.tokens);
    const auto positions = Kokkos::create_mirror(Kokkos::HostSpace{}, a.positions);
    for (index_t row = 0; row < context.rows(); ++row) {
      positions(row) = static_cast<std::int32_t>(row / b);
      tokens(row) = static_cast<std::int32_t>((first + row % b) * kSequence + row / b);
    }
    Kokkos::deep_copy(a.tokens, tokens);
    Kokkos::deep_copy(a.positions, positions);
    mark_positions(context, a.x);
    mark_positions(context.on_stream(kSourceStream), a.memory);
    Kokkos::deep_copy(a.ones, 1.0f);
  }
  // A 1 in the column of each row's position.
  static void mark_positions(const nn::Context& context, const View2<float>& rows) {
    const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, rows);
    for (index_t row = 0; row < context.local_rows(); ++row) {
      const index_t position = context.sequence_begin() + row / context.samples();
      for (index_t j = 0; j < kMaskHidden; ++j)
        host(row, j) = position == j ? 1.0f : 0.0f;
    }
    Kokkos::deep_copy(rows, host);
  }

  // Rows of a matrix, from position `begin` on, go to columns from `column` on.
  template <class Decode>
  static void read_rows(const View2<const float>& matrix, index_t first, index_t b,
                        index_t begin, index_t column, MaskTable& table,
                        const Decode& decode) {
    const auto host = on_host(matrix);
    for (index_t row = 0; row < static_cast<index_t>(host.extent(0)); ++row) {
      for (index_t j = 0; j < static_cast<index_t>(host.extent(1)); ++j) {
        const index_t position = begin + row / b;
        table.at(first + row % b, position, column + j) =
            decode(host(row, j), position, j);
      }
    }
  }
  void read(const nn::Context& context, index_t first, const Arrays& a, Masks& masks) {
    const index_t b = context.samples(), begin = context.sequence_begin();
    const auto number = [](float value, index_t, index_t) {
      const float rounded = std::round(value);
      return value == rounded ? static_cast<int>(value) : MaskTable::kNotAMask;
    };
    const auto added = [&](float value, index_t position, index_t j) {
      return number(value, position, j) - (position == j ? 1 : 0);
    };
    read_rows(a.embedded, first, b, begin, 0, masks.embedding, number);
    read_rows(a.y, first, b, begin, 0, masks.outputs, added);
    read_rows(a.decoded, first, b, begin, 0, masks.decoder_outputs, added);
    // These were gathered: all rows.
    read_rows(layer_held_.attention.d_y, first, b, 0, 0, masks.attention_backward,
              number);
    read_rows(layer_held_.mlp.d_y, first, b, 0, 0, masks.mlp_backward, number);
    read_rows(decoder_held_.cross.d_y, first, b, 0, 0, masks.cross_backward, number);
    read_bits(layer_saved_.attention.o, first, b, masks.probabilities,
              [](index_t position) { return position + 1; });
    read_bits(decoder_saved_.cross.o, first, b, masks.cross_probabilities,
              [](index_t) { return kMaskSource; });
  }
  // A bit for each of the keys that a position sees.
  template <class Keys>
  void read_bits(const View2<const float>& o, index_t first, index_t b, MaskTable& table,
                 const Keys& keys) const {
    const index_t column = groups_.tensor->rank() * static_cast<index_t>(o.extent(1));
    const auto decode = [&](float value, index_t position, index_t) {
      const float bits = value * static_cast<float>(keys(position)) / 2;
      const bool is_near = std::abs(bits - std::round(bits)) < 0.1f;
      return is_near ? static_cast<int>(std::lround(bits)) : MaskTable::kNotAMask;
    };
    read_rows(o, first, b, 0, column, table, decode);
  }

  // After all micro-batches: the rows of the table that this rank has.
  void embedding_gradient(index_t first, index_t count, MaskTable& table) {
    const auto& word = embedding_.word();
    const auto rows = on_host(params_.slice(Slab::gradient, word.weight().index()));
    for (index_t row = 0; row < word.valid_rows(); ++row) {
      const index_t token = word.begin() + row, sample = token / kSequence;
      if (sample < first || sample >= first + count) continue;
      for (index_t j = 0; j < kMaskHidden; ++j) {
        table.at(sample, token % kSequence, j) =
            static_cast<int>(rows(row * kMaskHidden + j));
      }
    }
  }

  comm::ProcessGroups groups_;
  bool sequence_parallel_;
  Exec exec_;
  ParamRegistry registry_;
  ParamBuffer<float> params_;
  nn::Embedding<float> embedding_;
  nn::TransformerLayer<float> layer_, decoder_;
  nn::TransformerLayer<float>::Saved layer_saved_, decoder_saved_;
  nn::TransformerLayer<float>::Held layer_held_, decoder_held_;
  Kokkos::View<kernels::StepState, DeviceMemory> step_{"step state"};
  DeviceArray<std::byte> memory_[3];
  Arena saved_, scratch_, held_;
};

}  // namespace

Masks draw_masks(const comm::ProcessGroups& groups, bool sequence_parallel, index_t first,
                 index_t count, index_t micro) {
  return MaskRun(groups, sequence_parallel).draw(first, count, micro);
}

Masks masks_of_one_rank() {
  const comm::RankGrid grid(comm::make_self_communicator("world"), {});
  return draw_masks(grid.groups(), false, 0, kGlobal, kGlobal);
}

}  // namespace trireme::test
