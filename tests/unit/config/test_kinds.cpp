// Kinds of models in decks: which keys each has, with which defaults, and what these must
// be to each other. Whether a kind can be trained is not asked here.
#include "config/kinds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/compare.hpp"
#include "config/key_table.hpp"
#include "deck_testing.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> of(ModelKind kind, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {fmt::format("model.kind={}", name_of(kind)),
                                  "model.sequence=512"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
Deck bert_with(const std::vector<std::string>& more) {
  return small_with(of(ModelKind::bert, more));
}
Deck t5_with(const std::vector<std::string>& more) {
  return small_with(of(ModelKind::t5, more));
}

TEST(KindsDefaults, OfGpt) {
  const Deck deck = small_with({});
  const ModelConfig& m = deck.model;
  EXPECT_EQ(m.norm, Norm::layernorm);
  EXPECT_EQ(m.norm_epsilon, 1e-5);
  EXPECT_EQ(m.norm_placement, NormPlacement::pre);
  EXPECT_EQ(m.activation, Activation::gelu_tanh);
  EXPECT_EQ(m.position, Position::learned);
  EXPECT_TRUE(m.bias);
  EXPECT_EQ(m.total_layers(), 4);
  EXPECT_EQ(m.decoder_sequence, 0);
  EXPECT_EQ(m.type_vocab_size, 0);
  EXPECT_FALSE(m.binary_head);
  EXPECT_EQ(m.max_predictions, 0);
}

TEST(KindsDefaults, OfBert) {
  const Deck deck = bert_with({});
  const ModelConfig& m = deck.model;
  EXPECT_EQ(m.norm, Norm::layernorm);
  EXPECT_EQ(m.norm_epsilon, 1e-12);
  EXPECT_EQ(m.norm_placement, NormPlacement::pre);
  EXPECT_EQ(m.activation, Activation::gelu);
  EXPECT_EQ(m.position, Position::learned);
  EXPECT_TRUE(m.bias);
  EXPECT_TRUE(m.tie_embeddings);
  EXPECT_EQ(m.total_layers(), 4);
  EXPECT_EQ(m.type_vocab_size, 2);
  EXPECT_TRUE(m.binary_head);
  EXPECT_EQ(m.max_predictions, 77);
  EXPECT_EQ(bert_with({"model.sequence=128"}).model.max_predictions, 20);
  EXPECT_EQ(deck.data.mask_prob, 0.15);
  EXPECT_EQ(deck.data.short_seq_prob, 0.1);
  EXPECT_TRUE(deck.data.whole_words);
  EXPECT_EQ(deck.data.max_ngrams, 1);
  EXPECT_EQ(deck.data.pairs, Pairs::order);
  EXPECT_FALSE(deck.data.pack);
  EXPECT_FALSE(deck.data.reset_attention_mask);
}

TEST(KindsDefaults, OfT5) {
  const Deck deck = t5_with({});
  const ModelConfig& m = deck.model;
  EXPECT_EQ(m.norm, Norm::rmsnorm);
  EXPECT_EQ(m.norm_epsilon, 1e-6);
  EXPECT_EQ(m.activation, Activation::relu);
  EXPECT_EQ(m.position, Position::relative);
  EXPECT_FALSE(m.bias);
  EXPECT_TRUE(m.tie_embeddings);
  EXPECT_EQ(m.decoder_layers, 4);
  EXPECT_EQ(m.total_layers(), 8);
  EXPECT_EQ(m.decoder_sequence, 114);
  EXPECT_EQ(m.relative_attention_num_buckets, 32);
  EXPECT_EQ(m.relative_attention_max_distance, 128);
  EXPECT_EQ(deck.data.mask_prob, 0.15);
  EXPECT_EQ(deck.data.mean_noise_span_length, 3.0);
  EXPECT_TRUE(deck.data.pack);
}

