// All layers of a step of generation in one launch, run on a host: the kernel that a GPU
// runs, by the fibers of support/warp_emulation.hpp, against the launches that it stands
// for. A number has the same bits by either way.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/decode_layers.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/impl/attention_task.hpp"
#include "support/arrays.hpp"
#include "support/warp_emulation.hpp"

namespace trireme::kernels {
namespace {

using Numbers = std::vector<std::int32_t>;
using Values = std::vector<double>;
using test::WarpOrder;

constexpr index_t kPlaces = 5;
constexpr double kEpsilon = 1e-5;

struct Shape {
  index_t layers = 2, hidden = 64, heads = 2, kv_heads = 2, head_dim = 32, ffn = 136;
  index_t capacity = 600;
  Numbers places = {3}, lengths = {70};
  // How it is run.
  int blocks = 3;
  WarpOrder order = WarpOrder::first_to_last;

  index_t q_columns() const { return heads * head_dim; }
  index_t kv_columns() const { return kv_heads * head_dim; }
  index_t rows() const { return std::ssize(lengths); }
};

template <class T>
struct Layer {
  Layer(const Shape& of, unsigned seed)
      : norm1_gamma(test::uniform(of.hidden, seed, 0.5, 1.5)),
        norm1_beta(test::uniform(of.hidden, seed + 1, -0.2, 0.2)),
        qkv(test::uniform((of.q_columns() + 2 * of.kv_columns()) * of.hidden, seed + 2,
                          -0.2, 0.2)),
        qkv_bias(test::uniform(of.q_columns() + 2 * of.kv_columns(), seed + 3)),
        projection(test::uniform(of.hidden * of.q_columns(), seed + 4, -0.2, 0.2)),
        projection_bias(test::uniform(of.hidden, seed + 5)),
        norm2_gamma(test::uniform(of.hidden, seed + 6, 0.5, 1.5)),
        norm2_beta(test::uniform(of.hidden, seed + 7, -0.2, 0.2)),
        fc1(test::uniform(of.ffn * of.hidden, seed + 8, -0.2, 0.2)),
        fc1_bias(test::uniform(of.ffn, seed + 9)),
        fc2(test::uniform(of.hidden * of.ffn, seed + 10, -0.2, 0.2)),
        fc2_bias(test::uniform(of.hidden, seed + 11)),
        k(test::uniform(kPlaces * of.capacity * of.kv_columns(), seed + 12)),
        v(test::uniform(kPlaces * of.capacity * of.kv_columns(), seed + 13)) {}

  test::Array<T> norm1_gamma, norm1_beta, qkv, qkv_bias, projection, projection_bias,
      norm2_gamma, norm2_beta, fc1, fc1_bias, fc2, fc2_bias, k, v;
};

test::Array<std::int32_t> on_device(const Numbers& numbers) {
  return test::Array<std::int32_t>(Values(numbers.begin(), numbers.end()));
}

template <class T>
const std::uint16_t* words_of(const test::Array<T>& array) {
  return reinterpret_cast<const std::uint16_t*>(array.vector().data());
}
template <class T>
std::uint16_t* words_of(test::Array<T>& array) {
  return reinterpret_cast<std::uint16_t*>(array.vector().data());
}

template <class T>
struct Problem {
  explicit Problem(const Shape& shape, double offset = 0)
      : of(shape),
        places(on_device(of.places)),
        lengths(on_device(of.lengths)),
        x(test::uniform(of.rows() * of.hidden, 1, offset - 2, offset + 2)) {
    for (index_t i = 0; i < of.layers; ++i) layers.emplace_back(of, 100 * (1 + i));
  }

  CachedTexts texts() const {
    return {.count = of.rows(),
            .capacity = of.capacity,
            .places = places.cvector(),
            .lengths = lengths.cvector(),
            .longest = of.capacity};
  }
  cuda::DecodeLayersTask task(const std::vector<cuda::DecodeLayer>& pointers) const {
    cuda::DecodeLayersTask task;
    task.layers = pointers.data();
    task.layer_count = static_cast<int>(of.layers);
    task.rows = static_cast<int>(of.rows());
    task.hidden = static_cast<int>(of.hidden);
    task.heads = static_cast<int>(of.heads);
    task.kv_heads = static_cast<int>(of.kv_heads);
    task.head_dim = static_cast<int>(of.head_dim);
    task.ffn = static_cast<int>(of.ffn);
    task.scale = static_cast<float>(scale());
    task.epsilon = static_cast<float>(kEpsilon);
    task.per_column = static_cast<float>(1.0 / static_cast<double>(of.hidden));
    task.places = places.vector().data();
    task.lengths = lengths.vector().data();
    task.capacity = static_cast<int>(of.capacity);
    task.longest = static_cast<int>(of.capacity);
    task.blocks = of.blocks;
    return task;
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(of.head_dim)); }

