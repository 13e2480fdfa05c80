// What cuDNN says of attention's passes for GPUs that are not there: that it has a plan
// for every shape that Trireme would give it, and takes no more memory than was planned.
//
// The library is told of a GPU by a description. It compiles its kernels for that and
// loads them into a driver that is made for tests (support/fake_cuda_driver.c).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/cudnn_scratch.hpp"
#include "kernels/impl/cudnn_attention.hpp"

namespace trireme::kernels::impl {
namespace {

using Pass = CudnnAttentionShape::Pass;

struct Gpu {
  const char* name;
  int architecture, multiprocessors, shared_bytes, cache_mib;
};

std::string description_of(const Gpu& gpu) {
  return fmt::format(
      R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"multiProcessorCount":{},"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
      R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)"
      R"("pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
      R"("totalGlobalMem":85000000000,"smClockRateKHz":1410000,)"
      R"("memClockRateKHz":1593000,"l2CacheSize":{},"cudaDeviceId":0,)"
      R"("deviceVer":{},"driverVer":13000,"deviceName":"{}"}})",
      gpu.multiprocessors, gpu.shared_bytes, gpu.cache_mib << 20, 10 * gpu.architecture,
      gpu.name);
}

struct Lengths {
  index_t batch, heads, kv_heads, q_length, kv_length;
};
constexpr Lengths kLengths[] = {{1, 1, 1, 2, 2},         {2, 12, 12, 1024, 1024},
                                {1, 16, 4, 2048, 2048},  {3, 5, 5, 77, 77},
                                {3, 8, 2, 333, 1000},    {1, 32, 32, 8192, 8192},
                                {64, 12, 12, 1024, 1024}};

// Heads of one matrix [q | k | v] of (s, b) rows, as layers have them.
CudnnAttentionShape shape_of(const AttentionDesc& desc, Pass pass, DType type) {
  const index_t width = (desc.heads + 2 * desc.kv_heads) * desc.head_dim;
  const HeadStrides qkv{desc.batch * width, width};
  const HeadStrides o{desc.batch * desc.heads * desc.head_dim,
                      desc.heads * desc.head_dim};
  return {.pass = pass,
          .type = type,
          .is_causal = desc.mask == MaskKind::causal,
          .is_deterministic = desc.library == AttentionLibrary::cudnn,
          .batch = desc.batch,
          .q_length = desc.q_length,
          .kv_length = desc.kv_length,
          .heads = desc.heads,
          .kv_heads = desc.kv_heads,
          .head_dim = desc.head_dim,
          .scale = desc.scale,
          .q = qkv,
          .k = qkv,
          .v = qkv,
          .o = o,
          .d_o = o,
          .d_q = qkv,
          .d_k = qkv,
          .d_v = qkv};
}

AttentionDesc desc_of(const Lengths& l, index_t head_dim) {
  return {.batch = l.batch,
          .q_length = l.q_length,
          .kv_length = l.kv_length,
          .heads = l.heads,
          .kv_heads = l.kv_heads,
          .head_dim = head_dim,
          .scale = 0.125};
}

class CudnnPlans : public testing::TestWithParam<Gpu> {
 protected:
  void expect_plan(const AttentionDesc& desc, DType type, Pass pass) {
    SCOPED_TRACE(
        fmt::format("{}: b {} a {} g {} s_q {} s_kv {} d {}, mask {}, {}",
                    pass == Pass::forward ? "forward" : "backward", desc.batch,
                    desc.heads, desc.kv_heads, desc.q_length, desc.kv_length,
                    desc.head_dim, static_cast<int>(desc.mask),
                    desc.library == AttentionLibrary::cudnn ? "one order" : "any order"));
    ASSERT_TRUE(is_for_cudnn(type, desc));
    const CudnnAttention plan(*cudnn_, shape_of(desc, pass, type));
    const std::size_t planned =
        pass == Pass::forward
            ? kCudnnForwardBytes
            : cudnn_scratch_bytes(desc, desc.library == AttentionLibrary::cudnn);
    EXPECT_LE(plan.workspace_bytes(), planned);
    largest_share_ =
        std::max(largest_share_, static_cast<double>(plan.workspace_bytes()) /
                                     static_cast<double>(planned));
  }

