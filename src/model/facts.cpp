// model/facts.cpp — see facts.hpp.
#include "model/facts.hpp"

#include <fmt/format.h>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "model/bert.hpp"
#include "model/t5.hpp"

namespace trireme::model {

// The one dispatch on the kind, beside that of blueprints.
Facts facts_of(const Architecture& architecture) {
  switch (architecture.kind) {
    case ModelKind::gpt:
      break;
    case ModelKind::bert:
      return bert_facts(architecture);
    case ModelKind::t5:
      return t5_facts(architecture);
  }
  return transformer_facts(architecture);
}

Facts transformer_facts(const Architecture& a) {
  const bool has_own_size = a.has_own_head_size();
  Facts facts;
  facts.line = {format_plural(a.layers, "layer"), fmt::format("hidden {}", a.hidden),
                format_plural(a.heads, "head") +
                    (has_own_size ? fmt::format(" of {}", a.head_size) : ""),
                fmt::format("sequence {}", a.sequence),
                fmt::format("vocabulary {}", a.vocab)};
  facts.table = {{"layers x hidden x heads",
                  fmt::format("{} x {} x {}", a.layers, a.hidden, a.heads)}};
  if (has_own_size) {
    facts.table.push_back({"head size", fmt::format("{}, of {} together", a.head_size,
                                                    a.heads * a.head_size)});
  }
  facts.table.push_back({"sequence, vocabulary",
                         fmt::format("{}, {}", a.sequence, format_grouped(a.vocab))});
  facts.values = {{"layers", a.layers},       {"hidden", a.hidden},
                  {"heads", a.heads},         {"kv_heads", a.kv_heads},
                  {"head_size", a.head_size}, {"ffn_hidden", a.ffn_hidden},
                  {"sequence", a.sequence},   {"vocabulary", a.vocab}};
  return facts;
}

}  // namespace trireme::model
