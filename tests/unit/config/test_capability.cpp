// What this version can train: one list, which the page of keys, the dry run and training
// read.
#include "config/capability.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "config/key_table.hpp"
#include "config/kinds.hpp"
#include "deck_testing.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Settings of the small deck that training lacks, one for each key of the list that is
// about its kind.
const std::map<std::string, std::string>& lacking() {
  static const std::map<std::string, std::string> all = {
      {"model.kv_heads", "2"},          {"model.norm", "rmsnorm"},
      {"model.activation", "swiglu"},   {"model.position", "rope"},
      {"model.bias", "false"},          {"parallel.context", "2"},
      {"model.tie_embeddings", "false"}};
  return all;
}

TEST(CapabilityList, NamesKeysAndValuesOfDecks) {
  const auto is_of_gpt = [](const Capability& capability) {
    return capability.kind.value_or(ModelKind::gpt) == ModelKind::gpt;
  };
  EXPECT_EQ(std::ranges::count_if(capabilities(), is_of_gpt), std::ssize(lacking()));
  for (const Capability& capability : capabilities()) {
    const ModelKind kind = capability.kind.value_or(ModelKind::gpt);
    const std::string of_kind = fmt::format("model.kind={}", name_of(kind));
    SCOPED_TRACE(of_kind + " " + capability.key);
    EXPECT_NE(find_key(capability.key), nullptr);
    EXPECT_NE(capability.trained.empty(), capability.same_as.empty());
    if (!capability.same_as.empty()) {
      EXPECT_NE(find_key(capability.same_as), nullptr);
    }
    for (const std::string& value : capability.trained) {
      EXPECT_THAT(errors_with({of_kind, capability.key + "=" + value}), IsEmpty())
          << value;
      EXPECT_TRUE(is_trained(kind, capability.key, value));
    }
    for (const std::string& value : capability.nothing_told) {
      EXPECT_THAT(errors_with({of_kind, capability.key + "=" + value}), IsEmpty())
          << value;
    }
    EXPECT_FALSE(capability.reason.empty());
  }
}

TEST(CapabilityList, SaysWhatADeckAsksForInVain) {
  EXPECT_THAT(not_trained(small_with({})), IsEmpty());
  EXPECT_THAT(errors_of_training(small_with({})), IsEmpty());
  for (const auto& [key, value] : lacking()) {
    SCOPED_TRACE(key);
    const Deck deck = small_with({key + "=" + value});
    const auto lacks = not_trained(deck);
    ASSERT_EQ(lacks.size(), 1u);
    EXPECT_EQ(lacks[0].key, key);
    EXPECT_EQ(lacks[0].value, value);
    const auto errors = errors_of_training(deck);
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].place, "--set");
    EXPECT_EQ(errors[0].value, value);
    EXPECT_THAT(errors[0].what, HasSubstr(lacks[0].reason));
    EXPECT_THAT(not_trained(deck, {key}), IsEmpty()) << "it has an error already";
    // The fix that is proposed is one.
    const std::string fix = errors[0].fix.substr(errors[0].fix.rfind(' ') + 1);
    EXPECT_THAT(not_trained(small_with({key + "=" + fix})), IsEmpty()) << fix;
  }
  EXPECT_EQ(errors_of_training(small_with({"model.kv_heads=2"}))[0].allowed, "4");
  EXPECT_THAT(not_trained(small_with({"model.kv_heads=2"}), {"model.heads"}), IsEmpty());
  EXPECT_EQ(errors_of_training(small_with({"data.train=none"})).at(0).key, "data.train");
}

