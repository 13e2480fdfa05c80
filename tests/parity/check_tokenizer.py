#!/usr/bin/env python3
"""Are the token ids of a corpus those of Hugging Face for the tokenizer in it? Loads the
tokenizer that `trireme tokenize` trained as a user would, and encodes the text again.

Run by hand where h5py, transformers and sentencepiece are installed:

    trireme tokenize --train-unigram 8192 --out a.h5 book.txt
    trireme tokenize --train-wordpiece 8192 --out b.h5 book.txt
    python tests/parity/check_tokenizer.py a.h5 book.txt
    python tests/parity/check_tokenizer.py b.h5 book.txt

The text is one document. Of a unigram model it is compared line by line, as ties between
equal pieces are decided by sums that depend on how much is encoded at once.
"""
import pathlib
import sys
import tempfile

import h5py
import numpy


def written(corpus, directory):
    for name, content in corpus["tokenizer"].items():
        (directory / name).write_bytes(content[:].tobytes())


def loaded(directory):
    import transformers
    if (directory / "vocab.txt").exists():
        return transformers.BertTokenizerFast.from_pretrained(directory)
    return transformers.T5Tokenizer.from_pretrained(directory, legacy=True)


def main():
    path, text_path = sys.argv[1:3]
    text = pathlib.Path(text_path).read_text(encoding="utf-8")
    with h5py.File(path) as corpus, tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        written(corpus, directory)
        tokenizer = loaded(directory)
        size = int(corpus.attrs["vocabulary_size"])
        assert len(tokenizer) == size, f"{len(tokenizer)} tokens there, {size} here"
        ids = corpus["tokens"][:-1].astype(numpy.int64)
        unigram = directory / "spiece.model"
        theirs = numpy.array(
            [i for line in (text.splitlines() if unigram.exists() else [text])
             for i in tokenizer.encode(line, add_special_tokens=False)])
        assert ids.shape == theirs.shape, f"{ids.shape} ids here, {theirs.shape} there"
        different = int((ids != theirs).sum())
        print(f"{type(tokenizer).__name__}: {size} tokens, {len(ids)} ids, "
              f"{different} of them different")
        assert different <= len(ids) // 100_000


if __name__ == "__main__":
    main()
