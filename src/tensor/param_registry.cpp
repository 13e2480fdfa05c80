// tensor/param_registry.cpp — see param_registry.hpp.
#include "tensor/param_registry.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme {

std::size_t ParamRegistry::add(ParamSpec spec) {
  const bool known = std::any_of(specs_.begin(), specs_.end(),
                                 [&](const ParamSpec& s) { return s.name == spec.name; });
  TRIREME_REQUIRE(!known, "parameter '{}' is registered twice", spec.name);
  specs_.push_back(std::move(spec));
  return specs_.size() - 1;
}

std::size_t ParamRegistry::find(const std::string& name) const {
  const auto it = std::find_if(specs_.begin(), specs_.end(),
                               [&](const ParamSpec& s) { return s.name == name; });
  TRIREME_REQUIRE(it != specs_.end(), "this rank has no parameter '{}'", name);
  return static_cast<std::size_t>(it - specs_.begin());
}

index_t ParamRegistry::global_element_count() const {
  index_t count = 0;
  for (const ParamSpec& spec : specs_) {
    if (!spec.is_tied_copy) count += element_count(spec.shard.global_shape);
  }
  return count;
}

}  // namespace trireme
