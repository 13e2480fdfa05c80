#!/usr/bin/env python3
"""Samples of BERT and T5 from their seed: docs/math/masking.md and span_corruption.md.
    samples.py masked SEED CORPUS EPOCH WINDOW WANTED NGRAMS WORD...   positions; WORD: its
                                                                       tokens, or - for [SEP]
    samples.py noise TOKENS P MEAN                                     noise tokens, spans
A corpus is the first tokens of its documents (and where the last one ends) and of its
sentences; `part` is what data.split gives: [begin, end)."""
import bisect, math, sys
from random_numbers import below, draws, permute, spans

def window_of(position, seed, corpus, part, width):  # epoch, and number in it
    n = (part[1] - part[0]) // width
    epoch, place = divmod(position, n)
    return epoch, permute(place, n, seed, corpus << 32 | epoch & 0xffffffff)
def document_of(token, documents):
    return bisect.bisect_right(documents, token) - 1
def text_of(document, part, documents):  # without its end
    return max(part[0], documents[document]), min(part[1], documents[document + 1] - 1)
def size(tokens):
    return tokens[1] - tokens[0]

# The text: its tokens, and the sentences in it as first and number.
def text(at, part, documents, sentences, width, room, least, short):
    seed, corpus, epoch, window = at
    clamp = lambda value, low, high: max(low, min(value, high))
    words, begin = draws(seed, corpus, epoch, 0, 3), part[0] + window * width
    anchor, before = begin + min(below(words, width), part[1] - begin - 1), below(words, room)
    words, most = draws(*at, 4), room
    if next(words) < short * 2**32:
        most = least + below(words, room - least + 1)
        before = before * most // room
    first, last = (document_of(token, documents) for token in (part[0], part[1] - 1))
    document = document_of(anchor, documents)
    for _ in range(first, last + 1):
        if size(text_of(document, part, documents)) > 0: break
        document = document + 1 if document < last else first
    begin, end = text_of(document, part, documents)
    start = clamp(clamp(anchor, begin, end - 1) - before, begin, max(begin, end - most))
    if not sentences: return document, most, (start, min(start + most, end)), 0, 1
    begin_of = lambda sentence: max(begin, sentences[sentence])
    end_of = lambda n: min(end, sentences[n + 1]) if n + 1 < len(sentences) else end
    n = last = bisect.bisect_right(sentences, start) - 1
    is_within = start - begin_of(n) >= most
    front = start if is_within else begin_of(n)
    while end_of(last) < end and (end_of(last) < start + most or
                                  not is_within and last - n + 1 < least): last += 1
    is_last_alone = last - n + 1 < least and not is_within and front > begin
    if is_last_alone and end_of(last) - front < 2 * most:
        n, front = n - 1, max(begin_of(n - 1), end_of(last) - 2 * most)
    back = min(end_of(last), front + 2 * most)
    count = sum(1 for i in range(n, last + 1) if i == n or sentences[i] < back)
    return document, most, (front, back), n, count
def other_text(words, document, tokens, room, part, documents, sentences):
    first, last = (document_of(token, documents) for token in (part[0], part[1] - 1))
    for _ in range(10 if last > first else 0):
        other = first + below(words, last - first + 1)
        begin, end = text_of(other, part, documents)
        if other == document or end <= begin: continue
        n = bisect.bisect_right(sentences, begin) - 1
        n += below(words, max(1, bisect.bisect_left(sentences, end) - n))
        front = max(begin, sentences[n])
        ends = [s for s in sentences[n + 1:] if s < end] + [end]
        back = next((e for e in ends if e - front >= tokens), end)
        return front, min(back, front + 2 * room)
def segments(at, part, documents, sentences, width, room, pairs, short):
    least = 1 if pairs == "none" else 2
    document, most, tokens, n, count = text(at, part, documents, sentences, width, room,
                                            least, short)
    both, is_other = [tokens, (0, 0)], False
    if pairs != "none" and count > 1:
        words = draws(*at, 5)
        cut = sentences[n + 1 + below(words, count - 1)]
        both, is_other = [(tokens[0], cut), (cut, tokens[1])], below(words, 2) == 1
        if is_other and pairs == "order": both.reverse()
        if is_other and pairs == "next":
            other = other_text(words, document, max(1, most - size(both[0])), room, part,
                               documents, sentences)
            is_other = other is not None
            if is_other: both[1] = other
    lost = [0, 0]
    while size(both[0]) + size(both[1]) - sum(lost) > most:
        lost[0 if size(both[0]) - lost[0] > size(both[1]) - lost[1] else 1] += 1
    words = draws(*at, 6)
    for i in (0, 1) if sum(lost) else ():
        front = below(words, lost[i] + 1)
        both[i] = both[i][0] + front, both[i][1] - (lost[i] - front)
    return both, is_other

# Words are (begin, end) of the sample's positions; what is masked of them, ascending.
def words_of(ids, structural, going_on, whole_words):
    words, is_open = [], False
    for place, token in enumerate(ids):
        if token in structural: is_open = False
        elif is_open and token in going_on: words[-1] = words[-1][0], place + 1
        else: words, is_open = words + [(place, place + 1)], whole_words
    return words
