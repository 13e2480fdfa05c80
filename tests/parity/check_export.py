#!/usr/bin/env python3
"""Do two Hugging Face directories hold the same model? Loads both with transformers, as a
user would, and compares logits bit by bit, and the tokenizers where both have one.

Run by hand where torch and transformers are installed, on what `trireme convert` wrote:

    trireme convert MODEL CKPT && trireme convert CKPT EXPORTED
    python tests/parity/check_export.py MODEL EXPORTED
"""
import pathlib
import sys

import torch
import transformers

TEXT = "In the beginning, was the Word:  größer 水と火 \U0001f600\n\n\t x=1; don't<|endoftext|>end"


def logits(directory, tokens):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{directory}: {kind} {info[kind]}"
    tokens = tokens % model.config.vocab_size
    with torch.no_grad():
        return model.eval()(tokens[:, :model.config.n_positions]).logits


def has_tokenizer(directory):
    return any((pathlib.Path(directory) / name).exists()
               for name in ("tokenizer.json", "vocab.json"))


def main():
    first, second = sys.argv[1:3]
    tokens = torch.randint(0, 1 << 30, (2, 64), generator=torch.Generator().manual_seed(1))
    a, b = logits(first, tokens), logits(second, tokens)
    assert a.shape == b.shape and torch.equal(a, b), "the logits differ"
    print(f"logits {tuple(a.shape)}: identical")
    if has_tokenizer(first) and has_tokenizer(second):
        one, two = (transformers.AutoTokenizer.from_pretrained(d) for d in (first, second))
        assert one(TEXT)["input_ids"] == two(TEXT)["input_ids"], "the tokenizers differ"
        assert one.eos_token_id == two.eos_token_id, "the end-of-text tokens differ"
        print(f"tokenizers: the same {len(one(TEXT)['input_ids'])} ids, "
              f"end of text {one.eos_token_id}")


if __name__ == "__main__":
    main()
