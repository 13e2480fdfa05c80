// config/yaml_reader.cpp — see yaml_reader.hpp.
//
// The tree is built from the parser's events and not by the library's loader. That one
// forgets where a key that stands twice was, and it does not come back from some damaged
// files. Here limits on depth and on the number of values end such a file with an error
// that names its line.
#include "config/yaml_reader.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.hpp"

namespace trireme::config {
namespace {

constexpr std::size_t kMaxDepth = 16;
constexpr int kMaxValues = 100000;

// Builds the tree from the parser's events. The library's own trees lose duplicate keys'
// lines, and its loader does not come back from some damaged files: the limits stop it
// here.
class TreeBuilder final : public YAML::EventHandler {
 public:
  YamlValue take_root() { return std::move(root_); }
  int second_document_line() const { return second_line_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) {
      second_line_ = mark.line + 1;
      throw InputError("a second YAML document begins here; a deck is one document");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    place(make(mark, YamlValue::Kind::null), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    YamlValue value = make(mark, YamlValue::Kind::scalar);
    value.text = text;
    value.quoted = tag == "!";
    place(std::move(value), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) throw InputError("an alias stands inside what it names");
    values_ += named->second.second;
    if (values_ > kMaxValues) throw InputError("has too many values for a deck");
    YamlValue value = named->second.first;
    value.line = mark.line + 1;
    place(std::move(value), 0);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(mark, YamlValue::Kind::list), anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(mark, YamlValue::Kind::map), anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlValue value;
    YAML::anchor_t anchor;
    int values_before;
    bool has_key = false;
    YamlValue::Entry entry;  // of a map, between its key and its value
  };

  YamlValue make(const YAML::Mark& mark, YamlValue::Kind kind) {
    if (++values_ > kMaxValues) throw InputError("has too many values for a deck");
    YamlValue value;
    value.kind = kind;
    value.line = mark.line + 1;
    return value;
  }
  void open(YamlValue value, YAML::anchor_t anchor) {
    if (open_.size() >= kMaxDepth) throw InputError("is nested too deeply for a deck");
    open_.push_back({std::move(value), anchor, values_ - 1, false, {}});
  }
  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    const int size = values_ - done.values_before;
    place(std::move(done.value), done.anchor, size);
  }
  void place(YamlValue value, YAML::anchor_t anchor, int size = 1) {
    if (anchor != 0) anchors_[anchor] = {value, size};
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.is_list()) {
      parent.value.items.push_back(std::move(value));
    } else if (!parent.has_key) {
      parent.entry = {value.is_scalar() ? value.text : brief(value), value.line, {}};
      parent.has_key = true;
    } else {
      parent.entry.value = std::move(value);
      parent.value.entries.push_back(std::move(parent.entry));
      parent.has_key = false;
    }
  }

  YamlValue root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, std::pair<YamlValue, int>> anchors_;  // with the size of each
  int values_ = 0;
  int documents_ = 0;
  int second_line_ = 0;
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
  TreeBuilder tree;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(tree)) {
    }
    return tree.take_root();
  } catch (const YAML::Exception& error) {
    const bool tab = error.msg.find("tab") != std::string::npos;
    return fail(error.mark.line + 1, fmt::format("is not YAML here: {}", error.msg),
                tab ? "indent with spaces" : "");
  } catch (const InputError& error) {
    return fail(tree.second_document_line(), error.what(),
                tree.second_document_line() > 0
                    ? "remove the line '---' and what follows it"
                    : "");
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
      return value.quoted ? fmt::format("\"{}\"", text) : text;
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
      text += list ? ']' : '}';
      return text;
    }
  }
  return "";
}

}  // namespace trireme::config
