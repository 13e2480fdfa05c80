// config/key_table.hpp — every key of a deck: type, unit, default, what is allowed, what
// it means, how it is read into a Deck and how it is written back. docs/deck.md is
// written from this table (tests/unit/config/test_schema.cpp).
#ifndef TRIREME_CONFIG_KEY_TABLE_HPP_
#define TRIREME_CONFIG_KEY_TABLE_HPP_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"
#include "config/yaml_reader.hpp"

namespace trireme::config {

struct KeyInfo {
  std::string path;  // "model.layers"
  std::string type;  // integer, number, true or false, word, text, length, time, list ...
  std::string unit;  // empty where there is none
  std::string default_value;
  std::string allowed;
  std::string description;
};

// Why a value cannot be taken, and what to write instead.
struct Problem {
  std::string what, fix;
  // Earlier versions took the value, which the Deck has now: where a deck was written by
  // one of them, that is what it says.
  bool was_right = false;
};

struct Key {
  KeyInfo info;
  std::function<std::optional<Problem>(const YamlValue&, Deck&)> read;
  // YAML text of the value; empty where the key is not written (it does not apply).
  std::function<std::string(const Deck&)> write;
  bool required = false;
};

// All keys, in the order of the sections of a deck.
const std::vector<Key>& key_table();
const Key* find_key(const std::string& path);
// Whether keys begin with path + '.'.
bool is_section(const std::string& path);
// The keys that another one's default follows; none for most. Those of model and data are
// what fill_model_defaults (kinds.hpp) goes by.
std::vector<std::string> followed_keys(std::string_view path);
// The key that an unknown one was probably meant to be; empty where nothing is near.
std::string nearest_key(const std::string& path);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_KEY_TABLE_HPP_
