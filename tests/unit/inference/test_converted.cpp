// What conversions make against what the kinds' models want: names, shapes and first
// values of weights.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "ckpt/convert.hpp"
#include "ckpt/params.hpp"
#include "ckpt/reader.hpp"
#include "comm/process_groups.hpp"
#include "config/load.hpp"
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

}  // namespace
}  // namespace trireme
