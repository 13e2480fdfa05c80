"""The steps of `gpu_suite truth`: whether what runs on this GPU is what the CPU says."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bundle
import device
from checkpoint_tensors import tensors_of
from steps import read_records
from work import finding, run, say

# The CPU's expected values are of these runs of decks/tiny.yaml; pack.py makes them.
TINY_STEPS, TINY_STOP = 6, 3
# fp32 on another machine: as far as layouts of one machine may differ, and sums of other
# lengths more.
LOSS_TOLERANCE = 2e-5
# Of losses and norms of gradients in bf16, with another kernel in one place: norms differ most.
BF16_TOLERANCE = 2e-2
# A step this small, which is 0 in fp32, leaves weights as they were drawn, zeros included.
NO_STEP = ("optimizer.lr=1e-60", "run.steps=1")


def train(directory, *settings, deck="tiny", arguments=(), variables=None):
    """A run, from an empty directory; returns the records of its steps."""
    command = [bundle.program("trireme"), "train", bundle.deck(deck), "--run-dir", directory,
               *arguments, "--set", f"data.train={bundle.corpus_of(deck)}"]
    for setting in settings:
        command += ["--set", setting]
    run(command, env={**os.environ, **(variables or {})})
    return steps_of(directory)


def steps_of(directory):
    text = (pathlib.Path(directory) / "train.jsonl").read_text(encoding="utf-8")
    return [record for record in map(json.loads, text.splitlines()) if "loss" in record]


def last_checkpoint(directory):
    found = sorted((pathlib.Path(directory) / "checkpoints").glob("step_*"))
    return found[-1]


def digests_of(checkpoint):
    """Of every tensor, by name."""
    return {name: hashlib.sha256(data).hexdigest()
            for name, data in tensors_of(pathlib.Path(checkpoint)).items()}


def same(what, ours, theirs):
    """Whether two dictionaries are equal, with the first key where they are not."""
    different = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
    finding(what, not different, f"{len(different)} of {len(theirs)} differ, first "
            f"{different[0]}" if different else f"{len(theirs)} equal")


def versions():
    say({"kind": "facts", "gpu": device.find_gpu(), "archive": bundle.manifest(),
         "libraries": device.find_libraries(bundle.manifest()["nvidia_libraries"],
                                            bundle.python_candidates()),
         "smi": device.run(["nvidia-smi"])})
    say({"kind": "facts", "trireme": run([bundle.program("trireme"), "--version"])})
    python = os.environ.get("TRIREME_SUITE_PYTHON")
    if python:
        say({"kind": "facts", "torch": run([python, "-c", "import torch; print(torch.__version__,"
                                            " torch.version.cuda)"]).strip()})


def start():
    """What loading all modules at the start costs, which is what users get, beside loading
    each when it is first asked for: seconds of a whole run of one small step, and the memory
    in use before there is a model."""
    for loading in ("EAGER", "LAZY"):
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch) / "run"
            begin = time.monotonic()
            train(directory, "run.steps=1", "checkpoint.every=0",
                  variables={"CUDA_MODULE_LOADING": loading})
            seconds = time.monotonic() - begin
            found = json.loads((directory / "environment.json").read_text(encoding="utf-8"))
        say({"kind": "facts", "module_loading": loading, "seconds": round(seconds, 3),
             "device_bytes_before_model": found.get("device_bytes_before_model")})


TESTS = re.compile(r"^\[\s*(OK|FAILED|SKIPPED)\s*\] (\S+\.\S+)(?:, where .*)? \((\d+) ms\)")


# Of what a test printed that failed, so much is kept: its first lines say what was wrong first,
# and where.
FAILURE_LINES, FAILURE_CHARACTERS = 30, 3000


class TestLines:
    """What GoogleTest prints, line by line: names by how they ended, the test under way, and the
    first lines that it printed; before the first test, what the program printed."""

    def __init__(self):
        self.ended = {"OK": [], "FAILED": [], "SKIPPED": []}
        self.running, self.printed = None, []

    def add(self, line):
        """How a test ended with this line, or None."""
        begin, end = re.match(r"^\[ RUN\s+\] (\S+)", line), TESTS.match(line)
        if begin:
            self.running, self.printed = begin.group(1), []
        elif end is None and len(self.printed) < FAILURE_LINES:
            self.printed.append(line)
        if end is None:
            return None
        self.ended[end.group(1)].append(end.group(2))
        self.running = None
        return end.group(1)


def tests_environment():
    return {**os.environ, "TRIREME_SOURCE_DIR": str(bundle.ROOT),
            "TRIREME_BINARY": str(bundle.program("trireme"))}


def names_of_tests(listing):
    """Of what --gtest_list_tests prints: "Suite." lines with indented names below."""
    names, suite = [], None
    for line in listing.splitlines():
        line = line.partition("#")[0].rstrip()
        if re.fullmatch(r"\S+\.", line):
            suite = line
        elif suite and re.fullmatch(r"  \S+", line):
            names.append(suite + line.strip())
    return [name for name in names if "DISABLED_" not in name]


def say_failure(test, lines):
    say({"kind": "failure", "test": test, "text": "\n".join(lines.printed)[:FAILURE_CHARACTERS]})


def run_tests(names, scratch):
    """These tests; failures are said as they come, the first one with its text: others of the
    same process may follow from it."""
    flags = scratch / "flags"
    flags.write_text(f"--gtest_color=no\n--gtest_filter={':'.join(names)}\n", encoding="utf-8")
    command = [bundle.program("trireme_gpu_tests"), f"--gtest_flagfile={flags}"]
    lines = TestLines()
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
                          env=tests_environment()) as process:
        for line in process.stdout:
            sys.stdout.write(line.rstrip("\n") + "\n")  # one write, and a whole line
            sys.stdout.flush()
            how = lines.add(line.rstrip("\n"))
            if how == "FAILED":
                if len(lines.ended[how]) == 1:
                    say_failure(lines.ended[how][0], lines)
                finding(f"unit test {lines.ended[how][-1]}", False)
            elif how and sum(map(len, lines.ended.values())) % 50 == 0:
                say({"kind": "facts", "passed": len(lines.ended["OK"])})
    return lines, process.returncode


class TestCounts:
    """Of some of the tests: how many passed, and the names of the others."""

    def __init__(self):
        self.passed, self.failed, self.crashed, self.left = 0, [], [], []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.crashed += other.crashed
        self.left += other.left


def run_all(names):
    """These tests. Behind one that crashes the program it is started again with those that it
    has not run yet."""
    counts = TestCounts()
    counts.left = list(names)
    with tempfile.TemporaryDirectory() as scratch:
        while counts.left:
            lines, returned = run_tests(counts.left, pathlib.Path(scratch))
            say({"kind": "facts", "passed": len(lines.ended["OK"]),
                 "failed": lines.ended["FAILED"], "skipped": lines.ended["SKIPPED"],
                 "crashed": lines.running, "returned": returned})
            counts.passed += len(lines.ended["OK"])
            counts.failed += lines.ended["FAILED"]
            over = {lines.running, *(name for names in lines.ended.values() for name in names)}
            if lines.running:
                say_failure(lines.running, lines)
                finding(f"unit test {lines.running}", False,
                        f"ended the program: status {returned}")
                counts.crashed.append(lines.running)
            if over.isdisjoint(counts.left):
                say_failure("none: the program ended before its first", lines)
                break  # nothing of it was run: a further start would find no more
            counts.left = [name for name in counts.left if name not in over]
    return counts


def test_processes():
    """At a time: what most tests wait for is the host, which computes what is expected. One
    where the GPU is of one process at a time."""
    asked = os.environ.get("TRIREME_SUITE_PROCESSES")
    if asked:
        return int(asked)
    mode = (device.smi("compute_mode") or {}).get("compute_mode", "Default")
    cores = len(os.sched_getaffinity(0))
    return max(1, min(12, cores * 3 // 4)) if mode == "Default" else 1


# Suites of kernels that are a GPU's alone, which change most and are run first.
FIRST_TESTS = re.compile(r"(\w+/)?(Attention|Decode(Layers|Attention|Linear))")


def all_tests():
    listing = run([bundle.program("trireme_gpu_tests"), "--gtest_list_tests"],
                  env=tests_environment())
    return names_of_tests(listing)


def first_tests():
    """Of attention and of the layers of a token."""
    judge_tests("unit tests of attention and of a token's layers",
                [name for name in all_tests() if FIRST_TESTS.match(name)])


def tests(shard, shards):
    """One part of all others: every so-manieth of the list."""
    shard, shards = int(shard), int(shards)
    names = [name for name in all_tests() if not FIRST_TESTS.match(name)][shard::shards]
    judge_tests(f"unit tests, part {shard + 1} of {shards}", names)


def judge_tests(what, names):
    """These of the unit tests, which are one program, shared out to several processes."""
    processes = min(test_processes(), len(names)) or 1
    all_of_them = TestCounts()
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        for counts in pool.map(run_all, [names[i::processes] for i in range(processes)]):
            all_of_them.add(counts)
    finding(what,
            all_of_them.passed > 0 and not (all_of_them.failed or all_of_them.crashed
                                            or all_of_them.left),
            f"{all_of_them.passed} passed, {len(all_of_them.failed)} failed, "
            f"{len(all_of_them.crashed)} crashed, {len(all_of_them.left)} not run")


def masks():
    said = [json.loads(line) for line in run([bundle.program("trireme_gpu_masks")]).splitlines()
            if line.startswith("{")]
    wanted = json.loads(bundle.expected("masks.json").read_text(encoding="utf-8"))
    same("dropout masks are the CPU's, bit for bit",
         {one["mask"]: one["digest"] for one in said}, wanted)


def expected_of(what, deck):
    """What the CPU says of a deck: weights.json of the smallest GPT, weights-tiny-t5.json."""
    name = what if deck == "tiny" else f"{what}-{deck}"
    return json.loads(bundle.expected(f"{name}.json").read_text(encoding="utf-8"))


def of_deck(deck):
    return "" if deck == "tiny" else f"{deck}: "


def weights(deck="tiny"):
    with tempfile.TemporaryDirectory() as scratch:
        run_directory = pathlib.Path(scratch) / "run"
        train(run_directory, *NO_STEP, "checkpoint.every=1", deck=deck)
        ours = digests_of(last_checkpoint(run_directory))
    wanted = expected_of("weights", deck)
    same(f"{of_deck(deck)}initial weights are the CPU's, bit for bit",
         {name: digest for name, digest in ours.items() if name in wanted}, wanted)


def losses(deck):
    """Of a run in each type beside the CPU's in fp32: in 16 bits attention is another kernel."""
    wanted = {int(step): loss for step, loss in expected_of("losses", deck).items()}
    for compute, tolerance in (("fp32", LOSS_TOLERANCE), ("bf16", BF16_TOLERANCE),
                               ("fp16", BF16_TOLERANCE)):
        with tempfile.TemporaryDirectory() as scratch:
            ours = losses_of(train(pathlib.Path(scratch) / "run", f"run.steps={TINY_STEPS}",
                                   "checkpoint.every=0", f"precision.compute={compute}",
                                   # Below what overflows, which would be a step that is skipped.
                                   "precision.loss_scale.initial=1024", deck=deck))
        gap = largest_difference(ours, wanted)
        finding(f"{of_deck(deck)}losses of a run in {compute} are the CPU's in fp32",
                gap < tolerance, gap)


