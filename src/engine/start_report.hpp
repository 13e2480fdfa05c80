// engine/start_report.hpp — what a training run says and writes about itself at its
// start: the banner's facts, and those of environment.json.
#ifndef TRIREME_ENGINE_START_REPORT_HPP_
#define TRIREME_ENGINE_START_REPORT_HPP_

#include "comm/environment.hpp"
#include "engine/banner.hpp"
#include "engine/datasets.hpp"
#include "engine/placement.hpp"
#include "engine/run_directory.hpp"

namespace trireme::engine {

RunEnvironment describe_environment(const comm::Environment& environment,
                                    const comm::GridShape& grid, const Machine& machine,
                                    const Placement& placement,
                                    const std::string& command_line);

BannerInfo describe_run(const config::Deck& deck, const Datasets& datasets,
                        const Machine& machine, const Placement& placement,
                        std::int64_t parameters, std::int64_t first_step,
                        double gemm_tflops);

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_START_REPORT_HPP_
