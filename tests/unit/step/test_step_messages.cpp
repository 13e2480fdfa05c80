// The messages of a step, planned on shapes, against the closed formulas of
// docs/math/communication.md: every site with its calls and elements, exactly. Letters
// are those of that page.
#include <gtest/gtest.h>

#include "comm/planned_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "step/step_plan.hpp"
#include "unit/step/planned_messages.hpp"

namespace trireme::step {
namespace {

using test::Messages;

struct Layout {
  index_t L = 3, h = 24, f = 48, V = 37, S = 12, b = 2;
  int t = 1, d = 1, m = 1, zero = 0;
  bool sequence = false;
  index_t B = index_t{4} << 20;  // elements of a bucket
  // Of a pipeline, for which L has n layers for each piece and one more for the first.
  int p = 1, v = 1, n = 1, stage = 0;
  config::PipelineSchedule schedule = config::PipelineSchedule::one_f_one_b;

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage == p - 1; }
  index_t layers() const { return p == 1 ? L : n * v + (is_first() ? 1 : 0); }
  // Warm-up of 1F1B, of one chunk each; of GPipe: forward passes before any other.
  int warmup() const {
    return schedule == config::PipelineSchedule::gpipe ? m : std::min(m, p - 1 - stage);
  }

  std::string name() const {
    return fmt::format(
        "L {} t {}{} d {} zero {} m {} B {} stage {} of {}, v {}, n {}, {}", L, t,
        sequence ? " sequence" : "", d, zero, m, B, stage, p, v, n,
        config::name_of(schedule));
  }
  PipelineLayout pipeline() const {
    schedule::Split split(static_cast<std::size_t>(p * v), n);
    split[0] = n + 1;
    if (p == 1) split.clear();
    return {.stages = p, .chunks = v, .split = split, .schedule = schedule};
  }
};

// Twelve heads, which one to four tensor ranks share.
model::Architecture model_of(const Layout& layout) {
  return {.layers = layout.L,
          .hidden = layout.h,
          .heads = 12,
          .kv_heads = 12,
          .ffn_hidden = layout.f,
          .sequence = layout.S,
          .vocab = layout.V};
}

// On the last tensor rank, which has the padding of the vocabulary.
comm::ProcessGroups groups_of(const Layout& layout, int data_rank) {
  const comm::GridShape shape{.tensor = layout.t, .data = layout.d, .pipeline = layout.p};
  const int rank = comm::rank_of(
      shape, {.tensor = layout.t - 1, .data = data_rank, .pipeline = layout.stage});
  return comm::make_process_groups(
      comm::make_planned_communicator(rank, shape.size(), "world"), shape);
}

// What the plan says of one rank, and what it updates of norms and positions, and of the
// tied embedding.
struct Planned {
  Messages messages;
  index_t sequence_region = 0;
  index_t tied = 0;
};

Planned planned(const Layout& layout, int data_rank) {
  const ModelState<float> state(groups_of(layout, data_rank), model_of(layout),
                                {.sequence_parallel = layout.sequence,
                                 .zero = layout.zero,
                                 .bucket_elements = layout.B,
                                 .pipeline = layout.pipeline()});
  Planned result;
  const StepPlan plan = plan_step(
      state,
      {.micro = layout.b, .sequence = layout.S, .microbatches = layout.m, .seed = 0});
  result.messages = test::messages_of(plan.tally);
  ParamBuffer<float> params;
  params.plan(state.registry, state.sharding());
  for (std::size_t p = 0; p < state.registry.size(); ++p) {
    if (state.registry.spec(p).in_sequence_region) {
      result.sequence_region += params.updated(p).size();
    }
  }
  for (const std::size_t tied : state.registry.tied()) {
    result.tied += params.updated(tied).size();
  }
  return result;
}

index_t ceiling(index_t n, index_t d) {
  return (n + d - 1) / d;
}

// Room of a bucket of n elements: equal, aligned parts for all data ranks.
index_t D(const Layout& x, index_t n) {
  const index_t parts = x.zero == 0 ? 1 : 64 * x.d;
  return parts * ceiling(n, parts);
}

// What a slab has, with room for alignment; where each unit is a bucket (ZeRO 2 and 3),
// with that of its parts.
struct Units {
  index_t words, positions, E, Lambda, H, P;