  void expect_plans(const Lengths& lengths, index_t head_dim) {
    AttentionDesc desc = desc_of(lengths, head_dim);
    expect_plan(desc, DType::bfloat16, Pass::forward);
    for (const auto library :
         {AttentionLibrary::cudnn, AttentionLibrary::cudnn_in_any_order}) {
      desc.library = library;
      expect_plan(desc, DType::bfloat16, Pass::backward);
    }
  }

  std::unique_ptr<Cudnn> cudnn_ =
      Cudnn::of_description(description_of(GetParam()), GetParam().architecture);
  double largest_share_ = 0.0;
};

TEST_P(CudnnPlans, ExistInTheMemoryThatWasPlanned) {
  expect_plans({2, 12, 12, 1024, 1024}, 64);
  expect_plans({3, 8, 2, 333, 1000}, 128);
  // What is planned is not much more than what is taken.
  EXPECT_GT(largest_share_, 0.99);
}

// Minutes, as the library compiles each.
TEST_P(CudnnPlans, EveryShape) {
  for (const Lengths& lengths : kLengths) {
    for (const index_t head_dim : {64, 80, 96, 128}) expect_plans(lengths, head_dim);
  }
  for (const index_t head_dim : {8, 64, 104}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      AttentionDesc desc = desc_of({3, 5, 5, 77, 77}, head_dim);
      desc.library = AttentionLibrary::cudnn;
      expect_plan(desc, DType::float16, pass);
      desc.mask = MaskKind::none;
      expect_plan(desc, DType::bfloat16, pass);
    }
  }
}

TEST_P(CudnnPlans, AreNotAskedForWhatTheLibraryLacks) {
  AttentionDesc desc = desc_of(kLengths[1], 64);
  EXPECT_TRUE(is_for_cudnn(DType::bfloat16, desc));
  EXPECT_FALSE(is_for_cudnn(DType::float32, desc));
  AttentionDesc dropping = desc;
  dropping.dropout = 0.1;
  EXPECT_FALSE(is_for_cudnn(DType::bfloat16, dropping));
  for (const MaskKind mask : {MaskKind::padding, MaskKind::document, MaskKind::segment}) {
    AttentionDesc masked = desc;
    masked.mask = mask;
    EXPECT_FALSE(is_for_cudnn(DType::bfloat16, masked)) << static_cast<int>(mask);
  }
  const std::int32_t length = 3;
  AttentionDesc padded = desc;
  padded.query_lengths = &length;
  EXPECT_FALSE(is_for_cudnn(DType::bfloat16, padded));
  AttentionDesc biased = desc;
  biased.has_bias = true;
  EXPECT_FALSE(is_for_cudnn(DType::bfloat16, biased));
  AttentionDesc short_one = desc;
  short_one.q_length = 1;
  EXPECT_FALSE(is_for_cudnn(DType::bfloat16, short_one));
  for (const index_t head_dim : {60, 136}) {
    AttentionDesc other = desc;
    other.head_dim = head_dim;
    EXPECT_FALSE(is_for_cudnn(DType::bfloat16, other)) << head_dim;
  }
}

INSTANTIATE_TEST_SUITE_P(
    CudnnPlansOfGpus, CudnnPlans,
    testing::Values(Gpu{"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 40},
                    Gpu{"NVIDIA H100 80GB HBM3", 90, 132, 232448, 50}),
    [](const auto& info) { return "Sm" + std::to_string(info.param.architecture); });

TEST(CudnnPlansLibrary, HasAVersion) {
  EXPECT_TRUE(has_cudnn_attention());
  EXPECT_EQ(cudnn_library().version.substr(0, 2), "9.");
  EXPECT_EQ(cudnn_library().problem, "");
}

TEST(CudnnPlansDescription, ThatIsNoneIsRefused) {
  EXPECT_THROW(Cudnn::of_description("{}", 90), Error);
}

}  // namespace
}  // namespace trireme::kernels::impl
