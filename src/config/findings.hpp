// config/findings.hpp — what checks of a whole deck have in common: they leave out keys
// that have an error already, and add what they find to one list.
#ifndef TRIREME_CONFIG_FINDINGS_HPP_
#define TRIREME_CONFIG_FINDINGS_HPP_

#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/check.hpp"
#include "config/deck.hpp"
#include "config/deck_error.hpp"

namespace trireme::config {

class Findings {
 public:
  Findings(const Deck& deck, const std::set<std::string>& bad,
           std::vector<DeckError>& errors)
      : checked_(deck), bad_(bad), errors_(errors) {}

 protected:
  // Whether the values of all of them are known.
  bool good(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      if (bad_.count(key) > 0) return false;
    }
    return true;
  }
  void add(const std::string& key, std::string what, std::string allowed,
           std::string fix) {
    errors_.push_back(
        error_at(checked_, key, std::move(what), std::move(allowed), std::move(fix)));
  }
  const std::set<std::string>& bad() const { return bad_; }
  std::vector<DeckError>& errors() { return errors_; }

 private:
  const Deck& checked_;
  const std::set<std::string>& bad_;
  std::vector<DeckError>& errors_;
};

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_FINDINGS_HPP_
