#!/usr/bin/env python3
"""Predicts a training step on GPUs, kernel by kernel, before any of them has run it.

    perf/gpu/predict.py                # tables
    perf/gpu/predict.py --update       # and writes predictions.json and docs/performance.md
    perf/gpu/predict.py --check        # status 1 where these are not what it predicts now

What is computed and moved is not said here: tally.json has it from the program's own pass on
shapes (trireme_gpu_tally), instructions.json from the machine code of the attention kernels.
kernel_models.py has how long that takes, machines.py on what. Plain Python 3.
"""
import argparse
import dataclasses
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import kernel_models as models  # noqa: E402
from machines import MACHINES  # noqa: E402

TALLY, INSTRUCTIONS = HERE / "tally.json", HERE / "instructions.json"
PREDICTIONS, DOCS = HERE / "predictions.json", ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- perf/gpu/predict.py writes from here -->", "<!-- predictions end here -->"
VOCABULARY_MULTIPLE = 128
PREFIX = "trireme::kernels::"
# What products are counted as beside ("gemm" in kernels, by shape in products).
PRODUCT_LABELS = ("gemm", "linear_forward[fused]")
# Of one GPU's memory, what is left for a run: the rest is the context and libraries.
MEMORY_SHARE = 0.92
# What issue and chapter ask for, of a case without dropout: share of the peak.
WANTED = {("A100", "gpt2-124m"): 0.61, ("A100", "gpt2-124m-b18"): 0.61,
          ("A100", "gpt3-1.3b"): 0.65, ("A100", "gpt3-6.7b"): 0.68,
          ("H", "gpt2-124m"): 0.54, ("H", "gpt2-355m"): 0.60, ("H", "megatron-1.2b"): 0.66,
          ("H", "slice-8.3b"): 0.72}


# Models that texts are made with, what the issue asks of the share of reading their weights, and
# the mean context of the tokens that `gpu_suite ratio` times (ratio_work.py).
DECODED, DECODED_CONTEXT = {"gpt2-124m": 0.35, "megatron-1.2b": 0.60}, 16 + (128 + 768) // 2


@dataclasses.dataclass
class Row:
    """A kernel in a step: calls, seconds of all of them, and what it reaches of its bound
    (FLOP/s of the peak of products, bytes/s of the data sheet's bandwidth)."""
    name: str
    group: str
    calls: float
    seconds: float
    share: float
    bound: str


def logit_bytes():
    """What WordLoss makes at a time on a GPU, from the source that says it: of this tree, or
    beside the suite in an archive."""
    sources = [root / "src" / "nn" / "word_loss.hpp" for root in (ROOT, HERE.parent)]
    text = next(path for path in sources if path.exists()).read_text(encoding="utf-8")
    found = re.search(r"kLogitBytes = index_t\{kHostExecution \? \d+ : (\d+)\} << 20", text)
    if not found:
        sys.exit("predict: src/nn/word_loss.hpp no longer says kLogitBytes as it did")
    return int(found.group(1)) << 20


