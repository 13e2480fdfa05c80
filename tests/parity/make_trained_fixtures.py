#!/usr/bin/env python3
"""Makes the fixtures of the vocabularies that `trireme tokenize` trains.

    python3 tests/parity/make_trained_fixtures.py TRIREME

TRIREME is the program. It trains vocabularies on sample.txt of fixtures/tokenizer/, and Hugging
Face's `tokenizers` reads what it wrote into the corpora: vocab.txt, and the pieces of
spiece.model as a tokenizer.json with byte fallback has them. Needs the packages `tokenizers`
(written with 0.23) and `h5py`. Into fixtures/tokenizer/trained/ go, of each kind, a directory of
the files, and in texts.json
    arguments       of `trireme tokenize`
    texts           texts, and their ids by Hugging Face
Another version of the SentencePiece library may train other vocabularies: the ids are of these.
The texts leave out what is known to differ (docs/tokenizers.md): U+0085, U+FFFD with a mark, and
ties, of which "!!!" is one.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import h5py
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from make_tokenizer_fixtures import CODE, HERE, PROSE, WORLD

MARK = "\u2581"
KINDS = {
    "uncased": ["--train-wordpiece", "600"],
    "cased": ["--train-wordpiece", "600", "--cased"],
    "unigram": ["--train-unigram", "700", "--extra-ids", "20"],
}
TEXTS = [line.replace("!!!", "!") for line in (PROSE + CODE + WORLD).split("\n") if line] + [
    "unaffable supercalifragilisticexpialidocious Nebuchadnezzar's righteousness",
    "[CLS] And the [MASK] was without form; [SEP] Größe, naïve café. [PAD][mask]",
    "And God <extra_id_0> the light <extra_id_19></s> it was <pad> good<unk>",
    "  two  spaces \t a tab\na line\r\n",
    "\u00c9t\u00e9 e\u0301 \u1e69 \ufb01 \u2460 \u00bd \U0001d518 \U0001f600 \u4e2d\u6587 \uac00",
    "x" * 100 + " " + "x" * 101 + " " + "é" * 100,
    "", " ", "\u200b\ufeff",
]


def trained(program, arguments, directory):
    """The tokenizer's files in the corpus."""
    corpus = pathlib.Path(directory) / "corpus.h5"
    subprocess.run([program, "tokenize", *arguments, "--overwrite", "--out", corpus,
                    HERE / "sample.txt"], check=True, stdout=subprocess.DEVNULL)
    with h5py.File(corpus) as file:
        return {name: content[:].tobytes() for name, content in file["tokenizer"].items()}


def word_piece(files):
    words = files["vocab.txt"].decode().split("\n")[:-1]
    config = json.loads(files["tokenizer_config.json"])
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)},
                                           unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=config["do_lower_case"])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return tokenizer, words


def fields(message):
    """Numbers and contents of a message in the wire format of protocol buffers."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        size = {0: 0, 1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        if size is None:
            size = number()
        yield key >> 3, message[at:at + size]
        at += size


def unigram(files):
    pieces, character_map = [], b""
    for field, content in fields(files["spiece.model"]):
        if field == 1:
            piece = dict(fields(content))
            pieces.append((piece[1].decode(), struct.unpack("<f", piece[2])[0]))
        if field == 3:
            character_map = dict(fields(content))[2]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=True))
    tokenizer.normalizer = normalizers.Precompiled(character_map)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always")])
    count = json.loads(files["tokenizer_config.json"])["extra_ids"]
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(count))]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False)
                                  for text in ["<pad>", "</s>", "<unk>", *sentinels]])
    return tokenizer, [text for text, _ in pieces] + sentinels


def main():
    result, out = {}, HERE / "trained"
    with tempfile.TemporaryDirectory() as directory:
        for name, arguments in KINDS.items():
            files = trained(sys.argv[1], arguments, directory)
            tokenizer, tokens = (unigram if "spiece.model" in files else word_piece)(files)
            # Through its own file, as a user has it.
            tokenizer = Tokenizer.from_str(tokenizer.to_str())
            assert all(tokenizer.token_to_id(token) == i for i, token in enumerate(tokens))
            for file, content in files.items():
                target = out / name / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            texts = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
                     for text in TEXTS]
            result[name] = {"arguments": arguments, "texts": texts}
            print(name, len(tokens), "tokens,", sum(len(t["ids"]) for t in texts), "ids")
    (out / "texts.json").write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
