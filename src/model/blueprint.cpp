// model/blueprint.cpp — see blueprint.hpp.
//
// All that is asked of a whole model is a sum over its blocks, or a search among them, so
// that this file knows no kind: parameters, FLOPs, the users of a table, the fields of a
// stage. The list is checked once when it is made, because what contradicts itself there
// would be a wrong number or a hang much later. Which function makes the list of a
// kind is decided in one place, at the end. Example: of a GPT with 2 layers of 1000
// parameters, 300 words of 16, 8 positions and a norm of 32 the sum is 4800 (the table) +
// 128 + 2 x 1000 + 32 = 6960.
#include "model/blueprint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/step_state.hpp"
#include "model/bert.hpp"
#include "model/gpt.hpp"
#include "model/t5.hpp"

namespace trireme::model {

namespace {

const BorderTensor* find(const Border& border, const std::string& name) {
  const auto found = std::ranges::find(border, name, &BorderTensor::name);
  return found == border.end() ? nullptr : &*found;
}

void check_border(const Border& border, const BlockSpec& block, std::size_t streams) {
  TRIREME_REQUIRE(border.size() <= kMostBorderTensors,
                  "block '{}' has a border of {}; there is room for {}", block.name,
                  format_plural(border.size(), "tensor"), kMostBorderTensors);
  for (const BorderTensor& tensor : border) {
    TRIREME_REQUIRE(std::ranges::count(border, tensor.name, &BorderTensor::name) == 1 &&
                        extent(tensor.stream) < streams,
                    "'{}' crosses the border behind block '{}' twice, or is of stream {} "
                    "of {}",
                    tensor.name, block.name, tensor.stream, streams);
  }
}

// Checks one block against the border before it.
void check_block(const Border& before, const BlockSpec& block) {
  for (const std::string& name : block.reads) {
    TRIREME_REQUIRE(find(before, name) != nullptr,
                    "block '{}' reads '{}', which does not cross the border before it",
                    block.name, name);
  }
  for (const std::string& name : block.makes) {
    TRIREME_REQUIRE(find(block.border, name) != nullptr,
                    "block '{}' makes '{}', which does not cross the border behind it",
                    block.name, name);
  }
  for (const BorderTensor& tensor : block.border) {
    if (block.makes_tensor(tensor.name)) continue;
    const BorderTensor* const passing = find(before, tensor.name);
    TRIREME_REQUIRE(passing != nullptr && *passing == tensor,
                    "'{}' crosses the border behind block '{}', which does not make it; "
                    "before the block there is none of that shape",
                    tensor.name, block.name);
  }
  for (const BorderTensor& tensor : before) {
    TRIREME_REQUIRE(block.passes(tensor.name) || block.reads_tensor(tensor.name),
                    "'{}' ends at block '{}', which does not read it: it has no gradient",
                    tensor.name, block.name);
  }
}

}  // namespace

// Where each query sees the keys before its own they are half of all, as for
// kernels::attention_forward.
double AttentionSpec::scores(const BatchSpec& batch, AttentionCount count) const {
  const auto positions = [&](int stream) {
    return static_cast<double>(batch.streams.at(extent(stream)).sequence);
  };
  const bool is_causal =
      mask == kernels::MaskKind::causal || mask == kernels::MaskKind::document;
  const bool is_half = is_causal && count == AttentionCount::causal;
  const double all = positions(queries) * positions(keys) * static_cast<double>(heads);
  return is_half ? 0.5 * all : all;
}

bool BlockSpec::is_like(const BlockSpec& other) const {
  BlockSpec renamed = *this;
  renamed.name = other.name;
  renamed.number = other.number;
  return renamed == other;
}

double BlockSpec::attention_scores(const BatchSpec& batch) const {
  double sum = 0.0;
  for (const AttentionSpec& of : attention) sum += of.scores(batch);
  return sum;
}

double BlockSpec::attention_flops(const BatchSpec& batch, AttentionCount count) const {
  double sum = 0.0;
  for (const AttentionSpec& of : attention) sum += of.flops(batch, count);
  return sum;
}

double BlockSpec::forward_flops(const BatchSpec& batch, AttentionCount count) const {
  double sum = attention_flops(batch, count);
  for (const ProductFlops& of : products) {
    const index_t rows =
        of.per == Per::sample ? index_t{1} : batch.streams.at(extent(of.stream)).sequence;
    sum += static_cast<double>(rows) * of.flops;
  }
  return sum;
}

index_t Blueprint::parameter_count() const {
  index_t count = 0;
  for (const BlockSpec& block : blocks) count += block.parameters;
  for (const SharedTable& table : tables) count += table.elements();
  return count;
}

double Blueprint::model_flops(AttentionCount count) const {
  double forward = 0.0;
  for (const BlockSpec& block : blocks) {
    forward += block.forward_flops(batch, count);
  }
  // Backward is twice forward: one product for the input's, one for the weight's
  // gradient.
  return 3 * forward;
}

index_t Blueprint::layer_count() const {
  return layers_in(whole());
}

const Border& Blueprint::border_before(std::size_t block) const {
  static const Border kNone;
  return block == 0 ? kNone : blocks.at(block - 1).border;
}

index_t Blueprint::layers_in(const BlockRange& range) const {
  return std::ranges::count_if(std::span(blocks).subspan(range.begin, range.size()),
                               &BlockSpec::is_layer);
}

const SharedTable& Blueprint::table(const std::string& name) const {
  const auto found = std::ranges::find(tables, name, &SharedTable::name);
  TRIREME_REQUIRE(found != tables.end(), "there is no table '{}'", name);
  return *found;
}

std::vector<std::size_t> Blueprint::users(const SharedTable& table) const {
  std::vector<std::size_t> users;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].table == table.name) users.push_back(i);
  }
  return users;
}

