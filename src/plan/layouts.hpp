// plan/layouts.hpp — how ranks may share a model and a step: the choices that a search
// goes through, and which of them are legal.
#ifndef TRIREME_PLAN_LAYOUTS_HPP_
#define TRIREME_PLAN_LAYOUTS_HPP_

#include <string>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"

namespace trireme::plan {

struct Layout {
  int tensor = 1, pipeline = 1, chunks = 1, data = 1;
  bool sequence = false;
  int zero = 0;
  config::PipelineSchedule schedule = config::PipelineSchedule::one_f_one_b;
  index_t micro = 1;
  config::Recompute recompute = config::Recompute::none;

  std::string grid_text() const;  // "8 x 64 x 6": tensor, pipeline, data
  std::string text() const;       // the rest: "2 chunks, micro 1, ZeRO 1, full"
  auto operator<=>(const Layout&) const = default;
};

Layout layout_of(const config::Deck& deck);
// Layers are dealt to the stages as evenly as may be.
void set_layout(config::Deck& deck, const Layout& layout);

// All that the deck's model and batch can have on so many devices, in no order of worth.
// Of micro-batches those of up to 64 samples; of virtual pipelines those whose chunks
// have equally many layers. Without stages where texts are made on the way.
std::vector<Layout> legal_layouts(const config::Deck& deck, int devices);
// Where there are none: what rules out the grid that is nearest to a legal one, and by
// how much.
std::string why_no_layout(const config::Deck& deck, int devices);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_LAYOUTS_HPP_
