// data/sample_maker.cpp — see sample_maker.hpp.
#include "data/sample_maker.hpp"

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "data/masked_maker.hpp"
#include "data/sample_rules.hpp"
#include "data/span_maker.hpp"

namespace trireme::data {

namespace {

// Samples of a language model, by the fields of fields.cpp.
class NextTokenMaker : public SampleMaker {
 public:
  NextTokenMaker(const Dataset& dataset, const NextTokenRules& rules)
      : dataset_(dataset),
        rules_(rules),
        tokens_(static_cast<std::size_t>(dataset.rules().windows.tokens)) {}

  void make(index_t position, std::span<const SampleColumn> columns) override {
    const Dataset::Place place = dataset_.place(position);
    dataset_.copy(place, tokens_.data());
    const Sample sample{
        .tokens = {tokens_.data(), static_cast<std::size_t>(place.tokens.size())},
        .sequence = rules_.sequence,
        .end_of_document = static_cast<std::int32_t>(dataset_.end_of_document()),
        .mask_end_of_document = rules_.mask_end_of_document};
    for (const SampleColumn& column : columns) {
      fill_field(column.field, sample, column.to);
    }
  }

 private:
  const Dataset& dataset_;
  NextTokenRules rules_;
  std::vector<std::int32_t> tokens_;  // of one window
};

}  // namespace

std::unique_ptr<SampleMaker> make_sample_maker(const Dataset& dataset) {
  const auto& kind = dataset.rules().kind;
  if (const auto* spans = std::get_if<SpanRules>(&kind)) {
    return std::make_unique<SpanMaker>(dataset, *spans);
  }
  if (const auto* masked = std::get_if<MaskedRules>(&kind)) {
    return std::make_unique<MaskedMaker>(dataset, *masked);
  }
  return std::make_unique<NextTokenMaker>(dataset, std::get<NextTokenRules>(kind));
}

}  // namespace trireme::data
