// report/efficiency_schema.hpp — the version of efficiency.json, for its writer and for
// all who read one of a run.
#ifndef TRIREME_REPORT_EFFICIENCY_SCHEMA_HPP_
#define TRIREME_REPORT_EFFICIENCY_SCHEMA_HPP_

namespace trireme::report {

// Higher where a field changes its meaning or goes. tools/report_page/run_files.py reads
// the same one.
inline constexpr int kEfficiencySchema = 1;

}  // namespace trireme::report

#endif  // TRIREME_REPORT_EFFICIENCY_SCHEMA_HPP_
