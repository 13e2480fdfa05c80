#!/usr/bin/env python3
"""Writes the T5 parity fixtures: what Hugging Face's T5 (v1.0: ReLU, tied head; v1.1: gated
GELU, a head of its own), in fp64, makes of given weights.

Run by hand where torch, transformers (of version 4: 5 ties every T5's head), safetensors and
numpy are installed; what it writes is committed, so that the tests need none of them:

    python tests/parity/make_t5_fixtures.py

fixtures/<case>/config.json, model.safetensors   the model as transformers saves it (fp32:
                                                 the fp64 run starts from these very values)
fixtures/<case>/oracle.safetensors; one batch a step, batch 0 is the one below:
    source (n, b, s), source_lengths (n, b) int32
    target, labels (n, b, s') int32              what the decoder reads, what it is to say
    target_lengths (n, b) int32, loss_mask (n, b, s') float32
    logits (b, s', v)                            of batch 0, fp64; zero where the mask is
    loss (1)                                     the mean by the mask
    gradient/<name>                              d loss / d weight, fp64, our layout
    greedy (b, n) int32                          what generate() makes of the sources of batch 0,
                                                 without the padding that it begins with; behind
                                                 the end (1) padding
  and, where the case trains:
    train/loss, train/grad_norm, train/learning_rate (n)
    final/<name>                                 weights after the last step, rounded to fp32
"""
import pathlib

import numpy
import torch
import transformers

import oracle as shared


def in_fp64():
    """Hugging Face's T5 takes the statistics of its norms and its softmax in fp32 whatever
    the model's type: here in that of the numbers."""
    def norm(self, states):
        variance = states.pow(2).mean(-1, keepdim=True)
        return self.weight * (states * torch.rsqrt(variance + self.variance_epsilon))

    transformers.models.t5.modeling_t5.T5LayerNorm.forward = norm
    narrowing = torch.Tensor.float
    torch.Tensor.float = lambda self: (self if self.dtype == torch.float64
                                       else narrowing(self))


GREEDY_WORDS = 16

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"

CASES = {
    # T5's own initialisation, lengths ragged, and others at each other step; trains. The
    # heads together are wider than the model, and the decoder is deeper than the encoder.
    "t5_tiny": dict(version="1.0", vocab=101, source=24, target=14, hidden=24, heads=4,
                    head_size=8, ffn=48, layers=2, decoder_layers=3, buckets=32,
                    distance=128, source_lengths=[(24, 9, 17), (5, 24, 20)],
                    target_lengths=[(14, 14, 6), (3, 11, 14)], seed=31, perturb=0.0,
                    train_steps=20),
    # The same of v1.1, whose encoder is the deeper one.
    "t5_v11_tiny": dict(version="1.1", vocab=101, source=24, target=14, hidden=24, heads=4,
                        head_size=8, ffn=40, layers=2, decoder_layers=1, buckets=32,
                        distance=128, source_lengths=[(11, 24, 6), (24, 18, 3)],
                        target_lengths=[(14, 5, 10), (12, 14, 2)], seed=35, perturb=0.0,
                        train_steps=20),
    # Nothing a power of two, lengths ragged, buckets few enough that distances share them.
    "t5_odd": dict(version="1.0", vocab=97, source=37, target=23, hidden=30, heads=3,
                   head_size=6, ffn=44, layers=2, decoder_layers=2, buckets=8, distance=20,
                   source_lengths=[(37, 9, 21)], target_lengths=[(23, 5, 17)], seed=32,
                   perturb=0.25, train_steps=20),
    "t5_v11_odd": dict(version="1.1", vocab=97, source=37, target=23, hidden=30, heads=3,
                       head_size=6, ffn=44, layers=2, decoder_layers=2, buckets=8,
                       distance=20, source_lengths=[(5, 37, 30)],
                       target_lengths=[(11, 23, 2)], seed=33, perturb=0.1, train_steps=20),
}


