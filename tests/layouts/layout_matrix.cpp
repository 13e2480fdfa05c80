// tests/layouts/layout_matrix.cpp — see layout_matrix.hpp.
#include "layouts/layout_matrix.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "ckpt/region.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/planned_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "layouts/narrow_tolerances.hpp"
#include "step/step_plan.hpp"
#include "support/allocated_bytes.hpp"
#include "support/allocation_counter.hpp"
#include "support/fences.hpp"
#include "support/strict_transport.hpp"

namespace trireme::test {

using ::testing::IsEmpty;
using ::testing::IsSubsetOf;

// How far one layout or all of them are from one rank, relative.
struct Distances {
  double loss = 0.0, norm = 0.0, gradient = 0.0;

  void add(const Distances& other) {
    loss = std::max(loss, other.loss);
    norm = std::max(norm, other.norm);
    gradient = std::max(gradient, other.gradient);
  }
};

namespace {

// Where weights move by ten units of rounding, gradients of the models here move by 6e-6,
// and one unit that passes a corner makes it 1e-2.
constexpr double kMostByShifts = 3e-5;
constexpr index_t kFirstOfLogits = 10000;  // samples that no step has seen
// A rank of a layout that failed is not waited for; one that has no part in the layouts
// of some number of ranks waits for all of them.
constexpr double kLayoutSeconds = 120.0;
constexpr double kAllLayoutsSeconds = 3000.0;

// How much a position of a sample counts: of twelve samples six do not, the next in one
// place, the others in four of five.
double weight_of(index_t sample, index_t position) {
  const index_t kind = sample % 12;
  if (kind <= 6) return kind == 6 && position == 7 ? 1.0 : 0.0;
  return (sample * 3 + position) % 5 == 3 ? 0.0 : 1.0;
}

// How many of the positions of a sample are real.
index_t length_of(index_t sample, index_t positions) {
  return 1 + (sample * 29 + 7) % positions;
}

template <class T>
bool counts(const ShardSpec& shard, const MatrixRunOf<T>& run, const Layout& layout) {
  const comm::Coordinates& at = run.grid().coordinates();
  const bool is_shared = layout.zero >= 1 && layout.data > 1;
  return (!shard.is_replicated() || at.tensor == 0) && (is_shared || at.data == 0);
}

// The tied word embedding has both gradients on both of its stages: each is compared.
constexpr const char* kCopy = " (copy)";
std::string key_of(const ParamSpec& spec) {
  return spec.name + (spec.tie == Tie::copy ? kCopy : "");
}

template <class T>
double square_of_difference(const MatrixRunOf<T>& run, const Layout& layout,
                            std::size_t param, const std::vector<float>& want) {
  const ShardSpec& shard = run.registry().spec(param).shard;
  IndexRange range;
  const std::vector<float> got = run.gradient(param, range);
  if (!counts(shard, run, layout) || range.size() == 0) return 0.0;
  const index_t columns =
      shard.global_shape.size() == 2 ? shard.global_shape[1] : index_t{1};
  double square = 0.0;
  for (const ckpt::Region& region : ckpt::regions_of(shard, range.begin, range.end)) {
    for (index_t i = 0; i < region.global.rows; ++i) {
      for (index_t j = 0; j < region.global.columns; ++j) {
        const index_t here = region.local_offset + i * region.local_stride + j;
        const index_t there =
            (region.global.row + i) * columns + region.global.column + j;
        const double difference =
            static_cast<double>(got[static_cast<std::size_t>(here - range.begin)]) -
            static_cast<double>(want[static_cast<std::size_t>(there)]);
        square += difference * difference;
      }
    }
  }
  return square;
}

double norm_of(const std::vector<float>& values) {
  double square = 0.0;
  for (const float x : values) square += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(square);
}

// What a difference of a parameter's gradients is a part of.
double size_of_gradient(const MatrixReference& reference, const std::string& name) {
  return std::max(norm_of(reference.gradients.at(name)), 1e-4 * reference.gradient_norm);
}

template <class T>
double most_of_gradients(const MatrixSize& size) {
  if constexpr (std::is_same_v<T, float>) {
    return Tolerances<T>::kGradient;
  } else {
    return narrow_tolerances<T>(size).gradient;
  }
}

// The furthest, as a part of what it may be apart from.
template <class T>
double check_gradients(comm::Communicator& world, const MatrixRunOf<T>& run,
                       const Layout& layout, const MatrixReference& reference) {
  std::map<std::string, double> squares;  // of the whole model, on every rank
  for (const auto& [name, values] : reference.gradients) {
    squares[name] = squares[name + kCopy] = 0.0;
  }
  for (std::size_t p = 0; p < run.registry().size(); ++p) {
    const ParamSpec& spec = run.registry().spec(p);
    squares.at(key_of(spec)) =
        square_of_difference(run, layout, p, reference.gradients.at(spec.name));
  }
  std::vector<double> sums;
  for (const auto& [name, square] : squares) sums.push_back(square);
  world.all_reduce(sums);
  double furthest = 0.0;
  std::size_t at = 0;
  for (const auto& [name, square] : squares) {
    const double sum = sums[at++];
    const std::string of = name.substr(0, name.find(kCopy));
    const double size = size_of_gradient(reference, of);
    EXPECT_LE(std::sqrt(sum), most_of_gradients<T>(layout.size) * size) << name;
    furthest = std::max(furthest, std::sqrt(sum) / size);
  }
  return furthest;
}

template <class A>
std::string bytes_of(const std::vector<A>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(A)};
}

// Ranks that have the same parameters went on with the same bits: tensor ranks those that
// are not split, data ranks all, first and last stage the tied embedding. What passes
// read is the same on data ranks also where they share the master weights.
template <class T>
void check_replicas(MatrixRunOf<T>& run) {
  const comm::ProcessGroups& groups = run.groups();
  std::string of_tensor, of_data;
  std::map<std::string, std::string> of_tied;
  for (std::size_t p = 0; p < run.registry().size(); ++p) {
    const ParamSpec& spec = run.registry().spec(p);
    const std::string masters = bytes_of(run.weights(p));
    const std::string copy = bytes_of(run.compute_copy(p));
    if (spec.shard.is_replicated()) of_tensor += masters + copy;
    of_data += copy;
    if (run.has_whole_weights()) of_data += masters;
    if (spec.tie != Tie::none) of_tied[spec.name] = masters + copy;
  }
  const auto expect_same = [](const comm::Group& group, const std::string& bytes) {
    const auto hash = static_cast<std::int64_t>(std::hash<std::string>()(bytes));
    for (const std::int64_t other : group.control().gather(hash)) {
      EXPECT_EQ(other, hash) << "weights of group " << group.name();
    }
  };
  expect_same(*groups.tensor, of_tensor);
  expect_same(*groups.gradient, of_data);
  for (const auto& [name, bytes] : of_tied) expect_same(groups.tied(name), bytes);
}

void check_logits(MatrixRun& run, const Layout& layout,
                  const MatrixReference& reference) {
  const comm::Coordinates& at = run.grid().coordinates();
  const index_t micro = layout.micro();
  const index_t first = at.data * micro;  // samples of its own for each data rank
  const std::vector<double> got = run.logits(kFirstOfLogits + first);
  if (at.pipeline + 1 < layout.pipeline) return;  // the last stage has them
  const model::Blueprint& blueprint = run.blueprint();
  const index_t words = blueprint.vocabulary_table().rows;
  const int stream = blueprint.blocks.back().stream;
  const index_t rows = micro * blueprint.batch.streams.at(extent(stream)).sequence;
  const index_t share = (words + layout.tensor - 1) / layout.tensor;
  const index_t begin = std::min(words, at.tensor * share);
  const index_t columns = std::min(words, begin + share) - begin;
  ASSERT_EQ(std::ssize(got), rows * columns);
  double worst = 0.0, largest = 0.0;
  for (const double logit : reference.logits) {
    largest = std::max(largest, std::abs(logit));
  }
  for (index_t row = 0; row < rows; ++row) {
    const index_t sample = first + row % micro, position = row / micro;
    for (index_t j = 0; j < columns; ++j) {
      const double want = reference.logits[static_cast<std::size_t>(
          (position * layout.size.samples + sample) * words + begin + j)];
      worst = std::max(worst,
                       std::abs(got[static_cast<std::size_t>(row * columns + j)] - want));
    }
  }
  using Most = Tolerances<float>;
  EXPECT_LE(worst, (layout.size.has_corner() ? Most::kLogitsAtCorners : Most::kLogits) *
                       largest);
}

// Counted by the communicators: what the plan on shapes says, site by site.
template <class T>
void check_messages(const MatrixRunOf<T>& run) {
  const auto planned = run.planned_messages();
  const auto sent = run.sent_messages();
  ASSERT_EQ(sent.size(), planned.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i], planned[i])
        << sent[i].axis << ", " << sent[i].site << ": " << sent[i].calls << " of "
        << sent[i].elements << "; planned " << planned[i].axis << ", " << planned[i].site
        << ": " << planned[i].calls << " of " << planned[i].elements;
  }
}

