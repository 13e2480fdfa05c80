// report/ratio.hpp — a quotient for tables, where there may have been nothing.
#ifndef TRIREME_REPORT_RATIO_HPP_
#define TRIREME_REPORT_RATIO_HPP_

namespace trireme::report {

// 0 where b is not above 0.
inline double ratio(double a, double b) {
  return b > 0.0 ? a / b : 0.0;
}

}  // namespace trireme::report

#endif  // TRIREME_REPORT_RATIO_HPP_
