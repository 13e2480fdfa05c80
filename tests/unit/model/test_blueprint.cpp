// Lists of blocks that contradict themselves are refused, each by its reason.
#include "model/blueprint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "unit/io/scratch.hpp"
#include "unit/model/gpt_pass.hpp"

namespace trireme::model {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void(Blueprint&)>& change) {
  Blueprint blueprint = make_blueprint(test::small_gpt());
  change(blueprint);
  return test::message_of<Error>([&] { blueprint.check(); });
}

TEST(BlueprintCheck, SeesWhatContradictsItself) {
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks[1].reads = {"memory"}; }),
              HasSubstr("reads 'memory', which does not cross"));
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.blocks[0].border.push_back(of.blocks[0].border[0]);
              }),
              HasSubstr("crosses the border behind block 'embedding' twice"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks[1].stream = 1; }),
              HasSubstr("works on stream 1 of 1"));
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.objectives.push_back({.name = "balance", .mask = "loss_mask"});
                of.blocks[1].fields = {"loss_mask"};
                of.blocks[1].objective = 1;
              }),
              HasSubstr("a layer must not"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.objectives[0].mask = "labels"; }),
              HasSubstr("does not read its mask 'labels'"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks[0].objective = 0; }),
              HasSubstr("objective 'loss' is made by 2 blocks; 1 wanted"));
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.blocks[1].reads.clear();
                of.blocks[0].border.clear();
                of.blocks[0].makes.clear();
              }),
              HasSubstr("reads nothing"));
  EXPECT_THAT(
      refusal([](Blueprint& of) { of.blocks[1].gradients_in_forward = true; }),
      HasSubstr("block 'layers/0' takes gradients in its forward pass, but makes no "
                "objective"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.decoded.positions = "places"; }),
              HasSubstr("no field 'places'"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.vocabulary = "no"; }),
              HasSubstr("there is no table 'no'"));
}

TEST(BlueprintCheck, SeesOutputsThatAreNone) {
  const char* const wanted = "a model gives one, of its last block, and has no objective";
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks.back().output = {.columns = 3}; }),
              HasSubstr(wanted));
  const auto give = [](Blueprint& of, std::size_t block, index_t columns) {
    of.objectives.clear();
    of.blocks.back().objective = -1;
    of.blocks.back().gradients_in_forward = false;
    of.blocks.at(block).output = {.columns = columns};
  };
  EXPECT_THAT(refusal([&](Blueprint& of) { give(of, 1, 3); }), HasSubstr(wanted));
  const std::size_t last = make_blueprint(test::small_gpt()).blocks.size() - 1;
  EXPECT_THAT(refusal([&](Blueprint& of) { give(of, last, 0); }), HasSubstr(wanted));
  EXPECT_EQ(refusal([&](Blueprint& of) { give(of, last, 3); }), "(nothing thrown)");
}

TEST(BlueprintUse, OfAGptIsTraining) {
  for (const Use use : {Use::training, Use::text}) {
    EXPECT_EQ(make_blueprint(test::small_gpt(), use).output(), nullptr);
  }
  const auto refusal_of = [](Use use) {
    return test::message_of<InputError>([&] { make_blueprint(test::small_gpt(), use); });
  };
  EXPECT_EQ(
      refusal_of(Use::vectors),
      "the model is of kind gpt, which gives no vectors of texts: it is for trireme "
      "generate, and trireme embed is for models of other kinds");
  EXPECT_THAT(refusal_of(Use::words), HasSubstr("and trireme fill is for models of"));
}

// One text a sample: no pairs, no documents, no loss, and no parameters but those that
// training has, too.
TEST(BlueprintUse, OfABert) {
  const Architecture bert{.kind = ModelKind::bert,
                          .layers = 2,
                          .hidden = 32,
                          .heads = 4,
                          .kv_heads = 4,
                          .ffn_hidden = 128,
                          .sequence = 24,
                          .vocab = 101,
                          .type_vocab_size = 2,
                          .binary_head = true,
                          .max_predictions = 5,
                          .within_documents = true};
  const index_t all = make_blueprint(bert).parameter_count();
  const index_t pairs = 33 * 32 + 33 * 2, words = 33 * 32 + 2 * 32 + 101;
  const Blueprint vectors = make_blueprint(bert, Use::vectors);
  EXPECT_EQ(vectors.output()->output->columns, 2 * 32);
  EXPECT_EQ(vectors.output()->output->per, Per::sample);
  EXPECT_EQ(vectors.parameter_count(), all - pairs - words);
  const Blueprint filled = make_blueprint(bert, Use::words);
  EXPECT_EQ(filled.output()->output->columns, 101);
  EXPECT_EQ(filled.parameter_count(), all - pairs);
  EXPECT_EQ(filled.fields_of(filled.whole()).size(), 5u);
  EXPECT_THAT(test::message_of<InputError>([&] { make_blueprint(bert, Use::text); }),
              HasSubstr("does not continue texts"));
}