TEST(KindsDefaults, FollowWhatIsGiven) {
  EXPECT_EQ(t5_with({"model.layers=6"}).model.decoder_layers, 6);
  EXPECT_EQ(t5_with({"model.decoder_layers=2"}).model.total_layers(), 6);
  EXPECT_EQ(t5_with({"data.mask_prob=0.5"}).model.decoder_sequence, 513);
  // T5 v1.1.
  const ModelConfig gated =
      t5_with({"model.activation=geglu_tanh", "model.tie_embeddings=false"}).model;
  EXPECT_TRUE(gated.is_gated());
  EXPECT_FALSE(t5_with({}).model.is_gated());
  // A whole number of tokens is not rounded up to the next.
  EXPECT_EQ(
      bert_with({"data.mask_prob=0.07", "model.sequence=100"}).model.max_predictions, 7);
  // Not more than there is text.
  EXPECT_EQ(
      bert_with({"data.mask_prob=0.999", "model.sequence=16"}).model.max_predictions, 13);
  // ModernBERT's samples.
  const Deck packed =
      bert_with({"model.binary_head=false", "data.pack=true",
                 "data.reset_attention_mask=true", "data.reset_position_ids=true"});
  EXPECT_EQ(packed.data.pairs, Pairs::none);
  EXPECT_EQ(packed.data.short_seq_prob, 0.0);
  EXPECT_EQ(packed.model.norm, Norm::layernorm);
}

// A value that a deck of the kind may give the key.
std::string value_for(const KeyInfo& info) {
  if (info.type == "number") return "0.25";
  if (info.type == "true or false") return "true";
  if (info.type == "word") return info.allowed.substr(0, info.allowed.find(", "));
  return "8";
}

// Each key that not all kinds have, in a deck of each kind.
TEST(KindsKeys, OfAnotherKindAreErrors) {
  int tried = 0;
  for (const Key& key : key_table()) {
    const std::string& path = key.info.path;
    const std::vector<ModelKind> kinds = kinds_with(path);
    for (const ModelKind kind : all_kinds()) {
      if (has_key(kind, path)) continue;
      const std::string value = value_for(key.info);
      SCOPED_TRACE(fmt::format("{}: {} of {}", path, value, name_of(kind)));
      const auto errors = errors_with(of(kind, {path + "=" + value}));
      ASSERT_EQ(errors.size(), 1u) << format_errors(errors);
      EXPECT_EQ(errors[0].key, path);
      EXPECT_EQ(errors[0].value, value);
      EXPECT_EQ(errors[0].place, "--set");
      EXPECT_EQ(errors[0].what, fmt::format("is a key of {}, and model.kind is {}",
                                            kinds_text(kinds), name_of(kind)));
      EXPECT_THAT(errors[0].allowed, StartsWith("model.kind: "));
      EXPECT_EQ(errors[0].fix, "remove " + path);
      ++tried;
    }
    std::string prefix;
    for (const ModelKind kind : kinds) {
      prefix += fmt::format("{}{}", prefix.empty() ? "" : ", ", name_of(kind));
    }
    EXPECT_EQ(key.info.description.starts_with(prefix + ": "),
              kinds.size() < all_kinds().size())
        << path;
  }
  EXPECT_GE(tried, 30);
  EXPECT_EQ(errors_with({"model.decoder_layers=2"}).at(0).what,
            "is a key of t5, and model.kind is gpt");
  EXPECT_EQ(errors_with({"data.mask_prob=0.2"}).at(0).allowed, "model.kind: bert or t5");
}

