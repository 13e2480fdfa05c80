// config/schema.hpp — every key of a deck: type, unit, default, what is allowed, what it
// means. The loader reads by this table and docs/deck.md is written from it.
#ifndef TRIREME_CONFIG_SCHEMA_HPP_
#define TRIREME_CONFIG_SCHEMA_HPP_

#include <string>
#include <vector>

namespace trireme::config {

struct KeyInfo {
  std::string path;  // "model.layers"
  std::string type;  // integer, number, true or false, word, text, length, time, list ...
  std::string unit;  // empty where there is none
  std::string default_value;
  std::string allowed;
  std::string description;
};

// In the order of the sections of a deck.
const std::vector<KeyInfo>& schema();
// The page docs/deck.md.
std::string schema_markdown();

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_SCHEMA_HPP_
