// inference/filling.cpp — see filling.hpp.
#include "inference/filling.hpp"

#include "base/error.hpp"
#include "inference/mask_filler.hpp"
#include "inference/span_filler.hpp"
#include "model/blueprint.hpp"

namespace trireme::inference {

std::unique_ptr<Filler> make_filler(const LoadedModel& model,
                                    std::optional<index_t> top) {
  constexpr index_t kTop = 5;
  if (model.replica->part().blueprint.output() != nullptr) {
    return std::make_unique<MaskFiller>(model, top.value_or(kTop));
  }
  TRIREME_REQUIRE_INPUT(top.value_or(1) == 1,
                        "--top {}: of a model of kind {} each gap has one text, written "
                        "word by word: leave --top out",
                        top.value_or(1), name_of(model.deck.model.kind));
  return std::make_unique<SpanFiller>(model);
}

}  // namespace trireme::inference
