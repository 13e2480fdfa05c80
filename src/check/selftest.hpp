// check/selftest.hpp — is this machine, this build and this MPI fit for training? About
// five seconds, on as many ranks as there are.
//
// Every check computes something whose answer is known otherwise: kernels against plain
// loops on the host, random numbers against published values, gradients against
// differences, messages against sums one can do in the head.
#ifndef TRIREME_CHECK_SELFTEST_HPP_
#define TRIREME_CHECK_SELFTEST_HPP_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/exec.hpp"
#include "comm/environment.hpp"

namespace trireme::check {

struct CheckResult {
  std::string name;
  bool passed = false;
  std::string figures;  // or what went wrong, with the rank
  double seconds = 0.0;
};

// All checks, collectively: passed where it passed on every rank. `on_check` is called
// after each.
std::vector<CheckResult> selftest(
    const comm::Environment& environment,
    const std::function<void(const CheckResult&)>& on_check = {});

// The checks one by one: each returns figures for people and throws where something is
// wrong. All of them are collective over `world`.
namespace checks {

std::string random_numbers(const Exec& exec);
std::string matrix_products(const Exec& exec);
std::string attention(const Exec& exec);
std::string layer_norm(const Exec& exec);
std::string gelu(const Exec& exec);
std::string cross_entropy(const Exec& exec);
std::string gradients(const Exec& exec);
std::string collectives(const Exec& exec, comm::Communicator& world);
std::string process_grids(const std::shared_ptr<comm::Communicator>& world);
std::string hdf5_files();
std::string memory_bandwidth(const Exec& exec, comm::Communicator& world);
std::string gemm_peak(const Exec& exec, comm::Communicator& world);
std::string training(const Exec& exec, const std::shared_ptr<comm::Communicator>& world);

}  // namespace checks

}  // namespace trireme::check

#endif  // TRIREME_CHECK_SELFTEST_HPP_