def twice(deck="tiny"):
    for compute in ("fp32", "bf16") if deck == "tiny" else ("bf16", "fp16"):
        records, checkpoints = [], []
        with tempfile.TemporaryDirectory() as scratch:
            for name in ("one", "two"):
                directory = pathlib.Path(scratch) / name
                steps = train(directory, f"precision.compute={compute}", "model.dropout=0.1",
                              "model.attention_dropout=0.1", f"run.steps={TINY_STEPS}",
                              f"checkpoint.every={TINY_STEPS}", deck=deck)
                records.append({f"{step['step']} {key}": step[key] for step in steps
                                for key in ("loss", "grad_norm")})
                checkpoints.append(digests_of(last_checkpoint(directory)))
        what = f"{of_deck(deck)}the same run twice, {compute}"
        same(f"{what}: losses and norms", *records)
        same(f"{what}: every tensor", *checkpoints)


def cudnn(results):
    """What has to be known of cuDNN's attention before it is the default on a GPU of this
    architecture: asked to be deterministic it gives the same bits twice, losses and norms are
    those of own attention as far as bf16 goes, and how fast it is."""
    deterministic = ("run.deterministic=true", "model.dropout=0", "model.attention_dropout=0")
    runs, checkpoints = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for number, attention in enumerate(("cudnn", "cudnn", "own")):
            steps = train(scratch / str(number), *deterministic, "precision.compute=bf16",
                          f"precision.attention={attention}", f"run.steps={TINY_STEPS}",
                          f"checkpoint.every={TINY_STEPS}")
            runs.append({f"{step['step']} {key}": step[key] for step in steps
                         for key in ("loss", "grad_norm")})
            checkpoints.append(digests_of(last_checkpoint(scratch / str(number))))
        same("cuDNN's attention twice, deterministic: losses and norms", *runs[:2])
        same("cuDNN's attention twice, deterministic: every tensor", *checkpoints[:2])
        gap = largest_difference(runs[0], runs[2])
        finding("losses and norms with cuDNN's attention are those with own",
                gap < BF16_TOLERANCE, gap)
        train(scratch / "profiled", *deterministic, "precision.attention=cudnn",
              "checkpoint.every=0", "run.steps=8", deck="gpt2-124m",
              arguments=("--profile=5",))
        tokens = tokens_of_a_step(scratch / "profiled")
        text = (scratch / "profiled" / "profile.json").read_text(encoding="utf-8")
    theirs = 1e6 / tokens * sum(seconds for kernel, seconds in
                                kernel_seconds(json.loads(text)).items()
                                if kernel.startswith("attention_"))
    say({"kind": "measured", "case": "gpt2-124m, dropout 0", "what": "cuDNN: attention",
         "us_per_token": theirs})
    own = [one["us_per_token"] for one in read_records(results)
           if one.get("kind") == "measured" and one["case"] == "gpt2-124m, dropout 0"
           and one["what"].startswith("attention_")]
    finding("cuDNN's deterministic attention: times as fast as own", None,
            round(sum(own) / theirs, 3) if own else "not known: the results have no profile")


