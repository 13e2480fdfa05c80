#!/usr/bin/env python3
"""Writes the fixtures of training in 16 bits: the losses of a small GPT-2 that PyTorch
trains on Genesis in fp32, bf16 and fp16.

Run by hand where torch, h5py, PyYAML, a `trireme` (which makes bytes tokens) and the
program `bible` are installed; what it writes is committed, so that the test needs none
of them:

    python tests/parity/make_narrow_fixtures.py --trireme build/release/bin/trireme

fixtures/narrow/text.txt     chapters 1 to 32, a verse a line (King James, public domain)
fixtures/narrow/losses.json  for each run: the loss of every step, steps that were left
                             out by an overflow, the loss of validation after the last

The deck is fixtures/narrow/deck.yaml. Weights begin, and samples come, as
docs/random_numbers.py draws them from the run's seeds, so that nothing but text and
losses need be kept. Beside the three types there are two more runs: fp16_overflows, from a
scale at which gradients overflow and with a window that lets it grow to there again, and
bf16_of_torch, which computes with PyTorch's own tensors and kernels of bf16.

What is narrow, and what is not: master weights, moments, gradients of weights, sums
within a product, softmax, statistics of norms and the loss are fp32. Weights are rounded
to the type once a step, and so are all that a layer hands on: outputs of products, norms
and activations, probabilities, the residual stream, logits, and the gradients of all
these. Numbers of a narrow type are kept in fp32 tensors here, which hold them exactly, so
that every product of two is exact and its sums are fp32, as on an AMX unit. So the places
where numbers are rounded are this script's; bf16_of_torch has them where PyTorch does.

The learning rate is one that does not amplify rounding. At 3e-3 the losses of this very
script in bf16, with attention's probabilities rounded and left as they are, come to lie
2.6 % apart (step 27), and nothing can be said of 1 %.
"""
import argparse
import dataclasses
import importlib.util
import json
import math
import pathlib
import subprocess
import tempfile

import h5py
import torch
import yaml

HERE = pathlib.Path(__file__).resolve().parent
FIXTURE = HERE / "fixtures" / "narrow"
LAST_CHAPTER = 32


@dataclasses.dataclass
class Run:
    dtype: torch.dtype
    is_own: bool = False  # by PyTorch's own kernels of the type
    first_scale: float = 1.0
    window: int = 0  # 0: the scale is constant
    steps: int = 0  # 0: all of the deck's


RUNS = {"fp32": Run(torch.float32),
        "bf16": Run(torch.bfloat16),
        "fp16": Run(torch.float16, first_scale=65536.0, window=1000),
        "fp16_overflows": Run(torch.float16, first_scale=2.0 ** 26, window=6, steps=48),
        "bf16_of_torch": Run(torch.bfloat16, is_own=True)}


