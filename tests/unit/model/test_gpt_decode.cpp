// Generation: tokens one by one, or some at a time, over a cache of keys and values give
// the logits of the whole sequence.
#include <gmock/gmock.h>

#include "base/error.hpp"
#include "unit/model/gpt_pass.hpp"

namespace trireme::model {
namespace {

using test::Array;
using test::Gpt;
using test::Values;

constexpr index_t kLength = 13;

double token(index_t sample, index_t at, index_t vocabulary) {
  return static_cast<double>((sample * 7919 + at * at * 31 + 5) % vocabulary);
}

// Caches of a model, and logits of what is fed to it.
template <class T>
class Decoder {
 public:
  Decoder(Gpt<T>& gpt, index_t batch, index_t capacity)
      : gpt_(gpt),
        batch_(batch),
        capacity_(capacity),
        cache_(static_cast<std::size_t>(2 * gpt.config.layers * capacity * batch *
                                        gpt.chunk.cache_columns().at(0)),
               NAN) {
    const index_t columns = gpt.chunk.cache_columns().at(0), rows = capacity * batch;
    for (index_t layer = 0; layer < gpt.config.layers; ++layer) {
      T* k = cache_.vector().data() + 2 * layer * rows * columns;
      state_.caches.push_back({.k = View2<T>(k, rows, columns),
                               .v = View2<T>(k + rows * columns, rows, columns)});
    }
  }

  // Feeds `news` positions of every sample; the logits of the last `wanted` rows.
  Values feed(index_t news, index_t wanted) {
    const index_t at = length_, rows = news * batch_;
    for (nn::KvCache<T>& layer : state_.caches) {
      layer.texts.count = batch_;
      layer.texts.capacity = capacity_;
      layer.texts.longest = at + news;
    }
    Values tokens(rows), positions(rows);
    for (index_t r = 0; r < rows; ++r) {
      positions[r] = static_cast<double>(at + r / batch_);
      tokens[r] = token(r % batch_, at + r / batch_, gpt_.config.vocab);
    }
    const Array<std::int32_t> ids(tokens), places(positions);
    const Array<T> logits(static_cast<std::size_t>(wanted * gpt_.chunk.logit_columns()));
    const Exec exec;
    const std::size_t bytes = 1 << 18;
    const Kokkos::View<std::byte*, DeviceMemory> memory("memory", 2 * bytes);
    Arena saved(memory.data(), bytes), scratch(memory.data() + bytes, bytes), held;
    const Kokkos::View<kernels::StepState, DeviceMemory> step("state");
    BatchSpec spec = gpt_.blueprint.batch;
    spec.streams[0].sequence = news;
    nn::MicroBatch batch(spec, batch_);
    batch.set(spec.field("tokens"), ids.vector().data(), rows);
    batch.set(spec.field("positions"), places.vector().data(), rows);
    const nn::Context context{.exec = exec,
                              .groups = gpt_.groups,
                              .step = kernels::StepStateView(step.data()),
                              .saved = &saved,
                              .scratch = scratch,
                              .held = held,
                              .batch = batch,
                              .mode = nn::Mode::evaluation};
    gpt_.chunk.decode(context, state_, logits.matrix(wanted, gpt_.chunk.logit_columns()));
    exec.fence("test");
    length_ += news;
    EXPECT_EQ(scratch.used(), 0u);
    EXPECT_EQ(saved.used(), 0u);  // all given back
    EXPECT_EQ(held.used(), 0u);
    const View2<T> all = logits.matrix(wanted, gpt_.chunk.logit_columns());
    return test::rows_of<T>(Kokkos::subview(
        all, Kokkos::ALL, std::pair<index_t, index_t>(0, gpt_.config.vocab)));
  }

 private:
  Gpt<T>& gpt_;
  index_t batch_, capacity_, length_ = 0;
  Array<T> cache_;
  DecodeState<T> state_;
};

Values whole_logits(Gpt<double>& gpt, index_t batch) {
  test::Pass<double> pass(
      gpt, {.batch = batch, .sequence = kLength, .mode = nn::Mode::evaluation});
  pass.forward();
  return pass.logits();
}

TEST(GptDecodeCache, GivesTheLogitsOfTheWhole) {
  model::Architecture grouped = test::small_gpt();
  grouped.kv_heads = 2;
  model::Architecture narrow = test::small_gpt();
  narrow.head_size = 5;  // 4 heads of 5 in 24
  for (const model::Architecture& config : {test::small_gpt(), grouped, narrow}) {
    Gpt<double> gpt(config);
    for (const index_t batch : {1, 3}) {
      const Values want = whole_logits(gpt, batch);
      for (const std::vector<index_t>& pieces :
           {std::vector<index_t>(kLength, 1), {5, 1, 1, 6}, {kLength}}) {
        Decoder<double> decoder(gpt, batch, kLength);
        Values got;
        for (const index_t piece : pieces) {
          const Values part = decoder.feed(piece, piece * batch);
          got.insert(got.end(), part.begin(), part.end());
        }
        test::expect_close(got, want, 1e-12, 1, "logits");
      }
    }
  }
}

TEST(GptDecodeCache, AsManyLogitsAsAskedFor) {
  Gpt<double> gpt(test::small_gpt());
  const Values want = whole_logits(gpt, 2);
  Decoder<double> decoder(gpt, 2, kLength);
  EXPECT_TRUE(decoder.feed(6, 0).empty());  // a prompt
  const Values last = decoder.feed(7, 2);
  const Values tail(want.end() - 2 * gpt.config.vocab, want.end());
  test::expect_close(last, tail, 1e-12, 1, "logits");
}

TEST(GptDecodeErrors, FullCacheSaysSo) {
  Gpt<float> gpt(test::small_gpt());
  Decoder<float> decoder(gpt, 2, 4);
  decoder.feed(3, 0);
  EXPECT_THAT([&] { decoder.feed(2, 0); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                  "room for 4 positions, 3 are in it, 2 more come")));
  EXPECT_NO_THROW(decoder.feed(1, 0));
}

}  // namespace
}  // namespace trireme::model
