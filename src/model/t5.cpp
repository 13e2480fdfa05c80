// model/t5.cpp — see t5.hpp.
//
// One list holds both stacks, so that a pipeline is cut anywhere in it: a stage may have
// the end of the encoder and the start of the decoder. The decoder's embedding is a
// source in the middle of the list, which reads nothing while the memory passes it by.
// The memory has its gradient from all decoder layers: the last in the list, where it
// ends, writes it, and each one before adds to it. A stack's layers share their table of
// relative positions as they would words: every stage that has some of them keeps a copy,
// whose gradients are summed. Example: 2 + 2 layers on 3 stages may be [embedding,
// encoder 0], [encoder 1, norm, embedding, decoder 0], [decoder 1, head]; the memory
// crosses one border.
#include "model/t5.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/format.hpp"
#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "model/counts.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::model {

namespace {

constexpr const char* kWords = "embedding/word";
constexpr const char* kHeadWords = "head/word";
constexpr const char* kEncoderBias = "encoder/relative_bias";
constexpr const char* kDecoderBias = "decoder/relative_bias";

// What crosses borders.
struct T5Tensors {
  explicit T5Tensors(const Architecture& a)
      : source_text{"source_text", kSource, a.hidden},
        memory{"memory", kSource, a.hidden},
        text{"text", kTarget, a.hidden} {}
  BorderTensor source_text, memory, text;
};

BatchSpec t5_batch(const Architecture& a) {
  using enum Holds;
  return {.streams = {{"source", a.sequence}, {"target", a.decoder_sequence}},
          .fields = {{.name = "source", .stream = kSource, .below = a.vocab},
                     {.name = "source_lengths",
                      .per = Per::sample,
                      .stream = kSource,
                      .holds = lengths},
                     {.name = "target", .stream = kTarget, .below = a.vocab},
                     {.name = "target_lengths",
                      .per = Per::sample,
                      .stream = kTarget,
                      .holds = lengths},
                     {.name = "labels", .stream = kTarget, .below = a.vocab},
                     {.name = "loss_mask", .stream = kTarget, .holds = weights}}};
}

AttentionSpec self_attention(const Architecture& a, kernels::MaskKind mask) {
  AttentionSpec self = layer_attention(a, mask);
  self.has_bias = true;
  return self;
}

BlockSpec encoder_layer(const Architecture& a, const T5Tensors& tensors, index_t layer) {
  return {.kind = "t5_layer",
          .name = fmt::format("encoder/layers/{}", layer),
          .is_layer = true,
          .number = layer,
          .border = {tensors.source_text},
          .reads = {"source_text"},
          .makes = {"source_text"},
          .fields = {"source_lengths"},
          .table = kEncoderBias,
          .last_part = "mlp/fc2",
          .stream = kSource,
          .parameters = layer_parameters(a),
          .products = {layer_products(a)},
          .attention = {self_attention(a, kernels::MaskKind::padding)}};
}

// Of cross attention the queries and what is made of the output are products of a word of
// the target, keys and values of one of the source.
BlockSpec decoder_layer(const Architecture& a, const T5Tensors& tensors, index_t layer) {
  const auto keys_and_values = static_cast<double>(qkv_columns(a) - query_columns(a));
  const double of_source = 2.0 * static_cast<double>(a.hidden) * keys_and_values;
  const bool is_last = layer + 1 == a.decoder_layers;
  AttentionSpec self = self_attention(a, kernels::MaskKind::causal);
  self.queries = self.keys = kTarget;
  AttentionSpec cross = layer_attention(a, kernels::MaskKind::padding);
  cross.queries = kTarget;
  cross.keys = kSource;
  return {
      .kind = "t5_layer",
      .name = fmt::format("decoder/layers/{}", layer),
      .is_layer = true,
      .number = layer,
      .border = is_last ? Border{tensors.text} : Border{tensors.memory, tensors.text},
      .reads = {"text", "memory"},
      .makes = {"text"},
      .fields = {"source_lengths", "target_lengths"},
      .table = kDecoderBias,
      .last_part = "mlp/fc2",
      .stream = kTarget,
      .parameters = layer_parameters(a) + attention_parameters(a) + norm_parameters(a),
      .products = {{.flops = 2.0 * attention_products(a) - of_source + mlp_products(a),
                    .stream = kTarget},
                   {.flops = of_source, .stream = kSource}},
      .attention = {self, cross}};
}

void add_encoder(const Architecture& a, const T5Tensors& tensors, Blueprint& blueprint) {
  blueprint.blocks.push_back({.kind = "t5_embedding",
                              .name = "encoder/embedding",
                              .border = {tensors.source_text},
                              .makes = {"source_text"},
                              .fields = {"source"},
                              .table = kWords,
                              .stream = kSource});
  for (index_t layer = 0; layer < a.layers; ++layer) {
    blueprint.blocks.push_back(encoder_layer(a, tensors, layer));
  }
  blueprint.blocks.push_back({.kind = "t5_norm",
                              .name = "encoder/final_norm",
                              .border = {tensors.memory},
                              .reads = {"source_text"},
                              .makes = {"memory"},
                              .stream = kSource,
                              .parameters = norm_parameters(a)});
}

void add_decoder(const Architecture& a, const T5Tensors& tensors, Blueprint& blueprint) {
  blueprint.blocks.push_back({.kind = "t5_embedding",
                              .name = "decoder/embedding",
                              .border = {tensors.memory, tensors.text},
                              .makes = {"text"},
                              .fields = {"target"},
                              .table = kWords,
                              .stream = kTarget});
  for (index_t layer = 0; layer < a.decoder_layers; ++layer) {
    blueprint.blocks.push_back(decoder_layer(a, tensors, layer));
  }
  blueprint.blocks.push_back(
      {.kind = "t5_head",
       .name = "head",
       .border = {},
       .reads = {"text"},
       .makes = {},
       .fields = {"labels", "loss_mask"},
       .table = a.tie_embeddings ? kWords : kHeadWords,
       .stream = kTarget,
       .parameters = norm_parameters(a),
       .products = {{.flops = 2.0 * static_cast<double>(a.vocab * a.hidden),
                     .stream = kTarget}},
       .objective = 0,
       .gradients_in_forward = true});
}

// Words begin with a deviation of 1, as in Mesh TensorFlow. A head of its own does with
// 1 / sqrt(h), by which a tied one is scaled, so that a model begins with even odds;
// Hugging Face's begins with 1, and a loss far above the logarithm of its vocabulary.
void add_tables(const Architecture& a, Blueprint& blueprint) {
  const double inverse_root = 1.0 / std::sqrt(static_cast<double>(a.hidden));
  const auto words = [&](const char* name, const char* unit, double std) {
    blueprint.tables.push_back({.name = name,
                                .unit = unit,
                                .rows = a.vocab,
                                .columns = a.hidden,
                                .init_std = std});
  };
  const auto bias = [&](const char* name) {
    blueprint.tables.push_back({.name = name,
                                .unit = name,
                                .rows = a.relative_attention_num_buckets,
                                .columns = a.heads,
                                .init_std = inverse_root,
                                .cut = TableCut::heads});
  };
  words(kWords, "embedding", 1.0);
  bias(kEncoderBias);
  bias(kDecoderBias);
  if (!a.tie_embeddings) words(kHeadWords, kHeadWords, inverse_root);
}

}  // namespace

