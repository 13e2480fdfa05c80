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
"""
import json
import pathlib
import random
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
    if len(sys.argv) > 1:
        directory = pathlib.Path(sys.argv[1])
        gpt2 = Tokenizer(models.BPE.from_file(str(directory / "encoder.json"),
                                              str(directory / "vocab.bpe")))
        gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        gpt2.add_special_tokens([END])
        ids["gpt2"] = gpt2.encode(sample).ids
        ids["gpt2_invalid"] = gpt2.encode(repaired).ids
    path.write_text(json.dumps(ids) + "\n")


if __name__ == "__main__":
    main()
