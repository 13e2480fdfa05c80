// Generation: cached decoding against the full forward pass, Hugging Face's greedy
// continuations, what ends a text, and tokens drawn on the device.
#include "inference/generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "ckpt/hugging_face.hpp"
#include "comm/process_groups.hpp"
#include "kernels/decode_linear.hpp"
#include "step/train_step.hpp"
#include "support/allocated_bytes.hpp"
#include "support/rows.hpp"
#include "support/safetensors.hpp"
#include "unit/step/random_model.hpp"

namespace trireme::inference {
namespace {

using data::TokenId;
using testing::HasSubstr;
using Tokens = std::vector<TokenId>;

// Dropout is on: generation must not see it.
const model::Architecture kConfig = {.layers = 2,
                                     .hidden = 36,
                                     .heads = 6,
                                     .kv_heads = 3,
                                     .ffn_hidden = 55,
                                     .sequence = 37,
                                     .vocab = 53,
                                     .dropout = 0.3,
                                     .attention_dropout = 0.3};

template <class T>
struct Model : step::ModelState<T> {
  explicit Model(const model::Architecture& config = kConfig)
      : step::ModelState<T>(comm::make_groups_of_one(), config) {
    test::randomize(*this);
  }
};

// (s, b), as activations are.
Tokens random_tokens(index_t count, unsigned seed = 1, TokenId vocabulary = 53) {
  std::mt19937 random(seed);
  Tokens tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocabulary);
  return tokens;
}

// Logits of every position by the full forward pass of evaluation, (s * b, V).
template <class T>
std::vector<double> full_logits(step::ModelState<T>& model, const Tokens& tokens,
                                index_t batch) {
  Timers timers;
  const step::StepShape shape{.micro = batch, .sequence = std::ssize(tokens) / batch};
  step::TrainStep<T> step(Exec(), model, shape, timers);
  std::vector<std::int32_t> ids(tokens.begin(), tokens.end()), positions;
  for (index_t row = 0; row < shape.rows(); ++row) {
    positions.push_back(static_cast<std::int32_t>(row / batch));
  }
  const std::vector<float> mask(tokens.size(), 1.0f);
  step.evaluate(
      [&](int) {
        return HostBatch{{ids.data(), positions.data(), ids.data(), mask.data()}, 0};
      },
      1);
  return test::rows_of(step.last_logits());
}

// (count) of text `text` of a batch (s, b).
Tokens text_of(const Tokens& tokens, index_t text, index_t batch) {
  Tokens own;
  for (std::size_t i = static_cast<std::size_t>(text); i < tokens.size();
       i += static_cast<std::size_t>(batch)) {
    own.push_back(tokens[i]);
  }
  return own;
}

using Logits = std::vector<step::Logit>;

// Gives texts in places of their own pieces of the given lengths, those of one token in
// steps of all texts, and compares the logits after each.
template <class T>
double worst_difference(const std::vector<index_t>& pieces, index_t batch,
                        const model::Architecture& config = kConfig) {
  Model<T> model(config);
  index_t length = 0;
  for (const index_t piece : pieces) length += piece;
  const Tokens tokens = random_tokens(length * batch);
  const std::vector<double> full = full_logits<T>(model, tokens, batch);
  const auto decoder = step::make_decoder(Exec(), model, batch);
  const auto width = static_cast<std::size_t>(config.vocab);
  double worst = 0;
  index_t at = 0;
  const auto compare = [&](std::span<const step::Logit> logits, index_t first) {
    const auto row = static_cast<std::size_t>((at - 1) * batch + first);
    const double* const expected = full.data() + row * width;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::abs(logits[i] - expected[i]));
    }
  };
  for (const index_t piece : pieces) {
    std::vector<step::Decoder::Next> next;
    const index_t begin = std::exchange(at, at + piece);
    for (index_t text = 0; text < batch; ++text) {
      const Tokens own = text_of(tokens, text, batch);
      if (piece == 1) {
        next.push_back({text, own[static_cast<std::size_t>(begin)]});
        continue;
      }
      compare(
          decoder->read(text, std::span(own).subspan(static_cast<std::size_t>(begin),
                                                     static_cast<std::size_t>(piece))),
          text);
      EXPECT_EQ(decoder->length(text), at);
    }
    if (piece == 1) compare(decoder->step(next), 0);
  }
  return worst;
}

