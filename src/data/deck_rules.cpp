// data/deck_rules.cpp — see deck_rules.hpp.
//
// What a kind of model needs of a corpus is asked of all of them before the first sample
// is made. A corpus that merely lacks it would train without a word: an objective that
// counts nothing has no gradient. So each refusal names the option of `trireme tokenize`
// that makes a corpus which has it.
#include "data/deck_rules.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/enums.hpp"
#include "data/masked_vocabulary.hpp"
#include "data/tokenizer.hpp"

namespace trireme::data {

namespace {

// What make(tokenizer) makes of the corpus' tokenizer; its errors name the corpus.
template <class Make>
auto of_tokenizer(const Corpus& corpus, const Make& make) {
  try {
    const auto tokenizer = Tokenizer::from_files(corpus.tokenizer_files());
    TRIREME_REQUIRE_INPUT(tokenizer.vocabulary_size() <= corpus.vocabulary_size(),
                          "its tokenizer has a vocabulary of {}, and it one of {}: the "
                          "file is damaged",
                          tokenizer.vocabulary_size(), corpus.vocabulary_size());
    return make(tokenizer);
  } catch (const InputError& error) {
    throw InputError(
        fmt::format("corpus '{}': {}", corpus.path().string(), error.what()));
  }
}

Sentinels sentinels_of(const Tokenizer& tokenizer) {
  const Sentinels sentinels = tokenizer.sentinels();
  TRIREME_REQUIRE_INPUT(
      sentinels.count > 0,
      "its tokenizer ({}) has no sentinels, which the samples of a t5 model are made "
      "with: make the corpus again, with a model of SentencePiece and `trireme tokenize "
      "--extra-ids 100`, which adds them, or with T5's own tokenizer",
      tokenizer.model().description());
  return sentinels;
}

bool has_two_sentences(const Corpus& corpus, index_t document) {
  const index_t first = corpus.first_sentence_from(corpus.document_begin(document));
  return first + 1 < corpus.sentence_count() &&
         corpus.sentence_begin(first + 1) < corpus.document_begin(document + 1);
}

// Whether there is a document of two sentences. Where there are more sentences than
// documents there is; else most corpora are looked through to their end.
bool has_pairs(const Corpus& corpus) {
  if (corpus.sentence_count() > corpus.document_count()) return true;
  for (index_t d = 0; d < corpus.document_count(); ++d) {
    if (has_two_sentences(corpus, d)) return true;
  }
  return false;
}

MaskedRules masked_rules(const config::Deck& deck, const Corpus& first) {
  const config::DataConfig& data = deck.data;
  const auto vocabulary = [&](const Tokenizer& tokenizer) {
    return std::make_shared<const MaskedVocabulary>(
        masked_vocabulary(tokenizer, first.vocabulary_size(), first.end_of_document()));
  };
  return {.sequence = deck.model.sequence,
          .predictions = deck.model.max_predictions,
          .mask_prob = data.mask_prob,
          .short_seq_prob = data.short_seq_prob,
          .whole_words = data.whole_words,
          .max_ngrams = data.max_ngrams,
          .pairs = data.pairs,
          .pack = data.pack,
          .reset_position_ids = data.reset_position_ids,
          .vocabulary = of_tokenizer(first, vocabulary)};
}

SpanRules span_rules(const config::Deck& deck, const Corpus& corpus) {
  SpanRules rules{.source = deck.model.sequence,
                  .target = deck.model.decoder_sequence,
                  .density = deck.data.mask_prob,
                  .mean_length = deck.data.mean_noise_span_length,
                  .pack = deck.data.pack,
                  .end = static_cast<std::int32_t>(corpus.end_of_document())};
  const Sentinels sentinels = of_tokenizer(corpus, [&](const Tokenizer& tokenizer) {
    const Sentinels found = sentinels_of(tokenizer);
    rules.padding = static_cast<std::int32_t>(tokenizer.special(Special::padding));
    return found;
  });
  rules.first_sentinel = static_cast<std::int32_t>(sentinels.first);
  rules.sentinels = sentinels.count;
  return rules;
}

}  // namespace

void require_sentences(const config::Deck& deck, const Corpus& corpus) {
  const config::Pairs pairs = deck.data.pairs;
  if (deck.model.kind != config::ModelKind::bert || pairs == config::Pairs::none) return;
  TRIREME_REQUIRE_INPUT(
      corpus.has_sentences(),
      "corpus '{}' has no sentences, and data.pairs: {} makes pairs of segments of them: "
      "make it again with `trireme tokenize --sentences LANGUAGE` (a model that is "
      "trained with data.pairs: none and model.binary_head: false needs none)",
      corpus.path().string(), config::name_of(pairs));
  TRIREME_REQUIRE_INPUT(
      has_pairs(corpus),
      "corpus '{}' has no document of two sentences, and data.pairs: {} makes pairs of a "
      "document's: make it again with `trireme tokenize --documents blank-line` or "
      "`--documents file`, where a line of its text is less than a document",
      corpus.path().string(), config::name_of(pairs));
  TRIREME_REQUIRE_INPUT(
      pairs != config::Pairs::next || corpus.document_count() > 1,
      "corpus '{}' has one document, and data.pairs: next takes every other second "
      "segment from another one: make it again with `trireme tokenize --documents "
      "blank-line`, which begins a document behind each blank line, or train with "
      "data.pairs: order",
      corpus.path().string());
}

SampleRules rules_of(const config::Deck& deck,
                     std::span<const std::shared_ptr<const Corpus>> corpora) {
  TRIREME_REQUIRE(!corpora.empty(), "rules of samples of no corpus");
  switch (deck.model.kind) {
    case config::ModelKind::gpt:
      return sample_rules(NextTokenRules{.sequence = deck.model.sequence,
                                         .mask_end_of_document = deck.data.mask_eod_loss},
                          deck.data.seed);
    case config::ModelKind::bert:
      for (const auto& corpus : corpora) require_sentences(deck, *corpus);
      return sample_rules(masked_rules(deck, *corpora.front()), deck.data.seed);
    case config::ModelKind::t5:
      return sample_rules(span_rules(deck, *corpora.front()), deck.data.seed);
  }
  throw Error("rules_of: no ModelKind");
}

}  // namespace trireme::data
