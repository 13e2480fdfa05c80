"""The steps of `gpu_suite tune`: what is fastest on this GPU, and how near kernels are to it."""
import json
import os
import pathlib
import re
import tempfile

import bundle
import single_kernels
import steps
import truth_work
from work import ProgramFailed, finding, run, say

HERE = pathlib.Path(__file__).resolve().parent
NO_PERMISSION = "ERR_NVGPUCTRPERM"
ROW_SHARE, ATTENTION_SHARE = 0.85, 0.75  # wanted, of a copy and of PyTorch's attention
SECONDS_OF_A_BENCHMARK = 0.2
FASTER = 1.02  # more than two runs of the same differ by
# Those of bf16 that a step launches, on arrays beyond the cache: rows as perf/micro/rows.cpp has
# them on a GPU, and on a host.
ROW_BENCHMARKS = ("^((layer_norm|residual_norm|bias_dropout_add|gelu)_(forward|backward)"
                  "|embedding_dropout_forward|embedding_backward|sum_rows)<bf16>/(262144|65536)"
                  "|^(cross_entropy_in_place|adamw)<bf16>|^square_sum")


def torch_work(*arguments):
    """Prints what torch_peaks.py does, as it comes."""
    status = os.spawnv(os.P_WAIT, os.environ["TRIREME_SUITE_PYTHON"],
                       [os.environ["TRIREME_SUITE_PYTHON"], str(HERE / "torch_peaks.py"),
                        *map(str, arguments)])
    if status != 0:
        raise SystemExit(f"torch_peaks.py ended with status {status}")


def peaks():
    torch_work("peaks")


def products(model):
    """By PyTorch's cuBLASLt, for predictions; then by the table of a run's own timing."""
    torch_work("products", HERE / "tally.json", f"{model}, dropout 0")


def table(model):
    """The table of products that a run chooses by times, where run.deterministic is false."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch) / "run"
        truth_work.train(directory, "run.steps=1", "run.deterministic=false",
                         "checkpoint.every=0", "batch.global=4", deck=model)
        text = (directory / "gemm_table.json").read_text(encoding="utf-8")
    say({"kind": "gemm_table", "model": model, "table": json.loads(text)})


def attention():
    torch_work("attention")


def benchmarks(expression, *more):
    """Of trireme_micro, as Google Benchmark prints them in JSON."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "benchmarks.json"
        run([bundle.program("trireme_micro"), f"--benchmark_filter={expression}",
             f"--benchmark_out={out}", "--benchmark_out_format=json",
             f"--benchmark_min_time={SECONDS_OF_A_BENCHMARK}", *more])
        return json.loads(out.read_text(encoding="utf-8"))["benchmarks"]


def arguments_of(name):
    """Of a benchmark's name: "attention/batch:16/sequence:1024" -> {"batch": 16, ...}."""
    return {one: int(value) for one, value in re.findall(r"/(\w+):(\d+)", name)}


def own_attention(results):
    """Attention of all head sizes and some lengths, beside PyTorch's of the same shapes."""
    theirs = {tuple(one["shape"]): one["both"] for one in steps.read_records(results)
              if one.get("kind") == "attention" and one["by"] == "torch flash"}
    ours = {}
    for one in benchmarks("^attention_of_sizes<"):
        sizes = arguments_of(one["name"])
        shape = tuple(sizes[name] for name in ("batch", "heads", "sequence", "head_size"))
        which = re.search("<([a-z]+)>", one["name"])[1]
        ours.setdefault(shape, {})[which] = one["seconds"]
    for shape, seconds in ours.items():
        say({"kind": "attention", "by": "trireme", "shape": list(shape), **seconds})
        _, heads, length, head_size = shape
        what = (f"attention, {heads} heads of {head_size}, length {length}: speed beside "
                "PyTorch's flash attention")
        if shape in theirs:
            share = theirs[shape] / seconds["both"]
            finding(what, share >= ATTENTION_SHARE, round(share, 3))
        else:
            finding(what, None, "not judged: the results have no time of PyTorch's")


