// model/bert.cpp — see bert.hpp.
//
// The masked positions are a stream and not rows of the text, so that the head, the most
// expensive block of a small model, works on a seventh of the rows, and its memory and
// FLOPs are counted as those of any block. The pair head stands before the masked head,
// whose gradient is the first to come back: it writes what the pair head then adds to.
// The masked words are objective 0 all the same, as perplexity is of the first that
// predicts words. Example: 110M parameters, 512 positions of which 77 are predicted:
// logits of 77 x 30522 a sample in the place of 512 x 30522.
#include "model/bert.hpp"

#include <fmt/format.h>

#include "base/types.hpp"
#include "config/enums.hpp"
#include "kernels/attention.hpp"
#include "model/counts.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::model {

namespace {

constexpr int kText = 0, kPredictions = 1;  // streams
constexpr int kMasked = 0, kPairs = 1;      // objectives
constexpr index_t kPairClasses = 2;

bool is_post(const Architecture& a) {
  return a.norm_placement == config::NormPlacement::post;
}

BatchSpec bert_batch(const Architecture& a) {
  using enum Holds;
  BatchSpec batch{.streams = {{"text", a.sequence},
                              {.name = "predictions",
                               .sequence = a.max_predictions,
                               .is_split = false}},
                  .fields = {{.name = "tokens", .below = a.vocab},
                             {.name = "positions", .holds = places},
                             {.name = "lengths", .per = Per::sample, .holds = lengths}}};
  std::vector<FieldSpec>& fields = batch.fields;
  if (a.type_vocab_size > 0) {
    fields.push_back(
        {.name = "token_types", .holds = classes, .below = a.type_vocab_size});
  }
  if (a.within_documents) {
    fields.push_back({.name = "document_begins", .holds = begins});
    fields.push_back({.name = "document_ends", .holds = ends});
  }
  fields.push_back({.name = "masked_positions",
                    .stream = kPredictions,
                    .holds = rows,
                    .rows_of = kText});
  fields.push_back({.name = "masked_labels", .stream = kPredictions, .below = a.vocab});
  fields.push_back({.name = "masked_weights", .stream = kPredictions, .holds = weights});
  if (a.binary_head) {
    fields.push_back({.name = "pair_labels",
                      .per = Per::sample,
                      .holds = classes,
                      .below = kPairClasses});
    fields.push_back({.name = "pair_weights", .per = Per::sample, .holds = weights});
  }
  return batch;
}

BlockSpec embedding_spec(const Architecture& a, const Border& hidden) {
  BlockSpec block{.kind = "embedding",
                  .name = "embedding",
                  .border = hidden,
                  .makes = {"hidden"},
                  .fields = {"tokens", "positions"},
                  .table = "embedding/word",
                  .parameters = position_parameters(a) + a.type_vocab_size * a.hidden +
                                (is_post(a) ? norm_parameters(a) : index_t{0})};
  if (a.type_vocab_size > 0) block.fields.push_back("token_types");
  return block;
}

BlockSpec layer_spec(const Architecture& a, const Border& hidden, index_t layer) {
  const auto mask =
      a.within_documents ? kernels::MaskKind::segment : kernels::MaskKind::padding;
  BlockSpec block{.kind = is_post(a) ? "post_norm_layer" : "layer",
                  .name = fmt::format("layers/{}", layer),
                  .is_layer = true,
                  .number = layer,
                  .border = hidden,
                  .reads = {"hidden"},
                  .makes = {"hidden"},
                  .fields = {"lengths"},
                  .last_part = is_post(a) ? "mlp_norm" : "mlp/fc2",
                  .parameters = layer_parameters(a),
                  .products = {layer_products(a)},
                  .attention = {layer_attention(a, mask)}};
  if (a.within_documents) {
    block.fields.insert(block.fields.end(), {"document_begins", "document_ends"});
  }
  return block;
}

BlockSpec pair_head_spec(const Architecture& a, const Border& hidden) {
  const index_t pooler = a.hidden * (a.hidden + 1);
  const index_t classifier = kPairClasses * (a.hidden + 1);
  const auto weights = static_cast<double>((a.hidden + kPairClasses) * a.hidden);
  return {.kind = "pair_head",
          .name = "pair_head",
          .border = hidden,
          .reads = {"hidden"},
          .makes = {},
          .fields = {"pair_labels", "pair_weights"},
          .parameters = pooler + classifier,
          .products = {{.flops = 2.0 * weights, .stream = kText, .per = Per::sample}},
          .objective = kPairs};
}

// One without a loss gives its logits.
BlockSpec masked_words_spec(const Architecture& a) {
  const index_t dense = a.hidden * (a.hidden + 1);
  const auto weights = static_cast<double>((a.hidden + a.vocab) * a.hidden);
  return {.kind = "masked_words",
          .name = "masked_head",
          .border = {},
          .reads = {"hidden"},
          .makes = {},
          .fields = {"masked_positions"},
          .table = "embedding/word",
          .stream = kPredictions,
          .parameters = dense + norm_parameters(a) + a.vocab,
          .products = {{.flops = 2.0 * weights, .stream = kPredictions}},
          .output = {{.columns = a.vocab}}};
}

BlockSpec masked_head_spec(const Architecture& a) {
  BlockSpec block = masked_words_spec(a);
  block.kind = "masked_head";
  block.fields.insert(block.fields.end(), {"masked_labels", "masked_weights"});
  block.objective = kMasked;
  block.output = {};
  block.gradients_in_forward = true;
  return block;
}

BlockSpec pool_spec(const Architecture& a) {
  return {.kind = "pool",
          .name = "pool",
          .border = {},
          .reads = {"hidden"},
          .makes = {},
          .fields = {"lengths"},
          .output = {{.columns = 2 * a.hidden, .per = Per::sample}}};
}

// What is read in use is one text, and one document.
Architecture of_one_text(Architecture architecture) {
  architecture.binary_head = false;
  architecture.within_documents = false;
  return architecture;
}

void add_encoder(Blueprint& blueprint) {
  const Architecture& a = blueprint.architecture;
  const Border hidden = {{"hidden", kText, a.hidden}};
  blueprint.blocks.push_back(embedding_spec(a, hidden));
  for (index_t layer = 0; layer < a.layers; ++layer) {
    blueprint.blocks.push_back(layer_spec(a, hidden, layer));
  }
  if (is_post(a)) return;
  blueprint.blocks.push_back({.kind = "norm",
                              .name = "final_norm",
                              .border = hidden,
                              .reads = {"hidden"},
                              .makes = {"hidden"},
                              .parameters = norm_parameters(a)});
}

void add_heads(Blueprint& blueprint) {
  const Architecture& a = blueprint.architecture;
  blueprint.objectives = {
      {.name = "masked words", .mask = "masked_weights", .labels = "masked_labels"}};
  if (a.binary_head) {
    blueprint.objectives.push_back({.name = "segment pairs", .mask = "pair_weights"});
    blueprint.blocks.push_back(pair_head_spec(a, {{"hidden", kText, a.hidden}}));
  }
  blueprint.blocks.push_back(masked_head_spec(a));
}

}  // namespace

