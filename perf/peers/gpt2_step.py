#!/usr/bin/env python3
"""One GPT-2 training step in PyTorch: the peer that Trireme is measured against.

The same work as a Trireme step, written the way a careful PyTorch user would: learned
positions, pre-LayerNorm, tanh GeLU, tied head, scaled_dot_product_attention, mean token
cross-entropy, global-norm clip, AdamW with decay on matrices only (one fused kernel).
In fp32, or with --autocast in bf16 as PyTorch does it: fp32 weights that are cast in each
forward pass. Prints JSON lines: one "setup" object, one "step" object per measured step,
one "summary". Peak memory is that of the process (VmHWM): before the model is built, up to
the end of the warm-up (which compiles), and of the measured steps alone.

    python gpt2_step.py --micro 4 --sequence 256 --compile --steps 5
    python gpt2_step.py --serve ...   # reads a number of steps per line, for perf/compare.py
"""
import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import sys
import time


def add_step_arguments(parser):
    """What the steps of all models take."""
    parser.add_argument("--micro", type=int, default=4, help="sequences of a forward pass")
    parser.add_argument("--accumulate", type=int, default=1,
                        help="forward and backward passes of a step")
    parser.add_argument("--sequence", type=int, default=256, help="tokens per sequence")
    parser.add_argument("--dropout", type=float, default=0.0,
                        help="probability, at all of the model's sites (attention's too)")
    parser.add_argument("--optimizer", choices=["fused", "foreach"], default="fused")
    parser.add_argument("--compile", action="store_true", help="torch.compile (inductor)")
    parser.add_argument("--mode", default="default", help="mode of torch.compile")
    parser.add_argument("--autocast", action="store_true", help="compute in bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=5, help="measured steps")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--serve", action="store_true",
                        help="stay up: one line 'N' on stdin runs N measured steps")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_step_arguments(parser)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--nanogpt", metavar="DIR",
                        help="take the model and the optimizer of this copy of nanoGPT instead")
    return parser.parse_args()


def build_model(torch, arguments):
    """GPT-2 as torch.nn modules; returns a module: (tokens (b, s+1)) -> mean loss."""
    nn, functional = torch.nn, torch.nn.functional
    hidden, heads, dropout = arguments.hidden, arguments.heads, arguments.dropout

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.input_norm = nn.LayerNorm(hidden, eps=1e-5)
            self.qkv = nn.Linear(hidden, 3 * hidden)
            self.projection = nn.Linear(hidden, hidden)
            self.mlp_norm = nn.LayerNorm(hidden, eps=1e-5)
            self.fc1 = nn.Linear(hidden, 4 * hidden)
            self.fc2 = nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.input_norm(x)).split(hidden, dim=2)
            q, k, v = (t.view(batch, length, heads, hidden // heads).transpose(1, 2)
                       for t in (q, k, v))
            y = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, dropout_p=dropout if self.training else 0.0)
            y = self.projection(y.transpose(1, 2).reshape(batch, length, hidden))
            x = x + functional.dropout(y, dropout, self.training)
            y = self.fc2(functional.gelu(self.fc1(self.mlp_norm(x)), approximate="tanh"))
            return x + functional.dropout(y, dropout, self.training)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(arguments.vocab, hidden)
            self.position = nn.Embedding(arguments.sequence, hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(arguments.layers))
            self.final_norm = nn.LayerNorm(hidden, eps=1e-5)
            for name, weight in self.named_parameters():
                if weight.dim() >= 2:
                    scale = 1 / math.sqrt(2 * arguments.layers) if (
                        "projection" in name or "fc2" in name) else 1.0
                    nn.init.normal_(weight, std=0.02 * scale)
                elif name.endswith("bias"):
                    nn.init.zeros_(weight)

        def forward(self, tokens):
            inputs, targets = tokens[:, :-1], tokens[:, 1:]
            positions = torch.arange(inputs.shape[1], device=inputs.device)
            x = self.word(inputs) + self.position(positions)
            x = functional.dropout(x, dropout, self.training)
            for layer in self.layers:
                x = layer(x)
            logits = functional.linear(self.final_norm(x), self.word.weight)
            return functional.cross_entropy(logits.view(-1, arguments.vocab),
                                            targets.reshape(-1))

    return Gpt()


