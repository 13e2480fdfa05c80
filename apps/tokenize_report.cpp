// apps/tokenize_report.cpp — see tokenize_report.hpp.
#include "apps/tokenize_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace trireme::apps {
namespace {

double bytes_per_token(const data::CorpusSummary& summary) {
  return static_cast<double>(summary.text_bytes) / static_cast<double>(summary.tokens);
}

std::string_view text_of(const data::Tokenizer& tokenizer, data::TokenId id) {
  for (const data::AddedToken& token : tokenizer.added_tokens()) {
    if (token.id == id) return token.text;
  }
  throw Error(fmt::format("id {} is of no added token", id));
}

// What a model reads where a text spells added tokens that samples have of their own:
// "padding and masked words". Empty where it spells others alone.
std::string roles_of(const data::Tokenizer& tokenizer,
                     const std::map<data::TokenId, std::uint64_t>& found) {
  std::vector<std::string> roles;
  for (const auto& [special, role] :
       {std::pair(data::Special::padding, "padding"),
        std::pair(data::Special::mask, "masked words"),
        std::pair(data::Special::end_of_document, "ends of documents")}) {
    const std::optional<data::TokenId> id = tokenizer.find_special(special);
    if (id && found.contains(*id)) roles.emplace_back(role);
  }
  for (const auto& [id, count] : found) {
    if (!text_of(tokenizer, id).starts_with(data::kSentinelBegin)) continue;
    roles.emplace_back("hidden spans");
    break;
  }
  std::string list;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (i > 0) list += i + 1 == roles.size() ? " and " : ", ";
    list += roles[i];
  }
  return list;
}

std::uint64_t count_of(const std::map<data::TokenId, std::uint64_t>& found) {
  std::uint64_t count = 0;
  for (const auto& [id, times] : found) count += times;
  return count;
}

// The one of lowest id stands for all: it is the same for any number of ranks.
void report_added_tokens(const data::Tokenizer& tokenizer,
                         const std::map<data::TokenId, std::uint64_t>& found, Log& log) {
  if (found.empty()) return;
  const std::string what = fmt::format(
      "{} found in the text ({}{})", format_plural(count_of(found), "added token"),
      text_of(tokenizer, found.begin()->first), found.size() > 1 ? " and others" : "");
  const std::string roles = roles_of(tokenizer, found);
  if (roles.empty()) {
    log.info("  {}; --plain-text reads them as text", what);
  } else {
    log.warning(
        "{}: a model reads {} there, as in a BERT's or T5's samples; --plain-text reads "
        "them as text",
        what, roles);
  }
}

void warn_of_unknown_tokens(const data::Tokenizer& tokenizer,
                            const data::CorpusSummary& summary, Log& log) {
  constexpr double kMostUsual = 0.01;
  const double part =
      static_cast<double>(summary.unknown_tokens) / static_cast<double>(summary.tokens);
  if (part <= kMostUsual) return;
  log.warning(
      "{:.0f} % of the tokens are {}: the tokenizer has no pieces for this text; give "
      "one that was made for such text by --tokenizer, or train one on it",
      100.0 * part, tokenizer.decode({tokenizer.model().unknown().value()}));
}

}  // namespace

void TokenizeReport::tell(Log& log) const {
  const double bytes = static_cast<double>(summary.input_bytes);
  const double rate = bytes / 1e6 / std::max(summary.tokenize_seconds, 1e-9);
  log.info("{}: {}, {} of a vocabulary of {}", out,
           format_plural(summary.documents, "document"),
           format_plural(summary.tokens, "token"), tokenizer.vocabulary_size());
  log.info("  tokenizer: {}", tokenizer.model().description());
  log.info("  {:.3f} bytes per token; unigram entropy {:.3f} nats per token",
           bytes_per_token(summary), summary.unigram_entropy);
  log.info("  {} tokenized in {:.2f} s, {:.1f} MB/s on {}",
           human_bytes(summary.input_bytes), summary.tokenize_seconds, rate,
           format_plural(ranks, "rank"));
  if (summary.sentences > 0) {
    log.info("  {} by the rules of '{}', of {:.1f} tokens each",
             format_plural(summary.sentences, "sentence"), sentences,
             static_cast<double>(summary.tokens - summary.documents) /
                 static_cast<double>(summary.sentences));
  }
  report_added_tokens(tokenizer, summary.added_tokens_found, log);
  warn_of_unknown_tokens(tokenizer, summary, log);
  if (summary.empty_documents > 0) {
    log.warning("{} left out", format_plural(summary.empty_documents, "empty document"));
  }
  if (summary.replaced_sequences > 0) {
    log.warning(
        "{} replaced by U+FFFD: is the text in another encoding?",
        format_plural(summary.replaced_sequences, "byte sequence that is not UTF-8",
                      "byte sequences that are not UTF-8"));
  }
}

nlohmann::ordered_json TokenizeReport::json() const {
  using Json = nlohmann::ordered_json;
  return {{"documents", summary.documents},
          {"tokens", summary.tokens},
          {"vocabulary", tokenizer.vocabulary_size()},
          {"tokenizer", tokenizer.model().description()},
          {"end_of_document", tokenizer.end_of_document()},
          {"input_bytes", summary.input_bytes},
          {"text_bytes", summary.text_bytes},
          {"bytes_per_token", bytes_per_token(summary)},
          {"unigram_entropy", summary.unigram_entropy},
          {"sentences", sentences.empty() ? Json() : Json(summary.sentences)},
          {"empty_documents", summary.empty_documents},
          {"replaced_sequences", summary.replaced_sequences},
          {"added_tokens_found", count_of(summary.added_tokens_found)},
          {"unknown_tokens", summary.unknown_tokens},
          {"seconds", summary.tokenize_seconds},
          {"ranks", ranks}};
}

}  // namespace trireme::apps
