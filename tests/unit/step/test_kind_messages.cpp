// The messages of a step of BERT and T5, planned on shapes, against the closed formulas
// of docs/math/communication.md: every site with its calls and elements, exactly. What a
// layout sends is counted from the numbers of the model and the layout alone, never from
// its list of blocks. A bar in that page is `_y` here: rows and layers of the decoder.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "comm/planned_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "model/blueprint.hpp"
#include "step/step_plan.hpp"
#include "unit/step/planned_messages.hpp"

namespace trireme::step {
namespace {

using config::PipelineSchedule;
using test::Messages;

constexpr index_t kMicroSamples = 2;  // b

// How ranks share a step, and which of them it is; the last tensor rank.
struct Ranks {
  int t = 1, d = 1, m = 1, zero = 0;
  bool sequence = false;
  bool recomputes = false;  // all layers
  int v = 1;
  std::vector<int> split = {};  // layers of each piece; empty: one stage has all
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int stage = 0;

  int pieces() const { return std::max<int>(1, static_cast<int>(split.size())); }
  int p() const { return pieces() / v; }
  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage == p() - 1; }
  std::string name() const {
    return fmt::format("t {}{}{} d {} zero {} m {} stage {} of {}, [{}], {}", t,
                       sequence ? " sequence" : "", recomputes ? " recomputes" : "", d,
                       zero, m, stage, p(), fmt::join(split, ", "),
                       config::name_of(schedule));
  }
};

Messages planned_messages(const Ranks& ranks, const model::Architecture& a) {
  const comm::GridShape shape{.tensor = ranks.t, .data = ranks.d, .pipeline = ranks.p()};
  const int rank =
      comm::rank_of(shape, {.tensor = ranks.t - 1, .data = 0, .pipeline = ranks.stage});
  const ModelState<float> state(
      comm::make_process_groups(
          comm::make_planned_communicator(rank, shape.size(), "world"), shape),
      a,
      {.sequence_parallel = ranks.sequence,
       .zero = ranks.zero,
       .pipeline = {.stages = ranks.p(),
                    .chunks = ranks.v,
                    .split = ranks.split,
                    .schedule = ranks.schedule}});
  StepShape shape_of_step{
      .micro = kMicroSamples, .sequence = a.sequence, .microbatches = ranks.m};
  if (ranks.recomputes) shape_of_step.recompute.layers = nn::Recompute::kAllLayers;
  return test::messages_of(plan_step(state, shape_of_step).tally);
}

index_t ceiling_of(index_t n, index_t d) {
  return (n + d - 1) / d;
}
// Room of a parameter in a slab; of a bucket, in equal parts for all data ranks.
index_t A(index_t n) {
  return 64 * ceiling_of(n, 64);
}
index_t room_of_bucket(const Ranks& ranks, index_t n) {
  const index_t parts = ranks.zero == 0 ? 1 : 64 * ranks.d;
  return parts * ceiling_of(n, parts);
}
// Rows of the words in the slab of a tensor rank; those of them that the last one has.
index_t padded_words(const Ranks& ranks, index_t V) {
  return 128 * ceiling_of(ceiling_of(V, ranks.t), 128);
}
index_t own_words(const Ranks& ranks, index_t V) {
  return V - (ranks.t - 1) * ceiling_of(V, ranks.t);
}

// Layers before piece g.
int layers_before(const Ranks& ranks, int g) {
  return std::accumulate(ranks.split.begin(), ranks.split.begin() + g, 0);
}
// How many of the layers [begin, end) the stage has.
index_t layers_within(const Ranks& ranks, index_t begin, index_t end) {
  if (ranks.split.empty()) return end - begin;
  index_t count = 0;
  for (int g = ranks.stage; g < ranks.pieces(); g += ranks.p()) {
    for (index_t i = layers_before(ranks, g); i < layers_before(ranks, g + 1); ++i) {
      if (i >= begin && i < end) ++count;
    }
  }
  return count;
}

class Counted {
 public:
  explicit Counted(const Ranks& ranks) : ranks_(ranks) {}
  const Messages& messages() const { return messages_; }

