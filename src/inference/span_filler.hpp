// inference/span_filler.hpp — the spans that sentinels of a text stand for, by a model
// that reads the text and writes them: of "the <extra_id_0> of it", "house".
//
// What the model writes has the form that it is trained with (span_maker.hpp of data):
// each sentinel, in the order of the text, and behind it what is in its place. Sentinels
// are given, and the words between them are the most probable ones, one after the other.
// A gap ends where the model writes a sentinel or the end; with its share of the
// positions that are left at the latest, so that later gaps have room, too. A model that
// keeps to the form writes the same without being led.
#ifndef TRIREME_INFERENCE_SPAN_FILLER_HPP_
#define TRIREME_INFERENCE_SPAN_FILLER_HPP_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/tokenizer.hpp"
#include "inference/filling.hpp"
#include "inference/model_loader.hpp"
#include "step/decoder.hpp"

namespace trireme::inference {

class SpanFiller final : public Filler {
 public:
  // InputError: no tokenizer, or one without sentinels among the model's words, or
  // without an end of texts.
  explicit SpanFiller(const LoadedModel& model);

  // Sentinels are numbered in the order of the text, from 0 on.
  FilledText fill(std::string_view text) override;

 private:
  struct Word {
    data::TokenId id = 0;
    double probability = 0.0;
  };
  // Bytes of the text that are a sentinel.
  struct Place {
    std::size_t begin = 0, end = 0;
  };

  data::TokenId sentinel(index_t number) const;
  std::vector<Place> places_in(std::string_view text) const;
  std::vector<data::TokenId> source_of(std::string_view text) const;
  FilledGap write(index_t number, index_t room);
  Word next_behind(data::TokenId token);
  bool ends_span(data::TokenId id) const;

  const LoadedModel& model_;
  data::Sentinels sentinels_;
  data::TokenId end_ = 0, first_ = 0;  // of a text; the first is not part of it
  std::unique_ptr<step::Decoder> decoder_;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_SPAN_FILLER_HPP_
