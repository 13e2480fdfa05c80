// Layers of a step of generation in one launch, which every GPU has, and a host by
// emulation, beside the launches that it stands for: as ever and in a graph, with a
// kernel behind it that may start early. What it refuses.
#include "kernels/decode_layers.hpp"

#include <gmock/gmock.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/device.hpp"
#include "base/error.hpp"
#include "base/graph.hpp"
#include "unit/kernels/decode_layers_problem.hpp"

namespace trireme::kernels {
namespace {

using namespace decode_layers_test;
using testing::HasSubstr;
using testing::ThrowsMessage;

template <class T>
class DecodeLayersOf : public testing::Test {};
using Types = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(DecodeLayersOf, Types);

template <class T>
bool is_had(const Shape& shape) {
  const Problem<T> problem(shape);
  return DecodeLayers<T>::has(Exec(), problem.views(), shape.capacity);
}

template <class T>
void run(const Exec& exec, const DecodeLayers<T>& layers, const Problem<T>& problem) {
  const index_t m = problem.of.rows(), h = problem.of.hidden;
  layers.run(exec, problem.texts(), problem.x.cmatrix(m, h), problem.y.matrix(m, h));
}

template <class T>
Values by_one_launch_here(const Shape& shape, double offset = 0,
                          std::optional<WeightCopies> copies = {}) {
  const Problem<T> problem(shape, offset);
  const Exec exec;
  const DecodeLayers<T> layers(exec, problem.views(), shape.capacity, {}, copies);
  run(exec, layers, problem);
  exec.fence("test");
  return problem.values();
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {},
      {.lengths = {1}},
      {.hidden = 768,
       .heads = 12,
       .kv_heads = 12,
       .head_dim = 64,
       .ffn = 3072,
       .lengths = {300}},
      // On many multiprocessors, with more than eight rows of a matrix on each.
      {.layers = 1,
       .hidden = 768,
       .heads = 12,
       .kv_heads = 12,
       .head_dim = 64,
       .ffn = 3072,
       .places = {1, 4, 0, 2},
       .lengths = {257, 64, 1, 300}},
      {.hidden = 96, .heads = 1, .kv_heads = 1, .head_dim = 96, .lengths = {530}},
      {.heads = 2, .kv_heads = 1, .head_dim = 104, .ffn = 72, .lengths = {190}},
      {.hidden = 256,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 128,
       .ffn = 1000,
       .places = {1, 4, 0, 2},
       .lengths = {257, 64, 1, 513}},
      {.places = {3, 0, 1}, .lengths = {70, 0, 65}}};
  return all;
}

TYPED_TEST(DecodeLayersOf, DoWhatTheirLaunchesDo) {
  for (const Shape& shape : shapes()) {
    if (!is_had<TypeParam>(shape)) {
      EXPECT_TRUE(kHostExecution);  // an emulated GPU is small
      continue;
    }
    expect_close<TypeParam>(by_one_launch_here<TypeParam>(shape),
                            by_launches<TypeParam>(shape), shape);
  }
}

// Hopper can copy weights in another way; an emulated GPU can, too.
TYPED_TEST(DecodeLayersOf, WeightsByBoxesGiveTheBitsOfThoseByQuads) {
  int compared = 0, had = 0;
  for (const Shape& shape : shapes()) {
    const Problem<TypeParam> problem(shape);
    had += is_had<TypeParam>(shape) ? 1 : 0;
    if (!DecodeLayers<TypeParam>::has(Exec(), problem.views(), shape.capacity,
                                      WeightCopies::boxes)) {
      continue;
    }
    ++compared;
    EXPECT_EQ(by_one_launch_here<TypeParam>(shape, 0, WeightCopies::boxes),
              by_one_launch_here<TypeParam>(shape, 0, WeightCopies::quads));
  }
  if (!kHostExecution && built_capability() != 90) GTEST_SKIP() << "for Hopper alone";
  EXPECT_EQ(compared, had);
  EXPECT_GT(had, 4);
}

// Each matrix has a map of 128 bytes.
TYPED_TEST(DecodeLayersOf, MapsOfMatricesTakeMemory) {
  const Shape shape{.layers = 3};
  const Problem<TypeParam> problem(shape);
  const auto bytes = [&](WeightCopies copies) {
    return DecodeLayers<TypeParam>(Exec(), problem.views(), shape.capacity, {}, copies)
        .bytes();
  };
  if (!DecodeLayers<TypeParam>::has(Exec(), problem.views(), shape.capacity,
                                    WeightCopies::boxes)) {
    GTEST_SKIP() << "for Hopper alone";
  }
  EXPECT_EQ(bytes(WeightCopies::boxes), bytes(WeightCopies::quads) + 3u * 4 * 128);
}

// Of rows far from zero, whose variance is found in a second pass.
TYPED_TEST(DecodeLayersOf, RowsFarFromZero) {
  const Shape shape{.layers = 1, .places = {3, 0}, .lengths = {70, 5}};
  expect_close<TypeParam>(by_one_launch_here<TypeParam>(shape, 100),
                          by_launches<TypeParam>(shape, 100), shape);
}

// Of more texts than a launch takes; one of them has no keys.
TYPED_TEST(DecodeLayersOf, ATextHasTheBitsThatItHasAlone) {
  const Shape together{.places = {3, 0, 1, 2, 5, 4}, .lengths = {70, 0, 65, 1, 300, 600}};
  const Problem<TypeParam> problem(together);
  const Exec exec;
  const DecodeLayers<TypeParam> layers(exec, problem.views(), together.capacity);
  const index_t h = together.hidden;
  const auto row = [&](index_t text) {
    const Values all = problem.y.values();
    return Values(all.begin() + text * h, all.begin() + (text + 1) * h);
  };
  run(exec, layers, problem);
  exec.fence("test");
  std::vector<Values> rows;
  for (index_t text = 0; text < together.rows(); ++text) rows.push_back(row(text));
  for (index_t text = 0; text < together.rows(); ++text) {
    if (together.lengths[extent(text)] == 0) continue;
    CachedTexts texts = problem.texts();
    texts.count = 1;
    texts.places = View1<const std::int32_t>(texts.places.data() + text, 1);
    texts.lengths = View1<const std::int32_t>(texts.lengths.data() + text, 1);
    const auto rows_at = [&](const test::Array<TypeParam>& of) {
      return View2<TypeParam>(of.vector().data() + text * h, 1, extent(h));
    };
    layers.run(exec, texts, View2<const TypeParam>(rows_at(problem.x)),
               rows_at(problem.y));
    exec.fence("test");
    EXPECT_EQ(row(text), rows[extent(text)]) << "text " << text;
  }
}

// With a product behind it, as a model's head is, which may start early; and a prompt's
// only token, whose place and length the launch is told.
TYPED_TEST(DecodeLayersOf, InAGraph) {
  const Shape shape{.places = {0}, .lengths = {70}};
  const Problem<TypeParam> problem(shape);
  const Exec exec;
  const DecodeLayers<TypeParam> layers(exec, problem.views(), shape.capacity);
  constexpr index_t kWords = 97;
  const test::Array<TypeParam> head(test::uniform(kWords * shape.hidden, 3));
  test::Array<TypeParam> logits(kWords);
  const CachedTexts texts{
      .count = 1, .capacity = shape.capacity, .first_place = 0, .longest = 70};
  const auto step = [&](const Exec& on) {
    layers.run(on, texts, problem.x.cmatrix(1, shape.hidden),
               problem.y.matrix(1, shape.hidden));
    DecodeOutput<TypeParam> to;
    to.y = logits.matrix(1, kWords);
    const Layer<TypeParam>& norm = problem.layers.front();
    decode_linear<TypeParam>(
        on,
        norm_input<TypeParam>(problem.y.cmatrix(1, shape.hidden),
                              norm.norm1_gamma.cvector(), norm.norm1_beta.cvector()),
        WeightOperand<TypeParam>(head.cmatrix(kWords, shape.hidden)), to);
  };
  step(exec);
  exec.fence("test");
  const Values once = logits.values(), left = problem.values();
  EXPECT_EQ(left, by_one_launch_here<TypeParam>(shape));
  Graph graph;
  graph.record(exec, step);
  for (int i = 0; i < 3; ++i) {
    logits.set(Values(kWords, -7.0));
    graph.replay(exec);
    exec.fence("test");
    EXPECT_EQ(logits.values(), once);
    EXPECT_EQ(problem.values(), left);
  }
}

TYPED_TEST(DecodeLayersOf, TakesWholePiecesAlone) {
  EXPECT_TRUE(is_had<TypeParam>({}));
  EXPECT_TRUE(is_had<TypeParam>({.heads = 1, .kv_heads = 1, .head_dim = 128}));
  EXPECT_FALSE(is_had<TypeParam>({.heads = 1, .kv_heads = 1, .head_dim = 136}));
  EXPECT_FALSE(is_had<TypeParam>({.head_dim = 36}));
  EXPECT_FALSE(is_had<TypeParam>({.hidden = 68}));
  EXPECT_FALSE(is_had<TypeParam>({.ffn = 140}));
  // Layers that are not alike, and none.
  const Problem<TypeParam> problem({});
  std::vector<DecodeLayer<TypeParam>> layers = problem.views();
  layers.back().heads.scale = 1;
  EXPECT_FALSE(DecodeLayers<TypeParam>::has(Exec(), layers, problem.of.capacity));
  EXPECT_FALSE(DecodeLayers<TypeParam>::has(Exec(), {}, problem.of.capacity));
}

TYPED_TEST(DecodeLayersOf, RefusesAnotherCache) {
  const Problem<TypeParam> problem({});
  const DecodeLayers<TypeParam> layers(Exec(), problem.views(), problem.of.capacity);
  CachedTexts texts = problem.texts();
  texts.capacity = 599;
  EXPECT_THAT(
      [&] {
        layers.run(Exec(), texts, problem.x.cmatrix(1, problem.of.hidden),
                   problem.y.matrix(1, problem.of.hidden));
      },
      ThrowsMessage<Error>(HasSubstr("599, made for 600")));
}

// Wider elements have none, on any device.
TEST(DecodeLayersWide, HaveNone) {
  const Problem<float> problem({});
  EXPECT_FALSE(DecodeLayers<float>::has(Exec(), problem.views(), problem.of.capacity));
}

}  // namespace
}  // namespace trireme::kernels
