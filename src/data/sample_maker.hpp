// data/sample_maker.hpp — makes the samples of a run, one at a time, into the columns of
// a batch.
//
// What a sample is, its rules say (sample_rules.hpp); which windows of which corpora the
// positions of a run are, its data set. A maker has buffers and is one thread's; what it
// makes at a position is the same whatever it or another made before.
#ifndef TRIREME_DATA_SAMPLE_MAKER_HPP_
#define TRIREME_DATA_SAMPLE_MAKER_HPP_

#include <memory>
#include <span>
#include <string_view>

#include "base/types.hpp"
#include "data/dataset.hpp"
#include "data/fields.hpp"

namespace trireme::data {

struct SampleColumn {
  std::string_view field;
  FieldColumn to;
};

class SampleMaker {
 public:
  virtual ~SampleMaker() = default;

  // Writes the sample at this position of the run, as much of it as there are columns
  // for. A pure function of its arguments and the data set. Error where samples have no
  // such field, InputError where the corpus is damaged there.
  virtual void make(index_t position, std::span<const SampleColumn> columns) = 0;
};

// The data set must outlive it.
std::unique_ptr<SampleMaker> make_sample_maker(const Dataset& dataset);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SAMPLE_MAKER_HPP_
