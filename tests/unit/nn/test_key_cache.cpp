// Generation: new positions after cached keys and values give what the full forward pass
// gives, in whatever pieces they come, with dropout in the model, and with a bias by
// distance; a full cache is refused. Of cross attention the source's keys are made once.
// Layers say whether one launch may take several of them.
#include <gmock/gmock.h>

#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "kernels/decode_layers.hpp"
#include "unit/io/scratch.hpp"
#include "unit/nn/kind_layers.hpp"
#include "unit/nn/layer_bench.hpp"
#include "unit/nn/layers.hpp"

namespace trireme::test {
namespace {

using Values = std::vector<double>;

constexpr index_t kAllRows = kLongest * kSamples;

struct AttentionCase {
  using Block = nn::Attention<double>;
  static Block make(LayerBench<double>& bench) {
    return {bench.builder(), "attention", nn::attention_form(transformer_config(0.3), 3)};
  }
};
struct BiasedAttentionCase {
  using Block = nn::Attention<double>;
  static Block make(LayerBench<double>& bench) {
    auto bias = detail::relative_bias(bench, kernels::RelativeDirections::past);
    return {bench.builder(), "attention", nn::attention_form(transformer_config(0.3), 3),
            std::move(bias)};
  }
};
struct LayerCase {
  using Block = nn::TransformerLayer<double>;
  static Block make(LayerBench<double>& bench) {
    return {bench.builder(), nn::layer_form(transformer_config(0.3), 1)};
  }
};
// T5's, without cross attention.
struct BiasedLayerCase {
  using Block = nn::TransformerLayer<double>;
  static Block make(LayerBench<double>& bench) {
    auto bias = detail::relative_bias(bench, kernels::RelativeDirections::past);
    return {bench.builder(), detail::t5_form(0.3, kernels::MaskKind::causal),
            std::move(bias)};
  }
};

template <class Case>
class KeyCache : public ::testing::Test {
 protected:
  using Block = typename Case::Block;

  KeyCache()
      : layer_(Case::make(bench_)),
        x_(uniform((kAllRows + kSamples) * kHidden, 1)),  // for one position too many
        keys_(kAllRows * layer_.kv_columns(), NAN),
        values_(kAllRows * layer_.kv_columns(), NAN) {
    bench_.allocate([&](const nn::Context& shapes) {
      const View2<double> none(static_cast<double*>(nullptr), kAllRows, kHidden);
      nn::Context context = shapes;
      context.batch.streams[0].sequence = kLongest;
      layer_.forward(context, none, none, saved_);
      context.saved->reset();
      nn::KvCache<double> cache = of_length(kLongest);
      layer_.forward_cached(context, none, none, cache);
      const View2<double> one(static_cast<double*>(nullptr), kSamples, kHidden);
      context.batch.streams[0].sequence = 1;
      layer_.forward_cached(context, one, one, cache);
    });
  }

  // With so many positions of each sample, new ones included.
  nn::KvCache<double> of_length(index_t length) const {
    return {keys_.matrix(kAllRows, layer_.kv_columns()),
            values_.matrix(kAllRows, layer_.kv_columns()),
            {.count = kSamples, .capacity = kLongest, .longest = length}};
  }
  nn::Context context(index_t positions, nn::Mode mode) {
    bench_.spoil_memory();
    nn::Context context = bench_.context(mode);
    context.batch.streams[0].sequence = positions;
    return context;
  }

  Values full() {
    const Array<double> y(kAllRows * kHidden);
    const View2<const double> in(x_.vector().data(), kAllRows, kHidden);
    layer_.forward(context(kLongest, nn::Mode::evaluation), in,
                   y.matrix(kAllRows, kHidden), saved_);
    return y.values();
  }
  Values in_pieces(const std::vector<index_t>& pieces) {
    const index_t positions = std::accumulate(pieces.begin(), pieces.end(), index_t{0});
    const Array<double> y(positions * kSamples * kHidden);
    index_t done = 0;
    for (const index_t piece : pieces) {
      const index_t rows = piece * kSamples, begin = done * kSamples * kHidden;
      const View2<const double> in(x_.vector().data() + begin, rows, kHidden);
      const View2<double> out(y.vector().data() + begin, rows, kHidden);
      done += piece;
      nn::KvCache<double> cache = of_length(done);
      layer_.forward_cached(context(piece, nn::Mode::evaluation), in, out, cache);
      EXPECT_EQ(bench_.scratch.arena.used(), 0u);
    }
    return y.values();
  }

