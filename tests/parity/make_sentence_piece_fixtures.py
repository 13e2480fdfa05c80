#!/usr/bin/env python3
"""Makes the fixtures of SentencePiece with its own library and Hugging Face `tokenizers`.

    python3 tests/parity/make_sentence_piece_fixtures.py BOOK

BOOK is the text that ./quickstart trains on, the King James Bible (text.txt of its data).
Needs the packages `sentencepiece` (written with 0.2.3), `protobuf` and `tokenizers` (0.23). On
the book and on sample.txt two models are trained:
    unigram.model   as T5's: nmt_nfkc, pad 0, eos 1, unk 2
    bpe.model       as Llama's: byte fallback, text as it is
    bpe.json        the same as a tokenizer.json
Into sentence_piece.json go, for both,
    mixed           checksums of the library's ids of 16 MiB of mixed text, 64 KiB in a call
                    (make_tokenizer_fixtures.py)
    begins          the same, with the byte at which begins what each id stands for
    texts           short texts, their ids, and what these are decoded to
    tokenizers      of the same blocks the ids of Hugging Face's `tokenizers`, line by line, and
                    the lines at which they are not the library's. U+0085 is a space there:
                    Hugging Face takes it for one, the library does not.
The latter have graphemes that Hugging Face's Precompiled looks up as a whole.
All of it lies in fixtures/tokenizer/.
"""
import json
import os
import sys

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from make_tokenizer_fixtures import HERE, checksum, mixed_document

BLOCKS, BLOCK_BYTES = 256, 1 << 16
TEXTS = [
    "In the beginning God created the heaven and the earth.",
    "  two  spaces \t a tab\na line\r\n",
    "They'll say it's what we've got; I'd say you're right: she doesn't. Don't! (Why?) ...",
    "Größe, naïve café, ½ ² Ⅷ ① ㊿ e\u0301",
    "中文字符測試。日本語テキスト、한국어 텍스트! Ελληνικά κείμενα, Русский текст",
    "😀👍🏽 👩‍👩‍👧‍👦 \u2581 \u2581x<0x41>",
    "x" * 100 + " " + "é" * 100,
    "",
    " ",
    "\x00\x01 \u200b\ufeff",
]


def train(name, book, sample, **options):
    """Scores are rounded, so that their sums are exact: ties of pieces in another order ("!!!")
    are decided by the order in which they are looked at, and not by the library's version."""
    lines = (" ".join(word for word in line.split() if len(word) <= 24)
             for line in (book + 3 * sample).split("\n"))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for line in lines if line), model_prefix=str(HERE / name),
        minloglevel=2, num_threads=1, **options)
    (HERE / f"{name}.vocab").unlink()
    path = HERE / f"{name}.model"
    proto = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    proto.trainer_spec.ClearField("model_prefix")
    for piece in proto.pieces:
        piece.score = round(piece.score * 16) / 16
    path.write_bytes(proto.SerializeToString())
    return proto, sentencepiece.SentencePieceProcessor(model_file=str(path))


def unigram_tokenizer(proto):
    """As transformers makes it of a T5's spiece.model."""
    tokenizer = Tokenizer(models.Unigram(
        [(piece.piece, piece.score) for piece in proto.pieces], unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    return tokenizer


def bpe_tokenizer(proto):
    """As transformers makes it of a Llama's tokenizer.model."""
    ids = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    merges = []
    for piece in proto.pieces:
        text = piece.piece
        ways = [(text[:i], text[i:]) for i in range(1, len(text))
                if text[:i] in ids and text[i:] in ids]
        ways.sort(key=lambda way: (ids[way[0]], ids[way[1]]))
        merges.extend((way, piece.score) for way in ways)
    merges.sort(key=lambda merge: -merge[1])
    tokenizer = Tokenizer(models.BPE(ids, [way for way, _ in merges], unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def ids_and_begins(library, text):
    for piece in library.encode(text, return_type="proto").pieces:
        yield piece.id
        yield piece.begin


def by_lines(library, tokenizer, text):
    ids, different = [], []
    for number, line in enumerate(text.replace("\x85", " ").split("\n")):
        line_ids = tokenizer.encode(line, add_special_tokens=False).ids
        if line_ids == library.encode(line):
            ids += line_ids
        else:
            different.append(number)
    return {"ids": checksum(ids), "different": different}


def main():
    book = open(sys.argv[1], encoding="utf-8").read()
    sample, damaged = ((HERE / name).read_bytes() for name in ("sample.txt", "invalid.bin"))
    unigram = train("unigram", book, sample.decode(), vocab_size=4000, model_type="unigram",
                    pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.9999)
    bpe = train("bpe", book, sample.decode(), vocab_size=2000, model_type="bpe",
                byte_fallback=True, normalization_rule_name="identity",
                remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
                split_digits=True, character_coverage=0.9995)
    tokenizers = {"unigram": unigram_tokenizer(unigram[0]), "bpe": bpe_tokenizer(bpe[0])}
    tokenizers["bpe"].save(str(HERE / "bpe.json"), pretty=False)
    result = {}
    for name, (proto, library) in {"unigram": unigram, "bpe": bpe}.items():
        records = {"mixed": [], "begins": [], "tokenizers": []}
        for number in range(BLOCKS):
            text = mixed_document(number, sample, damaged, BLOCK_BYTES).decode(
                "utf-8", errors="replace")
            records["mixed"].append(checksum(library.encode(text)))
            records["begins"].append(checksum(ids_and_begins(library, text)))
            records["tokenizers"].append(by_lines(library, tokenizers[name], text))
        records["texts"] = [{"text": text, "ids": library.encode(text),
                             "decoded": library.decode(library.encode(text))}
                            for text in TEXTS]
        result[name] = records
        print(name, len(proto.pieces), "lines that differ:",
              sum(len(block["different"]) for block in records["tokenizers"]))
    (HERE / "sentence_piece.json").write_text(
        json.dumps(result, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
