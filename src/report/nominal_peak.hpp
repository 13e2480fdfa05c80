// report/nominal_peak.hpp — what makers say of the peaks of their devices, beside what is
// measured.
#ifndef TRIREME_REPORT_NOMINAL_PEAK_HPP_
#define TRIREME_REPORT_NOMINAL_PEAK_HPP_

#include <string_view>

#include "base/types.hpp"

namespace trireme::report {

// Floating-point operations per second of dense products in this type, by the data sheet
// of the device of that name ("NVIDIA A100-SXM4-40GB"); 0 where it is not known, as for
// processors, whose data sheets give none.
double nominal_peak(std::string_view device, DType type);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_NOMINAL_PEAK_HPP_
