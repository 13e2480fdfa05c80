// model/blocks.cpp — the blocks that models are made of, each a layer of nn with a slot
// for every micro-batch in flight: those that several kinds have, and who else to ask.
//
// A block adapts: it takes its fields out of the micro-batch, its tensors out of the
// borders' lists, and knows what nn's layer has saved. What is computed stands in nn.
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "config/capability.hpp"
#include "kernels/attention.hpp"
#include "model/block.hpp"
#include "model/layer_blocks.hpp"
#include "model/word_blocks.hpp"
#include "nn/layer_form.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::model {

namespace {

// A layer's form, of which the block's attention says the mask: GPT's and BERT's.
template <class T>
nn::LayerForm layer_form_of(const Making<T>& making) {
  const BlockSpec& spec = making.spec();
  const BatchSpec& batch = making.blueprint.batch;
  nn::LayerForm form = nn::layer_form(making.blueprint.architecture, spec.number);
  form.attention.mask = spec.attention.at(0).mask;
  if (form.attention.mask == kernels::MaskKind::segment) {
    form.attention.begins = static_cast<int>(batch.field("document_begins"));
    form.attention.ends = static_cast<int>(batch.field("document_ends"));
  }
  return form;
}

nn::EmbeddingForm embedding_form_of(const Architecture& a) {
  nn::EmbeddingForm form{.hidden = a.hidden,
                         .places = a.sequence,
                         .types = a.type_vocab_size,
                         .init_std = a.init_std,
                         .dropout = a.dropout};
  if (a.norm_placement == config::NormPlacement::post) form.norm = nn::norm_form(a);
  return form;
}

// Whoever reads decks refuses them before, by the same list. A blueprint may have them: a
// dry run tells of it what needs no layers.
void require_layers(const Architecture& architecture) {
  const auto word = [](bool value) { return value ? "true" : "false"; };
  const std::pair<const char*, std::string_view> choices[] = {
      {"model.norm", name_of(architecture.norm)},
      {"model.activation", name_of(architecture.activation)},
      {"model.position", name_of(architecture.position)},
      {"model.bias", word(architecture.bias)},
      {"model.tie_embeddings", word(architecture.tie_embeddings)}};
  for (const auto& [key, value] : choices) {
    TRIREME_REQUIRE(config::is_trained(architecture.kind, key, value),
                    "{}: {} needs layers that this version lacks", key, value);
  }
}

}  // namespace

template <class T>
std::unique_ptr<Block<T>> make_block(const Making<T>& making) {
  require_layers(making.blueprint.architecture);
  const std::string& kind = making.spec().kind;
  const Architecture& a = making.blueprint.architecture;
  if (kind == "embedding") {
    return std::make_unique<EmbeddingBlock<T>>(making, embedding_form_of(a));
  }
  if (kind == "layer") {
    return std::make_unique<LayerBlock<T>>(making, layer_form_of(making));
  }
  if (kind == "post_norm_layer") {
    return std::make_unique<PostNormLayerBlock<T>>(making, layer_form_of(making));
  }
  if (kind == "norm") return std::make_unique<NormBlock<T>>(making, nn::norm_form(a));
  if (kind == "head") {
    return std::make_unique<HeadBlock<T>>(
        making, nn::LmHeadForm{.hidden = a.hidden, .norm = nn::norm_form(a)});
  }
  for (const auto& make : {make_bert_block<T>, make_t5_block<T>}) {
    if (auto block = make(making)) return block;
  }
  throw Error(fmt::format("block '{}' is of kind '{}', which this version does not have",
                          making.spec().name, kind));
}

#define TRIREME_INSTANTIATE(T) \
  template std::unique_ptr<Block<T>> make_block<T>(const Making<T>&);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
