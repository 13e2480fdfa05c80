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
import pathlib

import numpy
import torch
import transformers

import oracle as shared

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


def make(name, case):
    directory = HERE / name
    torch.manual_seed(case["seed"])
    generator = torch.Generator().manual_seed(case["seed"] + 1000)
    config = transformers.GPT2Config(
        vocab_size=case["vocab"], n_positions=case["sequence"], n_embd=case["hidden"],
        n_layer=case["layers"], n_head=case["heads"], resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, layer_norm_epsilon=1e-5, activation_function="gelu_new",
        bos_token_id=case["vocab"] - 1, eos_token_id=case["vocab"] - 1,
        attn_implementation="eager")
    kind = transformers.GPT2LMHeadModel
    model = shared.saved_and_read(kind(config), kind, directory, case["perturb"], generator)
    tokens = shared.noisy_walk(
        (max(case["train_steps"], 1), case["batch"], case["sequence"] + 1), case["vocab"],
        generator)
    logits, loss = forward(model, tokens[0])
    loss.backward()
    names = list(our_names(case["layers"]))
    oracle = {"tokens": tokens.to(torch.int32).numpy(), "logits": logits.detach().numpy(),
              "loss": numpy.array([loss.item()])}
    gradients = shared.in_our_layout(model, names, lambda p: p.grad, torch.float64)
    oracle.update({f"gradient/{n}": g for n, g in gradients.items()})
    for i, length in enumerate(case["prompts"]):
        prompt = torch.randint(0, case["vocab"], (length,), generator=generator).tolist()
        oracle[f"prompt/{i}"] = numpy.array(prompt, dtype=numpy.int32)
        oracle[f"continuation/{i}"] = generate_greedily(model, prompt).to(torch.int32).numpy()
    if case["train_steps"]:
        shared.train(model, len(tokens), lambda n: forward(model, tokens[n])[1], oracle)
        final = shared.in_our_layout(model, names, lambda p: p, torch.float32)
        oracle.update({f"final/{n}": w for n, w in final.items()})
    shared.save_oracle(oracle, directory, heads=case["heads"])
    print(name, "loss", loss.item(), "continuations",
          [oracle[f"continuation/{i}"].tolist() for i in range(len(case["prompts"]))])
    if case["train_steps"]:
        print("  losses", oracle["train/loss"], "\n  norms", oracle["train/grad_norm"])


if __name__ == "__main__":
    for case_name, settings in CASES.items():
        make(case_name, settings)
