// What each kernel says it costs, on odd sizes, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <string>

#include "kernels/activation.hpp"
#include "kernels/adamw.hpp"
#include "kernels/attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/embedding_runs.hpp"
#include "kernels/initialize.hpp"
#include "kernels/narrow_gemm.hpp"
#include "kernels/norm.hpp"
#include "kernels/reductions.hpp"
#include "kernels/residual_norm.hpp"

namespace trireme::kernels {
namespace {

template <class T>
View1<T> vector(index_t n) {
  return View1<T>(nullptr, extent(n));
}
template <class T>
View2<T> matrix(index_t rows, index_t columns) {
  return View2<T>(nullptr, extent(rows), extent(columns));
}

class Costs : public testing::Test {
 protected:
  // One call of trireme::kernels::<label> with these costs, since the last look.
  void expect(const std::string& label, double flops, index_t bytes,
              double masked_flops = 0) {
    const KernelTally found = tally_.kernel(("trireme::kernels::" + label).c_str());
    EXPECT_EQ(found.calls, 1) << label;
    EXPECT_EQ(found.cost.flops, flops) << label;
    EXPECT_EQ(found.cost.masked_flops, masked_flops) << label;
    EXPECT_EQ(found.cost.bytes, bytes) << label;
  }
  void forget() { tally_ = {}; }