  explicit Units(const Layout& x) {
    const auto A = [](index_t n) { return 64 * ceiling(n, 64); };
    words = A(128 * ceiling(ceiling(x.V, x.t), 128) * x.h);
    positions = A(x.S * x.h);
    E = words + positions;
    Lambda = 6 * A(x.h) + A(3 * x.h * x.h / x.t) + A(3 * x.h / x.t) + A(x.h * x.h / x.t) +
             2 * A(x.f * x.h / x.t) + A(x.f / x.t);
    H = 2 * A(x.h);
    if (x.zero >= 2) {
      E = x.p == 1 ? D(x, E) : D(x, words) + D(x, positions);
      words = D(x, words);
      positions = D(x, positions);
      Lambda = D(x, Lambda);
      H = D(x, H);
    }
    P = E + x.L * Lambda + H;
    if (x.p == 1) return;
    P = x.layers() * Lambda;
    if (x.is_first()) P += E;
    if (x.is_last()) P += words + H;
  }
};

class Formulas {
 public:
  // Q: gradients of the sequence region on this rank; `tied`: of the tied embedding.
  Formulas(const Layout& layout, index_t Q, index_t tied = 0) : layout_(layout) {
    if (layout.t > 1 && layout.sequence) {
      sequence_parallel(Q);
    } else if (layout.t > 1) {
      tensor_parallel();
    }
    if (layout.t > 1) {
      const index_t R = layout.S * layout.b;
      const index_t m = layout.is_last() ? layout.m : 0;
      add("tensor", "loss: maximum", "all_reduce", m, m * R);
      add("tensor", "loss: sums", "all_reduce", m, m * 2 * R);
    }
    if (layout.t * layout.p > 1) add("model", "gradient norm", "all_reduce", 1, 2);
    if (layout.p > 1) pipeline(tied);
    if (layout.d > 1) data_parallel();
  }
  const Messages& messages() const { return messages_; }

 private:
  void add(const char* axis, const char* site, const char* operation, std::int64_t calls,
           std::int64_t elements) {
    if (calls > 0) messages_[{axis, site, operation}] = {calls, elements};
  }
  // m, or 2 L m, calls of R h elements each.
  void hidden(const char* site, const char* operation, std::int64_t calls) {
    const index_t of_a_call = layout_.S * layout_.b * layout_.h;
    add("tensor", site, operation, calls, calls * of_a_call);
  }

  void tensor_parallel() {
    const index_t m = layout_.m, L = layout_.layers();
    hidden("word embedding", "all_reduce", of_first(m));
    hidden("row-parallel output", "all_reduce", 2 * L * m);
    hidden("head input gradient", "all_reduce", of_last(m));
    hidden("column-parallel input gradient", "all_reduce", 2 * L * m);
  }

  void sequence_parallel(index_t Q) {
    const index_t m = layout_.m, L = layout_.layers();
    hidden("word embedding", "reduce_scatter", of_first(m));
    hidden("column-parallel input", "all_gather", 2 * L * m);
    hidden("row-parallel output", "reduce_scatter", 2 * L * m);
    hidden("head input", "all_gather", of_last(m));
    hidden("head input gradient", "reduce_scatter", of_last(m));
    hidden("row-parallel output gradient", "all_gather", 2 * L * m);
    hidden("column-parallel input gradient", "reduce_scatter", 2 * L * m);
    hidden("column-parallel input, for its weight", "all_gather", 2 * L * m);
    hidden("word embedding gradient", "all_gather", of_first(m));
    add("tensor", "gradients of the sequence region", "all_reduce", Q > 0 ? 1 : 0, Q);
  }

  index_t of_first(index_t n) const { return layout_.is_first() ? n : 0; }
  index_t of_last(index_t n) const { return layout_.is_last() ? n : 0; }

