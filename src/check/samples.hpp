// check/samples.hpp — the samples that a model is trained on, of a corpus: for `inspect
// --show`.
//
// They are made as training makes them, by the rules of a deck, and shown field by field
// as the model gets them (data/sample_text.hpp). Without a deck they are those of a GPT
// of kShownSequence positions.
#ifndef TRIREME_CHECK_SAMPLES_HPP_
#define TRIREME_CHECK_SAMPLES_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "io/files.hpp"

namespace trireme::check {

inline constexpr index_t kShownSequence = 64;

// JSON: the first samples of training on this corpus alone, so many or all of an epoch
//   kind    of the model that sees them
//   deck    as it was given; not there without one. `overrides` change its keys
//   epoch   samples of one
//   shown   for each: position in training and window, both from 0, and its text
// InputError where there is no such corpus or deck, or the deck's model cannot be trained
// on the corpus; config::DeckErrors where the deck is wrong.
nlohmann::ordered_json first_samples(const io::Path& corpus, index_t count,
                                     const std::string& deck,
                                     const std::vector<std::string>& overrides = {});

// The text for people of what first_samples() returns. Ends with a newline.
std::string samples_text(const nlohmann::ordered_json& samples);

}  // namespace trireme::check

#endif  // TRIREME_CHECK_SAMPLES_HPP_
