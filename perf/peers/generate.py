#!/usr/bin/env python3
"""Hugging Face's generate() with its cache: the peer of perf/generation.py.

    peers/generate.py --make DIR      # a GPT-2 124M with random weights
    peers/generate.py --model DIR --type float32 --threads 2

For each line, a JSON object with prompts of one length and a number of new tokens, it continues
them greedily and prints a JSON object with the seconds and the tokens.
"""
import argparse
import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make(directory):
    """Weights wider than the usual ones, so that texts are no single token over and over."""
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(initializer_range=0.06))
    model.save_pretrained(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--make", metavar="DIR")
    parser.add_argument("--model", metavar="DIR")
    parser.add_argument("--type", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.make:
        make(arguments.make)
        return
    torch.set_num_threads(arguments.threads)
    model = GPT2LMHeadModel.from_pretrained(arguments.model)
    model = model.to(getattr(torch, arguments.type)).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    for line in sys.stdin:
        asked = json.loads(line)
        ids, count = torch.tensor(asked["prompts"]), asked["tokens"]
        begin = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                 use_cache=True, min_new_tokens=count,
                                 max_new_tokens=count)
        seconds = time.perf_counter() - begin
        print(json.dumps({"seconds": seconds, "tokens": out[:, ids.shape[1]:].tolist()}),
              flush=True)


if __name__ == "__main__":
    main()
