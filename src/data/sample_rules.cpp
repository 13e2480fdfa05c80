// data/sample_rules.cpp — see sample_rules.hpp.
#include "data/sample_rules.hpp"

#include <algorithm>
#include <variant>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "config/span_lengths.hpp"
#include "data/corpus.hpp"

namespace trireme::data {

SampleRules sample_rules(const NextTokenRules& rules, std::uint64_t seed) {
  return {next_token_windows(rules.sequence), seed, rules};
}

SampleRules sample_rules(const SpanRules& rules, std::uint64_t seed) {
  TRIREME_REQUIRE_INPUT(rules.density > 0.0 && rules.density < 1.0,
                        "data.mask_prob is {}: expected above 0 and below 1",
                        rules.density);
  TRIREME_REQUIRE_INPUT(rules.mean_length >= 1.0,
                        "data.mean_noise_span_length is {}: expected 1 or more",
                        rules.mean_length);
  TRIREME_REQUIRE_INPUT(rules.source >= config::kShortestSource,
                        "model.sequence is {}: a source of T5 takes {} or more (a token, "
                        "a sentinel and the end)",
                        rules.source, config::kShortestSource);
  const config::SpanLengths lengths =
      config::longest_spans(rules.source, rules.density, rules.mean_length);
  TRIREME_REQUIRE_INPUT(lengths.target <= rules.target,
                        "model.decoder_sequence is {}: what is hidden of a source of {} "
                        "takes {}; set it to "
                        "that or more",
                        rules.target, rules.source, lengths.target);
  TRIREME_REQUIRE_INPUT(
      lengths.spans <= rules.sentinels,
      "a source of {} (model.sequence) has {}, and the tokenizer {}: "
      "take a shorter sequence, longer spans (data.mean_noise_span_length), or a "
      "tokenizer with more sentinels",
      rules.source, format_plural(lengths.spans, "span"),
      format_plural(rules.sentinels, "sentinel"));
  return {{.tokens = lengths.window, .stride = lengths.window}, seed, rules};
}

SampleRules sample_rules(const MaskedRules& rules, std::uint64_t seed) {
  const bool has_pairs = rules.pairs != config::Pairs::none;
  TRIREME_REQUIRE(rules.vocabulary != nullptr, "masked samples without a vocabulary");
  const auto is_share = [](double share) { return share >= 0.0 && share <= 1.0; };
  TRIREME_REQUIRE_INPUT(rules.mask_prob > 0.0 && rules.mask_prob < 1.0,
                        "data.mask_prob is {}: expected above 0 and below 1",
                        rules.mask_prob);
  TRIREME_REQUIRE_INPUT(is_share(rules.short_seq_prob),
                        "data.short_seq_prob is {}: expected 0 to 1",
                        rules.short_seq_prob);
  TRIREME_REQUIRE_INPUT(rules.max_ngrams >= 1 && rules.max_ngrams <= kMostNgrams,
                        "data.max_ngrams is {}: expected 1 to {}", rules.max_ngrams,
                        kMostNgrams);
  TRIREME_REQUIRE_INPUT(rules.text() >= rules.least_text(),
                        "model.sequence is {}: {} takes {} or more", rules.sequence,
                        has_pairs ? "[CLS] token [SEP] token [SEP]" : "[CLS] token [SEP]",
                        rules.special_tokens() + rules.least_text());
  TRIREME_REQUIRE_INPUT(rules.predictions >= 1 && rules.predictions <= rules.text(),
                        "model.max_predictions is {}: expected 1 to {}, the tokens of "
                        "text in a sample of {}",
                        rules.predictions, rules.text(), rules.sequence);
  TRIREME_REQUIRE_INPUT(!rules.pack || !has_pairs,
                        "data.pack makes samples of one segment, across documents: set "
                        "data.pairs: none and model.binary_head: false, or data.pack: "
                        "false");
  const bool has_length = !rules.pack && rules.window > 0;
  const index_t window = has_length ? std::min(rules.window, rules.text()) : rules.text();
  return {{.tokens = window, .stride = window}, seed, rules, !rules.pack && !has_length};
}

Windows SampleRules::windows_in(const Corpus& corpus) const {
  if (!have_documents_length) return windows;
  const index_t documents = std::max<index_t>(corpus.document_count(), 1);
  const index_t mean = (corpus.token_count() + documents - 1) / documents;
  const index_t tokens = std::clamp<index_t>(mean, 1, windows.tokens);
  return {.tokens = tokens, .stride = tokens};
}

int SampleRules::version() const {
  return std::visit([](const auto& rules) { return rules.kVersion; }, kind);
}

}  // namespace trireme::data