std::uint64_t bytes_labelled(const AllocatedBytes& allocated,
                             std::initializer_list<std::string_view> labels) {
  std::uint64_t sum = 0;
  for (const auto& [label, bytes] : allocated.bytes) {
    if (std::ranges::find(labels, label) != labels.end()) sum += bytes;
  }
  return sum;
}

// What matrix products keep for themselves.
std::uint64_t bytes_of_products(const AllocatedBytes& allocated) {
  return bytes_labelled(allocated, {"packed operands", "cublaslt workspace"});
}

// What Kokkos keeps for teams of threads: the first run that a process has allocates it,
// on whichever ranks that is.
std::uint64_t bytes_of_teams(const AllocatedBytes& allocated) {
  return bytes_labelled(allocated, {"Kokkos::OpenMP::scratch_mem"});
}

// Within 5 %: each category as it came to be, and all that Kokkos allocated (with what
// the optimizer notes for itself; messages need no more host memory than planned).
template <class T>
void check_memory(const MatrixRunOf<T>& run, const AllocatedBytes& allocated) {
  const step::MemoryPlan& plan = run.step().plan().memory;
  const step::MemoryPlan measured = run.step().memory();
  const auto check = [](const char* category, std::size_t got, std::size_t want) {
    EXPECT_NEAR(static_cast<double>(got), static_cast<double>(want),
                0.05 * static_cast<double>(want))
        << category;
  };
  check("weights", measured.weights, plan.weights);
  check("gradients", measured.gradients, plan.gradients);
  check("optimizer state", measured.optimizer, plan.optimizer);
  check("batch", measured.batch, plan.batch);
  check("saved activations", measured.saved(), plan.saved());
  check("scratch", measured.workspace.scratch, plan.workspace.scratch);
  check("held", measured.workspace.held_bytes(), plan.workspace.held_bytes());
  for (int c = 0; c < kCategoryCount; ++c) {
    const auto category = static_cast<std::size_t>(c);
    EXPECT_EQ(measured.saved_by_category[category], plan.saved_by_category[category])
        << name_of(static_cast<Category>(c));
  }
  check("buffers", measured.buffers, plan.buffers);
  // Planned is the most that they may take; small products do without tiles.
  EXPECT_EQ(measured.products, bytes_of_products(allocated));
  EXPECT_LE(measured.products, plan.products);
  check("all that is allocated",
        allocated.total() - measured.products - bytes_of_teams(allocated),
        plan.total() - plan.products);
}

