// data/segment_choice.cpp — see segment_choice.hpp.
//
// Texts are cut by where they begin and end, before any of their tokens is read. A
// sentence may be longer than all samples: of what is taken no more than two samples'
// length is kept, so that what is in its middle, and what is before it, is read as often
// as other text. Sentences are not checked when a corpus is opened: where they do not
// ascend, whoever comes by says so.
#include "data/segment_choice.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "config/enums.hpp"
#include "data/corpus.hpp"

namespace trireme::data {

namespace {

constexpr int kTries = 10;  // to find another document

struct DocumentRun {
  index_t first, count;
};
DocumentRun documents_of(const Corpus& corpus, TokenRange part) {
  const index_t first = corpus.document_of(part.begin);
  return {first, corpus.document_of(part.end - 1) - first + 1};
}

// The next one with text from this one on, going round in the part; this one where none
// has.
index_t document_with_text(const Corpus& corpus, TokenRange part, index_t document) {
  if (text_of_document(corpus, part, document).size() > 0) return document;
  const DocumentRun all = documents_of(corpus, part);
  for (index_t i = 1; i < all.count; ++i) {
    const index_t next = all.first + (document - all.first + i) % all.count;
    if (text_of_document(corpus, part, next).size() > 0) return next;
  }
  return document;
}

[[noreturn]] void throw_damage(const Corpus& corpus, index_t sentence) {
  throw InputError(fmt::format(
      "corpus '{}': /sentences does not ascend, or leaves out where a document "
      "begins, near sentence {}: the file is damaged (`trireme inspect "
      "--verify` tells more)",
      corpus.path().string(), sentence));
}

// The sentence of the document that has this token.
index_t sentence_of(const Corpus& corpus, index_t document, index_t token) {
  const index_t sentence = corpus.first_sentence_from(token + 1) - 1;
  if (sentence < 0 || corpus.sentence_begin(sentence) < corpus.document_begin(document)) {
    throw_damage(corpus, sentence);
  }
  return sentence;
}

struct SentenceRun {
  TokenRange tokens;
  index_t first = 0, count = 0;
};

// Sentences of a text from `begin` on, which is in sentence `first`: whole ones with so
// many tokens, and so many of them, or all that there are.
SentenceRun sentences_from(const Corpus& corpus, TokenRange text, index_t first,
                           index_t begin, index_t tokens, index_t least) {
  SentenceRun taken{{begin, begin}, first, 0};
  do {
    const index_t next = first + ++taken.count;
    const index_t end = next < corpus.sentence_count()
                            ? std::min(corpus.sentence_begin(next), text.end)
                            : text.end;
    if (end <= taken.tokens.end) throw_damage(corpus, next);
    taken.tokens.end = end;
  } while (taken.tokens.end < text.end &&
           (taken.tokens.size() < tokens || taken.count < least));
  return taken;
}

// The front of it.
SentenceRun capped(const Corpus& corpus, SentenceRun taken, index_t tokens) {
  taken.tokens.end = std::min(taken.tokens.end, taken.tokens.begin + tokens);
  while (taken.count > 1 &&
         corpus.sentence_begin(taken.first + taken.count - 1) >= taken.tokens.end) {
    --taken.count;
  }
  return taken;
}

// Sentences of a document's text around so many tokens from `start` on, and so many of
// them, where there are.
SentenceRun sentences_at(const Corpus& corpus, index_t document, TokenRange text,
                         index_t start, index_t tokens, index_t least) {
  const auto begin_of = [&](index_t sentence) {
    return std::max(text.begin, corpus.sentence_begin(sentence));
  };
  const index_t first = sentence_of(corpus, document, start);
  // Far behind where a long sentence begins: within it.
  const bool is_within = start - begin_of(first) >= tokens;
  const index_t begin = is_within ? start : begin_of(first);
  SentenceRun taken = sentences_from(corpus, text, first, begin, start - begin + tokens,
                                     is_within ? 1 : least);
  const index_t room = 2 * tokens;
  if (taken.count < least && !is_within && begin > text.begin &&
      taken.tokens.size() < room) {
    // The text's last one, with the end of the one before.
    taken.tokens.begin = std::max(begin_of(first - 1), taken.tokens.end - room);
    --taken.first;
    ++taken.count;
  }
  return capped(corpus, taken, room);
}

// Takes so many tokens off, a drawn number of them from the front.
void shorten(TokenRange& tokens, index_t by, Draws& draws) {
  const index_t front = draws.below(by + 1);
  tokens = {tokens.begin + front, tokens.end - (by - front)};
}

}  // namespace

SegmentChooser::Text SegmentChooser::text_around(const Dataset::Place& place) const {
  const Corpus& corpus = *place.corpus;
  const std::uint64_t seed = dataset_.rules().seed;
  Draws shift(seed, {place.sample.corpus, place.sample.epoch, 0}, Draws::Purpose::shift);
  // A last window may be shorter.
  const index_t number = shift.below(place.whole);
  const index_t anchor = place.tokens.begin + std::min(number, place.tokens.size() - 1);
  index_t before = shift.below(rules_.text());
  Text text;
  text.most = rules_.text();
  Draws draws(seed, place.sample, Draws::Purpose::text);
  if (draws.happens(rules_.short_seq_prob)) {
    const index_t least = rules_.least_text();
    text.most = least + draws.below(text.most - least + 1);
    before = before * text.most / rules_.text();
  }
  text.document = document_with_text(corpus, place.part, corpus.document_of(anchor));
  const TokenRange all = text_of_document(corpus, place.part, text.document);
  if (all.size() <= 0) return text;
  const index_t inside = std::clamp(anchor, all.begin, all.end - 1);
  const index_t start =
      std::clamp(inside - before, all.begin, std::max(all.begin, all.end - text.most));
  SentenceRun taken{{start, std::min(start + text.most, all.end)}, 0, 1};
  if (corpus.has_sentences()) {
    const index_t least = rules_.pairs == config::Pairs::none ? 1 : 2;
    taken = sentences_at(corpus, text.document, all, start, text.most, least);
  }
  text.tokens = taken.tokens;
  text.sentence = taken.first;
  text.sentences = taken.count;
  return text;
}

// From a random sentence on of a random other document; empty where none was found.
TokenRange SegmentChooser::other_text(const Dataset::Place& place, index_t document,
                                      index_t tokens, Draws& draws) const {
  const Corpus& corpus = *place.corpus;
  const DocumentRun all = documents_of(corpus, place.part);
  for (int i = 0; i < kTries && all.count > 1; ++i) {
    const index_t other = all.first + draws.below(all.count);
    const TokenRange text = text_of_document(corpus, place.part, other);
    if (other == document || text.size() <= 0) continue;
    const index_t first = sentence_of(corpus, other, text.begin);
    const index_t sentences = corpus.first_sentence_from(text.end) - first;
    const index_t sentence = first + draws.below(std::max<index_t>(sentences, 1));
    const index_t begin = std::max(text.begin, corpus.sentence_begin(sentence));
    return capped(corpus, sentences_from(corpus, text, sentence, begin, tokens, 1),
                  2 * rules_.text())
        .tokens;
  }
  return {};
}

// A text of two sentences or more.
Segments SegmentChooser::pair_of(const Dataset::Place& place, const Text& text) const {
  Draws draws(dataset_.rules().seed, place.sample, Draws::Purpose::pair);
  const index_t cut =
      place.corpus->sentence_begin(text.sentence + 1 + draws.below(text.sentences - 1));
  Segments pair{{text.tokens.begin, cut}, {cut, text.tokens.end}};
  pair.is_other = draws.below(2) == 1;
  if (pair.is_other && rules_.pairs == config::Pairs::next) {
    const index_t room = std::max<index_t>(text.most - pair.first.size(), 1);
    const TokenRange other = other_text(place, text.document, room, draws);
    if (other.size() > 0) pair.second = other;
    pair.is_other = other.size() > 0;
  }
  if (pair.is_other && rules_.pairs == config::Pairs::order) {
    std::swap(pair.first, pair.second);
  }
  return pair;
}

// As if token by token were taken from the longer segment, of equal ones from the second.
void SegmentChooser::truncate(const Dataset::Place& place, index_t most,
                              Segments& segments) const {
  const index_t first = segments.first.size(), second = segments.second.size();
  const index_t excess = first + second - most;
  if (excess <= 0) return;
  Draws draws(dataset_.rules().seed, place.sample, Draws::Purpose::truncation);
  const index_t levelled = std::min(excess, std::abs(first - second));
  const index_t of_first = (first > second ? levelled : 0) + (excess - levelled) / 2;
  shorten(segments.first, of_first, draws);
  shorten(segments.second, excess - of_first, draws);
}

Segments SegmentChooser::choose(const Dataset::Place& place) const {
  const Text text = text_around(place);
  if (text.sentences == 0) return {};
  Segments segments;
  if (rules_.pairs != config::Pairs::none && text.sentences > 1) {
    segments = pair_of(place, text);
  } else {
    segments.first = text.tokens;
  }
  truncate(place, text.most, segments);
  return segments;
}

}  // namespace trireme::data
