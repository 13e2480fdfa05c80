// What conversions make against what the kinds' models want: names, shapes and first
// values of weights, and the sizes of the published models.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/error.hpp"
#include "ckpt/convert.hpp"
#include "ckpt/params.hpp"
#include "ckpt/reader.hpp"
#include "comm/process_groups.hpp"
#include "config/load.hpp"
#include "model/blueprint.hpp"
#include "step/replica.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

std::string converted_source(const std::string& name) {
  return std::string(std::getenv("TRIREME_SOURCE_DIR")) + "/" + name;
}

bool is_same(const Initializer& a, const Initializer& b) {
  return a.kind == b.kind && a.value == b.value && a.row_blocks.empty() &&
         b.row_blocks.empty();
}

TEST(Converted, CheckpointsHaveWhatTheirModelsWant) {
  const test::Scratch scratch;
  Log log(false);
  for (const char* name :
       {"gpt2_odd", "bert_odd", "bert_pre_odd", "t5_odd", "t5_v11_odd"}) {
    SCOPED_TRACE(name);
    ckpt::import_hugging_face(converted_source("tests/parity/fixtures/") + name,
                              scratch / name, log);
    const ckpt::CheckpointReader reader(scratch / name / "latest");
    const config::Deck deck = config::parse_resolved(reader.state().deck);
    const auto replica = step::make_replica(deck, comm::make_groups_of_one());
    const ParamRegistry& registry = replica->part().registry;
    ckpt::require_params(reader, registry, ckpt::Content::weights);
    EXPECT_EQ(registry.specs().size(), reader.manifest().tensors.size());

    std::map<std::string, Initializer> first_values;
    for (const ParamSpec& spec : registry.specs()) first_values[spec.name] = spec.init;
    const ckpt::Dialect& dialect =
        ckpt::dialect_of_model(deck.model, name, ckpt::known_dialects());
    for (const ckpt::ForeignTensor& tensor : dialect.tensors(deck.model)) {
      if (!tensor.if_missing) continue;
      EXPECT_TRUE(is_same(*tensor.if_missing, first_values.at(tensor.name)))
          << tensor.name;
    }
  }
  EXPECT_TRUE(log.warnings().empty());
}

index_t parameters_there(const config::ModelConfig& model) {
  index_t sum = 0;
  const ckpt::Dialect& dialect =
      ckpt::dialect_of_model(model, "deck", ckpt::known_dialects());
  for (const ckpt::ForeignTensor& tensor : dialect.tensors(model)) {
    sum += element_count(tensor.shape);
  }
  return sum;
}

// As transformers counts models of those sizes, and as the decks say.
TEST(Converted, PublishedDecks) {
  const std::map<std::string, index_t> published = {
      {"bert/110m", 110106428},  {"bert/336m", 336226108}, {"bert/1.3b", 1280595772},
      {"bert/3.9b", 3869081404}, {"t5/small", 60506624},   {"t5/base", 222903552},
      {"t5/large", 737668096},   {"t5/3b", 2851598336},    {"t5/11b", 11307321344}};
  for (const auto& [name, parameters] : published) {
    SCOPED_TRACE(name);
    const config::Deck deck =
        config::load(converted_source("inputs/") + name + ".yaml", {});
    EXPECT_EQ(parameters_there(deck.model), parameters);
    EXPECT_EQ(model::make_blueprint(deck.model).parameter_count(), parameters);
  }
}

// It has no types of tokens, and transformers' classes have one at least.
TEST(Converted, ADeckThatTransformersCannotSay) {
  config::Deck deck = config::load(converted_source("inputs/bert/modern-base.yaml"), {});
  EXPECT_EQ(model::make_blueprint(deck.model).parameter_count(), 135338682);
  EXPECT_TRUE(deck.model.within_documents);
  EXPECT_THROW(parameters_there(deck.model), InputError);
  deck.model.type_vocab_size = 1;
  EXPECT_EQ(parameters_there(deck.model), 135338682 + deck.model.hidden);
}

}  // namespace
}  // namespace trireme
