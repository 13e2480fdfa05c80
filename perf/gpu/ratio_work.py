"""The steps of `gpu_suite ratio`: whole steps beside compiled PyTorch, in turns, and decoding."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import bundle
import compare
import kernel_models
import parts
import truth_work
from work import ProgramFailed, finding, run, say

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
TURNS, STEPS = 3, 5
OWN_ATTENTION = "own kernels"  # as environment.json calls it
TIMES_AS_FAST = 1.1
# Both are in the GPU's memory at a time, where one of them stands still.
MICRO = {"megatron-1.2b": 4}
SHARE_WANTED = {"gpt2-124m": 0.54, "gpt2-355m": 0.60, "megatron-1.2b": 0.66, "slice-8.3b": 0.72}
DECODE_WANTED = {"gpt2-124m": 0.35, "megatron-1.2b": 0.60}
# Tokens of the two texts whose difference counts.
SHORT_TEXT, LONG_TEXT = 128, 768


def case_of(model, dropout):
    tally = json.loads((HERE / "tally.json").read_text(encoding="utf-8"))
    case = dict(tally[f"{model}, dropout {dropout}"])
    micro = MICRO.get(model, case["micro"])
    case["micro_batches"] = int(case["micro_batches"] * case["micro"] / micro)
    case["micro"] = micro
    return case


def peer_command(model, case, dropout):
    """Of GPT by PyTorch's own modules; of BERT and T5 Hugging Face's model, on samples that the
    run trains on."""
    command = [os.environ["TRIREME_SUITE_PYTHON"], PEERS / "gpt2_step_gpu.py"]
    if model in parts.KINDS:
        kind = model.partition("-")[0]
        command = [os.environ["TRIREME_SUITE_PYTHON"], PEERS / "hugging_face_gpu.py", kind,
                   "--samples", bundle.expected(f"samples-{model}.jsonl")]
    return [*command, "--layers", case["layers"], "--hidden", case["hidden"], "--heads",
            case["heads"], "--sequence", case["sequence"], "--micro", case["micro"],
            "--accumulate", case["micro_batches"], "--dropout", dropout]


def compile_peers(dropout, *models):
    """One step of each model by PyTorch, all at a time: what it compiles stays in its caches,
    from which ratio() starts in seconds."""
    started = []
    for model in models:
        one_pass = {**case_of(model, dropout), "micro_batches": 1}
        command = [*peer_command(model, one_pass, dropout), "--warmup", "1", "--steps", "0"]
        started.append((model, time.monotonic(), subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL)))
    failed = []
    for model, begin, process in started:
        if process.wait() != 0:
            failed.append(model)
        say({"kind": "facts", "compiled": f"{model}, dropout {dropout}",
             "seconds": round(time.monotonic() - begin, 1), "returned": process.returncode})
    if failed:
        raise ProgramFailed(f"PyTorch's steps of {', '.join(failed)} ended with an error")


def contenders(model, dropout, case, scratch):
    settings = [f"model.dropout={dropout}", f"model.attention_dropout={dropout}",
                f"batch.micro={case['micro']}", f"data.train={bundle.corpus_of(model)}",
                "checkpoint.every=0", "run.hang_timeout=24h", "run.deterministic=false"]
    directory = scratch / "run"
    command = [bundle.program("trireme"), "train", bundle.deck(model), "--run-dir", directory]
    for setting in settings:
        command += ["--set", setting]
    peer = [*peer_command(model, case, dropout), "--serve"]
    return [compare.Trireme("trireme", command, directory, {}, late_reports=True),
            compare.Peer("pytorch", peer)]


def ratio(model, dropout):
    """Turns of a few steps; every turn's seconds are a result at once."""
    title, case = f"{model}, dropout {dropout}", case_of(model, dropout)
    seconds = {"trireme": [], "pytorch": []}
    with tempfile.TemporaryDirectory() as scratch:
        both = contenders(model, dropout, case, pathlib.Path(scratch))
        try:
            for turn in range(TURNS):
                for one in both if turn % 2 == 0 else reversed(both):
                    taken = statistics.median(one.turn(STEPS))
                    seconds[one.name].append(taken)
                    say({"kind": "turn", "case": title, "who": one.name, "seconds": taken,
                         "tokens_per_second": case["tokens"] / taken})
            peak = both[0].gemm_peak()
            attention = both[0].surroundings().get("attention", OWN_ATTENTION)
        except compare.Failure as failure:
            raise SystemExit(str(failure)) from None
        finally:
            for one in both:
                one.stop()
    say_step(title, case, seconds, attention)
    say_ratio(title, model, case, seconds, peak)