  void add(const char* axis, const char* site, const char* operation, index_t calls,
           index_t elements_of_a_call) {
    if (calls == 0) return;
    auto& [all, elements] = messages_[{axis, site, operation}];
    all += calls;
    elements += calls * elements_of_a_call;
  }
  // In the gradient group, with the elements of all calls.
  void add_all(const char* site, const char* operation, index_t calls, index_t elements) {
    messages_[{"gradient", site, operation}] = {calls, elements};
  }
  void of_tensor(const char* site, const char* operation, index_t calls, index_t each) {
    if (ranks_.t > 1) add("tensor", site, operation, calls, each);
  }
  // Products that read all rows, `calls` of them in a step, forward and backward.
  void column_parallel(index_t calls, index_t each) {
    if (!ranks_.sequence) {
      of_tensor("column-parallel input gradient", "all_reduce", calls, each);
      return;
    }
    of_tensor("column-parallel input", "all_gather", forward_passes() * calls, each);
    of_tensor("column-parallel input gradient", "reduce_scatter", calls, each);
    of_tensor("column-parallel input, for its weight", "all_gather", calls, each);
  }
  // Those whose output is a sum over ranks.
  void row_parallel(index_t calls, index_t each) {
    const char* const sum = ranks_.sequence ? "reduce_scatter" : "all_reduce";
    of_tensor("row-parallel output", sum, forward_passes() * calls, each);
    if (ranks_.sequence) {
      of_tensor("row-parallel output gradient", "all_gather", calls, each);
    }
  }
  void embedding(index_t calls, index_t each) {
    const char* const sum = ranks_.sequence ? "reduce_scatter" : "all_reduce";
    of_tensor("word embedding", sum, calls, each);
    if (ranks_.sequence) of_tensor("word embedding gradient", "all_gather", calls, each);
  }
  void loss_of_words(index_t calls, index_t rows) {
    of_tensor("loss: maximum", "all_reduce", calls, rows);
    of_tensor("loss: sums", "all_reduce", calls, 2 * rows);
  }
  void sequence_region(index_t Q) {
    if (ranks_.sequence && Q > 0) {
      of_tensor("gradients of the sequence region", "all_reduce", 1, Q);
    }
  }
  // `borders`: elements of what crosses the border behind each piece but the last.
  void stage_messages(const std::vector<index_t>& borders) {
    const index_t m = ranks_.m, t = ranks_.t;
    const auto arrive = [&](const char* site, index_t elements) {
      add("pipeline", site, "recv", m, 0);
      if (!ranks_.sequence) {
        of_tensor("slices of stage messages", "all_gather", m, elements);
      }
    };
    for (int g = ranks_.stage; g < ranks_.pieces(); g += ranks_.p()) {
      const auto behind = static_cast<std::size_t>(g);
      if (behind < borders.size()) {
        add("pipeline", "activations", "send", m, borders[behind] / t);
        arrive("activation gradients", borders[behind]);
      }
      if (g > 0) {
        add("pipeline", "activation gradients", "send", m, borders[behind - 1] / t);
        arrive("activations", borders[behind - 1]);
      }
    }
  }
  // Of a table that some stages share.
  void tied(const std::set<int>& stages, index_t elements) {
    if (stages.size() > 1 && stages.contains(ranks_.stage)) {
      add("tied", "tied gradient", "all_reduce", 1, elements);
    }
  }
  void totals(index_t objectives) {
    if (ranks_.t * ranks_.p() > 1) add("model", "gradient norm", "all_reduce", 1, 2);
    if (ranks_.p() > 1) add("pipeline", "loss totals", "all_reduce", 1, 2 * objectives);
    if (ranks_.d == 1) return;
    add("gradient", "loss totals", "all_reduce", 1, 2 * objectives);
    if (ranks_.is_last())
      add("gradient", "objective counts", "all_reduce", 1, objectives);
    if (ranks_.zero >= 1) add("gradient", "gradient norm", "all_reduce", 1, 2);
  }

 private:
  // Of each layer: one that is made again is gone through once more.
  index_t forward_passes() const { return ranks_.recomputes ? 2 : 1; }

