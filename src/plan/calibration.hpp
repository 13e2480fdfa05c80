// plan/calibration.hpp — a machine as a run on it found it (trireme plan --from): the
// shares of the peaks and the speed of messages that its efficiency.json has, in place of
// those of the machine file.
//
// What is calibrated are the parts of a step: classes of kernels, messages by axis, the
// host's time beside them. How these make a step (the order of passes, the slowest stage,
// the update) the model says, so that what it then says of the run itself tells how far
// it is to be trusted.
#ifndef TRIREME_PLAN_CALIBRATION_HPP_
#define TRIREME_PLAN_CALIBRATION_HPP_

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "plan/machine.hpp"

namespace trireme::plan {

// Seconds of a step, means over the ranks.
struct RunTimes {
  std::string file;  // of these times, for messages
  int devices = 1;
  std::string compute;  // the type that the model computes in
  double step = 0.0;    // all of it
  // Kernels by class; of passes all that is neither a product nor attention.
  double products = 0.0, attention = 0.0, rows = 0.0, update = 0.0;
  double beside = 0.0;  // the host's, and waits for input
  // Transfers, without waits for late ranks.
  double tensor_messages = 0.0, gradient_messages = 0.0;
};
// Of an efficiency.json: InputError where it is none, of another schema, or of a start
// that has not ended, which lacks its kernels.
RunTimes run_times(const std::string& text, const std::string& file);

struct Calibration {
  Machine machine;
  std::string file;
  double measured = 0.0, reproduced = 0.0;  // seconds of the run's step
  // How much longer each part takes than the machine file says; 0: the run has none.
  struct Factor {
    std::string part;
    double factor = 0.0;
  };
  std::vector<Factor> factors;

  double error() const { return reproduced / measured - 1.0; }
};
// `deck`: the run's own. InputError where it asks for other devices than the run had.
Calibration calibrate(const Machine& machine, const config::Deck& deck,
                      const RunTimes& run);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_CALIBRATION_HPP_
