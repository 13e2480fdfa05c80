// step/decoder.hpp — new tokens through a whole model, with the keys and values of
// earlier positions kept (KV cache): what texts are generated with.
//
// There are places for texts, which begin, grow and end independently of each other. A
// text's logits have the same bits whatever stands in the other places: prompts are read
// one by one, and in a step, where the weights are read once for all texts, no number of
// a text depends on the others (kernels/few_rows.hpp, kernels/decode_attention.hpp; on a
// GPU as far as its library's products promise it).
//
// Memory is taken once, for the model's longest sequence and a number of places. With a
// tensor group every rank of it makes the same calls and gets the same logits.
#ifndef TRIREME_STEP_DECODER_HPP_
#define TRIREME_STEP_DECODER_HPP_

#include <memory>
#include <span>

#include "base/types.hpp"
#include "data/bpe.hpp"
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

  Decoder(const model::Architecture& model, index_t places)
      : context_(model.sequence), vocabulary_(model.vocab), places_(places) {}
  virtual ~Decoder() = default;

  // Forgets the text in a place.
  virtual void clear(index_t place) = 0;
  // Adds tokens to the text in a place: the logits (V) of the last one. Logits are valid
  // until the next read() or step().
  virtual std::span<const Logit> read(index_t place,
                                      std::span<const data::TokenId> tokens) = 0;
  // Makes the text in an empty place one with the text in another.
  virtual void copy_text(index_t from, index_t to) = 0;
  // Adds a token to each of these texts: their logits, (texts, V).
  virtual std::span<const Logit> step(std::span<const Next> texts) = 0;
  // Positions that the text in a place has.
  virtual index_t length(index_t place) const = 0;

  index_t context() const { return context_; }  // positions there are
  index_t vocabulary() const { return vocabulary_; }
  index_t places() const { return places_; }

 private:
  index_t context_, vocabulary_, places_;
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

}  // namespace trireme::step

#endif  // TRIREME_STEP_DECODER_HPP_
