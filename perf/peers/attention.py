#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention, causal, forward and backward, with 12 heads of
64 elements: the peer of trireme_micro's attention.

    peers/attention.py --type bfloat16 --batch 1 --sequence 1024 --dropout 0 --threads 2

For each line that it reads it prints the median seconds of as many calls as fit into half
a second (three at least). The gradient of the output is given, so that nothing but
attention is timed.
"""
import argparse
import os
import statistics
import sys
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--type", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    # Before torch is loaded: its OpenMP reads this once.
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import torch
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    shape = (arguments.batch, arguments.heads, arguments.sequence, arguments.head_size)
    q, k, v = (torch.randn(shape).to(getattr(torch, arguments.type)).requires_grad_()
               for _ in range(3))
    d_y = torch.randn(shape).to(q.dtype)

    def call():
        begin = time.perf_counter()
        y = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=arguments.dropout)
        torch.autograd.grad(y, (q, k, v), d_y)
        return time.perf_counter() - begin

    call()
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds = []
        while len(seconds) < 3 or sum(seconds) < 0.5:
            seconds.append(call())
        print(f"{statistics.median(seconds):.6f}", flush=True)


if __name__ == "__main__":
    main()
