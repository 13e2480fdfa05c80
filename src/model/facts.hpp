// model/facts.hpp — what a model is, in the words of reports: a kind gives its own, so
// that the banner of a run, a dry run and `inspect` print them and know no kind.
#ifndef TRIREME_MODEL_FACTS_HPP_
#define TRIREME_MODEL_FACTS_HPP_

#include <string>
#include <variant>
#include <vector>

#include "base/types.hpp"
#include "model/blueprint.hpp"

namespace trireme::model {

struct Facts {
  // A row of a table.
  struct Row {
    std::string name, value;

    bool operator==(const Row&) const = default;
  };
  // One for programs, by a name of small letters and '_': a number, or a word.
  struct Value {
    std::string name;
    std::variant<index_t, std::string> value;

    bool operator==(const Value&) const = default;
  };

  // By which a run introduces its model, behind the number of parameters: parts of one
  // line, "12 layers", "hidden 768".
  std::vector<std::string> line;
  // What a dry run shows below that number: ("layers x hidden x heads", "12 x 768 x 12").
  std::vector<Row> table;
  // What `inspect` has, as JSON and in words. All kinds have layers, hidden, heads,
  // kv_heads, head_size and ffn_hidden, and the words know these; of others the name is
  // the word: ("decoder_layers", 6) is shown as "decoder layers 6".
  std::vector<Value> values;
};

// Of any architecture, whether there are blocks for it or not.
Facts facts_of(const Architecture& architecture);

// What every Transformer has: all there is of a GPT, and what others add to.
Facts transformer_facts(const Architecture& architecture);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_FACTS_HPP_