// It writes what is left out, as any text that it makes of another.
TEST(BlueprintUse, OfAT5) {
  const Architecture t5{.kind = ModelKind::t5,
                        .layers = 1,
                        .decoder_layers = 1,
                        .hidden = 32,
                        .heads = 4,
                        .kv_heads = 4,
                        .ffn_hidden = 64,
                        .sequence = 24,
                        .decoder_sequence = 12,
                        .vocab = 101};
  const Blueprint words = make_blueprint(t5, Use::words);
  EXPECT_EQ(words.blocks, make_blueprint(t5, Use::text).blocks);
  EXPECT_TRUE(words.decoded.has_source());
  EXPECT_EQ(words.output(), nullptr);
  EXPECT_THAT(test::message_of<InputError>([&] { make_blueprint(t5, Use::vectors); }),
              HasSubstr("gives no vectors of texts"));
}

TEST(BlueprintCheck, SeesFieldsThatDoNotSayWhatTheyHold) {
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.batch.fields.push_back({.name = "pair", .holds = Holds::classes});
              }),
              HasSubstr("field 'pair' is of stream 0"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.batch.fields[1].below = 3; }),
              HasSubstr("field 'positions' is of stream 0"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.batch.fields[0].stream = 1; }),
              HasSubstr("field 'tokens' is of stream 1"));
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.batch.fields.push_back({.name = "again", .holds = Holds::places});
              }),
              HasSubstr("has places or lengths of stream 0, and so has another"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks[1].attention[0].keys = 1; }),
              HasSubstr("products or attention on one that is not there"));
}

// Layers of BERT-base over 128 tokens, and of T5-base's decoder over 114 words and a
// source of 512: 2 FLOPs for each weight and token, 4 of the heads' sizes for each score.
TEST(BlueprintBlockFlops, AreOfTheStreamsThatABlockReads) {
  using kernels::MaskKind;
  const BatchSpec text{.streams = {{"text", 128}, {"predictions", 20}}, .fields = {}};
  const BlockSpec bert{
      .kind = "layer",
      .name = "bert",

      .products = {{.flops = 2 * 12 * 768.0 * 768}},
      .attention = {
          {.heads = 12, .kv_heads = 12, .head_size = 64, .mask = MaskKind::padding}}};
  const double scores = 12.0 * 128 * 128;
  EXPECT_EQ(bert.attention_scores(text), scores);
  EXPECT_EQ(bert.forward_flops(text), 128 * 14155776.0 + 4 * 64 * scores);
  EXPECT_EQ(bert.forward_flops(text, AttentionCount::causal), bert.forward_flops(text));
  // Of its heads, one over the predicted words, and one over a row of each sample.
  const BlockSpec heads{.kind = "head",
                        .name = "heads",
                        .products = {{.flops = 48061440.0, .stream = 1},
                                     {.flops = 1182720.0, .per = Per::sample}}};
  EXPECT_EQ(heads.forward_flops(text), 20 * 48061440.0 + 1182720);
  EXPECT_EQ(heads.attention_flops(text), 0.0);

  const BatchSpec pair{.streams = {{"source", 512}, {"target", 114}}, .fields = {}};
  const double square = 768.0 * 768;
  const BlockSpec t5{.kind = "layer",
                     .name = "t5",
                     .products = {{.flops = 2 * (4 + 2 + 8) * square, .stream = 1},
                                  {.flops = 2 * 2 * square, .stream = 0}},
                     .attention = {{.heads = 12,
                                    .kv_heads = 12,
                                    .head_size = 64,
                                    .mask = MaskKind::causal,
                                    .queries = 1,
                                    .keys = 1},
                                   {.heads = 12,
                                    .kv_heads = 12,
                                    .head_size = 64,
                                    .mask = MaskKind::padding,
                                    .queries = 1,
                                    .keys = 0}}};
  const double products = (28.0 * 114 + 4.0 * 512) * square;
  const double own = 4 * 768.0 * 114 * 114, cross = 4 * 768.0 * 114 * 512;
  EXPECT_EQ(t5.forward_flops(pair), products + own + cross);
  EXPECT_EQ(t5.forward_flops(pair, AttentionCount::causal), products + own / 2 + cross);
  EXPECT_EQ(t5.attention_scores(pair), 12 * (114.0 * 114 + 114.0 * 512));
}

TEST(BlueprintLikes, AreBlocksThatDifferInNameAlone) {
  Blueprint blueprint = make_blueprint(test::small_gpt());
  ASSERT_GE(blueprint.layer_count(), 2);
  EXPECT_TRUE(blueprint.blocks[1].is_like(blueprint.blocks[2]));
  EXPECT_FALSE(blueprint.blocks[0].is_like(blueprint.blocks[1]));
  EXPECT_EQ(blueprint.first_like(2), 1u);
  blueprint.blocks[2].table = "embedding/word";
  EXPECT_EQ(blueprint.first_like(2), 2u);
}

}  // namespace
}  // namespace trireme::model
