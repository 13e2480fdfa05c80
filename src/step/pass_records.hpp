// step/pass_records.hpp — what passes on shapes alone do: of a chunk all passes of one
// kind do the same, whatever the micro-batch, so that the first is run and the others are
// its repetition. A step of 65,536 micro-batches then takes about the time of its
// messages.
#ifndef TRIREME_STEP_PASS_RECORDS_HPP_
#define TRIREME_STEP_PASS_RECORDS_HPP_

#include <map>
#include <utility>
#include <vector>

#include "base/exec.hpp"
#include "tensor/param_use.hpp"

namespace trireme::step {

class PassRecords {
 public:
  // Tells `use` which parameters the pass brings into use, which may make it send. The
  // first time that is found out by run(exec, recorder), which must do all else of the
  // pass on this Exec.
  template <class Run>
  void pass(int chunk, Pass pass, ParamUse& use, const Run& run) {
    Record& record = records_[{chunk, pass}];
    if (record.times++ == 0) run(Exec::shape_only(record.tally), record.uses);
    record.uses.tell(use);
  }
  // Adds all passes since the last call, to the sum of all and to that of their kind.
  void add_to(Tally& tally, std::map<Pass, Tally>& passes) {
    for (auto& [key, record] : records_) {
      const Tally more = (record.times - record.told) * record.tally;
      tally += more;
      passes[key.second] += more;
      record.told = record.times;
    }
  }

 private:
  class Uses final : public ParamUse {
   public:
    void begin(std::size_t unit, Pass pass) override {
      all_.push_back({unit, pass, true});
    }
    void end(std::size_t unit, Pass pass) override {
      all_.push_back({unit, pass, false});
    }
    void tell(ParamUse& other) const {
      for (const Use& use : all_) {
        use.is_begin ? other.begin(use.unit, use.pass) : other.end(use.unit, use.pass);
      }
    }

   private:
    struct Use {
      std::size_t unit = 0;
      Pass pass = Pass::forward;
      bool is_begin = true;
    };
    std::vector<Use> all_;
  };
  struct Record {
    index_t times = 0, told = 0;
    Tally tally;
    Uses uses;
  };

  std::map<std::pair<int, Pass>, Record> records_;  // by chunk
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_PASS_RECORDS_HPP_
