// comm/rank_list.hpp — many ranks in one line of text.
#ifndef TRIREME_COMM_RANK_LIST_HPP_
#define TRIREME_COMM_RANK_LIST_HPP_

#include <algorithm>
#include <string>
#include <vector>

namespace trireme::comm {

// Runs of neighbours in ascending numbers: "0-3", "5".
std::vector<std::string> runs_of(const std::vector<int>& numbers);

// "rank 3", "ranks 0-2, 5"; in ascending order.
std::string rank_list(const std::vector<int>& ranks);

// What each rank says (one text each), the ranks that say the same together, in the order
// of their lowest rank: "ranks 0-2: barrier; rank 3: all_reduce". With the hosts of the
// ranks: "ranks 0-2 (on node1, node2): ...".
std::string grouped_by_text(const std::vector<std::string>& texts,
                            const std::vector<std::string>& hosts = {});

// Whether all ranks gave the same, in a list of what was gathered from them.
template <class T>
bool all_same(const std::vector<T>& of_ranks) {
  return std::all_of(of_ranks.begin(), of_ranks.end(),
                     [&](const T& one) { return one == of_ranks.front(); });
}

}  // namespace trireme::comm

#endif  // TRIREME_COMM_RANK_LIST_HPP_
