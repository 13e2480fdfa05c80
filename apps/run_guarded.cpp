// apps/run_guarded.cpp — see run_guarded.hpp.
//
// What is said of an error depends on who else has it. Ranks with an error meet in a
// group of their own and wait a few seconds for the others: where all come, rank 0 prints
// each message once. A rank whose others do not come is alone with its error, and takes
// them down, as they wait for it. Kokkos begins within the same block, because the device
// that a rank is to have may be refused like any other input. What computes nothing has
// no Kokkos at all, as in a build for GPUs that would begin with one.
#include "apps/run_guarded.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "apps/standard_streams.hpp"
#include "apps/thread_settings.hpp"
#include "base/device.hpp"
#include "base/error.hpp"
#include "base/error_message.hpp"
#include "base/signal_thread.hpp"
#include "base/team_threads.hpp"
#include "comm/device_of_rank.hpp"

namespace trireme::apps {
namespace {

// How long a rank with an error waits for the others to come with theirs.
constexpr double kAgreementSeconds = 5.0;

// Ranks that share a node share its cores, unless the user said otherwise.
int team_of(const comm::Environment& environment, const Resources& resources) {
  const comm::NodeInfo& node = environment.node();
  return resources.threads > 0 ? resources.threads
                               : std::clamp(node.cores / node.ranks, 1, kMostThreads);
}

// Devices they have alone. Collective.
Kokkos::InitializationSettings kokkos_settings(const comm::Environment& environment,
                                               int team) {
  Kokkos::InitializationSettings settings;
  // Kokkos would warn on every rank that threads are not bound; a launcher does that.
  settings.set_disable_warnings(true);
  settings.set_num_threads(team);
  if (const auto device = comm::take_device(environment)) settings.set_device_id(*device);
  return settings;
}

struct Failure {
  int status = kExitError;
  std::string message;
};

Failure describe(const std::exception& error) {
  if (dynamic_cast<const InputError*>(&error) != nullptr) {
    return {kExitInput, error.what()};
  }
  if (dynamic_cast<const std::system_error*>(&error) != nullptr && std::ferror(stdout)) {
    return {kExitError,
            fmt::format("cannot write the output to stdout: {}",  // fmt::print
                        error.what())};
  }
  return {kExitError, message_of(error)};
}

void print_error(const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

// Results that did not arrive (a full disk) are no success.
void check_stdout() {
  const std::string problem = flush_output();
  if (!problem.empty()) throw Error(problem);
}

std::string name_of(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() > 1 ? "ranks" : "rank",
                     fmt::join(ranks, ", "));
}

// All ranks are here, each with its failure: rank 0 prints each message once.
int report_together(const comm::Environment& environment,
                    const std::vector<std::string>& failures) {
  std::map<std::string, std::vector<int>> ranks_of;
  int status = kExitInput;
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    ranks_of[failures[rank]].push_back(static_cast<int>(rank));
    if (failures[rank].front() == '0' + kExitError) status = kExitError;
  }
  if (environment.world_rank() != 0) return status;
  for (const auto& [failure, ranks] : ranks_of) {
    const std::string message = failure.substr(1);
    const bool everywhere = ranks.size() == failures.size();
    if (everywhere && (status == kExitInput || failures.size() == 1)) {
      print_error("trireme: " + message);
    } else {
      print_error(fmt::format("trireme: {}: {}",
                              everywhere ? "all ranks" : name_of(ranks), message));
    }
  }
  return status;
}

// The failure of this rank; all ranks' where all have one. The status to end with, or no
// return: others go on and would wait for this one, or messages are under way into memory
// that is no longer theirs.
int report(const comm::Environment& environment, comm::Communicator& errors,
           const Failure& failure) {
  try {
    if (!errors.has_given_up()) {
      errors.set_timeout(kAgreementSeconds);
      return report_together(
          environment, errors.gather(std::to_string(failure.status) + failure.message));
    }
  } catch (const std::exception&) {  // the others have no error
  }
  print_error(fmt::format("trireme: rank {} of {} on {}: {}", environment.world_rank(),
                          environment.world_size(), environment.host_name(),
                          failure.message));
  comm::Environment::abort(failure.status);
}

}  // namespace

int run_guarded(comm::Environment& environment, const Action& action,
                const Resources& resources) {
  Failure failure;
  std::shared_ptr<comm::Communicator> errors;
  try {
    // Errors have a group of their own, as other ranks may be in the middle of something
    // in the world.
    errors = environment.world()->split(0, environment.world_rank(), "errors");
    environment.set_error_handler([&](const std::exception& error) {
      comm::Environment::abort(report(environment, *errors, describe(error)));
    });
    int status = kExitError;
    {
      const SignalThread signals;  // before CUDA and Kokkos make threads
      const int team = team_of(environment, resources);
      std::optional<Kokkos::ScopeGuard> kokkos;
      if (resources.computes) {
        kokkos.emplace(kokkos_settings(environment, team));
        check_closures();
      } else {
        plan_team_threads(team);
      }
      // Until here a rank whose driver does not answer is waited for as long as a start
      // may last.
      environment.world()->set_timeout(0.0);
      status = action(environment);
    }
    if (status == 0) check_stdout();  // other statuses say more
    return status;
  } catch (const std::exception& error) {
    failure = describe(error);
  }
  if (errors == nullptr) {  // a rank was gone before it had begun
    print_error("trireme: " + failure.message);
    comm::Environment::abort(failure.status);
  }
  return report(environment, *errors, failure);
}

}  // namespace trireme::apps