// Logits are rounded to float at the end.
TEST(GenerationCache, LogitsAreThoseOfTheFullForwardPass) {
  const std::vector<index_t> ones(37, 1);
  for (const index_t batch : {1, 3, 17}) {
    EXPECT_LE(worst_difference<float>({37}, batch), 1e-5);
    EXPECT_LE(worst_difference<float>(ones, batch), 1e-5);
    EXPECT_LE(worst_difference<float>({1, 17, 2, 16, 1}, batch), 1e-5);
    EXPECT_LE(worst_difference<double>(ones, batch), 1e-6);
    EXPECT_LE(worst_difference<double>({33, 1, 3}, batch), 1e-6);
  }
}

TEST(GenerationCache, LongPromptsAreReadInPieces) {
  model::Architecture config = kConfig;
  config.sequence = 700;
  EXPECT_LE(worst_difference<double>({700}, 1, config), 1e-6);
}

TEST(GenerationCache, ReuseLeavesNoTrace) {
  Model<double> model;
  const auto decoder = step::make_decoder(Exec(), model, 3);
  const Tokens tokens = random_tokens(20);
  const auto first = decoder->read(1, tokens);
  const Logits expected(first.begin(), first.end());
  for (const index_t place : {0, 1, 2}) {
    decoder->clear(place);
    decoder->read(place, random_tokens(30, 9));
  }
  decoder->clear(1);
  const auto again = decoder->read(1, tokens);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), expected.begin(), expected.end()));
}

// Texts of unlike length in one batch, of which some end and others come in their places:
// the logits of each are those that it has alone, to the bit.
template <class T>
class GenerationRagged : public ::testing::Test {};
using Types = ::testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(GenerationRagged, Types);

TYPED_TEST(GenerationRagged, ATextHasTheBitsThatItHasAlone) {
  model::Architecture config = kConfig;
  config.sequence = 200;  // several tiles of attention
  Model<TypeParam> model(config);
  constexpr index_t kTexts = 18;  // more than a pass takes
  const auto together = step::make_decoder(Exec(), model, kTexts);
  const auto alone = step::make_decoder(Exec(), model, 2);
  std::vector<Tokens> texts;
  std::vector<index_t> at;
  const std::vector<index_t> prompts = {5,  1, 70, 16, 17, 128, 3, 64, 65,
                                        33, 2, 9,  4,  31, 7,   1, 90, 12};
  for (index_t i = 0; i < kTexts; ++i) {
    const index_t prompt = prompts[static_cast<std::size_t>(i)];
    texts.push_back(random_tokens(prompt + 10, static_cast<unsigned>(i)));
    at.push_back(prompt);
    together->read(i, std::span(texts.back()).first(static_cast<std::size_t>(prompt)));
  }
  std::vector<Logits> got(texts.size());
  for (int step = 0; step < 10; ++step) {
    std::vector<step::Decoder::Next> next;
    // Text i leaves after step i % 10; the order in a step changes.
    for (index_t j = 0; j < kTexts; ++j) {
      const index_t i = (j * 5 + step) % kTexts;
      if (i % 10 < step) continue;
      const auto n = static_cast<std::size_t>(i);
      next.push_back({i, texts[n][static_cast<std::size_t>(at[n]++)]});
    }
    const auto logits = together->step(next);
    for (std::size_t j = 0; j < next.size(); ++j) {
      const auto own = logits.subspan(j * 53, 53);
      got[static_cast<std::size_t>(next[j].place)].assign(own.begin(), own.end());
    }
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    alone->clear(1);
    const auto prompt = static_cast<std::size_t>(prompts[i]);
    alone->read(1, std::span(texts[i]).first(prompt));
    Logits last;
    for (index_t p = prompts[i]; p < at[i]; ++p) {
      const step::Decoder::Next next{1, texts[i][static_cast<std::size_t>(p)]};
      const auto logits = alone->step({&next, 1});
      last.assign(logits.begin(), logits.end());
    }
    EXPECT_EQ(got[i], last) << "text " << i << " of " << prompt << " and more";
  }
}

