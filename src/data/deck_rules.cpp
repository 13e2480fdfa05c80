// data/deck_rules.cpp — see deck_rules.hpp.
//
// What a kind of model needs of a corpus is asked of all of them before the first sample
// is made. A corpus that merely lacks it would train without a word: an objective that
// counts nothing has no gradient. So each refusal names the option of `trireme tokenize`
// that makes a corpus which has it.
// The parts that data.split makes are asked, too, as nothing of one is read for another:
// of two documents of one length that are cut [0.45, 0.55, 0], training sees the first
// alone and has no other one to take a second segment from. Documents are gone through in
// their order, up to the first that is looked for, and nothing is kept of them.
#include "data/deck_rules.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/enums.hpp"
#include "data/dataset.hpp"
#include "data/masked_vocabulary.hpp"
#include "data/sentences.hpp"
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

TokenRange whole_of(const Corpus& corpus) {
  return {0, corpus.token_count()};
}

// Whether a document has two sentences in the part: one begins within its text.
bool has_pairs(const Corpus& corpus, const TokenRange& part) {
  if (part.size() <= 0) return false;
  const index_t first = corpus.document_of(part.begin);
  const index_t last = corpus.document_of(part.end - 1);
  index_t sentence = corpus.first_sentence_from(part.begin + 1);
  // Each document that begins behind the part's first token has one first sentence: of
  // more sentences than these documents one is a second. Else most parts are gone through
  // to their end.
  if (corpus.first_sentence_from(part.end) - sentence > last - first) return true;
  for (index_t document = first; document <= last; ++document) {
    const TokenRange text = text_of_document(corpus, part, document);
    while (sentence < corpus.sentence_count() &&
           corpus.sentence_begin(sentence) <= text.begin) {
      ++sentence;
    }
    if (sentence == corpus.sentence_count()) return false;
    if (corpus.sentence_begin(sentence) < text.end) return true;
  }
  return false;
}

// Whether so many documents have this many tokens of text each in the part.
bool has_documents(const Corpus& corpus, const TokenRange& part, index_t documents,
                   index_t tokens) {
  if (part.size() <= 0) return false;
  const index_t last = corpus.document_of(part.end - 1);
  for (index_t document = corpus.document_of(part.begin); document <= last; ++document) {
    if (text_of_document(corpus, part, document).size() < tokens) continue;
    if (--documents <= 0) return true;
  }
  return false;
}

// A part of a corpus in a message: what it is, and what its user can do for it besides
// making the corpus again.
struct PartWords {
  std::string subject, advice;
};
PartWords part_words(const Corpus& corpus, const TokenRange& part,
                     const std::string& name) {
  const std::string whole = fmt::format("corpus '{}'", corpus.path().string());
  if (part.size() == corpus.token_count()) return {whole, ""};
  return {fmt::format("'{}' of {}", name, whole),
          "take another share of it (data.split), name a corpus for validation "
          "(data.validation), or "};
}

// Of documents that `--documents line` made too short.
constexpr const char* kLongerDocuments =
    "make the corpus again with `trireme tokenize --documents blank-line` or "
    "`--documents file`, where a line of its text is less than a document";

// Of documents that --sentences none left whole.
constexpr const char* kSentencesOfLanguage =
    "make the corpus again with `trireme tokenize --sentences en`, or another LANGUAGE, "
    "by whose rules a sentence ends within a line";

// Whether only blank lines end its sentences: documents that end there have one each.
bool has_sentences_by_blank_lines(const Corpus& corpus) {
  return corpus.sentence_language() == code_of(Language::none);
}

// The tokens of text that a document has at least of which anything counts.
index_t least_tokens(const config::Deck& deck) {
  switch (deck.model.kind) {
    case config::ModelKind::gpt:  // what follows the end of a document counts, too
      return deck.data.mask_eod_loss ? 1 : 0;
    case config::ModelKind::bert:
      return 1;
    case config::ModelKind::t5:
      return deck.data.pack ? 0 : 2;
  }
  throw Error("least_tokens: no ModelKind");
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
  require_pairs(deck, corpus, whole_of(corpus), "");
}

void require_counted(const config::Deck& deck, const Corpus& corpus,
                     const TokenRange& part, const std::string& name) {
  const index_t tokens = least_tokens(deck);
  const PartWords words = part_words(corpus, part, name);
  const bool has_text = tokens == 0 || has_documents(corpus, part, 1, tokens);
  TRIREME_REQUIRE_INPUT(
      has_text || tokens != 1,
      "{} has no document with a token of text, and of the ends of documents alone "
      "nothing counts for the loss: {}make the corpus again of text that its tokenizer "
      "has tokens for",
      words.subject, words.advice);
  TRIREME_REQUIRE_INPUT(
      has_text,
      "{} has no document of two tokens, and with data.pack: false a sample is of one "
      "document, of which nothing can be hidden then: {}{}, or train with data.pack: "
      "true",
      words.subject, words.advice, kLongerDocuments);
}

void require_pairs(const config::Deck& deck, const Corpus& corpus, const TokenRange& part,
                   const std::string& name) {
  const config::Pairs pairs = deck.data.pairs;
  if (deck.model.kind != config::ModelKind::bert || pairs == config::Pairs::none) return;
  const PartWords words = part_words(corpus, part, name);
  const bool by_blank_lines = has_sentences_by_blank_lines(corpus);
  TRIREME_REQUIRE_INPUT(
      has_pairs(corpus, part),
      "{} has no document of two sentences, and data.pairs: {} makes pairs of a "
      "document's: {}{}{}",
      words.subject, config::name_of(pairs),
      by_blank_lines
          ? "it was made with --sentences none, where only blank lines end a sentence: "
          : "",
      words.advice, by_blank_lines ? kSentencesOfLanguage : kLongerDocuments);
  TRIREME_REQUIRE_INPUT(
      pairs != config::Pairs::next || has_documents(corpus, part, 2, 1),
      "{} has one document with text, and data.pairs: next takes every other second "
      "segment from another one: {}make the corpus again with `trireme tokenize "
      "--documents blank-line{}`, which begins a document behind each blank line, or "
      "train with data.pairs: order",
      words.subject, words.advice, by_blank_lines ? " --sentences en" : "");
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