  const Ranks& ranks_;
  Messages messages_;
};

// Twelve heads, which one to four tensor ranks share.
model::Architecture some_bert(index_t L, config::NormPlacement placement, bool has_pairs,
                              index_t types) {
  return {.kind = model::ModelKind::bert,
          .layers = L,
          .hidden = 24,
          .heads = 12,
          .kv_heads = 12,
          .ffn_hidden = 48,
          .sequence = 12,
          .vocab = 37,
          .activation = model::Activation::gelu,
          .norm_placement = placement,
          .type_vocab_size = types,
          .binary_head = has_pairs,
          .max_predictions = 5};
}

bool is_post(const model::Architecture& a) {
  return a.norm_placement == config::NormPlacement::post;
}

// Units of a model in one stage: tables have memory of their own with ZeRO 3, as what is
// in a unit with one has, and the others take turns in two buffers.
struct ModelUnits {
  std::vector<index_t> alone, in_turns;
};

index_t sum_of(const std::vector<index_t>& units) {
  return std::accumulate(units.begin(), units.end(), index_t{0});
}

// ZeRO 2 and 3, of which each unit is a bucket.
void count_units(const Ranks& ranks, ModelUnits units, Counted& counted) {
  for (std::vector<index_t>* list : {&units.alone, &units.in_turns}) {
    for (index_t& unit : *list) unit = room_of_bucket(ranks, unit);
  }
  const index_t m = ranks.m, U = sum_of(units.in_turns), alone = sum_of(units.alone);
  const auto count = static_cast<index_t>(units.alone.size());
  const auto n = static_cast<index_t>(units.in_turns.size());
  counted.add_all("gradients", "reduce_scatter", m * (count + n), m * (alone + U));
  if (ranks.zero == 2) {
    counted.add_all("weights (ZeRO)", "all_gather", count + n, alone + U);
    return;
  }
  const index_t first_two = units.in_turns[0] + units.in_turns[1];
  const index_t last_two = units.in_turns.end()[-1] + units.in_turns.end()[-2];
  counted.add_all("weights (ZeRO 3)", "all_gather", 2 * m * (n - 2) + 2 + count,
                  alone + U + m * (U - last_two) + (m - 1) * (U - first_two));
}

// ZeRO 0 and 1.
void count_buckets(const Ranks& ranks, std::vector<index_t> sizes, Counted& counted) {
  for (index_t& size : sizes) size = room_of_bucket(ranks, size);
  const auto n_b = static_cast<index_t>(sizes.size());
  const index_t P = sum_of(sizes);
  counted.add_all("gradients", ranks.zero == 0 ? "all_reduce" : "reduce_scatter", n_b, P);
  if (ranks.zero == 1) counted.add_all("weights (ZeRO)", "all_gather", n_b, P);
}

void count_bert(const Ranks& ranks, const model::Architecture& a, Counted& counted) {
  const index_t h = a.hidden, f = a.ffn_hidden, t = ranks.t;
  const index_t v = padded_words(ranks, a.vocab);
  const index_t layer = 6 * A(h) + A(3 * h * h / t) + A(3 * h / t) + A(h * h / t) +
                        2 * A(f * h / t) + A(f / t);
  ModelUnits units;
  units.alone = {A(v * h) + A(a.sequence * h) + A(a.type_vocab_size * h) +
                 (is_post(a) ? 2 * A(h) : 0)};
  units.in_turns.assign(extent(a.layers), layer);
  if (!is_post(a)) units.in_turns.push_back(2 * A(h));
  if (a.binary_head) units.in_turns.push_back(A(h * h) + A(h) + A(2 * h) + A(2));
  units.in_turns.push_back(A(h * h) + 3 * A(h) + A(v));
  if (ranks.zero < 2) {
    count_buckets(ranks, {units.alone[0], sum_of(units.in_turns)}, counted);
  } else {
    count_units(ranks, units, counted);
  }
}

Messages messages_of_bert(const Ranks& ranks, const model::Architecture& a) {
  const index_t h = a.hidden, m = ranks.m, u = a.type_vocab_size;
  const index_t Rh = a.sequence * kMicroSamples * h;
  const index_t M = a.max_predictions * kMicroSamples;
  const index_t L = layers_within(ranks, 0, a.layers);
  Counted counted(ranks);
  counted.column_parallel(2 * L * m, Rh);
  counted.row_parallel(2 * L * m, Rh);
  if (ranks.is_first()) counted.embedding(m, Rh);
  if (ranks.is_last()) {
    if (ranks.sequence) {
      counted.of_tensor("rows of masked words", "all_reduce", m, M * h);
      if (a.binary_head) {
        counted.of_tensor("first position of samples", "broadcast", m, kMicroSamples * h);
      }
    }
    counted.loss_of_words(m, M);
    counted.of_tensor("head input gradient", "all_reduce", m, M * h);
  }
  // The norm behind the embedding, or the one at the end: one of the two is there.
  const bool has_norm = is_post(a) ? ranks.is_first() : ranks.is_last();
  counted.sequence_region(
      h * ((ranks.is_first() ? a.sequence + u : 0) + 6 * L + (has_norm ? 2 : 0)));
  counted.stage_messages(
      std::vector<index_t>(static_cast<std::size_t>(ranks.pieces() - 1), Rh));
  counted.tied({0, ranks.p() - 1}, own_words(ranks, a.vocab) * h);
  counted.totals(a.binary_head ? 2 : 1);
  if (ranks.d > 1) count_bert(ranks, a, counted);
  return counted.messages();
}

template <class Function>
void for_each_bert(index_t L, const Function& function) {
  for (const auto placement : {config::NormPlacement::pre, config::NormPlacement::post}) {
    for (const bool has_pairs : {false, true}) {
      for (const index_t types : {0, 3}) {
        SCOPED_TRACE(fmt::format("{} {}, {} types", config::name_of(placement),
                                 has_pairs ? "with pairs" : "words alone", types));
        function(some_bert(L, placement, has_pairs, types));
      }
    }
  }
}

TEST(KindMessages, OfBertAreThoseOfTheFormulas) {
  for (const index_t L : {1, 3}) {
    for_each_bert(L, [](const model::Architecture& bert) {
      for (const int t : {1, 2, 3, 4}) {
        for (const bool sequence : {false, true}) {
          for (const bool again : {false, true}) {
            const Ranks ranks{.t = t, .m = 3, .sequence = sequence, .recomputes = again};
            SCOPED_TRACE(ranks.name());
            ASSERT_EQ(planned_messages(ranks, bert), messages_of_bert(ranks, bert));
          }
        }
      }
    });
  }
}

// Which units there are decides how many buckets ZeRO 2 and 3 have.
TEST(KindMessages, OfBertsDataRanks) {
  for_each_bert(2, [](const model::Architecture& bert) {
    for (const int t : {1, 2}) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const int m : {1, 3}) {
          const Ranks ranks{.t = t, .d = 3, .m = m, .zero = zero};
          SCOPED_TRACE(ranks.name());
          ASSERT_EQ(planned_messages(ranks, bert), messages_of_bert(ranks, bert));
        }
      }
    }
  });
}

