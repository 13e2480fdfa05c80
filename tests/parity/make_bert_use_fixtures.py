#!/usr/bin/env python3
"""Writes what BERTs of the fixtures give when they are used: vectors of texts, and logits
of words that are left out, as Hugging Face's models compute them in fp64. Run by hand, as
make_bert_fixtures.py, after it:

    python tests/parity/make_bert_use_fixtures.py

fixtures/<case>/uses.safetensors, of n texts, [CLS] ... [SEP] as ids (2 and 3):
    tokens (n, s) int32, lengths (n) int32      what is behind a text is 0
    mean, first (n, h) float64                  of the last hidden states: the mean over the
                                                text, and the row of [CLS]
    masked (m, s) int32, masked_lengths (m)     texts with one [MASK] (4) or several
    logits (m, s, v) float64                    zero where no [MASK] is
"""
import pathlib

import numpy
import torch
import transformers
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"
CASES = {"bert_odd": transformers.BertForPreTraining,
         "bert_pre_odd": transformers.MegatronBertForPreTraining}
CLASSIFY, SEPARATE, MASK, FIRST_WORD = 2, 3, 4, 5


def texts(lengths, sequence, vocab, generator):
    """Ids of texts with as many words, padded with 0."""
    ids = torch.zeros(len(lengths), sequence, dtype=torch.long)
    for n, words in enumerate(lengths):
        ids[n, 0] = CLASSIFY
        ids[n, 1:words + 1] = torch.randint(FIRST_WORD, vocab, (words,), generator=generator)
        ids[n, words + 1] = SEPARATE
    return ids, torch.tensor(lengths) + 2


def outputs(model, ids, lengths):
    mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
    with torch.no_grad():
        result = model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True)
        hidden = result.hidden_states[-1]
        if hasattr(model.bert.encoder, "ln"):  # hidden_states has the norm behind it or not
            hidden = model.bert(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    return hidden, mask, result.prediction_logits


def make(name, kind):
    model = kind.from_pretrained(HERE / name, attn_implementation="eager",
                                 dtype=torch.float32).double().eval()
    sequence, vocab = model.config.max_position_embeddings, model.config.vocab_size
    generator = torch.Generator().manual_seed(31)
    ids, lengths = texts([3, 15, 1, 7, 12, 5, 5, 9, 2, 14, 8, 4, 11, 6, 10, 13, 3, 1, 15, 7],
                         sequence, vocab, generator)
    hidden, mask, _ = outputs(model, ids, lengths)
    mean = (hidden * mask[:, :, None]).sum(1) / lengths[:, None]
    masked, masked_lengths = texts([6, 15, 2, 9], sequence, vocab, generator)
    for n, places in enumerate([[3], [1, 8, 9, 10, 15], [2], [4, 5]]):
        masked[n, places] = MASK
    logits = outputs(model, masked, masked_lengths)[2] * (masked == MASK)[:, :, None]
    small = {"tokens": ids, "lengths": lengths, "masked": masked,
             "masked_lengths": masked_lengths}
    save_file({**{key: value.to(torch.int32).numpy() for key, value in small.items()},
               **{key: numpy.ascontiguousarray(value.numpy()) for key, value in
                  {"mean": mean, "first": hidden[:, 0], "logits": logits}.items()}},
              HERE / name / "uses.safetensors")


if __name__ == "__main__":
    for case_name, model_kind in CASES.items():
        make(case_name, model_kind)
