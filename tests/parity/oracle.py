"""What the scripts that write parity fixtures share: the optimizer and its schedule, weights
that hide nothing, parameters in our names and layout, and the oracle's file."""
import math

import numpy
import torch
import transformers
from safetensors.numpy import save_file

OPTIMIZER = dict(lr=1e-3, min_lr=1e-4, warmup=4, betas=(0.9, 0.95), eps=1e-8,
                 weight_decay=0.1, clip_norm=1.0)


def saved_and_read(model, kind, directory, perturb, generator):
    """The model in fp64, of what was saved of it in fp32. With `perturb` no bias is zero and
    no norm weight one: a swapped or forgotten vector cannot hide."""
    with torch.no_grad():
        for parameter in model.float().parameters():
            parameter += perturb * torch.randn(parameter.shape, generator=generator)
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    return kind.from_pretrained(directory, attn_implementation="eager",
                                dtype=torch.float32).double().eval()


def in_our_layout(model, names, what, dtype):
    """{our name: array} of every parameter, `what` being a function of the parameter.
    `names`: (our name, theirs, transposed); several of theirs are stacked in ours."""
    parameters = dict(model.named_parameters())
    result = {}
    for ours, theirs, transposed in names:
        parts = [what(parameters.pop(name)).detach().to(dtype).numpy()
                 for name in ([theirs] if isinstance(theirs, str) else theirs)]
        value = numpy.concatenate(parts)
        result[ours] = numpy.ascontiguousarray(value.T if transposed else value)
    assert not parameters, f"parameters without a name of ours: {list(parameters)}"
    return result


def noisy_walk(shape, vocabulary, generator):
    """Rows of a noisy affine walk through the vocabulary: something that can be learned."""
    tokens = torch.randint(0, vocabulary, shape, generator=generator)
    keep = torch.rand(shape, generator=generator) < 0.8
    for t in range(1, shape[-1]):
        walk = (7 * tokens[..., t - 1] + 3) % vocabulary
        tokens[..., t] = torch.where(keep[..., t], walk, tokens[..., t])
    return tokens


def learning_rate(k, steps):
    """Of update k, from 1: linear warm-up, then cosine to the least."""
    peak, least, warmup = OPTIMIZER["lr"], OPTIMIZER["min_lr"], OPTIMIZER["warmup"]
    if k <= warmup:
        return peak * k / warmup
    part = (k - warmup) / (steps - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * part))


def train(model, steps, loss_of, oracle):
    """AdamW by torch.optim, one batch a step, whose losses are loss_of(n); fills train/*.
    loss_of gives one number, or those of several objectives, whose sum is minimised."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]},
         {"params": others, "weight_decay": 0.0}],
        betas=OPTIMIZER["betas"], eps=OPTIMIZER["eps"], foreach=False, fused=False)
    losses, norms, rates = [], [], []
    for k in range(1, steps + 1):
        model.zero_grad()
        loss = loss_of(k - 1)
        loss.sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip_norm"])
        rates.append(learning_rate(k, steps))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
        losses.append(loss.detach().numpy())
        norms.append(norm.item())
    oracle["train/loss"] = numpy.array(losses)
    oracle["train/grad_norm"] = numpy.array(norms)
    oracle["train/learning_rate"] = numpy.array(rates)


def save_oracle(oracle, directory, **facts):
    arrays = {name: numpy.ascontiguousarray(array) for name, array in oracle.items()}
    facts = {"torch": torch.__version__, "transformers": transformers.__version__, **facts,
             **OPTIMIZER}
    save_file(arrays, directory / "oracle.safetensors",
              metadata={name: str(fact) for name, fact in facts.items()})