// A deck that gives them below the kind that it names, and one whose kind is not known.
TEST(KindsKeys, AreOfTheKindThatHolds) {
  const std::string text =
      "data: {train: corpus.h5, pairs: next}\n"
      "model: {layers: 4, hidden: 64, heads: 4, sequence: 128, vocab: 211, kind: bert}\n";
  EXPECT_THAT(errors_of(text), IsEmpty());
  const auto as_t5 = errors_of(text, {{"model.kind=t5"}, "", 0});
  ASSERT_EQ(as_t5.size(), 1u);
  EXPECT_EQ(as_t5[0].place, "test.yaml:1");
  const auto unknown = errors_of(text, {{"model.kind=brt"}, "", 0});
  ASSERT_EQ(unknown.size(), 1u) << format_errors(unknown);
  EXPECT_EQ(unknown[0].key, "model.kind");
  EXPECT_THAT(unknown[0].fix, HasSubstr("bert"));
  // Its own mistakes are said all the same.
  EXPECT_EQ(errors_of(text, {{"model.kind=brt", "data.pairs=some"}, "", 0}).size(), 2u);
}

TEST(KindsKeys, AreWrittenForTheirKinds) {
  for (const ModelKind kind : all_kinds()) {
    SCOPED_TRACE(name_of(kind));
    const Deck deck = small_with(of(kind));
    const std::string text = resolved_text(deck);
    for (const Key& key : key_table()) {
      const std::string& path = key.info.path;
      if (path == "parallel.split") continue;  // stages say it
      EXPECT_EQ(key.write(deck).empty(), !has_key(kind, path)) << path;
    }
    EXPECT_EQ(resolved_text(parse_resolved(text)), text);
  }
  EXPECT_THAT(resolved_text(bert_with({})),
              HasSubstr("  norm_epsilon: 1e-12\n  norm_placement: pre\n"));
  EXPECT_THAT(resolved_text(t5_with({})), Not(HasSubstr("init_std")));
}

TEST(KindsKeys, HaveTheNamesOfOthers) {
  const auto meant = [](const std::string& path) {
    return errors_with({path + "=1"}).at(0).fix;
  };
  EXPECT_EQ(meant("model.num_decoder_layers"), "model.decoder_layers");
  EXPECT_EQ(meant("model.layer_norm_eps"), "model.norm_epsilon");
  EXPECT_EQ(meant("data.noise_density"), "data.mask_prob");
  EXPECT_EQ(meant("parallel.pipeline_model_parallel_split_rank"), "parallel.split");
}

struct Case {
  ModelKind kind;
  std::vector<std::string> overrides;
  std::string key, what, allowed, fix;
};

