// A GPT cut into chunks that hand activations on, and gradients back: the bits of the
// whole model, wherever it is cut; the tied embedding's gradient in two parts.
#include <gmock/gmock.h>

#include <numeric>

#include "base/error.hpp"
#include "unit/model/gpt_pass.hpp"

namespace trireme::model {
namespace {

using test::Gpt;
using test::Pass;
using test::Values;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kWord = "embedding/word/weight";

Architecture three_layers() {
  Architecture config = test::small_gpt();
  config.layers = 3;
  return config;
}

// Chunks with so many layers each.
template <class T>
class Pieces {
 public:
  explicit Pieces(const std::vector<index_t>& split) {
    std::size_t begin = 0;  // blocks: the embedding, three layers, the head
    for (std::size_t g = 0; g < split.size(); ++g) {
      std::size_t end = begin + static_cast<std::size_t>(split[g]);
      if (g == 0) ++end;
      if (g + 1 == split.size()) ++end;
      gpts_.push_back(std::make_unique<Gpt<T>>(three_layers(), BlockRange{begin, end}));
      begin = end;
    }
  }

  // Loss and gradients of two micro-batches.
  Values accumulate(WeightPass weight_pass) {
    Values totals(2);
    for (const index_t first : {3, 5}) {
      std::vector<std::unique_ptr<Pass<T>>> passes;
      for (const auto& gpt : gpts_) {
        passes.push_back(std::make_unique<Pass<T>>(
            *gpt, test::PassShape{
                      .first_sample = first, .batch = 2, .weight_pass = weight_pass}));
        if (passes.size() > 1) {
          Kokkos::deep_copy(passes.back()->input().vector(),
                            passes[passes.size() - 2]->output().vector());
        }
        passes.back()->forward();
      }
      for (std::size_t i = 0; i < 2; ++i) totals[i] += passes.back()->totals()[i];
      for (std::size_t g = passes.size(); g-- > 0;) {
        passes[g]->backward();
        if (g == 0) continue;
        Kokkos::deep_copy(passes[g - 1]->d_output().vector(),
                          passes[g]->d_input().vector());
      }
    }
    return totals;
  }

  // By name; of the word embedding: the sum over those who have one.
  std::map<std::string, Values> gradients() const {
    std::map<std::string, Values> all;
    for (const auto& gpt : gpts_) {
      for (std::size_t p = 0; p < gpt->registry.size(); ++p) {
        const Values values = test::gradient_of(*gpt, p);
        Values& sum = all[gpt->registry.spec(p).name];
        sum.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
      }
    }
    return all;
  }

  const Gpt<T>& operator[](std::size_t g) const { return *gpts_[g]; }
  std::size_t size() const { return gpts_.size(); }

 private:
  std::vector<std::unique_ptr<Gpt<T>>> gpts_;
};

const std::vector<std::vector<index_t>> kSplits = {{2, 1},    {0, 3},    {3, 0},
                                                   {1, 1, 1}, {0, 3, 0}, {0, 1, 1, 1, 0}};

TEST(GptPieces, HaveTheBitsOfTheWhole) {
  Pieces<float> whole({3});
  const Values want = whole.accumulate(WeightPass::now);
  const auto want_gradients = whole.gradients();
  for (const auto& split : kSplits) {
    for (const WeightPass weight_pass : {WeightPass::now, WeightPass::later}) {
      SCOPED_TRACE(fmt::format("{}", fmt::join(split, ", ")));
      Pieces<float> pieces(split);
      EXPECT_EQ(pieces.accumulate(weight_pass), want);
      auto got = pieces.gradients();
      ASSERT_EQ(got.size(), want_gradients.size());
      for (const auto& [name, values] : want_gradients) {
        if (name == kWord) {  // summed in another order
          test::expect_close_in_norm(got[name], values, 1e-6, 1e-3, name);
        } else {
          EXPECT_EQ(got[name], values) << name;
        }
      }
    }
  }
}

// First weights, too, and who owns the embedding that two have.
TEST(GptPieces, HaveTheParametersOfTheWhole) {
  const Pieces<float> whole({3});
  for (const auto& split : kSplits) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(split, ", ")));
    const Pieces<float> pieces(split);
    index_t count = 0;
    for (std::size_t g = 0; g < pieces.size(); ++g) {
      const ParamRegistry& registry = pieces[g].registry;
      count += registry.global_element_count();
      for (std::size_t p = 0; p < registry.size(); ++p) {
        const std::size_t of_whole = whole[0].registry.find(registry.spec(p).name);
        EXPECT_EQ(test::values_of(pieces[g].params.slice(Slab::weight, p)),
                  test::values_of(whole[0].params.slice(Slab::weight, of_whole)));
      }
      const bool is_end = g == 0 || g + 1 == pieces.size();
      ASSERT_EQ(registry.tied().size(), is_end ? 1 : 0);
      if (!is_end) continue;
      const ParamSpec& tied = registry.spec(registry.tied().front());
      EXPECT_EQ(tied.name, kWord);
      EXPECT_EQ(tied.tie, g == 0 ? Tie::owner : Tie::copy);
      // Both cut it alike, whatever else they have.
      const Partition partition(registry, 3, 1 << 20);
      const std::size_t bucket = partition.bucket_of_param(registry.tied().front());
      EXPECT_EQ(partition.buckets()[bucket].part_size, 1024);  // 128 x 24 in three
    }
    EXPECT_EQ(count, whole[0].registry.global_element_count());
  }
}

TEST(GptPieces, SayWhatIsWrong) {
  const auto message = [](const char* text) {
    return ThrowsMessage<Error>(HasSubstr(text));
  };
  const auto piece = [](const BlockRange& range) { Gpt<float>(three_layers(), range); };
  EXPECT_THAT([&] { piece({2, 2}); }, message("with nothing in it"));
  EXPECT_THAT([&] { piece({3, 6}); }, message("blocks 3 to 6 of 5"));
  Gpt<float> last(three_layers(), {2, 5});
  Pass<float> pass(last, {});
  const nn::Context context = pass.context(pass.exec());
  EXPECT_THAT([&] { last.chunk.forward(context, 0, {}, {}); },
              message("blocks layers/1 to head, input: 0 tensors, 1 wanted"));
  Tensors<float> narrow;
  narrow.push_back(View2<float>(static_cast<float*>(nullptr), 13, 23));
  EXPECT_THAT([&] { last.chunk.forward(context, 0, narrow, {}); },
              message("input: 'hidden' of 13 x 23, 13 x 24 wanted"));
  DecodeState<float> state;
  EXPECT_THAT([&] { last.chunk.decode(context, state, {}); },
              message("whole models, not by chunks"));
}

}  // namespace
}  // namespace trireme::model
