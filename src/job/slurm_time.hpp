// job/slurm_time.hpp — times as SLURM writes and reads them.
#ifndef TRIREME_JOB_SLURM_TIME_HPP_
#define TRIREME_JOB_SLURM_TIME_HPP_

#include <optional>
#include <string>
#include <string_view>

namespace trireme::job {

// Seconds of "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours",
// "days-hours:minutes" and "days-hours:minutes:seconds"; none for anything else.
std::optional<double> parse_slurm_time(std::string_view text);
// "1-02:03:04", rounded up to whole seconds.
std::string slurm_time_text(double seconds);

}  // namespace trireme::job

#endif  // TRIREME_JOB_SLURM_TIME_HPP_
