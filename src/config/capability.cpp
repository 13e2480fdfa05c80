// config/capability.cpp — see capability.hpp.
//
// The list is of words as decks have them, so that what is refused is said as it was
// written, and pages and errors cannot differ. Each kind of models has its own variants:
// what one trains with is untested in another, even where both have the same layers.
#include "config/capability.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/words.hpp"
#include "config/check.hpp"
#include "config/key_table.hpp"
#include "config/kinds.hpp"

namespace trireme::config {
namespace {

constexpr const char* kNotYet = "not yet";

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What each kind has of the variants of layers.
std::vector<Capability> gpt_layers() {
  return {{.key = "model.norm",
           .trained = {"layernorm"},
           .reason = "no other norm is written",
           .told = Told::size},
          {.key = "model.activation",
           .trained = {"gelu_tanh"},
           .reason = "no other is written",
           .told = Told::size},
          {.key = "model.position",
           .trained = {"learned"},
           .reason = "no other encoding is written",
           .told = Told::size,
           .nothing_told = {"relative"}},
          {.key = "model.bias",
           .trained = {"true"},
           .reason = "layers without biases are not written",
           .told = Told::size},
          {.key = "model.tie_embeddings",
           .trained = {"true"},
           .reason = "a head with weights of its own is not written",
           .told = Told::size}};
}

std::vector<Capability> bert_layers() {
  return {{.key = "model.norm",
           .trained = {"layernorm"},
           .reason = "no other norm is written for bert",
           .told = Told::nothing},
          {.key = "model.activation",
           .trained = {"gelu", "gelu_tanh", "relu"},
           .reason = "no gated one is written for bert",
           .told = Told::nothing},
          {.key = "model.position",
           .trained = {"learned"},
           .reason = "no other encoding is written for bert",
           .told = Told::nothing},
          {.key = "model.bias",
           .trained = {"true"},
           .reason = "layers without biases are not written for bert",
           .told = Told::nothing},
          {.key = "model.tie_embeddings",
           .trained = {"true"},
           .reason = "a head with weights of its own is not written for bert",
           .told = Told::nothing}};
}

std::vector<Capability> t5_layers() {
  return {{.key = "model.norm",
           .trained = {"rmsnorm"},
           .reason = "no other norm is written for t5",
           .told = Told::nothing},
          {.key = "model.activation",
           .trained = {"relu", "geglu_tanh", "geglu"},
           .reason = "no other is written for t5",
           .told = Told::nothing},
          {.key = "model.position",
           .trained = {"relative"},
           .reason = "no other encoding is written for t5",
           .told = Told::nothing},
          {.key = "model.bias",
           .trained = {"false"},
           .reason = "layers with biases are not written for t5",
           .told = Told::nothing}};
}

bool is_of(const Capability& capability, ModelKind kind) {
  return capability.kind.value_or(kind) == kind;
}

const Capability* find_capability(ModelKind kind, std::string_view key) {
  const auto found =
      std::ranges::find_if(capabilities(), [&](const Capability& capability) {
        return capability.key == key && is_of(capability, kind);
      });
  return found == capabilities().end() ? nullptr : &*found;
}

// Kinds that this version trains.
std::vector<ModelKind> trained_kinds() {
  std::vector<ModelKind> kinds = all_kinds();
  std::erase_if(kinds, [](ModelKind kind) {
    return !is_trained(kind, "model.kind", name_of(kind));
  });
  return kinds;
}

// Behind a word of a key: "" where all kinds are trained with it, else which are.
std::string mark_of(const std::string& key, std::string_view word) {
  const std::vector<ModelKind> kinds = trained_kinds();
  std::vector<ModelKind> with_it;
  for (const ModelKind kind : kinds) {
    if (is_trained(kind, key, word)) with_it.push_back(kind);
  }
  if (with_it.size() == kinds.size()) return "";
  return fmt::format(" ({})", with_it.empty() ? kNotYet : kinds_text(with_it));
}

std::string value_of(const Deck& deck, const std::string& key) {
  return find_key(key)->write(deck);
}

std::vector<std::string> trained_values(const Capability& capability, const Deck& deck) {
  if (capability.same_as.empty()) return capability.trained;
  return {value_of(deck, capability.same_as)};
}

}  // namespace

const std::vector<Capability>& capabilities() {
  static const std::vector<Capability> all = [] {
    std::vector<Capability> list = {{.key = "model.kv_heads",
                                     .same_as = "model.heads",
                                     .reason = "attention shares no heads in training"}};
    const auto add = [&](ModelKind kind, const std::vector<Capability>& layers) {
      for (Capability layer : layers) {
        layer.kind = kind;
        list.push_back(std::move(layer));
      }
    };
    add(ModelKind::gpt, gpt_layers());
    add(ModelKind::bert, bert_layers());
    add(ModelKind::t5, t5_layers());
    list.push_back({.key = "parallel.context",
                    .trained = {"1"},
                    .reason = "ranks do not share sequences",
                    .told = Told::size});
    return list;
  }();
  return all;
}

bool is_trained(ModelKind kind, std::string_view key, std::string_view value) {
  const Capability* capability = find_capability(kind, key);
  return capability == nullptr || has(capability->trained, value);
}

std::string mark_not_yet(const KeyInfo& info) {
  const auto found = std::ranges::find(capabilities(), info.path, &Capability::key);
  if (found == capabilities().end()) return info.allowed;
  if (info.type != "word" && info.type != "true or false") {
    const std::string trained = found->same_as.empty()
                                    ? fmt::format("{}", fmt::join(found->trained, ", "))
                                    : found->same_as;
    return fmt::format("{} (other than {}: {})", info.allowed, trained, kNotYet);
  }
  std::string marked;
  for (const std::string_view word : split(info.allowed, ", ")) {
    marked +=
        fmt::format("{}{}{}", marked.empty() ? "" : ", ", word, mark_of(info.path, word));
  }
  return marked;
}

std::vector<NotTrained> not_trained(const Deck& deck, const std::set<std::string>& bad) {
  std::vector<NotTrained> list;
  for (const Capability& capability : capabilities()) {
    if (!is_of(capability, deck.model.kind)) continue;
    if (bad.count(capability.key) + bad.count(capability.same_as) > 0) continue;
    const std::string value = value_of(deck, capability.key);
    if (has(trained_values(capability, deck), value)) continue;
    list.push_back(
        {capability.key, value, capability.reason,
         has(capability.nothing_told, value) ? Told::nothing : capability.told});
  }
  return list;
}

std::vector<DeckError> errors_of_training(const Deck& deck,
                                          const std::set<std::string>& bad) {
  std::vector<DeckError> errors;
  for (const NotTrained& lack : not_trained(deck, bad)) {
    const auto trained =
        trained_values(*find_capability(deck.model.kind, lack.key), deck);
    errors.push_back(error_at(
        deck, lack.key,
        fmt::format("is not supported by training yet: {} (--dry-run accepts it)",
                    lack.reason),
        fmt::format("{}", fmt::join(trained, ", ")),
        fmt::format("{}: {}", lack.key, trained.front())));
  }
  if (deck.data.train.empty() && bad.count("data.train") == 0) {
    errors.push_back(error_at(deck, "data.train", "names no corpus to train on",
                              "a file made by trireme tokenize",
                              "data.train: corpus.h5"));
  }
  return errors;
}

}  // namespace trireme::config
