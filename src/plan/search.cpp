// plan/search.cpp — see search.hpp.
//
// Estimates rank layouts well enough to find the few that are worth simulating: kEachGrid
// of each grid, of the kGrids best grids. A layout that is estimated is a set of sums
// over the stages; what these are made of is planned once for each kind of layout.
#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace trireme::plan {

namespace {

constexpr std::size_t kEachGrid = 4, kGrids = 12, kPlansShown = 8, kTooLargeShown = 3;

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
  Search(PerformanceModel& model, const config::Deck& deck) : model_(model), deck_(deck) {
    deck_.origins.clear();  // decks are changed for each layout
  }

  SearchResult run(const std::vector<Layout>& layouts) {
    result_.legal = std::ssize(layouts);
    for (const Layout& layout : layouts) estimate(layout);
    if (grids_.empty()) {
      result_.too_large = {*std::ranges::min_element(
          too_large_, {}, [](const Plan& plan) { return plan.memory.total(); })};
      return std::move(result_);
    }
    simulate_best();
    std::ranges::sort(too_large_, {}, [](const Plan& p) { return p.memory.total(); });
    for (const Plan& plan : too_large_) {
      if (result_.too_large.size() == kTooLargeShown) break;
      if (plan.seconds() >= result_.plans.front().seconds()) continue;
      result_.too_large.push_back(plan);
    }
    return std::move(result_);
  }

 private:
  using Grid = std::tuple<int, int, int>;

  double memory() const { return model_.machine().device.memory; }

  void estimate(const Layout& layout) {
    set_layout(deck_, layout);
    const Plan plan{layout, model_.predict(deck_, Schedule::estimated),
                    model_.memory(deck_)};
    if (plan.memory.total() > memory()) {
      too_large_.push_back(plan);
      return;
    }
    result_.fitting += 1;
    keep_fastest(grids_[{layout.tensor, layout.pipeline, layout.data}], plan, kEachGrid);
  }

  void simulate_best() {
    std::vector<std::vector<Plan>*> grids;
    for (auto& [grid, plans] : grids_) grids.push_back(&plans);
    std::ranges::sort(grids, [](const auto* a, const auto* b) {
      return is_faster(a->front(), b->front());
    });
    grids.resize(std::min(grids.size(), kGrids));
    for (std::vector<Plan>* const plans : grids) {
      for (Plan& plan : *plans) {
        set_layout(deck_, plan.layout);
        plan.prediction = model_.predict(deck_, Schedule::simulated);
      }
      keep_fastest(result_.plans, *std::ranges::min_element(*plans, is_faster),
                   kPlansShown);
    }
  }

  PerformanceModel& model_;
  config::Deck deck_;
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

std::string why_slower(const Plan& best, const Plan& other) {
  std::vector<std::pair<double, const char*>> more;
  for (const NamedPart& part : step_parts()) {
    const double by =
        other.prediction.parts.*part.seconds - best.prediction.parts.*part.seconds;
    if (by >= 0.01 * other.seconds()) more.emplace_back(by, part.name);
  }
  std::ranges::sort(more, std::greater<>());
  constexpr std::size_t kMost = 2;
  more.resize(std::min(more.size(), kMost));
  std::string text;
  for (const auto& [by, name] : more) {
    text += fmt::format("{}{} +{:.2f} s", text.empty() ? "" : ", ", name, by);
  }
  return text.empty() ? "a little of everything" : text;
}

Plan plan_of(PerformanceModel& model, const config::Deck& deck) {
  return {layout_of(deck), model.predict(deck, Schedule::simulated), model.memory(deck)};
}

SearchResult search(PerformanceModel& model, const config::Deck& deck, int devices) {
  const Machine& machine = model.machine();
  TRIREME_REQUIRE_INPUT(devices <= machine.network.back().devices,
                        "{} has {}, {} are asked for", machine.name,
                        format_plural(machine.network.back().devices, "device"), devices);
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
