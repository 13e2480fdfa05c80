// data/span_maker.hpp — T5's samples (Raffel et al. 2020, 3.1.4): spans of a text are
// hidden, a sentinel stands in place of each, and the decoder is to say what they were.
// For example, with pad, </s> and the sentinels <0>, <1>:
//
//   text    Thank you for inviting me to your party last week
//   source  Thank you <0> me to your party <1> week </s>
//   labels  <0> for inviting <1> last </s>
//   target  pad <0> for inviting <1> last
//
// As in T5's own code the counts of hidden tokens and of spans follow from the text's
// length (config/span_lengths.hpp). Each way to cut the hidden tokens into so many spans
// is as likely as another, and each way to cut the others into as many; they take turns,
// and the first is kept, so that the last token of a text is always hidden.
#ifndef TRIREME_DATA_SPAN_MAKER_HPP_
#define TRIREME_DATA_SPAN_MAKER_HPP_

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "data/dataset.hpp"
#include "data/draws.hpp"
#include "data/sample_maker.hpp"
#include "data/sample_rules.hpp"

namespace trireme::data {

// Fields: source, target (the labels moved one position on, behind padding), labels, all
// filled up with padding; source_lengths and target_lengths, of each sample; loss_mask, 1
// at the labels. A text of fewer than two tokens has nothing to be found, and no label of
// it counts.
class SpanMaker : public SampleMaker {
 public:
  SpanMaker(const Dataset& dataset, const SpanRules& rules);

  void make(index_t position, std::span<const SampleColumn> columns) override;

 private:
  TokenRange part_of_document(const Dataset::Place& place) const;
  void hide_spans(index_t tokens, const SampleId& sample);
  void cut(index_t items, index_t segments, const SampleId& sample,
           Draws::Purpose purpose, std::vector<index_t>& lengths);

  const Dataset& dataset_;
  SpanRules rules_;
  std::vector<std::int32_t> text_;
  std::vector<std::uint8_t> marks_;     // of the gaps between tokens, where spans begin
  std::vector<index_t> kept_, hidden_;  // lengths of the segments
  std::vector<std::int32_t> source_, labels_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_SPAN_MAKER_HPP_
