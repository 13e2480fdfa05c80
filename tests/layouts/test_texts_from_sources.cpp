// Texts that are made from others, by T5 and the kind of model that only tests have, on
// one rank and on two: word by word they have the logits of the full forward pass,
// sources of unlike length beside each other change no bit of each other's texts, and a
// generator gives each request its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/process_groups.hpp"
#include "comm/rank_grid.hpp"
#include "inference/generation.hpp"
#include "inference/texts.hpp"
#include "layouts/encoder_decoder.hpp"
#include "layouts/layout_matrix.hpp"
#include "step/decoder.hpp"
#include "support/rows.hpp"
#include "unit/io/scratch.hpp"
#include "unit/step/random_model.hpp"

namespace trireme::test {
namespace {

using data::TokenId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<TokenId>;

constexpr index_t kTexts = 4;
constexpr int kFirstSeed = 11;

// Dropout is on: generation must not see it.
MatrixSize text_size(Kind kind) {
  return {.layers = 9, .heads = 8, .samples = 0, .kind = kind};
}
model::Architecture text_model() {
  return matrix_model(text_size(Kind::encoder_decoder));
}

template <class T>
struct Model : step::ModelState<T> {
  explicit Model(const comm::ProcessGroups& groups, Kind kind = Kind::encoder_decoder)
      : step::ModelState<T>(groups, matrix_blueprint(text_size(kind)), {},
                            kind == Kind::encoder_decoder ? &make_encoder_decoder_block<T>
                                                          : &model::make_block<T>) {
    this->allocate(ParamBuffer<T>::Use::training);
    // T5's scores are not divided by the root of a head's size: of large ones a softmax
    // makes much of a rounding.
    test::randomize(*this, kind == Kind::encoder_decoder ? 0.2 : 0.1);
  }
  index_t positions(int stream) const {
    return this->blueprint.batch.streams.at(extent(stream)).sequence;
  }
  index_t text_positions() const { return positions(this->blueprint.text_stream()); }
  index_t source_positions() const { return positions(this->blueprint.source_stream()); }
};

Tokens random_tokens(index_t count, int seed, TokenId below) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Tokens tokens(extent(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % below);
  return tokens;
}

struct Text {
  Tokens source, words;
};

// Sources of any length, the shortest and the longest among them.
template <class T>
std::vector<Text> texts(const Model<T>& model) {
  const index_t longest = model.source_positions();
  const std::vector<index_t> lengths = {1, longest, 13, 5 * longest / 8};
  std::vector<Text> all;
  for (int i = 0; i < kTexts; ++i) {
    const auto vocabulary = static_cast<TokenId>(text_model().vocab);
    all.push_back({random_tokens(lengths[extent(i)], i, kSourceVocabulary),
                   random_tokens(model.text_positions(), kFirstSeed + i, vocabulary)});
  }
  return all;
}

// (s, texts, words of this rank), by the forward pass of an evaluation.
template <class T>
std::vector<double> full_logits(Model<T>& model, const std::vector<Text>& texts) {
  Timers timers;
  step::TrainStep<T> step(Exec(), model,
                          {.micro = kTexts, .sequence = model.positions(0)}, timers);
  FilledBatch filled(model.blueprint.batch, kTexts);
  const auto element = [&](const FieldSpec& field, index_t sample, index_t position) {
    const Text& text = texts[extent(sample)];
    if (field.name == "source") {
      const bool is_there = position < std::ssize(text.source);
      return is_there ? index_t{text.source[extent(position)]} : position % 7;
    }
    if (field.name == "source_lengths") return index_t{std::ssize(text.source)};
    if (field.name == model.blueprint.decoded.tokens) {
      return index_t{text.words[extent(position)]};
    }
    if (field.name == "target_lengths") return model.text_positions();
    if (field.name == "positions") return position;
    return field.holds == Holds::weights ? index_t{1} : index_t{0};
  };
  step.evaluate([&](int) { return filled.fill(0, element); }, 1);
  return test::rows_of(step.last_logits());
}

// Those of this rank's words among the logits of all, as the forward pass has them.
struct OwnWords {
  explicit OwnWords(const comm::ProcessGroups& groups)
      : share((text_model().vocab + groups.tensor->size() - 1) / groups.tensor->size()),
        begin(share * groups.tensor->rank()),
        end(std::min(begin + share, text_model().vocab)) {}
  index_t share, begin, end;
};

template <class T>
double worst_difference(const comm::ProcessGroups& groups, Kind kind, index_t prompt) {
  Model<T> model(groups, kind);
  const std::vector<Text> all = texts(model);
  const std::vector<double> full = full_logits<T>(model, all);
  EXPECT_GT(*std::ranges::max_element(full), 0.2);
  const OwnWords words(groups);
  const index_t width = std::ssize(full) / (model.text_positions() * kTexts);
  double worst = 0.0;
  const auto compare = [&](std::span<const step::Logit> logits, index_t position,
                           index_t text) {
    const double* const want = full.data() + (position * kTexts + text) * width;
    for (index_t w = words.begin; w < words.end; ++w) {
      worst = std::max(worst, std::abs(static_cast<double>(logits[extent(w)]) -
                                       want[extent(w - words.begin)]));
    }
  };
  const auto decoder = step::make_decoder(Exec(), model, kTexts);
  const index_t vocabulary = decoder->vocabulary();
  // A text's place is not its number.
  const auto place_of = [](index_t text) { return (text + 3) % kTexts; };
  for (index_t t = 0; t < kTexts; ++t) {
    const Text& text = all[extent(t)];
    decoder->begin_text(place_of(t), text.source);
    if (prompt == 0) continue;
    compare(decoder->read(place_of(t), std::span(text.words).first(extent(prompt))),
            prompt - 1, t);
  }
  for (index_t at = prompt; at < model.text_positions(); ++at) {
    std::vector<step::Decoder::Next> next;
    for (index_t t = 0; t < kTexts; ++t) {
      next.push_back({place_of(t), all[extent(t)].words[extent(at)]});
    }
    const auto logits = decoder->step(next);
    for (index_t t = 0; t < kTexts; ++t) {
      compare(logits.subspan(extent(t * vocabulary), extent(vocabulary)), at, t);
    }
  }
  return worst;
}

class TextsFromSourcesOfKinds : public testing::TestWithParam<Kind> {
 protected:
  TextsFromSourcesOfKinds()
      : world_(comm::make_mpi_world()), grid_(world_, {.tensor = world_->size()}) {}

