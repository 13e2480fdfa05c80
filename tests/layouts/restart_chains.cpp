// tests/layouts/restart_chains.cpp — see restart_chains.hpp.
#include "layouts/restart_chains.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

constexpr const char* kPrecision = "precision";

bool is_narrow_type(const AxisValue& value) {
  return value.axis == kPrecision &&
         value.value != static_cast<int>(config::Precision::fp32);
}

static_assert(kSmall.layers == kChainLayers && kSmall.heads == kChainHeads &&
              kSmall.samples == kChainSamples &&
              encoder_layers(kSmall) == kChainEncoderLayers);

std::vector<AxisValue> values_of(const Layout& row) {
  std::vector<AxisValue> values = {{"tensor", row.tensor},
                                   {"data", row.data},
                                   {"pipeline", row.pipeline},
                                   {"micro-batches", row.microbatches},
                                   {"recompute", row.recompute}};
  if (row.tensor > 1) values.push_back({"sequence", row.sequence});
  if (row.data > 1) values.push_back({"zero", row.zero});
  if (row.pipeline > 1) {
    values.push_back({"chunks", row.chunks});
    values.push_back({"schedule", static_cast<int>(row.schedule)});
    values.push_back({"uneven", row.uneven});
  }
  if (row.ranks() > std::max({row.tensor, row.data, row.pipeline})) {
    values.push_back({"data first", row.data_first});
  }
  return values;
}

std::vector<std::string> pipeline_keys_of(const Layout& row) {
  std::vector<std::string> keys = {
      fmt::format("parallel.virtual_pipeline={}", row.chunks),
      fmt::format("parallel.schedule={}", config::name_of(row.schedule))};
  if (row.uneven == 3) {
    keys.push_back("parallel.split=1");
  } else if (row.uneven != 0) {
    keys.push_back(fmt::format("parallel.stages=[{}]",
                               fmt::join(row.pipeline_layout().split, ", ")));
  }
  return keys;
}

