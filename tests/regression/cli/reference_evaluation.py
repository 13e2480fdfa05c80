#!/usr/bin/env python3
"""What a checkpoint makes of a range of a corpus, in double precision and without Trireme.

    reference_evaluation.py STEP_DIRECTORY CORPUS BEGIN END HEADS MASK TAIL

GPT-2's forward pass in numpy, the weights from index.h5, the tokens from the corpus, windows
as docs/evaluation.md describes them. MASK, TAIL: 0 or 1. Prints loss, tokens and bytes.
"""
import json
import sys

import h5py
import numpy


def norm(x, weights, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * weights[name + "/weight"] + weights[name + "/bias"]


def linear(x, weights, name):
    return x @ weights[name + "/weight"].T + weights[name + "/bias"]


def attention(x, weights, name, heads):
    length, hidden = x.shape
    q, k, v = (part.reshape(length, heads, -1).transpose(1, 0, 2)
               for part in numpy.split(linear(x, weights, name + "/qkv"), 3, axis=1))
    scores = q @ k.transpose(0, 2, 1) / numpy.sqrt(hidden // heads)
    scores[:, ~numpy.tri(length, dtype=bool)] = -numpy.inf
    scores = numpy.exp(scores - scores.max(-1, keepdims=True))
    out = scores / scores.sum(-1, keepdims=True) @ v
    return linear(out.transpose(1, 0, 2).reshape(length, hidden), weights,
                  name + "/projection")


def losses(tokens, weights, heads):
    """Of each token but the first."""
    word = weights["embedding/word/weight"]
    x = word[tokens[:-1]] + weights["embedding/position/weight"][:len(tokens) - 1]
    layers = 1 + max(int(name.split("/")[1]) for name in weights if name.startswith("layers/"))
    for layer in range(layers):
        name = f"layers/{layer}"
        x = x + attention(norm(x, weights, name + "/input_norm"), weights,
                          name + "/attention", heads)
        inner = linear(norm(x, weights, name + "/mlp_norm"), weights, name + "/mlp/fc1")
        inner = 0.5 * inner * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi)
                                              * (inner + 0.044715 * inner**3)))
        x = x + linear(inner, weights, name + "/mlp/fc2")
    logits = norm(x, weights, "final_norm") @ word.T
    largest = logits.max(-1)
    labels = logits[numpy.arange(len(x)), tokens[1:]]
    return (largest - labels) + numpy.log(numpy.exp(logits - largest[:, None]).sum(-1))


def main():
    step, path, begin, end, heads, mask, tail = sys.argv[1:]
    weights = {}
    with h5py.File(step + "/index.h5") as index:
        def take(name, item):
            if isinstance(item, h5py.Dataset):
                weights[name] = item[...].astype("float64")
        index["model"].visititems(take)
        sequence = len(weights["embedding/position/weight"])
    with h5py.File(path) as corpus:
        tokens = corpus["tokens"][int(begin):int(end)].astype(int)
        last = int(corpus.attrs["end_of_document"])
        files = corpus["tokenizer"]
        vocabulary = json.loads(files["tokenizer.json"][...].tobytes())["model"]["vocab"]
    # A character of a byte-level vocabulary stands for a byte.
    lengths = {number: len(text) for text, number in vocabulary.items()}
    lengths[last] = 0
    loss = count = size = 0
    for first in range(0, len(tokens) - 1, sequence):
        window = tokens[first:first + sequence + 1]
        if len(window) <= sequence and tail == "0":
            break
        counts = window[:-1] != last if mask == "1" else numpy.ones(len(window) - 1, bool)
        loss += losses(window, weights, int(heads))[counts].sum()
        count += int(counts.sum())
        size += sum(lengths[token] for token in window[1:][counts])
    print(json.dumps({"loss": loss / count, "tokens": count, "bytes": size}))


if __name__ == "__main__":
    main()
