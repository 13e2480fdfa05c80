// Whose kernels attention is computed by: what decides it, what is said of it, and that
// an evaluation does as its run.
#include "step/attention_choice.hpp"

#include <gmock/gmock.h>

#include "base/exec.hpp"
#include "comm/self_communicator.hpp"
#include "config/load.hpp"
#include "step/deck_model.hpp"

namespace trireme::step {
namespace {

using config::AttentionKernels;
using kernels::AttentionLibrary;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A run, a build and a machine that have all of it.
AttentionFacts whole() {
  AttentionFacts facts;
  facts.is_narrow = facts.has_cudnn_heads = facts.has_cudnn_masks = true;
  facts.has_cudnn = facts.is_proven = facts.is_found = true;
  return facts;
}

TEST(AttentionChoice, IsCudnnsWhereAllOfItHolds) {
  EXPECT_TRUE(wants_cudnn(whole()));
  EXPECT_TRUE(takes_cudnn(whole()));
}

TEST(AttentionChoice, IsOwnWhereOneThingIsMissing) {
  AttentionFacts dropping = whole();
  dropping.has_dropout = true;
  EXPECT_FALSE(wants_cudnn(dropping));
  EXPECT_FALSE(takes_cudnn(dropping));
  for (bool AttentionFacts::*fact :
       {&AttentionFacts::is_narrow, &AttentionFacts::has_cudnn_heads,
        &AttentionFacts::has_cudnn_masks, &AttentionFacts::has_cudnn,
        &AttentionFacts::is_proven}) {
    AttentionFacts facts = whole();
    facts.*fact = false;
    EXPECT_FALSE(wants_cudnn(facts));
    EXPECT_FALSE(takes_cudnn(facts));
    EXPECT_THAT(own_attention_note(facts, "no such file"), IsEmpty());
  }
}

TEST(AttentionChoice, IsOwnAndSaysSoWhereTheLibraryIsNotHere) {
  AttentionFacts facts = whole();
  EXPECT_THAT(own_attention_note(facts, ""), IsEmpty());
  facts.is_found = false;
  EXPECT_TRUE(wants_cudnn(facts));
  EXPECT_FALSE(takes_cudnn(facts));
  EXPECT_THAT(own_attention_note(facts, "libcudnn.so.9: no such file"),
              AllOf(HasSubstr("Trireme's own kernels"), HasSubstr("(libcudnn.so.9: no"),
                    HasSubstr("pip install nvidia-cudnn"), HasSubstr("LD_LIBRARY_PATH"),
                    HasSubstr("precision.attention: own")));
}

TEST(AttentionChoice, IsOwnAndSaysSoWhereCudnnTakesTooMuch) {
  AttentionFacts facts = whole();
  facts.scratch_bytes = kMostCudnnScratch;
  EXPECT_TRUE(wants_cudnn(facts));
  EXPECT_TRUE(takes_cudnn(facts));
  EXPECT_THAT(own_attention_note(facts, ""), IsEmpty());
  ++facts.scratch_bytes;
  EXPECT_FALSE(wants_cudnn(facts));
  EXPECT_FALSE(takes_cudnn(facts));
  EXPECT_THAT(own_attention_note(facts, ""),
              AllOf(HasSubstr("Trireme's own kernels"), HasSubstr("up to 2,049 MiB"),
                    HasSubstr("the 2,048 MiB that they may"),
                    HasSubstr("precision.attention: cudnn"),
                    HasSubstr("run.deterministic: false")));
  // It says nothing where attention would be own whatever that took, or was named.
  facts.is_proven = false;
  EXPECT_THAT(own_attention_note(facts, ""), IsEmpty());
  facts.is_proven = true;
  facts.asked = AttentionKernels::own;
  EXPECT_THAT(own_attention_note(facts, ""), IsEmpty());
  facts.asked = AttentionKernels::cudnn;
  EXPECT_TRUE(takes_cudnn(facts));
  EXPECT_THAT(own_attention_note(facts, ""), IsEmpty());
}

TEST(AttentionChoice, IsWhatTheDeckNames) {
  AttentionFacts own = whole();
  own.asked = AttentionKernels::own;
  EXPECT_FALSE(wants_cudnn(own));
  EXPECT_FALSE(takes_cudnn(own));
  // What it lacks is an error where it is looked for.
  AttentionFacts cudnn;
  cudnn.asked = AttentionKernels::cudnn;
  EXPECT_TRUE(takes_cudnn(cudnn));
  EXPECT_THAT(own_attention_note(cudnn, "no such file"), IsEmpty());
}

TEST(AttentionChoice, HasNames) {
  EXPECT_EQ(name_of_attention(AttentionLibrary::own, ""), "own kernels");
  EXPECT_EQ(name_of_attention(AttentionLibrary::cudnn, "9.19.0"),
            "cuDNN 9.19.0 (deterministic)");
  EXPECT_EQ(name_of_attention(AttentionLibrary::cudnn_in_any_order, "9.19.0"),
            "cuDNN 9.19.0 (sums in any order)");
  EXPECT_EQ(name_of_attention(AttentionLibrary::cudnn, ""), "cuDNN (deterministic)");
}

TEST(AttentionChoice, RanksThatDifferAreNamed) {
  const WayWords words{"the ranks differ", "one way for all"};
  EXPECT_THAT(ways_of({"own kernels", "own kernels"}, {"a", "b"}, words).warning,
              IsEmpty());
  const ProductWays ways =
      ways_of({"own kernels", "cuDNN 9.19.0 (deterministic)"}, {"a", "b"}, words);
  EXPECT_EQ(ways.names, "cuDNN 9.19.0 (deterministic), own kernels");
  EXPECT_THAT(ways.warning,
              AllOf(HasSubstr("the ranks differ: "), HasSubstr("rank 1 (on b): cuDNN"),
                    HasSubstr("; one way for all")));
}

config::Deck deck_with(const std::string& precision, const std::string& dropout) {
  return config::parse(
      "model: {layers: 1, hidden: 16, heads: 2, sequence: 8, vocab: 300, "
      "attention_dropout: " +
          dropout + "}\ndata: {train: corpus.h5}\nprecision: {" + precision + "}\n",
      "deck");
}

TEST(AttentionChoice, ReadsTheFactsOfADeck) {
  const AttentionFacts facts = attention_facts(deck_with("compute: bf16", "0"));
  EXPECT_EQ(facts.asked, AttentionKernels::automatic);
  EXPECT_TRUE(facts.is_narrow);
  EXPECT_FALSE(facts.has_dropout);
  EXPECT_TRUE(facts.has_cudnn_heads);  // of 8
  EXPECT_TRUE(facts.has_cudnn_masks);  // causal
  EXPECT_EQ(facts.has_cudnn, kernels::has_cudnn_attention());
  const AttentionFacts other = attention_facts(deck_with("compute: fp32", "0.1"));
  EXPECT_FALSE(other.is_narrow);
  EXPECT_TRUE(other.has_dropout);
  EXPECT_FALSE(other.is_found);
  config::Deck large = deck_with("compute: fp16", "0");
  large.model.head_size = 136;
  EXPECT_TRUE(attention_facts(large).is_narrow);
  EXPECT_FALSE(attention_facts(large).has_cudnn_heads);
  large.model.head_size = 12;
  EXPECT_FALSE(attention_facts(large).has_cudnn_heads);
}

// Padding, and documents in both directions, are not the library's, whatever else holds.
TEST(AttentionChoice, IsOwnForBertAndT5) {
  config::Deck bert = deck_with("compute: bf16", "0");
  bert.model.kind = config::ModelKind::bert;
  bert.model.max_predictions = 2;
  config::Deck packed = bert;
  packed.model.within_documents = true;
  config::Deck t5 = deck_with("compute: bf16", "0");
  t5.model.kind = config::ModelKind::t5;
  t5.model.decoder_layers = 1;
  t5.model.decoder_sequence = 8;
  for (const config::Deck& deck : {bert, packed, t5}) {
    AttentionFacts facts = attention_facts(deck);
    EXPECT_TRUE(facts.is_narrow && facts.has_cudnn_heads && !facts.has_dropout);
    EXPECT_FALSE(facts.has_cudnn_masks);
    facts.has_cudnn = facts.is_proven = facts.is_found = true;
    EXPECT_FALSE(takes_cudnn(facts));
  }
}

std::size_t cudnn_scratch(const config::Deck& deck) {
  return step::cudnn_scratch(model::make_blueprint(deck.model), deck);
}

// Every attention of the model must be for the library, which takes what the largest
// does. One with a padding mask or a bias is not.
TEST(AttentionChoice, IsOneForAllAttentionOfAModel) {
  using kernels::MaskKind;
  const config::Deck deck = deck_with("compute: bf16", "0");
  model::Blueprint blueprint = model::make_blueprint(deck.model);
  const std::size_t alone = step::cudnn_scratch(blueprint, deck);
  blueprint.batch.streams.push_back({"source", 1000});
  auto& attention = blueprint.blocks[1].attention;
  attention.push_back({.heads = 2, .kv_heads = 2, .head_size = 8, .keys = 1});
  EXPECT_EQ(blueprint.attention().size(), 2u);
  EXPECT_TRUE(attention_facts(blueprint, deck).has_cudnn_masks);
  // 2 heads of 128 x 1024 padded queries and keys.
  EXPECT_EQ(step::cudnn_scratch(blueprint, deck), 2 * 128 * (2 * 1024 + 4) + 4096u);
  EXPECT_GT(step::cudnn_scratch(blueprint, deck), alone);
  attention.back().has_bias = true;
  EXPECT_FALSE(attention_facts(blueprint, deck).has_cudnn_masks);
  attention.back().has_bias = false;
  attention.back().mask = MaskKind::padding;
  EXPECT_FALSE(attention_facts(blueprint, deck).has_cudnn_masks);
  EXPECT_TRUE(attention_facts(blueprint, deck).has_cudnn_heads);
  attention.back() = {.heads = 1, .kv_heads = 1, .head_size = 12};
  EXPECT_FALSE(attention_facts(blueprint, deck).has_cudnn_heads);
}

// Of the micro-batch and the heads of one rank, by the formula that memory is planned by.
TEST(AttentionChoice, KnowsWhatCudnnTakesOnARank) {
  config::Deck deck = deck_with("compute: bf16", "0");
  deck.model.heads = deck.model.kv_heads = 32;
  deck.model.head_size = 64;
  deck.model.sequence = 8192;
  const auto too_much = [&] {
    return attention_facts(deck).scratch_bytes > kMostCudnnScratch;
  };
  const auto bytes = [](std::size_t heads, std::size_t length, std::size_t shared) {
    return heads * length * (2 * length + 4 + shared) + 4096;
  };
  EXPECT_EQ(cudnn_scratch(deck), bytes(32, 8192, 0));
  EXPECT_EQ(attention_facts(deck).scratch_bytes, cudnn_scratch(deck));
  EXPECT_TRUE(too_much());
  deck.parallel.tensor = 4;
  EXPECT_EQ(cudnn_scratch(deck), bytes(8, 8192, 0));
  EXPECT_FALSE(too_much());
  deck.batch.micro = 2;
  EXPECT_EQ(cudnn_scratch(deck), bytes(16, 8192, 0));
  EXPECT_TRUE(too_much());
  deck.model.sequence = 8000;  // in tiles of 128: 8064
  EXPECT_EQ(cudnn_scratch(deck), bytes(16, 8064, 0));
  EXPECT_FALSE(too_much());
  // Heads that share keys have gradients of their own first.
  deck.model.kv_heads = 8;
  EXPECT_EQ(cudnn_scratch(deck), bytes(16, 8064, 4 * 64));
  // With sums in any order it does not grow with the square of the length, but is not
  // nothing.
  deck.run.deterministic = false;
  EXPECT_EQ(cudnn_scratch(deck), std::size_t{16} * 8064 * (8 * 64 + 4 + 4 * 64) + 4096);
  EXPECT_FALSE(too_much());
  deck.batch.micro = 64;
  EXPECT_TRUE(too_much());
}

// The largest deck that is none too large to be read.
TEST(AttentionChoice, CountsBeyondAnyMemory) {
  config::Deck deck = deck_with("compute: bf16", "0");
  deck.model.heads = deck.model.kv_heads = index_t{1} << 20;
  deck.model.sequence = index_t{1} << 26;
  deck.batch.micro = index_t{1} << 24;
  EXPECT_EQ(cudnn_scratch(deck), 1'000'000'000'000'000'000U);
}

// The plan and the run ask for the same shape.
TEST(AttentionChoice, IsPartOfTheStep) {
  config::Deck deck = deck_with("compute: bf16, attention: own", "0");
  EXPECT_EQ(step_shape(deck).attention, AttentionLibrary::own);
  deck.precision.attention = AttentionKernels::cudnn;
  EXPECT_EQ(step_shape(deck).attention, AttentionLibrary::cudnn);
  deck.run.deterministic = false;
  EXPECT_EQ(step_shape(deck).attention, AttentionLibrary::cudnn_in_any_order);
  deck = deck_with("compute: bf16", "0");
  EXPECT_EQ(step_shape(deck).attention != AttentionLibrary::own,
            takes_cudnn(attention_facts(deck)));
  EXPECT_EQ(step_shape(deck_with("compute: bf16", "0.1")).attention,
            AttentionLibrary::own);
}

TEST(AttentionChoice, OnHostsIsNoQuestion) {
  if (!kHostExecution) GTEST_SKIP() << "of host cores";
  const auto world = comm::make_self_communicator("world");
  const config::Deck deck = deck_with("compute: bf16", "0");
  EXPECT_EQ(attention_library(deck), AttentionLibrary::own);
  EXPECT_THAT(attention_name(deck), IsEmpty());
  EXPECT_THAT(attention_ways(*world, deck).names, IsEmpty());
  EXPECT_THAT(own_attention_note(deck), IsEmpty());
  EXPECT_THAT(kernels::cudnn_library().version, IsEmpty());
}

TEST(AttentionChoice, OfAnEvaluationIsItsRuns) {
  const config::Deck narrow = deck_with("compute: bf16", "0");
  const auto as_in = [](const config::Deck& run, const config::Deck& deck) {
    return attention_as_in(run, deck) == AttentionKernels::cudnn;
  };
  EXPECT_EQ(as_in(narrow, narrow), takes_cudnn(attention_facts(narrow)));
  EXPECT_FALSE(as_in(deck_with("compute: bf16", "0.1"), narrow));
  EXPECT_FALSE(as_in(deck_with("compute: bf16, attention: own", "0"), narrow));
  EXPECT_FALSE(as_in(narrow, deck_with("compute: fp32", "0")));
  // A run asked for it by name where it was; here it is taken where it is.
  EXPECT_EQ(as_in(deck_with("compute: bf16, attention: cudnn", "0"), narrow),
            kernels::has_cudnn_attention() && !kernels::cudnn_library().version.empty());
}

}  // namespace
}  // namespace trireme::step