const std::vector<Case>& cases() {
  using enum ModelKind;
  static const std::vector<Case> all = {
      // sequences shorter than their special tokens
      {bert,
       {"model.sequence=4"},
       "model.sequence",
       "is too short for [CLS] token [SEP] token [SEP], the shortest sample",
       "at least 5",
       "model.sequence: 5"},
      {bert,
       {"model.sequence=2", "model.binary_head=false"},
       "model.sequence",
       "is too short for [CLS] token [SEP], the shortest sample",
       "at least 3",
       "model.sequence: 3"},
      {t5,
       {"model.sequence=2"},
       "model.sequence",
       "is too short for a token, a sentinel and the end of the text",
       "at least 3",
       "model.sequence: 3"},
      {t5,
       {"model.decoder_sequence=113"},
       "model.decoder_sequence",
       "is too short for what the corruption makes: of 568 tokens, which fill "
       "model.sequence (512), 85 are noise in 28 spans, with a sentinel each and the end "
       "114 positions",
       "at least 114",
       "model.decoder_sequence: 114"},
      {bert,
       {"model.max_predictions=510"},
       "model.max_predictions",
       "is more than the 509 tokens of a sample that may be masked: 3 of model.sequence "
       "(512) are [CLS] and [SEP]",
       "1 to 509",
       "model.max_predictions: 509"},
      // pairs of segments, the head that judges them, and their types
      {bert,
       {"data.pairs=none"},
       "model.binary_head",
       "is to say how pairs of segments were made; data.pairs is none",
       "false without pairs",
       "model.binary_head: false, or data.pairs: order"},
      {bert,
       {"model.binary_head=false", "data.pairs=next"},
       "data.pairs",
       "no head is to say how: model.binary_head is false",
       "none without model.binary_head",
       "data.pairs: none, or model.binary_head: true"},
      {bert,
       {"model.type_vocab_size=1"},
       "model.type_vocab_size",
       "leaves the second segment without a type; data.pairs is order",
       "0, or at least 2",
       "model.type_vocab_size: 2"},
      // packed samples
      {bert,
       {"data.pack=true"},
       "data.pack",
       "makes samples of one segment, across documents; data.pairs is order",
       "false with pairs",
       "data.pack: false, or model.binary_head: false and data.pairs: none"},
      {bert,
       {"data.pack=true", "model.binary_head=false", "data.short_seq_prob=0.1"},
       "data.short_seq_prob",
       "makes samples shorter; with data.pack all are full",
       "0 with data.pack",
       "data.short_seq_prob: 0"},
      {bert,
       {"data.reset_attention_mask=true"},
       "data.reset_attention_mask",
       "is about the documents of a packed sample; data.pack is false",
       "false without data.pack",
       "data.reset_attention_mask: false"},
      {bert,
       {"data.reset_position_ids=true"},
       "data.reset_position_ids",
       "is about the documents of a packed sample",
       "false without data.pack",
       "data.reset_position_ids: false"},
      // relative positions
      {t5,
       {"model.relative_attention_num_buckets=33"},
       "model.relative_attention_num_buckets",
       "is odd; half of the buckets are for each direction",
       "an even number",
       "model.relative_attention_num_buckets: 34"},
      {t5,
       {"model.relative_attention_max_distance=16"},
       "model.relative_attention_max_distance",
       "leaves nothing to buckets of several distances: of 32 buckets half have one "
       "distance each",
       "at least 17",
       "model.relative_attention_max_distance: 17"},
      // ranges of single keys
      {t5,
       {"model.relative_attention_num_buckets=2"},
       "model.relative_attention_num_buckets",
       "is too small",
       "integer: 4 to 65536",
       "model.relative_attention_num_buckets: 4"},
      {t5,
       {"data.mean_noise_span_length=0.5"},
       "data.mean_noise_span_length",
       "is too small",
       "number: at least 1",
       "data.mean_noise_span_length: 1"},
      {bert,
       {"data.mask_prob=0"},
       "data.mask_prob",
       "is too small",
       "number: above 0, below 1",
       ""},
      {t5,
       {"data.mask_prob=1"},
       "data.mask_prob",
       "is too large",
       "number: above 0, below 1",
       ""},
      {bert,
       {"data.max_ngrams=0"},
       "data.max_ngrams",
       "is too small",
       "integer: 1 to 16",
       "data.max_ngrams: 1"},
      {bert,
       {"model.norm_placement=behind"},
       "model.norm_placement",
       "is not one of the words",
       "word: pre, post",
       ""},
      // over ranks
      {t5,
       {"parallel.tensor=4", "parallel.sequence=true"},
       "model.decoder_sequence",
       "is not a multiple of parallel.tensor (4): tensor ranks hold equal parts of a "
       "sample (parallel.sequence)",
       "a multiple of 4",
       "model.decoder_sequence: 116"}};
  return all;
}

TEST(KindsChecks, EachMistakeAlone) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("{} {}", name_of(c.kind), fmt::join(c.overrides, " ")));
    const auto errors = errors_with(of(c.kind, c.overrides));
    ASSERT_EQ(errors.size(), 1u) << format_errors(errors);
    EXPECT_EQ(errors[0].key, c.key);
    EXPECT_THAT(errors[0].what, HasSubstr(c.what));
    EXPECT_EQ(errors[0].allowed, c.allowed);
    EXPECT_EQ(errors[0].fix, c.fix);
    if (c.fix.empty()) continue;
    // Taking the fix, which may be of several keys, makes the error go away.
    auto mended = c.overrides;
    const std::string first = c.fix.substr(0, c.fix.find(", or "));
    const std::size_t colon = first.find(": ");
    mended.push_back(first.substr(0, colon) + "=" + first.substr(colon + 2));
    EXPECT_THAT(errors_with(of(c.kind, mended)), IsEmpty()) << first;
  }
}

