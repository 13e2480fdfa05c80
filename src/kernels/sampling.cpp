// kernels/sampling.cpp — see sampling.hpp.
//
// A team has a text, and goes through its logits again and again, which lie in a cache.
// Tokens are in the order of a word each (order_of()). Which are kept is said by a word
// and a number: all tokens above that word, and so many of those that have it, the lower
// ones first. The word is found digit by digit: of 4 bits a pass, in which every thread
// adds to counters of its own what its tokens have of each digit. Then the place where
// the number falls is found by sums over parts of the vocabulary, and over parts of
// these.
//
// All sums are of whole numbers: the same whatever their order.
#include "kernels/sampling.hpp"

#include <algorithm>
#include <type_traits>

#include "base/early_start.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/token_weights.hpp"

namespace trireme::kernels {

namespace {

// Threads that go through a text's logits: to draw, as many as there is room for counters
// of each; for the largest one, all that a team may have.
constexpr int kSamplers = 256, kSeekers = 1024;
constexpr int kTurns = 4;  // whose loads are under way
constexpr int kDigitBits = 4, kDigits = 1 << kDigitBits;
constexpr int kSegments = kSamplers / kDigits;  // of the sums of a digit's counters

using Amount = std::uint64_t;

// Which tokens are kept: those above `bound`, and the first `ties` that equal it.
struct KeptTokens {
  std::uint32_t bound = 0;
  Amount ties = 0;
  Amount above = 0;  // the sum of the weights of those above
};

// TextRows as a kernel takes them: eight Views are too much for it.
struct RowPointers {
  std::int32_t *tokens, *positions, *lengths, *sizes, *left, *counts, *drawn;
  const std::uint64_t* owners;
  int most;  // columns of drawn

  explicit RowPointers(const TextRows& rows)
      : tokens(rows.tokens.data()),
        positions(rows.positions.data()),
        lengths(rows.lengths.data()),
        sizes(rows.sizes.data()),
        left(rows.left.data()),
        counts(rows.counts.data()),
        drawn(rows.drawn.data()),
        owners(rows.owners.data()),
        most(static_cast<int>(rows.drawn.extent(1))) {}
};

template <class T, bool kIsGreedy>
struct DrawToken {
  TextLogits<T> logits;
  bool has_pieces;
  float inverse_temperature;
  index_t top_k;
  double top_p;
  std::uint64_t seed;
  std::int32_t end_of_document;
  index_t capacity;
  RowPointers texts;

  // A team's scratch memory.
  struct Memory {
    Amount* counters;  // (kDigits, kSamplers), or sums and ties of parts
    Amount* sums;      // (kDigits, kSegments)
  };
  static constexpr int kThreads = kIsGreedy ? kSeekers : kSamplers;
  static constexpr int kScratch =
      kIsGreedy ? 0 : kDigits * kSamplers + kDigits * kSegments;

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const auto text = static_cast<int>(team.league_rank());
    let_next_start();
    wait_for_previous();
    if (texts.lengths[text] == 0) return;
    constexpr auto kBytes = static_cast<int>(kScratch * sizeof(Amount));
    auto* const memory = static_cast<Amount*>(
        team.team_scratch(scratch_level(kBytes)).get_shmem_aligned(kBytes, 8));
    const Memory scratch{memory, memory + kDigits * kSamplers};
    const std::int32_t token = draw(team, text, scratch);
    team.team_barrier();  // all have read what changes now
    Kokkos::single(Kokkos::PerTeam(team), [&] { advance(text, token); });
  }

