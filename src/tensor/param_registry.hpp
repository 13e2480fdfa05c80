// tensor/param_registry.hpp — what parameters this rank's part of a model has.
//
// Layers register their parameters while the model is built, in the order of the layers;
// nothing is allocated. ParamBuffer then lays them out in slabs, and the layers'
// ParamRefs find theirs. Names are the names in a checkpoint, e.g.
// "layers/0/attention/qkv/weight".
//
// A *unit* is a run of parameters that come into use together (a Transformer layer, the
// embedding): what ZeRO gathers and frees, and what gradients are reduced by.
#ifndef TRIREME_TENSOR_PARAM_REGISTRY_HPP_
#define TRIREME_TENSOR_PARAM_REGISTRY_HPP_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "tensor/shard.hpp"

namespace trireme {

// Initial values: N(0, std^2), drawn by global element index; or a constant.
struct Initializer {
  enum class Kind { normal, constant };
  // Rows of the global matrix from `begin` to the next block's, with a standard deviation
  // of their own: of query, key and value in one matrix, where theirs differ.
  struct RowBlock {
    index_t begin = 0;
    double std = 0.0;
  };
  Kind kind = Kind::constant;
  double value = 0.0;                     // standard deviation, or the constant
  std::vector<RowBlock> row_blocks = {};  // ascending; `value` holds before the first

  static Initializer normal(double std) { return {Kind::normal, std}; }
  static Initializer normal(const std::vector<RowBlock>& row_blocks) {
    return {Kind::normal, 0.0, row_blocks};
  }
  static Initializer constant(double value) { return {Kind::constant, value}; }

  // visit(first row, row behind the last, standard deviation) for each part of the rows
  // [begin, end) that has one of its own.
  template <class Visit>
  void visit_rows(index_t begin, index_t end, const Visit& visit) const {
    double std = value;
    for (const RowBlock& block : row_blocks) {
      if (block.begin >= end) break;
      if (block.begin > begin) {
        visit(begin, block.begin, std);
        begin = block.begin;
      }
      std = block.std;
    }
    if (begin < end) visit(begin, end, std);
  }
};

// A weight that several pipeline stages use (the word embedding, by the first stage and
// by the head on the last): each keeps and updates it, with the sum of all gradients. It
// counts once, and is stored by its owner.
enum class Tie { none, owner, copy };

struct ParamSpec {
  std::string name;
  ShardSpec shard;
  Initializer init;
  // AdamW decays matrices only; biases and norm parameters are left alone.
  bool decay = false;
  Tie tie = Tie::none;
  // Used where activations are split along the sequence (norms, what is added to the
  // residual stream): with sequence parallelism each rank of the tensor group has the
  // gradient of its positions only, and they are to be summed.
  bool in_sequence_region = false;

  // Whether this rank of a tensor group counts the parameter where each one counts once,
  // however many ranks have it: of what all tensor ranks hold the first does, of a tied
  // parameter its owner.
  bool counts_on(int tensor_rank) const {
    return tie != Tie::copy && (!shard.is_replicated() || tensor_rank == 0);
  }
};

struct ParamUnit {
  std::string name;
  std::size_t begin = 0, end = 0;  // its parameters
  // Another unit whose parameters it uses as well: the head's is the embedding.
  std::optional<std::size_t> borrows = {};
  // Used by several chunks of this stage, whose passes take turns: its gradients are
  // complete at the end of a step, and not of a micro-batch's pass.
  bool is_used_by_chunks = false;
};

class ParamRegistry {
 public:
  // What is added from now on belongs to a new unit, whose number this is. Parameters
  // that are added before any unit was begun make one without a name.
  std::size_t begin_unit(std::string name, std::optional<std::size_t> borrows = {});
  void set_used_by_chunks(std::size_t unit) { units_.at(unit).is_used_by_chunks = true; }
  // Index of the new parameter. Registering a name twice is an error.
  std::size_t add(ParamSpec spec);

  const std::vector<ParamSpec>& specs() const { return specs_; }
  const std::vector<ParamUnit>& units() const { return units_; }
  const ParamSpec& spec(std::size_t index) const { return specs_.at(index); }
  std::size_t size() const { return specs_.size(); }
  // Index of a name; throws Error when there is none.
  std::size_t find(const std::string& name) const;
  // The parameters that other stages use as well, by name: in the same order on all of
  // them, so that messages about one after the other meet.
  std::vector<std::size_t> tied() const;

  // Elements of the global tensors, unpadded, tied copies not counted.
  index_t global_element_count() const;

 private:
  std::vector<ParamSpec> specs_;
  std::vector<ParamUnit> units_;
  std::map<std::string, std::size_t> by_name_;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_PARAM_REGISTRY_HPP_
