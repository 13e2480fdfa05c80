// A layer's handle on its parameter: views into the slabs once there are some, null views
// of the right shape before that.
#include <cmath>

#include "kernels/accumulate.hpp"
#include "support/arrays.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme {
namespace {

template <class T>
class ParamRefOf : public ::testing::Test {};
TYPED_TEST_SUITE(ParamRefOf, test::RealTypes);

template <class T>
struct LinearOf {
  ParamRegistry registry;
  ParamBuffer<T> params;
  ParamRef<T> weight{registry, params,
                     ParamSpec{.name = "weight",
                               .shard = split({12, 5}, 0, 4, 1),
                               .init = Initializer::normal(1.0),
                               .decay = true}};
  ParamRef<T> bias{registry, params,
                   ParamSpec{.name = "bias",
                             .shard = split({12}, 0, 4, 1),
                             .init = Initializer::constant(0.5)}};
};

TYPED_TEST(ParamRefOf, KnowsItsParameter) {
  const LinearOf<TypeParam> layer;
  EXPECT_EQ(layer.weight.name(), "weight");
  EXPECT_EQ(layer.bias.index(), 1u);
  EXPECT_EQ(layer.weight.global_shape(), (Shape{12, 5}));
  EXPECT_EQ(layer.weight.local_shape(), (Shape{3, 5}));
  EXPECT_TRUE(layer.weight.spec().decay);
}

TYPED_TEST(ParamRefOf, IsNullUntilThereIsMemory) {
  const LinearOf<TypeParam> layer;
  EXPECT_EQ(layer.weight.matrix().data(), nullptr);
  EXPECT_EQ(layer.weight.matrix().extent(0), 3u);
  EXPECT_EQ(layer.weight.matrix_gradient().data(), nullptr);
  EXPECT_EQ(layer.weight.matrix_gradient().extent(1), 5u);
  EXPECT_EQ(layer.bias.vector().data(), nullptr);
  EXPECT_EQ(layer.bias.vector_gradient().extent(0), 3u);
}

TYPED_TEST(ParamRefOf, ViewsLieInTheSlabs) {
  using T = TypeParam;
  LinearOf<T> layer;
  layer.params.allocate(layer.registry, ParamBuffer<T>::Use::training);
  layer.params.initialize(Exec(), 3);
  EXPECT_EQ(layer.weight.matrix().data(), layer.params.compute_slice(0).data());
  EXPECT_EQ(layer.weight.matrix_gradient().data(),
            layer.params.slab(Slab::gradient).data());
  EXPECT_EQ(layer.bias.vector_gradient().data(),
            layer.params.slab(Slab::gradient).data() + layer.params.offset(1));
  // A second user sees the same memory.
  const ParamRef<T> tied(layer.registry, layer.params, 0);
  EXPECT_EQ(tied.matrix().data(), layer.weight.matrix().data());
  EXPECT_EQ(tied.name(), "weight");
  // Gradients written by one are read in the slab.
  Kokkos::deep_copy(layer.bias.vector_gradient(), Accumulator<T>(2));
  const auto host = Kokkos::create_mirror_view_and_copy(
      Kokkos::HostSpace{}, layer.params.slab(Slab::gradient));
  for (index_t i = 0; i < layer.params.slab_elements(); ++i) {
    const bool is_bias = i >= layer.params.offset(1) && i < layer.params.offset(1) + 3;
    ASSERT_EQ(host(i), is_bias ? 2 : 0) << i;
  }
}

// The first to write a gradient that was forgotten overwrites it, the others add to it,
// through whichever handle; what nobody writes is zeroed.
TYPED_TEST(ParamRefOf, TheFirstToWriteAGradientOverwrites) {
  using T = TypeParam;
  using kernels::Accumulate;
  LinearOf<T> layer;
  layer.params.allocate(layer.registry, ParamBuffer<T>::Use::training);
  const ParamRef<T> tied(layer.registry, layer.params, 0);
  EXPECT_EQ(layer.weight.begin_gradient(), Accumulate::yes);  // of zeros, at first
  for (int step = 0; step < 2; ++step) {
    Kokkos::deep_copy(layer.params.slice(Slab::gradient, 0), Accumulator<T>(2));
    Kokkos::deep_copy(layer.params.slice(Slab::gradient, 1), Accumulator<T>(NAN));
    layer.params.forget_gradients(0);
    EXPECT_EQ(tied.begin_gradient(), Accumulate::no);
    EXPECT_EQ(layer.weight.begin_gradient(), Accumulate::yes);
    layer.params.zero_unwritten_gradients(Exec(), 0);
    EXPECT_EQ(layer.bias.begin_gradient(), Accumulate::yes);
    Kokkos::fence("test");
    const auto host = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace{}, layer.params.slab(Slab::gradient));
    for (index_t i = 0; i < layer.params.slab_elements(); ++i) {
      ASSERT_EQ(host(i), i < 15 ? 2 : 0) << i;
    }
  }
}

// Whoever writes a gradient is given it in its type, and whether to add to it; padding of
// lent memory, and what nobody writes, is zeroed in that type.
TEST(ParamRefNarrow, GradientsAreWrittenInTheirType) {
  LinearOf<bf16> layer;
  layer.params.allocate(layer.registry, ParamBuffer<bf16>::Use::training,
                        {.zero = 2, .parts = 2, .part = 0, .narrow_gradients = true});
  const auto elements = static_cast<std::size_t>(layer.params.slab_elements());
  const test::Array<bf16> memory(elements, 5.0);
  layer.params.lend_gradient(0, memory.vector().data());
  layer.params.forget_gradients(0);
  layer.params.zero_gradient_padding(Exec(), 0);
  int calls = 0;
  for (const kernels::Accumulate want :
       {kernels::Accumulate::no, kernels::Accumulate::yes}) {
    layer.weight.write_matrix_gradient(
        [&]<class G>(kernels::Accumulate got, View2<G> all) {
          EXPECT_EQ(got, want);
          EXPECT_EQ(all.extent(1), 5u);
          EXPECT_TRUE((std::is_same_v<G, bf16>));
          if constexpr (std::is_same_v<G, bf16>) {
            EXPECT_EQ(all.data(), memory.vector().data());
          }
          ++calls;
        });
  }
  EXPECT_EQ(calls, 2);
  layer.params.zero_unwritten_gradients(Exec(), 0);
  layer.bias.write_vector_gradient([&]<class G>(kernels::Accumulate got, View1<G> all) {
    EXPECT_EQ(got, kernels::Accumulate::yes);
    EXPECT_EQ(all.extent(0), 3u);
    EXPECT_EQ(sizeof(G), 2u);
  });
  std::vector<double> want(elements);
  std::fill_n(want.begin(), 15, 5.0);  // of the weight
  EXPECT_EQ(memory.values(), want);
}

// On shapes nobody writes, and every pass counts as one that adds.
TYPED_TEST(ParamRefOf, OnShapesGradientsAreAddedTo) {
  LinearOf<TypeParam> layer;
  layer.params.plan(layer.registry, {});
  layer.params.forget_gradients(0);
  EXPECT_EQ(layer.weight.begin_gradient(), kernels::Accumulate::yes);
}

}  // namespace
}  // namespace trireme
