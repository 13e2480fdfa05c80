// layouts/encoder_decoder.hpp — a second kind of model, that only tests have: what shows
// that everything above the blocks knows no kind of model.
//
// It is an encoder and a decoder, as small as may be, made of the program's blocks and of
// two of its own. What no GPT has:
//   - two streams of different lengths; samples of the second are ragged
//   - borders of three sizes: `memory`, `text` and `memory`, `text`
//   - `memory`, the encoder's output, which passes by the decoder's layers that do not
//     read it, and so by whole stages
//   - a block in the middle that reads no tensor (the decoder's embedding)
//   - two shared tables, neither of which the first stage uses; of one of them all users
//     are layers, which a virtual pipeline deals to several chunks of one stage
//
// Its blocks, for ten layers:
//   kind        name            reads           makes     table
//   words       encoder/words                   memory    encoder/word
//   mlp         encoder/0..2    memory          memory
//   embedding   embedding                       text      embedding/word
//   meet        decoder/0       text, memory    text
//   words       decoder/1       text            text      notes
//   layer       decoder/2       text            text
//   words       decoder/3       text            text      notes
//   layer       decoder/4       text            text
//   words       decoder/5       text            text      notes
//   meet        decoder/6       text, memory    text
//   head        head            text                      embedding/word
#ifndef TRIREME_TESTS_LAYOUTS_ENCODER_DECODER_HPP_
#define TRIREME_TESTS_LAYOUTS_ENCODER_DECODER_HPP_

#include <memory>

#include "model/block.hpp"
#include "model/blueprint.hpp"

namespace trireme::test {

inline constexpr index_t kSourceSequence = 48, kSourceHidden = 36;
inline constexpr index_t kSourceVocabulary = 53;

// `text` has the dimensions of the architecture, and a third of its layers are the
// encoder's.
model::Blueprint encoder_decoder(const model::Architecture& text);

template <class T>
std::unique_ptr<model::Block<T>> make_encoder_decoder_block(
    const model::Making<T>& making);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_ENCODER_DECODER_HPP_
