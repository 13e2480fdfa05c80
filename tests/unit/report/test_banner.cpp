// The banner: as a user sees it, with everything and with next to nothing.
#include "report/banner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/format.hpp"

namespace trireme::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

BannerInfo example_banner() {
  BannerInfo info;
  info.version = "0.1.0 (4e24dd6-dirty)";
  info.build = {{"trireme", "0.1.0"},       {"git", "4e24dd6-dirty"},
                {"compiler", "GNU 12.2.0"}, {"build_type", "Release"},
                {"flags", "-march=native"}, {"kokkos", "4.7.0 (OpenMP, Serial)"},
                {"mpi", "MPICH 4.0.2"},     {"hdf5", "1.10.8"},
                {"onednn", "2.7.3"},        {"blas", "OpenBLAS 0.3.21"}};
  info.parameters = 13942272;
  config::Deck& deck = info.deck;
  deck.model.layers = 6;
  deck.model.hidden = 384;
  deck.model.heads = 6;
  deck.model.head_size = 64;
  deck.model.sequence = 256;
  deck.model.vocab = 8192;
  info.machine = {.host = "node01",
                  .cpu = "Intel Xeon Platinum 8481C",
                  .isa = "AVX-512, AMX",
                  .cores = 2,
                  .threads = 2,
                  .memory_bytes = std::int64_t{24} << 30,
                  .backend = "OpenMP",
                  .device = ""};
  info.gemm_tflops = 0.271;
  info.corpora = {{"data/kjv.h5", 6.943}};
  info.corpus_tokens = 1180000;
  info.validation = {{"held out", 24100}, {"news", 1}};
  deck.batch.micro = 8;
  deck.batch.global = 32;
  deck.run.steps.steps = 1000;
  deck.run.dir = "runs/quickstart";
  deck.checkpoint.dir = "runs/quickstart/checkpoints";
  deck.checkpoint.every.steps = 500;
  return info;
}

TEST(Banner, AsAUserSeesIt) {
  EXPECT_EQ(
      banner(example_banner()),
      "Trireme 0.1.0 (4e24dd6-dirty): training a GPT\n"
      "  model       13.9M parameters, 6 layers, hidden 384, 6 heads, sequence 256,\n"
      "              vocabulary 8192\n"
      "  grid        1 rank, 2 threads per rank\n"
      "  machine     node01, Intel Xeon Platinum 8481C, AVX-512, AMX, 2 cores,\n"
      "              24.0 GiB, Kokkos OpenMP\n"
      "  build       GNU 12.2.0, Kokkos 4.7.0 (OpenMP, Serial), MPICH 4.0.2,\n"
      "              HDF5 1.10.8, oneDNN 2.7.3, OpenBLAS 0.3.21\n"
      "  precision   fp32, GEMM peak 271 GFLOP/s (measured)\n"
      "  corpus      data/kjv.h5, 1.18M tokens to train on\n"
      "  validation  held out: 24.1k tokens, news: 1 token\n"
      "  batch       32 samples, 8,192 tokens, micro-batches of 8\n"
      "  steps       1,000, 8.19M tokens, 6.94 epochs\n"
      "  run         runs/quickstart\n"
      "  checkpoints runs/quickstart/checkpoints, every 500 steps\n");
}

TEST(Banner, ManyRanksAndAResumption) {
  BannerInfo info = example_banner();
  info.deck.parallel.tensor = 2;
  info.deck.parallel.pipeline = 4;
  info.hosts = 2;
  info.first_step = 400;
  info.deck.run.time_limit = 7200.0;
  info.wait_policy = "yield";
  const std::string text = banner(info);
  EXPECT_THAT(text, HasSubstr("8 ranks, 2 hosts, tensor 2 x context 1"));
  EXPECT_THAT(text, HasSubstr("400 done before,\n              time limit 2h00m\n"));
}

TEST(Banner, TheDevicesOfRanks) {
  BannerInfo info = example_banner();
  info.bindings = {"2 nodes of 2 ranks of 8 threads: cores 0-7, 8-15"};
  info.devices = {"2 nodes of 2 ranks: GPUs c1:00.0, 81:00.0"};
  EXPECT_THAT(banner(info),
              HasSubstr("cores 0-7, 8-15\n"
                        "  devices     2 nodes of 2 ranks: GPUs c1:00.0, 81:00.0\n"));
}

TEST(Banner, CorporaOfABlendHaveEpochsOfTheirOwn) {
  BannerInfo info = example_banner();
  info.corpora = {{"data/kjv.h5", 6.943}, {"data/web.h5", 0.0104}};
  EXPECT_THAT(banner(info),
              AllOf(HasSubstr("corpus      data/kjv.h5, data/web.h5, 1.18M tokens"),
                    HasSubstr("steps       1,000, 8.19M tokens\n"
                              "  epochs      data/kjv.h5: 6.94, data/web.h5: 0.0104\n")));
}

TEST(Banner, FitsEightyColumns) {
  BannerInfo info = example_banner();
  info.deck.parallel.tensor = info.deck.parallel.pipeline = 16;
  info.deck.parallel.data = 128;
  info.hosts = 4096;
  info.wait_policy = "yield";
  info.machine.cpu = "An Exceptionally Long Processor Name With Sixty-Four Cores 9999X";
  info.parameters = 1008000000000;
  info.corpus_tokens = 3000000000000;
  info.corpora = {{"one/rather/long/path.h5", 2.5},
                  {"another/rather/long/path.h5", 1234.5},
                  {"a/third.h5", 0.000125}};
  std::istringstream text(banner(info));
  for (std::string line; std::getline(text, line);) {
    EXPECT_LE(display_width(line), 80) << line;
  }
}

TEST(Banner, GradientsOfTheirOwnTypeAreSaid) {
  BannerInfo info = example_banner();
  info.deck.precision.compute = config::Precision::bf16;
  info.deck.precision.gradients = config::Gradients::bf16;
  EXPECT_THAT(banner(info), HasSubstr("precision   bf16, gradients bf16, GEMM peak"));
}

TEST(Banner, AttentionIsSaidWhereItIsAQuestion) {
  BannerInfo info = example_banner();
  info.attention = "cuDNN 9.19.0 (deterministic)";
  EXPECT_THAT(banner(info),
              HasSubstr("(measured)\n  attention   cuDNN 9.19.0 (deterministic)\n"));
}

TEST(Banner, WhatIsNotKnownIsLeftOut) {
  BannerInfo info = example_banner();
  info.machine.isa.clear();
  info.machine.memory_bytes = 0;
  info.gemm_tflops = 0.0;
  info.validation.clear();
  info.build.clear();
  const std::string text = banner(info);
  EXPECT_THAT(
      text,
      HasSubstr("machine     node01, Intel Xeon Platinum 8481C, 2 cores, Kokkos OpenMP\n"
                "  precision   fp32\n"
                "  corpus      data/kjv.h5, 1.18M tokens to train on\n"
                "  batch "));
}

}  // namespace
}  // namespace trireme::report
