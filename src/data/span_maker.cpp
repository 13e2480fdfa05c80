// data/span_maker.cpp — see span_maker.hpp.
//
// A text is read, two cuts say where its spans are, and one pass over it deals the tokens
// to source and labels. A cut is a choice among the gaps between tokens, each of which
// has a mark: that takes a draw for each span, and neither a list of the gaps nor an
// order of them. All buffers have their room from the beginning, as no text is longer
// than a window.
#include "data/span_maker.hpp"

#include <algorithm>
#include <cstddef>

#include "config/span_lengths.hpp"
#include "data/corpus.hpp"
#include "data/fields.hpp"

namespace trireme::data {

namespace {

// A text with its spans hidden, and what fills up the streams behind it.
struct SpanSample {
  std::span<const std::int32_t> source, labels;
  index_t source_rows = 0, target_rows = 0;
  std::int32_t padding = 0;
  bool has_spans = false;
};

void source_ids(const SpanSample& sample, const FieldColumn& column) {
  fill_ids(sample.source, sample.source_rows, sample.padding, column);
}

void label_ids(const SpanSample& sample, const FieldColumn& column) {
  fill_ids(sample.labels, sample.target_rows, sample.padding, column);
}

void target_ids(const SpanSample& sample, const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(sample.target_rows);
  for (index_t i = 0; i < sample.target_rows; ++i) {
    element(i) = i > 0 && i < std::ssize(sample.labels)
                     ? sample.labels[static_cast<std::size_t>(i - 1)]
                     : sample.padding;
  }
}

void source_lengths(const SpanSample& sample, const FieldColumn& column) {
  column.elements<std::int32_t>(1)(0) = static_cast<std::int32_t>(sample.source.size());
}

void target_lengths(const SpanSample& sample, const FieldColumn& column) {
  column.elements<std::int32_t>(1)(0) = static_cast<std::int32_t>(sample.labels.size());
}

void label_mask(const SpanSample& sample, const FieldColumn& column) {
  const auto element = column.elements<float>(sample.target_rows);
  for (index_t i = 0; i < sample.target_rows; ++i) {
    element(i) = sample.has_spans && i < std::ssize(sample.labels) ? 1.0f : 0.0f;
  }
}

constexpr NamedField<SpanSample> kSpanFields[] = {
    {"source", source_ids}, {"source_lengths", source_lengths},
    {"target", target_ids}, {"target_lengths", target_lengths},
    {"labels", label_ids},  {"loss_mask", label_mask}};

}  // namespace

SpanMaker::SpanMaker(const Dataset& dataset, const SpanRules& rules)
    : dataset_(dataset), rules_(rules) {
  const index_t longest = dataset.rules().windows.tokens;
  const config::SpanLengths lengths =
      config::span_lengths(longest, rules.density, rules.mean_length);
  text_.resize(static_cast<std::size_t>(longest));
  marks_.resize(static_cast<std::size_t>(longest));
  for (std::vector<index_t>* segments : {&kept_, &hidden_}) {
    segments->reserve(static_cast<std::size_t>(lengths.spans));
  }
  source_.reserve(static_cast<std::size_t>(lengths.source));
  labels_.reserve(static_cast<std::size_t>(lengths.target));
}

// Of the document of one of the window's tokens: of any of them, since documents that
// begin and end within a window would otherwise never be read. Its end is that of the
// source and of the labels, and no part of the text.
TokenRange SpanMaker::part_of_document(const Dataset::Place& place) const {
  const TokenRange& window = place.tokens;
  Draws draws(dataset_.rules().seed, place.sample, Draws::Purpose::document);
  const index_t document =
      place.corpus->document_of(window.begin + draws.below(window.size()));
  return text_of_document(*place.corpus, window, document);
}

// Cuts `items` into so many segments of at least one.
void SpanMaker::cut(index_t items, index_t segments, const SampleId& sample,
                    Draws::Purpose purpose, std::vector<index_t>& lengths) {
  const std::span<std::uint8_t> gaps =
      std::span(marks_).first(static_cast<std::size_t>(items) - 1);
  Draws(dataset_.rules().seed, sample, purpose).choose(segments - 1, gaps);
  lengths.assign(1, 1);
  for (const std::uint8_t ends : gaps) {
    if (ends != 0) {
      lengths.push_back(1);
    } else {
      ++lengths.back();
    }
  }
}

void SpanMaker::hide_spans(index_t tokens, const SampleId& sample) {
  source_.clear();
  labels_.clear();
  auto at = text_.cbegin();
  const auto move = [&at](index_t count, std::vector<std::int32_t>& to) {
    to.insert(to.end(), at, at + count);
    at += count;
  };
  kept_.clear();
  if (tokens >= 2) {  // one has nothing to hide it from
    const config::SpanLengths lengths =
        config::span_lengths(tokens, rules_.density, rules_.mean_length);
    cut(tokens - lengths.noise, lengths.spans, sample, Draws::Purpose::kept_spans, kept_);
    cut(lengths.noise, lengths.spans, sample, Draws::Purpose::hidden_spans, hidden_);
  }
  std::int32_t sentinel = rules_.first_sentinel;
  for (std::size_t i = 0; i < kept_.size(); ++i, --sentinel) {
    move(kept_[i], source_);
    source_.push_back(sentinel);
    labels_.push_back(sentinel);
    move(hidden_[i], labels_);
  }
  move(text_.cbegin() + tokens - at, source_);  // without spans: all of it
  source_.push_back(rules_.end);
  labels_.push_back(rules_.end);
}

void SpanMaker::make(index_t position, std::span<const SampleColumn> columns) {
  Dataset::Place place = dataset_.place(position);
  if (!rules_.pack) place.tokens = part_of_document(place);
  dataset_.copy(place, text_.data());
  hide_spans(place.tokens.size(), place.sample);
  const SpanSample sample{.source = source_,
                          .labels = labels_,
                          .source_rows = rules_.source,
                          .target_rows = rules_.target,
                          .padding = rules_.padding,
                          .has_spans = !kept_.empty()};
  for (const SampleColumn& column : columns) {
    fill_field<SpanSample>(kSpanFields, column.field, sample, column.to);
  }
}

}  // namespace trireme::data