  // body(token, logit) for this thread's part of the text's tokens.
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void for_each_logit(int text, int thread,
                                                  const Body& body) const {
    constexpr int kElements = impl::Piece<T>::kElements;
    for (int rank = 0; rank < static_cast<int>(logits.ranks); ++rank) {
      const auto first = static_cast<int>(rank * logits.share);
      const auto words = static_cast<int>(words_of(rank));
      const T* const row = row_of(rank, text);
      constexpr int kWidth = kThreads * kElements;  // of the team's turn
      for (int begin = thread * kElements; begin < words; begin += kTurns * kWidth) {
        impl::Piece<T> piece[kTurns] = {};
        TRIREME_IN_REGISTERS
        for (int turn = 0; turn < kTurns; ++turn) {
          const int c = begin + turn * kWidth;
          if (c >= words) continue;
          piece[turn] = has_pieces ? impl::load_piece<true>(row + c, kElements)
                                   : impl::load_piece<false>(row + c, words - c);
        }
        TRIREME_IN_REGISTERS
        for (int turn = 0; turn < kTurns; ++turn) {
          const int c = begin + turn * kWidth;
          TRIREME_IN_REGISTERS
          for (int e = 0; e < kElements; ++e) {
            if (c + e >= words) continue;
            body(first + c + e, static_cast<float>(piece[turn].element[e]));
          }
        }
      }
    }
  }
  // The same for the tokens [begin, end).
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void for_tokens(int text, int begin, int end,
                                              const Body& body) const {
    const auto share = static_cast<int>(logits.share);
    for (int token = begin; token < end;) {
      const int rank = token / share;
      const int stop = (rank + 1) * share < end ? (rank + 1) * share : end;
      const T* const row = row_of(rank, text);
      for (; token < stop; ++token) body(static_cast<float>(row[token - rank * share]));
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION const T* row_of(int rank, int text) const {
    return logits.data + (rank * logits.count + text) * logits.columns;
  }
  KOKKOS_FORCEINLINE_FUNCTION index_t words_of(int rank) const {
    const index_t words = logits.usable - rank * logits.share;
    return words < 0 ? 0 : words < logits.share ? words : logits.share;
  }

  // The token, or what stands for one where a logit is not finite.
  KOKKOS_FUNCTION std::int32_t draw(const TeamMember& team, int text,
                                    const Memory& memory) const {
    const Amount best = find_largest(team, text);
    const auto order = static_cast<std::uint32_t>(best >> 32);
    const auto token = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
    if (order == 0xffffffffu) return -1 - token;
    if constexpr (kIsGreedy) {
      return token;
    } else {
      const float largest = logit_of(order);
      const KeptTokens kept = find_kept(team, text, largest, memory);
      return fall(team, text, largest, kept, memory);
    }
  }

  // The largest logit's word, and below it the complement of its first token. A thread's
  // tokens come in order, so that of equal ones it keeps the first.
  KOKKOS_FUNCTION Amount find_largest(const TeamMember& team, int text) const {
    Amount best = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, kThreads),
        [&](int thread, Amount& mine) {
          std::uint32_t most = 0, first = 0;
          for_each_logit(text, thread, [&](int token, float logit) {
            const std::uint32_t order = order_of(logit);
            if (order <= most) return;
            most = order;
            first = static_cast<std::uint32_t>(token);
          });
          const Amount candidate = (static_cast<Amount>(most) << 32) | ~first;
          if (most > 0) mine = candidate > mine ? candidate : mine;
        },
        Kokkos::Max<Amount>(best));
    return best;
  }

