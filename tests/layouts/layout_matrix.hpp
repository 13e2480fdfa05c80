// tests/layouts/layout_matrix.hpp — one model, many layouts: the table of axes, the
// layouts it gives, and what a training of ten steps in one of them leaves, against one
// rank.
//
// Tolerances are those of design promise 1: loss of every step within 5e-6 relative,
// every gradient of the first within 1e-5 of max(its norm, 1e-4 x the global norm),
// logits after the last within 1e-4. Dropout is on, and a fifth of the labels do not
// count.
#ifndef TRIREME_TESTS_LAYOUTS_LAYOUT_MATRIX_HPP_
#define TRIREME_TESTS_LAYOUTS_LAYOUT_MATRIX_HPP_

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/message_plan.hpp"
#include "engine/train_step.hpp"

namespace trireme::test {

inline constexpr index_t kGlobal = 48;  // samples of a step
inline constexpr index_t kSequence = 24;
inline constexpr int kSteps = 10;

inline model::GptConfig matrix_model() {
  return {.layers = 3,
          .hidden = 48,
          .heads = 24,
          .kv_heads = 24,
          .ffn_hidden = 96,
          .sequence = kSequence,
          .vocabulary = 61,  // which no number of ranks divides
          .dropout = 0.1,
          .attention_dropout = 0.1,
          .init_std = 0.1};
}

// A row of the table: one value of each axis.
struct Layout {
  int tensor = 1;
  int sequence = 0;  // 1: sequence parallelism
  int data = 1;
  int zero = 0;
  int microbatches = 1;  // of each rank, in a step
  int small_buckets = 0;
  int data_first = 0;  // order of the axes

  int ranks() const { return tensor * data; }
  index_t micro() const { return kGlobal / (index_t{data} * microbatches); }
  comm::GridShape grid() const {
    using config::Axis;
    return {.tensor = tensor,
            .data = data,
            .order = data_first != 0 ? config::AxisOrder{Axis::data, Axis::tensor,
                                                         Axis::context, Axis::pipeline}
                                     : config::kDefaultAxisOrder};
  }
  bool is_on_grid_of(const Layout& that) const {
    return tensor == that.tensor && data == that.data && data_first == that.data_first;
  }
  engine::Sharing sharing() const {
    return {.sequence_parallel = sequence != 0,
            .zero = zero,
            .bucket_elements = small_buckets != 0 ? 1 : index_t{1} << 22};
  }
  std::array<int, 7> values() const {
    return {tensor, sequence, data, zero, microbatches, small_buckets, data_first};
  }
  std::string name() const {
    return fmt::format("tensor {} sequence {} data {} zero {} micro-batches {} x {}{}{}",
                       tensor, sequence, data, zero, microbatches, micro(),
                       small_buckets != 0 ? " buckets" : "",
                       data_first != 0 ? " data first" : "");
  }
  bool is_valid(int most_ranks) const {
    return ranks() <= most_ranks && kGlobal % (index_t{data} * microbatches) == 0 &&
           (tensor > 1 || sequence == 0) && (data > 1 || zero == 0) &&
           (data > 1 || small_buckets == 0) &&
           (zero < 2 || small_buckets == 0) &&  // there every unit is a bucket
           (ranks() > std::max(tensor, data) || data_first == 0);
  }
};

// Every valid row.
inline std::vector<Layout> all_layouts(int most_ranks) {
  std::vector<Layout> layouts;
  for (const int tensor : {1, 2, 3, 4, 6, 8}) {
    for (const int sequence : {0, 1}) {
      for (const int data : {1, 2, 3, 4, 6, 8}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const int microbatches : {1, 2, 3, 4}) {
            for (const int small_buckets : {0, 1}) {
              for (const int data_first : {0, 1}) {
                const Layout layout{tensor,       sequence,      data,      zero,
                                    microbatches, small_buckets, data_first};
                if (layout.is_valid(most_ranks)) layouts.push_back(layout);
              }
            }
          }
        }
      }
    }
  }
  return layouts;
}

// The first row of each grid, which takes longer to make than a small model.
inline std::vector<Layout> one_of_each_grid(const std::vector<Layout>& layouts) {
  std::vector<Layout> firsts;
  for (const Layout& layout : layouts) {
    const auto is_same = [&](const Layout& that) { return that.is_on_grid_of(layout); };
    if (std::none_of(firsts.begin(), firsts.end(), is_same)) firsts.push_back(layout);
  }
  return firsts;
}

// Some rows, in which every triple (so every pair) of values that a valid row has stands
// at least once: the row that adds most comes next.
inline std::vector<Layout> covering_layouts(int most_ranks) {
  constexpr std::size_t kAxes = 7;
  using Triple = std::array<int, 6>;  // three axes, three values
  const auto triples_of = [](const Layout& layout) {
    std::vector<Triple> triples;
    const auto values = layout.values();
    for (std::size_t a = 0; a < kAxes; ++a) {
      for (std::size_t b = a + 1; b < kAxes; ++b) {
        for (std::size_t c = b + 1; c < kAxes; ++c) {
          triples.push_back({static_cast<int>(a), static_cast<int>(b),
                             static_cast<int>(c), values[a], values[b], values[c]});
        }
      }
    }
    return triples;
  };
  const std::vector<Layout> all = all_layouts(most_ranks);
  std::vector<std::vector<Triple>> triples;
  std::set<Triple> missing;
  for (const Layout& layout : all) {
    triples.push_back(triples_of(layout));
    missing.insert(triples.back().begin(), triples.back().end());
  }
  std::vector<Layout> chosen;
  while (!missing.empty()) {
    std::size_t best = 0;
    std::ptrdiff_t most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto news =
          std::count_if(triples[i].begin(), triples[i].end(),
                        [&](const Triple& t) { return missing.contains(t); });
      if (news > most) {
        most = news;
        best = i;
      }
    }
    chosen.push_back(all[best]);
    for (const Triple& triple : triples[best]) missing.erase(triple);
  }
  return chosen;
}

