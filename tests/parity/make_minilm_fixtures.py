#!/usr/bin/env python3
"""Writes what all-MiniLM-L6-v2, a BERT of 6 layers that somebody has trained, makes of a few
texts, as Hugging Face's BertModel computes it in fp64 from the package's fp32 weights. Run by
hand, where torch and transformers are:

    tools/bootstrap --tests
    python tests/parity/make_minilm_fixtures.py

fixtures/minilm/texts.txt       n texts, one a line
fixtures/minilm/oracle.safetensors:
    ids (n, s) int32, lengths (n) int32     as Hugging Face's tokenizer has them, [CLS] ... [SEP]
    hidden (sum of lengths, h) float32      the last hidden states, text after text
    layers (6, length of the first, h) float32    of the first text those before each layer
"""
import os
import pathlib

import numpy
import torch
import transformers
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent / "fixtures" / "minilm"
DEPS = pathlib.Path(os.environ.get("TRIREME_DEPS", HERE.parents[3] / ".deps"))
TEXTS = ["In the beginning God created the heaven and the earth.",
         "A trireme had three banks of oars.",
         "Yes!",
         "Na\u00efve caf\u00e9s in Z\u00fcrich serve \u6771\u4eac tea \u2014 don't they?",
         "antidisestablishmentarianism",
         "What is the capital of France? Paris, of course; everybody knows that, and has for "
         "hundreds of years."]


def main():
    package = DEPS / "minilm"
    tokenizer = transformers.AutoTokenizer.from_pretrained(package)
    model = transformers.BertModel.from_pretrained(
        package, attn_implementation="eager", dtype=torch.float32).double().eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        outputs = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask,
                        output_hidden_states=True)
    lengths = batch.attention_mask.sum(1)
    hidden = torch.cat([outputs.last_hidden_state[i, :n] for i, n in enumerate(lengths)])
    layers = torch.stack([states[0, :lengths[0]] for states in outputs.hidden_states[:-1]])
    HERE.mkdir(exist_ok=True)
    (HERE / "texts.txt").write_text("".join(text + "\n" for text in TEXTS))
    save_file({"ids": batch.input_ids.to(torch.int32).numpy(),
               "lengths": lengths.to(torch.int32).numpy(),
               "hidden": hidden.numpy().astype(numpy.float32),
               "layers": layers.numpy().astype(numpy.float32)},
              HERE / "oracle.safetensors")


if __name__ == "__main__":
    main()
