// Two tensor ranks: the sum of a layer's input gradients is on its way while the weight
// gradients beside it are computed.
#include <gtest/gtest.h>

#include <string_view>

#include "comm/mpi_communicator.hpp"
#include "nn/transformer_layer.hpp"
#include "unit/nn/layers.hpp"

namespace trireme::test {
namespace {

// Kernels that begin while messages are under way, as long as this lives: Kokkos' own,
// and those of libraries, which are regions to it.
class KernelsBesideMessages {
 public:
  explicit KernelsBesideMessages(const comm::Communicator& world)
      : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    world_ = &world;
    count_ = 0;
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback(
        [](const char*, std::uint32_t, std::uint64_t*) {
          count_ += world_->is_under_way() ? 1 : 0;
        });
    Kokkos::Tools::Experimental::set_push_region_callback([](const char* name) {
      const bool is_kernel = std::string_view(name).starts_with("trireme::kernels::");
      count_ += is_kernel && world_->is_under_way() ? 1 : 0;
    });
  }
  ~KernelsBesideMessages() { Kokkos::Tools::Experimental::set_callbacks(before_); }
  KernelsBesideMessages(const KernelsBesideMessages&) = delete;
  KernelsBesideMessages& operator=(const KernelsBesideMessages&) = delete;
  static int count() { return count_; }

 private:
  static inline const comm::Communicator* world_ = nullptr;
  static inline int count_ = 0;
  Kokkos::Tools::Experimental::EventSet before_;
};

TEST(OverlapOfALayer, WeightGradientsGoBesideTheSum) {
  const auto world = comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
  LayerBench<float> bench(world);
  const nn::TransformerLayer<float> layer(bench.builder(),
                                          nn::layer_form(transformer_config(0.0), 0));
  nn::TransformerLayer<float>::Saved saved;
  nn::TransformerLayer<float>::Held held;
  const auto pass = [&](const nn::Context& context, View2<float> x, View2<float> y,
                        View2<float> d_x, nn::WeightPass weight_pass) {
    layer.forward(context, nn::as_const(x), y, saved);
    layer.backward_input(context, nn::as_const(y), saved, d_x, held, weight_pass);
  };
  bench.allocate([&](const nn::Context& shapes) {
    const View2<float> none(nullptr, kRows, kHidden);
    for (const auto weight_pass : {nn::WeightPass::now, nn::WeightPass::later}) {
      pass(shapes, none, none, none, weight_pass);
    }
  });
  const Array<float> x(uniform(kRows * kHidden, 1)), y(kRows * kHidden),
      d_x(kRows * kHidden);
  const auto kernels = [&](nn::WeightPass weight_pass) {
    bench.spoil_memory();
    const KernelsBesideMessages beside(*world);
    pass(bench.context(), x.matrix(kRows, kHidden), y.matrix(kRows, kHidden),
         d_x.matrix(kRows, kHidden), weight_pass);
    return KernelsBesideMessages::count();
  };
  const int later = kernels(nn::WeightPass::later);
  const int now = kernels(nn::WeightPass::now);
  EXPECT_EQ(later, 0);
  // Of the MLP and of attention two products each, at least.
  EXPECT_GE(now, world->size() > 1 ? 4 : 0);
  EXPECT_FALSE(world->is_under_way());
}

}  // namespace
}  // namespace trireme::test
