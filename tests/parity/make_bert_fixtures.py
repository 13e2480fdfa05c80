#!/usr/bin/env python3
"""Writes the BERT parity fixtures: what Hugging Face's BERT (post-LN) and MegatronBert
(pre-LN, the paper's "rearranged"), in fp64, make of given weights.

Run by hand where torch, transformers, safetensors and numpy are installed; what it writes
is committed, so that the tests need none of them:

    python tests/parity/make_bert_fixtures.py

fixtures/<case>/config.json, model.safetensors   the model as transformers saves it (fp32:
                                                 the fp64 run starts from these very values)
fixtures/<case>/oracle.safetensors; one batch a step, batch 0 is the one below:
    tokens, token_types (n, b, s) int32
    lengths (n, b) int32                         real tokens; what is behind them is anything
    masked_positions, masked_labels (n, b, P) int32, masked_weights (n, b, P) float32
                                                 a position -1 has weight 0
    pair_labels (n, b) int32, pair_weights (n, b) float32
    masked_logits (b, P, v), pair_logits (b, 2)  of batch 0, fp64; rows of -1 are zero
    loss (2)                                     masked, pair: each the mean by its weights
    gradient/<name>                              d (masked + pair) / d weight, our layout
  and of training:
    train/loss (n, 2), train/grad_norm, train/learning_rate (n)
    final/<name>                                 weights after the last step, rounded to fp32
"""
import pathlib

import torch
import transformers

import oracle as shared

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"

CASES = {
    # BERT's own initialisation, lengths ragged, and others at each other step.
    "bert_tiny": dict(norms="post", vocab=101, sequence=24, hidden=32, heads=4, layers=3,
                      predictions=5, lengths=[(22, 24, 6), (24, 9, 16)], seed=21,
                      perturb=0.0, train_steps=20),
    # Nothing a power of two, lengths ragged, fewer predictions than there is room for.
    "bert_odd": dict(norms="post", vocab=97, sequence=17, hidden=30, heads=3, layers=2,
                     predictions=4, lengths=[(17, 9, 5)], seed=22, perturb=0.25,
                     train_steps=20),
    "bert_pre_odd": dict(norms="pre", vocab=97, sequence=17, hidden=30, heads=3, layers=2,
                         predictions=4, lengths=[(11, 17, 3)], seed=23, perturb=0.25,
                         train_steps=20),
    "bert_pre_tiny": dict(norms="pre", vocab=101, sequence=24, hidden=32, heads=4, layers=3,
                          predictions=5, lengths=[(24, 20, 17), (9, 24, 24)], seed=24,
                          perturb=0.0, train_steps=20),
}
EPSILON = {"post": 1e-12, "pre": 1e-5}


def our_names(norms, layers):
    """(our name, Hugging Face's, transposed); query, key and value are one matrix of ours."""
    def both(ours, theirs):
        for part in ("weight", "bias"):
            names = theirs if isinstance(theirs, str) else None
            yield (f"{ours}/{part}",
                   f"{names}.{part}" if names else [f"{t}.{part}" for t in theirs], False)

    words = "bert.embeddings"
    yield "embedding/word/weight", f"{words}.word_embeddings.weight", False
    yield "embedding/position/weight", f"{words}.position_embeddings.weight", False
    yield "embedding/type/weight", f"{words}.token_type_embeddings.weight", False
    if norms == "post":
        yield from both("embedding/norm", f"{words}.LayerNorm")
    for i in range(layers):
        ours, theirs = f"layers/{i}", f"bert.encoder.layer.{i}"
        self = f"{theirs}.attention.self"
        yield from both(f"{ours}/attention/qkv",
                        [f"{self}.{part}" for part in ("query", "key", "value")])
        yield from both(f"{ours}/attention/projection", f"{theirs}.attention.output.dense")
        yield from both(f"{ours}/mlp/fc1", f"{theirs}.intermediate.dense")
        yield from both(f"{ours}/mlp/fc2", f"{theirs}.output.dense")
        if norms == "post":
            yield from both(f"{ours}/attention_norm", f"{theirs}.attention.output.LayerNorm")
            yield from both(f"{ours}/mlp_norm", f"{theirs}.output.LayerNorm")
        else:
            yield from both(f"{ours}/input_norm", f"{theirs}.attention.ln")
            yield from both(f"{ours}/mlp_norm", f"{theirs}.ln")
    if norms == "pre":
        yield from both("final_norm", "bert.encoder.ln")
    yield from both("pair_head/pooler", "bert.pooler.dense")
    yield from both("pair_head/classifier", "cls.seq_relationship")
    yield from both("masked_head/dense", "cls.predictions.transform.dense")
    yield from both("masked_head/norm", "cls.predictions.transform.LayerNorm")
    yield "masked_head/bias", "cls.predictions.bias", False


