// step/decoder.hpp — new tokens through a whole model, with the keys and values of
// earlier positions kept (KV cache): what texts are generated with.
//
// There are places for texts, which begin, grow and end independently of each other. A
// text's logits have the same bits whatever stands in the other places: prompts are read
// one by one, and in a step, where the weights are read once for all texts, no number of
// a text depends on the others (kernels/few_rows.hpp, or on a GPU decode_linear.hpp
// there; kernels/decode_attention.hpp).
//
// Memory is taken once, for the model's longest sequence and a number of places. With a
// tensor group every rank of it makes the same calls and gets the same logits.
//
// A kind of model may make a text from another, its source: begin_text() takes that one
// in, once; what the model asks of it stands beside the text's own keys and values.
//
// Where the host looks at logits, it chooses the tokens. Or texts get theirs on the
// device, many steps long (draw()): a step is then one graph of launches that reads all
// that changes, and writes it, in the device's memory. With a tensor group, and where
// weights are lent for each use, launches are made one by one: messages are among them.
#ifndef TRIREME_STEP_DECODER_HPP_
#define TRIREME_STEP_DECODER_HPP_

#include <memory>
#include <span>

#include "base/tally.hpp"
#include "base/types.hpp"
#include "data/bpe.hpp"
#include "kernels/sampling.hpp"
#include "model/blueprint.hpp"
#include "step/model_state.hpp"

namespace trireme::step {

// What logits are handed out in, whatever the model computes in.
using Logit = float;

class Decoder {
 public:
  // Tokens of one pass at most: bounds the workspace whatever a prompt's length.
  static constexpr index_t kPieceRows = 512;
  // Texts of one pass at most.
  static constexpr index_t kStepTexts = 16;

  struct Next {
    index_t place = 0;
    data::TokenId token = 0;
  };

  // What draw() draws by.
  struct Drawing {
    kernels::SamplingRule rule = {};
    index_t usable = 0;  // only tokens below this
    std::int32_t end_of_document = -1;

    bool is_same(const Drawing& other) const;
  };
  // A text that is to go on.
  struct Continued {
    index_t place = 0;
    data::TokenId token = 0;  // its last one, which is not in the cache yet
    index_t size = 0;         // tokens that the text has
    index_t left = 0;         // tokens that it may yet get
    std::uint64_t owner = 0;  // of its random numbers (kernels::TextRows)
  };
  // Steps of one draw() at most.
  static constexpr index_t kDrawnSteps = 16;

  Decoder(const model::Blueprint& model, index_t places);
  virtual ~Decoder() = default;

  // Forgets the text in a place, and its source.
  virtual void clear(index_t place) = 0;
  // What the text in an empty place will be made from, of a kind that has sources: there
  // nothing is read before.
  virtual void begin_text(index_t place, std::span<const data::TokenId> source) = 0;
  // Adds tokens to the text in a place: the logits (V) of the last one. Logits are valid
  // until the next read() or step().
  virtual std::span<const Logit> read(index_t place,
                                      std::span<const data::TokenId> tokens) = 0;
  // Makes the text in an empty place one with the text in another, and with its source.
  virtual void copy_text(index_t from, index_t to) = 0;
  // Adds a token to each of these texts: their logits, (texts, V).
  virtual std::span<const Logit> step(std::span<const Next> texts) = 0;
  // Adds a token to each of these texts, and draws the next one, `steps` times. A text
  // ends earlier at the end of its document, with the last token that it may get, and
  // where its place is full. Of a decoder that draws(), with kStepTexts places at most.
  // Error where a logit is not finite.
  virtual void draw(const Drawing& drawing, std::span<const Continued> texts,
                    index_t steps) = 0;
  // What the last draw() drew for the text in a place, the end of a document included.
  virtual std::span<const std::int32_t> drawn(index_t place) const = 0;
  // Whether the model's blocks can do that.
  virtual bool draws() const = 0;
  // Positions that the text in a place has.
  virtual index_t length(index_t place) const = 0;

  index_t context() const { return context_; }  // positions there are
  bool has_source() const { return source_context_ > 0; }
  index_t source_context() const { return source_context_; }  // positions of a source
  index_t vocabulary() const { return vocabulary_; }
  index_t places() const { return places_; }

 private:
  index_t context_ = 0, source_context_ = 0, vocabulary_, places_;
};

// The weights in `state` must be allocated and outlive the decoder; they may change.
template <class T>
std::unique_ptr<Decoder> make_decoder(const Exec& exec, ModelState<T>& state,
                                      index_t places = 1);

// Bytes of the keys and values, and of all, known before any are allocated.
struct DecoderMemory {
  std::size_t cache = 0, total = 0;
};
template <class T>
DecoderMemory plan_decoder(const ModelState<T>& state, index_t places);
// What one step of draw() launches and sends.
template <class T>
Tally plan_token(const ModelState<T>& state, index_t places);

}  // namespace trireme::step

#endif  // TRIREME_STEP_DECODER_HPP_
