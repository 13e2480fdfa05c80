// step/product_ways.hpp — by which instructions the ranks of a start multiply matrices of
// its compute type: what a record of it says, and whether they all do so alike.
#ifndef TRIREME_STEP_PRODUCT_WAYS_HPP_
#define TRIREME_STEP_PRODUCT_WAYS_HPP_

#include <string>
#include <vector>

#include "base/exec.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace trireme::step {

struct ProductWays {
  std::string names;    // each instruction set once: "AMX tiles", "AMX tiles, widened"
  std::string warning;  // where there are several: which ranks have which
};

// How a warning begins, and what makes all ranks do alike.
struct WayWords {
  std::string differ = "the ranks multiply matrices by different instructions";
  std::string remedy = "precision.gemm: widened is one way for all";
};
// Of what each rank says (kernels::product_instructions()), on these hosts.
ProductWays ways_of(const std::vector<std::string>& of_ranks,
                    const std::vector<std::string>& hosts, const WayWords& words = {});
// The same of the ranks of `world`, which compute as the deck says. Collective.
ProductWays product_ways(comm::Communicator& world, const Exec& exec,
                         const config::Deck& deck);

// How an evaluation or a generation multiplies where nothing more is said: as the run
// that it is of, where this device can; what the machine of the run could do says nothing
// of this one. `deck`: with the type that is computed in.
config::Products products_as_in(const config::Deck& run, const config::Deck& deck);

}  // namespace trireme::step

#endif  // TRIREME_STEP_PRODUCT_WAYS_HPP_
