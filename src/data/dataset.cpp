// data/dataset.cpp — see dataset.hpp.
#include "data/dataset.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::data {
namespace {

std::vector<double> weights_of(const std::vector<Dataset::Part>& parts) {
  std::vector<double> weights;
  for (const Dataset::Part& part : parts) weights.push_back(part.weight);
  return weights;
}

}  // namespace

Dataset::Dataset(std::vector<Part> parts, const SampleRules& rules, Order order,
                 const std::string& name, Tail tail)
    : parts_(std::move(parts)), rules_(rules), blend_(weights_of(parts_)) {
  const Corpus& first = *parts_[0].corpus;
  for (const Part& part : parts_) {
    const Corpus& corpus = *part.corpus;
    TRIREME_REQUIRE_INPUT(
        same_tokenizer(corpus, first),
        "corpora of '{}' were made with different tokenizers: '{}' has {} (end of "
        "document {}), '{}' has {} (end of document {}). Tokenize both with one",
        name, first.path().string(), format_plural(first.vocabulary_size(), "token"),
        first.end_of_document(), corpus.path().string(), corpus.vocabulary_size(),
        corpus.end_of_document());
    index_.emplace_back(part.range, rules.windows_in(corpus), rules.seed, order,
                        fmt::format("'{}' of corpus '{}'", name, corpus.path().string()),
                        static_cast<int>(index_.size()), tail);
  }
}

Dataset::Place Dataset::place(index_t position) const {
  const Blend::Place place = blend_.place(position);
  const auto part = static_cast<std::size_t>(place.corpus);
  const SampleId sample = index_[part].sample(place.position);
  return {parts_[part].corpus.get(), sample, index_[part].tokens(sample.window),
          index_[part].windows().tokens, parts_[part].range};
}

void Dataset::copy(const Place& place, std::int32_t* out) const {
  const TokenRange& tokens = place.tokens;
  place.corpus->copy(tokens.begin, tokens.size(), out);
  std::uint32_t largest = 0;
  for (index_t i = 0; i < tokens.size(); ++i) {
    // Unsigned: an id beyond 2^31 of a damaged file is large, not negative.
    largest = std::max(largest, static_cast<std::uint32_t>(out[i]));
  }
  TRIREME_REQUIRE_INPUT(
      largest < vocabulary_size(),
      "corpus '{}': token id {} near token {} is outside its vocabulary of {}: the file "
      "is damaged (`trireme inspect --verify` tells more)",
      place.corpus->path().string(), largest, tokens.begin, vocabulary_size());
}

index_t Dataset::windows() const {
  index_t windows = 0;
  for (const SampleIndex& index : index_) windows += index.samples_per_epoch();
  return windows;
}

index_t Dataset::tokens() const {
  index_t tokens = 0;
  for (const SampleIndex& index : index_) {
    tokens += index.samples_per_epoch() * index.windows().stride;
  }
  return tokens;
}

index_t Dataset::tokens_of(index_t positions) const {
  index_t tokens = 0;
  for (std::size_t i = 0; i < index_.size(); ++i) {
    tokens += blend_.count(static_cast<int>(i), positions) * index_[i].windows().stride;
  }
  return tokens;
}

index_t Dataset::left_out() const {
  index_t labels = 0;
  for (const SampleIndex& index : index_) labels += index.left_out();
  return labels;
}

std::vector<double> Dataset::epochs(index_t positions) const {
  std::vector<double> epochs;
  for (std::size_t i = 0; i < index_.size(); ++i) {
    epochs.push_back(static_cast<double>(blend_.count(static_cast<int>(i), positions)) /
                     static_cast<double>(index_[i].samples_per_epoch()));
  }
  return epochs;
}

index_t Dataset::positions_without_repeats() const {
  const auto repeats = [&](index_t positions) {
    for (std::size_t i = 0; i < index_.size(); ++i) {
      if (blend_.count(static_cast<int>(i), positions) > index_[i].samples_per_epoch()) {
        return true;
      }
    }
    return false;
  };
  index_t without = 0, with = windows() + 1;  // one of those comes twice
  while (with - without > 1) {
    const index_t middle = without + (with - without) / 2;
    (repeats(middle) ? with : without) = middle;
  }
  return without;
}

TokenRange text_of_document(const Corpus& corpus, const TokenRange& part,
                            index_t document) {
  return {std::max(part.begin, corpus.document_begin(document)),
          std::min(part.end, corpus.document_begin(document + 1) - 1)};
}

}  // namespace trireme::data