def documented_numbers():
    path = HERE.parents[1] / "docs" / "random_numbers.py"
    spec = importlib.util.spec_from_file_location("random_numbers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NUMBERS = documented_numbers()


class RoundBoth(torch.autograd.Function):
    """A number of the type goes on, and so does its gradient."""

    @staticmethod
    def forward(context, x, dtype):
        context.dtype = dtype
        return x.to(dtype).float()

    @staticmethod
    def backward(context, gradient):
        return gradient.to(context.dtype).float(), None


class RoundForward(torch.autograd.Function):
    """The compute copy of a master weight, whose gradient stays fp32."""

    @staticmethod
    def forward(context, x, dtype):
        return x.to(dtype).float()

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def draw_weights(deck, vocabulary):
    """{name: tensor}; half a minute, so that it is done once for all types."""
    model, seed, weights = deck["model"], deck["run"]["seed"], {}
    layers, hidden, std = model["layers"], model["hidden"], model["init_std"]
    branch = std / math.sqrt(2 * layers)

    def matrix(name, rows, columns, std):
        weights[f"{name}/weight"] = torch.tensor(
            [[NUMBERS.weight(seed, f"{name}/weight", row, column, columns, std)
              for column in range(columns)] for row in range(rows)])

    def norm(name):
        weights[f"{name}/weight"] = torch.ones(hidden)
        weights[f"{name}/bias"] = torch.zeros(hidden)

    matrix("embedding/word", vocabulary, hidden, std)
    matrix("embedding/position", model["sequence"], hidden, std)
    for i in range(layers):
        for name, rows, columns, scale in (
                ("attention/qkv", 3 * hidden, hidden, std),
                ("attention/projection", hidden, hidden, branch),
                ("mlp/fc1", 4 * hidden, hidden, std),
                ("mlp/fc2", hidden, 4 * hidden, branch)):
            matrix(f"layers/{i}/{name}", rows, columns, scale)
            weights[f"layers/{i}/{name}/bias"] = torch.zeros(rows)
        norm(f"layers/{i}/input_norm")
        norm(f"layers/{i}/mlp_norm")
    norm("final_norm")
    return weights


class Gpt:
    def __init__(self, deck, weights):
        model = deck["model"]
        self.layers, self.hidden = model["layers"], model["hidden"]
        self.heads = model["heads"]
        self.masters = {name: weight.clone().requires_grad_()
                        for name, weight in weights.items()}

    def loss(self, tokens, dtype):
        """Mean cross-entropy of rows of tokens, (b, s + 1)."""
        weights = {name: RoundForward.apply(weight, dtype)
                   for name, weight in self.masters.items()}

        def narrow(x):
            return RoundBoth.apply(x, dtype)

        def norm(name, x):
            return narrow(torch.nn.functional.layer_norm(
                x, (self.hidden,), weights[f"{name}/weight"], weights[f"{name}/bias"], 1e-5))

        def product(name, x):
            return narrow(x @ weights[f"{name}/weight"].T)

        def biased_product(name, x):  # rounded once
            return narrow(x @ weights[f"{name}/weight"].T + weights[f"{name}/bias"])

        def attention(i, x):
            b, s, _ = x.shape
            qkv = biased_product(f"layers/{i}/attention/qkv", x)
            q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2)
                       for part in qkv.split(self.hidden, dim=2))
            scores = q @ k.transpose(2, 3) / math.sqrt(self.hidden // self.heads)
            hidden = torch.ones(s, s, dtype=torch.bool).triu(1)
            p = narrow(scores.masked_fill(hidden, -math.inf).softmax(dim=-1))
            y = narrow(p @ v).transpose(1, 2).reshape(b, s, self.hidden)
            return product(f"layers/{i}/attention/projection", y)

        def mlp(i, x):
            z = biased_product(f"layers/{i}/mlp/fc1", x)
            y = narrow(torch.nn.functional.gelu(z, approximate="tanh"))
            return product(f"layers/{i}/mlp/fc2", y)

        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        word = weights["embedding/word/weight"]
        x = narrow(word[inputs] + weights["embedding/position/weight"][:inputs.shape[1]])
        for i in range(self.layers):
            for branch, bias, before in ((attention, "attention/projection", "input_norm"),
                                         (mlp, "mlp/fc2", "mlp_norm")):
                y = branch(i, norm(f"layers/{i}/{before}", x))
                x = narrow(x + y + weights[f"layers/{i}/{bias}/bias"])
        logits = narrow(norm("final_norm", x) @ word.T)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def own_loss(self, tokens, dtype):
        """The same by PyTorch's kernels of the type: they decide what is rounded."""
        weights = {name: weight.to(dtype) for name, weight in self.masters.items()}
        functional = torch.nn.functional

        def norm(name, x):
            return functional.layer_norm(x, (self.hidden,), weights[f"{name}/weight"],
                                         weights[f"{name}/bias"], 1e-5)

        def linear(name, x):
            return functional.linear(x, weights[f"{name}/weight"], weights[f"{name}/bias"])

        def attention(i, x):
            b, s, _ = x.shape
            q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in
                       linear(f"layers/{i}/attention/qkv", x).split(self.hidden, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return linear(f"layers/{i}/attention/projection",
                          y.transpose(1, 2).reshape(b, s, self.hidden))

        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        word = weights["embedding/word/weight"]
        x = word[inputs] + weights["embedding/position/weight"][:inputs.shape[1]]
        for i in range(self.layers):
            x = x + attention(i, norm(f"layers/{i}/input_norm", x))
            z = linear(f"layers/{i}/mlp/fc1", norm(f"layers/{i}/mlp_norm", x))
            x = x + linear(f"layers/{i}/mlp/fc2",
                           functional.gelu(z, approximate="tanh"))
        logits = functional.linear(norm("final_norm", x), word).float()
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class LossScale:
    """Megatron-LM's rules, for fp16; else always 1."""

    def __init__(self, first, window):
        self.scale, self.window, self.left, self.finite = first, window, 2, 0

    def update(self, is_finite):
        if self.window == 0:
            assert is_finite
        elif is_finite:
            self.finite += 1
            if self.finite == self.window:
                self.scale, self.left, self.finite = 2 * self.scale, 2, 0
        else:
            self.finite, self.left = 0, self.left - 1
            if self.left <= 0:
                self.scale = max(self.scale / 2, 1.0)


def learning_rate(k, settings, steps):
    """Of update k, from 1: linear warm-up, then cosine to the least."""
    peak, least, warmup = settings["lr"], settings["min_lr"], settings["warmup"]
    if k <= warmup:
        return peak * k / warmup
    part = (k - warmup) / (steps - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * part))


def make_optimizer(model, settings):
    masters = list(model.masters.values())
    return torch.optim.AdamW(
        [{"params": [p for p in masters if p.dim() == 2],
          "weight_decay": settings["weight_decay"]},
         {"params": [p for p in masters if p.dim() == 1], "weight_decay": 0.0}],
        betas=settings["betas"], eps=settings["eps"], foreach=False, fused=False)


def batch_of(deck, tokens, end, step):
    size, sequence = deck["batch"]["global"], deck["model"]["sequence"]
    firsts = [NUMBERS.window(deck["data"]["seed"], size * step + i, 0, 0, end, sequence)
              for i in range(size)]
    return torch.stack([tokens[first:first + sequence + 1] for first in firsts])


def validation_loss(deck, loss_of, tokens, begin):
    sequence = deck["model"]["sequence"]
    windows = torch.stack([tokens[first:first + sequence + 1] for first in
                           range(begin, len(tokens) - sequence, sequence)])
    with torch.no_grad():
        return loss_of(windows).item()


def train(deck, tokens, weights, name):
    run, steps, settings = RUNS[name], deck["run"]["steps"], deck["optimizer"]
    model = Gpt(deck, weights)

    def loss_of(samples):
        return (model.own_loss if run.is_own else model.loss)(samples, run.dtype)

    optimizer = make_optimizer(model, settings)
    masters = list(model.masters.values())
    scaling = LossScale(run.first_scale, run.window)
    end = math.floor(deck["data"]["split"][0] * len(tokens))  # of what is trained on
    losses, skipped, update = [], [], 1
    for step in range(run.steps or steps):
        loss = loss_of(batch_of(deck, tokens, end, step))
        optimizer.zero_grad()
        (loss * scaling.scale).backward()
        for master in masters:
            master.grad /= scaling.scale
        norm = torch.nn.utils.clip_grad_norm_(masters, settings["clip_norm"])
        is_finite = bool(torch.isfinite(norm))
        if is_finite:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(update, settings, steps)
            optimizer.step()
            update += 1
        else:
            skipped.append(step + 1)
        scaling.update(is_finite)
        losses.append(round(loss.item(), 5))
        print(f"{name} {step + 1} {losses[-1]:.4f}", end="\r")
    validation = validation_loss(deck, loss_of, tokens, end)
    print(f"{name}: loss {losses[0]} to {losses[-1]}, validation {validation:.5f}, "
          f"skipped {skipped}, last scale {scaling.scale:g}")
    return {"losses": losses, "skipped": skipped, "validation": round(validation, 6)}


def genesis():
    """One verse a line, an empty line between chapters; labels ("Ge1:1 ") go."""
    verses = subprocess.run(["bible", "-f", f"gen1:1-gen{LAST_CHAPTER}:32"], check=True,
                            capture_output=True, text=True).stdout.splitlines()
    text, last = "", None
    for verse in verses:
        label, words = verse.split(" ", 1)
        chapter = label.split(":")[0]
        text += ("\n" if last not in (None, chapter) else "") + words + "\n"
        last = chapter
    return text


def tokens_of(trireme, text):
    with tempfile.TemporaryDirectory() as directory:
        corpus = pathlib.Path(directory, "corpus.h5")
        subprocess.run([trireme, "tokenize", "--train-bpe", "257", "--out", corpus, text],
                       check=True, stdout=subprocess.DEVNULL)
        with h5py.File(corpus) as file:
            return (torch.from_numpy(file["tokens"][:].astype("int64")),
                    int(file.attrs["vocabulary_size"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--trireme", required=True)
    arguments = parser.parse_args()
    deck = yaml.safe_load((FIXTURE / "deck.yaml").read_text())
    text = FIXTURE / "text.txt"
    text.write_text(genesis())
    tokens, vocabulary = tokens_of(arguments.trireme, text)
    weights = draw_weights(deck, vocabulary)
    runs = {name: train(deck, tokens, weights, name) for name in RUNS}
    lines = ",\n".join(f'"{name}": {json.dumps(run)}' for name, run in runs.items())
    (FIXTURE / "losses.json").write_text(
        f'{{"torch": "{torch.__version__}",\n{lines}}}\n')


if __name__ == "__main__":
    main()