std::vector<std::string> keys_of(const Layout& row) {
  std::vector<std::string> axes;
  for (const config::Axis axis : row.grid().order) {
    axes.emplace_back(config::name_of(axis));
  }
  const bool is_full = row.recompute > 0;
  std::vector<std::string> keys = {
      fmt::format("parallel.tensor={}", row.tensor),
      fmt::format("parallel.sequence={}", row.sequence != 0),
      fmt::format("parallel.data={}", row.data),
      fmt::format("parallel.zero={}", row.zero),
      fmt::format("parallel.pipeline={}", row.pipeline),
      fmt::format("parallel.order=[{}]", fmt::join(axes, ", ")),
      fmt::format("batch.micro={}", row.micro()),
      fmt::format("memory.recompute={}", is_full              ? "full"
                                         : row.recompute == 0 ? "none"
                                                              : "selective")};
  if (is_full && row.recompute < row.size.layers) {
    keys.push_back(fmt::format("memory.recompute_layers={}", row.recompute));
  }
  if (row.pipeline == 1) return keys;
  const std::vector<std::string> more = pipeline_keys_of(row);
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// A row of the table, and what its start computes in.
struct Candidate {
  Layout row;
  config::Precision compute;

  std::vector<AxisValue> values() const {
    std::vector<AxisValue> values = values_of(row);
    values.push_back({kPrecision, static_cast<int>(compute)});
    return values;
  }
  ChainStart start() const {
    ChainStart start{row.ranks(), compute, keys_of(row), values()};
    start.keys.push_back(fmt::format("precision.compute={}", config::name_of(compute)));
    return start;
  }
};

// Every row that a deck can ask for, in each of these types.
std::vector<Candidate> all_candidates(config::ModelKind kind, int most_ranks,
                                      std::initializer_list<config::Precision> types) {
  std::vector<Candidate> candidates;
  for (Layout row : all_rows_of(kind, most_ranks)) {
    // No deck has the size of buckets, and all starts of a run have the same samples.
    if (row.small_buckets != 0 || row.size.samples != kSmall.samples) continue;
    row.size = kSmall;
    row.size.kind = kind == config::ModelKind::t5 ? Kind::t5 : Kind::bert;
    for (const config::Precision compute : types) candidates.push_back({row, compute});
  }
  return candidates;
}

// Which pairs have not stood in a chain yet. A place is a value of an axis.
class MissingPairs {
 public:
  // All pairs, or those of which one is a type of 16 bits.
  enum class Of { all, narrow };
  MissingPairs(std::vector<Candidate> candidates, Of of)
      : candidates_(std::move(candidates)) {
    std::vector<bool> is_narrow;  // by place
    for (const Candidate& candidate : candidates_) {
      std::vector<std::size_t>& places = places_.emplace_back();
      for (const AxisValue& value : candidate.values()) {
        const auto [known, is_new] = numbers_.try_emplace(value, numbers_.size());
        if (is_new) is_narrow.push_back(is_narrow_type(value));
        places.push_back(known->second);
      }
    }
    has_stood_behind_.assign(numbers_.size(), false);
    for (const bool before : is_narrow) {
      std::vector<char>& row = is_missing_.emplace_back();
      for (const bool behind : is_narrow) {
        row.push_back(of == Of::all || before || behind ? 1 : 0);
      }
    }
  }
  bool are_left() const {
    return std::ranges::any_of(is_missing_, [](const std::vector<char>& row) {
      return std::ranges::find(row, 1) != row.end();
    });
  }
  // A start that adds most behind `from`, or before any where that is none; none where
  // all would add nothing. Of several it is one of the fewest ranks, and of these the
  // last: behind the plain rows of the table stand those with more at once.
  std::ptrdiff_t best(std::ptrdiff_t from) const {
    const std::vector<int> gains = gains_at(from);
    std::ptrdiff_t chosen = kNone;
    std::pair<int, int> most = {0, 0};
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      int gain = 0;
      for (const std::size_t place : places_[i]) gain += gains[place];
      const std::pair<int, int> value = {gain, -candidates_[i].row.ranks()};
      if (gain == 0 || (chosen != kNone && value < most)) continue;
      chosen = static_cast<std::ptrdiff_t>(i);
      most = value;
    }
    return chosen;
  }
  void take(std::ptrdiff_t from, std::ptrdiff_t to) {
    for (const std::size_t behind : places_[extent(to)]) {
      has_stood_behind_[behind] = true;
      for (const std::size_t before : places_[extent(from)]) {
        is_missing_[before][behind] = 0;
      }
    }
  }
  ChainStart start(std::ptrdiff_t number) const {
    return candidates_[extent(number)].start();
  }

  static constexpr std::ptrdiff_t kNone = -1;

 private:
  // Such that the first chains have every value, of some hundred pairs of a row.
  static constexpr int kOfNewValue = 30;

  // How many pairs each place adds behind `from`, and more where it has stood behind
  // nothing yet; of none: before all others.
  std::vector<int> gains_at(std::ptrdiff_t from) const {
    std::vector<int> gains(numbers_.size(), 0);
    if (from == kNone) {
      for (std::size_t place = 0; place < gains.size(); ++place) {
        gains[place] =
            std::accumulate(is_missing_[place].begin(), is_missing_[place].end(), 0);
      }
      return gains;
    }
    for (std::size_t place = 0; place < gains.size(); ++place) {
      if (!has_stood_behind_[place]) gains[place] += kOfNewValue;
      for (const std::size_t before : places_[extent(from)]) {
        gains[place] += is_missing_[before][place];
      }
    }
    return gains;
  }

  std::vector<Candidate> candidates_;
  std::vector<std::vector<std::size_t>> places_;  // theirs
  std::map<AxisValue, std::size_t> numbers_;      // of places
  std::vector<std::vector<char>> is_missing_;     // by the place before and that behind
  std::vector<bool> has_stood_behind_;            // by place
};

std::vector<RestartChain> take_chains(MissingPairs missing, std::size_t most_restarts) {
  std::vector<RestartChain> chains;
  while (missing.are_left()) {
    std::ptrdiff_t from = missing.best(MissingPairs::kNone);
    TRIREME_REQUIRE(chains.size() < 100, "chains do not end");
    RestartChain chain = {missing.start(from)};
    while (chain.size() <= most_restarts) {
      const std::ptrdiff_t to = missing.best(from);
      if (to == MissingPairs::kNone) break;
      missing.take(from, to);
      chain.push_back(missing.start(to));
      from = to;
    }
    chains.push_back(std::move(chain));
  }
  return chains;
}

}  // namespace

RestartChains restart_chains(config::ModelKind kind, int most_ranks,
                             std::size_t most_restarts) {
  using config::Precision;
  const auto chains = [&](std::initializer_list<Precision> types, MissingPairs::Of of) {
    return take_chains({all_candidates(kind, most_ranks, types), of}, most_restarts);
  };
  // Of starts that add as much the last is taken: mixed chains begin in fp16.
  return {.wide = chains({Precision::fp32}, MissingPairs::Of::all),
          .mixed = chains({Precision::fp32, Precision::bf16, Precision::fp16},
                          MissingPairs::Of::narrow)};
}

}  // namespace trireme::test
