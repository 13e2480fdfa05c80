// layouts/encoder_decoder.hpp — a second kind of model, that only tests have: what shows
// that everything above the blocks knows no kind of model.
//
// It is an encoder and a decoder, as small as may be, made of the program's blocks and of
// two of its own. What no GPT has:
//   - three streams of different lengths; samples of the second are ragged, and the third
//     is not split along the sequence
//   - borders of up to three tensors
//   - `memory`, the encoder's output, and `marks`, some of its rows, which pass by the
//     decoder's layers that do not read them, and so by whole stages
//   - an objective beside the words', which has its gradients in the backward pass
//   - a block in the middle that reads no tensor (the decoder's embedding)
//   - uses that give an output
//   - texts that are made from others, with a part of the model, the marks, that takes no
//     part in it
//   - two shared tables, neither of which the first stage uses; of one of them all users
//     are layers, which a virtual pipeline deals to several chunks of one stage
//
// Its blocks, for ten layers:
//   kind        name             reads           makes     table
//   words       encoder/words                    memory    encoder/word
//   mlp         encoder/0..2     memory          memory
//   gather      marks/gather     memory          marks
//   mlp         marks/mlp        marks           marks
//   embedding   embedding                        text      embedding/word
//   meet        decoder/0        text, memory    text
//   words       decoder/1        text            text      notes
//   layer       decoder/2        text            text
//   words       decoder/3        text            text      notes
//   layer       decoder/4        text            text
//   words       decoder/5        text            text      notes
//   meet        decoder/6        text, memory    text
//   classify    marks/classify   marks
//   head        head             text                      embedding/word
#ifndef TRIREME_TESTS_LAYOUTS_ENCODER_DECODER_HPP_
#define TRIREME_TESTS_LAYOUTS_ENCODER_DECODER_HPP_

#include <memory>

#include "model/block.hpp"
#include "model/blueprint.hpp"

namespace trireme::test {

inline constexpr index_t kSourceSequence = 48, kSourceHidden = 36;
inline constexpr index_t kSourceVocabulary = 53;
inline constexpr index_t kMarkCount = 5, kMarkClasses = 7;  // of a sample; of a mark

// `text` has the dimensions of the architecture, and a third of its layers are the
// encoder's. Made for its vectors it is the encoder with a mean over each sample's
// memory, made for words the encoder with the classes of the marks, as numbers before
// their softmax.
model::Blueprint encoder_decoder(const model::Architecture& text,
                                 model::Use use = model::Use::training);

template <class T>
std::unique_ptr<model::Block<T>> make_encoder_decoder_block(
    const model::Making<T>& making);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_ENCODER_DECODER_HPP_