// What passes read is the master weights, rounded: what there is of both.
template <class T>
void check_compute_copy(MatrixRunOf<T>& run) {
  for (std::size_t p = 0; p < run.registry().size(); ++p) {
    const std::vector<T> copy = run.compute_copy(p);
    if (copy.empty()) continue;
    const std::vector<float> masters = run.weights(p);
    const index_t begin = run.params().share(Slab::weight, p).range.begin;
    index_t differing = 0;
    for (index_t i = 0; i < std::ssize(masters); ++i) {
      const T rounded(masters[extent(i)]);
      differing += copy[extent(begin + i)].bits == rounded.bits ? 0 : 1;
    }
    EXPECT_EQ(differing, 0) << run.registry().spec(p).name;
  }
}

// What a number of a site's messages takes: of activations what the model computes in, of
// sums for the norm and the loss what they are added up in.
template <class T>
index_t bytes_of_message(std::string_view site) {
  if (site == "gradients" || site == "tied gradient" ||
      site == "gradients of the sequence region" || site == "loss: maximum" ||
      site == "loss: sums") {
    return sizeof(Accumulator<T>);
  }
  if (site == "loss totals" || site == "gradient norm" || site == "objective counts") {
    return sizeof(double);
  }
  return sizeof(T);
}

template <class T>
void check_message_types(const MatrixRunOf<T>& run) {
  for (const MessageTally& sent : run.sent_messages()) {
    EXPECT_EQ(sent.bytes, sent.elements * bytes_of_message<T>(sent.site))
        << sent.axis << ", " << sent.site << ", " << sent.operation;
  }
}

template <class T>
double loss_of(const MatrixRunOf<T>& run, const optim::StepReport& report) {
  return model::losses_of(run.blueprint().objectives, report.losses).total;
}

template <class T>
Distances distances_of(const MatrixRunOf<T>& run, const optim::StepReport& report,
                       const MatrixReference& reference, std::size_t step) {
  const double loss = reference.losses[step], norm = reference.gradient_norms[step];
  return {.loss = std::abs(loss_of(run, report) - loss) / loss,
          .norm = std::abs(report.grad_norm - norm) / norm};
}

constexpr int kNarrowSteps = 3;

