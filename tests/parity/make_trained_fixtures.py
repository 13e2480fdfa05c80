#!/usr/bin/env python3
"""Makes the fixtures of the vocabularies that `trireme tokenize` trains.

    python3 tests/parity/make_trained_fixtures.py TRIREME

TRIREME is the program. It trains vocabularies on texts of fixtures/tokenizer/, and Hugging
Face's `tokenizers` reads what it wrote into the corpora: vocab.txt, and the pieces of
spiece.model as a tokenizer.json with byte fallback has them. Needs the packages `tokenizers`
(written with 0.23) and `h5py`. Into fixtures/tokenizer/trained/ go singles.txt, the text of
WordPiece; of each kind, a directory of the files; and in texts.json
    text, arguments what `trireme tokenize` was given
    texts           texts, and their ids by Hugging Face
Another version of the SentencePiece library trains another unigram model: the ids are of this
one. Of WordPiece each is to train this vocabulary, which plain_word_pieces() makes, too. Versions
before 0.1.99 count pairs of equal pieces otherwise than later ones (of sample.txt they have "##ee"
in another place), so singles.txt is sample.txt without a character twice in a row; on that 0.1.97,
0.1.98, 0.1.99, 0.2.0 and 0.2.3 train the same.
The texts leave out what is known to differ (docs/tokenizers.md): U+0085, U+FFFD with a mark, and
ties, of which "!!!" is one.
"""
import collections
import json
import os
import pathlib
import re
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
TRAINED_ON = {"uncased": "trained/singles.txt", "cased": "trained/singles.txt",
              "unigram": "sample.txt"}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DOUBLE = re.compile(r"(.)\1+", re.DOTALL)
TEXTS = [line.replace("!!!", "!") for line in (PROSE + CODE + WORLD).split("\n") if line] + [
    "unaffable supercalifragilisticexpialidocious Nebuchadnezzar's righteousness",
    "[CLS] And the [MASK] was without form; [SEP] Größe, naïve café. [PAD][mask]",
    "And God <extra_id_0> the light <extra_id_19></s> it was <pad> good<unk>",
    "  two  spaces \t a tab\na line\r\n",
    "\u00c9t\u00e9 e\u0301 \u1e69 \ufb01 \u2460 \u00bd \U0001d518 \U0001f600 \u4e2d\u6587 \uac00",
    "x" * 100 + " " + "x" * 101 + " " + "é" * 100,
    "", " ", "\u200b\ufeff",
]


def without_doubles(text):
    """The words that have no character twice in a row once their own doubles are single: not in
    lower case, without accents or without controls either. Twelve to a line."""
    forms = [normalizers.BertNormalizer(lowercase=lowercase) for lowercase in (True, False)]
    words = [re.sub(DOUBLE, r"\1", word) for word in re.split(r"[ \n]+", text)]
    words = [word for word in words
             if word and not any(re.search(DOUBLE, form.normalize_str(word)) for form in forms)]
    lines = [" ".join(words[i:i + 12]) for i in range(0, len(words), 12)]
    return "".join(line + "\n" for line in lines)


def trained(program, arguments, text, directory):
    """The tokenizer's files in the corpus."""
    corpus = pathlib.Path(directory) / "corpus.h5"
    subprocess.run([program, "tokenize", *arguments, "--overwrite", "--out", corpus,
                    text], check=True, stdout=subprocess.DEVNULL)
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
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer, words


def merged(word, pair):
    """The pieces of a word, with each such pair of neighbours as one."""
    pieces, at = [], 0
    while at < len(word):
        width = 2 if word[at:at + 2] == pair else 1
        pieces.append("".join(word[at:at + width]))
        at += width
    return pieces


def plain_word_pieces(tokenizer, text, size):
    """By the definition: the most frequent pair of neighbours first; of equally frequent ones the
    shorter, and then the one that is first by its characters. Longer words are [UNK] anyway."""
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
    counts = collections.Counter(word for word, _ in words if len(word) <= 100)
    assert not any(re.search(DOUBLE, word) for word in counts)
    tokens = dict.fromkeys(SPECIALS + sorted({word[0] for word in counts})
                           + sorted({"##" + letter for word in counts for letter in word[1:]}))
    words = [([MARK, *word], count) for word, count in counts.items()]
    while len(tokens) < size:
        pairs = collections.Counter()
        for word, count in words:
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], len("".join(pair)), "".join(pair)))
        words = [(merged(word, list(best)), count) for word, count in words]
        piece = "".join(best)
        token = piece[1:] if piece[0] == MARK else "##" + piece
        if len(piece.strip(MARK)) > 1:
            tokens[token] = None
    return list(tokens)


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
    sample = (HERE / "sample.txt").read_bytes().decode()
    (out / "singles.txt").write_bytes(without_doubles(sample).encode())
    with tempfile.TemporaryDirectory() as directory:
        for name, arguments in KINDS.items():
            text = HERE / TRAINED_ON[name]
            files = trained(sys.argv[1], arguments, text, directory)
            tokenizer, tokens = (unigram if "spiece.model" in files else word_piece)(files)
            if "vocab.txt" in files:
                assert tokens == plain_word_pieces(tokenizer, text.read_bytes().decode(),
                                                   len(tokens))
            # Through its own file, as a user has it.
            tokenizer = Tokenizer.from_str(tokenizer.to_str())
            assert all(tokenizer.token_to_id(token) == i for i, token in enumerate(tokens))
            for file, content in files.items():
                target = out / name / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            texts = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
                     for text in TEXTS]
            result[name] = {"text": TRAINED_ON[name], "arguments": arguments, "texts": texts}
            print(name, len(tokens), "tokens,", sum(len(t["ids"]) for t in texts), "ids")
    (out / "texts.json").write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