def largest_difference(ours, theirs):
    return max(abs(ours[step] - theirs[step]) / abs(theirs[step]) for step in theirs)


def losses_of(steps):
    return {step["step"]: step["loss"] for step in steps}


def restart(results):
    """From the CPU's checkpoint here, and from here to the CPU: the checkpoint, what it was
    trained on and the losses behind it are kept beside the results, for `gpu_suite report
    --trireme`."""
    wanted = {int(step): loss for step, loss in expected_of("losses", "tiny").items()}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        ours = losses_of(train(scratch / "whole", f"run.steps={TINY_STEPS}",
                               f"checkpoint.every={TINY_STOP}", "checkpoint.keep=2"))
        gap = largest_difference(ours, wanted)
        finding("losses of a run in fp32 are the CPU's", gap < LOSS_TOLERANCE, gap)
        resumed = losses_of(train(scratch / "resumed", f"run.steps={TINY_STEPS}",
                                  arguments=("--resume", bundle.expected("checkpoint"))))
        behind = {step: loss for step, loss in wanted.items() if step > TINY_STOP}
        gap = largest_difference(resumed, behind)
        finding("losses behind the CPU's checkpoint are the CPU's", gap < LOSS_TOLERANCE, gap)
        checkpoint = sorted((scratch / "whole" / "checkpoints").glob("step_*"))[0]
        run([bundle.program("trireme"), "inspect", checkpoint, "--verify"])
        kept = pathlib.Path(results).resolve().parent / "gpu_checkpoint"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(checkpoint, kept / checkpoint.name)
        shutil.copy(bundle.deck("tiny"), kept / "tiny.yaml")
        shutil.copy(bundle.corpus("tiny"), kept / "tiny.h5")
        (kept / "losses_behind.json").write_text(json.dumps(
            {step: loss for step, loss in ours.items() if step > TINY_STOP}), encoding="utf-8")