template <class T>
Distances check_narrow_layout(const std::shared_ptr<comm::Communicator>& world,
                              const Layout& layout, const MatrixReference& reference) {
  const AllocatedBytes allocated;
  MatrixRunOf<T> run(world, layout);
  check_replicas(run);
  check_compute_copy(run);
  const NarrowTolerances most = narrow_tolerances<T>(layout.size);
  Distances furthest;
  for (int step = 0; step < kNarrowSteps; ++step) {
    run.reset_traffic();
    run.accumulate(step);
    if (step == 0) {
      furthest.gradient = check_gradients(*world, run, layout, reference);
    }
    const Distances here = distances_of(run, run.finish(), reference, extent(step));
    EXPECT_LE(here.loss, most.loss) << "step " << step + 1;
    EXPECT_LE(here.norm, most.norm) << "step " << step + 1;
    furthest.add(here);
    if (step != 1) continue;
    check_messages(run);
    check_message_types(run);
  }
  const auto [in_slabs, in_parameters] = run.non_zeros();
  EXPECT_EQ(in_slabs, in_parameters) << "padding is not zero";
  check_replicas(run);
  check_compute_copy(run);
  check_memory(run, allocated);
  return furthest;
}

void check_layout(const std::shared_ptr<comm::Communicator>& world, const Layout& layout,
                  const MatrixReference& reference) {
  MatrixRun run(world, layout);
  std::vector<optim::StepReport> reports;
  std::vector<std::vector<float>> gradients;  // what this rank has of them
  const int steps = static_cast<int>(reference.losses.size());
  for (int step = 0; step < steps; ++step) {
    std::optional<AllocationCounter> counter;  // of a step that is like those before it
    if (step == steps - 1 && steps > 3) counter.emplace();
    run.accumulate(step);
    if (step == 0) {
      check_gradients(*world, run, layout, reference);
      gradients = run.gradients();
    }
    const optim::StepReport report = run.finish();
    if (counter) {
      counter->stop();
      EXPECT_EQ(counter->total(), 0) << counter->report();
    }
    reports.push_back(report);
    using Most = Tolerances<float>;
    const Distances here = distances_of(run, report, reference, extent(step));
    EXPECT_LE(here.loss, Most::kLoss) << "step " << step + 1;
    const double later = layout.size.has_corner() ? Most::kNormAtCorners : Most::kNorm;
    EXPECT_LE(here.norm, step == 0 ? Most::kFirstNorm : later) << "step " << step + 1;
  }
  EXPECT_NEAR(run.evaluated_loss(kFirstOfLogits), reference.evaluated_loss,
              Tolerances<float>::kLoss * reference.evaluated_loss);
  const auto [in_slabs, in_parameters] = run.non_zeros();
  EXPECT_EQ(in_slabs, in_parameters) << "padding is not zero";
  check_replicas(run);
  check_logits(run, layout, reference);
  // The same again: to the bit, every gradient of the first step and what follows.
  const AllocatedBytes allocated;
  MatrixRun again(world, layout);
  for (int step = 0; step < std::min(steps, kStepsAgain); ++step) {
    again.reset_traffic();
    again.accumulate(step);
    if (step == 0) {
      EXPECT_EQ(again.gradients(), gradients) << "again";
    }
    const optim::StepReport report = again.finish();
    if (step == 1) check_messages(again);
    const optim::StepReport& before = reports[static_cast<std::size_t>(step)];
    for (std::size_t i = 0; i < run.blueprint().objectives.size(); ++i) {
      EXPECT_EQ(report.losses[i].sum, before.losses[i].sum) << "again, step " << step + 1;
    }
    EXPECT_EQ(report.grad_norm, before.grad_norm) << "again, step " << step + 1;
  }
  check_memory(again, allocated);
}

}  // namespace

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::gpt:
      return "Gpt";
    case Kind::encoder_decoder:
      return "EncoderDecoder";
    case Kind::bert:
      return "Bert";
    case Kind::bert_post:
      return "BertPost";
    case Kind::t5:
      return "T5";
    case Kind::t5_own_head:
      return "T5OwnHead";
  }
  return {};
}