Blueprint bert_blueprint(const Architecture& architecture, Use use) {
  const bool has_output = use == Use::vectors || use == Use::words;
  const Architecture a = has_output ? of_one_text(architecture) : architecture;
  Blueprint blueprint{
      .architecture = a, .batch = bert_batch(a), .vocabulary = "embedding/word"};
  add_encoder(blueprint);
  if (use == Use::vectors) {
    blueprint.blocks.push_back(pool_spec(a));
  } else if (use == Use::words) {
    blueprint.blocks.push_back(masked_words_spec(a));
  } else {
    add_heads(blueprint);
  }
  blueprint.tables.push_back({.name = "embedding/word",
                              .unit = "embedding",
                              .rows = a.vocab,
                              .columns = a.hidden,
                              .init_std = a.init_std});
  return blueprint;
}

Facts bert_facts(const Architecture& a) {
  Facts facts = transformer_facts(a);
  const char* const norms =
      is_post(a) ? "norms behind the sums" : "norms before the branches";
  facts.line.push_back(norms);
  facts.table.push_back(
      {"norms", is_post(a) ? "behind the sums (post)" : "before the branches (pre)"});
  facts.table.push_back({"predictions of a sample",
                         fmt::format("{}{}", a.max_predictions,
                                     a.binary_head ? ", and the pair of segments" : "")});
  facts.values.push_back({"norm_placement", std::string(name_of(a.norm_placement))});
  facts.values.push_back({"predictions", a.max_predictions});
  return facts;
}

}  // namespace trireme::model