def go_on_from(kept, trireme):
    """Goes on from a GPU's checkpoint, kept by restart(), with this program: the largest
    difference of losses to the GPU's, or None where no checkpoint was kept."""
    kept = pathlib.Path(kept)
    checkpoints = sorted(kept.glob("step_*"))
    if not checkpoints:
        return None
    behind = json.loads((kept / "losses_behind.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch) / "behind"
        run([trireme, "train", kept / "tiny.yaml", "--run-dir", directory, "--resume",
             checkpoints[0], "--set", f"data.train={kept / 'tiny.h5'}", "--set",
             f"run.steps={TINY_STEPS}"])
        return largest_difference(losses_of(steps_of(directory)),
                                  {int(step): loss for step, loss in behind.items()})


# Racecheck takes Trireme's own kernels alone: cuBLAS' are not for us to mend, and take all of the
# step's time. The names that it compares are mangled, and every kernel of ours, also one that
# Kokkos launches, has its namespace in it. Before 2023.3 (CUDA 12.3) the option was called
# --kernel-regex.
OWN_KERNELS = {"racecheck": ("--kernel-name", "kns=trireme")}
# A text of the smallest model: its prompt, and some tokens one by one, by a graph from the second
# on.
SANITIZED_TEXT = ("--greedy", "--max-tokens", "6", "--prompt-ids", "1 2 3 4 5 6 7 8", "--format",
                  "jsonl")
WHAT_IS_SANITIZED = {"step": "a step in bf16 with dropout", "generation": "generation"}


def sanitizer(tool, of="step"):
    """Of a step in bf16 with dropout, or of generation."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        if of == "generation":
            train(scratch / "run", "run.steps=1", "checkpoint.every=1")
            words = ["generate", "--checkpoint", scratch / "run", *SANITIZED_TEXT, "--out",
                     scratch / "text.jsonl", "--set", "precision.compute=bf16"]
        else:
            words = ["train", bundle.deck("tiny"), "--run-dir", scratch / "run", "--set",
                     f"data.train={bundle.corpus('tiny')}", "--set", "run.steps=1", "--set",
                     "precision.compute=bf16", "--set", "model.dropout=0.1", "--set",
                     "model.attention_dropout=0.1", "--set", "precision.attention=own", "--set",
                     "checkpoint.every=0"]
        command = [os.environ["TRIREME_SUITE_SANITIZER"], "--tool", tool, "--error-exitcode",
                   "99", "--print-limit", "20", *OWN_KERNELS.get(tool, ()),
                   bundle.program("trireme"), *words]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
    summary = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line
               or "RACECHECK SUMMARY" in line]
    print(done.stdout[-20000:], flush=True)
    finding(f"compute-sanitizer {tool} finds nothing in {WHAT_IS_SANITIZED[of]}",
            done.returncode == 0, summary[-1] if summary else f"status {done.returncode}")


def used_mib():
    found = device.smi("memory.used")
    if found and not found["memory.used"].isdigit():
        raise SystemExit(f"nvidia-smi says that '{found['memory.used']}' of the memory is in "
                         "use, as it does of a slice")
    return float(found["memory.used"]) if found else 0.0


def memory():
    """The most that the GPU has in use while GPT-2 124M trains, beside the plan."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        settings = ["--set", f"data.train={bundle.corpus('gpt2')}", "--set", "run.steps=8",
                    "--set", "checkpoint.every=0"]
        plan = scratch / "plan.json"
        command = [bundle.program("trireme"), "train", bundle.deck("gpt2-124m")]
        run([*command, *settings, "--dry-run", "--json", plan])
        stages = json.loads(plan.read_text(encoding="utf-8"))["memory"]["stages"]
        planned = max(stage.get("device_total", stage["total"]) for stage in stages) / 2 ** 20
        before, most = used_mib(), 0.0
        with open(scratch / "log", "wb") as log:
            process = subprocess.Popen([str(word) for word in [*command, *settings, "--run-dir",
                                                               scratch / "run"]],
                                       stdout=log, stderr=subprocess.STDOUT)
            while process.poll() is None:
                most = max(most, used_mib())
                time.sleep(0.1)
        if process.returncode != 0:
            raise SystemExit((scratch / "log").read_text(errors="replace")[-2000:])
    used = most - before
    # The plan has the context; what libraries load beside it is some hundreds of MiB.
    finding("memory of gpt2-124m: used MiB beside planned MiB, and 1 GiB for libraries",
            used <= planned + 1024, [round(used), round(planned)])


def profile(dropout, deck="gpt2-124m"):
    """What each kernel of a model takes, by the events of its queue. Attention is Trireme's
    own, which the predictions are of, whatever the default is."""
    case = f"{deck}, dropout {dropout}"
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch) / "run"
        settings = (f"model.dropout={dropout}", f"model.attention_dropout={dropout}",
                    "precision.attention=own", "checkpoint.every=0")
        steps = train(directory, *settings, "run.steps=12", deck=deck)
        tokens = tokens_of_a_step(directory)
        seconds = statistics.median(step["seconds"] for step in steps[4:])
        say({"kind": "measured", "case": case, "what": "step",
             "us_per_token": 1e6 * seconds / tokens})
        directory = pathlib.Path(scratch) / "profiled"
        train(directory, *settings, "run.steps=8", deck=deck, arguments=("--profile=5",))
        text = (directory / "profile.json").read_text(encoding="utf-8")
    for kernel, taken in kernel_seconds(json.loads(text)).items():
        say({"kind": "measured", "case": case, "what": kernel,
             "us_per_token": 1e6 * taken / tokens})


def kernel_seconds(profile_json):
    """Seconds a step of each kernel; all products are one, as their shapes are not in it."""
    found = {}
    for use in profile_json["kernels"]:
        name = use["kernel"].removeprefix("kernels::")
        name = "all products" if name in ("gemm", "linear_forward[fused]") else name
        found[name] = found.get(name, 0.0) + use["seconds"]
    return found


def tokens_of_a_step(directory):
    """Of one GPU, from the deck as the run wrote it."""
    records = steps_of(directory)
    return records[-1]["tokens"] / records[-1]["step"]


WORK = {"versions": versions, "start": start, "first_tests": first_tests, "tests": tests,
        "masks": masks, "weights": weights, "twice": twice, "losses": losses, "restart": restart,
        "sanitizer": sanitizer, "memory": memory, "profile": profile, "cudnn": cudnn}