// What the list has of each kind.
TEST(CapabilityList, IsOfEachKind) {
  const auto words_of = [](ModelKind kind, const char* key,
                           std::initializer_list<const char*> words) {
    std::vector<std::string> trained;
    for (const char* word : words) {
      if (is_trained(kind, key, word)) trained.push_back(word);
    }
    return trained;
  };
  const auto activations = [&](ModelKind kind) {
    return words_of(kind, "model.activation",
                    {"gelu_tanh", "gelu", "relu", "swiglu", "geglu", "geglu_tanh"});
  };
  EXPECT_THAT(activations(ModelKind::gpt), ElementsAre("gelu_tanh"));
  EXPECT_THAT(activations(ModelKind::bert), ElementsAre("gelu_tanh", "gelu", "relu"));
  EXPECT_THAT(activations(ModelKind::t5), ElementsAre("relu", "geglu", "geglu_tanh"));
  const auto others = [&](ModelKind kind) {
    return std::tuple(words_of(kind, "model.norm", {"layernorm", "rmsnorm"}),
                      words_of(kind, "model.position", {"learned", "rope", "relative"}),
                      words_of(kind, "model.bias", {"true", "false"}),
                      words_of(kind, "model.tie_embeddings", {"true", "false"}));
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(others(ModelKind::gpt), std::tuple(Words{"layernorm"}, Words{"learned"},
                                               Words{"true"}, Words{"true"}));
  EXPECT_EQ(others(ModelKind::bert), others(ModelKind::gpt));
  EXPECT_EQ(others(ModelKind::t5), std::tuple(Words{"rmsnorm"}, Words{"relative"},
                                              Words{"false"}, Words{"true", "false"}));
}

// By default a deck asks for nothing that its kind does not have.
TEST(CapabilityList, HasTheDefaultsOfEachKind) {
  for (const ModelKind kind : all_kinds()) {
    SCOPED_TRACE(name_of(kind));
    const std::string of_kind = fmt::format("model.kind={}", name_of(kind));
    EXPECT_THAT(not_trained(small_with({of_kind})), IsEmpty());
  }
  const auto lacks = not_trained(small_with({"model.kind=t5", "model.norm=layernorm"}));
  ASSERT_EQ(lacks.size(), 1u);
  EXPECT_EQ(lacks[0].reason, "no other norm is written for t5");
}

TEST(CapabilityList, SaysWhatADryRunCanTell) {
  const auto told = [](const std::string& setting) {
    return not_trained(small_with({setting})).at(0).told;
  };
  EXPECT_EQ(told("model.position=relative"), Told::nothing);
  EXPECT_EQ(told("model.position=rope"), Told::size);
  EXPECT_EQ(told("parallel.context=2"), Told::size);
  EXPECT_EQ(told("model.kv_heads=2"), Told::memory);
}

// What the page marks is what training refuses, word by word.
TEST(CapabilityPage, MarksWhatIsNotThereYet) {
  int marked = 0;
  for (const Key& key : key_table()) {
    const KeyInfo& info = key.info;
    if (!has_key(ModelKind::gpt, info.path)) continue;
    SCOPED_TRACE(info.path);
    const bool is_listed = lacking().count(info.path) > 0;
    const bool has_mark = info.allowed.find("not yet") != std::string::npos ||
                          info.allowed.find("bert)") != std::string::npos ||
                          info.allowed.find("(t5)") != std::string::npos;
    EXPECT_EQ(has_mark, is_listed);
    EXPECT_THAT(info.description, Not(HasSubstr("Training has"))) << "a second list";
    if (info.type != "word") continue;
    for (std::size_t begin = 0; begin < info.allowed.size();) {
      const std::size_t end =
          std::min(info.allowed.find(", ", begin), info.allowed.size());
      std::string word = info.allowed.substr(begin, end - begin);
      begin = end + 2;
      // "gelu (bert)" is another kind's, "gelu_tanh (gpt and bert)" is trained here.
      const std::string mark(word.begin() + static_cast<std::ptrdiff_t>(
                                                std::min(word.find(" ("), word.size())),
                             word.end());
      const bool is_marked = !mark.empty() && mark.find("gpt") == std::string::npos;
      word.resize(word.size() - mark.size());
      // Of a pipeline: its schedules; of bf16: the type of gradients; without dropout in
      // attention: whose kernels that has.
      const auto lacks = not_trained(small_with(
          {"precision.compute=bf16", info.path + "=" + word, "model.attention_dropout=0",
           "parallel.pipeline=2", "batch.micro=2"}));
      EXPECT_EQ(!lacks.empty(), is_marked) << word;
      marked += is_marked ? 1 : 0;
    }
  }
  EXPECT_GE(marked, 8);
  EXPECT_EQ(find_key("model.bias")->info.allowed, "true (gpt and bert), false (t5)");
  EXPECT_THAT(find_key("parallel.context")->info.allowed,
              EndsWith(" (other than 1: not yet)"));
  EXPECT_THAT(find_key("model.kv_heads")->info.allowed,
              EndsWith(" (other than model.heads: not yet)"));
}

}  // namespace
}  // namespace trireme::config
