#!/usr/bin/env python3
"""Writes the GPT parity fixtures: what Hugging Face's GPT-2, in fp64, makes of given weights.

Run by hand where torch, transformers, safetensors and numpy are installed; what it writes
is committed, so that the tests need none of them:

    python tests/parity/make_gpt_fixtures.py

fixtures/<case>/config.json, model.safetensors   the model as transformers saves it (fp32:
                                                 the fp64 run starts from these very values)
fixtures/<case>/oracle.safetensors:
    tokens (n, b, s+1) int32                     one batch a step; batch 0 is the one below
    logits (b, s, v), loss (1)                   of batch 0, fp64
    gradient/<name>                              d loss / d weight, fp64, our names and layout
    prompt/<i>, continuation/<i> int32           greedy generation
  and, where the case trains:
    train/loss, train/grad_norm, train/learning_rate (n)   AdamW steps; norms before the clip
    final/<name>                                 weights after the last step, rounded to fp32
"""
import math
import pathlib

import numpy
import torch
import transformers
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"

CASES = {
    # GPT-2's own initialisation; trains.
    "gpt2_tiny": dict(vocab=211, sequence=32, hidden=48, heads=4, layers=3, batch=3,
                      seed=11, perturb=0.0, train_steps=20, prompts=(5, 9)),
    # Nothing a power of two, and no bias zero nor norm weight one: a swapped or forgotten
    # vector cannot hide.
    "gpt2_odd": dict(vocab=97, sequence=17, hidden=30, heads=3, layers=2, batch=2,
                     seed=12, perturb=0.25, train_steps=0, prompts=(1, 4)),
}
OPTIMIZER = dict(lr=1e-3, min_lr=1e-4, warmup=4, betas=(0.9, 0.95), eps=1e-8,
                 weight_decay=0.1, clip_norm=1.0)
NEW_TOKENS = 12


def our_names(layers):
    """(our name, Hugging Face's, transposed): Conv1D keeps (in, out), we keep (out, in)."""
    yield "embedding/word/weight", "transformer.wte.weight", False
    yield "embedding/position/weight", "transformer.wpe.weight", False
    for i in range(layers):
        ours, theirs = f"layers/{i}", f"transformer.h.{i}"
        for a, b, matrix in (("input_norm", "ln_1", False),
                             ("attention/qkv", "attn.c_attn", True),
                             ("attention/projection", "attn.c_proj", True),
                             ("mlp_norm", "ln_2", False),
                             ("mlp/fc1", "mlp.c_fc", True),
                             ("mlp/fc2", "mlp.c_proj", True)):
            yield f"{ours}/{a}/weight", f"{theirs}.{b}.weight", matrix
            yield f"{ours}/{a}/bias", f"{theirs}.{b}.bias", False
    yield "final_norm/weight", "transformer.ln_f.weight", False
    yield "final_norm/bias", "transformer.ln_f.bias", False


def in_our_layout(model, layers, what, dtype):
    """{our name: array} of every parameter, `what` being a function of the parameter."""
    parameters = dict(model.named_parameters())
    result = {}
    for ours, theirs, transposed in our_names(layers):
        value = what(parameters.pop(theirs)).detach().to(dtype).numpy()
        result[ours] = numpy.ascontiguousarray(value.T if transposed else value)
    assert not parameters, f"parameters without a name of ours: {list(parameters)}"
    return result


def make_tokens(case, count, generator):
    """Rows of a noisy affine walk through the vocabulary: something that can be learned."""
    shape = (count, case["batch"], case["sequence"] + 1)
    tokens = torch.randint(0, case["vocab"], shape, generator=generator)
    keep = torch.rand(shape, generator=generator) < 0.8
    for t in range(1, shape[2]):
        walk = (7 * tokens[..., t - 1] + 3) % case["vocab"]
        tokens[..., t] = torch.where(keep[..., t], walk, tokens[..., t])
    return tokens


def learning_rate(k, steps):
    """Of update k, from 1: linear warm-up, then cosine to the least."""
    peak, least, warmup = OPTIMIZER["lr"], OPTIMIZER["min_lr"], OPTIMIZER["warmup"]
    if k <= warmup:
        return peak * k / warmup
    part = (k - warmup) / (steps - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * part))