std::vector<Layout> covering(const std::vector<Layout>& all, Meet meet) {
  constexpr std::size_t kMostAxes = 15, kValues = 12;
  const std::size_t axes = all.front().values().size();
  TRIREME_REQUIRE(axes <= kMostAxes, "a row has {} values", axes);
  const std::size_t all_places = axes * kValues;  // of a value of an axis
  using Places = std::array<std::size_t, kMostAxes>;
  std::array<std::map<int, std::size_t>, kMostAxes> numbers;  // of values, by axis
  std::vector<Places> rows;
  for (const Layout& layout : all) {
    const std::vector<int> values = layout.values();
    TRIREME_REQUIRE(values.size() == axes, "rows of {} and {} values", axes,
                    values.size());
    Places& places = rows.emplace_back();
    for (std::size_t axis = 0; axis < axes; ++axis) {
      auto& known = numbers[axis];
      const std::size_t number =
          known.try_emplace(values[axis], known.size()).first->second;
      TRIREME_REQUIRE(number < kValues, "axis {} has too many values", axis);
      places[axis] = axis * kValues + number;
    }
  }
  std::vector<char> is_missing(all_places * all_places * all_places, 0);
  const auto for_each_triple = [&](const Places& row, const auto& function) {
    for (std::size_t a = 0; a < axes; ++a) {
      for (std::size_t b = a + 1; b < axes; ++b) {
        char* const begin = &is_missing[(row[a] * all_places + row[b]) * all_places];
        if (meet == Meet::pairs) function(*begin);
        for (std::size_t c = b + 1; meet == Meet::triples && c < axes; ++c) {
          function(begin[row[c]]);
        }
      }
    }
  };
  // A row adds no more later than it does now: only who is first in line counts anew.
  using Gain = std::pair<int, std::ptrdiff_t>;  // what meets, and less the row's number
  std::priority_queue<Gain> line;
  int missing = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for_each_triple(rows[row], [&](char& triple) {
      missing += 1 - triple;
      triple = 1;
    });
    line.push({std::numeric_limits<int>::max(), -static_cast<std::ptrdiff_t>(row)});
  }
  std::vector<Layout> chosen;
  while (missing > 0) {
    const std::ptrdiff_t first = line.top().second;
    const auto row = static_cast<std::size_t>(-first);
    line.pop();
    int gain = 0;
    for_each_triple(rows[row], [&](char& triple) { gain += triple; });
    if (!line.empty() && Gain{gain, first} < line.top()) {
      line.push({gain, first});
      continue;
    }
    chosen.push_back(all[row]);
    for_each_triple(rows[row], [](char& triple) { triple = 0; });
    missing -= gain;
  }
  return chosen;
}

MatrixSamples::MatrixSamples(const model::Blueprint& blueprint, index_t micro)
    : filled_(blueprint.batch, micro) {
  for (const model::Objective& of : blueprint.objectives) labels_.insert(of.labels);
}

HostBatch MatrixSamples::batch(index_t first) {
  return filled_.fill(first, std::bind_front(&MatrixSamples::element, this));
}

double MatrixSamples::counted(const std::string& field, index_t first,
                              index_t end) const {
  const BatchSpec& spec = filled_.spec();
  return sum_of(spec, spec.fields[spec.field(field)], first, end,
                std::bind_front(&MatrixSamples::element, this));
}

// An element: of a position of a sample, or of the sample. Labels are the words behind.
double MatrixSamples::element(const FieldSpec& field, index_t sample,
                              index_t position) const {
  const auto positions = [&](int stream) {
    return filled_.spec().streams.at(extent(stream)).sequence;
  };
  const auto number = [](index_t value) { return static_cast<double>(value); };
  const index_t second = sample % positions(field.stream);  // document, where it begins
  switch (field.holds) {
    case Holds::words:
    case Holds::classes: {
      const index_t at = position + (labels_.contains(field.name) ? 1 : 0);
      return number((sample * 7919 + at * at * 31 + 5) % field.below);
    }
    case Holds::places:
      return number(position);
    case Holds::lengths:
      return number(length_of(sample, positions(field.stream)));
    case Holds::begins:  // two documents
      return number(position < second ? 0 : second);
    case Holds::ends:
      return number(position < second ? second : positions(field.stream));
    case Holds::rows: {  // all over the part that is real
      const index_t all = positions(field.stream);
      const index_t of = length_of(sample, positions(field.rows_of));
      if (of >= all) return number(position * of / all);
      return number(position < of ? position : index_t{-1});
    }
    case Holds::weights:
      break;
  }
  return weight_of(sample, position);
}

template <class T>
std::vector<MessageTally> MatrixRunOf<T>::sent_messages() const {
  Tally tally;  // of all groups of an axis
  for (const comm::Group* group : groups().all()) {
    tally += group->sent();
  }
  std::vector<MessageTally> messages = tally.messages();
  std::sort(messages.begin(), messages.end());
  return messages;
}

template <class T>
std::vector<MessageTally> MatrixRunOf<T>::planned_messages() const {
  const step::ModelState<T> state(
      comm::make_process_groups(
          comm::make_planned_communicator(grid_->rank(), grid_->shape().size(), "world"),
          grid_->shape()),
      state_.blueprint, state_.sharing, state_.make);
  std::vector<MessageTally> messages = plan_step(state, step_.shape()).tally.messages();
  std::sort(messages.begin(), messages.end());
  return messages;
}

