// plan/counts.hpp — counts as terms of formulae of times and bytes.
#ifndef TRIREME_PLAN_COUNTS_HPP_
#define TRIREME_PLAN_COUNTS_HPP_

#include "base/types.hpp"

namespace trireme::plan {

inline double as_double(index_t number) {
  return static_cast<double>(number);
}

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_COUNTS_HPP_