def say_step(title, case, seconds, attention):
    """The step as users get it. Predictions are of steps with Trireme's own attention: one with
    another has a name of its own, which nothing is predicted of."""
    ours = statistics.median(seconds["trireme"])
    what = "step" if attention == OWN_ATTENTION else f"step, attention by {attention}"
    say({"kind": "measured", "case": title, "what": what,
         "us_per_token": 1e6 * ours / case["tokens"]})


def say_ratio(title, model, case, seconds, peak):
    ours = statistics.median(seconds["trireme"])
    times = statistics.median(theirs / mine for mine, theirs in zip(seconds["trireme"],
                                                                    seconds["pytorch"]))
    finding(f"{title}: times as fast as compiled PyTorch", times >= TIMES_AS_FAST,
            round(times, 3))
    what = f"{title}: share of the measured GEMM peak"
    if peak:
        share = case["model_flops"] / ours / peak
        wanted = SHARE_WANTED.get(model) if title.endswith("dropout 0") else None
        finding(what, wanted and share >= wanted, round(share, 4))
    else:
        finding(what, None, "not judged: the run's log has no GEMM peak")


def decode(model):
    """One text, token by token, beside reading every weight once a token."""
    bandwidth = float(os.environ.get("TRIREME_SUITE_COPY_BANDWIDTH") or 0)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        truth_work.train(scratch / "run", "run.steps=1", "batch.global=1", "batch.micro=1",
                         "checkpoint.every=1", deck=model)
        short, long = (text_seconds(scratch, tokens) for tokens in (SHORT_TEXT, LONG_TEXT))
        say({"kind": "facts", "decode": model, "seconds_of_a_text": [short, long]})
        # While the checkpoint is still there: it takes its time to go.
        say_decoding(model, (long - short) / (LONG_TEXT - SHORT_TEXT), bandwidth)


def text_seconds(scratch, tokens):
    """Of one text of so many tokens. They have what a process does once in them: libraries'
    choices, modules, the graph; a difference of two lengths does not."""
    out = scratch / "out.json"
    run([bundle.program("trireme"), "generate", "--checkpoint", scratch / "run", "--greedy",
         "--max-tokens", tokens, "--set", "precision.compute=bf16", "--prompt-ids",
         " ".join(map(str, range(16))), "--format", "jsonl", "--out", scratch / "texts.jsonl",
         "--json", out])
    report = json.loads(out.read_text(encoding="utf-8"))
    out.unlink()
    (scratch / "texts.jsonl").unlink()
    return report["seconds"]


def say_decoding(model, seconds, bandwidth):
    case = case_of(model, "0")
    weights = kernel_models.weight_bytes(case)
    what = f"{model}: decoding, share of reading the weights"
    if seconds <= 0:
        finding(what, None, "not judged: a longer text took no longer than a short one")
        return
    say({"kind": "measured", "case": f"decoding {model}", "what": "token",
         "us_per_token": 1e6 * seconds})
    if bandwidth:
        share = weights / bandwidth / seconds
        finding(what, share >= DECODE_WANTED[model], round(share, 4))
    else:
        finding(what, None, "not judged: the results have no bandwidth of a copy (peaks)")


WORK = {"ratio": ratio, "decode": decode, "compile": compile_peers}