  void pipeline(index_t tied) {
    const index_t m = layout_.m, v = layout_.v;
    const index_t Rh = layout_.S * layout_.b * layout_.h;
    const index_t down = m * v - of_last(m), up = m * v - of_first(m);
    add("pipeline", "activations", "send", down, down * Rh / layout_.t);
    add("pipeline", "activation gradients", "send", up, up * Rh / layout_.t);
    const index_t from_above = m * v - of_first(m), from_below = m * v - of_last(m);
    add("pipeline", "activations", "recv", from_above, 0);
    add("pipeline", "activation gradients", "recv", from_below, 0);
    add("pipeline", "loss totals", "all_reduce", 1, 2);
    const bool is_sliced = layout_.t > 1 && !layout_.sequence;
    const index_t arriving = is_sliced ? from_above + from_below : 0;
    add("tensor", "slices of stage messages", "all_gather", arriving, arriving * Rh);
    if (layout_.is_first() || layout_.is_last()) {
      add("tied", "tied gradient", "all_reduce", tied > 0 ? 1 : 0, tied);
    }
  }

  index_t buckets(const Units& units) const {
    const index_t words = layout_.is_first() || layout_.is_last() ? 1 : 0;
    if (layout_.p > 1 && layout_.zero >= 2) return layout_.layers() + 2 * words;
    if (layout_.p > 1) return words + 1;  // B takes all else
    const index_t L = layout_.L, B = layout_.B;
    if (layout_.zero >= 2) return L + 2;
    const index_t with_head = B > units.H ? ceiling(B - units.H, units.Lambda) : 0;
    return 2 + ceiling(L - std::min(L, with_head), ceiling(B, units.Lambda));
  }

  // Elements of all buckets.
  index_t in_buckets(const Units& units) const {
    const Layout& x = layout_;
    if (x.zero != 1) return units.P;
    if (x.p > 1) {
      const index_t words = x.is_first() || x.is_last() ? units.words : 0;
      return D(x, words) + D(x, units.P - words);
    }
    const index_t with_head =
        std::min(x.L, x.B > units.H ? ceiling(x.B - units.H, units.Lambda) : index_t{0});
    const index_t k = ceiling(x.B, units.Lambda);
    index_t sum = D(x, units.E) + D(x, with_head * units.Lambda + units.H);
    for (index_t left = x.L - with_head; left > 0; left -= k) {
      sum += D(x, std::min(left, k) * units.Lambda);
    }
    return sum;
  }

  // Calls and elements of ZeRO 3, of p = 1.
  std::pair<index_t, index_t> gathers(const Units& units) const {
    const index_t m = layout_.m, L = layout_.L;
    index_t W = units.E + L * units.Lambda + units.H;
    if (L >= 2) {
      W += m * (L - 1) * units.Lambda + (m - 1) * ((L - 2) * units.Lambda + units.H);
    }
    return {2 * m * (L - 1) + 3, W};
  }
  // Of a stage with three layers or more: what turns of the direction save.
  std::pair<index_t, index_t> stage_gathers(const Units& units) const {
    const bool first = layout_.is_first(), last = layout_.is_last();
    const index_t m = layout_.m, L = layout_.layers();
    const index_t down = std::max<index_t>(1, m - layout_.warmup()), up = down - 1;
    index_t calls = 2 * m * L, W = 2 * m * L * units.Lambda;
    if (first) calls += m, W += m * units.positions;
    if (last) calls += 2 * m, W += 2 * m * units.H;
    calls -= 2 * down + (first ? 1 : 2) * up;
    W -= down * (last ? units.H + units.Lambda : 2 * units.Lambda);
    W -= up * (first ? 1 : 2) * units.Lambda;
    if (first || last) calls += 1, W += units.words;
    return {calls, W};
  }

  void data_parallel() {
    const Units units(layout_);
    const index_t m = layout_.m, n_b = buckets(units), P = in_buckets(units);
    const int zero = layout_.zero;
    if (zero == 0) add("gradient", "gradients", "all_reduce", n_b, P);
    if (zero == 1) add("gradient", "gradients", "reduce_scatter", n_b, P);
    if (zero >= 2) add("gradient", "gradients", "reduce_scatter", m * n_b, m * P);
    if (zero == 1 || zero == 2) add("gradient", "weights (ZeRO)", "all_gather", n_b, P);
    if (zero == 3) {
      const auto [calls, W] = layout_.p > 1 ? stage_gathers(units) : gathers(units);
      add("gradient", "weights (ZeRO 3)", "all_gather", calls, W);
    }
    add("gradient", "loss totals", "all_reduce", 1, 2);
    add("gradient", "objective counts", "all_reduce", of_last(1), of_last(1));
    if (zero >= 1) add("gradient", "gradient norm", "all_reduce", 1, 2);
  }

