// model/blueprint.cpp — see blueprint.hpp.
#include "model/blueprint.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "config/capability.hpp"
#include "kernels/step_state.hpp"
#include "model/gpt.hpp"

namespace trireme::model {

namespace {

const BorderTensor* find(const Border& border, const std::string& name) {
  const auto found = std::ranges::find(border, name, &BorderTensor::name);
  return found == border.end() ? nullptr : &*found;
}

// One block against the border before it.
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

index_t Blueprint::layer_count() const {
  return layers_in(whole());
}

const Border& Blueprint::border_before(std::size_t block) const {
  static const Border kNone;
  return block == 0 ? kNone : blocks.at(block - 1).border;
}

index_t Blueprint::layers_in(const BlockRange& range) const {
  return std::count_if(blocks.begin() + static_cast<std::ptrdiff_t>(range.begin),
                       blocks.begin() + static_cast<std::ptrdiff_t>(range.end),
                       [](const BlockSpec& block) { return block.is_layer; });
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
  const BlockSpec& b = blocks[block];
  const auto first = std::ranges::find_if(blocks, [&](const BlockSpec& a) {
    return a.kind == b.kind && a.stream == b.stream && a.border == b.border &&
           a.reads == b.reads && a.flops == b.flops;
  });
  return static_cast<std::size_t>(first - blocks.begin());
}

std::vector<std::size_t> Blueprint::fields_of(const BlockRange& range) const {
  std::set<std::size_t> fields;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    for (const std::string& name : blocks[i].fields) fields.insert(batch.field(name));
  }
  return {fields.begin(), fields.end()};
}

// Each is made by one block, which reads its mask: what several blocks added to it would
// be counted as often.
void Blueprint::check_objectives() const {
  TRIREME_REQUIRE(objectives.size() <= kernels::kMostObjectives,
                  "a model of {}; there is room for {}",
                  format_plural(objectives.size(), "objective"),
                  kernels::kMostObjectives);
  for (int i = 0; i < std::ssize(objectives); ++i) {
    const auto& [name, weight, mask] = objectives[extent(i)];
    const auto makers = std::ranges::count_if(blocks, [&](const BlockSpec& block) {
      return block.objective == i && std::ranges::count(block.fields, mask) == 1;
    });
    TRIREME_REQUIRE(
        makers == 1 && batch.fields[batch.field(mask)].type == DType::float32,
        "objective '{}' is made by {} with its mask '{}', a field of weights; 1 wanted",
        name, format_plural(makers, "block"), mask);
  }
}

void Blueprint::check() const {
  TRIREME_REQUIRE(!blocks.empty() && blocks.back().border.empty(),
                  "a model ends with a block that hands nothing on");
  for (std::size_t i = 0; i < blocks.size(); ++i)
    check_block(border_before(i), blocks[i]);
  fields_of(whole());  // are all there
  check_objectives();
  for (const BlockSpec& block : blocks) {
    if (!block.table.empty()) table(block.table);  // is there
  }
  for (const SharedTable& table : tables) {
    TRIREME_REQUIRE(!users(table).empty(), "no block uses table '{}'", table.name);
  }
}

Blueprint make_blueprint(const Architecture& architecture) {
  const std::string_view kind = name_of(architecture.kind);
  TRIREME_REQUIRE(config::is_trained("model.kind", kind),
                  "model.kind: {} needs blocks that this version lacks", kind);
  Blueprint blueprint = gpt_blueprint(architecture);
  blueprint.check();
  return blueprint;
}

}  // namespace trireme::model
