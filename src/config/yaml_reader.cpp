// config/yaml_reader.cpp — see yaml_reader.hpp.
#include "config/yaml_reader.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>

namespace trireme::config {
namespace {

constexpr int kMaxDepth = 16;
constexpr int kMaxValues = 100000;

class Converter {
 public:
  YamlValue convert(const YAML::Node& node, int depth = 0) {
    if (depth > kMaxDepth) throw InputError("values are nested too deeply for a deck");
    if (++values_ > kMaxValues) throw InputError("too many values for a deck");
    YamlValue value;
    value.line = node.Mark().line + 1;
    if (node.IsScalar()) {
      value.kind = YamlValue::Kind::scalar;
      value.text = node.Scalar();
      value.quoted = node.Tag() == "!";
    } else if (node.IsSequence()) {
      value.kind = YamlValue::Kind::list;
      for (const auto& item : node) value.items.push_back(convert(item, depth + 1));
    } else if (node.IsMap()) {
      value.kind = YamlValue::Kind::map;
      for (const auto& pair : node) {
        YamlValue::Entry entry;
        entry.line = pair.first.Mark().line + 1;
        entry.key = pair.first.IsScalar() ? pair.first.Scalar()
                                          : brief(convert(pair.first, depth + 1));
        entry.value = convert(pair.second, depth + 1);
        value.entries.push_back(std::move(entry));
      }
    }
    return value;
  }

 private:
  int values_ = 0;
};

}  // namespace

YamlValue read_yaml(const std::string& text, const std::string& file,
                    std::vector<DeckError>& errors) {
  const auto fail = [&](int line, const std::string& what, const std::string& fix) {
    errors.push_back(
        {"", line > 0 ? fmt::format("{}:{}", file, line) : file, "", what, "", fix});
    return YamlValue();
  };
  if (text.find('\0') != std::string::npos) {
    return fail(0, "is not text: it has zero bytes", "a YAML file, see inputs/");
  }
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return {};
    if (documents.size() > 1) {
      return fail(documents[1].Mark().line + 1,
                  "a second YAML document begins here; a deck is one document",
                  "remove the line '---' or what follows it");
    }
    return Converter().convert(documents[0]);
  } catch (const YAML::Exception& error) {
    const bool tab = error.msg.find("tab") != std::string::npos;
    return fail(error.mark.line + 1, fmt::format("is not YAML here: {}", error.msg),
                tab ? "indent with spaces" : "");
  } catch (const InputError& error) {
    return fail(0, error.what(), "");
  }
}

std::string brief(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::null:
      return "";
    case YamlValue::Kind::scalar: {
      std::string text =
          value.text.size() > 60 ? value.text.substr(0, 57) + "..." : value.text;
      std::replace(text.begin(), text.end(), '\n', ' ');
      return value.quoted ? '"' + text + '"' : text;
    }
    case YamlValue::Kind::list:
    case YamlValue::Kind::map: {
      const bool list = value.is_list();
      std::string text(1, list ? '[' : '{');
      const std::size_t count = list ? value.items.size() : value.entries.size();
      for (std::size_t i = 0; i < count && text.size() < 60; ++i) {
        if (i > 0) text += ", ";
        if (!list) text += value.entries[i].key + ": ";
        text += brief(list ? value.items[i] : value.entries[i].value);
      }
      if (text.size() >= 60) text = text.substr(0, 57) + "...";
      return text + (list ? ']' : '}');
    }
  }
  return "";
}

}  // namespace trireme::config
