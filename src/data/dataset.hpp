// data/dataset.hpp — samples from one corpus or a weighted blend of several.
//
// A position of the run becomes tokens in two steps (sample_index.hpp): Blend says which
// corpus it belongs to and its position there, and that corpus' SampleIndex which tokens
// these are. Neither stores anything, so that every rank can look up any position. What
// is made of the tokens is up to a maker of samples (sample_maker.hpp).
#ifndef TRIREME_DATA_DATASET_HPP_
#define TRIREME_DATA_DATASET_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "data/corpus.hpp"
#include "data/sample_index.hpp"
#include "data/sample_rules.hpp"

namespace trireme::data {

class Dataset {
 public:
  struct Part {
    std::shared_ptr<const Corpus> corpus;
    TokenRange range;  // the part of it that is used
    double weight = 1.0;
  };
  // InputError when corpora of different vocabularies are mixed, or a part is too short.
  // `name` ("train") is for messages.
  Dataset(std::vector<Part> parts, const SampleRules& rules, Order order,
          const std::string& name, Tail tail = Tail::left_out);

  struct Place {
    const Corpus* corpus = nullptr;
    SampleId sample;
    TokenRange tokens;  // of the window
    index_t whole = 0;  // tokens of one that is not cut short by the corpus' end
    TokenRange part;    // of the corpus, all that samples are made of
  };
  Place place(index_t position) const;
  // The tokens there. InputError for an id outside of the vocabulary: it would read
  // beyond the table of embeddings.
  void copy(const Place& place, std::int32_t* out) const;

  const SampleRules& rules() const { return rules_; }
  // Windows in all parts.
  index_t windows() const;
  // Tokens of all windows, where those that neighbours share count once.
  index_t tokens() const;
  // Of the windows of the first positions.
  index_t tokens_of(index_t positions) const;
  // Tokens of all parts that are in no window.
  index_t left_out() const;
  // How often each part is gone through by the first positions.
  std::vector<double> epochs(index_t positions) const;
  const std::vector<Part>& parts() const { return parts_; }
  // Positions before any window comes a second time: all windows of one part; of several,
  // until one of them is used up.
  index_t positions_without_repeats() const;
  TokenId vocabulary_size() const { return parts_[0].corpus->vocabulary_size(); }
  TokenId end_of_document() const { return parts_[0].corpus->end_of_document(); }

 private:
  std::vector<Part> parts_;
  SampleRules rules_;
  std::vector<SampleIndex> index_;
  Blend blend_;
};

// A document's tokens in a part of its corpus, without its end; none or fewer where it
// has none there.
TokenRange text_of_document(const Corpus& corpus, const TokenRange& part,
                            index_t document);

}  // namespace trireme::data

#endif  // TRIREME_DATA_DATASET_HPP_
