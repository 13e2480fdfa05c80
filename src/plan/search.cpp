// plan/search.cpp — see search.hpp.
//
// Estimates rank layouts well enough to find the few that are worth simulating: kEachGrid
// of each grid, of the kGrids best grids. A layout that is estimated is a set of sums
// over the stages; what these are made of is planned once for each kind of layout. Only
// the last few are looked at as a run looks at them, with the order of passes that it
// chooses and the memory that it plans: that takes as long as hundreds of estimates. A
// layout that turns out not to fit makes room for the next of its grid.
#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "model/blueprint.hpp"
#include "schedule/division.hpp"
#include "step/deck_model.hpp"
#include "step/pipeline.hpp"

namespace trireme::plan {

namespace {

constexpr std::size_t kEachGrid = 8, kGrids = 12, kPlansShown = 8, kTooLargeShown = 3,
                      kTooLargeTries = 8;
constexpr double kEstimatesAreGood = 1.1;

bool is_faster(const Plan& a, const Plan& b) {
  return std::pair(a.seconds(), a.memory.total()) <
         std::pair(b.seconds(), b.memory.total());
}

// Keeps the fastest so many, best first.
void keep_fastest(std::vector<Plan>& plans, const Plan& plan, std::size_t most) {
  if (plans.size() == most && !is_faster(plan, plans.back())) return;
  plans.insert(std::ranges::upper_bound(plans, plan, is_faster), plan);
  if (plans.size() > most) plans.pop_back();
}

class Search {
 public:
  Search(PerformanceModel& model, const config::Deck& deck)
      : model_(model),
        deck_(deck),
        cost_(step::modelled_cost(model::make_blueprint(deck.model),
                                  step::step_shape(deck))) {
    deck_.origins.clear();  // decks are changed for each layout
  }

  SearchResult run(const std::vector<Layout>& layouts) {
    result_.legal = std::ssize(layouts);
    for (const Layout& layout : layouts) estimate(layout);
    std::ranges::sort(too_large_, {}, [](const Plan& p) { return p.memory.total(); });
    for (std::vector<Plan>* const grid : best_grids()) take_first_that_fits(*grid);
    if (result_.plans.empty()) take_what_fits_after_all();
    std::ranges::sort(result_.plans, is_faster);
    if (result_.plans.empty()) {
      result_.too_large = {too_large_.front()};
    } else {
      find_faster_that_do_not_fit();
    }
    return std::move(result_);
  }

 private:
  using Grid = std::tuple<int, int, int>;

  bool fits(const Plan& plan) const {
    return plan.memory.total() <= model_.machine().device.memory;
  }

  void set(const Layout& layout) {
    set_layout(deck_, layout);
    if (layout.pipeline == 1 || model_.machine().software.is_other()) return;
    const auto [found, is_new] =
        by_work_.try_emplace(layout.pipeline * layout.chunks, deck_.parallel.stages);
    std::vector<index_t>& stages = found->second;
    if (is_new) {
      const schedule::Split dealt =
          schedule::cut_by_work({stages.begin(), stages.end()}, cost_);
      stages.assign(dealt.begin(), dealt.end());
    }
    deck_.parallel.stages = stages;
  }

  Plan as_run(const Layout& layout) {
    set_layout(deck_, layout);
    deck_.parallel.stages.clear();
    deck_.parallel.stages = dealt_layers(model_.machine(), deck_);
    return plan_of(model_, deck_);
  }

  void estimate(const Layout& layout) {
    set(layout);
    const Plan plan{layout, deck_.parallel.stages,
                    model_.predict(deck_, Schedule::estimated), model_.memory(deck_)};
    if (!fits(plan)) {
      too_large_.push_back(plan);
      return;
    }
    result_.fitting += 1;
    keep_fastest(grids_[{layout.tensor, layout.pipeline, layout.data}], plan, kEachGrid);
  }

  void simulate(Plan& plan) {
    set(plan.layout);
    plan.prediction = model_.predict(deck_, Schedule::by_rule);
  }

  // Best first, by the simulation of their layouts, which are sorted by it.
  std::vector<std::vector<Plan>*> best_grids() {
    const auto is_better = [](const auto* a, const auto* b) {
      return is_faster(a->front(), b->front());
    };
    std::vector<std::vector<Plan>*> grids;
    for (auto& [grid, plans] : grids_) grids.push_back(&plans);
    std::ranges::sort(grids, is_better);
    grids.resize(std::min(grids.size(), kGrids));
    for (std::vector<Plan>* const plans : grids) {
      for (Plan& plan : *plans) simulate(plan);
      std::ranges::sort(*plans, is_faster);
    }
    std::ranges::sort(grids, is_better);
    return grids;
  }

  void take_first_that_fits(const std::vector<Plan>& plans) {
    if (result_.plans.size() == kPlansShown) return;
    for (const Plan& plan : plans) {
      Plan planned = as_run(plan.layout);
      if (fits(planned)) {
        result_.plans.push_back(std::move(planned));
        return;
      }
      planned.prediction = plan.prediction;
      result_.fitting -= 1;
      too_large_.push_back(std::move(planned));
    }
  }