  LayerBench<double> bench_;
  Block layer_;
  typename Block::Saved saved_;
  Array<double> x_, keys_, values_;
};

using Cases =
    ::testing::Types<AttentionCase, BiasedAttentionCase, LayerCase, BiasedLayerCase>;
TYPED_TEST_SUITE(KeyCache, Cases);

TYPED_TEST(KeyCache, GivesWhatTheFullForwardPassGives) {
  const Values expected = this->full();
  for (const std::vector<index_t>& pieces :
       {std::vector<index_t>{7}, {1, 1, 1, 1, 1, 1, 1}, {3, 1, 2, 1}, {1, 6}}) {
    expect_close(this->in_pieces(pieces), expected, 1e-13, 1.0, "y");
  }
}

TYPED_TEST(KeyCache, IsRefusedWhenFull) {
  EXPECT_THAT(message_of<Error>([&] {
                this->in_pieces({3, 3, 2});
              }),
              ::testing::HasSubstr("the key cache has room for 7 positions, 6 are in it, "
                                   "2 more come"));
}

// The layer of T5's decoder for a text of kLongest positions from a source of kSource.
class KeyCacheOfASource : public ::testing::Test {
 protected:
  KeyCacheOfASource() : layer_(make(bench_)) {
    bench_.allocate([&](const nn::Context& shapes) {
      const auto none = [](index_t rows) {
        return View2<double>(static_cast<double*>(nullptr), extent(rows), kHidden);
      };
      layer_.forward(of(shapes, kLongest), none(kLongest), none(kLongest), saved_,
                     none(kSource));
      shapes.saved->reset();
      nn::KvCache<double> cache = of_length(kLongest);
      layer_.begin_text(of(shapes, 0), none(kSource), cache);
      layer_.forward_cached(of(shapes, kLongest), none(kLongest), none(kLongest), cache);
      layer_.forward_cached(of(shapes, 1), none(1), none(1), cache);
    });
  }
  static nn::TransformerLayer<double> make(LayerBench<double>& bench) {
    auto bias = detail::relative_bias(bench, kernels::RelativeDirections::past);
    nn::LayerForm form = detail::t5_form(0.3, kernels::MaskKind::causal);
    form.cross = form.attention;
    form.cross->mask = kernels::MaskKind::padding;
    form.cross->key_stream = kFewStream;
    return {bench.builder(), form, std::move(bias)};
  }
  static nn::Context of(const nn::Context& context, index_t positions) {
    nn::Context one = context;
    one.batch.samples = 1;
    one.batch.streams[0].sequence = positions;
    one.batch.streams[kFewStream] = {.sequence = kSource, .lengths = kLengthsField};
    return one;
  }
  nn::Context context(index_t positions) {
    bench_.spoil_memory();
    return of(bench_.context(nn::Mode::evaluation), positions);
  }
  // In the second of two places.
  nn::KvCache<double> of_length(index_t length) const {
    return {keys_.matrix(2 * kLongest, kColumns),
            values_.matrix(2 * kLongest, kColumns),
            {.capacity = kLongest, .first_place = 1, .longest = length},
            source_keys_.matrix(2 * kCapacity, kColumns),
            source_values_.matrix(2 * kCapacity, kColumns),
            {.capacity = kCapacity, .first_place = 1, .longest = kSource}};
  }