// Of sizes, and elements, whose layers are one launch where a GPU's way of a step has it.
const model::Architecture kWholePieces = {.layers = 3,
                                          .hidden = 32,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .ffn_hidden = 40,
                                          .sequence = 300,
                                          .vocab = 53};

template <class T>
class GenerationOfWholePieces : public ::testing::Test {};
using NarrowTypes = ::testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(GenerationOfWholePieces, NarrowTypes);

TYPED_TEST(GenerationOfWholePieces, LogitsAreThoseOfTheFullForwardPass) {
  const double bound = std::is_same_v<TypeParam, bf16> ? 0.25 : 0.03;
  EXPECT_LE(worst_difference<TypeParam>({62, 1, 1, 1, 1}, 1, kWholePieces), bound);
  EXPECT_LE(worst_difference<TypeParam>({1, 1, 2, 1}, 3, kWholePieces), bound);
  EXPECT_LE(worst_difference<TypeParam>({255, 1, 1}, 6, kWholePieces), bound);
}

// Also where texts are more than a launch takes.
TYPED_TEST(GenerationOfWholePieces, ATextHasTheBitsThatItHasAlone) {
  Model<TypeParam> model(kWholePieces);
  const std::vector<index_t> prompts = {5, 1, 63, 16, 256, 128};
  const auto count = std::ssize(prompts);
  const auto together = step::make_decoder(Exec(), model, count);
  const auto alone = step::make_decoder(Exec(), model, 1);
  std::vector<step::Decoder::Next> next;
  for (index_t i = 0; i < count; ++i) {
    together->read(i, random_tokens(prompts[extent(i)], static_cast<unsigned>(i)));
    next.push_back({count - 1 - i, static_cast<TokenId>(i)});
  }
  together->step(next);
  const auto logits = together->step(next);
  for (index_t i = 0; i < count; ++i) {
    const auto [place, token] = next[extent(i)];
    alone->clear(0);
    alone->read(0, random_tokens(prompts[extent(place)], static_cast<unsigned>(place)));
    const step::Decoder::Next own{0, token};
    alone->step({&own, 1});
    const auto expected = alone->step({&own, 1});
    EXPECT_TRUE(std::ranges::equal(logits.subspan(extent(i) * 53, 53), expected))
        << "text " << place;
  }
}

// The words of a launch of all layers, too. Kokkos allocates whole pieces of 8 bytes.
TYPED_TEST(GenerationOfWholePieces, MemoryIsWhatIsPlanned) {
  Model<TypeParam> model(kWholePieces);
  const std::size_t planned = step::plan_decoder(model, 6).total;
  const auto has = [](const std::string& label, const char* word) {
    return label.find(word) != std::string::npos;
  };
  std::uint64_t taken = 0, arrays = 0;
  {
    const test::AllocatedBytes allocated;
    const auto decoder = step::make_decoder(Exec(), model, 6);
    for (const auto& [label, bytes] : allocated.bytes) {
      const bool is_of_host = has(label, "(host)") || has(label, "mirror");
      if (is_of_host) continue;
      taken += bytes;
      ++arrays;
    }
  }
  EXPECT_GE(taken, planned);
  EXPECT_LT(taken, planned + 8 * arrays);
}

TYPED_TEST(GenerationOfWholePieces, LaunchesOfAToken) {
  const auto count = [&](index_t places) {
    const step::ModelState<TypeParam> model(comm::make_groups_of_one(), kWholePieces);
    return step::plan_token(model, places);
  };
  const char* const kLayers = "trireme::kernels::decode_layers";
  const bool by_teams = kernels::has_decode_linear<TypeParam>(1, kWholePieces.hidden);
  EXPECT_EQ(count(1).kernel(kLayers).calls, by_teams ? 1 : 0);
  EXPECT_EQ(count(16).kernel(kLayers).calls, by_teams ? 4 : 0);
  if (by_teams) {
    EXPECT_EQ(count(4).total().calls, 4);
  }
}