#define TRIREME_INSTANTIATE(T) template class MatrixRunOf<T>;
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(fp16)
#undef TRIREME_INSTANTIATE

namespace {

// How far the first step's gradients move where every weight moves by ten units of fp32's
// rounding: by that, times what sums lose, but for units that pass a corner on the way.
double most_by_shifts(const Layout& one, const MatrixReference& reference) {
  constexpr double kPart = 10 * 0x1p-24;
  constexpr std::uint32_t kTurns = 4;
  double furthest = 0.0;
  for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
    MatrixRun run(comm::make_self_communicator("world"), one);
    run.shift_weights(kPart, turn);
    run.accumulate(0);
    for (std::size_t p = 0; p < run.registry().size(); ++p) {
      const std::string& name = run.registry().spec(p).name;
      const double square =
          square_of_difference(run, one, p, reference.gradients.at(name));
      furthest =
          std::max(furthest, std::sqrt(square) / size_of_gradient(reference, name));
    }
  }
  return furthest;
}

template <class T>
MatrixReference matrix_reference(const MatrixSize& size, int steps) {
  MatrixReference reference;
  Layout one;
  one.size = size;
  MatrixRunOf<T> run(comm::make_self_communicator("world"), one);
  for (int step = 0; step < steps; ++step) {
    run.accumulate(step);
    for (std::size_t p = 0; step == 0 && p < run.registry().size(); ++p) {
      IndexRange range;
      reference.gradients[run.registry().spec(p).name] = run.gradient(p, range);
    }
    const optim::StepReport report = run.finish();
    reference.losses.push_back(loss_of(run, report));
    reference.gradient_norms.push_back(report.grad_norm);
  }
  for (const auto& [name, gradient] : reference.gradients) {
    reference.gradient_norm = std::hypot(reference.gradient_norm, norm_of(gradient));
  }
  reference.evaluated_loss = run.evaluated_loss(kFirstOfLogits);
  reference.logits = run.logits(kFirstOfLogits);
  if (std::is_same_v<T, float> && size.has_corner()) {
    EXPECT_LE(most_by_shifts(one, reference), kMostByShifts)
        << name_of(size.kind) << ": a unit of the first step is at the activation's "
        << "corner within rounding: take another kSeedOfWeights";
  }
  return reference;
}

// A reference as bytes, and back: who has trained it tells the others.
class ReferenceBytes {
 public:
  explicit ReferenceBytes(std::string bytes = {}) : bytes_(std::move(bytes)) {}
  const std::string& bytes() const { return bytes_; }

  void put(const MatrixReference& reference) {
    put(reference.losses);
    put(reference.gradient_norms);
    put(std::vector{reference.evaluated_loss, reference.gradient_norm});
    put(reference.logits);
    for (const auto& [name, gradient] : reference.gradients) {
      put(std::vector<char>(name.begin(), name.end()));
      put(gradient);
    }
  }
  MatrixReference take() {
    MatrixReference reference;
    reference.losses = take<double>();
    reference.gradient_norms = take<double>();
    const std::vector<double> two = take<double>();
    reference.evaluated_loss = two.at(0);
    reference.gradient_norm = two.at(1);
    reference.logits = take<double>();
    while (at_ < bytes_.size()) {
      const std::vector<char> name = take<char>();
      reference.gradients[{name.begin(), name.end()}] = take<float>();
    }
    return reference;
  }

