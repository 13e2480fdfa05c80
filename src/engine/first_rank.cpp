// engine/first_rank.cpp — see first_rank.hpp.
#include "engine/first_rank.hpp"

#include <exception>

#include "base/error.hpp"

namespace trireme::engine {

std::string on_first_rank(comm::Communicator& world,
                          const std::function<std::string()>& work) {
  // The outcome travels as one letter before the text.
  std::string outcome;
  if (world.rank() == 0) {
    try {
      outcome = "=" + work();
    } catch (const InputError& error) {
      outcome = std::string("i") + error.what();
    } catch (const std::exception& error) {
      outcome = std::string("e") + error.what();
    }
  }
  world.broadcast(outcome);
  const std::string text = outcome.substr(1);
  if (outcome.front() == 'i') throw InputError(text);
  if (outcome.front() == 'e') throw Error(text);
  return text;
}

}  // namespace trireme::engine