  std::shared_ptr<comm::Communicator> world_;
  comm::RankGrid grid_;
};
INSTANTIATE_TEST_SUITE_P(, TextsFromSourcesOfKinds,
                         testing::Values(Kind::encoder_decoder, Kind::t5,
                                         Kind::t5_own_head));

TEST_P(TextsFromSourcesOfKinds, HaveTheLogitsOfTheFullForwardPass) {
  for (const index_t prompt : {0, 1, 9}) {
    EXPECT_LE(worst_difference<float>(grid_.groups(), GetParam(), prompt), 2e-5)
        << prompt;
    EXPECT_LE(worst_difference<double>(grid_.groups(), GetParam(), prompt), 1e-6)
        << prompt;
  }
}

TEST_P(TextsFromSourcesOfKinds, HaveTheBitsThatTheyHaveAlone) {
  Model<float> model(grid_.groups(), GetParam());
  const std::vector<Text> all = texts(model);
  const auto together = step::make_decoder(Exec(), model, kTexts);
  const auto alone = step::make_decoder(Exec(), model, 2);
  const auto run = [&](step::Decoder& decoder, const std::vector<index_t>& which,
                       index_t of) {
    for (std::size_t i = 0; i < which.size(); ++i) {
      const auto place = static_cast<index_t>(i);
      decoder.clear(place);
      decoder.begin_text(place, all[extent(which[i])].source);
    }
    std::vector<step::Logit> last;
    for (index_t at = 0; at < model.text_positions(); ++at) {
      std::vector<step::Decoder::Next> next;
      for (std::size_t i = 0; i < which.size(); ++i) {
        next.push_back(
            {static_cast<index_t>(i), all[extent(which[i])].words[extent(at)]});
      }
      const auto logits = decoder.step(next);
      const auto own =
          logits.subspan(extent(of * decoder.vocabulary()), extent(decoder.vocabulary()));
      last.assign(own.begin(), own.end());
    }
    return last;
  };
  for (index_t t = 0; t < kTexts; ++t) {
    EXPECT_EQ(run(*together, {0, 1, 2, 3}, t), run(*alone, {t}, 0)) << t;
  }
}

TEST_P(TextsFromSourcesOfKinds, AreCopiedWithTheirSources) {
  Model<float> model(comm::make_groups_of_one(), GetParam());
  const std::vector<Text> all = texts(model);
  const auto decoder = step::make_decoder(Exec(), model, 3);
  decoder->begin_text(0, all[2].source);
  decoder->begin_text(1, all[1].source);
  decoder->read(0, std::span(all[2].words).first(5));
  decoder->copy_text(0, 2);
  const std::vector<step::Decoder::Next> next = {{2, 5}, {0, 5}};
  const auto logits = decoder->step(next);
  const auto half = static_cast<std::ptrdiff_t>(decoder->vocabulary());
  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + half, logits.begin() + half));
}

// No memory is taken for an encoder's layers, which could decode as well.
TEST(TextsFromSourcesOfT5, KeepKeysOfTheDecoderAlone) {
  const Model<float> model(comm::make_groups_of_one(), Kind::t5);
  const model::Architecture& a = model.blueprint.architecture;
  const index_t positions = model.text_positions() + model.source_positions();
  const index_t elements =
      2 * 3 * a.decoder_layers * a.heads * a.head_elements() * positions;
  EXPECT_EQ(step::plan_decoder(model, 3).cache, extent(elements) * sizeof(float));
}

