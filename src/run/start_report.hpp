// run/start_report.hpp — what a training run says and writes about itself at its
// start: the banner's facts, and those of environment.json.
#ifndef TRIREME_RUN_START_REPORT_HPP_
#define TRIREME_RUN_START_REPORT_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "comm/process_groups.hpp"
#include "comm/transport_kind.hpp"
#include "config/deck.hpp"
#include "data/datasets.hpp"
#include "job/placement.hpp"
#include "kernels/narrow_gemm.hpp"
#include "report/banner.hpp"
#include "report/corpus_epochs.hpp"

namespace trireme::run {

// What environment.json holds: `devices` on GPUs only, that of each rank; `job` under a
// batch system.
// `products`: how matrices of the compute type are multiplied; `instructions`: by which
// (step::ProductWays::names).
nlohmann::ordered_json describe_environment(const comm::GridShape& grid,
                                            kernels::NarrowProducts products,
                                            const std::string& instructions,
                                            const Machine& machine,
                                            const job::Placement& placement,
                                            const std::string& command_line);

// What carries messages between the ranks' kernels, in which version, and what it was
// told by the environment: `messages` of environment.json, where there are other ranks.
nlohmann::ordered_json describe_messages(comm::TransportKind transport);

// How often each training corpus is gone through by the first samples of the run.
std::vector<report::CorpusEpochs> corpus_epochs(const data::Datasets& datasets,
                                                index_t samples);

report::BannerInfo describe_run(const config::Deck& deck, const data::Datasets& datasets,
                                const Machine& machine, const job::Placement& placement,
                                std::int64_t parameters, std::int64_t first_step,
                                double gemm_tflops);

}  // namespace trireme::run

#endif  // TRIREME_RUN_START_REPORT_HPP_