def build_nanogpt(torch, arguments):
    """nanoGPT's model and its own choice of optimizer, with GPT-2's biases."""
    sys.path.insert(0, arguments.nanogpt)
    with contextlib.redirect_stdout(sys.stderr):  # it talks
        from model import GPT, GPTConfig
        gpt = GPT(GPTConfig(block_size=arguments.sequence, vocab_size=arguments.vocab,
                            n_layer=arguments.layers, n_head=arguments.heads,
                            n_embd=arguments.hidden, dropout=arguments.dropout, bias=True))
        optimizer = gpt.configure_optimizers(0.1, 3e-4, (0.9, 0.95), "cpu")

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gpt = gpt

        def forward(self, tokens):
            return self.gpt(tokens[:, :-1], tokens[:, 1:].contiguous())[1]

    return Loss(), optimizer


def peak_bytes():
    """The most memory that this process has occupied (VmHWM); 0 where that is not known."""
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


def forget_peak():
    """From here on VmHWM counts anew, from what is occupied now."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w",
                                            encoding="ascii") as file:
        file.write("5")


def build_optimizer(torch, model, arguments):
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8,
                             **{arguments.optimizer: True})


def load_torch(arguments):
    # Before torch is loaded: its OpenMP reads these once.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(arguments.threads)
    import torch
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    return torch


def run_steps(torch, arguments, model, optimizer, batches, before_model):
    """Warms up, and makes the steps that are asked for: of a module batch -> loss, by the
    batches in turn. `before_model`: peak_bytes() before there was a model."""
    parameters = list(model.train().parameters())
    loss_of = torch.compile(model, mode=arguments.mode) if arguments.compile else model
    tokens_per_step = arguments.micro * arguments.sequence * arguments.accumulate
    count = 0

    def step():
        nonlocal count
        start = time.perf_counter()
        value = 0.0
        for part in range(arguments.accumulate):
            batch = batches[(count * arguments.accumulate + part) % len(batches)]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.autocast):
                loss = loss_of(batch) / arguments.accumulate
            loss.backward()
            value += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        count += 1
        return {"step": count, "loss": value, "grad_norm": norm.item(),
                "seconds": time.perf_counter() - start}

    def say(record):
        print(json.dumps(record), flush=True)

    def measure(steps):
        seconds = []
        for _ in range(steps):
            record = step()
            seconds.append(record["seconds"])
            say(record)
        median = statistics.median(seconds)
        say({"summary": True, "steps": steps, "median_seconds": median,
             "min_seconds": min(seconds), "max_seconds": max(seconds),
             "tokens_per_second": tokens_per_step / median,
             "best_tokens_per_second": tokens_per_step / min(seconds),
             "peak_bytes_of_steps": peak_bytes()})

    start = time.perf_counter()
    for _ in range(arguments.warmup):
        step()
    say({"setup": True, "torch": torch.__version__, "python": platform.python_version(),
         "threads": torch.get_num_threads(), "capability": torch.backends.cpu.get_cpu_capability(),
         "parameters": sum(p.numel() for p in parameters), "tokens_per_step": tokens_per_step,
         "warmup_steps": arguments.warmup, "warmup_seconds": time.perf_counter() - start,
         "peak_bytes_before_model": before_model, "peak_bytes_of_warmup": peak_bytes(),
         "arguments": vars(arguments)})
    forget_peak()
    if arguments.serve:
        for line in sys.stdin:
            if line.strip():
                measure(int(line))
    else:
        measure(arguments.steps)


def main():
    arguments = parse_arguments()
    torch = load_torch(arguments)
    before_model = peak_bytes()
    if arguments.nanogpt:
        model, optimizer = build_nanogpt(torch, arguments)
    else:
        model = build_model(torch, arguments)
        optimizer = build_optimizer(torch, model, arguments)
    batches = torch.randint(0, arguments.vocab,
                            (8, arguments.micro, arguments.sequence + 1))
    run_steps(torch, arguments, model, optimizer, batches, before_model)


if __name__ == "__main__":
    main()