TEST(TextsFromSources, AreRefusedWithoutOne) {
  Model<float> model(comm::make_groups_of_one());
  const auto decoder = step::make_decoder(Exec(), model, 2);
  EXPECT_TRUE(decoder->has_source());
  EXPECT_FALSE(decoder->draws());
  EXPECT_EQ(decoder->source_context(), kSourceSequence);
  const auto refusal = [](const auto& use) { return test::message_of<Error>(use); };
  EXPECT_THAT(refusal([&] {
                decoder->read(1, Tokens{1, 2});
              }),
              HasSubstr("the text in place 1 has no source"));
  EXPECT_THAT(refusal([&] { decoder->begin_text(0, {}); }),
              HasSubstr("a source of 0 positions"));
  EXPECT_THAT(refusal([&] { decoder->begin_text(0, Tokens(49, 1)); }),
              HasSubstr("a source of 49 positions for a text of 0 positions; there is "
                        "room for 48"));
  decoder->begin_text(0, Tokens{1});
  decoder->read(0, Tokens{1});
  EXPECT_THAT(refusal([&] { decoder->begin_text(0, Tokens{1}); }),
              HasSubstr("for a text of 1 position;"));
  decoder->clear(0);
  EXPECT_THAT(refusal([&] { decoder->read(0, Tokens{1}); }), HasSubstr("has no source"));
  EXPECT_THAT(refusal([&] {
                decoder->begin_text(0, Tokens{1});
                const step::Decoder::Continued text{.place = 0, .left = 1};
                decoder->draw({.usable = 3}, {&text, 1}, 1);
              }),
              HasSubstr("by models that can draw on the device"));
}

inference::Prompt prompt_of(Tokens ids) {
  return {.text = {}, .ids = std::move(ids), .is_text = false};
}

std::vector<inference::GenerationRequest> requests_of(
    const std::vector<inference::Prompt>& prompts) {
  return inference::make_requests(prompts, 2, encoder_decoder(text_model()).decoded, 7,
                                  0);
}

TEST(TextsFromSources, AreRequestedByPrompts) {
  const auto requests = requests_of({prompt_of({3, 4}), {}});
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_THAT(requests[1].source, ElementsAre(3, 4, 7));
  EXPECT_THAT(requests[1].prompt, ElementsAre(0));
  EXPECT_EQ(requests[1].sample, 1u);
  EXPECT_TRUE(requests[2].source.empty());

  // Where a text continues its prompt, that one stands before it.
  const auto continued = inference::make_requests(
      {prompt_of({3, 4})}, 1, model::make_blueprint(text_model()).decoded, 7, {});
  EXPECT_THAT(continued.at(0).prompt, ElementsAre(3, 4));
  EXPECT_TRUE(continued.at(0).source.empty());
}

TEST(TextsFromSources, AGeneratorGivesEachItsOwn) {
  const auto world = comm::make_mpi_world();
  const comm::RankGrid grid(world, {.tensor = world->size()});
  Model<double> model(grid.groups());
  std::vector<inference::Prompt> prompts;
  for (const Text& text : texts(model)) {
    Tokens ids = text.source;
    ids.resize(std::min<std::size_t>(ids.size(), 40));
    prompts.push_back(prompt_of(std::move(ids)));
  }
  const inference::GenerationConfig config{.sampling = {.temperature = 0.7, .seed = 5},
                                           .max_tokens = 12};
  const auto requests = requests_of(prompts);
  const auto run = [&](const std::vector<inference::GenerationRequest>& some,
                       index_t places, inference::DrawingPlace drawing) {
    inference::Generator generator(step::make_decoder(Exec(), model, places), drawing);
    std::vector<Tokens> all;
    for (const auto& text : generator.run(some, config)) all.push_back(text.tokens);
    return all;
  };
  using enum inference::DrawingPlace;
  const std::vector<Tokens> together = run(requests, 3, host);
  // Where its blocks cannot draw on the device, the host does it.
  EXPECT_EQ(run(requests, 3, device), together);
  std::set<Tokens> different;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].size(), 12u);
    EXPECT_EQ(run({requests[i]}, 1, host).at(0), together[i]) << i;
    different.insert(together[i]);
  }
  EXPECT_EQ(different.size(), requests.size());
}

TEST(TextsFromSources, AGeneratorRefusesWhatIsNone) {
  Model<float> model(comm::make_groups_of_one());
  const inference::Generator generator(step::make_decoder(Exec(), model, 1));
  const auto refusal = [&](const inference::Prompt& prompt,
                           const inference::GenerationConfig& config = {}) {
    return test::message_of<InputError>(
        [&] { generator.check(requests_of({prompt}), config); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("prompt 1 is empty, and this kind of model makes"));
  EXPECT_THAT(refusal(prompt_of(Tokens(48, 1))),
              HasSubstr("prompt 1 has 49 tokens with the end of its text, but this model "
                        "reads 48 at most: shorten it by 1"));
  EXPECT_THAT(refusal(prompt_of({5000})), HasSubstr("has the token 5000"));
  EXPECT_THAT(refusal(prompt_of({5}), {.at_limit = inference::AtContextLimit::slide}),
              HasSubstr("--slide: this kind of model makes its texts from others"));
}

}  // namespace
}  // namespace trireme::test
