// data/segment_choice.hpp — which text a sample of BERT is of: one segment of a document,
// or two, and which kind of pair they are.
//
// Each window has an anchor, a token at the same place in all windows of an epoch. The
// sample is a text of the anchor's document around it: as long as a sample may be (or
// shorter, by a draw for some), moved where it would reach out of the document, and else
// with the anchor at one place in all of an epoch, too, so that texts of neighbouring
// windows lie side by side. Both places are drawn anew for each epoch.
// Where the corpus has sentences, it is of the whole ones around these tokens. For
// example, of a document of the sentences
//
//   s0 s1 s2 s3 s4 s5            text s1 s2 s3, cut before s3 by another draw
//   order  first s1 s2, second s3; or, for one half of the samples, the other way round
//   next   first s1 s2, second s3; or, for one half, a text of another document
//
// What is more than a sample may have is taken from the longer segment, and by a draw
// from its front and its back. No list of sentences or samples is made: all are found in
// the corpus by their tokens. Each token of a document is read sometime, whatever the
// lengths of sentences; within one that is longer than two samples there is no pair.
#ifndef TRIREME_DATA_SEGMENT_CHOICE_HPP_
#define TRIREME_DATA_SEGMENT_CHOICE_HPP_

#include "base/types.hpp"
#include "data/dataset.hpp"
#include "data/draws.hpp"
#include "data/sample_rules.hpp"

namespace trireme::data {

struct Segments {
  TokenRange first, second;  // the second one is empty where there is none
  // order: the second one stands before the first in the text; next: it is of another
  // document.
  bool is_other = false;

  bool has_pair() const { return second.size() > 0; }
};

class SegmentChooser {
 public:
  // `dataset` must outlive it.
  SegmentChooser(const Dataset& dataset, const MaskedRules& rules)
      : dataset_(dataset), rules_(rules) {}

  // A pure function of the place. One segment alone where there is one sentence around
  // the anchor, and an empty one where no document of the place's part has text.
  Segments choose(const Dataset::Place& place) const;

 private:
  struct Text {
    index_t document = 0;
    index_t most = 0;  // tokens that the sample may have
    TokenRange tokens;
    // The first one and how many; none where there is no text.
    index_t sentence = 0, sentences = 0;
  };
  Text text_around(const Dataset::Place& place) const;
  Segments pair_of(const Dataset::Place& place, const Text& text) const;
  TokenRange other_text(const Dataset::Place& place, index_t document, index_t tokens,
                        Draws& draws) const;
  void truncate(const Dataset::Place& place, index_t most, Segments& segments) const;

  const Dataset& dataset_;
  MaskedRules rules_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_SEGMENT_CHOICE_HPP_