def of_the_head(case, product):
    """How a product takes part in the head: "forward", "input", "weight", or None."""
    slab = models.divide_up(case["vocab"], VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    words = (case["vocab"], slab)
    if product["n"] in words and product["transpose_b"]:
        return "forward"
    if product["k"] in words:
        return "input"
    return "weight" if product["m"] in words else None


def rows_of_a_part(rows, slab):
    """As WordLoss<T>::parts_of() cuts them: as few parts as logits have room for, as equal as
    multiples of 32 allow."""
    most = max(logit_bytes() // (2 * slab), 128)
    parts = models.divide_up(rows, most)
    return min(models.divide_up(models.divide_up(rows, parts), 32) * 32, most, rows)


def as_on_a_gpu(case, products):
    """The products with the head's as a GPU cuts them: a host takes fewer rows of logits at a
    time, and leaves the padding out of one of the three."""
    slab = models.divide_up(case["vocab"], VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    of_rows = {"forward": "m", "input": "m", "weight": "k"}
    of_words = {"forward": "n", "input": "k", "weight": "m"}
    rows, found = {}, []
    for product in products:
        way = of_the_head(case, product)
        if way is None:
            found.append(product)
            continue
        total, _ = rows.get(way, (0, None))
        rows[way] = total + product["calls"] * product[of_rows[way]], product
    micro_rows = case["micro"] * case["predicted"]
    step = rows_of_a_part(micro_rows, slab)
    whole, rest = divmod(micro_rows, step)
    for way, (total, product) in rows.items():
        for size, count in ((step, whole), (rest, 1)):
            if size:
                found.append({**product, of_rows[way]: size, of_words[way]: slab,
                              "calls": count * total / micro_rows})
    return found


def way_of(product):
    if product["transpose_a"]:
        return "weight gradient"
    return "forward" if product["transpose_b"] else "input gradient"


def name_of(product):
    return f"{way_of(product)} {product['m']} x {product['n']} x {product['k']}"


def product_rows(machine, case):
    """What times decide, a plan does not know: each product is taken without a GeLU of the
    library's own, whose pass is counted beside it."""
    found = {}
    for product in as_on_a_gpu(case, case["products"]):
        if product["gelu"]:
            continue
        product = {**product, "reads_c": product["residual"] or product["transpose_a"]}
        group = "head" if of_the_head(case, product) else "products"
        seconds = product["calls"] * models.product_seconds(machine, product)
        flops = 2 * product["calls"] * product["m"] * product["n"] * product["k"]
        key = group, name_of(product)
        calls, total, work = found.get(key, (0, 0, 0))
        found[key] = calls + product["calls"], total + seconds, work + flops
    return [Row(name, group, calls, seconds, flops / seconds / machine.tensor_peak, "products")
            for (group, name), (calls, seconds, flops) in found.items()]


def attention_row(machine, case, label, kernel, instructions):
    """Of all layers and micro-batches: each kind of attention that the model has, with samples
    that are full."""
    drops = " dropout" if case["dropout"] > 0 else ""
    one = {"attention_forward": models.attention_forward_seconds,
           "attention_backward": models.attention_backward_seconds}[label]
    blocks, seconds = sum(kind["blocks"] for kind in case["attention"]), 0.0
    for kind in case["attention"]:
        bias = " bias" if kind["bias"] else ""
        entry = instructions[f"{label} bf16 d{case['head_size']}{drops}{bias}"][machine.arch]
        seconds += kernel["calls"] * kind["blocks"] / blocks * one(
            machine, entry, case["micro"], case["heads"], kind, case["head_size"])
    # With the scores that a causal mask hides, as model FLOPs count them.
    return Row(label, "attention", kernel["calls"], seconds,
               kernel["flops"] / seconds / machine.tensor_peak, "products")


def group_of(label):
    if label.startswith("cross_entropy"):
        return "loss"
    if label.startswith("attention"):
        return "attention"
    if label.startswith(("adamw", "square_sum", "clip", "begin_step", "update", "step_state")):
        return "optimizer"
    return "row kernels"


def rows_of(machine, case, instructions):
    rows = product_rows(machine, case)
    for kernel in case["kernels"]:
        label = kernel["label"].removeprefix(PREFIX)
        if label in PRODUCT_LABELS:
            continue
        if label in ("attention_forward", "attention_backward"):
            rows.append(attention_row(machine, case, label, kernel, instructions))
            continue
        if label == "embedding_backward[order]":
            # Each of the blocks with words has as many tables.
            calls = kernel["calls"] / len(case["embedded"])
            seconds = sum(models.order_seconds(machine, calls, case["micro"] * length)
                          for length in case["embedded"])
            rows.append(Row(label, "row kernels", kernel["calls"], seconds, 0.0, "memory"))
            continue
        seconds = models.row_seconds(machine, label, kernel["calls"], kernel["bytes"])
        rows.append(Row(label, group_of(label), kernel["calls"], seconds,
                        kernel["bytes"] / seconds / machine.bandwidth, "memory"))
    return rows


def predict(machine, case, instructions):
    """Rows, the slowest first, and what follows for the step."""
    rows = sorted(rows_of(machine, case, instructions), key=lambda row: -row.seconds)
    device = sum(row.seconds for row in rows)
    launches = sum(row.calls for row in rows)
    seconds = max(device, launches * models.HOST_LAUNCH)
    groups = {}
    for row in rows:
        groups[row.group] = groups.get(row.group, 0) + row.seconds
    return {"rows": rows, "seconds": seconds, "launches": launches, "groups": groups,
            "bound_by_host": seconds > device,
            "share": case["model_flops"] / seconds / peak_of(machine)}


def peak_of(machine):
    """What shares are of: an A100's data sheet, and the fastest product on a Hopper GPU."""
    return machine.tensor_peak if machine.arch == "sm_80" else machine.gemm_peak


def wanted_of(machine, name):
    model, _, dropout = name.partition(", ")
    if dropout != "dropout 0":
        return None
    return next((share for (begin, one), share in WANTED.items()
                 if machine.name.startswith(begin) and one == model), None)


def read_inputs():
    tally = json.loads(TALLY.read_text(encoding="utf-8"))
    instructions = json.loads(INSTRUCTIONS.read_text(encoding="utf-8"))["kernels"]
    for name, case in tally.items():
        case["dropout"] = float(name.rpartition("dropout ")[2])
    return tally, instructions


def fits(machine, case):
    return case["memory_gib"] * 2 ** 30 <= MEMORY_SHARE * machine.memory


def predict_all():
    """machine -> case -> what predict() says."""
    tally, instructions = read_inputs()
    return {name: {title: predict(machine, case, instructions)
                   for title, case in tally.items() if fits(machine, case)}
            for name, machine in MACHINES.items()}, tally


def predict_token(machine, case):
    """Seconds of a token, and the share that reading the weights at a copy's speed is of it."""
    seconds = models.token_seconds(machine, case, DECODED_CONTEXT)
    return seconds, models.weight_bytes(case) / machine.copy_bandwidth / seconds


# ---- what is written

def rounded(value):
    return float(f"{value:.4g}")


def kernel_lines(found, tokens):
    """A line for each kernel that takes a thousandth of the step, and one for all others."""
    others = 0.0
    for row in found["rows"]:
        if row.seconds < 1e-3 * found["seconds"]:
            others += row.seconds
            continue
        yield json.dumps({"kernel": row.name, "group": row.group, "calls": rounded(row.calls),
                          "us_per_token": rounded(1e6 * row.seconds / tokens),
                          "share": rounded(row.share), "bound": row.bound},
                         separators=(",", ":"))
    yield json.dumps({"kernel": "all others", "group": "others",
                      "us_per_token": rounded(1e6 * others / tokens)}, separators=(",", ":"))


def json_text(predictions, tally):
    """predictions.json."""
    machines = []
    for machine, cases in predictions.items():
        lines = []
        for title, found in cases.items():
            tokens = tally[title]["tokens"]
            head = {"us_per_token": rounded(1e6 * found["seconds"] / tokens),
                    "tokens_per_second": rounded(tokens / found["seconds"]),
                    "share_of_peak": rounded(found["share"]),
                    "launches": rounded(found["launches"])}
            lines.append(f'  "{title}": {json.dumps(head)[:-1]}, "kernels": [\n   '
                         + ",\n   ".join(kernel_lines(found, tokens)) + "]}")
        for model in DECODED:
            seconds, share = predict_token(MACHINES[machine], tally[f"{model}, dropout 0"])
            token = {"us_per_token": rounded(1e6 * seconds), "share_of_weights": rounded(share),
                     "kernels": []}
            lines.append(f'  "decoding {model}": {json.dumps(token)}')
        machines.append(f' "{machine}": {{\n' + ",\n".join(lines) + "}")
    return "{\n" + ",\n".join(machines) + "\n}\n"


GROUPS = ("products", "head", "attention", "row kernels", "loss", "optimizer")


def model_table(predictions, tally):
    yield "| GPU | model | " + " | ".join(GROUPS) + " | all | share of peak | wanted |"
    yield "|---|---|" + "---|" * (len(GROUPS) + 3)
    for machine, cases in predictions.items():
        for title, found in cases.items():
            scale = 1e6 / tally[title]["tokens"]
            groups = " | ".join(f"{scale * found['groups'].get(group, 0):.3g}"
                                for group in GROUPS)
            wanted = wanted_of(MACHINES[machine], title)
            yield (f"| {machine} | {title} | {groups} | {scale * found['seconds']:.3g} | "
                   f"{100 * found['share']:.1f} % | "
                   f"{'' if wanted is None else f'{100 * wanted:.0f} %'} |")


def token_table(tally):
    yield "| GPU | model | µs a token | share of reading the weights | wanted |"
    yield "|---|---|---|---|---|"
    for name, machine in MACHINES.items():
        for model, wanted in DECODED.items():
            seconds, share = predict_token(machine, tally[f"{model}, dropout 0"])
            yield (f"| {name} | {model} | {1e6 * seconds:.0f} | {100 * share:.0f} % | "
                   f"{'' if name.startswith('A100') else f'{100 * wanted:.0f} %'} |")


def kernel_table(predictions, tally, machine, title):
    found, tokens = predictions[machine][title], tally[title]["tokens"]
    yield "| kernel | calls | µs a token | of the step | share of its bound |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        part = row.seconds / found["seconds"]
        if part >= 0.002:
            bound = "tensor peak" if row.bound == "products" else "bandwidth"
            yield (f"| {row.name} | {row.calls:g} | {1e6 * row.seconds / tokens:.3f} | "
                   f"{100 * part:.1f} % | {100 * row.share:.0f} % of {bound} |")


SHOWN_KERNELS = (("A100-SXM-80GB", "gpt2-124m, dropout 0"), ("H100-SXM", "gpt2-124m, dropout 0"))
# The first's model with as many samples at a time as fill an A100 in whole waves of tiles.
IN_WHOLE_WAVES = "gpt2-124m-b18, dropout 0"


def docs_text(predictions, tally):
    parts = ["\n".join(model_table(predictions, tally))]
    for machine, title in SHOWN_KERNELS:
        parts.append(f"**{title}, {machine}**, kernels of 0.2 % of the step and more:")
        parts.append("\n".join(kernel_table(predictions, tally, machine, title)))
    parts.append("**What each loss costs** (share of the peak of gpt2-124m without dropout on an "
                 "A100-SXM-80GB, if it alone were not there):")
    parts.append("\n".join(gap_table(MACHINES["A100-SXM-80GB"], "gpt2-124m, dropout 0")))
    parts.append(f"**A token of one text**, with {DECODED_CONTEXT} tokens before it:")
    parts.append("\n".join(token_table(tally)))
    return "\n\n".join(parts) + "\n"


def at_a_copys_share(label):
    """The name of a kernel that moves the same bytes and has nothing else to wait for."""
    name = label.removeprefix(PREFIX)
    slow = any(name.startswith(begin) for begin, _ in models.BYTES_OF_A_CYCLE)
    return "rows of " + name if slow and "[order]" not in name else label


def variants(machine, case):
    """A case in which one loss is not there -> the machine and the case."""
    def without(label):
        return {**case, "kernels": [kernel for kernel in case["kernels"]
                                    if kernel["label"].removeprefix(PREFIX) != label]}
    yield "as predicted", machine, case
    yield ("products at the rate of the fastest one as long as a step goes on",
           dataclasses.replace(machine, sustained=1.0), case)
    yield ("tiles of products store while they compute",
           dataclasses.replace(machine, store_shown=0.0), case)
    yield ("waves of tiles begin and end in no time",
           dataclasses.replace(machine, wave_seconds=0.0), case)
    yield ("GeLU is the epilogue of its product", machine, without("apply_epilogue"))
    yield "kernels over rows wait for memory alone", machine, {
        **case, "kernels": [{**kernel, "label": at_a_copys_share(kernel["label"])}
                            for kernel in case["kernels"]]}
    yield ("four times the micro-batches a step (the optimizer's share)", machine,
           {**case, "micro_batches": 4 * case["micro_batches"], "tokens": 4 * case["tokens"],
            "model_flops": 4 * case["model_flops"],
            "kernels": [kernel if group_of(kernel["label"].removeprefix(PREFIX)) == "optimizer"
                        else {**kernel, **{key: 4 * kernel[key]
                                           for key in ("calls", "flops", "bytes")}}
                        for kernel in case["kernels"]],
            "products": [{**product, "calls": 4 * product["calls"]}
                         for product in case["products"]]})


def gap_table(machine, title):
    tally, instructions = read_inputs()
    yield "| | share of the peak |"
    yield "|---|---|"
    whole = ("18 samples at a time instead of 16: tiles of most products fill whole waves", machine,
             tally[IN_WHOLE_WAVES])
    for what, other, case in [*variants(machine, tally[title]), whole]:
        yield f"| {what} | {100 * predict(other, case, instructions)['share']:.1f} % |"


def docs_with(text, part):
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        sys.exit(f"predict: '{DOCS}' has no lines '{BEGIN}' and '{END}' to write between")
    return text[:begin + len(BEGIN)] + "\n\n" + part + "\n" + text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write what is predicted")
    parser.add_argument("--check", action="store_true", help="compare with what is written")
    parser.add_argument("--kernels", nargs=2, metavar=("GPU", "CASE"),
                        help="the table of one case's kernels")
    arguments = parser.parse_args()
    predictions, tally = predict_all()
    written = {PREDICTIONS: json_text(predictions, tally)}
    docs = DOCS.read_text(encoding="utf-8")
    written[DOCS] = docs_with(docs, docs_text(predictions, tally))
    if arguments.check:
        stale = [path for path, text in written.items()
                 if not path.exists() or path.read_text(encoding="utf-8") != text]
        for path in stale:
            print(f"predict: {path.relative_to(ROOT)} is not what is predicted now: "
                  "perf/gpu/predict.py --update")
        return 1 if stale else 0
    if arguments.update:
        for path, text in written.items():
            path.write_text(text, encoding="utf-8")
        return 0
    if arguments.kernels:
        print("\n".join(kernel_table(predictions, tally, *arguments.kernels)))
        return 0
    print(docs_text(predictions, tally), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
