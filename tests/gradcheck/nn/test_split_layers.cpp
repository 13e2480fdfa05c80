// Layers split over a tensor group: column and row parallel products, heads, vocabulary
// with padding, loss over it.
#include "comm/mpi_communicator.hpp"
#include "gradcheck/nn/layer_gradients.hpp"

namespace trireme::test {
namespace {

std::shared_ptr<comm::Communicator> world() {
  comm::MpiOptions options;
  options.wait = comm::WaitPolicy::yield;
  return comm::make_mpi_world(options);
}

class SplitLayersGradient : public ::testing::TestWithParam<NamedLayer<double>> {};

TEST_P(SplitLayersGradient, OfEverything) {
  const double dropout = GetParam().has_dropout ? 0.3 : 0.0;
  LayerGradients(GetParam(), dropout, world()).expect_right(4);
}

INSTANTIATE_TEST_SUITE_P(SplitLayers, SplitLayersGradient,
                         ::testing::ValuesIn(layers_of_all_kinds<double>()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trireme::test