  const Layout& layout_;
  Messages messages_;
};

// Every data rank of a layout.
void check(const Layout& layout) {
  SCOPED_TRACE(layout.name());
  const bool shares = layout.d > 1 && layout.zero >= 1;
  const index_t all = layout.h * (layout.S + 6 * layout.L + 2);
  index_t sum = 0;
  for (int rank = 0; rank < layout.d; ++rank) {
    const Planned plan = planned(layout, rank);
    sum += plan.sequence_region;
    const Formulas formulas(layout, shares ? plan.sequence_region : all);
    ASSERT_EQ(plan.messages, formulas.messages()) << "data rank " << rank;
  }
  EXPECT_EQ(sum, shares ? all : layout.d * all);
}

template <class Function>
void for_each_layout(const Function& function) {
  for (const int t : {1, 2, 3, 4}) {
    for (const bool sequence : {false, true}) {
      for (const int d : {1, 2, 3, 4}) {
        for (const int zero : {0, 1, 2, 3}) {
          if (d == 1 && zero > 0) continue;
          function(Layout{.t = t, .d = d, .zero = zero, .sequence = sequence});
        }
      }
    }
  }
}

TEST(StepMessages, IsThatOfTheFormulas) {
  for_each_layout([](Layout layout) {
    for (const index_t L : {1, 2, 5}) {
      for (const int m : {1, 2, 3}) {
        layout.L = L;
        layout.m = m;
        check(layout);
      }
    }
  });
}

// Passes like those before are not run again.
TEST(StepMessages, OfManyMicroBatches) {
  for_each_layout([](Layout layout) {
    for (const int m : {4, 5, 9}) {
      layout.m = m;
      check(layout);
    }
  });
}

// From one unit each to all in one; also where the edge of a bucket is that of a unit.
TEST(StepMessages, OfEveryBucketSize) {
  for (const int t : {1, 2, 4}) {
    for (const int d : {2, 3}) {
      for (const int zero : {0, 1}) {
        for (const index_t L : {1, 5, 8}) {
          Layout layout{.L = L, .t = t, .d = d, .zero = zero};
          const Units units(layout);
          for (const index_t B :
               {index_t{1}, units.H - 1, units.H, units.H + 1, units.Lambda,
                units.H + units.Lambda, units.H + units.Lambda + 1, 2 * units.Lambda,
                units.H + 2 * units.Lambda, 2 * units.Lambda + 1, units.P, 2 * units.P}) {
            layout.B = B;
            check(layout);
          }
        }
      }
    }
  }
}

// Rows that no alignment suits, a vocabulary of which the last rank has padding alone,
// and more data ranks than some parameters have rows.
TEST(StepMessages, OfOddSizes) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const index_t V : {5, 37, 64}) {
      check({.h = 36,
             .f = 60,
             .V = V,
             .S = 8,
             .b = 3,
             .t = 4,
             .d = 3,
             .m = 2,
             .zero = zero,
             .sequence = true});
      check({.L = 1,
             .h = 12,
             .f = 12,
             .V = V,
             .S = 4,
             .b = 1,
             .t = 2,
             .d = 64,
             .zero = zero,
             .sequence = true});
    }
  }
}

// Every stage of pipelines with one data rank.
TEST(StepMessages, OfEveryStage) {
  using config::PipelineSchedule;
  for (const auto& [p, v, schedule] : {std::tuple{2, 1, PipelineSchedule::one_f_one_b},
                                       {3, 1, PipelineSchedule::gpipe},
                                       {4, 1, PipelineSchedule::zero_bubble},
                                       {2, 2, PipelineSchedule::one_f_one_b},
                                       {3, 2, PipelineSchedule::one_f_one_b}}) {
    for (const int t : {1, 2, 3}) {
      for (const bool sequence : {false, true}) {
        for (const int m : {p, 2 * p}) {
          Layout layout{.L = p * v + 1,
                        .t = t,
                        .m = m,
                        .sequence = sequence,
                        .p = p,
                        .v = v,
                        .schedule = schedule};
          index_t sum = 0;
          for (layout.stage = 0; layout.stage < p; ++layout.stage) {
            SCOPED_TRACE(layout.name());
            const Planned plan = planned(layout, 0);
            sum += plan.sequence_region;
            ASSERT_EQ(plan.messages,
                      Formulas(layout, plan.sequence_region, plan.tied).messages());
          }
          EXPECT_EQ(sum, layout.h * (layout.S + 6 * layout.L + 2));
        }
      }
    }
  }
}

