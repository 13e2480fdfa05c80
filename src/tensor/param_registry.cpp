// tensor/param_registry.cpp — see param_registry.hpp.
#include "tensor/param_registry.hpp"

#include "base/error.hpp"

namespace trireme {

std::size_t ParamRegistry::begin_unit(std::string name,
                                      std::optional<std::size_t> borrows) {
  units_.push_back({.name = std::move(name),
                    .begin = specs_.size(),
                    .end = specs_.size(),
                    .borrows = borrows});
  return units_.size() - 1;
}

std::size_t ParamRegistry::add(ParamSpec spec) {
  const bool is_new = by_name_.emplace(spec.name, specs_.size()).second;
  TRIREME_REQUIRE(is_new, "parameter '{}' is registered twice", spec.name);
  if (units_.empty()) begin_unit("");
  specs_.push_back(std::move(spec));
  units_.back().end = specs_.size();
  return specs_.size() - 1;
}

std::size_t ParamRegistry::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  TRIREME_REQUIRE(it != by_name_.end(), "this rank has no parameter '{}'", name);
  return it->second;
}

std::vector<std::size_t> ParamRegistry::tied() const {
  std::vector<std::size_t> params;
  for (const auto& [name, param] : by_name_) {
    if (specs_[param].tie != Tie::none) params.push_back(param);
  }
  return params;
}

index_t ParamRegistry::global_element_count() const {
  index_t count = 0;
  for (const ParamSpec& spec : specs_) {
    if (spec.tie != Tie::copy) count += element_count(spec.shard.global_shape);
  }
  return count;
}

}  // namespace trireme