def our_names(case):
    """(our name, Hugging Face's, transposed). Query, key and value are one matrix of ours,
    of cross attention key and value; so are the gate and what it gates."""
    wide = ["wi"] if case["version"] == "1.0" else ["wi_0", "wi_1"]

    def self_attention(ours, theirs):
        yield (f"{ours}/attention/qkv/weight",
               [f"{theirs}.SelfAttention.{part}.weight" for part in "qkv"], False)
        yield f"{ours}/attention/projection/weight", f"{theirs}.SelfAttention.o.weight", False
        yield f"{ours}/input_norm/weight", f"{theirs}.layer_norm.weight", False

    def cross_attention(ours, theirs):
        yield f"{ours}/cross/q/weight", f"{theirs}.EncDecAttention.q.weight", False
        yield (f"{ours}/cross/kv/weight",
               [f"{theirs}.EncDecAttention.{part}.weight" for part in "kv"], False)
        yield f"{ours}/cross/projection/weight", f"{theirs}.EncDecAttention.o.weight", False
        yield f"{ours}/cross_norm/weight", f"{theirs}.layer_norm.weight", False

    def mlp(ours, theirs):
        yield (f"{ours}/mlp/fc1/weight",
               [f"{theirs}.DenseReluDense.{part}.weight" for part in wide], False)
        yield f"{ours}/mlp/fc2/weight", f"{theirs}.DenseReluDense.wo.weight", False
        yield f"{ours}/mlp_norm/weight", f"{theirs}.layer_norm.weight", False

    yield "embedding/word/weight", "shared.weight", False
    for stack, layers in (("encoder", case["layers"]), ("decoder", case["decoder_layers"])):
        yield (f"{stack}/relative_bias/weight",
               f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", False)
        for i in range(layers):
            ours, theirs = f"{stack}/layers/{i}", f"{stack}.block.{i}.layer"
            yield from self_attention(ours, f"{theirs}.0")
            if stack == "decoder":
                yield from cross_attention(ours, f"{theirs}.1")
            yield from mlp(ours, f"{theirs}.{2 if stack == 'decoder' else 1}")
    yield "encoder/final_norm/weight", "encoder.final_layer_norm.weight", False
    yield "final_norm/weight", "decoder.final_layer_norm.weight", False
    if case["version"] != "1.0":
        yield "head/word/weight", "lm_head.weight", False


def make_batches(case, generator):
    """Fields of all batches, as tensors by name."""
    count = max(case["train_steps"], 1)
    b = len(case["source_lengths"][0])

    def lengths(of):
        return torch.tensor([case[of][n % len(case[of])] for n in range(count)])

    source = shared.noisy_walk((count, b, case["source"]), case["vocab"], generator)
    # What is to be said is what was read, from its third word on.
    labels = source[:, :, 2:2 + case["target"]].clone()
    target = torch.cat([torch.zeros(count, b, 1, dtype=labels.dtype), labels[:, :, :-1]], 2)
    source_lengths, target_lengths = lengths("source_lengths"), lengths("target_lengths")
    mask = torch.arange(case["target"])[None, None] < target_lengths[:, :, None]
    return {"source": source, "source_lengths": source_lengths, "target": target,
            "target_lengths": target_lengths, "labels": labels, "loss_mask": mask.float()}


def forward(model, batch):
    """Logits (b, s', v), zero where the mask is, and the mean cross-entropy by the mask."""
    read = torch.arange(batch["source"].shape[1])[None] < batch["source_lengths"][:, None]
    logits = model(input_ids=batch["source"], attention_mask=read.long(),
                   decoder_input_ids=batch["target"]).logits
    mask = batch["loss_mask"].double()
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                               batch["labels"].flatten(), reduction="none")
    return logits * mask[:, :, None], (losses * mask.flatten()).sum() / mask.sum()


def greedy(model, batch):
    """The most probable words (b, n), one by one. None is by so little that rounding chooses."""
    read = torch.arange(batch["source"].shape[1])[None] < batch["source_lengths"][:, None]
    made = model.generate(batch["source"], attention_mask=read.long(), do_sample=False,
                          num_beams=1, max_new_tokens=GREEDY_WORDS, use_cache=False,
                          output_logits=True, return_dict_in_generate=True)
    words = made.sequences[:, 1:]
    best = torch.stack(made.logits, 1).topk(2).values
    ended = (words == 1).cumsum(1) - (words == 1).long() > 0
    least = (best[..., 0] - best[..., 1])[~ended].min().item()
    assert least > 1e-3, f"two words are as probable but for {least}"
    return words


def make_model(case, directory, generator):
    is_first = case["version"] == "1.0"
    config = transformers.T5Config(
        vocab_size=case["vocab"], d_model=case["hidden"], d_kv=case["head_size"],
        d_ff=case["ffn"], num_layers=case["layers"],
        num_decoder_layers=case["decoder_layers"], num_heads=case["heads"],
        relative_attention_num_buckets=case["buckets"],
        relative_attention_max_distance=case["distance"], dropout_rate=0.0,
        layer_norm_epsilon=1e-6, feed_forward_proj="relu" if is_first else "gated-gelu",
        tie_word_embeddings=is_first, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, attn_implementation="eager")
    kind = transformers.T5ForConditionalGeneration
    return shared.saved_and_read(kind(config), kind, directory, case["perturb"], generator)


def make(name, case):
    directory = HERE / name
    torch.manual_seed(case["seed"])
    generator = torch.Generator().manual_seed(case["seed"] + 1000)
    model = make_model(case, directory, generator)
    batches = make_batches(case, generator)

    def batch(n):
        return {field: values[n] for field, values in batches.items()}

    logits, loss = forward(model, batch(0))
    loss.backward()
    oracle = {field: values.to(torch.float32 if field == "loss_mask" else
                               torch.int32).numpy() for field, values in batches.items()}
    oracle.update({"logits": logits.detach().numpy(), "loss": numpy.array([loss.item()])})
    oracle["greedy"] = greedy(model, batch(0)).to(torch.int32).numpy()
    names = list(our_names(case))
    gradients = shared.in_our_layout(model, names, lambda p: p.grad, torch.float64)
    oracle.update({f"gradient/{n}": g for n, g in gradients.items()})
    if case["train_steps"]:
        shared.train(model, case["train_steps"], lambda n: forward(model, batch(n))[1],
                     oracle)
        final = shared.in_our_layout(model, names, lambda p: p, torch.float32)
        oracle.update({f"final/{n}": w for n, w in final.items()})
    shared.save_oracle(oracle, directory, heads=case["heads"], version=case["version"])
    print(name, "loss", loss.item(), "bytes",
          sum(path.stat().st_size for path in directory.iterdir()))
    if case["train_steps"]:
        print("  losses", oracle["train/loss"].tolist())


if __name__ == "__main__":
    in_fp64()
    for case_name, settings in CASES.items():
        make(case_name, settings)