// With several data ranks: which weights ZeRO 3 has already, after any number of
// micro-batches, is the order's doing.
TEST(StepMessages, OfDataRanksOfEveryStage) {
  using config::PipelineSchedule;
  for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
    for (const int p : {2, 5}) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const int m : {1, p, 2 * p + 1}) {
          Layout layout{.L = 3 * p + 1,
                        .t = 2,
                        .d = 2,
                        .m = m,
                        .zero = zero,
                        .sequence = m == p,
                        .p = p,
                        .n = 3,
                        .schedule = schedule};
          for (layout.stage = 0; layout.stage < p; ++layout.stage) {
            for (const int rank : {0, 1}) {
              SCOPED_TRACE(layout.name());
              const Planned plan = planned(layout, rank);
              ASSERT_EQ(plan.messages,
                        Formulas(layout, plan.sequence_region, plan.tied).messages());
            }
          }
        }
      }
    }
  }
}

// Two layers of an encoder and three of a decoder, which reads the memory in each.
model::Architecture small_t5() {
  return {.kind = model::ModelKind::t5,
          .layers = 2,
          .decoder_layers = 3,
          .hidden = 8,
          .heads = 2,
          .kv_heads = 2,
          .head_size = 4,
          .ffn_hidden = 16,
          .sequence = 6,
          .decoder_sequence = 4,
          .vocab = 37,
          .norm = model::Norm::rmsnorm,
          .activation = model::Activation::relu,
          .position = model::Position::relative,
          .bias = false,
          .relative_attention_num_buckets = 8,
          .relative_attention_max_distance = 20};
}

// What a stage sends for one micro-batch: calls, and elements of all of them.
struct Sent {
  index_t calls = 0, elements = 0;
};
struct StageSends {
  Sent activations, gradients;  // to the next piece, and back to the one before
};

// By the plan of a step of three micro-batches, of two samples each.
StageSends sent_by_stage(const PipelineLayout& pipeline, const Layout& layout) {
  constexpr int kMicrobatches = 3;
  const model::Architecture t5 = small_t5();
  const ModelState<float> state(
      groups_of(layout, 0), t5,
      {.sequence_parallel = layout.sequence, .pipeline = pipeline});
  const StepPlan plan = plan_step(
      state,
      {.micro = 2, .sequence = t5.sequence, .microbatches = kMicrobatches, .seed = 0});
  StageSends sent;
  for (const MessageTally& message : plan.tally.messages()) {
    if (message.axis != "pipeline" || message.operation != "send") continue;
    const bool is_forward = message.site == "activations";
    EXPECT_TRUE(is_forward || message.site == "activation gradients") << message.site;
    EXPECT_EQ(message.calls % kMicrobatches, 0);
    EXPECT_EQ(message.elements % kMicrobatches, 0);
    Sent& of = is_forward ? sent.activations : sent.gradients;
    of.calls += message.calls / kMicrobatches;
    of.elements += message.elements / kMicrobatches;
  }
  return sent;
}

// Over one tensor rank, and over two, which share a message either way.
void check_t5(const PipelineLayout& pipeline, const std::vector<StageSends>& expected) {
  for (const auto& [t, sequence] : {std::pair{1, false}, {2, false}, {2, true}}) {
    Layout layout{.t = t, .sequence = sequence, .p = pipeline.stages};
    for (layout.stage = 0; layout.stage < pipeline.stages; ++layout.stage) {
      SCOPED_TRACE(fmt::format("[{}] x {} {} t {} {} stage {}",
                               fmt::join(pipeline.split, ", "), pipeline.chunks,
                               config::name_of(pipeline.schedule), t, sequence,
                               layout.stage));
      const StageSends sent = sent_by_stage(pipeline, layout);
      const StageSends& want = expected.at(static_cast<std::size_t>(layout.stage));
      EXPECT_EQ(sent.activations.calls, want.activations.calls);
      EXPECT_EQ(sent.activations.elements * t, want.activations.elements);
      EXPECT_EQ(sent.gradients.calls, want.gradients.calls);
      EXPECT_EQ(sent.gradients.elements * t, want.gradients.elements);
    }
  }
}

