// plan/calibration.hpp — a machine as a run on it found it (trireme plan --from): the
// shares of the peaks and the speed of messages that its efficiency.json has, in place of
// those of the machine file.
//
// What is calibrated are the parts of a step: classes of kernels, messages by axis, the
// host's time beside them. How these make a step (the order of passes, the slowest stage,
// the update) the model says, so that what it then says of the run itself tells how far
// it is to be trusted. All times are of the run's last start, on whose ranks and layout
// its kernels were timed. Numbers that no run has are refused; those that a run on this
// machine would hardly have are doubts, which whoever plans must be told.
#ifndef TRIREME_PLAN_CALIBRATION_HPP_
#define TRIREME_PLAN_CALIBRATION_HPP_

#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "plan/machine.hpp"

namespace trireme::plan {

// Between neighbouring stages, by themselves, as the run's probe found them.
struct ProbedMessages {
  double latency = 0.0;  // seconds of one number
  double rate = 0.0;     // bytes/s of kProbedBytes
};
inline constexpr double kProbedBytes = 8.0 * (1 << 20);

// Seconds of a step, means over the ranks.
struct RunTimes {
  std::string file;  // of these times, for messages
  int devices = 1;
  std::string compute = {};  // the type that the model computes in
  double peak = 0.0;         // FLOP/s of a device, as the run measured it; 0: it did not
  double step = 0.0;         // all of it
  // Kernels by class; of passes all that is neither a product nor attention.
  double products = 0.0, attention = 0.0, rows = 0.0, optimizer = 0.0;
  double beside = 0.0;  // the host's, and waits for input
  // Transfers, without waits for late ranks.
  double tensor_messages = 0.0, data_messages = 0.0;
  std::optional<ProbedMessages> stage_messages = {};  // none: the run did not probe them
};
// Of an efficiency.json: InputError where it is none, of another schema, of a start that
// has not ended, which lacks its kernels, or of one that is too short to tell; and where
// it has numbers that no run has, or kernels of a class that is not known.
RunTimes run_times(const std::string& text, const std::string& file);

struct Calibration {
  Machine machine;
  std::string file;
  // What the run computed in; of kernels in other types the machine file stands.
  DType type = {};
  double measured = 0.0, reproduced = 0.0;  // seconds of the run's step
  // How much longer a part takes than the machine file says, the parts by their names in
  // a plan; nothing where the run cannot tell, and the file stands: then `why` not.
  struct Factor {
    std::string part;
    std::optional<double> factor;
    std::string why = {};
    // Of messages: the level of the network whose speed it is about, and whether it has
    // set it. A level has one speed: that of the first part that goes over it.
    std::string level = {};
    bool is_applied = true;
  };
  std::vector<Factor> factors = {};
  // Levels that the run says nothing of, where the file's bandwidth would make one that
  // is nearer the slower one: as fast as their neighbour then.
  struct BoundLevel {
    std::string level, neighbour;
    double of_file = 0.0, bandwidth = 0.0;  // bytes/s
  };
  std::vector<BoundLevel> bound_levels = {};
  // Whole sentences: why it is hardly a run on the machine of the file.
  std::vector<std::string> doubts = {};

  double error() const { return reproduced / measured - 1.0; }
};
// `deck`: the run's own. InputError where it asks for other devices than the run had, or
// where the machine file is of another program's steps.
Calibration calibrate(const Machine& machine, const config::Deck& deck,
                      const RunTimes& run);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_CALIBRATION_HPP_
