#!/usr/bin/env python3
"""Makes the fixtures of the tokenizer tests with Hugging Face `tokenizers`.

    python3 tests/parity/make_tokenizer_fixtures.py [GPT2_DIRECTORY]

GPT2_DIRECTORY has encoder.json and vocab.bpe; without it the ids of GPT-2 are kept as they
are. Needs the package `tokenizers`; written with version 0.23. Into fixtures/tokenizer/ go
    sample.txt      valid UTF-8 of many kinds
    invalid.bin     the same with damaged bytes
    trained.json    a tokenizer.json trained on sample.txt
    split.json      another with a Split pattern, ignore_merges and added tokens
    ids.json        what they, and GPT-2's tokenizer, make of the two texts
    mixed.json      of 16 MiB of mixed text, document by document: checksums of the text and
                    of the ids that trained.json and GPT-2 make of it, and their numbers
"""
import json
import pathlib
import random
import struct
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent / "fixtures" / "tokenizer"
END = "<|endoftext|>"

PROSE = """In the beginning God created the heaven and the earth. And the earth was without
form, and void; and darkness was upon the face of the deep. And the Spirit of God moved
upon the face of the waters. And God said, Let there be light: and there was light. And God
saw the light, that it was good: and God divided the light from the darkness.

They'll say it's what we've got; I'd say you're right, I'm sure she doesn't. 'Tis 'twas.
THEY'LL SAY IT'S, I'M ’s ’ll.   Three spaces,\ttabs\t\tand trailing blanks   \n  \n\n \n
"""
CODE = """template <class T>
T* find(std::vector<T>& v, int n) {
    for (size_t i = 0; i < v.size(); ++i) {  // 0x1F600, 3.14159e-10
        if (v[i]->id == n && !v[i]->dead) return &v[i];
    }
\treturn nullptr;   /* ... */
}
def f(x, *, y=1_000_000): return {"a": [x, None], 'b': f"{y:>10.3f}"}  # TODO!!!
"""
WORLD = """Größe, naïve café, Ça va? Ελληνικά κείμενα, Русский текст, עברית, العربية ٣٤٥,
हिन्दी पाठ १२३, ไทย, 中文字符測試。日本語テキスト、한국어 텍스트! e\u0301 a\u030a ½ ² Ⅷ ① ㊿
😀👍🏽 👩‍👩‍👧‍👦 🇩🇪 ∑∫√ ≤≥ … “quotes” — dash ‐ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐐀𐐨 🀄
"""
# White space of all kinds, controls, and characters newer than Unicode 14.
ODD = ("\u00a0x\u00a0\u00a0y \u1680a\u180eb\u180e\u2003c\u2028d\u2029e\u202ff\u205fg\u3000"
       "h\u0085i\x0bj\x0ck\r\nl\rm\x00n\x01\x1c\x1d\x1e\x1f\x7fo\ufeffp\u200bq\u200d\n"
       "\U0001e030\U0001e031 \U00031350\U00031351 \U00010d40\U00010d41 \u1c89\u1c8a "
       "a\ua7cb\ua7dc \U000113d1 1\U0001ccf0 \U0010ffff\ue000 " + END + END[:-1] + " "
       + END + "x " + END + "\n")
LONG = "a" * 150 + " " + "ab" * 90 + " " * 130 + "." + "\n" * 40 + "9" * 120 + "é" * 80 + "\n"


def pieces_of_all(rng):
    """Short random strings from every part, so that odd neighbours meet."""
    text = PROSE + CODE + WORLD + ODD
    return "".join(text[(i := rng.randrange(len(text) - 4)):i + rng.randrange(1, 4)]
                   for _ in range(1500))


class Draw:
    """Numbers below n by splitmix64 (Steele et al. 2014), one stream per document."""

    def __init__(self, stream):
        self.state = stream << 40

    def __call__(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) % n


# Mixed text: this and tests/unit/data/mixed_text.hpp make the same bytes, draw by draw.
DOCUMENTS, DOCUMENT_BYTES = 64, 1 << 18
SPACES = "\n\t\r \u00a0\u2003\u3000\u0085"
SYMBOLS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
ENDINGS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "x"]


def any_character(draw):
    code = draw(0x110000)
    return chr(code - 0x800 if 0xD800 <= code < 0xE000 else code)


def emoji(draw):
    one = chr(0x1F300 + draw(0x800))
    more = draw(4)
    if more == 1:
        one += chr(0x1F3FB + draw(5))
    elif more == 2:
        one += "\ufe0f"
    elif more == 3:
        one += "\u200d" + chr(0x1F300 + draw(0x800))
    return one


def characters(draw, most, one):
    return "".join(one() for _ in range(1 + draw(most))).encode()


