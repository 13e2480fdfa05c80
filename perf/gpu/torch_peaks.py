#!/usr/bin/env python3
"""What PyTorch measures of a GPU, by its events: torch_peaks.py peaks | products | attention.

    peaks                 a copy of memory, and the fastest product of bf16
    products TALLY CASE   each product of a case of tally.json, as cuBLASLt chooses
    attention             flash attention, causal, forward and backward

Prints lines of JSON for gpu/steps.py.
"""
import json
import statistics
import sys

import torch

GPU = torch.device("cuda")


def say(record):
    print(json.dumps(record), flush=True)


def seconds_of(call, rounds=5, least=0.02):
    """The median of rounds, each of as many calls as take `least` seconds."""
    for _ in range(3):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_of(count):
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    count = max(int(least / max(time_of(2) / 2, 1e-7)), 1)
    return statistics.median(time_of(count) / count for _ in range(rounds))


def random(*shape):
    return torch.randn(shape, device=GPU, dtype=torch.bfloat16)


def peaks():
    source = torch.zeros(1 << 30, device=GPU, dtype=torch.uint8)
    target = torch.empty_like(source)
    seconds = seconds_of(lambda: target.copy_(source))
    say({"kind": "peak", "what": "copy_bandwidth", "value": 2 * source.numel() / seconds})
    del source, target
    best = 0.0
    for m, n, k in ((8192, 8192, 8192), (16384, 8192, 4096), (8192, 8192, 16384),
                    (16384, 16384, 8192)):
        a, b = random(m, k), random(k, n)
        rate = 2 * m * n * k / seconds_of(lambda: torch.mm(a, b), least=0.1)
        best = max(best, rate)
        say({"kind": "facts", "product": [m, n, k], "flops_per_second": rate})
    say({"kind": "peak", "what": "gemm_peak", "value": best})


def products(tally, title):
    with open(tally, encoding="utf-8") as file:
        case = json.load(file)[title]
    import predict  # beside this file
    for one in predict.as_on_a_gpu(case, case["products"]):
        if one["gelu"]:
            continue
        m, n, k = one["m"], one["n"], one["k"]
        a = random(k, m).t() if one["transpose_a"] else random(m, k)
        b = random(n, k).t() if one["transpose_b"] else random(k, n)
        seconds = seconds_of(lambda: torch.mm(a, b))
        say({"kind": "measured", "case": title, "what": f"torch: {predict.name_of(one)}",
             "us_per_token": 1e6 * seconds * one["calls"] / case["tokens"]})
        say({"kind": "facts", "product": [m, n, k], "flops_per_second": 2 * m * n * k / seconds})


# Of each head size that Trireme's kernels have, heads as models of that size have them, and
# 16384 tokens: trireme_micro has the same (perf/micro/attention.cpp).
SHAPES = tuple((16384 // length, heads, length, head_size)
               for heads, head_size in ((12, 64), (12, 80), (16, 96), (24, 128))
               for length in (1024, 2048, 8192))


def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    for batch, heads, length, head_size in SHAPES:
        q, k, v, d_o = (random(batch, heads, length, head_size) for _ in range(4))
        for tensor in (q, k, v):
            tensor.requires_grad_()

        def forward():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        def both():
            torch.autograd.grad(forward(), (q, k, v), d_o)

        say({"kind": "attention", "by": "torch flash", "shape": [batch, heads, length, head_size],
             "forward": seconds_of(forward), "both": seconds_of(both)})


if __name__ == "__main__":
    {"peaks": peaks, "products": products, "attention": attention}[sys.argv[1]](*sys.argv[2:])