// Layers of each piece, and pieces of each stage.
struct Pipeline {
  std::vector<int> split;
  int v = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
};

template <class Expected>
void check_stages(const model::Architecture& a, const std::vector<Pipeline>& pipelines,
                  const Expected& expected) {
  for (const Pipeline& pipeline : pipelines) {
    for (const int t : {1, 2, 3}) {
      for (const bool sequence : {false, true}) {
        Ranks ranks{.t = t,
                    .sequence = sequence,
                    .v = pipeline.v,
                    .split = pipeline.split,
                    .schedule = pipeline.schedule};
        ranks.m = 2 * ranks.p();
        for (ranks.stage = 0; ranks.stage < ranks.p(); ++ranks.stage) {
          SCOPED_TRACE(ranks.name());
          ASSERT_EQ(planned_messages(ranks, a), expected(ranks, a));
        }
      }
    }
  }
}

TEST(KindMessages, OfEveryStageOfBert) {
  for_each_bert(5, [](const model::Architecture& bert) {
    check_stages(
        bert,
        {{{3, 2}}, {{2, 2, 1}, 1, PipelineSchedule::zero_bubble}, {{1, 2, 1, 1}, 2}},
        messages_of_bert);
  });
}

// Heads are wider than hidden / heads, and the stacks of unlike depth and length.
model::Architecture some_t5(bool is_tied, bool is_gated) {
  return {
      .kind = model::ModelKind::t5,
      .layers = 2,
      .decoder_layers = 3,
      .hidden = 24,
      .heads = 12,
      .kv_heads = 12,
      .head_size = 4,
      .ffn_hidden = 60,
      .sequence = 24,
      .decoder_sequence = 12,
      .vocab = 37,
      .norm = model::Norm::rmsnorm,
      .activation = is_gated ? model::Activation::geglu_tanh : model::Activation::relu,
      .position = model::Position::relative,
      .bias = false,
      .tie_embeddings = is_tied,
      .relative_attention_num_buckets = 8,
      .relative_attention_max_distance = 20};
}

// What a stage has of a T5's two stacks.
struct Stacks {
  index_t L, L_y;
  bool begins_decoder;

