// plan/layouts.cpp — see layouts.hpp.
//
// What is legal is what config/check.cpp lets pass; a test holds one against the other.
// That check reads a deck, which takes too long for a hundred thousand layouts, and says
// what is wrong with one, where here the question is which are right. Virtual pipelines
// with chunks of different length, and micro-batches of more than 64 samples, are legal
// and left out: the first only add bubble, the second memory, once products are large.
#include "plan/layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "plan/performance_model.hpp"

namespace trireme::plan {

namespace {

using config::PipelineSchedule;
using config::Recompute;

constexpr index_t kMostSamplesAtOnce = 64;

bool tensor_suits(const config::ModelConfig& model, int tensor) {
  return model.heads % tensor == 0 && model.kv_heads % tensor == 0 &&
         model.ffn_hidden % tensor == 0 && model.vocab >= tensor;
}

// Whether the model can be cut into so many stages: one that makes texts on the way is on
// every rank as a whole.
bool pipeline_suits(const config::Deck& deck, int pipeline) {
  return pipeline == 1 ||
         (pipeline <= deck.model.total_layers() && deck.run.sample_every.steps == 0);
}

// Whether the positions of a sample come out even on so many ranks: of each stream, where
// there are several.
bool splits(const config::ModelConfig& model, int tensor) {
  return model.sequence % tensor == 0 && model.decoder_sequence % tensor == 0;
}

// Whether the batches of all steps come out even on so many samples at a time.
bool batch_suits(const config::BatchConfig& batch, index_t at_once) {
  if (batch.global % at_once != 0) return false;
  if (!batch.ramp_up) return true;
  return batch.ramp_up->start % at_once == 0 && batch.ramp_up->increment % at_once == 0;
}

// Tensor x pipeline x data on so many devices: what of it the deck allows.
struct Grid {
  int tensor = 1, pipeline = 1, data = 1;
};
template <class Use>
void for_each_grid(int devices, const Use& use) {
  for (int tensor = 1; tensor <= devices; ++tensor) {
    if (devices % tensor != 0) continue;
    const int rest = devices / tensor;
    for (int pipeline = 1; pipeline <= rest; ++pipeline) {
      if (rest % pipeline == 0) use(Grid{tensor, pipeline, rest / pipeline});
    }
  }
}

std::vector<int> chunk_counts(index_t layers, int pipeline) {
  std::vector<int> counts = {1};
  if (pipeline == 1) return counts;
  for (int chunks = 2; index_t{chunks} * pipeline <= layers; ++chunks) {
    if (layers % (index_t{chunks} * pipeline) == 0) counts.push_back(chunks);
  }
  return counts;
}

std::vector<PipelineSchedule> schedules(const Layout& layout) {
  if (layout.pipeline == 1) return {PipelineSchedule::one_f_one_b};
  return {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble,
          PipelineSchedule::gpipe};
}

// What a grid lets free beside its chunks and its micro-batch.
void add_variants(Layout layout, bool may_split_sequence, std::vector<Layout>& layouts) {
  for (const PipelineSchedule schedule : schedules(layout)) {
    layout.schedule = schedule;
    for (const bool sequence : {false, true}) {
      if (sequence && !may_split_sequence) continue;
      layout.sequence = sequence;
      for (int zero = 0; zero <= (layout.data > 1 ? 3 : 0); ++zero) {
        layout.zero = zero;
        for (const Recompute recompute :
             {Recompute::none, Recompute::selective, Recompute::full}) {
          layout.recompute = recompute;
          layouts.push_back(layout);
        }
      }
    }
  }
}

}  // namespace

std::string Layout::grid_text() const {
  return fmt::format("{} x {} x {}", tensor, pipeline, data);
}

std::string Layout::text() const {
  std::string text = fmt::format("micro {}", micro);
  if (chunks > 1) text = fmt::format("{}, {}", format_plural(chunks, "chunk"), text);
  if (data > 1) text += fmt::format(", ZeRO {}", zero);
  if (sequence) text += ", sequence";
  if (schedule != PipelineSchedule::one_f_one_b) {
    text += fmt::format(", {}", config::name_of(schedule));
  }
  return text + fmt::format(", recompute {}", config::name_of(recompute));
}

Layout layout_of(const config::Deck& deck) {
  const config::ParallelConfig& p = deck.parallel;
  return {.tensor = p.tensor,
          .pipeline = p.pipeline,
          .chunks = p.virtual_pipeline,
          .data = p.data,
          .sequence = p.sequence,
          .zero = p.zero,
          .schedule = p.schedule,
          .micro = deck.batch.micro,
          .recompute = deck.memory.recompute};
}

void set_layout(config::Deck& deck, const Layout& layout) {
  config::ParallelConfig& p = deck.parallel;
  p.tensor = layout.tensor;
  p.pipeline = layout.pipeline;
  p.virtual_pipeline = layout.chunks;
  p.data = layout.data;
  p.data_auto = false;
  p.sequence = layout.sequence;
  p.zero = layout.zero;
  p.schedule = layout.schedule;
  p.stages.clear();
  p.balance = config::Balance::modelled;  // no plan measures blocks
  if (layout.pipeline > 1) p.stages = split_of(deck);
  deck.batch.micro = layout.micro;
  deck.memory = {.recompute = layout.recompute};
}

std::vector<Layout> legal_layouts(const config::Deck& deck, int devices) {
  std::vector<Layout> layouts;
  const config::ModelConfig& model = deck.model;
  for_each_grid(devices, [&](const Grid& grid) {
    if (!tensor_suits(model, grid.tensor) || !pipeline_suits(deck, grid.pipeline)) return;
    const bool may_split_sequence = grid.tensor > 1 && splits(model, grid.tensor);
    for (const int chunks : chunk_counts(model.total_layers(), grid.pipeline)) {
      for (index_t micro = 1; micro <= kMostSamplesAtOnce; ++micro) {
        if (!batch_suits(deck.batch, micro * grid.data)) continue;
        add_variants({.tensor = grid.tensor,
                      .pipeline = grid.pipeline,
                      .chunks = chunks,
                      .data = grid.data,
                      .micro = micro},
                     may_split_sequence, layouts);
      }
    }
  });
  return layouts;
}

// Without tensor ranks and stages there is always a grid that the model allows, so that
// only batches can rule out all: nearest is the grid whose batch is least off.
std::string why_no_layout(const config::Deck& deck, int devices) {
  Grid nearest;
  index_t off = std::numeric_limits<index_t>::max();
  for_each_grid(devices, [&](const Grid& grid) {
    if (!tensor_suits(deck.model, grid.tensor) || !pipeline_suits(deck, grid.pipeline)) {
      return;
    }
    const index_t rest = deck.batch.global % grid.data;
    const index_t here = std::min(rest, grid.data - rest);
    if (here >= off) return;
    off = here;
    nearest = grid;
  });
  const std::string head =
      fmt::format("no layout of {} suits the deck: ", format_plural(devices, "device"));
  const index_t rest = deck.batch.global % nearest.data;
  if (rest == 0) {
    return head + fmt::format("batch.ramp_up has batches that {} cannot share",
                              format_plural(nearest.data, "data rank"));
  }
  const index_t below = deck.batch.global - rest;
  const bool is_below = below > 0 && rest <= nearest.data - rest;
  return head + fmt::format(
                    "the nearest grid, tensor {}, pipeline {} and data {}, has {} that "
                    "cannot share batch.global: {}; {} would do",
                    nearest.tensor, nearest.pipeline, nearest.data,
                    format_plural(nearest.data, "data rank"), deck.batch.global,
                    is_below ? below : below + nearest.data);
}

}  // namespace trireme::plan
