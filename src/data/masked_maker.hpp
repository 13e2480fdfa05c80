// data/masked_maker.hpp — BERT's samples (Devlin et al. 2019, 3.1): of a text some tokens
// are masked and to be found, and of two segments it is to be said which pair they are.
// For example, of two sentences that were swapped:
//
//   tokens       [CLS] it is done . [SEP] she [MASK] wait ##ed . [SEP]
//   token_types    0   0  0  0   0    0    1     1     1    1   1   1
//   masked       position 7, label "had"            pair_labels  1
//
// Two segments are of one document (segment_choice.hpp). Packed, a sample is a window of
// the corpus, whatever documents are in it, each of them with [SEP] behind it:
//
//   tokens       [CLS] end of one . [SEP] all of another . [SEP] front of a third [SEP]
//
// Which tokens are masked and what stands there: word_masking.hpp.
#ifndef TRIREME_DATA_MASKED_MAKER_HPP_
#define TRIREME_DATA_MASKED_MAKER_HPP_

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "data/dataset.hpp"
#include "data/sample_maker.hpp"
#include "data/sample_rules.hpp"
#include "data/segment_choice.hpp"
#include "data/word_masking.hpp"

namespace trireme::data {

// Fields, of each position of the text: tokens, filled up with padding; token_types, 1 in
// the second segment; positions, 0, 1, 2 ..., with reset_position_ids in each document;
// document_begins and document_ends, where the position's document begins and ends, of
// padding both where the text ends. Of each sample: lengths, its positions that are no
// padding; pair_labels, 1 where the segments are swapped or of two documents, and
// pair_weights, 0 where there is one segment. Of each of the predictions: the
// masked_positions, ascending, then -1; masked_labels, what stood there; masked_weights,
// 1, then 0.
class MaskedMaker : public SampleMaker {
 public:
  MaskedMaker(const Dataset& dataset, const MaskedRules& rules);

  void make(index_t position, std::span<const SampleColumn> columns) override;

 private:
  void take_window(const Dataset::Place& place);
  void take_segments(const Dataset::Place& place, const Segments& segments);
  void append(const Dataset::Place& place, TokenRange tokens);
  void mask(const SampleId& sample);

  const Dataset& dataset_;
  MaskedRules rules_;
  SegmentChooser segments_;
  WordMasking masking_;
  std::vector<std::int32_t> ids_;        // of the sample, its special tokens included
  std::vector<std::int32_t> documents_;  // the positions at which they begin
  std::vector<std::int32_t> labels_;     // of the masked positions
  std::span<const std::int32_t> masked_;
  index_t second_ = 0;  // where the second segment begins
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_MASKED_MAKER_HPP_