  Stacks(const Ranks& ranks, const model::Architecture& a)
      : L(layers_within(ranks, 0, a.layers)),
        L_y(layers_within(ranks, a.layers, a.total_layers())),
        begins_decoder(layers_within(ranks, a.layers, a.layers + 1) > 0) {}
};

// Text of the encoder's, up to its last layer; the memory with the decoder's text; and
// behind the last layer that text alone.
std::vector<index_t> t5_borders(const Ranks& ranks, const model::Architecture& a) {
  const index_t memory = a.sequence * kMicroSamples * a.hidden;
  const index_t text = a.decoder_sequence * kMicroSamples * a.hidden;
  std::vector<index_t> borders;
  for (int g = 1; g < ranks.pieces(); ++g) {
    const index_t before = layers_before(ranks, g);
    index_t elements = memory;
    if (before > a.layers) elements = memory + text;
    if (before == a.total_layers()) elements = text;
    borders.push_back(elements);
  }
  return borders;
}

// The stages that have some of the layers [begin, end).
std::set<int> stages_with(Ranks ranks, index_t begin, index_t end) {
  std::set<int> stages;
  for (ranks.stage = 0; ranks.stage < ranks.p(); ++ranks.stage) {
    if (layers_within(ranks, begin, end) > 0) stages.insert(ranks.stage);
  }
  return stages;
}

void t5_tables(const Ranks& ranks, const model::Architecture& a, Counted& counted) {
  std::set<int> of_words = stages_with(ranks, a.layers, a.layers + 1);
  of_words.insert(0);
  if (a.tie_embeddings) of_words.insert(ranks.p() - 1);
  counted.tied(of_words, own_words(ranks, a.vocab) * a.hidden);
  const index_t bias = a.relative_attention_num_buckets * a.heads / ranks.t;
  counted.tied(stages_with(ranks, 0, a.layers), bias);
  counted.tied(stages_with(ranks, a.layers, a.total_layers()), bias);
}

// Of ZeRO 0 and 1 a table has a bucket of its own, and parts the others: the encoder, the
// decoder, and the final norm behind a head's own words.
void count_t5(const Ranks& ranks, const model::Architecture& a, Counted& counted) {
  const index_t h = a.hidden, f = a.ffn_hidden, hq = a.heads * a.head_size, t = ranks.t;
  const index_t words = A(padded_words(ranks, a.vocab) * h);
  const index_t bias = A(a.relative_attention_num_buckets * a.heads / t);
  const index_t encoder = 2 * A(h) + A(3 * hq * h / t) + A(hq * h / t) +
                          A((a.is_gated() ? 2 : 1) * f * h / t) + A(f * h / t);
  const index_t decoder =
      encoder + A(h) + A(hq * h / t) + A(2 * hq * h / t) + A(hq * h / t);
  if (ranks.zero < 2) {
    std::vector<index_t> sizes = {words, bias, a.layers * encoder + A(h), bias,
                                  a.decoder_layers * decoder};
    if (a.tie_embeddings) sizes.back() += A(h);
    if (!a.tie_embeddings) sizes.insert(sizes.end(), {words, A(h)});
    count_buckets(ranks, sizes, counted);
    return;
  }
  ModelUnits units{.alone = {words, bias, bias}, .in_turns = {}};
  if (!a.tie_embeddings) units.alone.push_back(words);
  units.in_turns.assign(extent(a.layers), encoder);
  units.in_turns.push_back(A(h));
  units.in_turns.insert(units.in_turns.end(), extent(a.decoder_layers), decoder);
  units.in_turns.push_back(A(h));
  count_units(ranks, units, counted);
}

Messages messages_of_t5(const Ranks& ranks, const model::Architecture& a) {
  const index_t h = a.hidden, m = ranks.m;
  const index_t Rh = a.sequence * kMicroSamples * h;
  const index_t rows_y = a.decoder_sequence * kMicroSamples, Rh_y = rows_y * h;
  const auto [L, L_y, begins_decoder] = Stacks(ranks, a);
  Counted counted(ranks);
  counted.column_parallel(2 * L * m, Rh);
  counted.row_parallel(2 * L * m, Rh);
  counted.column_parallel(3 * L_y * m, Rh_y);
  counted.row_parallel(3 * L_y * m, Rh_y);
  counted.column_parallel(L_y * m, Rh);  // keys and values of the memory
  if (ranks.is_first()) counted.embedding(m, Rh);
  if (begins_decoder) counted.embedding(m, Rh_y);
  if (ranks.is_last()) {
    counted.loss_of_words(m, rows_y);
    if (ranks.sequence) counted.of_tensor("head input", "all_gather", m, Rh_y);
    counted.of_tensor("head input gradient",
                      ranks.sequence ? "reduce_scatter" : "all_reduce", m, Rh_y);
  }
  counted.sequence_region(
      h * (2 * L + 3 * L_y + (begins_decoder ? 1 : 0) + (ranks.is_last() ? 1 : 0)));
  counted.stage_messages(t5_borders(ranks, a));
  t5_tables(ranks, a, counted);
  counted.totals(1);
  if (ranks.d > 1) count_t5(ranks, a, counted);
  return counted.messages();
}