 private:
  template <class A>
  void put(const std::vector<A>& values) {
    const std::size_t count = values.size();
    bytes_.append(reinterpret_cast<const char*>(&count), sizeof count);
    bytes_ += bytes_of(values);
  }
  template <class A>
  std::vector<A> take() {
    std::size_t count = 0;
    std::memcpy(&count, bytes_.data() + at_, sizeof count);
    std::vector<A> values(count);
    std::memcpy(values.data(), bytes_.data() + at_ + sizeof count, count * sizeof(A));
    at_ += sizeof count + count * sizeof(A);
    return values;
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

// One rank's answers for all that layouts train, each from one of the ranks.
template <class T = float>
std::map<MatrixSize, MatrixReference> references_of(comm::Communicator& world,
                                                    const std::vector<Layout>& layouts,
                                                    int steps) {
  std::map<MatrixSize, MatrixReference> references;
  for (const auto& [size, bytes] :
       told_of_sizes(world, layouts, [&](const MatrixSize& of) {
         ReferenceBytes told;
         told.put(matrix_reference<T>(of, steps));
         return told.bytes();
       })) {
    references[size] = ReferenceBytes(bytes).take();
  }
  return references;
}

}  // namespace

std::shared_ptr<comm::Communicator> layout_world() {
  return comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
}

std::map<MatrixSize, std::string> told_of_sizes(
    comm::Communicator& world, const std::vector<Layout>& layouts,
    const std::function<std::string(const MatrixSize&)>& tell) {
  std::set<MatrixSize> sizes;
  for (const Layout& layout : layouts) sizes.insert(layout.size);
  std::map<MatrixSize, std::string> told;
  int number = 0;
  for (const MatrixSize& size : sizes) {
    if (number++ % world.size() == world.rank()) told[size] = tell(size);
  }
  world.set_timeout(kAllLayoutsSeconds);
  number = 0;
  for (const MatrixSize& size : sizes) {
    world.broadcast(told[size], number++ % world.size());
  }
  return told;
}

void for_each_layout(comm::Communicator& world, const std::vector<Layout>& layouts,
                     const std::function<void(const std::shared_ptr<comm::Communicator>&,
                                              const Layout&)>& check) {
  // Layouts of one number of ranks side by side, on groups of neighbours. Those alone
  // whose name has the word, to look into a row that fails.
  const char* word = std::getenv("TRIREME_LAYOUTS");
  std::map<int, std::vector<Layout>> by_ranks;
  std::size_t count = 0;
  for (const Layout& layout : layouts) {
    if (word != nullptr && layout.name().find(word) == std::string::npos) continue;
    by_ranks[layout.ranks()].push_back(layout);
    ++count;
  }
  if (world.rank() == 0) std::printf("%zu layouts\n", count);
  for (const auto& [ranks, rows] : by_ranks) {
    const int groups = world.size() / ranks;
    const int mine = world.rank() / ranks;
    world.set_timeout(kAllLayoutsSeconds);
    const auto group = world.split(mine < groups ? mine : -1, 0, "layout");
    if (!group) continue;
    world.set_timeout(kLayoutSeconds);
    const KeptGrids kept;  // rows of few grids
    for (std::size_t i = static_cast<std::size_t>(mine); i < rows.size();
         i += static_cast<std::size_t>(groups)) {
      SCOPED_TRACE(rows[i].name());
      check(group, rows[i]);
    }
  }
  world.set_timeout(kAllLayoutsSeconds);
  world.barrier();
}

void run_layouts(const std::vector<Layout>& layouts, int steps) {
  const auto world = layout_world();
  const auto references = references_of(*world, layouts, steps);
  for_each_layout(*world, layouts, [&](const auto& ranks, const Layout& layout) {
    check_layout(ranks, layout, references.at(layout.size));
  });
}

template <class T>
void run_narrow_layouts(const std::vector<Layout>& layouts) {
  const auto world = layout_world();
  const auto references = references_of<T>(*world, layouts, kNarrowSteps);
  Distances furthest;
  for_each_layout(*world, layouts, [&](const auto& ranks, const Layout& layout) {
    furthest.add(check_narrow_layout<T>(ranks, layout, references.at(layout.size)));
  });
  const auto most = [&](double mine) { return std::ranges::max(world->gather(mine)); };
  const double loss = most(furthest.loss), norm = most(furthest.norm),
               gradient = most(furthest.gradient);
  if (world->rank() != 0) return;
  std::printf("%s: furthest apart: losses %.2g, norms %.2g, gradients %.2g\n",
              std::string(name_of(dtype_of<T>)).c_str(), loss, norm, gradient);
}
template void run_narrow_layouts<bf16>(const std::vector<Layout>&);
template void run_narrow_layouts<fp16>(const std::vector<Layout>&);

std::set<std::string> run_layouts_strictly(const std::vector<Layout>& layouts) {
  return run_layouts_over(comm::strict_options(), layouts);
}

std::set<std::string> run_layouts_over(const comm::MpiOptions& transport,
                                       const std::vector<Layout>& layouts) {
  const auto world = comm::make_mpi_world(transport);
  constexpr int kStrictSteps = 3;
  const auto references = references_of(*world, layouts, kStrictSteps);
  std::set<std::string> sites;
  for_each_layout(*world, layouts, [&](const auto& ranks, const Layout& layout) {
    MatrixRun run(ranks, layout);
    const MatrixReference& reference = references.at(layout.size);
    for (int step = 0; step < kStrictSteps; ++step) {
      const Fences fences;
      run.reset_traffic();
      run.accumulate(step);
      if (step == 0) check_gradients(*ranks, run, layout, reference);
      const optim::StepReport report = run.finish();
      if (step > 0) {
        // The transport waits, as kernels run on the host, and nobody else: who reads
        // the report waits for the event behind it.
        EXPECT_THAT(Fences::of_queues(), IsSubsetOf({"comm"}));
        EXPECT_THAT(Fences::of_devices(), IsEmpty());
      }
      if (step == 1) check_messages(run);
      EXPECT_LE(distances_of(run, report, reference, extent(step)).loss,
                Tolerances<float>::kLoss)
          << "step " << step + 1;
      for (const MessageTally& sent : run.sent_messages()) sites.emplace(sent.site);
    }
    run.evaluated_loss(kFirstOfLogits);
    check_replicas(run);
  });
  return sites;
}

std::vector<Layout> all_rows_of(model::ModelKind kind, int most_ranks) {
  constexpr index_t kSamplesOfEight = 16;
  const bool is_bert = kind == model::ModelKind::bert;
  Layout first;
  first.size = kSmall;
  first.size.kind = is_bert ? Kind::bert : Kind::t5;
  std::vector<Layout> rows = {first};
  // An axis comes behind those that it depends on: without it a row is valid, too.
  const auto add_axis = [&](auto Layout::*axis, const auto& values) {
    std::vector<Layout> more;
    for (Layout row : rows) {
      for (const auto value : values) {
        row.*axis = value;
        // Whole micro-batches for eight ranks; rows of fewer train fewer samples.
        row.size.samples = row.data == 8 ? kSamplesOfEight : kSmall.samples;
        if (row.is_valid(most_ranks)) more.push_back(row);
      }
    }
    rows = std::move(more);
  };
  using Numbers = std::vector<int>;
  add_axis(&Layout::tensor, Numbers{1, 2, 4, 8});
  add_axis(&Layout::sequence, Numbers{0, 1});
  add_axis(&Layout::data, Numbers{1, 2, 4, 8});
  add_axis(&Layout::zero, Numbers{0, 1, 2, 3});
  add_axis(&Layout::small_buckets, Numbers{0, 1});
  add_axis(&Layout::microbatches, Numbers{1, 3, 4, 6});
  add_axis(&Layout::pipeline, Numbers{1, 2, 3, 4});
  add_axis(&Layout::chunks, Numbers{1, 2, 3});
  add_axis(&Layout::schedule, std::vector{config::PipelineSchedule::one_f_one_b,
                                          config::PipelineSchedule::zero_bubble,
                                          config::PipelineSchedule::gpipe});
  add_axis(&Layout::uneven, Numbers{0, 1, 2, 3});
  add_axis(&Layout::recompute, Numbers{0, -1, 1, 100});
  add_axis(&Layout::data_first, Numbers{0, 1});
  std::uint32_t number = 0;
  for (Layout& row : rows) {
    // The high bits: neighbours, which differ in one axis, have unlike ones.
    const std::uint32_t bits = (number++ * 2654435769u) >> 24;
    const auto bit = [bits](int i) { return static_cast<int>(bits >> i & 1); };
    MatrixSize& size = row.size;
    if (is_bert) {
      size.kind = bit(0) != 0 ? Kind::bert_post : Kind::bert;
      size.other_text = bit(1);
      size.no_pairs = bit(2);
    } else {
      size.kind = bit(0) != 0 ? Kind::t5_own_head : Kind::t5;
      size.no_gate = bit(1);
    }
  }
  return rows;
}

std::vector<Layout> one_of_each_pipeline(const std::vector<Layout>& all) {
  std::map<std::vector<int>, std::vector<Layout>> by_pipeline;
  for (const Layout& layout : all) {
    by_pipeline[{layout.pipeline, layout.chunks, static_cast<int>(layout.schedule),
                 layout.uneven, layout.recompute, layout.microbatches}]
        .push_back(layout);
  }
  std::vector<Layout> layouts;
  for (const auto& [pipeline, others] : by_pipeline) {
    layouts.push_back(others[layouts.size() % others.size()]);
  }
  return layouts;
}

std::vector<Layout> of_each_kind(const std::vector<Layout>& layouts) {
  std::set<std::string> seen;
  std::vector<Layout> chosen;
  for (const Layout& of : layouts) {
    const bool has_more_chunks = of.chunks > 1;
    const bool is_new = seen.insert(fmt::format("{} {} {} {}", of.tensor > 1, of.sequence,
                                                of.zero, of.pipeline > 1))
                            .second ||
                        seen.insert(fmt::format("{} {} {}", static_cast<int>(of.schedule),
                                                has_more_chunks, of.pipeline == 2))
                            .second;
    if (is_new) chosen.push_back(of);
  }
  return chosen;
}

}  // namespace trireme::test