Blueprint t5_blueprint(const Architecture& a) {
  const T5Tensors tensors(a);
  Blueprint blueprint{
      .architecture = a,
      .batch = t5_batch(a),
      .objectives = {{.name = "loss", .mask = "loss_mask", .labels = "labels"}},
      .decoded = {.tokens = "target",
                  .source = "source",
                  .source_lengths = "source_lengths",
                  .begins_with_padding = true},
      .vocabulary = kWords};
  add_encoder(a, tensors, blueprint);
  add_decoder(a, tensors, blueprint);
  add_tables(a, blueprint);
  return blueprint;
}

Facts t5_facts(const Architecture& a) {
  Facts facts = transformer_facts(a);
  const auto both = [](index_t encoder, index_t decoder) {
    return fmt::format("{} + {}", encoder, decoder);
  };
  const std::string layers = both(a.layers, a.decoder_layers);
  const std::string positions = both(a.sequence, a.decoder_sequence);
  facts.line.at(0) = layers + " layers";
  for (std::string& part : facts.line) {
    if (part.starts_with("sequence ")) part = "sequences " + positions;
  }
  facts.table.at(0) = {
      "layers x hidden x heads",
      fmt::format("({}) x {} x {}, encoder + decoder", layers, a.hidden, a.heads)};
  for (Facts::Row& row : facts.table) {
    if (row.name != "sequence, vocabulary") continue;
    row = {"sequences, vocabulary",
           fmt::format("{}, {}", positions, format_grouped(a.vocab))};
  }
  facts.values.push_back({"decoder_layers", a.decoder_layers});
  facts.values.push_back({"decoder_sequence", a.decoder_sequence});
  return facts;
}

}  // namespace trireme::model