template <class Function>
void for_each_t5(const Function& function) {
  for (const bool is_tied : {false, true}) {
    for (const bool is_gated : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", is_tied ? "tied" : "a head of its own",
                               is_gated ? "gated" : "ReLU"));
      function(some_t5(is_tied, is_gated));
    }
  }
}

TEST(KindMessages, OfT5AreThoseOfTheFormulas) {
  for_each_t5([](const model::Architecture& t5) {
    for (const int t : {1, 2, 3, 4}) {
      for (const bool sequence : {false, true}) {
        for (const bool again : {false, true}) {
          const Ranks ranks{.t = t, .m = 3, .sequence = sequence, .recomputes = again};
          SCOPED_TRACE(ranks.name());
          ASSERT_EQ(planned_messages(ranks, t5), messages_of_t5(ranks, t5));
        }
      }
    }
  });
}

TEST(KindMessages, OfT5sDataRanks) {
  for_each_t5([](const model::Architecture& t5) {
    for (const int t : {1, 2}) {
      for (const int zero : {0, 1, 2, 3}) {
        const Ranks ranks{.t = t, .d = 3, .m = 3, .zero = zero};
        SCOPED_TRACE(ranks.name());
        ASSERT_EQ(planned_messages(ranks, t5), messages_of_t5(ranks, t5));
      }
    }
  });
}

// Cut within the encoder, between the stacks, within the decoder, before the head, and
// with several pieces on each stage, of which tables are shared within a stage, too.
TEST(KindMessages, OfEveryStageOfT5) {
  for_each_t5([](const model::Architecture& t5) {
    check_stages(t5,
                 {{{2, 3}},
                  {{1, 2, 2}},
                  {{3, 1, 1}, 1, PipelineSchedule::zero_bubble},
                  {{2, 3, 0}, 1, PipelineSchedule::gpipe},
                  {{1, 1, 2, 1}, 2}},
                 messages_of_t5);
  });
}

// The example of that page, by its numbers.
TEST(KindMessages, OfTheExamplesOfThatPage) {
  const Ranks ranks{.t = 2, .m = 3, .sequence = true};
  using Counts = std::pair<std::int64_t, std::int64_t>;
  const Messages of_bert =
      planned_messages(ranks, some_bert(3, config::NormPlacement::pre, true, 3));
  const auto bert = [&](const char* site, const char* operation) {
    return of_bert.at({"tensor", site, operation});
  };
  EXPECT_EQ(bert("rows of masked words", "all_reduce"), Counts(3, 720));
  EXPECT_EQ(bert("first position of samples", "broadcast"), Counts(3, 144));
  EXPECT_EQ(bert("head input gradient", "all_reduce"), Counts(3, 720));
  EXPECT_EQ(bert("loss: sums", "all_reduce"), Counts(3, 60));
  EXPECT_EQ(bert("row-parallel output", "reduce_scatter"), Counts(18, 10368));
  EXPECT_EQ(bert("gradients of the sequence region", "all_reduce"), Counts(1, 840));

  const Messages of_t5 = planned_messages(ranks, some_t5(true, false));
  const auto t5 = [&](const char* site, const char* operation) {
    return of_t5.at({"tensor", site, operation});
  };
  EXPECT_EQ(t5("column-parallel input", "all_gather"), Counts(48, 39744));
  EXPECT_EQ(t5("row-parallel output", "reduce_scatter"), Counts(39, 29376));
  EXPECT_EQ(t5("word embedding", "reduce_scatter"), Counts(6, 5184));
  EXPECT_EQ(t5("gradients of the sequence region", "all_reduce"), Counts(1, 360));
}

}  // namespace
}  // namespace trireme::step