// Of two samples the source's text has 6 x 2 x 8 = 96 elements, the memory as many, and
// the text 4 x 2 x 8 = 64; memory and text together are 160. The memory crosses a border
// once, however many layers behind it read it, and its gradient comes back as often.
TEST(StepMessages, OfT5AreTheTensorsOfEachBorderOnce) {
  struct Case {
    schedule::Split split;
    std::vector<StageSends> sent;
  };
  const std::vector<Case> cases = {
      // encoder 0 | encoder 1, decoder 0 | decoder 1 and 2
      {{1, 2, 2}, {{{1, 96}, {}}, {{1, 160}, {1, 96}}, {{}, {1, 160}}}},
      // encoder | decoder 0 | decoder 1 and 2
      {{2, 1, 2}, {{{1, 96}, {}}, {{1, 160}, {1, 96}}, {{}, {1, 160}}}},
      // encoder, decoder 0 | decoder 1, which hands the memory on | decoder 2
      {{3, 1, 1}, {{{1, 160}, {}}, {{1, 160}, {1, 160}}, {{}, {1, 160}}}},
      // encoder 0 | encoder 1 | decoder: its memory is made where it is read
      {{1, 1, 3}, {{{1, 96}, {}}, {{1, 96}, {1, 96}}, {{}, {1, 96}}}},
      // encoder | decoder | head, which reads the text alone
      {{2, 3, 0}, {{{1, 96}, {}}, {{1, 64}, {1, 96}}, {{}, {1, 64}}}}};
  using config::PipelineSchedule;
  for (const auto& [split, sent] : cases) {
    for (const auto schedule : {PipelineSchedule::one_f_one_b,
                                PipelineSchedule::zero_bubble, PipelineSchedule::gpipe}) {
      check_t5({.stages = 3, .chunks = 1, .split = split, .schedule = schedule}, sent);
    }
  }
  // encoder 0 | encoder 1 | decoder 0 | decoder 1 | decoder 2 | head, in turn on the
  // three stages. Borders: 96, 96, 160, 160, 64.
  check_t5({.stages = 3, .chunks = 2, .split = {1, 1, 1, 1, 1, 0}},
           {{{2, 96 + 160}, {1, 160}},
            {{2, 96 + 64}, {2, 96 + 160}},
            {{1, 160}, {2, 96 + 64}}});
}

std::int64_t calls(const Messages& messages, const char* axis, const char* operation) {
  std::int64_t sum = 0;
  for (const auto& [key, counts] : messages) {
    if (key[0] == axis && key[2] == operation) sum += counts.first;
  }
  return sum;
}

TEST(StepMessages, OfTheExampleOfThatPage) {
  const Layout layout{.L = 3,
                      .h = 24,
                      .f = 96,
                      .V = 37,
                      .S = 8,
                      .b = 2,
                      .t = 2,
                      .d = 2,
                      .m = 3,
                      .zero = 3,
                      .sequence = true};
  const Units units(layout);
  EXPECT_EQ(units.E, 3328);
  EXPECT_EQ(units.Lambda, 4096);
  EXPECT_EQ(units.H, 128);
  EXPECT_EQ(units.P, 15744);
  for (const int rank : {0, 1}) {
    Messages messages = planned(layout, rank).messages;
    using Counts = std::pair<std::int64_t, std::int64_t>;
    EXPECT_EQ((messages[{"gradient", "gradients", "reduce_scatter"}]), Counts(15, 47232));
    EXPECT_EQ((messages[{"gradient", "weights (ZeRO 3)", "all_gather"}]),
              Counts(15, 48768));
    EXPECT_EQ((messages[{"tensor", "row-parallel output", "reduce_scatter"}]),
              Counts(18, 6912));
    EXPECT_EQ((messages[{"tensor", "gradients of the sequence region", "all_reduce"}]),
              Counts(1, rank == 0 ? 384 : 288));
    EXPECT_EQ(calls(messages, "tensor", "all_gather"), (6 * 3 + 2) * 3);
    EXPECT_EQ(calls(messages, "tensor", "reduce_scatter"), (4 * 3 + 2) * 3);
  }
}

}  // namespace
}  // namespace trireme::step
