// report/reference_run.hpp — the run that another is compared with (run.reference): what
// POP calls the scaling of computation can only be said of two.
#ifndef TRIREME_REPORT_REFERENCE_RUN_HPP_
#define TRIREME_REPORT_REFERENCE_RUN_HPP_

#include <string>

namespace trireme::report {

struct ReferenceRun {
  std::string path;                       // of its efficiency.json
  double kernel_seconds_of_sample = 0.0;  // of all devices together
};

// Of a run directory or an efficiency.json. InputError where there is none, where it has
// no steps, or where a sample takes its model other FLOPs than `flops_of_sample`: work
// that is not the same says nothing of how it scales.
ReferenceRun read_reference(const std::string& path, double flops_of_sample);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_REFERENCE_RUN_HPP_
