// All layers of a step of generation in one launch, run on a host: the kernel that a GPU
// runs, by the fibers of support/warp_emulation.hpp, against the launches that it stands
// for; and that a text has the same bits whatever others are there.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/decode_layers.hpp"
#include "kernels/impl/attention_task.hpp"
#include "support/emulated_decode_layers.hpp"
#include "unit/kernels/decode_layers_problem.hpp"

namespace trireme::kernels {
namespace {

using namespace decode_layers_test;
using test::WarpOrder;

// How a kernel is run.
struct Way {
  WeightCopies copies = WeightCopies::quads;
  int blocks = 3;
  int shared_bytes = 0;  // which decides how many copies are under way
  WarpOrder order = WarpOrder::first_to_last;
};
constexpr int kMuchMemory = 1 << 20;

template <class T>
const std::uint16_t* words_of(const test::Array<T>& array) {
  return reinterpret_cast<const std::uint16_t*>(array.vector().data());
}
template <class T>
std::uint16_t* writable_words(const test::Array<T>& array) {
  return reinterpret_cast<std::uint16_t*>(array.vector().data());
}

template <class T>
cuda::DecodeLayer pointers_of(const Layer<T>& layer) {
  return {{words_of(layer.qkv), words_of(layer.projection), words_of(layer.fc1),
           words_of(layer.fc2)},
          {words_of(layer.qkv_bias), words_of(layer.projection_bias),
           words_of(layer.fc1_bias), words_of(layer.fc2_bias)},
          {words_of(layer.norm1_gamma), words_of(layer.norm2_gamma)},
          {words_of(layer.norm1_beta), words_of(layer.norm2_beta)},
          writable_words(layer.k),
          writable_words(layer.v)};
}

template <class T>
cuda::DecodeLayersTask task_of(const Problem<T>& problem,
                               const std::vector<cuda::DecodeLayer>& pointers) {
  const Shape& of = problem.of;
  cuda::DecodeLayersTask task;
  task.layers = pointers.data();
  task.layer_count = static_cast<int>(of.layers);
  task.rows = static_cast<int>(of.rows());
  task.hidden = static_cast<int>(of.hidden);
  task.heads = static_cast<int>(of.heads);
  task.kv_heads = static_cast<int>(of.kv_heads);
  task.head_dim = static_cast<int>(of.head_dim);
  task.ffn = static_cast<int>(of.ffn);
  task.scale = static_cast<float>(of.scale());
  task.epsilon = static_cast<float>(kEpsilon);
  task.per_column = static_cast<float>(1.0 / static_cast<double>(of.hidden));
  task.places = problem.places.vector().data();
  task.lengths = problem.lengths.vector().data();
  task.capacity = static_cast<int>(of.capacity);
  task.longest = static_cast<int>(of.capacity);
  task.x = words_of(problem.x);
  task.y = writable_words(problem.y);
  task.x_leading = task.y_leading = of.hidden;
  return task;
}

// `steps` in a row, each with the x of the first: the sets of words take turns.
template <class T>
Values by_one_launch(const Shape& shape, const Way& way, int steps = 1,
                     double offset = 0) {
  const Problem<T> problem(shape, offset);
  std::vector<cuda::DecodeLayer> pointers;
  for (const Layer<T>& layer : problem.layers) pointers.push_back(pointers_of(layer));
  cuda::DecodeLayersTask task = task_of(problem, pointers);
  task.blocks = way.blocks;
  std::vector<cuda::Quad> words(extent(2 * cuda::words_of_set(task) / 4));
  task.words = reinterpret_cast<std::uint32_t*>(words.data());
  std::int32_t turn = 0;
  task.turn = &turn;
  std::vector<cuda::BoxMap> maps(extent(task.layer_count * cuda::kMatricesOfLayer));
  if (way.copies == WeightCopies::boxes) {
    test::make_emulated_box_maps(task, task.layers, maps.data());
    task.maps = maps.data();
  }
  for (int i = 0; i < steps; ++i) {
    test::emulate_decode_layers(impl::element_of<T>, task, way.shared_bytes, way.order);
    EXPECT_EQ(turn, (i + 1) % 2);
  }
  return problem.values();
}

template <class T>
class CudaDecodeLayersOf : public testing::Test {};
using Types = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(CudaDecodeLayersOf, Types);

TYPED_TEST(CudaDecodeLayersOf, DoWhatTheirLaunchesDo) {
  const std::pair<Shape, Way> cases[] = {
      {{}, {}},
      {{.lengths = {1}}, {.shared_bytes = kMuchMemory}},
      {{.lengths = {64}}, {.order = WarpOrder::last_to_first}},
      {{.lengths = {300}}, {.blocks = 5}},
      {{.layers = 3, .kv_heads = 1, .lengths = {257}}, {.blocks = 1}},
      {{.hidden = 96, .heads = 1, .kv_heads = 1, .head_dim = 96, .lengths = {530}},
       {.shared_bytes = kMuchMemory}},
      {{.heads = 4, .kv_heads = 2, .head_dim = 104, .ffn = 72, .lengths = {190}},
       {.blocks = 4}},
      {{.hidden = 328, .head_dim = 40, .ffn = 1000, .lengths = {5}}, {.blocks = 4}},
      {{.places = {3, 0}, .lengths = {70, 0}}, {.shared_bytes = kMuchMemory}},
      {{.places = {1, 4, 0, 2}, .lengths = {257, 64, 1, 513}}, {.blocks = 4}},
      {{.head_dim = 72, .places = {1, 4, 0}, .lengths = {3, 0, 65}}, {.blocks = 2}},
  };
  for (const auto& [shape, way] : cases) {
    const Values by_quads = by_one_launch<TypeParam>(shape, way);
    expect_close<TypeParam>(by_quads, by_launches<TypeParam>(shape), shape);
    Way by_boxes = way;
    by_boxes.copies = WeightCopies::boxes;
    EXPECT_EQ(by_one_launch<TypeParam>(shape, by_boxes), by_quads);
  }
}

// Of rows far from zero, whose variance is found in a second pass.
TYPED_TEST(CudaDecodeLayersOf, RowsFarFromZero) {
  const Shape shape{.layers = 1};
  expect_close<TypeParam>(by_one_launch<TypeParam>(shape, {}, 1, 100),
                          by_launches<TypeParam>(shape, 100), shape);
}

// The words of a step are cleared by the next one.
TYPED_TEST(CudaDecodeLayersOf, StepsOneAfterTheOther) {
  const Shape shape{.layers = 1};
  for (const WeightCopies copies : {WeightCopies::quads, WeightCopies::boxes}) {
    const Way way{.copies = copies, .blocks = 4};
    EXPECT_EQ(by_one_launch<TypeParam>(shape, way, 3),
              by_one_launch<TypeParam>(shape, way));
  }
}

// A text has the same bits whatever others are there, and however many copies are under
// way.
TYPED_TEST(CudaDecodeLayersOf, TextsDoNotDependOnOthers) {
  const Shape several{.places = {1, 4, 0, 2}, .lengths = {257, 64, 1, 513}};
  const Shape one{.places = {1}, .lengths = {257}};
  const Way way{.blocks = 4};
  const Values of_several = by_one_launch<TypeParam>(several, way);
  const Values of_one =
      by_one_launch<TypeParam>(one, {.blocks = 4, .shared_bytes = kMuchMemory});
  for (index_t i = 0; i < one.hidden; ++i) EXPECT_EQ(of_several[i], of_one[i]);
}

// Each block has a row of every matrix, and none has more than it has room for.
TEST(CudaDecodeLayers, Blocks) {
  const auto most = [](int hidden, int ffn, int heads, int multiprocessors) {
    cuda::DecodeLayersTask task;
    task.hidden = hidden;
    task.ffn = ffn;
    task.heads = task.kv_heads = heads;
    task.head_dim = 8;
    return cuda::most_blocks(task, multiprocessors);
  };
  // Eights of rows for each; not where that leaves many multiprocessors without a block.
  EXPECT_EQ(most(768, 3072, 96, 132), 96);
  EXPECT_EQ(most(1536, 6144, 192, 132), 96);
  EXPECT_EQ(most(1024, 4096, 128, 108), 108);
  EXPECT_EQ(most(776, 3072, 97, 132), 97);
  EXPECT_EQ(most(64, 3072, 8, 132), 64);
  EXPECT_EQ(most(768, 40, 8, 132), 32);
  EXPECT_EQ(most(768, 3072, 1, 132), 24);
  EXPECT_EQ(most(768, 256 * 132, 8, 132), 132);
  EXPECT_EQ(most(768, 256 * 132 + 1, 8, 132), 0);
  EXPECT_EQ(most(768, 3072, 96, 0), 0);
}

}  // namespace
}  // namespace trireme::kernels
