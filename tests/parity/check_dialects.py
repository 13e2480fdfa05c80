#!/usr/bin/env python3
"""Does `trireme convert` know every tensor of transformers' models, in the version that is
installed? Makes a small model of each class that the dialects are for, with weights that hide
nothing, converts it to a checkpoint and back, in one file and in several, and compares what
both compute bit by bit (check_export.py). Also asserts that nothing is warned of but what
should be.

Run by hand where torch and transformers are installed:

    python tests/parity/check_dialects.py build/release/bin/trireme
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import check_export

BERT = dict(vocab_size=97, hidden_size=30, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=44, max_position_embeddings=33, layer_norm_eps=1e-7)
T5 = dict(vocab_size=97, d_model=30, d_kv=6, d_ff=44, num_layers=2, num_decoder_layers=3,
          num_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=20,
          decoder_start_token_id=0)
GPT2 = dict(vocab_size=97, n_positions=33, n_embd=30, n_layer=2, n_head=3, bos_token_id=3,
            eos_token_id=3)
# Name: class, config, what is warned of.
CASES = {
    "GPT2LMHeadModel": ("GPT2LMHeadModel", GPT2, []),
    "BertForPreTraining": ("BertForPreTraining", BERT, []),
    "BertForMaskedLM": ("BertForMaskedLM", {**BERT, "hidden_act": "gelu_new"}, []),
    "BertModel": ("BertModel", BERT, ["drawn anew (7)"]),
    "MegatronBertForPreTraining": ("MegatronBertForPreTraining", BERT, []),
    "MegatronBertForMaskedLM": ("MegatronBertForMaskedLM", {**BERT, "hidden_act": "relu"}, []),
    "MegatronBertModel": ("MegatronBertModel", BERT, ["drawn anew (7)"]),
    "T5 v1.0": ("T5ForConditionalGeneration", T5, []),
    "T5 v1.1": ("T5ForConditionalGeneration",
                {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, []),
    "T5 v1.1 with the other form of GeLU": (
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu_python", "tie_word_embeddings": False}, []),
}


def save(kind, options, directory):
    """A model with weights drawn, norms and biases too; an untied head that is another."""
    generator = torch.Generator().manual_seed(7)
    cls = getattr(transformers, kind)
    model = cls(cls.config_class(**options)).float()
    if options.get("tie_word_embeddings") is False:
        head = torch.randn(model.lm_head.weight.shape, generator=generator)
        model.lm_head.weight = torch.nn.Parameter(head)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.25 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(directory)


def convert(binary, *arguments):
    """What was said of it on stderr."""
    done = subprocess.run([binary, "convert", *map(str, arguments)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def check(binary, name, scratch):
    kind, options, warnings = CASES[name]
    theirs, ours = scratch / "theirs", scratch / "ours"
    save(kind, options, theirs)
    said = convert(binary, theirs, ours)
    assert ("warning" in said.lower()) == bool(warnings), said
    assert all(warning in said for warning in warnings), said
    convert(binary, ours, scratch / "again")
    convert(binary, ours, scratch / "cut", "--max-shard-size", "20KB")
    assert len(list((scratch / "cut").glob("*.safetensors"))) > 3
    for written in ("again", "cut"):
        compared = check_export.compare(theirs, scratch / written)
    print(f"{name}: identical {', '.join(compared)}")


def main():
    print("transformers", transformers.__version__)
    for name in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            check(sys.argv[1], name, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
