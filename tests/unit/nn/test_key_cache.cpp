// Generation: new positions after cached keys and values give what the full forward pass
// gives, in whatever pieces they come, with dropout in the model; a full cache is
// refused.
#include <gmock/gmock.h>

#include <numeric>

#include "base/error.hpp"
#include "unit/io/scratch.hpp"
#include "unit/nn/layer_bench.hpp"
#include "unit/nn/layers.hpp"

namespace trireme::test {
namespace {

using Values = std::vector<double>;

constexpr index_t kAllRows = kLongest * kSamples;

template <class Block>
struct CacheCase;
template <>
struct CacheCase<nn::Attention<double>> {
  static nn::Attention<double> make(const nn::Builder<double>& builder) {
    return {builder, "attention", nn::attention_form(transformer_config(0.3), 3)};
  }
};
template <>
struct CacheCase<nn::TransformerLayer<double>> {
  static nn::TransformerLayer<double> make(const nn::Builder<double>& builder) {
    return {builder, nn::layer_form(transformer_config(0.3), 1)};
  }
};

template <class Block>
class KeyCache : public ::testing::Test {
 protected:
  KeyCache()
      : layer_(CacheCase<Block>::make(bench_.builder())),
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

using Blocks = ::testing::Types<nn::Attention<double>, nn::TransformerLayer<double>>;
TYPED_TEST_SUITE(KeyCache, Blocks);

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

}  // namespace
}  // namespace trireme::test