def masked(at, words, wanted, ngrams):
    drawn, words, taken = draws(*at, 7), list(words), set()
    order = list(range(len(words)))
    multiple = math.lcm(*range(1, ngrams + 1))
    for i in range(len(order)):
        if wanted == 0: break
        j = i + below(drawn, len(order) - i)
        order[i], order[j] = order[j], order[i]
        bounds = [sum(multiple // n for n in range(1, m + 1)) for m in range(1, ngrams + 1)]
        n = 1 + bisect.bisect_right(bounds, below(drawn, bounds[-1])) if ngrams > 1 else 1
        ngram = []
        for begin, end in words[order[i]:order[i] + n]:
            behind = not ngram or ngram[-1] + 1 == begin
            if not behind or len(ngram) + end - begin > wanted: break
            ngram += range(begin, end)
        if taken.isdisjoint(ngram):
            taken.update(ngram)
            wanted -= len(ngram)
    return sorted(taken)
def replacements(at, ids, masked, mask, ordinary):  # what the model reads
    words, ids = draws(*at, 8), list(ids)
    for place in masked:
        of_ten = below(words, 10)
        if of_ten < 8: ids[place] = mask
        if of_ten == 9: ids[place] = ordinary[below(words, len(ordinary))]
    return ids

# The ids before and after they are masked, which are, whether the second segment is the
# other kind, and where it begins. `its`: the corpus and its tokenizer; `rules`: the deck.
def of_bert(seed, corpus, position, part, its, rules):
    room = rules["sequence"] - (2 if rules["pairs"] == "none" else 3)
    width = room if rules["pack"] else min(room, its["mean_document"])
    at = seed, corpus, *window_of(position, seed, corpus, part, width)
    begin, is_other = part[0] + at[3] * width, False
    both = [(begin, begin + width), (0, 0)]
    if not rules["pack"]:
        both, is_other = segments(at, part, its["documents"], its["sentences"], width, room,
                                  rules["pairs"], rules["short_seq_prob"])
    ids = [its["cls"]] + its["tokens"][slice(*both[0])] + [its["sep"]]
    second = len(ids)
    if size(both[1]) > 0: ids += its["tokens"][slice(*both[1])] + [its["sep"]]
    ids = [its["sep"] if token == its["end"] else token for token in ids]
    words = words_of(ids, its["structural"], its["going_on"], rules["whole_words"])
    wanted = min(rules["predictions"], max(1, round(rules["mask_prob"] * len(ids))))
    places = masked(at, words, wanted, rules["max_ngrams"])
    shown = replacements(at, ids, places, its["mask"], its["ordinary"])
    return [ids, shown, places, is_other, second]

# Noise tokens and spans of a text of so many tokens, and the longest text of a source.
def noise(tokens, p, mean):
    hidden = min(max(round(tokens * p), 1), tokens - 1)
    return hidden, min(max(round(hidden / mean), 1), hidden, tokens - hidden)
def longest(source, p, mean):
    fits = lambda n: n - noise(n, p, mean)[0] + noise(n, p, mean)[1] + 1 <= source
    return next(n for n in range(2, 2 * source + 2) if not fits(n + 1))
def part_of_document(at, tokens, documents):  # of a text that is not packed
    token = tokens[0] + below(draws(*at, 0), size(tokens))
    return text_of(document_of(token, documents), tokens, documents)
def corrupted(at, ids, p, mean, sentinel, end):  # source and labels
    source, labels, place = [], [], 0
    if len(ids) >= 2:
        hidden, count = noise(len(ids), p, mean)
        for kept, lost in spans(*at, len(ids) - hidden, hidden, count):
            source += ids[place:place + kept] + [sentinel]
            labels += [sentinel] + ids[place + kept:place + kept + lost]
            place, sentinel = place + kept + lost, sentinel - 1
    return source + ids[place:] + [end], labels + [end]
def of_t5(seed, corpus, position, part, its, rules):
    width = longest(rules["sequence"], rules["mask_prob"], rules["mean_length"])
    at = seed, corpus, *window_of(position, seed, corpus, part, width)
    tokens = part[0] + at[3] * width, part[0] + (at[3] + 1) * width
    if not rules["pack"]: tokens = part_of_document(at, tokens, its["documents"])
    return corrupted(at, its["tokens"][slice(*tokens)], rules["mask_prob"],
                     rules["mean_length"], its["sentinel"], its["end"])

if __name__ == "__main__":
    if sys.argv[1] == "noise":
        print(noise(int(sys.argv[2]), *map(float, sys.argv[3:])))
    else:
        numbers, places, at = list(map(int, sys.argv[2:8])), [], 1  # behind [CLS]
        for word in sys.argv[8:]:
            if word != "-": places.append((at, at + int(word)))
            at += 1 if word == "-" else int(word)
        print(masked(numbers[:4], places, *numbers[4:]))