// Token and label of a position are functions of the global sample.
class MatrixSamples {
 public:
  explicit MatrixSamples(index_t micro) : micro_(micro) {
    const auto rows = static_cast<std::size_t>(micro * kSequence);
    tokens_.resize(rows);
    labels_ = positions_ = tokens_;
    mask_.resize(rows);
  }
  engine::HostBatch batch(index_t first) {
    for (index_t row = 0; row < micro_ * kSequence; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const index_t sample = first + row % micro_, position = row / micro_;
      tokens_[at] = token(sample, position);
      labels_[at] = token(sample, position + 1);
      positions_[at] = static_cast<std::int32_t>(position);
      mask_[at] = (sample * 3 + position) % 5 == 3 ? 0.0f : 1.0f;
    }
    return {tokens_.data(), positions_.data(), labels_.data(), mask_.data(),
            static_cast<std::uint64_t>(first)};
  }

 private:
  static std::int32_t token(index_t sample, index_t position) {
    return static_cast<std::int32_t>((sample * 7919 + position * position * 31 + 5) % 61);
  }
  index_t micro_;
  std::vector<std::int32_t> tokens_, labels_, positions_;
  std::vector<float> mask_;
};

// A training in one layout, on the ranks of `world`.
class MatrixRun {
 public:
  MatrixRun(const std::shared_ptr<comm::Communicator>& world, const Layout& layout)
      : layout_(layout),
        grid_(world, layout.grid()),
        state_(grid_.groups(), matrix_model(), layout.sharing()),
        step_((state_.allocate(ParamBuffer<float>::Use::training), exec_), state_,
              {.micro = layout.micro(),
               .sequence = kSequence,
               .microbatches = layout.microbatches,
               .seed = 7},
              timers_),
        optimizer_(exec_, state_.params, grid_.groups(), {.weight_decay = 0.1}, 1.0),
        samples_(layout.micro()) {
    state_.params.initialize(exec_, 4321);
  }

  void accumulate(int step) {
    const index_t share = kGlobal / layout_.data;
    const index_t first = step * kGlobal + grid_.coordinates().data * share;
    step_.accumulate_gradients(
        [&](int m) { return samples_.batch(first + m * layout_.micro()); }, kGlobal);
  }
  // Loss sum, token count and gradient norm.
  optim::StepReport finish(int step) {
    step_.begin_step(static_cast<std::uint64_t>(step + 1), 1e-3,
                     1.0 - std::pow(0.9, step + 1), 1.0 - std::pow(0.95, step + 1));
    optimizer_.prepare(exec_, step_.state_view(), step_.totals(), kGlobal * kSequence);
    const optim::StepReport report = optimizer_.read_report(exec_);
    step_.update(optimizer_);
    return report;
  }

  // This rank's share of a parameter's gradient, and what it is a share of.
  std::vector<float> gradient(std::size_t param, IndexRange& range) const {
    range = state_.params.updated(param);
    exec_.fence("test");
    const auto host = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace{}, state_.params.updated(Slab::gradient, param));
    return {host.data(), host.data() + host.extent(0)};
  }
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> all;
    for (std::size_t p = 0; p < state_.registry.size(); ++p) {
      IndexRange unused;
      all.push_back(gradient(p, unused));
    }
    return all;
  }
  // Logits (rows, v_tp) of micro() samples from `first` on.
  std::vector<float> logits(index_t first) {
    step_.evaluate([&](int) { return samples_.batch(first); }, 1);
    const View2<float> view = step_.last_logits();
    const auto host = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace{}, View1<float>(view.data(), view.size()));
    return {host.data(), host.data() + host.extent(0)};
  }

  // What this rank should send in a step, and what it has sent since reset_traffic().
  std::vector<engine::MessageCount> planned_messages() const;
  std::vector<engine::MessageCount> sent_messages() const {
    return engine::counted_messages(grid_.groups());
  }
  void reset_traffic() {
    for (comm::Communicator* group : grid_.groups().of_axes()) group->reset_traffic();
  }

  const engine::TrainStep<float>& step() const { return step_; }
  const ParamBuffer<float>& params() const { return state_.params; }
  const ParamRegistry& registry() const { return state_.registry; }
  const comm::RankGrid& grid() const { return grid_; }

 private:
  Layout layout_;
  Exec exec_;
  Timers timers_;
  comm::RankGrid grid_;
  engine::ModelState<float> state_;
  engine::TrainStep<float> step_;
  optim::Optimizer<float> optimizer_;
  MatrixSamples samples_;
};

// What one rank says.
struct MatrixReference {
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;  // of the first step, by parameter
  double gradient_norm = 0.0;
  std::vector<float> logits;  // (s, kGlobal, vocabulary) after the last step
};

MatrixReference matrix_reference();
// Runs every layout against it; failures are the test's.
void run_layouts(const std::vector<Layout>& layouts);

std::shared_ptr<comm::Communicator> layout_world();
// Calls check with every layout and its ranks, as many at a time as there are ranks for.
void for_each_layout(comm::Communicator& world, const std::vector<Layout>& layouts,
                     const std::function<void(const std::shared_ptr<comm::Communicator>&,
                                              const Layout&)>& check);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_LAYOUT_MATRIX_HPP_
