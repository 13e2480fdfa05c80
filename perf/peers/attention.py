#!/usr/bin/env python3
"""Causal attention alone, forward and backward: Trireme's kernels beside PyTorch's
scaled_dot_product_attention, alternating in one run.

12 heads of 64, q, k and v as slices of one (s, b, 3 h) array, as a model has them. Each
round times PyTorch and then trireme_micro, so that both see the same machine; the ratio is
that of the medians, PyTorch's with the layout of d_o that is the faster for it. Prints one
JSON line per case.

    python attention.py build/release/bin/trireme_micro --rounds 7
"""
import argparse
import json
import os
import statistics
import subprocess
import time

HEADS, HEAD_SIZE = 12, 64
NAMES = {"bf16": "attention<bf16, kMatrices, both>", "fp32": "attention<float, kVectors, both>"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("micro", help="the program trireme_micro")
    parser.add_argument("--types", nargs="+", choices=sorted(NAMES), default=["bf16", "fp32"])
    parser.add_argument("--shapes", nargs="+", default=["1x1024", "1x2048", "1x8192"],
                        help="batch x sequence")
    parser.add_argument("--dropout", nargs="+", type=int, default=[0], help="per cent: 0, 10")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bind", default="spread", help="OMP_PROC_BIND of trireme_micro")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each side of a round")
    return parser.parse_args()


class Peer:
    """PyTorch's forward and backward passes of one case, the gradient of o as its own
    output lies or as the rows of a model's activations do."""

    def __init__(self, torch, dtype, batch, sequence, dropout, rows):
        self.attend = torch.nn.functional.scaled_dot_product_attention
        qkv = torch.randn(sequence, batch, 3, HEADS, HEAD_SIZE, dtype=dtype)
        self.inputs = [qkv[:, :, i].permute(1, 2, 0, 3).detach().requires_grad_()
                       for i in range(3)]
        self.d_o = torch.randn(batch, HEADS, sequence, HEAD_SIZE, dtype=dtype)
        if rows:
            self.d_o = self.d_o.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
        self.dropout = dropout

    def once(self):
        start = time.perf_counter()
        o = self.attend(*self.inputs, is_causal=True, dropout_p=self.dropout)
        o.backward(self.d_o)
        seconds = time.perf_counter() - start
        for tensor in self.inputs:
            tensor.grad = None
        return seconds

    def median(self, least_seconds):
        self.once()
        times = [self.once()]
        while sum(times) < least_seconds:
            times.append(self.once())
        return statistics.median(times)


def time_of_trireme(arguments, kind, batch, sequence, dropout):
    name = f"{NAMES[kind]}/batch:{batch}/sequence:{sequence}/dropout:{dropout}/real_time"
    result = subprocess.run(
        [arguments.micro, f"--benchmark_filter=^{name}$", "--benchmark_format=json",
         f"--benchmark_min_time={arguments.seconds}"],
        check=True, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads),
             "OMP_PROC_BIND": arguments.bind})
    report = json.loads(result.stdout)
    (case,) = report["benchmarks"]
    if case.get("error_occurred"):
        raise SystemExit(f"{name}: {case['error_message']}")
    return case["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[case["time_unit"]]


def main():
    arguments = parse_arguments()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import torch
    torch.set_num_threads(arguments.threads)
    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    for kind in arguments.types:
        for shape in arguments.shapes:
            for dropout in arguments.dropout:
                batch, sequence = map(int, shape.split("x"))
                peers = [Peer(torch, types[kind], batch, sequence, dropout / 100, rows)
                         for rows in (False, True)]
                theirs, ours = [], []
                for _ in range(arguments.rounds):
                    theirs.append(min(peer.median(arguments.seconds) for peer in peers))
                    ours.append(time_of_trireme(arguments, kind, batch, sequence, dropout))
                mine, other = statistics.median(ours), statistics.median(theirs)
                print(json.dumps({"type": kind, "batch": batch, "sequence": sequence,
                                  "dropout": dropout / 100, "rounds": arguments.rounds,
                                  "torch": torch.__version__, "torch_ms": 1e3 * other,
                                  "trireme_ms": 1e3 * mine, "ratio": other / mine}),
                      flush=True)


if __name__ == "__main__":
    main()