TEST(GenerationRaggedPlaces, CopiedTextsGoOnAlike) {
  Model<float> model;
  const auto decoder = step::make_decoder(Exec(), model, 3);
  decoder->read(0, random_tokens(11));
  decoder->copy_text(0, 2);
  EXPECT_EQ(decoder->length(2), 11);
  const std::vector<step::Decoder::Next> next = {{2, 5}, {0, 5}};
  const auto logits = decoder->step(next);
  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + 53, logits.begin() + 53));
  EXPECT_THROW(decoder->copy_text(0, 2), Error) << "the place is not empty";
}

TEST(GenerationRaggedPlaces, AFullTextIsRefused) {
  Model<float> model;
  const auto decoder = step::make_decoder(Exec(), model, 2);
  decoder->read(1, random_tokens(37));
  const step::Decoder::Next next{1, 5};
  EXPECT_THAT(
      [&] {
        decoder->step({&next, 1});
      },
      ::testing::ThrowsMessage<Error>(
          HasSubstr("37 positions are filled, 1 token more exceed")));
  EXPECT_THROW(decoder->read(0, random_tokens(38)), Error);
  EXPECT_THROW(decoder->read(0, {}), Error);
}

TEST(GenerationGreedy, IsHuggingFaces) {
  int compared = 0;
  for (const std::string name : {"gpt2_tiny", "gpt2_odd"}) {
    Log log(false);
    const std::string directory =
        std::string(std::getenv("TRIREME_SOURCE_DIR")) + "/tests/parity/fixtures/" + name;
    const ckpt::HuggingFaceModel source(directory, log);
    const io::SafetensorsReader oracle(directory + "/oracle.safetensors");
    const auto& c = source.config();
    step::ModelState<float> model(comm::make_groups_of_one(), {.layers = c.layers,
                                                               .hidden = c.hidden,
                                                               .heads = c.heads,
                                                               .kv_heads = c.heads,
                                                               .ffn_hidden = c.ffn_hidden,
                                                               .sequence = c.sequence,
                                                               .vocab = c.vocab});
    model.params.allocate(model.registry, ParamBuffer<float>::Use::inference);
    for (const auto& tensor : source.tensors()) {
      const auto values = source.read(tensor);
      const auto slice =
          model.params.slice(Slab::weight, model.registry.find(tensor.name));
      ASSERT_EQ(values.size(), slice.extent(0)) << tensor.name;
      Kokkos::deep_copy(slice, Kokkos::View<const float*, Kokkos::HostSpace,
                                            Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                                   values.data(), values.size()));
    }
    Generator generator(step::make_decoder(Exec(), model, 2));
    for (int i = 0; oracle.has(fmt::format("prompt/{}", i)); ++i) {
      const auto prompt =
          test::elements<std::int32_t>(oracle.at(fmt::format("prompt/{}", i)));
      const auto expected =
          test::elements<std::int32_t>(oracle.at(fmt::format("continuation/{}", i)));
      GenerationConfig config;
      config.sampling.temperature = 0;
      config.max_tokens = std::ssize(expected);
      const auto result =
          generator.run({{.prompt = Tokens(prompt.begin(), prompt.end())}}, config);
      EXPECT_EQ(result[0].tokens, Tokens(expected.begin(), expected.end()))
          << name << " prompt " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 4);
}

