#!/usr/bin/env python3
"""Makes the fixture of BERT's basic tokenizer with Hugging Face `tokenizers`.

    python3 tests/parity/make_basic_tokenizer_fixtures.py

Needs the package `tokenizers`, whose BertNormalizer and BertPreTokenizer are asked; written
with version 0.23. Into fixtures/tokenizer/basic.json go, for the two usual settings, sums of
the words that are made of
    characters      every code point, between two spaces and between two letters, 4096 of
                    them a text
    mixed           16 MiB of mixed text, document by document (make_tokenizer_fixtures.py)
    marks           rows of marks, which NFD puts in order: the texts are in the file
and of all settings one sum of the code points below U+20000, and beyond where Chinese
characters and tags are. A sum is of the characters of every word and of the bytes of the
text that it came from. Of the places in texts whose marks are put in order, which are marks
and the mixed texts uncased, there is nothing to compare: there `tokenizers` is some bytes
off (in U+0301, U+0344, U+0F73, U+1B44 it has the last one's word in the first one's place).
"""
import itertools
import json
import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from make_tokenizer_fixtures import DOCUMENTS, HERE, Draw, checksum, mixed_document

OPTIONS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
USUAL = {"uncased": (True, True, True, True), "cased": (True, True, False, False)}
END_OF_TEXT = 0xFFFFFFFF
BLOCK = 0x1000
BLOCKS = range(0, 0x110000, BLOCK)
# Asked about by all settings.
SOME_BLOCKS = [*BLOCKS[:0x20], *BLOCKS[0x2A:0x30], BLOCKS[0xE0]]
# Marks of classes 7, 9, 216, 224 and 226 that stay, notes that decompose into some, marks
# too new to have a class there; marks that are stripped, with a class and without; others.
MARKS = [0x11C3F, 0x1B44, 0x1BF2, 0x302E, 0x302F, 0x1D165, 0x1D16D, 0x1D16E, 0x1D160, 0x8D4,
         0x16FF0, 0x301, 0x941, 0xF73, 0x344, 0xE9, 0x61, 0x200B, 0x20, 0x2E, 0x4E2D]


class Basic:
    def __init__(self, values):
        self.normalizer = normalizers.BertNormalizer(**dict(zip(OPTIONS, values)))
        self.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        # Says where words came from, which the two above do not.
        self.tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
        self.tokenizer.normalizer = self.normalizer
        self.tokenizer.pre_tokenizer = self.pre_tokenizer

    def sum_of(self, texts, with_places=True):
        return checksum(itertools.chain.from_iterable(
            self.words(text, encoding.offsets if with_places else None)
            for text, encoding in zip(texts, self.tokenizer.encode_batch(texts))))

    def words(self, text, offsets):
        pieces = self.pre_tokenizer.pre_tokenize_str(self.normalizer.normalize_str(text))
        assert offsets is None or len(pieces) == len(offsets)
        places = [0, *itertools.accumulate(len(character.encode()) for character in text)]
        for number, (word, _) in enumerate(pieces):
            yield len(word)
            yield from map(ord, word)
            if offsets is not None:
                yield from (places[place] for place in offsets[number])
        yield END_OF_TEXT


def texts_of_block(first):
    block = [chr(code) for code in range(first, first + BLOCK) if not 0xD800 <= code < 0xE000]
    return [" ".join(block), " ".join(f"a{one}b" for one in block)]


def main():
    usual = {name: Basic(values) for name, values in USUAL.items()}
    sample, damaged = ((HERE / name).read_bytes() for name in ("sample.txt", "invalid.bin"))
    draw = Draw(DOCUMENTS)
    marks = ["".join(chr(MARKS[draw(len(MARKS))]) for _ in range(2 + draw(12)))
             for _ in range(400)]
    result = {"marks": marks}
    for name, basic in usual.items():
        characters = [basic.sum_of(texts_of_block(first)) for first in BLOCKS]
        mixed = [basic.sum_of([mixed_document(number, sample, damaged).decode(
            "utf-8", errors="replace")], with_places=name == "cased")
            for number in range(DOCUMENTS)]
        result[name] = {"characters": characters, "mixed": mixed,
                        "marks": basic.sum_of(marks, with_places=False)}
        print(name)
    several = [text for first in SOME_BLOCKS for text in texts_of_block(first)]
    result["options"] = []
    for values in itertools.product((False, True), repeat=len(OPTIONS)):
        record = dict(zip(OPTIONS, values), characters=Basic(values).sum_of(several))
        result["options"].append(record)
        print(record)
    (HERE / "basic.json").write_text(json.dumps(result, ensure_ascii=False, indent=0) + "\n",
                                     encoding="utf-8")


if __name__ == "__main__":
    main()