def share_of_bandwidth(one):
    """Of a copy's, as it was measured here; else of what the program itself measures. None of
    a benchmark that has no bytes, or not more than caches hold."""
    own = one.get("of_copy", one.get("of_reading"))
    if own is None or 1e9 * one["GB/s"] * one["seconds"] <= single_kernels.BEYOND_CACHES:
        return None
    copy = float(os.environ.get("TRIREME_SUITE_COPY_BANDWIDTH") or 0)
    return 1e9 * one["GB/s"] / copy if copy else own


def rows():
    """Each kernel beside the bandwidth, on arrays beyond the cache."""
    judged = 0
    for one in benchmarks(ROW_BENCHMARKS):
        say({"kind": "benchmark", **one})
        share = share_of_bandwidth(one)
        if share is not None:
            judged += 1
            finding(f"{one['name']}: share of the bandwidth", share >= ROW_SHARE,
                    round(share, 3))
    if judged == 0:
        finding("kernels over rows: share of the bandwidth", None,
                f"not judged: no benchmark has more than {single_kernels.BEYOND_CACHES >> 20} MiB")


def layers_of_a_token():
    """All layers in one launch, with weights that come by boxes beside those by quads: the
    architecture belongs into kernels::kBoxesProvenOn where they are faster in all."""
    seconds = {}
    for one in benchmarks("^decode_layers<bf16>"):
        sizes = arguments_of(one["name"])
        copies = "boxes" if sizes.pop("boxes") else "quads"
        if "seconds" in one:
            say({"kind": "layers_of_a_token", "copies": copies, **sizes,
                 "seconds": one["seconds"], "of_reading": one.get("of_reading")})
            seconds.setdefault(tuple(sizes.items()), {})[copies] = one["seconds"]
    for shape, of in seconds.items():
        what = ("a token's " + ", ".join(f"{name} {value}" for name, value in shape) +
                ": weights by boxes, speed beside those by quads")
        if len(of) == 2:
            gain = of["quads"] / of["boxes"]
            finding(what, gain >= FASTER, round(gain, 3))
        else:
            finding(what, None, f"not judged: this GPU has only {', '.join(of)}")
    if not seconds:
        finding("a token's layers in one launch", None, "not judged: this GPU has no such launch")


def counters(kernel):
    """Nsight Compute's counters of a kernel's first launch in a step of GPT-2 124M, with
    Trireme's own attention, whose kernels are among those that are asked about."""
    what = f"Nsight Compute has counters of {kernel}"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            text = run([os.environ["TRIREME_SUITE_NCU"], "--clock-control", "none", "--csv",
                        "--launch-count", "1", "--kernel-name-base", "demangled",
                        "--kernel-name", f"regex:.*{kernel}.*", bundle.program("trireme"),
                        "train", bundle.deck("gpt2-124m"), "--run-dir",
                        pathlib.Path(scratch) / "run", "--set",
                        f"data.train={bundle.corpus('gpt2')}", "--set", "run.steps=1", "--set",
                        "batch.global=16", "--set", "precision.attention=own", "--set",
                        "checkpoint.every=0"])
        except ProgramFailed as failure:
            if NO_PERMISSION not in str(failure):
                raise
            finding(what, None, f"not allowed to this user: {NO_PERMISSION}")
            return
    rows = [line for line in text.splitlines() if line.startswith('"') and kernel in line]
    say({"kind": "facts", "ncu": "\n".join(rows)[-30000:]})
    finding(what, bool(rows), f"{len(rows)} lines")


WORK = {"peaks": peaks, "products": products, "table": table, "attention": attention,
        "own_attention": own_attention, "rows": rows, "layers_of_a_token": layers_of_a_token,
        "counters": counters}