  Shape of;
  test::Array<std::int32_t> places, lengths;
  test::Array<T> x;
  std::vector<Layer<T>> layers;
};

// What is left of y and of the caches.
template <class T>
Values values_of(const std::vector<Layer<T>>& layers, const test::Array<T>& y) {
  Values all = y.values();
  for (const Layer<T>& layer : layers) {
    for (const auto* part : {&layer.k, &layer.v}) {
      const Values of_part = part->values();
      all.insert(all.end(), of_part.begin(), of_part.end());
    }
  }
  return all;
}

template <class T, int kRows, int kHeadElements>
void emulate(const Problem<T>& problem, const cuda::DecodeLayersTask& task) {
  using Block = cuda::DecodeLayers<impl::element_of<T>, kRows, 2, kHeadElements>;
  test::run_emulated({.blocks = problem.of.blocks,
                      .threads = Block::kThreads,
                      .shared_bytes = static_cast<std::size_t>(Block::shared_bytes(task)),
                      .order = problem.of.order,
                      .blocks_under_way = problem.of.blocks},
                     [&] { Block::block(task); });
}

// `steps` in a row, each with the x of the first: the sets of words take turns.
template <class T>
Values by_one_launch(const Shape& shape, int steps, double offset = 0) {
  Problem<T> problem(shape, offset);
  std::vector<cuda::DecodeLayer> pointers;
  for (Layer<T>& layer : problem.layers) {
    pointers.push_back({{words_of(layer.qkv), words_of(layer.projection),
                         words_of(layer.fc1), words_of(layer.fc2)},
                        {words_of(layer.qkv_bias), words_of(layer.projection_bias),
                         words_of(layer.fc1_bias), words_of(layer.fc2_bias)},
                        {words_of(layer.norm1_gamma), words_of(layer.norm2_gamma)},
                        {words_of(layer.norm1_beta), words_of(layer.norm2_beta)},
                        words_of(layer.k),
                        words_of(layer.v)});
  }
  test::Array<T> y(shape.rows() * shape.hidden, -7.0);
  cuda::DecodeLayersTask task = problem.task(pointers);
  task.x = words_of(problem.x);
  task.y = words_of(y);
  task.x_leading = task.y_leading = shape.hidden;
  std::vector<cuda::Quad> words(extent(2 * cuda::words_of_set(task) / 4));
  task.words = reinterpret_cast<std::uint32_t*>(words.data());
  std::int32_t turn = 0;
  task.turn = &turn;
  for (int i = 0; i < steps; ++i) {
    const bool is_narrow = shape.head_dim <= 64;
    if (shape.rows() == 1) {
      is_narrow ? emulate<T, 1, 64>(problem, task) : emulate<T, 1, 128>(problem, task);
    } else {
      is_narrow ? emulate<T, 4, 64>(problem, task) : emulate<T, 4, 128>(problem, task);
    }
    EXPECT_EQ(turn, (i + 1) % 2);
  }
  return values_of(problem.layers, y);
}

template <class T>
DecodeInput<T> norm_input(const test::Array<T>& x, const test::Array<T>& gamma,
                          const test::Array<T>& beta, const Shape& of) {
  DecodeInput<T> input;
  input.rows = x.cmatrix(of.rows(), of.hidden);
  input.gamma = gamma.cvector();
  input.beta = beta.cvector();
  input.epsilon = kEpsilon;
  return input;
}

template <class T>
Values by_launches(const Shape& shape, double offset = 0) {
  Problem<T> problem(shape, offset);
  const Exec exec;
  const index_t m = shape.rows(), h = shape.hidden, rows = kPlaces * shape.capacity;
  const CachedTexts texts = problem.texts();
  const CachedHeads heads{.heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .scale = problem.scale()};
  const test::Array<T> q(m * shape.q_columns()), middle(m * h), inner(m * shape.ffn);
  const test::Array<Accumulator<T>> tiles(decode_attention_scratch_elements(texts, heads),
                                          NAN);
  test::Array<T> x(problem.x.values()), y(m * h);
  for (const Layer<T>& layer : problem.layers) {
    DecodeOutput<T> qkv;
    qkv.y = q.matrix(m, shape.q_columns());
    qkv.bias = layer.qkv_bias.cvector();
    qkv.k = layer.k.matrix(rows, shape.kv_columns());
    qkv.v = layer.v.matrix(rows, shape.kv_columns());
    qkv.texts = texts;
    decode_linear<T>(exec, norm_input(x, layer.norm1_gamma, layer.norm1_beta, shape),
                     WeightOperand<T>(layer.qkv.cmatrix(
                         shape.q_columns() + 2 * shape.kv_columns(), h)),
                     qkv);
    decode_attention_tiles<T>(exec, texts, heads, q.cmatrix(m, shape.q_columns()),
                              layer.k.cmatrix(rows, shape.kv_columns()),
                              layer.v.cmatrix(rows, shape.kv_columns()), tiles.vector());
    DecodeInput<T> attended;
    attended.tiles = tiles.cvector();
    attended.texts = texts;
    attended.heads = heads;
    DecodeOutput<T> projected;
    projected.y = middle.matrix(m, h);
    projected.bias = layer.projection_bias.cvector();
    projected.residual = x.cmatrix(m, h);
    decode_linear<T>(exec, attended,
                     WeightOperand<T>(layer.projection.cmatrix(h, shape.q_columns())),
                     projected);
    DecodeOutput<T> activation;
    activation.y = inner.matrix(m, shape.ffn);
    activation.bias = layer.fc1_bias.cvector();
    activation.activation = Activation::gelu;
    decode_linear<T>(exec, norm_input(middle, layer.norm2_gamma, layer.norm2_beta, shape),
                     WeightOperand<T>(layer.fc1.cmatrix(shape.ffn, h)), activation);
    DecodeInput<T> activated;
    activated.rows = inner.cmatrix(m, shape.ffn);
    DecodeOutput<T> output;
    output.y = y.matrix(m, h);
    output.bias = layer.fc2_bias.cvector();
    output.residual = middle.cmatrix(m, h);
    decode_linear<T>(exec, activated, WeightOperand<T>(layer.fc2.cmatrix(h, shape.ffn)),
                     output);
    exec.fence("test");
    x.set(y.values());
  }
  return values_of(problem.layers, y);
}

template <class T>
class CudaDecodeLayersOf : public testing::Test {};
using Types = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(CudaDecodeLayersOf, Types);

// Sums in another order, which are rounded to another number here and there.
template <class T>
void expect_close(const Values& got, const Values& want, const Shape& of) {
  ASSERT_EQ(got.size(), want.size());
  double most = 0, error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(std::isfinite(got[i]));
    most = std::max(most, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  EXPECT_LE(error, 4 * test::rounding<T>() * most)
      << of.hidden << ", " << of.head_dim << ", " << of.rows();
}

TYPED_TEST(CudaDecodeLayersOf, DoWhatTheirLaunchesDo) {
  const Shape shapes[] = {
      {},
      {.lengths = {1}},
      {.lengths = {64}, .order = WarpOrder::last_to_first},
      {.lengths = {300}, .blocks = 5},
      {.layers = 3, .kv_heads = 1, .lengths = {257}, .blocks = 1},
      {.hidden = 96, .heads = 1, .kv_heads = 1, .head_dim = 96, .lengths = {530}},
      {.heads = 4,
       .kv_heads = 2,
       .head_dim = 104,
       .ffn = 72,
       .lengths = {190},
       .blocks = 4},
      {.hidden = 328, .head_dim = 40, .ffn = 1000, .lengths = {5}, .blocks = 4},
      {.places = {3, 0}, .lengths = {70, 0}},
      {.places = {1, 4, 0, 2}, .lengths = {257, 64, 1, 513}, .blocks = 4},
      {.head_dim = 72, .places = {1, 4, 0}, .lengths = {3, 0, 65}, .blocks = 2},
  };
  for (const Shape& shape : shapes) {
    expect_close<TypeParam>(by_one_launch<TypeParam>(shape, 1),
                            by_launches<TypeParam>(shape), shape);
  }
}

// Of rows far from zero, whose variance is found in a second pass.
TYPED_TEST(CudaDecodeLayersOf, RowsFarFromZero) {
  const Shape shape{.layers = 1};
  expect_close<TypeParam>(by_one_launch<TypeParam>(shape, 1, 100),
                          by_launches<TypeParam>(shape, 100), shape);
}

// The words of a step are cleared by the next one.
TYPED_TEST(CudaDecodeLayersOf, StepsOneAfterTheOther) {
  const Shape shape{.layers = 1, .blocks = 4};
  EXPECT_EQ(by_one_launch<TypeParam>(shape, 3), by_one_launch<TypeParam>(shape, 1));
}

// A text has the same bits whatever others are there.
TYPED_TEST(CudaDecodeLayersOf, TextsDoNotDependOnOthers) {
  const Shape several{.places = {1, 4, 0, 2}, .lengths = {257, 64, 1, 513}, .blocks = 4};
  Shape one = several;
  one.places = {1};
  one.lengths = {257};
  const Values of_several = by_one_launch<TypeParam>(several, 1);
  const Values of_one = by_one_launch<TypeParam>(one, 1);
  for (index_t i = 0; i < one.hidden; ++i) EXPECT_EQ(of_several[i], of_one[i]);
}

}  // namespace
}  // namespace trireme::kernels