def mixed_piece(draw, sample, damaged):
    kind = draw(16)
    if kind < 5:  # whole characters of the sample
        begin = draw(len(sample))
        end = min(begin + 1 + draw(96), len(sample))
        while begin < len(sample) and sample[begin] & 0xC0 == 0x80:
            begin += 1
        while end < len(sample) and sample[end] & 0xC0 == 0x80:
            end += 1
        return sample[begin:end]
    if kind == 5:  # cut anywhere
        begin = draw(len(damaged))
        return damaged[begin:begin + 1 + draw(48)]
    if kind == 6:
        return b" " + characters(draw, 12, lambda: chr(97 + draw(26)))
    if kind == 7:
        return characters(draw, 8, lambda: chr(draw(0x3000)))
    if kind == 8:
        return characters(draw, 3, lambda: any_character(draw))
    if kind == 9:
        return characters(draw, 2, lambda: emoji(draw))
    if kind == 10:
        return characters(draw, 9, lambda: chr(48 + draw(10)))
    if kind == 11:
        return characters(draw, 6, lambda: SPACES[draw(len(SPACES))])
    if kind == 12:
        return characters(draw, 3, lambda: chr(draw(32) + (0x80 if draw(2) else 0)))
    if kind == 13:
        return bytes(draw(256) for _ in range(1 + draw(4)))
    if kind == 14:
        return characters(draw, 6, lambda: SYMBOLS[draw(len(SYMBOLS))])
    if draw(8):
        return ("'" + ENDINGS[draw(len(ENDINGS))]).encode()
    length = 80 + draw(320)
    return bytes(97 + draw(4) for _ in range(length))


def mixed_document(number, sample, damaged, size=DOCUMENT_BYTES):
    draw, text = Draw(number), bytearray()
    while len(text) < size:
        text += mixed_piece(draw, sample, damaged)
    return bytes(text[:size])


def checksum(words):
    """FNV-1a with whole 32-bit words in the place of bytes."""
    value = 0xCBF29CE484222325
    for word in words:
        value = (value ^ word) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def mixed_text(tokenizers, sample, damaged, already):
    """Of every document; what is of tokenizers that are not here stays as it was."""
    result = already or [{} for _ in range(DOCUMENTS)]
    for number, record in enumerate(result):
        text = mixed_document(number, sample, damaged)
        repaired = text.decode("utf-8", errors="replace")
        valid = text.decode("utf-8", errors="ignore")
        record["text"] = checksum(struct.unpack(f"<{len(text) // 4}I", text))
        record["replaced"] = repaired.count("\ufffd") - valid.count("\ufffd")
        for name, tokenizer in tokenizers.items():
            ids = tokenizer.encode(repaired).ids
            record[name] = {"tokens": len(ids), "ids": checksum(ids)}
    return result


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    sample = PROSE * 2 + CODE + WORLD + ODD + LONG + pieces_of_all(rng) + PROSE + "end  "
    damaged = bytearray(sample.encode())
    for _ in range(len(damaged) // 20):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    (HERE / "sample.txt").write_bytes(sample.encode())
    (HERE / "invalid.bin").write_bytes(bytes(damaged))
    repaired = bytes(damaged).decode("utf-8", errors="replace")

    def trainer(size, special):
        return trainers.BpeTrainer(
            vocab_size=size, min_frequency=0, special_tokens=special, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet())

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator([sample], trainer(700, [END]))
    trained.save(str(HERE / "trained.json"), pretty=False)

    split = Tokenizer(models.BPE(ignore_merges=True))
    split.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    split.train_from_iterator([sample], trainer(500, []))
    split.add_special_tokens([END])
    split.add_tokens([AddedToken("light", normalized=False)])
    split.save(str(HERE / "split.json"), pretty=False)

    # What GPT-2's pattern has of U+180E and letters newer than PCRE2's must not matter to
    # the split fixture: it runs with PCRE2's own tables.
    plain = PROSE + CODE + LONG
    path = HERE / "ids.json"
    ids = json.loads(path.read_text()) if path.exists() else {}
    ids["trained"] = trained.encode(sample).ids
    ids["trained_invalid"] = trained.encode(repaired).ids
    ids["invalid_sequences"] = repaired.count("\ufffd") - sample.count("\ufffd")
    ids["split_plain"] = split.encode(plain).ids
    ids["plain"] = plain
    tokenizers = {"trained": trained}
    if len(sys.argv) > 1:
        directory = pathlib.Path(sys.argv[1])
        gpt2 = Tokenizer(models.BPE.from_file(str(directory / "encoder.json"),
                                              str(directory / "vocab.bpe")))
        gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        gpt2.add_special_tokens([END])
        ids["gpt2"] = gpt2.encode(sample).ids
        ids["gpt2_invalid"] = gpt2.encode(repaired).ids
        tokenizers["gpt2"] = gpt2
    path.write_text(json.dumps(ids) + "\n")

    path = HERE / "mixed.json"
    already = json.loads(path.read_text()) if path.exists() else None
    records = mixed_text(tokenizers, sample.encode(), bytes(damaged), already)
    path.write_text("[" + ",\n".join(json.dumps(record) for record in records) + "]\n")


if __name__ == "__main__":
    main()
