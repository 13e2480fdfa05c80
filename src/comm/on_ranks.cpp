// comm/on_ranks.cpp — see on_ranks.hpp.
#include "comm/on_ranks.hpp"

#include <exception>

#include "base/error.hpp"
#include "base/error_message.hpp"

namespace trireme::comm {

std::string text_of_first_rank(Communicator& comm,
                               const std::function<std::string()>& work) {
  std::string outcome;
  if (comm.rank() == 0) outcome = outcome_of(work);
  comm.broadcast(outcome);
  return text_or_throw(outcome);
}

std::vector<std::string> texts_of_first_rank(
    Communicator& comm, const std::function<std::vector<std::string>()>& work) {
  // Each text stands behind its length, because it may hold any byte.
  const std::string all = text_of_first_rank(comm, [&] {
    std::string text;
    for (const std::string& one : work()) text += fmt::format("{}:{}", one.size(), one);
    return text;
  });
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t colon = all.find(':', at);
    const std::size_t length = std::stoull(all.substr(at, colon - at));
    texts.push_back(all.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  return texts;
}

void on_every_rank(Communicator& comm, const std::function<void()>& work) {
  const std::string outcome = outcome_of([&] {
    work();
    return std::string();
  });
  if (!comm.any(is_failure(outcome))) return;
  for (const std::string& word : comm.gather(outcome)) text_or_throw(word);
}

}  // namespace trireme::comm
