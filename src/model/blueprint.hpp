// model/blueprint.hpp — a model as data: the ordered list of its blocks, what crosses the
// borders between them, which fields of a batch they read, and which losses they make.
//
// Everything above this module works with that list and knows no kind of model: a
// pipeline's stages hold runs of blocks, messages are the tensors of the borders where
// stages meet, costs, FLOPs and memory are sums over blocks.
//
// Worked example, a GPT of two layers:
//
//   block        0 embedding      1 layers/0      2 layers/1      3 head
//   reads                         hidden          hidden          hidden
//   makes        hidden           hidden          hidden
//   border behind    hidden           hidden          hidden          -
//
// A tensor of a border that the next block neither makes anew nor drops passes by: it is
// in the next border as well, the same memory within a stage, and is sent on between
// stages (the encoder's output through the decoder's stages of a T5).
#ifndef TRIREME_MODEL_BLUEPRINT_HPP_
#define TRIREME_MODEL_BLUEPRINT_HPP_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "kernels/attention.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::model {

using config::Activation;
using config::ModelKind;
using config::Norm;
using config::Position;
using Architecture = config::ModelConfig;

// A tensor at a border: (rows of its stream, columns).
struct BorderTensor {
  std::string name;
  int stream = 0;
  index_t columns = 0;

  bool operator==(const BorderTensor&) const = default;
};
using Border = std::vector<BorderTensor>;
inline constexpr std::size_t kMostBorderTensors = 4;

// FLOPs of matrix products in a block's forward pass, a multiply-add as two: of each
// token of a stream, or of each sample.
struct ProductFlops {
  double flops = 0.0;
  int stream = 0;
  Per per = Per::token;

  bool operator==(const ProductFlops&) const = default;
};

// How attention is counted: `full` as in the Megatron papers (Narayanan et al. 2021,
// appendix; Korthikanti et al. 2022, appendix A: s^2 scores per head, whatever the mask),
// `causal` the half of it that is needed.
enum class AttentionCount { full, causal };

// Attention of a block: what the queries of one stream see of the keys of one, of which a
// full sample has as many as the streams have positions.
struct AttentionSpec {
  index_t heads = 1, kv_heads = 1, head_size = 1;
  kernels::MaskKind mask = kernels::MaskKind::none;
  int queries = 0, keys = 0;  // streams
  bool has_bias = false;      // by distance

  bool operator==(const AttentionSpec&) const = default;
  // Scores of a sample: of each head, query and key.
  double scores(const BatchSpec& batch,
                AttentionCount count = AttentionCount::full) const;
  // Of a forward pass over a sample: products of queries and keys, and of the scores and
  // the values.
  double flops(const BatchSpec& batch, AttentionCount count) const {
    return 4.0 * static_cast<double>(head_size) * scores(batch, count);
  }
};

// Numbers that a block gives to whoever uses the model: so many of each of its stream's
// positions, or of each sample.
struct OutputSpec {
  index_t columns = 0;
  Per per = Per::token;

  bool operator==(const OutputSpec&) const = default;
};

struct BlockSpec {
  std::string kind;  // by which the maker of blocks knows it
  std::string name;  // of its parameters, and in messages: "layers/3"
  // Whether it is one of the layers that the deck deals to the stages; other blocks stay
  // with the layers beside them. Layers can be made again in the backward pass.
  bool is_layer = false;
  index_t number = 0;                    // of a layer, among its like
  Border border = {};                    // behind it
  std::vector<std::string> reads = {};   // of the border before it
  std::vector<std::string> makes = {};   // of the border behind it
  std::vector<std::string> fields = {};  // of the batch
  std::string table = {};                // that it shares with other blocks
  std::string last_part = {};            // of it, that makes its output: "mlp/fc2"
  int stream = 0;                        // that it works on
  index_t parameters = 0;                // of its own: those of its table are not
  std::vector<ProductFlops> products = {};
  std::vector<AttentionSpec> attention = {};
  int objective = -1;  // that it adds to; -1: none
  std::optional<OutputSpec> output = {};
  // Whether its forward pass in training has the products of its backward pass with it,
  // and adds to the gradient of its table: d_logits are known as soon as the loss is.
  bool gradients_in_forward = false;

  bool operator==(const BlockSpec&) const = default;
  // Whether they differ in name and number alone, and so take the same time and memory.
  bool is_like(const BlockSpec& other) const;
  bool makes_tensor(const std::string& tensor) const {
    return std::ranges::find(makes, tensor) != makes.end();
  }
  bool reads_tensor(const std::string& tensor) const {
    return std::ranges::find(reads, tensor) != reads.end();
  }
  // A tensor that stays as it is: a backward pass adds to its gradient.
  bool passes(const std::string& tensor) const {
    return std::ranges::find(border, tensor, &BorderTensor::name) != border.end() &&
           !makes_tensor(tensor);
  }
  // Without an input it has no gradient to hand on.
  bool is_source() const { return reads.empty(); }
  // FLOPs of a forward pass over one sample, whose streams are as long as `batch` says;
  // and of attention in it.
  double forward_flops(const BatchSpec& batch,
                       AttentionCount count = AttentionCount::full) const;
  double attention_flops(const BatchSpec& batch,
                         AttentionCount count = AttentionCount::full) const;
  // Scores of all its attention, of one sample.
  double attention_scores(const BatchSpec& batch) const;
};

