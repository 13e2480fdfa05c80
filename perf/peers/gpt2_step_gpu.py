#!/usr/bin/env python3
"""One GPT-2 training step in PyTorch on a GPU: the peer of perf/gpu_suite ratio.

The model and the optimizer of gpt2_step.py, the way that is fastest on a GPU: compiled, bf16
under autocast, flash attention, fused AdamW, a vocabulary padded to a multiple of 128. A line
"N" on stdin runs N measured steps; JSON lines are printed as gpt2_step.py does.
"""
import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpt2_step import build_model, build_optimizer  # noqa: E402

# Beyond so many layers they are compiled one by one, which is once, as they are alike.
COMPILED_AS_A_WHOLE = 24


def add_arguments(parser, sequence):
    """Those of every peer on a GPU; `sequence`: the usual length."""
    parser.add_argument("--micro", type=int, default=16, help="samples of a forward pass")
    parser.add_argument("--accumulate", type=int, default=4, help="passes of a step")
    parser.add_argument("--sequence", type=int, default=sequence)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--steps", type=int, default=5)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_arguments(parser, sequence=1024)
    parser.add_argument("--vocab", type=int, default=50304, help="padded")
    arguments = parser.parse_args()
    arguments.optimizer = "fused"
    return arguments


def compiled(torch, model, layers):
    if layers <= COMPILED_AS_A_WHOLE:
        return torch.compile(model)
    for layer in model.layers:
        layer.compile()
    return model


def load_torch():
    import torch
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    return torch


def main():
    arguments = parse_arguments()
    torch = load_torch()
    with torch.device("cuda"):
        model = build_model(torch, arguments).train()
    batches = torch.randint(0, 50257, (8, arguments.micro, arguments.sequence + 1),
                            device="cuda")
    run_steps(torch, arguments, model, compiled(torch, model, arguments.layers), batches)


def run_steps(torch, arguments, model, loss_of, batches):
    """Warms up, and makes the steps that are asked for: loss_of(batch), by the batches in turn,
    of the model's parameters."""
    optimizer = build_optimizer(torch, model, arguments)
    parameters = list(model.parameters())
    count = 0

    def step():
        nonlocal count
        torch.cuda.synchronize()
        begin = time.perf_counter()
        total = torch.zeros((), device="cuda")
        for _ in range(arguments.accumulate):
            count += 1
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(batches[count % len(batches)]) / arguments.accumulate
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = total.item()
        torch.cuda.synchronize()
        return {"step": count, "loss": value, "seconds": time.perf_counter() - begin}

    def say(record):
        print(json.dumps(record), flush=True)

    begin = time.perf_counter()
    for _ in range(arguments.warmup):
        step()
    say({"setup": True, "torch": torch.__version__,
         "warmup_seconds": time.perf_counter() - begin, "arguments": vars(arguments)})

    def measure(steps):
        for _ in range(steps):
            say(step())
        say({"summary": True, "steps": steps, "peak_bytes": torch.cuda.max_memory_allocated()})

    if arguments.serve:
        for line in sys.stdin:
            if line.strip():
                measure(int(line))
    else:
        measure(arguments.steps)


if __name__ == "__main__":
    main()
