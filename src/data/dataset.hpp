// data/dataset.hpp — samples from one corpus or a weighted blend of several.
//
// A position of the run becomes tokens in two steps (sample_index.hpp): Blend says which
// corpus it belongs to and its position there, and that corpus' SampleIndex which tokens
// these are. Neither stores anything, so that every rank can look up any position.
#ifndef TRIREME_DATA_DATASET_HPP_
#define TRIREME_DATA_DATASET_HPP_

#include <memory>
#include <vector>

#include "base/types.hpp"
#include "data/corpus.hpp"
#include "data/sample_index.hpp"

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
  Dataset(std::vector<Part> parts, index_t sequence, std::uint64_t seed, Order order,
          const std::string& name, Tail tail = Tail::left_out);

  struct Window {
    const Corpus* corpus = nullptr;
    index_t begin = 0;   // labels + 1 tokens from here
    index_t labels = 0;  // sequence, or fewer where the tail is counted
  };
  Window window(index_t position) const;

  index_t sequence() const { return sequence_; }
  // Windows in all parts.
  index_t windows() const;
  // Labels of all parts that are in no window.
  index_t left_out() const;
  const std::vector<Part>& parts() const { return parts_; }
  // Positions before any window comes a second time: all windows of one part; of several,
  // until one of them is used up.
  index_t positions_without_repeats() const;
  TokenId vocabulary_size() const { return parts_[0].corpus->vocabulary_size(); }
  TokenId end_of_document() const { return parts_[0].corpus->end_of_document(); }

 private:
  std::vector<Part> parts_;
  index_t sequence_;
  std::vector<SampleIndex> index_;
  Blend blend_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_DATASET_HPP_