  static constexpr index_t kSource = 5, kCapacity = 7, kColumns = kKvHeads * kHeadSize;
  LayerBench<double> bench_;
  nn::TransformerLayer<double> layer_;
  typename nn::TransformerLayer<double>::Saved saved_;
  static Array<double> unwritten(index_t positions) {
    return Array<double>(extent(positions * kColumns), NAN);
  }
  Array<double> x_{uniform(kLongest * kHidden, 1)},
      memory_{uniform(kSource * kHidden, 2)};
  Array<double> keys_ = unwritten(2 * kLongest), values_ = unwritten(2 * kLongest),
                source_keys_ = unwritten(2 * kCapacity),
                source_values_ = unwritten(2 * kCapacity);
};

TEST_F(KeyCacheOfASource, GivesWhatTheFullForwardPassGives) {
  EXPECT_EQ(layer_.source_columns(), kColumns);
  const Array<double> want(extent(kLongest * kHidden)), y(extent(kLongest * kHidden));
  layer_.forward(context(kLongest), x_.cmatrix(kLongest, kHidden),
                 want.matrix(kLongest, kHidden), saved_,
                 memory_.cmatrix(kSource, kHidden));
  for (const std::vector<index_t>& pieces :
       {std::vector<index_t>{7}, {1, 1, 1, 1, 1, 1, 1}, {3, 1, 2, 1}}) {
    layer_.begin_text(context(0), memory_.cmatrix(kSource, kHidden), of_length(1));
    index_t done = 0;
    for (const index_t piece : pieces) {
      const index_t begin = done * kHidden;
      done += piece;
      nn::KvCache<double> cache = of_length(done);
      layer_.forward_cached(context(piece),
                            {x_.vector().data() + begin, extent(piece), kHidden},
                            {y.vector().data() + begin, extent(piece), kHidden}, cache);
      EXPECT_EQ(bench_.scratch.arena.used(), 0u);
    }
    expect_close(y.values(), want.values(), 1e-13, 1.0, "y");
  }
}

// What a layer of this form tells a launch of several: shapes alone are asked for.
std::optional<kernels::DecodeLayer<double>> decode_layer(const nn::LayerForm& form,
                                                         bool has_relative_bias = false) {
  LayerBench<double> bench;
  std::optional<nn::RelativeBias<double>> bias;
  if (has_relative_bias) {
    bias = detail::relative_bias(bench, kernels::RelativeDirections::past);
  }
  return nn::TransformerLayer<double>(bench.builder(), form, std::move(bias))
      .decode_layer({});
}

TEST(KeyCacheLayersOfALaunch, SayWhatTheyAre) {
  nn::LayerForm form = nn::layer_form(transformer_config(0.3), 1);
  form.norm.epsilon = 1e-3;
  form.attention.scale = 0.3;  // other than 1 / sqrt(d)
  const auto layer = decode_layer(form);
  ASSERT_TRUE(layer.has_value());
  EXPECT_EQ(layer->epsilon, 1e-3);
  EXPECT_EQ(layer->heads.heads, kHeads);
  EXPECT_EQ(layer->heads.kv_heads, kKvHeads);
  EXPECT_EQ(layer->heads.head_dim, kHeadSize);
  EXPECT_EQ(layer->heads.scale, 0.3);
  constexpr index_t kQkv = (kHeads + 2 * kKvHeads) * kHeadSize;
  EXPECT_EQ(layer->qkv.extent(0), kQkv);
  EXPECT_EQ(layer->qkv_bias.extent(0), kQkv);
  EXPECT_EQ(layer->projection.extent(1), kHeads * kHeadSize);
  EXPECT_EQ(layer->projection_bias.extent(0), kHidden);
  EXPECT_EQ(layer->fc1.extent(0), kFfnHidden);
  EXPECT_EQ(layer->fc1_bias.extent(0), kFfnHidden);
  EXPECT_EQ(layer->fc2.extent(1), kFfnHidden);
  EXPECT_EQ(layer->fc2_bias.extent(0), kHidden);
  for (const auto& vector : {layer->attention_gamma, layer->attention_beta,
                             layer->mlp_gamma, layer->mlp_beta}) {
    EXPECT_EQ(vector.extent(0), kHidden);
  }
}

// Everything that the launch does not compute is refused, by itself.
TEST(KeyCacheLayersOfALaunch, AreOfOneForm) {
  using Change = std::function<void(nn::LayerForm&)>;
  const nn::LayerForm plain = nn::layer_form(transformer_config(0.3), 1);
  const std::vector<std::pair<const char*, Change>> others = {
      {"norm", [](auto& form) { form.norm.kind = kernels::NormKind::rms; }},
      {"mask", [](auto& form) { form.attention.mask = kernels::MaskKind::padding; }},
      {"no bias of attention", [](auto& form) { form.attention.has_bias = false; }},
      {"no bias of the MLP", [](auto& form) { form.mlp.has_bias = false; }},
      {"erf", [](auto& form) { form.mlp.activation = kernels::Activation::gelu_erf; }},
      {"relu", [](auto& form) { form.mlp.activation = kernels::Activation::relu; }},
      {"gate", [](auto& form) { form.mlp.is_gated = true; }},
      {"cross attention", [](auto& form) {
         form.cross = form.attention;
         form.cross->key_stream = kFewStream;
       }}};
  for (const auto& [name, change] : others) {
    nn::LayerForm other = plain;
    change(other);
    EXPECT_FALSE(decode_layer(other).has_value()) << name;
  }
  EXPECT_FALSE(decode_layer(plain, true).has_value());
}

}  // namespace
}  // namespace trireme::test