std::size_t Blueprint::first_like(std::size_t block) const {
  const auto first = std::ranges::find_if(
      blocks, [&](const BlockSpec& other) { return other.is_like(blocks[block]); });
  return static_cast<std::size_t>(first - blocks.begin());
}

std::vector<AttentionSpec> Blueprint::attention() const {
  std::vector<AttentionSpec> kinds;
  for (const BlockSpec& block : blocks) {
    for (const AttentionSpec& of : block.attention) {
      if (std::ranges::find(kinds, of) == kinds.end()) kinds.push_back(of);
    }
  }
  return kinds;
}

std::size_t Blueprint::objective_over_words() const {
  const auto found = std::ranges::find_if(objectives, std::not_fn(&std::string::empty),
                                          &Objective::labels);
  TRIREME_REQUIRE(found != objectives.end(), "the model predicts no words");
  return static_cast<std::size_t>(found - objectives.begin());
}

const BlockSpec* Blueprint::output() const {
  const auto found = std::ranges::find_if(
      blocks, [](const BlockSpec& block) { return block.output.has_value(); });
  return found == blocks.end() ? nullptr : &*found;
}

std::vector<std::size_t> Blueprint::fields_of(const BlockRange& range) const {
  std::set<std::size_t> fields;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    for (const std::string& name : blocks[i].fields) fields.insert(batch.field(name));
  }
  return {fields.begin(), fields.end()};
}

void Blueprint::check_fields() const {
  for (const FieldSpec& field : batch.fields) {
    const bool is_numbered = field.holds == Holds::words || field.holds == Holds::classes;
    const auto streams = std::ssize(batch.streams);
    TRIREME_REQUIRE(
        field.stream < streams && field.rows_of < streams &&
            (is_numbered || field.below == 0) &&
            (field.holds != Holds::classes || field.below > 0),
        "field '{}' is of stream {}, or has rows of stream {}, of {}; or its numbers are "
        "below {}: words and classes say what theirs are below, and no others",
        field.name, field.stream, field.rows_of, streams, field.below);
    const auto same = std::ranges::count_if(batch.fields, [&](const FieldSpec& other) {
      return other.stream == field.stream && other.holds == field.holds;
    });
    const bool is_of_stream =
        field.holds == Holds::places || field.holds == Holds::lengths;
    TRIREME_REQUIRE(!is_of_stream || same == 1,
                    "field '{}' has places or lengths of stream {}, and so has another",
                    field.name, field.stream);
  }
}

void Blueprint::check_streams(const BlockSpec& block) const {
  const auto is_there = [&](int stream) { return extent(stream) < batch.streams.size(); };
  bool are_there = is_there(block.stream);
  for (const ProductFlops& of : block.products) {
    are_there = are_there && is_there(of.stream);
  }
  for (const AttentionSpec& of : block.attention) {
    are_there = are_there && is_there(of.queries) && is_there(of.keys);
  }
  TRIREME_REQUIRE(are_there,
                  "block '{}' works on stream {} of {}, or has products or attention on "
                  "one that is not there",
                  block.name, block.stream, batch.streams.size());
}

// Each is made by one block, which reads its mask: what several blocks added to it would
// be counted once, by the stage of the first.
void Blueprint::check_objectives() const {
  TRIREME_REQUIRE(objectives.size() <= kernels::kMostObjectives,
                  "a model of {}; there is room for {}",
                  format_plural(objectives.size(), "objective"),
                  kernels::kMostObjectives);
  for (int i = 0; i < std::ssize(objectives); ++i) {
    const auto& [name, weight, mask, labels, every_word] = objectives[extent(i)];
    const auto makers = std::ranges::count(blocks, i, &BlockSpec::objective);
    TRIREME_REQUIRE(makers == 1, "objective '{}' is made by {}; 1 wanted", name,
                    format_plural(makers, "block"));
    const auto& fields = std::ranges::find(blocks, i, &BlockSpec::objective)->fields;
    const auto is_read = [&](const std::string& field) {
      return std::ranges::count(fields, field) == 1;
    };
    TRIREME_REQUIRE(
        is_read(mask) && batch.fields[batch.field(mask)].holds == Holds::weights &&
            (labels.empty() ? !every_word : is_read(labels)),
        "the block that makes objective '{}' does not read its mask '{}', a field of "
        "weights, or not its labels '{}'",
        name, mask, labels);
  }
}