// The last values that are right.
TEST(KindsChecks, LimitsThemselvesAreAllowed) {
  for (const auto& [kind, overrides] :
       std::vector<std::pair<ModelKind, std::vector<std::string>>>{
           {ModelKind::bert, {"model.sequence=5"}},
           {ModelKind::bert, {"model.sequence=3", "model.binary_head=false"}},
           {ModelKind::bert, {"model.max_predictions=509"}},
           {ModelKind::bert, {"model.type_vocab_size=0"}},
           {ModelKind::bert, {"model.type_vocab_size=1", "model.binary_head=false"}},
           {ModelKind::bert,
            {"data.pack=true", "model.binary_head=false", "data.short_seq_prob=0"}},
           {ModelKind::bert, {"data.short_seq_prob=1", "data.max_ngrams=16"}},
           {ModelKind::bert, {"model.norm_placement=post"}},
           {ModelKind::t5, {"model.sequence=3"}},
           {ModelKind::t5, {"model.decoder_sequence=114"}},
           {ModelKind::t5, {"data.pack=false"}},
           {ModelKind::t5,
            {"model.relative_attention_num_buckets=4",
             "model.relative_attention_max_distance=3"}},
           {ModelKind::t5, {"parallel.tensor=2", "parallel.sequence=true"}}}) {
    const auto errors = errors_with(of(kind, overrides));
    EXPECT_THAT(errors, IsEmpty()) << overrides[0] << "\n" << format_errors(errors);
  }
}

// A mistake is not repeated by what follows from it.
TEST(KindsChecks, WhatIsNotKnownIsLeftOut) {
  EXPECT_EQ(errors_with(of(ModelKind::t5,
                           {"model.layers=x", "parallel.pipeline=4", "parallel.split=2"}))
                .size(),
            1u);
  EXPECT_EQ(errors_with(of(ModelKind::t5, {"data.mask_prob=x"})).size(), 1u);
  EXPECT_EQ(
      errors_with(of(ModelKind::bert, {"model.binary_head=x", "data.pack=true"})).size(),
      1u);
  EXPECT_EQ(errors_with(of(ModelKind::bert, {"model.sequence=x"})).size(), 1u);
}

TEST(KindsStarts, DefaultsFollowWhatWasChanged) {
  const auto keys = [](const Deck& checkpoint, const Deck& deck) {
    std::vector<std::string> names;
    for (const DeckError& error : compare_for_resume(checkpoint, deck).errors) {
      names.push_back(error.key);
    }
    return names;
  };
  EXPECT_THAT(keys(t5_with({}), t5_with({})), IsEmpty());
  EXPECT_THAT(keys(t5_with({}), t5_with({"model.layers=6"})),
              ElementsAre("model.layers"));
  EXPECT_THAT(keys(t5_with({"model.decoder_layers=2"}), t5_with({"model.layers=6"})),
              ElementsAre("model.layers", "model.decoder_layers"));
  EXPECT_THAT(keys(bert_with({}), bert_with({"data.mask_prob=0.2"})),
              ElementsAre("data.mask_prob"));
  EXPECT_THAT(keys(bert_with({}), bert_with({"model.norm_epsilon=1e-5"})),
              ElementsAre("model.norm_epsilon"));
  EXPECT_THAT(keys(bert_with({}), bert_with({"model.norm_placement=post"})),
              ElementsAre("model.norm_placement"));
  // Of another kind: that, and not all in which kinds differ.
  EXPECT_THAT(keys(small_with({"model.sequence=512"}), bert_with({})),
              ElementsAre("model.kind"));
  EXPECT_THAT(keys(t5_with({}), bert_with({})), ElementsAre("model.kind"));
  // Layouts may change.
  EXPECT_THAT(keys(t5_with({}), t5_with({"parallel.pipeline=4", "parallel.split=1"})),
              IsEmpty());
}

}  // namespace
}  // namespace trireme::config