  Tally tally_;
  Exec exec_ = Exec::shape_only(tally_);
};

// (3, 5) = (3, 7) (7, 5): 2 * 3 * 5 * 7 = 210 FLOPs, 21 + 35 elements read.
TEST_F(Costs, Gemm) {
  gemm<float, float>(exec_, Transpose::no, Transpose::no, Accumulate::no,
                     matrix<const float>(3, 7), matrix<const float>(7, 5),
                     matrix<float>(3, 5));
  expect("gemm", 210, 4 * (21 + 35 + 15));
  forget();
  linear_backward_weight<bf16>(exec_, matrix<const bf16>(7, 3), matrix<const bf16>(7, 5),
                               Accumulate::yes, matrix<float>(3, 5));
  expect("gemm", 210, 2 * (21 + 35) + 4 * 2 * 15);
  gemm_reference<float, float>(exec_, Transpose::no, Transpose::yes, Accumulate::yes,
                               matrix<const float>(3, 7), matrix<const float>(5, 7),
                               matrix<float>(3, 5));
  expect("gemm_reference", 210, 4 * (21 + 35 + 2 * 15));
  forget();
  gemm<float, float>(exec_, Transpose::no, Transpose::no, Accumulate::no,
                     matrix<const float>(0, 7), matrix<const float>(7, 5),
                     matrix<float>(0, 5));
  EXPECT_TRUE(tally_.kernels().empty()) << "an empty product is no call";
}

// (37, 64) = (37, 5) (64, 5)^T with its bias, and GeLU of a z that is kept.
TEST_F(Costs, ForwardWithEpilogue) {
  const auto forward = [&]<class T>(T) {
    forget();
    linear_forward<T>(exec_, matrix<const T>(37, 5),
                      WeightOperand<T>(matrix<const T>(64, 5)),
                      {.bias = vector<const T>(64),
                       .activation = Activation::gelu_tanh,
                       .pre_activation = matrix<T>(37, 64)},
                      matrix<T>(37, 64));
    return 2.0 * 37 * 64 * 5;
  };
  const index_t operands = 37 * 5 + 64 * 5, c = 37 * 64;
  // The same in two, or all in one: on a host always, where the type is not double and
  // the product is not oneDNN's. On a GPU the product of 16 bits has the bias, and GeLU
  // is a pass by itself.
  const bool is_librarys = product_instructions(exec_, DType::bfloat16) == "AVX-512 BF16";
  const auto expect_either = [&](double flops, index_t size) {
    if (!kHostExecution && size == 2) {
      expect("linear_forward[fused]", flops, size * (operands + c + 64));
      expect("apply_epilogue", 0, size * 2 * c);
    } else if (tally_.kernel("trireme::kernels::apply_epilogue").calls > 0) {
      EXPECT_TRUE(!kHostExecution || size == 8 || (size == 2 && is_librarys));
      expect("gemm", flops, size * (operands + c));
      expect("apply_epilogue", 0, size * (3 * c + 64));
    } else {
      expect("linear_forward[fused]", flops, size * (operands + 2 * c + 64));
    }
  };
  expect_either(forward(1.0), 8);
  expect_either(forward(1.0f), 4);
  expect_either(forward(bf16{}), 2);
  expect_either(forward(fp16{}), 2);
}

// 2 samples, 3 heads of 5 in 1 of keys, 7 queries of 7 keys: one product is
// 2 * (2 * 3 * 7) * 7 * 5 = 2940 FLOPs. 210 elements in q, 70 in k, 42 in lse.
TEST_F(Costs, Attention) {
  AttentionDesc desc{.batch = 2,
                     .q_length = 7,
                     .kv_length = 7,
                     .heads = 3,
                     .kv_heads = 1,
                     .head_dim = 5,
                     .mask = MaskKind::causal};
  const auto forward = [&] {
    forget();
    attention_forward<bf16>(exec_, desc, {}, {}, {}, {}, {}, vector<float>(42));
  };
  forward();
  expect("attention_forward", 2 * 2940, 2 * (2 * 210 + 2 * 70) + 4 * 42, 2940);
  desc.mask = MaskKind::none;
  forward();
  expect("attention_forward", 2 * 2940, 2 * (2 * 210 + 2 * 70) + 4 * 42);
  // Of 9 keys in a cache 7 queries see 2 and a triangle: 7 * 7 / 2 scores are hidden.
  desc.mask = MaskKind::causal;
  desc.kv_length = 9;
  forward();
  expect("attention_forward", 2 * 3780, 2 * (2 * 210 + 2 * 90) + 4 * 42, 2940);

  desc.kv_length = 7;
  attention_backward<bf16>(exec_, desc, {}, {}, {}, {}, {}, vector<const float>(42), {},
                           vector<float>(attention_backward_scratch_elements<bf16>(desc)),
                           {}, {}, {});
  expect("attention_backward[delta]", 0, 2 * 2 * 210 + 4 * 42);
  if (kHostExecution) {
    expect("attention_backward", 4 * 2940, 2 * (3 * 210 + 4 * 70) + 4 * 2 * 42, 5880);
  } else {
    expect("attention_backward[kv]", 3 * 2940, 2 * (2 * 210 + 4 * 70) + 4 * 2 * 42, 4410);
    expect("attention_backward[q]", 2940, 2 * (3 * 210 + 2 * 70) + 4 * 2 * 42, 1470);
  }
}

// 5 rows of 7.
TEST_F(Costs, Rows) {
  const auto x = matrix<const float>(5, 7);
  const auto y = matrix<float>(5, 7);
  const auto of_column = vector<const float>(7);
  const auto of_row = vector<const float>(5);
  norm_forward<float>(exec_, NormKind::layernorm, x, of_column, of_column, 1e-5, y,
                      vector<float>(5), vector<float>(5));
  expect("layer_norm_forward", 0, 4 * (2 * 35 + 2 * 7 + 2 * 5));
  norm_backward_input<float>(exec_, NormKind::layernorm, x, x, of_column, of_row, of_row,
                             {}, y);
  expect("layer_norm_backward_input", 0, 4 * (3 * 35 + 7 + 2 * 5));
  forget();
  norm_backward_input<float>(exec_, NormKind::layernorm, x, x, of_column, of_row, of_row,
                             x, y);
  expect("layer_norm_backward_input", 0, 4 * (4 * 35 + 7 + 2 * 5));
  activation_forward<float>(exec_, Activation::gelu_tanh, x, y);
  expect("gelu_forward", 0, 4 * 2 * 35);
  activation_backward<float>(exec_, Activation::gelu_tanh, x, x, y, matrix<float>(1, 7));
  expect("gelu_backward", 0, 4 * (3 * 35 + 7));
  activation_backward<float>(exec_, Activation::gelu_erf, x, x, y, {});
  expect("gelu_erf_backward", 0, 4 * 3 * 35);
  const auto pair = matrix<float>(5, 14);
  gated_forward<float>(exec_, Activation::relu, pair, y);
  expect("gated_forward[relu]", 0, 4 * 3 * 35);
  gated_backward<float>(exec_, Activation::gelu_tanh, x, pair, pair);
  expect("gated_backward[gelu]", 0, 4 * 5 * 35);
  norm_forward<float>(exec_, NormKind::rms, x, of_column, {}, 1e-5, y, {},
                      vector<float>(5));
  expect("rms_norm_forward", 0, 4 * (2 * 35 + 7 + 5));
  bias_dropout_add_forward<float>(exec_, {.probability = 0.1}, {}, x, of_column, x, y);
  expect("bias_dropout_add_forward", 0, 4 * (3 * 35 + 7));
  forget();
  bias_dropout_add_forward<float>(exec_, {}, {}, x, {}, {}, y);
  expect("bias_dropout_add_forward", 0, 4 * 2 * 35);
  dropout_backward<float>(exec_, {.probability = 0.1}, {}, x, y);
  expect("dropout_backward", 0, 4 * 2 * 35);
}

// Sums of blocks of at least 16 rows go through memory: 37 rows are 3 blocks.
TEST_F(Costs, SumsOfRows) {
  const auto x = matrix<const float>(37, 7);
  const auto of_row = vector<const float>(37);
  norm_backward_weight<float>(exec_, NormKind::layernorm, x, x, of_row, of_row,
                              vector<float>(norm_scratch_elements(7)), Accumulate::yes,
                              vector<float>(7), vector<float>(7));
  const index_t partial = 4 * 3 * 2 * 7;
  expect("layer_norm_backward_weight[blocks]", 0, 4 * (2 * 259 + 2 * 37) + partial);
  expect("layer_norm_backward_weight[combine]", 0, partial + 4 * 4 * 7);
  sum_rows<float>(exec_, x, vector<float>(sum_rows_scratch_elements(7)), Accumulate::yes,
                  vector<float>(7));
  expect("sum_row_blocks", 0, 4 * 259 + partial / 2);
  expect("add_partials", 0, partial / 2 + 4 * 2 * 7);
  forget();
  sum_rows<float>(exec_, x, vector<float>(sum_rows_scratch_elements(7)), Accumulate::no,
                  vector<float>(7));
  expect("add_partials", 0, partial / 2 + 4 * 7);
  count_non_finite<float>(exec_, vector<const float>(7), View0<std::int64_t>(nullptr));
  expect("count_non_finite", 0, 4 * 7 + 2 * 8);
}

// Fused passes read and write each operand once, and leave 3 blocks of sums of 37 rows.
TEST_F(Costs, FusedRows) {
  const auto x = matrix<const float>(37, 7);
  const auto y = matrix<float>(37, 7);
  const auto of_column = vector<const float>(7);
  const auto of_row = vector<const float>(37);
  const auto sums = matrix<float>(3, 7);
  residual_norm_forward<float>(exec_, NormKind::layernorm, {.probability = 0.1}, {}, x,
                               of_column, x, of_column, of_column, 1e-5, y, y,
                               vector<float>(37), vector<float>(37));
  expect("residual_norm_forward", 0, 4 * (4 * 259 + 3 * 7 + 2 * 37));
  residual_norm_backward<float>(exec_, NormKind::layernorm, {.probability = 0.1}, {}, x,
                                x, of_column, of_row, of_row, x, y, y, {sums, sums},
                                sums);
  expect("residual_norm_backward", 0, 4 * (5 * 259 + 7 + 2 * 37 + 3 * 21));
  forget();
  residual_norm_backward<float>(exec_, NormKind::layernorm, {}, {}, x, x, of_column,
                                of_row, of_row, x, y, {}, {sums, sums}, sums);
  expect("residual_norm_backward", 0, 4 * (4 * 259 + 7 + 2 * 37 + 3 * 21));
  norm_backward<float>(exec_, NormKind::layernorm, x, x, of_column, of_row, of_row, x, y,
                       {sums, sums});
  expect("layer_norm_backward", 0, 4 * (4 * 259 + 7 + 2 * 37 + 2 * 21));
  bias_dropout_add_backward<float>(exec_, {.probability = 0.1}, {}, x, y, sums);
  expect("bias_dropout_add_backward", 0, 4 * (2 * 259 + 21));
  forget();
  bias_dropout_add_backward<float>(exec_, {}, {}, x, {}, sums);
  expect("bias_dropout_add_backward", 0, 4 * (259 + 21));
}

// 5 ids; tables of 3 and of 11 rows of 7.
TEST_F(Costs, Embedding) {
  const auto ids = vector<const std::int32_t>(5);
  embedding_forward<float>(exec_, ids, matrix<const float>(3, 7), 0, Write::overwrite,
                           matrix<float>(5, 7));
  expect("embedding_forward", 0, 4 * (5 + 3 * 7 + 35));
  forget();
  embedding_forward<float>(exec_, ids, matrix<const float>(11, 7), 0, Write::add,
                           matrix<float>(5, 7));
  expect("embedding_forward", 0, 4 * (5 + 35 + 2 * 35));
  embedding_dropout_forward<float>(exec_, {.probability = 0.1}, {}, ids,
                                   matrix<const float>(11, 7), ids,
                                   matrix<const float>(3, 7), matrix<float>(5, 7));
  expect("embedding_dropout_forward", 0, 4 * (2 * 5 + 35 + 3 * 7 + 35));
  if (kHostExecution) {
    embedding_backward<float>(exec_, ids, matrix<const float>(5, 7), 0, {},
                              Accumulate::yes, matrix<float>(3, 7));
    expect("embedding_backward[columns]", 0, 4 * (5 + 35 + 2 * 21));
  }
  embedding_backward_runs<float>(exec_, ids, matrix<const float>(5, 7), 0,
                                 vector<std::int32_t>(10), Accumulate::yes,
                                 matrix<float>(3, 7));
  expect("embedding_backward[order]", 0, 4 * (5 + 10));
  expect("embedding_backward[sum]", 0, 4 * (5 + 10 + 35 + 2 * 21));
}

// 5 rows of 11 logits, of which one column is padding (memory all the same).
TEST_F(Costs, CrossEntropy) {
  const VocabRange range{0, 10};
  const auto logits = matrix<const float>(5, 11);
  const auto labels = vector<const std::int32_t>(5);
  cross_entropy_row_max<float>(exec_, range, logits, vector<float>(5));
  expect("cross_entropy_row_max", 0, 4 * (55 + 5));
  cross_entropy_row_sums<float>(exec_, range, logits, labels, vector<const float>(5),
                                matrix<float>(5, 2));
  expect("cross_entropy_row_sums", 0, 4 * (55 + 5 + 5 + 10));
  cross_entropy_row_max_and_sums<float>(exec_, range, logits, labels, vector<float>(5),
                                        matrix<float>(5, 2));
  expect("cross_entropy_row_max_and_sums", 0, 4 * (55 + 5 + 5 + 10));
  cross_entropy_loss<float>(exec_, vector<const float>(5), matrix<const float>(5, 2),
                            vector<const float>(5), vector<float>(5), vector<double>(2));
  expect("cross_entropy_loss", 0, 4 * (5 + 10 + 5 + 5) + 2 * 2 * 8);
  cross_entropy_backward<float>(exec_, range, {}, {}, labels, vector<const float>(5),
                                vector<const float>(5), matrix<const float>(5, 2),
                                matrix<float>(5, 11));
  expect("cross_entropy_backward", 0, 4 * (5 + 5 + 5 + 10 + 2 * 55));
  cross_entropy_in_place<float>(exec_, range, {}, {}, labels, vector<const float>(5),
                                matrix<float>(5, 11), vector<float>(5),
                                matrix<float>(5, 2));
  expect("cross_entropy_in_place", 0, 4 * (5 + 5 + 5 + 10 + 2 * 55));
}

// 3 chunks of 101 elements together, of which 77 are in the norm.
TEST_F(Costs, AdamW) {
  const auto chunks = vector<const AdamWChunk>(3);
  square_sum_of_chunks<float>(exec_, chunks, 77, vector<const float>(200),
                              vector<double>(6), vector<double>(2));
  const index_t list = 3 * static_cast<index_t>(sizeof(AdamWChunk));
  expect("square_sum_of_chunks[chunks]", 0, list + 4 * 77 + 3 * 2 * 8);
  expect("square_sum_of_chunks[combine]", 0, 3 * 2 * 8 + 2 * 2 * 8);
  adamw<float>(exec_, {}, {}, chunks, 101, vector<const float>(200), vector<float>(200),
               vector<float>(101), vector<float>(101), {});
  expect("adamw", 0, list + 4 * 7 * 101);
  forget();
  adamw<bf16>(exec_, {}, {}, chunks, 101, vector<const float>(200), vector<float>(200),
              vector<float>(101), vector<float>(101), vector<bf16>(200));
  expect("adamw", 0, list + (4 * 7 + 2) * 101);
  forget();
  adamw<bf16, bf16>(exec_, {}, {}, chunks, 101, vector<const bf16>(200),
                    vector<float>(200), vector<float>(101), vector<float>(101),
                    vector<bf16>(200));
  expect("adamw", 0, list + (4 * 6 + 2 * 2) * 101);
  fill<double>(exec_, vector<double>(7), 0.0);
  expect("fill", 0, 8 * 7);
  zero_runs<float>(exec_, {.runs = {{1, 2}, {5, 4}}, .size = 2}, vector<float>(9));
  expect("zero_runs", 0, 4 * 6);
  convert<float, bf16>(exec_, vector<const float>(7), vector<bf16>(7));
  expect("convert", 0, 4 * 7 + 2 * 7);
}

}  // namespace
}  // namespace trireme::kernels