void Blueprint::check_decoded() const {
  const auto& [tokens, positions, source, source_lengths, with_padding] = decoded;
  for (const std::string& name : {tokens, positions, source, source_lengths}) {
    if (!name.empty()) batch.field(name);  // is there
  }
  if (!decoded.has_source()) return;
  TRIREME_REQUIRE(generates_text() && source_stream() != text_stream() &&
                      !source_lengths.empty() &&
                      stream_of(source_lengths) == source_stream() &&
                      blocks.back().stream == text_stream(),
                  "texts of '{}' are decoded from '{}' of lengths '{}': these are of a "
                  "stream of their own, and the last block of the text's",
                  tokens, source, source_lengths);
}

// A model that gives an output is not trained: a step would make no use of it.
void Blueprint::check_output() const {
  const BlockSpec* const giver = output();
  if (giver == nullptr) return;
  TRIREME_REQUIRE(
      giver == &blocks.back() && giver->output->columns > 0 && objectives.empty(),
      "block '{}' gives an output of {}: a model gives one, of its last "
      "block, and has no objective then",
      giver->name, format_plural(giver->output->columns, "column"));
}

void Blueprint::check() const {
  TRIREME_REQUIRE(!blocks.empty() && blocks.back().border.empty(),
                  "a model ends with a block that hands nothing on");
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    check_border(blocks[i].border, blocks[i], batch.streams.size());
    check_block(border_before(i), blocks[i]);
    check_streams(blocks[i]);
    TRIREME_REQUIRE(blocks[i].objective < std::ssize(objectives) &&
                        !(blocks[i].is_layer && blocks[i].objective >= 0),
                    "block '{}' makes objective {} of {}, which a layer must not: it may "
                    "be made again",
                    blocks[i].name, blocks[i].objective, objectives.size());
    TRIREME_REQUIRE(!blocks[i].gradients_in_forward ||
                        (blocks[i].objective >= 0 && !blocks[i].table.empty()),
                    "block '{}' takes gradients in its forward pass, but makes no "
                    "objective with a table that it shares",
                    blocks[i].name);
    TRIREME_REQUIRE(
        !(blocks[i].is_layer && blocks[i].is_source()),
        "layer '{}' reads nothing: where it is made again its weights may not "
        "be there",
        blocks[i].name);
  }
  check_fields();
  check_decoded();
  table(vocabulary);   // is there
  fields_of(whole());  // are all there
  check_objectives();
  check_output();
  for (const BlockSpec& block : blocks) {
    if (!block.table.empty()) table(block.table);  // is there
  }
  for (const SharedTable& table : tables) {
    TRIREME_REQUIRE(!users(table).empty(), "no block uses table '{}'", table.name);
  }
}

namespace {

// The one dispatch on the kind of model. A kind that has other uses than to be trained
// and to make texts makes their blocks by `use`; the list of one that has not stays
// as it is, and require_use() sees it.
Blueprint blueprint_of_kind(const Architecture& architecture, Use use) {
  switch (architecture.kind) {
    case ModelKind::gpt:
      return gpt_blueprint(architecture);
    case ModelKind::bert:
      return bert_blueprint(architecture, use);
    case ModelKind::t5:
      return t5_blueprint(architecture);
  }
  throw Error("a kind of model that is none of the list");
}

// What a model that lacks a use would be asked for there, and the command that asks.
struct UseWords {
  const char* what;
  const char* command;
};
UseWords words_of(Use use) {
  switch (use) {
    case Use::training:
    case Use::text:
      break;
    case Use::vectors:
      return {"gives no vectors of texts", "trireme embed"};
    case Use::words:
      return {"gives no words for what is left out of a text", "trireme fill"};
  }
  return {"does not continue texts", "trireme generate"};
}

bool is_of_use(const Blueprint& blueprint, Use use) {
  switch (use) {
    case Use::training:
      return true;
    case Use::text:
      return blueprint.generates_text();
    case Use::vectors:
      return blueprint.output() != nullptr;
    case Use::words:
      return blueprint.output() != nullptr || blueprint.decoded.has_source();
  }
  return false;
}

// The commands that a model is for.
std::string commands_of(const Architecture& architecture) {
  std::vector<std::string> commands;
  for (const Use use : {Use::text, Use::vectors, Use::words}) {
    if (has_use(architecture, use)) commands.push_back(words_of(use).command);
  }
  return fmt::format("{}", fmt::join(commands, " and "));
}

void require_use(const Blueprint& blueprint, Use use) {
  const Architecture& architecture = blueprint.architecture;
  if (is_of_use(blueprint, use)) return;
  const UseWords words = words_of(use);
  throw InputError(fmt::format(
      "the model is of kind {}, which {}: it is for {}, and {} is for models of other "
      "kinds",
      name_of(architecture.kind), words.what, commands_of(architecture), words.command));
}

}  // namespace

bool has_use(const Architecture& architecture, Use use) {
  return is_of_use(blueprint_of_kind(architecture, use), use);
}

Blueprint make_blueprint(const Architecture& architecture, Use use) {
  Blueprint blueprint = blueprint_of_kind(architecture, use);
  require_use(blueprint, use);
  blueprint.check();
  return blueprint;
}

}  // namespace trireme::model