def forward(model, batch):
    """Logits (b, s, v) and the mean cross-entropy of the next token."""
    logits = model(batch[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    return logits, loss


def generate_greedily(model, prompt):
    """By transformers' generate; refuses a prompt whose choices are too close to call."""
    ids = torch.tensor([prompt])
    result = model.generate(ids, do_sample=False, max_new_tokens=NEW_TOKENS,
                            min_new_tokens=NEW_TOKENS, attention_mask=torch.ones_like(ids),
                            pad_token_id=0, eos_token_id=None)[0]
    with torch.no_grad():
        best = model(result[None]).logits[0, len(prompt) - 1:-1].topk(2).values
    margin = (best[:, 0] - best[:, 1]).min().item()
    assert margin > 1e-4, f"two candidates within {margin}: take another seed"
    return result[len(prompt):]


def train(model, tokens, oracle):
    """AdamW by torch.optim, one batch a step; fills train/*."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]},
         {"params": others, "weight_decay": 0.0}],
        betas=OPTIMIZER["betas"], eps=OPTIMIZER["eps"], foreach=False, fused=False)
    losses, norms, rates = [], [], []
    for k, batch in enumerate(tokens, start=1):
        model.zero_grad()
        loss = forward(model, batch)[1]
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip_norm"])
        rates.append(learning_rate(k, len(tokens)))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    oracle["train/loss"] = numpy.array(losses)
    oracle["train/grad_norm"] = numpy.array(norms)
    oracle["train/learning_rate"] = numpy.array(rates)


def make(name, case):
    directory = HERE / name
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(case["seed"])
    generator = torch.Generator().manual_seed(case["seed"] + 1000)
    config = transformers.GPT2Config(
        vocab_size=case["vocab"], n_positions=case["sequence"], n_embd=case["hidden"],
        n_layer=case["layers"], n_head=case["heads"], resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, layer_norm_epsilon=1e-5, activation_function="gelu_new",
        bos_token_id=case["vocab"] - 1, eos_token_id=case["vocab"] - 1,
        attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += case["perturb"] * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(directory)
    # Fresh from the file, as any reader would: what was saved is what the oracle has.
    model = transformers.GPT2LMHeadModel.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32).double().eval()

    tokens = make_tokens(case, max(case["train_steps"], 1), generator)
    logits, loss = forward(model, tokens[0])
    loss.backward()
    layers = case["layers"]
    oracle = {"tokens": tokens.to(torch.int32).numpy(), "logits": logits.detach().numpy(),
              "loss": numpy.array([loss.item()])}
    gradients = in_our_layout(model, layers, lambda p: p.grad, torch.float64)
    oracle.update({f"gradient/{n}": g for n, g in gradients.items()})
    for i, length in enumerate(case["prompts"]):
        prompt = torch.randint(0, case["vocab"], (length,), generator=generator).tolist()
        oracle[f"prompt/{i}"] = numpy.array(prompt, dtype=numpy.int32)
        oracle[f"continuation/{i}"] = generate_greedily(model, prompt).to(torch.int32).numpy()
    if case["train_steps"]:
        train(model, tokens, oracle)
        final = in_our_layout(model, layers, lambda p: p, torch.float32)
        oracle.update({f"final/{n}": w for n, w in final.items()})
    save_file({n: numpy.ascontiguousarray(a) for n, a in oracle.items()},
              directory / "oracle.safetensors",
              metadata={"torch": torch.__version__, "transformers": transformers.__version__,
                        "heads": str(case["heads"]), **{k: str(v) for k, v in OPTIMIZER.items()}})
    print(name, "loss", loss.item(), "continuations",
          [oracle[f"continuation/{i}"].tolist() for i in range(len(case["prompts"]))])
    if case["train_steps"]:
        print("  losses", oracle["train/loss"], "\n  norms", oracle["train/grad_norm"])


if __name__ == "__main__":
    for case_name, settings in CASES.items():
        make(case_name, settings)