  // Estimates of the memory are good to some percent: what is too large by less than that
  // may fit.
  void take_what_fits_after_all() {
    for (const Plan& plan : too_large_) {
      if (plan.memory.total() > kEstimatesAreGood * model_.machine().device.memory) break;
      Plan planned = as_run(plan.layout);
      if (!fits(planned)) continue;
      result_.plans = {std::move(planned)};
      result_.fitting = 1;
      return;
    }
  }

  void find_faster_that_do_not_fit() {
    const double best = result_.plans.front().seconds();
    std::ranges::sort(too_large_, {}, [](const Plan& p) { return p.memory.total(); });
    std::size_t tries = 0;
    for (Plan& plan : too_large_) {
      if (plan.seconds() >= best) continue;
      if (result_.too_large.size() == kTooLargeShown || tries == kTooLargeTries) return;
      simulate(plan);
      tries += 1;
      if (plan.seconds() < best) result_.too_large.push_back(plan);
    }
  }

  PerformanceModel& model_;
  config::Deck deck_;
  schedule::ModelCost cost_;
  std::map<int, std::vector<index_t>> by_work_;  // stages, by the number of pieces
  SearchResult result_;
  std::map<Grid, std::vector<Plan>> grids_;
  std::vector<Plan> too_large_;
};

std::string memory_text(double bytes) {
  return format_bytes(bytes);
}

// The category that takes most of it, in words.
std::string largest_part(const LayoutMemory& memory) {
  const std::vector<std::pair<const char*, double>> parts = {
      {"weights", memory.weights},     {"gradients", memory.gradients},
      {"optimizer", memory.optimizer}, {"activations", memory.activations},
      {"scratch", memory.scratch},     {"buffers", memory.other},
      {"libraries", memory.reserved}};
  const auto most =
      std::ranges::max_element(parts, {}, [](const auto& part) { return part.second; });
  return fmt::format("{} {}", most->first, memory_text(most->second));
}

}  // namespace

const std::vector<NamedPart>& step_parts() {
  static const std::vector<NamedPart> parts = {
      {"compute", &StepParts::compute},
      {"recompute", &StepParts::recompute},
      {"tensor messages", &StepParts::tensor_messages},
      {"stage messages", &StepParts::stage_messages},
      {"bubble", &StepParts::bubble},
      {"data messages", &StepParts::data_messages},
      {"optimizer", &StepParts::optimizer},
      {"checkpoint", &StepParts::checkpoint},
      {"other", &StepParts::other}};
  return parts;
}

std::vector<LostTime> lost_time(const Plan& best, const Plan& other) {
  std::vector<LostTime> lost;
  for (const NamedPart& part : step_parts()) {
    const double by =
        other.prediction.parts.*part.seconds - best.prediction.parts.*part.seconds;
    if (by >= 0.01 * other.seconds()) lost.push_back({part.name, by});
  }
  std::ranges::sort(lost, std::greater<>(), &LostTime::seconds);
  constexpr std::size_t kMost = 2;
  lost.resize(std::min(lost.size(), kMost));
  return lost;
}

std::vector<index_t> dealt_layers(const Machine& machine, const config::Deck& deck) {
  if (deck.parallel.pipeline == 1) return {};
  if (machine.software.is_other()) return split_of(deck);
  const schedule::Split dealt = step::pipeline_layout(deck).split;
  return {dealt.begin(), dealt.end()};
}

// Programs that are not this one keep to the rules.
Plan plan_of(PerformanceModel& model, const config::Deck& deck) {
  const bool is_other = model.machine().software.is_other();
  return {layout_of(deck), deck.parallel.stages,
          model.predict(deck, is_other ? Schedule::by_rule : Schedule::of_run),
          planned_memory(model.machine(), deck)};
}

SearchResult search(PerformanceModel& model, const config::Deck& deck, int devices) {
  const Machine& machine = model.machine();
  const std::vector<Layout> layouts = legal_layouts(deck, devices);
  TRIREME_REQUIRE_INPUT(!layouts.empty(), "{}", why_no_layout(deck, devices));
  SearchResult result = Search(model, deck).run(layouts);
  if (!result.plans.empty()) return result;
  const Plan& nearest = result.too_large.front();
  const double excess = nearest.memory.total() - machine.device.memory;
  throw InputError(fmt::format(
      "{} cannot hold the model: of {} none fits. The one that takes least, {} (tensor x "
      "pipeline x data), {}, takes {} of each device's {}: {} too much (most of it: {})",
      format_plural(devices, "device"), format_plural(result.legal, "legal layout"),
      nearest.layout.grid_text(), nearest.layout.text(),
      memory_text(nearest.memory.total()), memory_text(machine.device.memory),
      memory_text(excess), largest_part(nearest.memory)));
}

}  // namespace trireme::plan
