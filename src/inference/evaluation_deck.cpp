// inference/evaluation_deck.cpp — see evaluation_deck.hpp.
#include "inference/evaluation_deck.hpp"

#include <string_view>

#include "base/error.hpp"
#include "comm/on_ranks.hpp"
#include "config/capability.hpp"
#include "config/load.hpp"
#include "config/text.hpp"
#include "inference/model_loader.hpp"
#include "step/attention_choice.hpp"
#include "step/product_ways.hpp"

namespace trireme::inference {

namespace {

constexpr std::string_view kMicro = "batch.micro";

// Micro-batches of each rank of a pipeline, in what counts as a step: enough for every
// schedule, and of no consequence besides.
constexpr index_t kMicrobatches = 8;

void require_keys(const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    const std::string key = text.substr(0, text.find('='));
    TRIREME_REQUIRE_INPUT(
        key.starts_with("parallel.") || is_precision_of_use(key) || key == kMicro,
        "--set {}: an evaluation takes the keys of `parallel`, batch.micro, "
        "precision.compute and precision.gemm; the model and its data are the "
        "checkpoint's, and a loss that is only looked at is not scaled",
        text);
  }
}

// batch.micro as --set says, where that is a number; what is wrong with it is for the
// deck to say.
index_t micro_of(const std::vector<std::string>& overrides, index_t micro) {
  for (const std::string& text : overrides) {
    if (!text.starts_with(std::string(kMicro) + "=")) continue;
    const auto value =
        config::parse_integer(std::string_view(text).substr(kMicro.size() + 1));
    constexpr index_t kMost = index_t{1} << 32;
    if (value && *value >= 1 && *value < kMost) micro = *value;
  }
  return micro;
}

}  // namespace

config::Deck evaluation_deck(comm::Communicator& world,
                             const ckpt::CheckpointReader& checkpoint,
                             const std::vector<std::string>& overrides) {
  const config::Deck trained = deck_of(checkpoint);
  const std::string text = comm::on_first_rank(world, [&] {
    require_keys(overrides);
    const std::string use = "evaluation";
    config::Deck plain = deck_of_use(trained, use);
    plain.batch.micro = trained.batch.micro;
    plain.batch.global =
        micro_of(overrides, trained.batch.micro) * world.size() * kMicrobatches;
    plain.parallel.zero = 0;
    plain.memory.recompute = config::Recompute::full;
    const config::Deck deck =
        config::parse(config::resolved_text(plain), use,
                      {.overrides = overrides, .ranks = world.size()});
    for (const config::NotTrained& lack : config::not_trained(deck)) {
      throw InputError(fmt::format("{}: {} cannot be evaluated by this version: {}",
                                   lack.key, lack.value, lack.reason));
    }
    return config::resolved_text(deck);
  });
  config::Deck deck = config::parse_resolved(text, world.size());
  if (!names_products(overrides)) {
    deck.precision.gemm = step::products_as_in(trained, deck);
  }
  deck.precision.attention = step::attention_as_in(trained, deck);
  deck.data.train = trained.data.train;
  deck.data.validation = trained.data.validation;
  deck.run.hang_timeout = trained.run.hang_timeout;
  deck.run.deterministic = trained.run.deterministic;
  return deck;
}

}  // namespace trireme::inference
