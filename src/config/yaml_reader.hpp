// config/yaml_reader.hpp — YAML text as a plain tree with line numbers; the YAML library
// stays behind it. Limits on depth and size: a deck is small, and aliases may nest
// without end.
#ifndef TRIREME_CONFIG_YAML_READER_HPP_
#define TRIREME_CONFIG_YAML_READER_HPP_

#include <string>
#include <vector>

#include "config/deck_error.hpp"

namespace trireme::config {

struct YamlValue {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  std::string text;     // of a scalar
  bool quoted = false;  // a scalar in quotes is text, whatever it looks like
  int line = 0;         // from 1
  std::vector<YamlValue> items;
  std::vector<Entry> entries;

  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_list() const { return kind == Kind::list; }
  bool is_map() const { return kind == Kind::map; }
  bool is_null() const { return kind == Kind::null; }
};

struct YamlValue::Entry {
  std::string key;
  int line = 0;
  YamlValue value;
};

// The text's one document. What is wrong goes to `errors` (and the value is null).
YamlValue read_yaml(const std::string& text, const std::string& file,
                    std::vector<DeckError>& errors);

// A value in one short line, for messages.
std::string brief(const YamlValue& value);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_YAML_READER_HPP_