template <class T>
void expect_texts_do_not_depend_on_places() {
  Model<T> model;
  // Texts slide, reach their end or a document's.
  const GenerationConfig config{.sampling = {.top_k = 20, .top_p = 0.9, .seed = 5},
                                .max_tokens = 25,
                                .end_of_document = 7,
                                .at_limit = AtContextLimit::slide};
  std::vector<GenerationRequest> requests;
  for (std::uint64_t n = 0; n < 5; ++n) {
    const Tokens prompt = random_tokens(index_t(3 + 5 * n), static_cast<unsigned>(n));
    for (std::uint64_t sample = 0; sample < 2; ++sample) {
      requests.push_back({prompt, n, sample});
    }
  }
  const auto texts = [&](index_t max_batch) {
    Generator generator(step::make_decoder(Exec(), model, max_batch));
    std::vector<Tokens> tokens;
    for (const Generation& g : generator.run(requests, config))
      tokens.push_back(g.tokens);
    return tokens;
  };
  const auto one_by_one = texts(1);
  EXPECT_EQ(texts(2), one_by_one);
  EXPECT_EQ(texts(3), one_by_one);
  EXPECT_EQ(texts(16), one_by_one);
  EXPECT_NE(one_by_one[0], one_by_one[1]) << "two samples of one prompt are the same";
  // A prompt alone, under its number, gives the same text.
  Generator generator(step::make_decoder(Exec(), model));
  for (const std::size_t i : {3u, 8u}) {
    EXPECT_EQ(generator.run({requests[i]}, config)[0].tokens, one_by_one[i]);
  }
}

TEST(GenerationBatches, GroupingDoesNotChangeTheTexts) {
  expect_texts_do_not_depend_on_places<double>();
  expect_texts_do_not_depend_on_places<float>();
  expect_texts_do_not_depend_on_places<bf16>();
}

TEST(GenerationEnd, AtEndOfDocumentMaxTokensAndContext) {
  Model<double> model;
  Generator generator(step::make_decoder(Exec(), model, 4));
  const std::vector<GenerationRequest> request = {{.prompt = random_tokens(5)}};
  GenerationConfig config{.sampling = {.seed = 3}, .max_tokens = 30};
  const Generation free = generator.run(request, config)[0];
  EXPECT_EQ(free.finish, FinishReason::max_tokens);
  ASSERT_EQ(free.tokens.size(), 30u);

  // Take a token that came as the end of a document: the text stops before it.
  const TokenId end = free.tokens[11];
  const auto first = std::find(free.tokens.begin(), free.tokens.end(), end);
  config.end_of_document = end;
  std::vector<TokenId> streamed;
  const Generation ended = generator.run(
      request, config, [&](std::size_t, TokenId token) { streamed.push_back(token); })[0];
  EXPECT_EQ(ended.finish, FinishReason::end_of_document);
  EXPECT_EQ(ended.tokens, Tokens(free.tokens.begin(), first));
  EXPECT_EQ(streamed, ended.tokens);

  config.end_of_document.reset();
  config.max_tokens = 100;
  const Generation full = generator.run(request, config)[0];
  EXPECT_EQ(full.finish, FinishReason::context_limit);
  // 37 positions are read; the token after the last is still known.
  EXPECT_EQ(full.tokens.size(), 37u - 5u + 1u);
  EXPECT_TRUE(std::equal(free.tokens.begin(), free.tokens.end(), full.tokens.begin()));

  config.max_tokens = 0;
  EXPECT_TRUE(generator.run(request, config)[0].tokens.empty());
  EXPECT_TRUE(generator.run({}, config).empty());
}

TEST(GenerationEnd, SlideForgetsTheOlderHalf) {
  Model<double> model;
  Generator generator(step::make_decoder(Exec(), model));
  GenerationConfig config{.sampling = {.temperature = 0},
                          .max_tokens = 80,
                          .at_limit = AtContextLimit::slide};
  const Tokens prompt = random_tokens(36);
  const Generation text = generator.run({{.prompt = prompt}}, config)[0];
  EXPECT_EQ(text.finish, FinishReason::max_tokens);
  ASSERT_EQ(text.tokens.size(), 80u);
  EXPECT_EQ(text.slides, 4);  // after 2 new tokens, then every 37 - 18 + 1 = 20
  // The token after the first slide is that of a fresh text of the last 18 tokens.
  Tokens all = prompt;
  all.insert(all.end(), text.tokens.begin(), text.tokens.begin() + 2);
  const Tokens kept(all.end() - 18, all.end());
  config.max_tokens = 20;
  const Generation fresh = generator.run({{.prompt = kept}}, config)[0];
  EXPECT_EQ(fresh.tokens, Tokens(text.tokens.begin() + 2, text.tokens.begin() + 22));
}

