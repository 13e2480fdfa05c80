// config/check_kind.cpp — see check_kind.hpp.
//
// BERT's samples are [CLS] a [SEP] b [SEP], or [CLS] a [SEP] without pairs of segments; a
// pair is judged by the binary head, and neither is of use without the other. T5's are
// windows of text cut into a source and a target (span_lengths.hpp), which both have to
// fit. What would have no effect is refused like what contradicts itself: whoever gives
// such a key has something else in mind. A default never contradicts another one.
#include "config/check_kind.hpp"

#include <fmt/format.h>

#include "base/plural.hpp"
#include "config/enums.hpp"
#include "config/findings.hpp"
#include "config/kinds.hpp"
#include "config/span_lengths.hpp"

namespace trireme::config {
namespace {

class KindChecker : Findings {
 public:
  KindChecker(const Deck& deck, const std::set<std::string>& bad,
              std::vector<DeckError>& errors)
      : Findings(deck, bad, errors), model_(deck.model), data_(deck.data), deck_(deck) {}

  void run() {
    if (!good({"model.kind"})) return;
    if (model_.kind == ModelKind::bert) {
      check_masked_length();
      check_pairs();
      check_packing();
    }
    if (model_.kind == ModelKind::t5) {
      check_corrupted_length();
      check_buckets();
    }
  }

 private:
  bool has_pairs() const { return data_.pairs != Pairs::none; }
  std::string pairs_text() const {
    return fmt::format("data.pairs is {}", name_of(data_.pairs));
  }

  void check_masked_length() {
    if (!good({"model.sequence", "data.pairs"})) return;
    const index_t special = special_tokens(deck_);
    const index_t shortest = special + (has_pairs() ? 2 : 1);
    if (model_.sequence < shortest) {
      add("model.sequence",
          fmt::format(
              "is too short for {}, the shortest sample",
              has_pairs() ? "[CLS] token [SEP] token [SEP]" : "[CLS] token [SEP]"),
          fmt::format("at least {}", shortest),
          fmt::format("model.sequence: {}", shortest));
      return;
    }
    const index_t text = model_.sequence - special;
    if (!good({"model.max_predictions"}) || model_.max_predictions <= text) return;
    add("model.max_predictions",
        fmt::format("is more than the {} of a sample that may be masked: {} of "
                    "model.sequence ({}) are [CLS] and [SEP]",
                    format_plural(text, "token"), special, model_.sequence),
        fmt::format("1 to {}", text), fmt::format("model.max_predictions: {}", text));
  }

  void check_pairs() {
    if (!good({"data.pairs"})) return;
    if (good({"model.binary_head"}) && model_.binary_head && !has_pairs()) {
      add("model.binary_head",
          "is to say how pairs of segments were made; " + pairs_text(),
          "false without pairs",
          data_.pack ? "model.binary_head: false"
                     : "model.binary_head: false, or data.pairs: order");
    }
    if (good({"model.binary_head"}) && !model_.binary_head && has_pairs()) {
      add("data.pairs",
          "makes pairs of segments, and no head is to say how: model.binary_head is "
          "false",
          "none without model.binary_head",
          "data.pairs: none, or model.binary_head: true");
    }
    if (good({"model.type_vocab_size"}) && model_.type_vocab_size == 1 && has_pairs()) {
      add("model.type_vocab_size",
          "leaves the second segment without a type; " + pairs_text(), "0, or at least 2",
          "model.type_vocab_size: 2");
    }
  }

  void check_packing() {
    if (!good({"data.pack"})) return;
    if (data_.pack && good({"data.pairs"}) && has_pairs()) {
      add("data.pack", "makes samples of one segment, across documents; " + pairs_text(),
          "false with pairs",
          "data.pack: false, or model.binary_head: false and data.pairs: none");
    }
    if (data_.pack && good({"data.short_seq_prob"}) && data_.short_seq_prob > 0.0) {
      add("data.short_seq_prob", "makes samples shorter; with data.pack all are full",
          "0 with data.pack", "data.short_seq_prob: 0");
    }
    const auto needs_pack = [&](const char* key, bool value) {
      if (data_.pack || !value) return;
      add(key, "is about the documents of a packed sample; data.pack is false",
          "false without data.pack", fmt::format("{}: false", key));
    };
    needs_pack("data.reset_attention_mask", data_.reset_attention_mask);
    needs_pack("data.reset_position_ids", data_.reset_position_ids);
  }

  void check_corrupted_length() {
    if (!good({"model.sequence"})) return;
    if (model_.sequence < kShortestSource) {
      add("model.sequence",
          "is too short for a token, a sentinel and the end of the text, the shortest "
          "source",
          fmt::format("at least {}", kShortestSource),
          fmt::format("model.sequence: {}", kShortestSource));
      return;
    }
    if (!good({"model.decoder_sequence", "data.mask_prob",
               "data.mean_noise_span_length"})) {
      return;
    }
    const SpanLengths full =
        longest_spans(model_.sequence, data_.mask_prob, data_.mean_noise_span_length);
    if (model_.decoder_sequence >= full.target) return;
    add("model.decoder_sequence",
        fmt::format("is too short for what the corruption makes: of {}, which fill "
                    "model.sequence ({}), {} are noise in {}, with a sentinel each and "
                    "the end {}",
                    format_plural(full.window, "token"), model_.sequence, full.noise,
                    format_plural(full.spans, "span"),
                    format_plural(full.target, "position")),
        fmt::format("at least {}", full.target),
        fmt::format("model.decoder_sequence: {}", full.target));
  }

  // Half the buckets are for each direction in an encoder; half of those, and half of a
  // decoder's, have one distance each, and the others grow up to the largest.
  void check_buckets() {
    const char* const buckets_key = "model.relative_attention_num_buckets";
    const char* const distance_key = "model.relative_attention_max_distance";
    if (!good({buckets_key})) return;
    const index_t buckets = model_.relative_attention_num_buckets;
    if (buckets % 2 != 0) {
      add(buckets_key, "is odd; half of the buckets are for each direction",
          "an even number", fmt::format("{}: {}", buckets_key, buckets + 1));
    } else if (good({distance_key}) &&
               model_.relative_attention_max_distance <= buckets / 2) {
      add(distance_key,
          fmt::format("leaves nothing to buckets of several distances: of {} half have "
                      "one distance each",
                      format_plural(buckets, "bucket")),
          fmt::format("at least {}", buckets / 2 + 1),
          fmt::format("{}: {}", distance_key, buckets / 2 + 1));
    }
  }

  const ModelConfig& model_;
  const DataConfig& data_;
  const Deck& deck_;
};

}  // namespace

void check_kind(const Deck& deck, const std::set<std::string>& bad,
                std::vector<DeckError>& errors) {
  KindChecker(deck, bad, errors).run();
}

}  // namespace trireme::config