def make_batches(case, generator):
    """Fields of all batches, as tensors by name."""
    count = max(case["train_steps"], 1)
    b, s, most = len(case["lengths"][0]), case["sequence"], case["predictions"]
    # Word 0 is padding: what is looked up of it has no gradient in Hugging Face's.
    labels = 1 + shared.noisy_walk((count, b, s), case["vocab"] - 1, generator)
    tokens, types = labels.clone(), torch.zeros_like(labels)
    places = torch.full((count, b, most), -1)
    lengths = torch.tensor([case["lengths"][n % len(case["lengths"])] for n in range(count)])
    for n in range(count):
        for i in range(b):
            length = int(lengths[n, i])
            wanted = max(1, min(most, round(0.15 * length)))
            chosen = 1 + torch.randperm(length - 1, generator=generator)[:wanted]
            places[n, i, :wanted] = chosen.sort().values
            tokens[n, i, chosen] = 1
            second = int(torch.randint(1, length, (1,), generator=generator))
            types[n, i, second:length] = 1
    weights = (places >= 0).float()
    wanted = labels.gather(2, places.clamp(min=0)) * (places >= 0)
    # The pair's label can be read off the tokens: whether the first is even.
    return {"tokens": tokens, "token_types": types, "lengths": lengths,
            "masked_positions": places, "masked_labels": wanted, "masked_weights": weights,
            "pair_labels": tokens[:, :, 0] % 2, "pair_weights": torch.ones(count, b)}


def forward(model, batch):
    """Masked logits (b, P, v), pair logits (b, 2), and the two losses."""
    s = batch["tokens"].shape[1]
    mask = torch.arange(s)[None] < batch["lengths"][:, None]
    result = model(input_ids=batch["tokens"], token_type_ids=batch["token_types"],
                   attention_mask=mask.long())
    places = batch["masked_positions"]
    rows = places.clamp(min=0)[:, :, None].expand(-1, -1, result.prediction_logits.shape[2])
    masked = result.prediction_logits.gather(1, rows) * (places >= 0)[:, :, None]
    pair = result.seq_relationship_logits

    def mean(logits, labels, weights):
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(),
                                                   reduction="none")
        weights = weights.flatten().double()
        return (losses * weights).sum() / weights.sum()

    losses = torch.stack([mean(masked, batch["masked_labels"], batch["masked_weights"]),
                          mean(pair, batch["pair_labels"], batch["pair_weights"])])
    return masked, pair, losses


def make_model(case, directory, generator):
    post = case["norms"] == "post"
    config = (transformers.BertConfig if post else transformers.MegatronBertConfig)(
        vocab_size=case["vocab"], hidden_size=case["hidden"],
        num_hidden_layers=case["layers"], num_attention_heads=case["heads"],
        intermediate_size=4 * case["hidden"], max_position_embeddings=case["sequence"],
        type_vocab_size=2, hidden_act="gelu", hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, layer_norm_eps=EPSILON[case["norms"]],
        pad_token_id=0, attn_implementation="eager")
    kind = (transformers.BertForPreTraining if post
            else transformers.MegatronBertForPreTraining)
    return shared.saved_and_read(kind(config), kind, directory, case["perturb"], generator)


def make(name, case):
    directory = HERE / name
    torch.manual_seed(case["seed"])
    generator = torch.Generator().manual_seed(case["seed"] + 1000)
    model = make_model(case, directory, generator)
    batches = make_batches(case, generator)

    def batch(n):
        return {field: values[n] for field, values in batches.items()}

    masked, pair, losses = forward(model, batch(0))
    losses.sum().backward()
    oracle = {field: values.to(torch.float32 if field.endswith("weights") else
                               torch.int32).numpy() for field, values in batches.items()}
    oracle.update({"masked_logits": masked.detach().numpy(),
                   "pair_logits": pair.detach().numpy(), "loss": losses.detach().numpy()})
    names = list(our_names(case["norms"], case["layers"]))
    gradients = shared.in_our_layout(model, names, lambda p: p.grad, torch.float64)
    oracle.update({f"gradient/{n}": g for n, g in gradients.items()})
    if case["train_steps"]:
        shared.train(model, case["train_steps"], lambda n: forward(model, batch(n))[2],
                     oracle)
        final = shared.in_our_layout(model, names, lambda p: p, torch.float32)
        oracle.update({f"final/{n}": w for n, w in final.items()})
    shared.save_oracle(oracle, directory, heads=case["heads"], norms=case["norms"])
    print(name, "losses", losses.tolist(), "bytes",
          sum(path.stat().st_size for path in directory.iterdir()))
    if case["train_steps"]:
        print("  losses", oracle["train/loss"].tolist())


if __name__ == "__main__":
    for case_name, settings in CASES.items():
        make(case_name, settings)