// A loss that training minimises: weight * sum of w loss / sum of w, over the positions
// (or samples) of the global batch, where w is the value of its `mask` field.
struct Objective {
  std::string name;
  double weight = 1.0;
  std::string mask;
  std::string labels = {};  // field of the words that it has predicted; empty: of none
  // Whether these are all words of a text, each from those before it: its loss then says
  // in how many bits the text can be written.
  bool every_word = false;
};

// What a model is made for: to be trained, validated and evaluated; to make texts; to
// give vectors of texts, or words for what is left out of them. A kind does one of the
// last two by other blocks, which give an output, and whose parameters are among those
// that it is trained with. One that makes texts from others has its words from these.
enum class Use { training, text, vectors, words };

// The fields through which a text is decoded, a few words at a time; one without a name
// is not there. Of a kind that makes a text from another, its source, all blocks on the
// stream of that one are run once before the first word, and those on the stream of the
// text for each.
struct DecodedFields {
  std::string tokens, positions = {};            // the words, and where they stand
  std::string source = {}, source_lengths = {};  // those of the source; how many they are
  // What stands before a text's first word where it is made from a source: the token for
  // padding, or else the end of a document.
  bool begins_with_padding = false;

  bool has_source() const { return !source.empty(); }
};

// How the ranks of a tensor group share a table: by its rows, one for each word, or by
// its columns, one for each head of attention.
enum class TableCut { words, heads };

// A table that several blocks use, as a parameter that exists once (Press and Wolf 2017):
// where several pipeline stages use it, each keeps and updates it. The first block that
// names it owns it.
struct SharedTable {
  std::string name;  // "embedding/word"
  std::string unit;  // that it is kept in where its owner is not there: "embedding"
  index_t rows = 0, columns = 0;
  double init_std = 0.02;
  TableCut cut = TableCut::words;

  std::string parameter() const { return name + "/weight"; }
  index_t elements() const { return rows * columns; }
};

// The blocks [begin, end).
struct BlockRange {
  std::size_t begin = 0, end = 0;

  std::size_t size() const { return end - begin; }
  bool contains(std::size_t block) const { return begin <= block && block < end; }
};

struct Blueprint {
  Architecture architecture;
  BatchSpec batch;
  std::vector<Objective> objectives = {};
  DecodedFields decoded = {};  // of a kind that generates text
  std::string vocabulary;      // the table that has a row for each word of a text
  std::vector<BlockSpec> blocks = {};
  std::vector<SharedTable> tables = {};

  index_t layer_count() const;
  // Elements of all parameters of the model; a shared table counts once.
  index_t parameter_count() const;
  // What one sample takes by the algorithm, forward and backward: nothing is computed
  // again, and words of padding do not count. What a step really computes, its Tally
  // says.
  double model_flops(AttentionCount count = AttentionCount::full) const;
  // What crosses the border before block `block`: nothing before the first.
  const Border& border_before(std::size_t block) const;
  // How many of the layers are in a run of blocks.
  index_t layers_in(const BlockRange& range) const;
  const SharedTable& table(const std::string& name) const;
  const SharedTable& vocabulary_table() const { return table(vocabulary); }
  // Attention of the blocks, each kind of it once.
  std::vector<AttentionSpec> attention() const;
  // The first objective that predicts words: perplexity is of it, and bits where it
  // predicts every word.
  std::size_t objective_over_words() const;
  // Whether the model makes texts, word by word; the streams of their words, and of those
  // of their sources.
  bool generates_text() const { return !decoded.tokens.empty(); }
  int text_stream() const { return stream_of(decoded.tokens); }
  int source_stream() const { return stream_of(decoded.source); }
  // The block that gives the model's output; null: it has none.
  const BlockSpec* output() const;
  // The blocks that use a table, ascending.
  std::vector<std::size_t> users(const SharedTable& table) const;
  BlockRange whole() const { return {0, blocks.size()}; }
  // The first of the blocks that are like this one.
  std::size_t first_like(std::size_t block) const;
  // Fields that a run of blocks reads, as indices of `batch.fields`, ascending.
  std::vector<std::size_t> fields_of(const BlockRange& range) const;

  // Throws Error where the list contradicts itself: a tensor that is read and not there,
  // one that nobody reads, an objective that no block makes, or one that a layer makes,
  // which would count twice where the layer is made again; or a field that does not say
  // how large its numbers are.
  void check() const;

 private:
  int stream_of(const std::string& field) const {
    return batch.fields[batch.field(field)].stream;
  }
  void check_fields() const;
  void check_decoded() const;
  void check_streams(const BlockSpec& block) const;
  void check_objectives() const;
  void check_output() const;
};

// The blueprint of the kind that the architecture names. Error for what this version has
// no blocks for; whoever reads decks refuses that before, by the same list
// (config/capability.hpp). InputError where models of the kind have no such use.
Blueprint make_blueprint(const Architecture& architecture, Use use = Use::training);
// Whether it gives one, where `use` is another than training.
bool has_use(const Architecture& architecture, Use use);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_BLUEPRINT_HPP_