  // Of all tokens above `bound`, the sum of amount(order, logit).
  template <class Of>
  KOKKOS_FORCEINLINE_FUNCTION Amount sum_above(const TeamMember& team, int text,
                                               std::uint32_t bound,
                                               const Of& amount) const {
    Amount total = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, kSamplers),
        [&](int thread, Amount& sum) {
          for_each_logit(text, thread, [&](int, float logit) {
            const std::uint32_t order = order_of(logit);
            if (order > bound) sum += amount(logit);
          });
        },
        total);
    return total;
  }

  // The largest word that, with all above it, has the amount `least`, which is not more
  // than all have. `above`: what those above the word have.
  template <class Of>
  KOKKOS_FORCEINLINE_FUNCTION std::uint32_t find_bound(const TeamMember& team, int text,
                                                       Amount least, const Of& amount,
                                                       const Memory& memory,
                                                       Amount& above) const {
    std::uint32_t found = 0;
    above = 0;
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      // Of what has these upper bits; before the first digit that is everything.
      const Amount prefix = static_cast<Amount>(found) >> (shift + kDigitBits);
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kSamplers), [&](int thread) {
        Amount* const mine = memory.counters + thread;
        for (int d = 0; d < kDigits; ++d) mine[d * kSamplers] = 0;
        for_each_logit(text, thread, [&](int, float logit) {
          const std::uint32_t order = order_of(logit);
          if (static_cast<Amount>(order) >> (shift + kDigitBits) != prefix) return;
          mine[(order >> shift) % kDigits * kSamplers] += amount(logit);
        });
      });
      team.team_barrier();
      add_counters(team, memory);
      std::uint32_t digit = kDigits - 1;
      for (; digit > 0; --digit) {
        const Amount here = memory.sums[digit * kSegments];
        if (above + here >= least) break;
        above += here;
      }
      found |= digit << shift;
      team.team_barrier();  // all have read the sums
    }
    return found;
  }

  // The first of each digit's sums becomes the sum of its counters.
  KOKKOS_FUNCTION void add_counters(const TeamMember& team, const Memory& memory) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kDigits * kSegments), [&](int i) {
      const Amount* const from = memory.counters + i / kSegments * kSamplers;
      Amount sum = 0;
      for (int j = i % kSegments; j < kSamplers; j += kSegments) sum += from[j];
      memory.sums[i] = sum;
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kDigits), [&](int d) {
      Amount* const of_digit = memory.sums + d * kSegments;
      for (int s = 1; s < kSegments; ++s) of_digit[0] += of_digit[s];
    });
    team.team_barrier();
  }

  KOKKOS_FUNCTION KeptTokens find_kept(const TeamMember& team, int text, float largest,
                                       const Memory& memory) const {
    const auto weight = [&](float logit) {
      return static_cast<Amount>(token_weight(logit, largest, inverse_temperature));
    };
    KeptTokens kept;
    if (top_k > 0 && top_k < logits.usable) {
      Amount count = 0;
      const auto one = [](float) { return Amount{1}; };
      kept.bound = find_bound(team, text, static_cast<Amount>(top_k), one, memory, count);
      kept.ties = static_cast<Amount>(top_k) - count;
    }
    kept.above = sum_above(team, text, kept.bound, weight);
    if (top_p >= 1.0) return kept;
    const Amount of_tie = kept.ties > 0 ? weight(logit_of(kept.bound)) : 0;
    const Amount least = share_of(top_p, kept.above + kept.ties * of_tie);
    if (kept.above < least) {  // and some of the ties of top_k
      kept.ties = (least - kept.above + of_tie - 1) / of_tie;
      return kept;
    }
    kept.bound = find_bound(team, text, least, weight, memory, kept.above);
    const Amount of_bound = weight(logit_of(kept.bound));
    kept.ties = (least - kept.above + of_bound - 1) / of_bound;
    return kept;
  }

  // The logit that has this word.
  KOKKOS_FORCEINLINE_FUNCTION static float logit_of(std::uint32_t order) {
    const std::uint32_t word = (order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order;
    return Kokkos::bit_cast<float>(word);
  }

  // The first token at which the sum of kept weights exceeds u times that of all. The
  // range where it is, is cut in parts, and that part again, until it has one token.
  KOKKOS_FUNCTION std::int32_t fall(const TeamMember& team, int text, float largest,
                                    const KeptTokens& kept, const Memory& memory) const {
    const auto weight_of = [&](float logit) {
      return static_cast<Amount>(token_weight(logit, largest, inverse_temperature));
    };
    const Amount of_tie = kept.ties > 0 ? weight_of(logit_of(kept.bound)) : 0;
    const Amount total = kept.above + kept.ties * of_tie;
    const auto size = static_cast<std::uint64_t>(texts.sizes[text]);
    Amount rest = multiply_high(number_of_draw(seed, texts.owners[text], size), total);
    Amount ties_left = kept.ties;
    auto begin = 0, end = static_cast<int>(logits.usable);
    Amount* const sums = memory.counters;
    Amount* const ties = memory.counters + kSamplers;
    while (end - begin > 1) {
      const int part = (end - begin + kSamplers - 1) / kSamplers;
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kSamplers), [&](int thread) {
        Amount sum = 0, equal = 0;
        const int from = begin + thread * part;
        for_tokens(text, from, from + part < end ? from + part : end, [&](float logit) {
          const std::uint32_t order = order_of(logit);
          if (order > kept.bound) sum += weight_of(logit);
          if (order == kept.bound) ++equal;
        });
        sums[thread] = sum;
        ties[thread] = equal;
      });
      team.team_barrier();
      int at = 0;
      for (; at < kSamplers - 1; ++at) {
        const Amount equal = ties[at] < ties_left ? ties[at] : ties_left;
        const Amount sum = sums[at] + equal * of_tie;
        if (rest < sum) break;
        rest -= sum;
        ties_left -= equal;
      }
      begin += at * part;
      end = begin + part < end ? begin + part : end;
      team.team_barrier();  // all have read the sums
    }
    return begin;
  }

  KOKKOS_FUNCTION void advance(int text, std::int32_t token) const {
    const int count = texts.counts[text]++;
    texts.drawn[text * texts.most + count] = token;
    const std::int32_t position = texts.positions[text] + 1;
    ++texts.sizes[text];
    const bool is_last = --texts.left[text] <= 0 || token < 0 ||
                         token == end_of_document || position >= capacity ||
                         count + 1 >= texts.most;
    texts.lengths[text] = is_last ? 0 : position + 1;
    if (is_last)
      return;  // the row is read on: its token and position stay what they were
    texts.tokens[text] = token;
    texts.positions[text] = position;
  }
};

