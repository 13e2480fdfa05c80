// apps/tokenize_report.hpp — what `trireme tokenize` says of the corpus that it has
// written: for people, and as JSON.
#ifndef TRIREME_APPS_TOKENIZE_REPORT_HPP_
#define TRIREME_APPS_TOKENIZE_REPORT_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/log.hpp"
#include "data/corpus_writer.hpp"
#include "data/tokenizer.hpp"

namespace trireme::apps {

struct TokenizeReport {
  std::string out;
  std::string sentences;  // a language's code; empty: they are not kept
  const data::Tokenizer& tokenizer;
  const data::CorpusSummary& summary;
  int ranks;

  // Lines of figures, and a warning for each thing about the text that a user is to look
  // into: it spells tokens of samples, or the tokenizer does not know it.
  void tell(Log& log) const;
  nlohmann::ordered_json json() const;
};

}  // namespace trireme::apps

#endif  // TRIREME_APPS_TOKENIZE_REPORT_HPP_
