// comm/on_ranks.hpp — work whose errors all ranks learn of: one rank's missing file or
// bad input line must not leave the others waiting in the next collective.
#ifndef TRIREME_COMM_ON_RANKS_HPP_
#define TRIREME_COMM_ON_RANKS_HPP_

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme::comm {

// Collective. Rank 0 works for all (a look at the file system, a file written) and the
// others do not call work(): the text or the list of texts that it returns there, if it
// returns one, byte by byte. What it throws is thrown on every rank: InputError as
// InputError, all else as Error with the same message.
std::string text_of_first_rank(Communicator& comm,
                               const std::function<std::string()>& work);
std::vector<std::string> texts_of_first_rank(
    Communicator& comm, const std::function<std::vector<std::string>()>& work);
template <class Work>
auto on_first_rank(Communicator& comm, const Work& work) {
  if constexpr (std::is_same_v<decltype(work()), std::vector<std::string>>) {
    return texts_of_first_rank(comm, work);
  } else if constexpr (std::is_void_v<decltype(work())>) {
    text_of_first_rank(comm, [&] {
      work();
      return std::string();
    });
  } else {
    return text_of_first_rank(comm, work);
  }
}

// Collective. Every rank calls work(), which makes no collective calls. Where it threw on
// any, the error of the lowest such rank is thrown on all: ranks read the input in order,
// so this is the first error in the input whatever the number of ranks.
void on_every_rank(Communicator& comm, const std::function<void()>& work);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_ON_RANKS_HPP_
