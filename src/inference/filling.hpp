// inference/filling.hpp — what is missing in a text, by a model that was trained to find
// it: for each mask of a text the most probable words, by a BERT, or the spans that
// sentinels stand for, by a T5.
//
// A gap is what stands in a text in place of something else. How gaps are marked and
// filled is the model's affair: one with an output gives words for each mask by itself
// (mask_filler.hpp), one that makes texts from others writes a span for one sentinel
// after the other (span_filler.hpp).
#ifndef TRIREME_INFERENCE_FILLING_HPP_
#define TRIREME_INFERENCE_FILLING_HPP_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/tokenizer.hpp"
#include "inference/model_loader.hpp"

namespace trireme::inference {

// What may stand in a gap.
struct Filling {
  std::vector<data::TokenId> ids = {};
  std::string text = {};
  double probability = 0.0;
};

struct FilledGap {
  std::string name;                    // "mask 1 of 2", "<extra_id_0>"
  index_t position = 0;                // among the tokens that the model reads
  std::vector<Filling> fillings = {};  // the most probable first
  bool is_cut = false;                 // it might have gone on, but there was no room
};

struct FilledText {
  std::vector<FilledGap> gaps = {};  // as they stand in the text
  // The text with its gaps filled, where each gap knows what the others are filled with.
  std::optional<std::string> whole = {};
};

class Filler {
 public:
  // `top`: fillings of each gap.
  explicit Filler(index_t top) : top_(top) {}
  virtual ~Filler() = default;

  // InputError: no gap in the text, or gaps that are not as the model has them, more
  // tokens than it reads, weights that give no numbers.
  virtual FilledText fill(std::string_view text) = 0;
  index_t top() const { return top_; }

 private:
  index_t top_;
};

// `model`, loaded for its words, must outlive it. `top`, where it is given: fillings of
// each gap, fewer where the vocabulary has fewer words. InputError: no tokenizer, or one
// without the tokens that the model wants; more than one filling of a model that writes
// one.
std::unique_ptr<Filler> make_filler(const LoadedModel& model,
                                    std::optional<index_t> top = {});

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_FILLING_HPP_
