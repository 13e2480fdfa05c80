// data/masked_maker.cpp — see masked_maker.hpp.
//
// A sample is put together as a reader would write it down, its tokens are masked in
// place, and each field is read off it: what the fields say of positions agrees, as there
// is one list of ids that they are positions of. For example, the begins and ends of
// documents are not looked for in the ids, which may have been masked, but noted when the
// window is taken. All buffers have their room from the beginning, as no sample is longer
// than the model's sequence.
#include "data/masked_maker.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "data/draws.hpp"
#include "data/fields.hpp"

namespace trireme::data {

namespace {

struct MaskedSample {
  std::span<const std::int32_t> ids, documents, masked, labels;
  index_t rows = 0, predictions = 0, second = 0;
  std::int32_t padding = 0;
  bool resets_positions = false, has_pair = false, is_other = false;

  index_t length() const { return std::ssize(ids); }
};

void masked_token_ids(const MaskedSample& sample, const FieldColumn& column) {
  fill_ids(sample.ids, sample.rows, sample.padding, column);
}

void types_of_tokens(const MaskedSample& sample, const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(sample.rows);
  for (index_t i = 0; i < sample.rows; ++i) {
    element(i) = i >= sample.second && i < sample.length() ? 1 : 0;
  }
}

// Calls set(i, begin, end) for each position, with the bounds of its document; those of
// padding are both the text's end.
template <class Set>
void for_each_position(const MaskedSample& sample, const Set& set) {
  for (std::size_t d = 0; d < sample.documents.size(); ++d) {
    const bool is_last = d + 1 == sample.documents.size();
    const index_t begin = sample.documents[d];
    const index_t end = is_last ? sample.length() : sample.documents[d + 1];
    for (index_t i = begin; i < end; ++i) set(i, begin, end);
  }
  for (index_t i = sample.length(); i < sample.rows; ++i) {
    set(i, sample.length(), sample.length());
  }
}

void begins_of_documents(const MaskedSample& sample, const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(sample.rows);
  for_each_position(sample, [&](index_t i, index_t begin, index_t) {
    element(i) = static_cast<std::int32_t>(begin);
  });
}

void ends_of_documents(const MaskedSample& sample, const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(sample.rows);
  for_each_position(sample, [&](index_t i, index_t, index_t end) {
    element(i) = static_cast<std::int32_t>(end);
  });
}

void places_in_text(const MaskedSample& sample, const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(sample.rows);
  for_each_position(sample, [&](index_t i, index_t begin, index_t) {
    element(i) = static_cast<std::int32_t>(sample.resets_positions ? i - begin : i);
  });
}

void masked_lengths(const MaskedSample& sample, const FieldColumn& column) {
  column.elements<std::int32_t>(1)(0) = static_cast<std::int32_t>(sample.length());
}

void positions_of_masked(const MaskedSample& sample, const FieldColumn& column) {
  fill_ids(sample.masked, sample.predictions, -1, column);
}

void labels_of_masked(const MaskedSample& sample, const FieldColumn& column) {
  fill_ids(sample.labels, sample.predictions, sample.padding, column);
}

void weights_of_masked(const MaskedSample& sample, const FieldColumn& column) {
  const auto element = column.elements<float>(sample.predictions);
  for (index_t i = 0; i < sample.predictions; ++i) {
    element(i) = i < std::ssize(sample.masked) ? 1.0f : 0.0f;
  }
}

void labels_of_pairs(const MaskedSample& sample, const FieldColumn& column) {
  column.elements<std::int32_t>(1)(0) = sample.is_other ? 1 : 0;
}

void weights_of_pairs(const MaskedSample& sample, const FieldColumn& column) {
  column.elements<float>(1)(0) = sample.has_pair ? 1.0f : 0.0f;
}

constexpr NamedField<MaskedSample> kMaskedFields[] = {
    {"tokens", masked_token_ids},
    {"token_types", types_of_tokens},
    {"positions", places_in_text},
    {"lengths", masked_lengths},
    {"document_begins", begins_of_documents},
    {"document_ends", ends_of_documents},
    {"masked_positions", positions_of_masked},
    {"masked_labels", labels_of_masked},
    {"masked_weights", weights_of_masked},
    {"pair_labels", labels_of_pairs},
    {"pair_weights", weights_of_pairs}};

}  // namespace

MaskedMaker::MaskedMaker(const Dataset& dataset, const MaskedRules& rules)
    : dataset_(dataset), rules_(rules), segments_(dataset, rules), masking_(rules) {
  const auto positions = static_cast<std::size_t>(rules.sequence);
  ids_.reserve(positions);
  documents_.reserve(positions);
  labels_.reserve(static_cast<std::size_t>(rules.predictions));
}

void MaskedMaker::append(const Dataset::Place& place, TokenRange tokens) {
  Dataset::Place part = place;
  part.tokens = tokens;
  const std::size_t before = ids_.size();
  ids_.resize(before + static_cast<std::size_t>(tokens.size()));
  dataset_.copy(part, ids_.data() + before);
}

void MaskedMaker::take_window(const Dataset::Place& place) {
  const MaskedVocabulary& vocabulary = *rules_.vocabulary;
  append(place, place.tokens);
  for (std::size_t i = 1; i < ids_.size(); ++i) {
    if (ids_[i] != vocabulary.end_of_document) continue;
    ids_[i] = vocabulary.separate;
    // The sample's own [SEP] is no document.
    if (i + 1 < ids_.size()) documents_.push_back(static_cast<std::int32_t>(i + 1));
  }
  ids_.push_back(vocabulary.separate);
  second_ = std::ssize(ids_);
}

void MaskedMaker::take_segments(const Dataset::Place& place, const Segments& segments) {
  const std::int32_t separate = rules_.vocabulary->separate;
  append(place, segments.first);
  ids_.push_back(separate);
  second_ = std::ssize(ids_);
  if (!segments.has_pair()) return;
  append(place, segments.second);
  ids_.push_back(separate);
}

void MaskedMaker::mask(const SampleId& sample) {
  const std::uint64_t seed = dataset_.rules().seed;
  const auto part =
      std::lrint(rules_.mask_prob * static_cast<double>(ids_.size()));  // halves to even
  const index_t wanted =
      std::min<index_t>(rules_.predictions, std::max<index_t>(part, 1));
  masked_ =
      masking_.choose(ids_, wanted, Draws(seed, sample, Draws::Purpose::masked_words));
  Draws draws(seed, sample, Draws::Purpose::replacements);
  labels_.clear();
  for (const std::int32_t at : masked_) {
    std::int32_t& id = ids_[static_cast<std::size_t>(at)];
    labels_.push_back(id);
    id = replacement_of(id, *rules_.vocabulary, draws);
  }
}

void MaskedMaker::make(index_t position, std::span<const SampleColumn> columns) {
  const Dataset::Place place = dataset_.place(position);
  ids_.assign(1, rules_.vocabulary->classify);
  documents_.assign(1, 0);
  Segments segments;
  if (rules_.pack) {
    take_window(place);
  } else {
    segments = segments_.choose(place);
    take_segments(place, segments);
  }
  mask(place.sample);
  const MaskedSample sample{.ids = ids_,
                            .documents = documents_,
                            .masked = masked_,
                            .labels = labels_,
                            .rows = rules_.sequence,
                            .predictions = rules_.predictions,
                            .second = second_,
                            .padding = rules_.vocabulary->padding,
                            .resets_positions = rules_.reset_position_ids,
                            .has_pair = segments.has_pair(),
                            .is_other = segments.is_other};
  for (const SampleColumn& column : columns) {
    fill_field<MaskedSample>(kMaskedFields, column.field, sample, column.to);
  }
}

}  // namespace trireme::data
