// step/decoder.hpp — new tokens through a whole model, with the keys and values of
// earlier positions kept (KV cache): what texts are generated with.
//
// Memory is taken once, for the model's longest sequence and a number of texts side by
// side. With a tensor group every rank of it makes the same calls and gets the same
// logits.
#ifndef TRIREME_STEP_DECODER_HPP_
#define TRIREME_STEP_DECODER_HPP_

#include <memory>
#include <span>

#include "base/types.hpp"
#include "data/bpe.hpp"
#include "model/blueprint.hpp"
#include "step/model_state.hpp"

namespace trireme::step {

class Decoder {
 public:
  // Tokens of one pass at most: bounds the workspace whatever a prompt's length.
  static constexpr index_t kPieceRows = 512;

  Decoder(const model::Architecture& model, index_t most_texts)
      : context_(model.sequence), vocabulary_(model.vocab), most_(most_texts) {}
  virtual ~Decoder() = default;

  // Begins anew with so many empty texts.
  virtual void start(index_t texts) = 0;
  // Tokens (n, texts) are added to them, and the logits (texts, V) of the last n come
  // back, valid until the next call.
  virtual std::span<const double> feed(std::span<const data::TokenId> tokens) = 0;
  // Positions filled since start().
  virtual index_t length() const = 0;

  index_t context() const { return context_; }  // positions there are
  index_t vocabulary() const { return vocabulary_; }
  index_t most_texts() const { return most_; }

 private:
  index_t context_, vocabulary_, most_;
};

// The weights in `state` must be allocated and outlive the decoder; they may change.
template <class T>
std::unique_ptr<Decoder> make_decoder(const Exec& exec, ModelState<T>& state,
                                      index_t most_texts = 1);

// Bytes of the keys and values, and of all, known before any are allocated.
struct DecoderMemory {
  std::size_t cache = 0, total = 0;
};
template <class T>
DecoderMemory plan_decoder(const ModelState<T>& state, index_t most_texts);

}  // namespace trireme::step

#endif  // TRIREME_STEP_DECODER_HPP_
