// comm/on_ranks.cpp — see on_ranks.hpp.
#include "comm/on_ranks.hpp"

#include <exception>

#include "base/error.hpp"
#include "base/error_message.hpp"

namespace trireme::comm {

namespace {

// An outcome travels as one letter that says what it is, and the text.
constexpr char kDone = '=';
constexpr char kInputError = 'i';
constexpr char kError = 'e';

template <class Work>
std::string outcome_of(const Work& work) {
  try {
    return std::string(1, kDone).append(work());
  } catch (const InputError& error) {
    return std::string(1, kInputError).append(error.what());
  } catch (const std::exception& error) {
    return std::string(1, kError).append(message_of(error));
  }
}

std::string text_or_throw(const std::string& outcome) {
  std::string text = outcome.substr(1);
  if (outcome.front() == kInputError) throw InputError(text);
  if (outcome.front() == kError) throw Error(text);
  return text;
}

}  // namespace

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
  for (std::size_t place = 0; place < all.size();) {
    const std::size_t colon = all.find(':', place);
    const std::size_t length = std::stoull(all.substr(place, colon - place));
    texts.push_back(all.substr(colon + 1, length));
    place = colon + 1 + length;
  }
  return texts;
}

void on_every_rank(Communicator& comm, const std::function<void()>& work) {
  const std::string outcome = outcome_of([&] {
    work();
    return std::string();
  });
  if (!comm.any(outcome.front() != kDone)) return;
  for (const std::string& word : comm.gather(outcome)) text_or_throw(word);
}

}  // namespace trireme::comm