// Of a prompt that is too long, the last tokens are read: one as long as the context, and
// one longer by 63 that ends with it, side by side.
TEST(GenerationEnd, SlideReadsTheEndOfALongPrompt) {
  Model<double> model;
  Generator generator(step::make_decoder(Exec(), model, 2));
  const GenerationConfig config{.sampling = {.temperature = 0},
                                .max_tokens = 30,
                                .at_limit = AtContextLimit::slide};
  const Tokens longer = random_tokens(100);
  const Tokens end(longer.end() - 37, longer.end());
  const auto texts =
      generator.run({{.prompt = end}, {.prompt = longer, .number = 1}}, config);
  EXPECT_EQ(texts[0].unread, 0);
  EXPECT_EQ(texts[1].unread, 63);
  EXPECT_EQ(texts[1].tokens.size(), 30u);
  EXPECT_EQ(texts[1].tokens, texts[0].tokens);
  EXPECT_EQ(texts[1].slides, texts[0].slides);
}

template <class Call>
void expect_input_error(Call&& call, const std::vector<std::string>& parts) {
  try {
    call();
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    for (const std::string& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(GenerationInput, BadPromptsAreRefused) {
  Model<float> model;
  Generator generator(step::make_decoder(Exec(), model));
  const GenerationConfig config;
  expect_input_error(
      [&] {
        generator.run({{.prompt = {1}}, {.prompt = random_tokens(40), .number = 1}},
                      config);
      },
      {"prompt 2 has 40 tokens", "context has 37", "by 3", "--slide reads its last 37"});
  expect_input_error(
      [&] {
        generator.run({{.prompt = {1, 53}}}, config);
      },
      {"prompt 1 has the token 53", "vocabulary has 53", "0 to 52"});
  expect_input_error([&] { generator.run({{}}, config); }, {"prompt 1 is empty"});
  EXPECT_THROW(generator.run({{.prompt = {1}}}, {.max_tokens = -1}), InputError);
  EXPECT_EQ(generator.speed().prompt_tokens, 0) << "work was done before the checks";
}

TEST(GenerationInput, EmptyPromptBeginsADocument) {
  Model<double> model;
  Generator generator(step::make_decoder(Exec(), model));
  const GenerationConfig config{.max_tokens = 9, .end_of_document = 4};
  const auto empty = generator.run({{}}, config)[0];
  const auto explicit_end = generator.run({{.prompt = {4}}}, config)[0];
  EXPECT_EQ(empty.tokens, explicit_end.tokens);
  // As long as the context is still fine; one token more is known than is read.
  const auto full = generator.run({{.prompt = random_tokens(37)}}, {})[0];
  EXPECT_EQ(full.tokens.size(), 1u);
}

// Everything that ends a text, and more of them than places.
template <class T>
void expect_device_draws_the_same(const SamplingConfig& sampling, AtContextLimit limit) {
  Model<T> model;
  const GenerationConfig config{.sampling = sampling,
                                .max_tokens = 40,
                                .usable_vocabulary = 51,
                                .end_of_document = 7,
                                .at_limit = limit};
  std::vector<GenerationRequest> requests;
  for (std::uint64_t n = 0; n < 5; ++n) {
    const Tokens prompt = random_tokens(index_t(3 + 8 * n), static_cast<unsigned>(n), 51);
    for (std::uint64_t sample = 0; sample < 2; ++sample) {
      requests.push_back({prompt, n, sample});
    }
  }
  const auto texts = [&](index_t places, DrawingPlace drawing) {
    Generator generator(step::make_decoder(Exec(), model, places), drawing);
    std::vector<std::pair<std::size_t, TokenId>> streamed;
    std::vector<Tokens> tokens;
    std::vector<FinishReason> finish;
    for (const Generation& g :
         generator.run(requests, config, [&](std::size_t request, TokenId token) {
           streamed.emplace_back(request, token);
         })) {
      tokens.push_back(g.tokens);
      finish.push_back(g.finish);
    }
    std::ranges::stable_sort(streamed, {}, &std::pair<std::size_t, TokenId>::first);
    return std::tuple(tokens, finish, streamed);
  };
  const auto on_host = texts(3, DrawingPlace::host);
  for (const index_t places : {1, 2, 3, 16}) {
    EXPECT_EQ(texts(places, DrawingPlace::device), on_host) << places << " places";
  }
  // More than are drawn for on a device.
  EXPECT_EQ(texts(17, DrawingPlace::device), on_host);
}

TEST(GenerationDrawn, OnTheDeviceTheSameTokens) {
  using enum AtContextLimit;
  expect_device_draws_the_same<float>({.temperature = 0}, stop);
  expect_device_draws_the_same<float>({.top_k = 20, .top_p = 0.9, .seed = 5}, slide);
  expect_device_draws_the_same<bf16>({.temperature = 0.8, .top_k = 11}, stop);
  expect_device_draws_the_same<fp16>({.temperature = 2.0}, slide);
  expect_device_draws_the_same<double>({.top_p = 0.7}, stop);
}

// One decoder, one text, other ways of drawing: each has a graph of its own.
TEST(GenerationDrawn, AnotherWayOfDrawingIsRecordedAnew) {
  Model<float> model;
  const std::vector<GenerationRequest> request = {{.prompt = random_tokens(5)}};
  Generator device(step::make_decoder(Exec(), model, 2), DrawingPlace::device);
  Generator host(step::make_decoder(Exec(), model, 2), DrawingPlace::host);
  for (const SamplingConfig& sampling :
       {SamplingConfig{}, SamplingConfig{.seed = 1}, SamplingConfig{.temperature = 0},
        SamplingConfig{.top_k = 2}, SamplingConfig{.top_p = 0.5}, SamplingConfig{}}) {
    const GenerationConfig config{.sampling = sampling, .max_tokens = 9};
    EXPECT_EQ(device.run(request, config)[0].tokens, host.run(request, config)[0].tokens);
  }
  EXPECT_EQ(device.speed().new_tokens, 54);
}

TEST(GenerationDrawn, StepsOfTheDecoder) {
  Model<float> model;
  const auto decoder = step::make_decoder(Exec(), model, 4);
  decoder->read(1, random_tokens(5));
  decoder->read(2, random_tokens(33, 2));
  const step::Decoder::Drawing drawing{.rule = {.temperature = 0}, .usable = 53};
  // Places 0 and 3 are empty; the text in place 2 has room for 4 more.
  const std::vector<step::Decoder::Continued> texts = {
      {.place = 2, .token = 9, .size = 34, .left = 99},
      {.place = 1, .token = 8, .size = 6, .left = 7}};
  decoder->draw(drawing, texts, 16);
  EXPECT_EQ(decoder->drawn(1).size(), 7u);
  EXPECT_EQ(decoder->drawn(2).size(), 4u);
  EXPECT_TRUE(decoder->drawn(0).empty());
  EXPECT_EQ(decoder->length(1), 12);
  EXPECT_EQ(decoder->length(2), 37);
  EXPECT_EQ(decoder->length(3), 0);
  // A text that is not among those drawn for keeps what it has.
  const Tokens first(decoder->drawn(1).begin(), decoder->drawn(1).end());
  decoder->read(3, random_tokens(6, 3));
  const step::Decoder::Continued third{.place = 3, .token = 9, .size = 7, .left = 99};
  decoder->draw(drawing, {&third, 1}, 3);
  EXPECT_TRUE(decoder->drawn(1).empty());
  EXPECT_EQ(decoder->drawn(3).size(), 3u);
  const step::Decoder::Next next{1, 4};
  const auto logits = decoder->step({&next, 1});
  const auto again = step::make_decoder(Exec(), model);
  again->read(0, random_tokens(5));
  std::vector<TokenId> fed = {8};
  fed.insert(fed.end(), first.begin(), first.end() - 1);
  fed.push_back(4);
  Logits last;
  for (const TokenId token : fed) {
    const step::Decoder::Next one{0, token};
    const auto of_one = again->step({&one, 1});
    last.assign(of_one.begin(), of_one.end());
  }
  EXPECT_EQ(Logits(logits.begin(), logits.end()), last);
}

TEST(GenerationDrawn, WhatIsWrongIsSaid) {
  Model<float> model;
  const auto decoder = step::make_decoder(Exec(), model, 2);
  decoder->read(0, random_tokens(37));
  decoder->read(1, random_tokens(5));
  const step::Decoder::Drawing drawing{.usable = 53};
  const auto draw = [&](index_t place, index_t steps) {
    const step::Decoder::Continued text{.place = place, .token = 1, .size = 6, .left = 9};
    decoder->draw(drawing, {&text, 1}, steps);
  };
  EXPECT_THAT([&] { draw(0, 2); }, ::testing::ThrowsMessage<Error>(HasSubstr(
                                       "37 positions are filled, 1 token more")));
  EXPECT_THAT([&] { draw(1, 17); },
              ::testing::ThrowsMessage<Error>(HasSubstr("17 steps drawn in 2 places")));
  // A model whose training diverged: the final norm's weights are no numbers.
  const auto weights =
      model.params.slice(Slab::weight, model.registry.find("final_norm/weight"));
  Kokkos::deep_copy(weights, NAN);
  EXPECT_THAT([&] { draw(1, 2); },
              ::testing::ThrowsMessage<Error>(HasSubstr(
                  "the logit of token 0 at position 6 is not finite: the weights")));
}

// Of a layer: a norm, four products and the biases of two of them, what comes to the
// cache, attention and its tiles combined, residual and norm, residual. Beside the
// layers: embedding, the last norm, the head's product, and the draw. A GPU's way of a
// step has five: products that take norm and attention's tiles with them, and the tiles;
// and three beside the layers.
TEST(GenerationDrawn, LaunchesOfAToken) {
  model::Architecture config = kConfig;
  const auto count = [&](index_t layers, index_t places) {
    config.layers = layers;
    const step::ModelState<float> model(comm::make_groups_of_one(), config);
    return step::plan_token(model, places);
  };
  const bool by_teams = kernels::has_decode_linear<float>(3, kConfig.hidden);
  const Tally one = count(1, 3), layer = count(2, 3) - one;
  EXPECT_EQ(layer.total().calls, by_teams ? 5 : 12);
  EXPECT_EQ((one - layer).total().calls, by_teams ? 3 : 4);
  EXPECT_EQ(one.kernel("trireme::kernels::draw_tokens").calls, 1);
  EXPECT_EQ(one.kernel("trireme::copy").calls, 0) << "the host's memory";
  EXPECT_TRUE(one.messages().empty());
  // They do not depend on how many texts there are room for.
  EXPECT_EQ(count(2, 16).total().calls, count(2, 1).total().calls);
}

int allocations = 0;
void count_allocation(Kokkos::Profiling::SpaceHandle, const char*, const void*,
                      std::uint64_t) {
  ++allocations;
}

// Not with a GPU's teams on a host: Kokkos allocates their scratch memory there when one
// thread, or several, first run them, and time decides when that is (faster_way.hpp).
TEST(GenerationMemory, NothingIsAllocatedAfterTheFirstToken) {
  if (kHostExecution && kernels::has_decode_linear<float>(2, kConfig.hidden)) return;
  Model<float> model;
  for (const auto drawing : {DrawingPlace::host, DrawingPlace::device}) {
    Generator generator(step::make_decoder(Exec(), model, 2), drawing);
    // Draws on the device begin with the third token: one launch of theirs has scratch.
    const int first = drawing == DrawingPlace::host ? 1 : 3;
    int seen = 0, after_first = -1;
    Kokkos::Tools::Experimental::set_allocate_data_callback(count_allocation);
    generator.run({{.prompt = random_tokens(5)}, {.prompt = random_tokens(5, 2)}},
                  {.max_tokens = 20}, [&](std::size_t, TokenId) {
                    if (++seen == first) after_first = allocations;
                  });
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    EXPECT_EQ(allocations, after_first);
  }
}

}  // namespace
}  // namespace trireme::inference
