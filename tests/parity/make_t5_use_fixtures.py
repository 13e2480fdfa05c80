#!/usr/bin/env python3
"""Writes what T5s of the fixtures put into the gaps of texts, by the logits of Hugging Face's
models, in fp64. Run by hand, as make_t5_fixtures.py, after it; version 5 of transformers does,
too:

    python tests/parity/make_t5_use_fixtures.py

Ids 57 to 96 are sentinels, <extra_id_0> the last of them, so that models without any training
write some. Sentinels are given one after the other, and behind each come the most probable
words: to a sentinel or the end (1), or to the gap's share of the positions that are left.
fixtures/<case>/uses.safetensors, of n texts with up to g gaps:
    source (n, s) int32, lengths (n) int32      ids, the end among them; behind it is 0
    words (n, g, w) int32                       of each gap; -1 behind them
    probability (n, g) float64                  that of the words and of what ends them, one
                                                after the other; 0: there is no such gap
    cut (n, g) int32                            1: they are as many as there was room for
"""
import numpy
import torch
import transformers
from safetensors.numpy import load_file, save_file

import make_t5_fixtures as fixtures

END, FIRST_WORD, LAST, SENTINELS = 1, 2, 96, 40
# Of a source at most, and of what is written: what a span corruption makes of 110 tokens.
SEQUENCE, POSITIONS = 100, 22
# Tokens of a text, and where gaps are among them.
TEXTS = [(7, [3]), (99, [0, 50, 98]), (1, [0]), (20, [2, 4, 5, 8, 10, 11, 14, 17, 18]),
         (13, [4, 12])]
SEED = {"t5_odd": 1, "t5_v11_odd": 2}


def read_model(name):
    kind = transformers.T5ForConditionalGeneration
    return kind.from_pretrained(fixtures.HERE / name, attn_implementation="eager",
                                dtype=torch.float32).double().eval()


def expect_logits_of_oracle(model, name):
    oracle = {key: torch.from_numpy(value) for key, value in
              load_file(fixtures.HERE / name / "oracle.safetensors").items()
              if not key.startswith(("gradient", "train", "final"))}
    batch = {key: value[0].long() for key, value in oracle.items()
             if key in ("source", "source_lengths", "target", "target_lengths", "labels")}
    batch["loss_mask"] = oracle["loss_mask"][0]
    logits, _ = fixtures.forward(model, batch)
    worst = (logits - oracle["logits"]).abs().max().item()
    assert worst < 1e-9, f"{name}: other logits than in the oracle, by {worst}"


def most_probable(model, source, written):
    """The next word, and its probability. No other is so probable that rounding would choose."""
    logits = model(input_ids=source, decoder_input_ids=torch.tensor([written])).logits[0, -1]
    best = logits.topk(2)
    assert best.values[0] - best.values[1] > 1e-3, "two words are as probable"
    return best.indices[0].item(), logits.softmax(0)[best.indices[0]].item()


def fill(model, source, gaps):
    """Of each gap words, probability, and whether they were cut."""
    written, spans = [0], []
    for gap in range(gaps):
        room = (POSITIONS - len(written)) // (gaps - gap)
        written.append(LAST - gap)
        words, probability = [], 1.0
        while True:
            word, of_word = most_probable(model, source, written)
            ends = word == END or LAST - SENTINELS < word <= LAST
            if ends or len(words) + 1 == room:
                spans.append((words, probability * of_word if ends else probability,
                              int(not ends)))
                break
            words.append(word)
            written.append(word)
            probability *= of_word
    return spans


def texts(generator):
    ids = torch.zeros(len(TEXTS), SEQUENCE, dtype=torch.long)
    for n, (tokens, gaps) in enumerate(TEXTS):
        ids[n, :tokens] = torch.randint(FIRST_WORD, LAST - SENTINELS + 1, (tokens,),
                                        generator=generator)
        ids[n, gaps] = LAST - torch.arange(len(gaps))
        ids[n, tokens] = END
    return ids


def make(name):
    model = read_model(name)
    expect_logits_of_oracle(model, name)
    source = texts(torch.Generator().manual_seed(SEED[name]))
    most = max(len(gaps) for _, gaps in TEXTS)
    words = numpy.full((len(TEXTS), most, POSITIONS), -1, numpy.int32)
    probability = numpy.zeros((len(TEXTS), most))
    cut = numpy.zeros((len(TEXTS), most), numpy.int32)
    with torch.no_grad():
        for n, (tokens, gaps) in enumerate(TEXTS):
            spans = fill(model, source[n:n + 1, :tokens + 1], len(gaps))
            for gap, (of_gap, probability[n, gap], cut[n, gap]) in enumerate(spans):
                words[n, gap, :len(of_gap)] = of_gap
    there = probability > 0
    counts = (words >= 0).sum(2)[there]
    print(name, "words", counts.tolist(), "cut", cut[there].tolist())
    assert 0 in counts and 0 < cut.sum() < there.sum(), "gaps end in few ways: another SEED"
    assert ((counts > 0) & (cut[there] == 0)).any(), "no words end by themselves: another SEED"
    assert FIRST_WORD <= words[words >= 0].min(), "padding is among the words: another SEED"
    save_file({"source": source.to(torch.int32).numpy(),
               "lengths": numpy.array([tokens + 1 for tokens, _ in TEXTS], numpy.int32),
               "words": words, "probability": probability, "cut": cut},
              fixtures.HERE / name / "uses.safetensors")


if __name__ == "__main__":
    fixtures.in_fp64()
    for case_name in SEED:
        make(case_name)
