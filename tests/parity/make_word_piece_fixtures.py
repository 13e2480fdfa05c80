#!/usr/bin/env python3
"""Makes the fixtures of WordPiece with Hugging Face `tokenizers`.

    python3 tests/parity/make_word_piece_fixtures.py BOOK

BOOK is the text that ./quickstart trains on, the King James Bible (text.txt of its data).
Needs the package `tokenizers`; written with version 0.23. On the book and on sample.txt,
which brings characters of other scripts, two vocabularies of 4000 are trained:
    uncased/        vocab.txt and tokenizer_config.json, as BERT's first files were
    cased.json      a tokenizer.json
Into word_piece.json go, for both,
    mixed           checksums of the ids of 16 MiB of mixed text, 64 KiB each
                    (make_tokenizer_fixtures.py); of the cased one also with the byte at which
                    the word of each id begins, in the valid text
    texts           short texts, their ids, and what these are decoded to
All of it lies in fixtures/tokenizer/.
"""
import itertools
import json
import os
import sys

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import (Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from make_tokenizer_fixtures import HERE, checksum, mixed_document

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BLOCKS, BLOCK_BYTES = 256, 1 << 16
TEXTS = [
    "In the beginning God created the heaven and the earth.",
    "[CLS] And the [MASK] was without form, and void; [SEP] Größe, naïve café. [SEP]",
    "They'll say it's what we've got; I'd say you're right: she doesn't. Don't! (Why?) ...",
    "中文字符測試。日本語テキスト、한국어 텍스트! Ελληνικά κείμενα, Русский текст",
    "unaffable supercalifragilisticexpialidocious Nebuchadnezzar's righteousness",
    "x" * 100 + " " + "x" * 101 + " " + "é" * 100 + " " + "é" * 101,
    "😀👍🏽 [mask] [MASK][MASK] ##ing # #ing [UNK] [unused0] 3.14159",
    "",
    " \t\n\u200b",
]


def trained(book, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    sample = (HERE / "sample.txt").read_text(encoding="utf-8")
    tokenizer.train_from_iterator(
        [book, sample, sample, sample],
        trainers.WordPieceTrainer(vocab_size=4000, special_tokens=SPECIALS,
                                  limit_alphabet=1500, show_progress=False))
    ids = {text: tokenizer.token_to_id(text) for text in SPECIALS}
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]),
                                                         ("[CLS]", ids["[CLS]"]))
    tokenizer.decoder = decoders.WordPiece(cleanup=lowercase)
    return tokenizer


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


def ids_and_begins(tokenizer, text):
    """Of every token its id, and the byte at which its word begins."""
    encoding = encode(tokenizer, text)
    places = [0, *itertools.accumulate(len(character.encode()) for character in text)]
    first = {}
    for word, (begin, _) in zip(encoding.word_ids, encoding.offsets):
        first.setdefault(word, places[begin])
    for number, word in zip(encoding.ids, encoding.word_ids):
        yield number
        yield first[word]


def main():
    book = open(sys.argv[1], encoding="utf-8").read()
    sample, damaged = ((HERE / name).read_bytes() for name in ("sample.txt", "invalid.bin"))
    tokenizers = {"uncased": trained(book, True), "cased": trained(book, False)}
    (HERE / "uncased").mkdir(exist_ok=True)
    words = sorted(tokenizers["uncased"].get_vocab().items(), key=lambda item: item[1])
    (HERE / "uncased" / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words),
                                                encoding="utf-8")
    (HERE / "uncased" / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "model_max_length": 512}) + "\n")
    tokenizers["cased"].save(str(HERE / "cased.json"), pretty=False)

    result = {}
    for name, tokenizer in tokenizers.items():
        blocks = [mixed_document(number, sample, damaged, BLOCK_BYTES).decode(
            "utf-8", errors="replace") for number in range(BLOCKS)]
        result[name] = {
            "mixed": [checksum(encode(tokenizer, block).ids) for block in blocks],
            "texts": [{"text": text, "ids": encode(tokenizer, text).ids,
                       "decoded": tokenizer.decode(encode(tokenizer, text).ids,
                                                   skip_special_tokens=False)}
                      for text in TEXTS]}
        if name == "cased":
            result[name]["begins"] = [checksum(ids_and_begins(tokenizer, block))
                                      for block in blocks]
        print(name, tokenizer.get_vocab_size())
    (HERE / "word_piece.json").write_text(
        json.dumps(result, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
