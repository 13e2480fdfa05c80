"""The steps of `gpu_suite tune`: what is fastest on this GPU, and how near kernels are to it."""
import json
import os
import pathlib
import tempfile

import bundle
import steps
import truth_work
from work import finding, run, say

HERE = pathlib.Path(__file__).resolve().parent
ROW_SHARE, ATTENTION_SHARE = 0.85, 0.75  # wanted, of a copy and of PyTorch's attention
BEYOND_CACHES = 256 * 2 ** 20  # bytes


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
                         "checkpoint.every=0", "batch.global=4", deck=model, corpus="gpt2")
        text = (directory / "gemm_table.json").read_text(encoding="utf-8")
    say({"kind": "gemm_table", "model": model, "table": json.loads(text)})


def attention():
    torch_work("attention")


def benchmarks(expression, *more):
    """Of trireme_micro, as Google Benchmark prints them in JSON."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "benchmarks.json"
        run([bundle.program("trireme_micro"), f"--benchmark_filter={expression}",
             f"--benchmark_out={out}", "--benchmark_out_format=json", *more])
        return json.loads(out.read_text(encoding="utf-8"))["benchmarks"]


def own_attention(results):
    """GPT-2 124M's attention, forward and backward, beside PyTorch's of the same shape."""
    shape = [16, 12, 1024, 64]
    theirs = [one["both"] for one in steps.read_records(results)
              if one.get("kind") == "attention" and one["shape"] == shape]
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch) / "run"
        truth_work.train(directory, "run.steps=8", "checkpoint.every=0", deck="gpt2-124m",
                         corpus="gpt2", arguments=("--profile=5",))
        profile = json.loads((directory / "profile.json").read_text(encoding="utf-8"))
    found = [one for one in profile["kernels"] if "attention_" in one["kernel"]]
    calls = sum(one["calls"] for one in found if one["kernel"].endswith("attention_forward"))
    ours = sum(one["seconds"] for one in found) / calls
    say({"kind": "attention", "by": "trireme", "shape": shape, "both": ours})
    what = "attention of gpt2-124m: speed beside PyTorch's flash attention"
    if theirs:
        share = theirs[-1] / ours
        finding(what, share >= ATTENTION_SHARE, round(share, 3))
    else:
        finding(what, None, "not judged: the results have no time of PyTorch's")


def share_of_bandwidth(one):
    """Of a copy's, as it was measured here; else of what the program itself measures. None of
    a benchmark that has no bytes, or not more than caches hold."""
    own = one.get("of_triad", one.get("of_reading"))
    if own is None:
        return None
    seconds = one["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[one["time_unit"]]
    if 1e9 * one["GB/s"] * seconds <= BEYOND_CACHES:
        return None
    copy = float(os.environ.get("TRIREME_SUITE_COPY_BANDWIDTH") or 0)
    return 1e9 * one["GB/s"] / copy if copy else own


def rows():
    """Each kernel beside the bandwidth, on arrays beyond the cache."""
    judged = 0
    for one in benchmarks("layer_norm|residual|gelu|dropout|embedding|cross_entropy|adamw|sum"):
        say({"kind": "benchmark", **one})
        share = share_of_bandwidth(one)
        if share is not None:
            judged += 1
            finding(f"{one['name']}: share of the bandwidth", share >= ROW_SHARE,
                    round(share, 3))
    if judged == 0:
        finding("kernels over rows: share of the bandwidth", None,
                f"not judged: no benchmark has more than {BEYOND_CACHES >> 20} MiB")


def counters():
    """Nsight Compute's counters of six kernels, where it may read them."""
    with tempfile.TemporaryDirectory() as scratch:
        text = run([os.environ["TRIREME_SUITE_NCU"], "--clock-control", "none", "--csv",
                    "--launch-count", "12", "--kernel-name",
                    "regex:forward_kernel|backward_kernel|delta_kernel|.*norm.*|.*gelu.*|.*adamw.*",
                    bundle.program("trireme"), "train", bundle.deck("gpt2-124m"), "--run-dir",
                    pathlib.Path(scratch) / "run", "--set", f"data.train={bundle.corpus('gpt2')}",
                    "--set", "run.steps=1", "--set", "batch.global=16", "--set",
                    "checkpoint.every=0"])
    say({"kind": "facts", "ncu": text[-60000:]})


WORK = {"peaks": peaks, "products": products, "table": table, "attention": attention,
        "own_attention": own_attention, "rows": rows, "counters": counters}
