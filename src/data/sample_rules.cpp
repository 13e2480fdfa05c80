// data/sample_rules.cpp — see sample_rules.hpp.
#include "data/sample_rules.hpp"

#include "base/error.hpp"
#include "base/plural.hpp"
#include "config/span_lengths.hpp"

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

}  // namespace trireme::data
