// data/collective.hpp — errors that all ranks learn of: one rank's bad input line must
// not leave the others waiting in a collective.
#ifndef TRIREME_DATA_COLLECTIVE_HPP_
#define TRIREME_DATA_COLLECTIVE_HPP_

#include <string>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace trireme::data {

// Runs work(), which makes no collective calls, on every rank. Where it threw on any, the
// error of the lowest such rank is thrown on all: ranks read the input in order, so this
// is the first error in the input whatever the number of ranks.
template <class Work>
void on_every_rank(comm::Communicator& comm, const Work& work) {
  std::string failure;  // first character: kind; rest: message
  try {
    work();
  } catch (const InputError& error) {
    failure = std::string("I") + error.what();
  } catch (const std::exception& error) {
    failure = std::string("E") + error.what();
  }
  if (!comm.any(!failure.empty())) return;
  for (const std::string& first : comm.gather(failure)) {
    if (first.empty()) continue;
    if (first[0] == 'I') throw InputError(first.substr(1));
    throw Error(first.substr(1));
  }
}

}  // namespace trireme::data

#endif  // TRIREME_DATA_COLLECTIVE_HPP_