void check_texts(const TextRows& texts, index_t count) {
  const auto check = [&](const char* name, const auto& view) {
    TRIREME_REQUIRE(static_cast<index_t>(view.extent(0)) == count,
                    "kernels::draw_tokens: {} of {}, logits of {}", name,
                    format_plural(view.extent(0), "text"), count);
  };
  check("tokens", texts.tokens);
  check("positions", texts.positions);
  check("lengths", texts.lengths);
  check("sizes", texts.sizes);
  check("left", texts.left);
  check("owners", texts.owners);
  check("counts", texts.counts);
  check("drawn", texts.drawn);
}

}  // namespace

template <class T>
void draw_tokens(const Exec& exec, const SamplingRule& rule, const TextLogits<T>& logits,
                 std::int32_t end_of_document, index_t capacity, const TextRows& texts) {
  TRIREME_REQUIRE(
      logits.usable >= 1 && logits.usable < kMostTokens &&
          logits.share <= logits.columns && logits.usable <= logits.ranks * logits.share,
      "kernels::draw_tokens: {} of {} with {} each, fewer than {} are possible",
      format_plural(logits.usable, "token"), format_plural(logits.ranks, "rank"),
      logits.share, kMostTokens);
  check_texts(texts, logits.count);
  const bool has_pieces = impl::has_pieces(logits.data, logits.columns);
  const auto draw_with = [&]<bool kIsGreedy>(std::bool_constant<kIsGreedy>) {
    using Draw = DrawToken<T, kIsGreedy>;
    const Draw of_team{logits,
                       has_pieces,
                       rule.temperature > 0 ? inverse_of(rule.temperature) : 0.0f,
                       rule.top_k,
                       rule.top_p,
                       rule.seed,
                       end_of_document,
                       capacity,
                       RowPointers(texts)};
    const index_t bytes = logits.count * logits.usable * static_cast<index_t>(sizeof(T));
    launch_early_teams<Kokkos::LaunchBounds<Draw::kThreads, 1>>(
        exec, {"trireme::kernels::draw_tokens", {.bytes = bytes}}, logits.count,
        Draw::kThreads, of_team, Draw::kScratch * sizeof(Amount) + 8);
  };
  if (rule.temperature == 0.0) {
    draw_with(std::true_type());
  } else {
    draw_with(std::false_type());
  }
}

#define TRIREME_INSTANTIATE(T) template decltype(draw_tokens<T>) draw_tokens<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
