// inference/evaluation_text.cpp — an evaluation for people and for programs; see
// evaluation.hpp.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "inference/evaluation.hpp"
#include "io/json.hpp"
#include "model/losses.hpp"

namespace trireme::inference {

namespace {

using Json = nlohmann::ordered_json;

// Counts are kept as doubles, as ranks add them.
std::int64_t whole(double count) {
  return static_cast<std::int64_t>(std::llround(count));
}

Json json_of(const EvaluatedSet& set) {
  Json json = {{"name", set.name},
               {"corpora", set.corpora},
               {"checksums", set.checksums},
               {"windows", set.sums.samples},
               {"windows_in_all", set.windows},
               {"tokens", whole(set.sums.tokens())},
               {"tokens_behind_last_window", set.left_out},
               {"loss", set.loss()},
               {"perplexity", set.perplexity()},
               {"bits_per_token", nullptr},
               {"bytes", nullptr},
               {"bits_per_byte", nullptr},
               {"seconds", set.sums.seconds}};
  for (const auto& [name, mean] : set.losses.parts) json["losses"][name] = mean;
  if (!set.every_word) return json;
  json["bits_per_token"] = set.bits_per_token();
  if (set.has_bytes) {
    json["bytes"] = whole(set.sums.bytes);
    if (set.sums.bytes > 0.0) json["bits_per_byte"] = set.bits_per_byte();
  }
  return json;
}

std::string line(const char* key, const std::string& value) {
  return fmt::format("  {:<17} {}\n", key, value);
}

std::string losses_text(const EvaluatedSet& set) {
  // The sum of several objectives has no unit.
  const char* const unit = set.losses.parts.empty() ? " nats per token" : "";
  std::string text = line("loss", fmt::format("{:.6f}{}", set.loss(), unit) +
                                      model::text_of(set.losses.parts));
  text += line("perplexity",
               fmt::format("{:.6g}{}", set.perplexity(),
                           set.every_word ? "" : " of the words that are predicted"));
  if (!set.every_word) return text;
  text += line("bits per token", fmt::format("{:.6f}", set.bits_per_token()));
  return text + line("bits per byte", set.has_bytes && set.sums.bytes > 0.0
                                          ? fmt::format("{:.6f}", set.bits_per_byte())
                                          : "not known: the corpus has no tokenizer");
}

std::string text_of(const EvaluatedSet& set) {
  const std::int64_t tokens = whole(set.sums.tokens());
  std::string text = fmt::format("\n{}\n", set.name);
  const std::string bytes =
      set.has_bytes ? fmt::format(", of {}", format_plural(whole(set.sums.bytes), "byte"))
                    : "";
  text += set.every_word ? line("tokens", format_grouped(tokens) + bytes)
                         : line("predicted", format_plural(tokens, "word"));
  text += tokens > 0 ? losses_text(set) : line("loss", "not known: no token counts");
  if (set.sums.samples < set.windows) {
    text += line("windows",
                 fmt::format("the first {} of {}", format_grouped(set.sums.samples),
                             format_grouped(set.windows)));
  }
  if (set.left_out > 0) {
    text += line("left out", format_plural(set.left_out, "token") +
                                 " behind the last whole window (see --tail)");
  }
  const double rate = set.sums.tokens() / set.sums.seconds;
  return text +
         line("took", fmt::format("{}, {}", format_duration(set.sums.seconds),
                                  format_rate(rate, counted_words(set.every_word))));
}

}  // namespace

std::string Evaluation::text() const {
  std::string text = fmt::format("Evaluation of {} (step {}) in {}\n",
                                 checkpoint.string(), step, compute);
  for (const EvaluatedSet& set : sets) text += text_of(set);
  return text;
}

std::string Evaluation::json() const {
  Json json = {{"checkpoint", checkpoint.string()},
               {"step", step},
               {"sequence", sequence},
               {"compute", compute},
               {"product_instructions", products},
               {"mask_eod_loss", mask_end_of_document},
               {"grid", grid},
               {"results", Json::array()}};
  for (const EvaluatedSet& set : sets) json["results"].push_back(json_of(set));
  if (sets.size() == 1) {
    const Json only = json["results"][0];
    json.update(only);
  }
  return io::json_text(json, 2) + "\n";
}

}  // namespace trireme::inference
