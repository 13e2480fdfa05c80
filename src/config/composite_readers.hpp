// config/composite_readers.hpp — reads and writes the keys whose value has parts of its
// own: lists of corpora, names with paths, and the ramp of the batch.
#ifndef TRIREME_CONFIG_COMPOSITE_READERS_HPP_
#define TRIREME_CONFIG_COMPOSITE_READERS_HPP_

#include <cstddef>
#include <optional>
#include <string>

#include "config/deck.hpp"
#include "config/key_table.hpp"
#include "config/yaml_reader.hpp"

namespace trireme::config {

// Lists of more corpora are left without a fix, which would be too long to be read.
inline constexpr std::ptrdiff_t kMostShown = 4;

std::optional<Problem> read_train(const YamlValue& value, Deck& deck);
std::string write_train(const Deck& deck);

std::optional<Problem> read_validation(const YamlValue& value, Deck& deck);
std::string write_validation(const Deck& deck);

std::optional<Problem> read_ramp_up(const YamlValue& value, Deck& deck);
std::string write_ramp_up(const Deck& deck);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_COMPOSITE_READERS_HPP_
