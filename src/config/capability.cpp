// config/capability.cpp — see capability.hpp.
#include "config/capability.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/words.hpp"
#include "config/check.hpp"
#include "config/key_table.hpp"

namespace trireme::config {
namespace {

constexpr const char* kNotYet = "not yet";

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

const Capability* find_capability(std::string_view key) {
  const auto found = std::ranges::find(capabilities(), key, &Capability::key);
  return found == capabilities().end() ? nullptr : &*found;
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
  static const std::vector<Capability> all = {
      {"model.kind", {"gpt"}, "", "no other architecture is written", Told::nothing},
      {"model.kv_heads", {}, "model.heads", "attention shares no heads in training"},
      {"model.norm", {"layernorm"}, "", "no other norm is written", Told::size},
      {"model.activation", {"gelu_tanh"}, "", "no other is written", Told::size},
      {"model.position",
       {"learned"},
       "",
       "no other encoding is written",
       Told::size,
       {"relative"}},
      {"model.bias", {"true"}, "", "layers without biases are not written", Told::size},
      {"model.tie_embeddings",
       {"true"},
       "",
       "a head with weights of its own is not written",
       Told::size},
      {"parallel.context", {"1"}, "", "ranks do not share sequences", Told::size}};
  return all;
}

bool is_trained(std::string_view key, std::string_view value) {
  const Capability* capability = find_capability(key);
  return capability == nullptr || has(capability->trained, value);
}

std::string mark_not_yet(const KeyInfo& info) {
  const Capability* capability = find_capability(info.path);
  if (capability == nullptr) return info.allowed;
  if (info.type != "word" && info.type != "true or false") {
    const std::string trained =
        capability->same_as.empty()
            ? fmt::format("{}", fmt::join(capability->trained, ", "))
            : capability->same_as;
    return fmt::format("{} (other than {}: {})", info.allowed, trained, kNotYet);
  }
  std::string marked;
  for (const std::string_view word : split(info.allowed, ", ")) {
    marked += fmt::format("{}{}", marked.empty() ? "" : ", ", word);
    if (!has(capability->trained, word)) marked += fmt::format(" ({})", kNotYet);
  }
  return marked;
}

std::vector<NotTrained> not_trained(const Deck& deck, const std::set<std::string>& bad) {
  std::vector<NotTrained> list;
  for (const Capability& capability : capabilities()) {
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
    const auto trained = trained_values(*find_capability(lack.key), deck);
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
