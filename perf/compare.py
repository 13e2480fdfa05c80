#!/usr/bin/env python3
"""Trireme against its peers, alternately in one go: only ratios taken side by side hold.

    perf/compare.py --trireme build/release/bin/trireme --python PYTHON_WITH_TORCH \\
                    --case gpt2_124m_4x256 --dropout 0 --rounds 5 --json report.json

All contenders are started once and stay up; a round lets each in turn make a few steps while
the others stand still, and every other round goes through them backwards, so that a slow
drift of the machine's clock cancels. The first step of a turn is not counted (caches, pages
and the time it stood still). See perf/README.md for what the peers need.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import pty
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# What a deck in cases/ says to the peers: the kind of model, samples of a forward pass,
# their tokens, and how many passes a step adds up.
CASES = {"gpt2_124m_4x256": {"kind": "gpt2", "micro": 4, "sequence": 256, "accumulate": 1},
         "gpt2_124m_1x1024": {"kind": "gpt2", "micro": 1, "sequence": 1024, "accumulate": 1},
         "gpt2_124m_4of8x256": {"kind": "gpt2", "micro": 8, "sequence": 256, "accumulate": 4},
         "bert_base_8x128": {"kind": "bert", "micro": 8, "sequence": 128, "accumulate": 1},
         "bert_base_2x512": {"kind": "bert", "micro": 2, "sequence": 512, "accumulate": 1},
         "t5_small_8x512": {"kind": "t5", "micro": 8, "sequence": 512, "accumulate": 1}}
# Options of a peer's step, by the words of its variant.
WORDS = {"compiled": ["--compile"], "eager": [], "bf16": ["--autocast"], "pure": ["--pure"],
         "gathered": ["--gathered"]}
# Which variants the peers of a kind of model have.
OF_ALL = ["compiled", "eager", "compiled-bf16", "eager-bf16"]
VARIANTS = {"gpt2": OF_ALL, "t5": [*OF_ALL, "compiled-pure"],
            "bert": [*OF_ALL, "compiled-pure", "compiled-gathered", "compiled-gathered-bf16",
                     "compiled-gathered-pure"]}
# Steps that a peer has samples for; then it begins anew.
STEPS_OF_SAMPLES = 24


class Failure(Exception):
    """A contender that cannot go on: what it said is in the message."""


class Ended(Exception):
    """A contender has made all the steps that it makes."""


class Contender:
    """A process that makes training steps when it is let."""

    def __init__(self, name, command, environment=None, directory=None):
        self.name = name
        self.command = [str(word) for word in command]
        self.environment = {**os.environ, **(environment or {})}
        self.directory = directory
        self.process = None
        self.messages = tempfile.TemporaryFile(mode="w+", errors="replace")

    def launch(self, **streams):
        streams.setdefault("stdin", subprocess.DEVNULL)
        streams.setdefault("stdout", self.messages)
        self.process = subprocess.Popen(
            self.command, env=self.environment, cwd=self.directory, stderr=self.messages,
            start_new_session=True, **streams)

    def start(self):
        self.launch()

    def check(self):
        """Fails, with the last of what it printed, when the process has ended."""
        if self.process.poll() is not None:
            self.messages.seek(0)
            tail = "".join(self.messages.readlines()[-15:])
            raise Failure(f"{self.name} ended with status {self.process.returncode}:\n"
                          f"  {' '.join(self.command)}\n{tail}")

    def signal(self, number):
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def stop(self):
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def turn(self, count):
        """Seconds of `count` steps, made now."""
        raise NotImplementedError

    def memory(self):
        """Peaks in bytes beyond the process' peak before it built its model, by name."""
        return {}


class PausedContender(Contender):
    """One that trains by itself: let run until it has said enough, then stopped."""

    # Steps at a turn's begin that do not count: the first one stood still in its middle.
    not_counted = 1

    def turn(self, count):
        if self.process is None:
            self.start()
        self.discard()
        self.signal(signal.SIGCONT)
        seconds = []
        while len(seconds) < count + self.not_counted:
            seconds += self.poll()
        self.signal(signal.SIGSTOP)
        return seconds[self.not_counted:count + self.not_counted]

    def discard(self):
        """Forgets steps that ended after the last turn was taken."""

    def poll(self):
        """Seconds of the steps that ended since the last call; waits a little."""
        raise NotImplementedError


class Trireme(PausedContender):
    """Reads the `seconds` of run_dir/train.jsonl as they are written. `late_reports`: as on a
    GPU, where a step is reported a step late. The step behind the one that stood still is
    then short: the device computed a part of it while the process was stopped."""

    def __init__(self, name, command, run_directory, environment, late_reports=False):
        super().__init__(name, command, environment)
        self.not_counted = 2 if late_reports else 1
        self.run_directory = pathlib.Path(run_directory)
        self.log = self.run_directory / "train.jsonl"
        self.read = 0
        self.model_tflops = []

    def discard(self):
        self.lines()

    def lines(self):
        if not self.log.exists():
            return []
        with open(self.log, encoding="utf-8") as file:
            file.seek(self.read)
            text = file.read()
        text = text[:text.rfind("\n") + 1]
        self.read += len(text)
        return [json.loads(line) for line in text.splitlines()]

    def poll(self):
        time.sleep(0.02)
        self.check()
        records = [record for record in self.lines() if "seconds" in record]
        self.model_tflops += [record["model_tflops"] for record in records]
        return [record["seconds"] for record in records]

    def memory(self):
        before = self.surroundings().get("peak_bytes_before_model")
        return {} if before is None else {"all": peak_bytes(self.process.pid) - before}

    def surroundings(self):
        return json.loads((self.run_directory / "environment.json").read_text())

    def gemm_peak(self):
        """FLOP/s of the products of its type, which it measured at its start."""
        said = re.search(r"GEMM peak ([0-9.]+) ([GT])FLOP/s",
                         (self.run_directory / "log.txt").read_text())
        return float(said[1]) * {"G": 1e9, "T": 1e12}[said[2]] if said else None

    def facts(self):
        """What is known of it beside its seconds."""
        return {"model_flops_per_second": 1e12 * statistics.median(self.model_tflops),
                "gemm_peak": self.gemm_peak(),
                "matrix_products": self.surroundings().get("matrix_products")}


class Llmc(PausedContender):
    """llm.c's CPU program; a terminal of its own makes it write line by line."""

    output = None

    def start(self):
        controller, terminal = pty.openpty()
        self.launch(stdout=terminal)
        os.close(terminal)
        os.set_blocking(controller, False)
        self.output, self.text = controller, ""

    def stop(self):
        super().stop()
        if self.output is not None:
            os.close(self.output)
            self.output = None

    def turn(self, count):
        """It makes 40 steps and ends. A turn that does not fit is thrown away and made by a
        new process, so that no process' start is within what counts."""
        fresh = self.process is None
        try:
            return super().turn(count)
        except Ended:
            if fresh:
                raise Failure(f"{self.name} ended before it made {count + 1} steps") from None
        self.stop()
        self.process = None
        return self.turn(count)

    def discard(self):
        self.read()

    def poll(self):
        time.sleep(0.02)
        seconds, ended = self.read()
        if ended and not seconds:
            self.process.wait()
            if self.process.returncode != 0:
                self.check()
            raise Ended
        return seconds

    def read(self):
        """Seconds of the steps printed since the last call, and whether it has ended."""
        ended = False
        try:
            while data := os.read(self.output, 65536):
                self.text += data.decode(errors="replace")
        except BlockingIOError:
            pass
        except OSError:  # nobody has the other end of the terminal any more
            ended = True
        found = re.findall(r"^step \d+: .*\(took ([0-9.]+) ms\)", self.text, re.MULTILINE)
        self.text = self.text[self.text.rfind("\n") + 1:]
        return [float(value) / 1000 for value in found], ended


class Peer(Contender):
    """perf/peers/..._step.py --serve: told how many steps to make."""

    def start(self):
        self.launch(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.setup = self.record()

    def record(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.check()
        return json.loads(line)

    def turn(self, count):
        if self.process is None:
            self.start()
        self.process.stdin.write(f"{count + 1}\n".encode())
        self.process.stdin.flush()
        seconds = []
        while True:
            record = self.record()
            if record.get("summary"):
                self.summary = record
                return seconds[1:]
            seconds.append(record["seconds"])

    def memory(self):
        before = self.setup["peak_bytes_before_model"]
        steps = self.summary["peak_bytes_of_steps"]
        return {"all": max(steps, self.setup["peak_bytes_of_warmup"]) - before,
                "steps": steps - before}


def peak_bytes(process):
    """The most memory that a process has occupied so far (VmHWM)."""
    with open(f"/proc/{process}/status", encoding="utf-8") as status:
        return next(1024 * int(line.split()[1]) for line in status
                    if line.startswith("VmHWM:"))


def write_text(path, words=400_000, seed=7):
    """Something to tokenize: random words. What they say does not change a step's time."""
    letters = random.Random(seed)
    vocabulary = ["".join(letters.choices("etaoinshrdlucmfwypvbgkjqxz", k=letters.randint(1, 9)))
                  for _ in range(20_000)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(words // 20):
            file.write(" ".join(letters.choices(vocabulary, k=20)) + "\n")


def made_up_words(count, seed=7):
    """So many different ones, of lower case."""
    draw = random.Random(seed)
    words = {}
    while len(words) < count:
        words["".join(draw.choices("etaoinshrdlucmfwypvbgkjqxz", k=draw.randint(2, 9)))] = None
    return list(words)


def write_documents(path, words, between, documents=150, seed=7):
    """JSON lines: documents of 100 to 200 sentences of 10 to 30 words."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(documents):
            sentences = (" ".join(draw.choices(words, k=draw.randint(10, 30)))
                         for _ in range(draw.randint(100, 200)))
            file.write(json.dumps({"text": between.join(sentences)}) + "\n")


def write_bert_vocabulary(directory):
    """BERT's 30522 pieces, of which all but the special ones are made-up words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = made_up_words(30522 - len(special))
    path = directory / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in special + words), encoding="utf-8")
    return path, words


def write_t5_vocabulary(directory):
    """T5's 32000 pieces and 100 sentinels; all but the special ones are made-up words."""
    special = ["<pad>", "</s>", "<unk>"]
    sentinels = [f"<extra_id_{number}>" for number in range(99, -1, -1)]
    words = made_up_words(32000 - len(special))
    pieces = special + ["\u2581" + word for word in words] + sentinels
    path = directory / "tokenizer.json"
    path.write_text(json.dumps({
        "added_tokens": [{"id": number, "content": piece} for number, piece in enumerate(pieces)
                         if piece in special + sentinels],
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                          "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 2,
                  "vocab": [[piece, -10.0] for piece in pieces]}}))
    return path, words


def make_corpus(arguments, scratch):
    """A corpus of the vocabulary of the case: the user's, or one made from text."""
    if arguments.corpus:
        return pathlib.Path(arguments.corpus).resolve()
    kind = CASES[arguments.case]["kind"]
    directory = scratch / kind
    directory.mkdir()
    text, corpus = arguments.text, directory / "corpus.h5"
    if kind == "gpt2":
        options = ["--tokenizer", "gpt2"]
        if not text:
            text = directory / "words.txt"
            write_text(text)
    else:
        write = {"bert": write_bert_vocabulary, "t5": write_t5_vocabulary}[kind]
        vocabulary, words = write(directory)
        options = ["--tokenizer", vocabulary]
        if not text:
            text = directory / "documents.jsonl"
            # Blank lines end BERT's sentences; T5's have no newline.
            write_documents(text, words, "\n\n" if kind == "bert" else " ")
        if kind == "bert":
            options += ["--sentences", "none"]
    subprocess.run([arguments.trireme, "tokenize", *options, "--out", corpus, text],
                   check=True, stdout=subprocess.DEVNULL)
    return corpus


def make_samples(arguments, scratch, corpus):
    """What the first steps of the case are of, for peers that take the same samples."""
    case = CASES[arguments.case]
    count = case["micro"] * case["accumulate"] * STEPS_OF_SAMPLES
    path = scratch / "samples.jsonl"
    program = pathlib.Path(arguments.trireme).resolve().parent / "trireme_samples"
    settings = [word for word in arguments.set if word.startswith("data.")]
    with open(path, "w", encoding="utf-8") as file:
        subprocess.run([program, HERE / "cases" / f"{arguments.case}.yaml", str(count),
                        f"data.train={corpus}", *settings], check=True, stdout=file,
                       env={**os.environ, **threads_of(arguments)})
    return path


def trireme_contender(arguments, scratch, corpus, name, settings, deck=None):
    """A run of the case, or of a deck, with these settings and the command line's."""
    run_directory = scratch / re.sub(r"[^a-z0-9.]+", "-", f"run {name}")
    command = [arguments.trireme, "train",
               deck or HERE / "cases" / f"{arguments.case}.yaml", "--run-dir", run_directory]
    for setting in [f"data.train={corpus}", *settings, *arguments.set]:
        command += ["--set", setting]
    return Trireme(f"trireme {name}", command, run_directory, threads_of(arguments))


def threads_of(arguments):
    return {"OMP_NUM_THREADS": str(arguments.threads),
            "OMP_PROC_BIND": os.environ.get("OMP_PROC_BIND", "false")}


def dropout_settings(dropout):
    return [f"model.dropout={dropout}", f"model.attention_dropout={dropout}"]


def trireme_contenders(arguments, scratch, corpus):
    """One for each type of --compute."""
    return [trireme_contender(arguments, scratch, corpus, compute,
                              [f"precision.compute={compute}",
                               *dropout_settings(arguments.dropout)])
            for compute in filter(None, arguments.compute.split(","))]


def peer_command(arguments, *more):
    case = CASES[arguments.case]
    return [arguments.python, HERE / "peers" / f"{case['kind']}_step.py", "--serve",
            "--micro", case["micro"], "--sequence", case["sequence"],
            "--accumulate", case["accumulate"], "--dropout", arguments.dropout,
            "--threads", arguments.threads, "--warmup", 2, *more]


def make_contenders(arguments, scratch):
    contenders = []
    case = CASES[arguments.case]
    samples = []
    if arguments.trireme:
        corpus = make_corpus(arguments, scratch)
        contenders += trireme_contenders(arguments, scratch, corpus)
        if arguments.python and case["kind"] != "gpt2":
            samples = ["--samples", make_samples(arguments, scratch, corpus)]
    if arguments.python:
        for variant in filter(None, arguments.peers.split(",")):
            options = sum((WORDS[word] for word in variant.split("-")), [])
            contenders.append(Peer(f"pytorch {variant}",
                                   peer_command(arguments, *samples, *options)))
    if arguments.nanogpt:
        contenders.append(Peer("nanogpt compiled", peer_command(
            arguments, "--compile", "--nanogpt", arguments.nanogpt)))
    if arguments.llmc:
        directory = pathlib.Path(arguments.llmc).resolve()
        binary = directory / f"train_gpt2_{case['micro']}x{case['sequence']}"
        contenders.append(Llmc("llm.c", [binary], threads_of(arguments), directory))
    return contenders


def machine():
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "system": platform.platform(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "load_average": os.getloadavg()}


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", str(HERE), *words], capture_output=True,
                              text=True, check=False).stdout.strip()
    return git("rev-parse", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno")
                                       else "")


def measure(contenders, arguments):
    """{name: [[seconds of a turn] per round]}."""
    turns = {contender.name: [] for contender in contenders}
    for number in range(arguments.rounds):
        order = contenders if number % 2 == 0 else contenders[::-1]
        for contender in order:
            seconds = contender.turn(arguments.steps)
            turns[contender.name].append(seconds)
            print(f"round {number + 1:2d}  {contender.name:21s}",
                  " ".join(f"{value:8.3f} s" for value in seconds), flush=True)
    return turns


def summarise(turns, tokens):
    """Medians, and how many times as fast as each of the others the first of each kind is:
    Trireme in each type beside the peers, or the first contender beside the rest."""
    ours = [name for name in turns if name.startswith("trireme")] or list(turns)[:1]
    table = {}
    for name, rounds in turns.items():
        seconds = [value for turn in rounds for value in turn]
        median = statistics.median(seconds)
        table[name] = {"median_seconds": median, "min_seconds": min(seconds),
                       "max_seconds": max(seconds), "tokens_per_second": tokens / median,
                       "noise": (max(seconds) - min(seconds)) / median}
        if name in ours:
            continue
        for mine in ours:
            pairs = [statistics.median(theirs) / statistics.median(turn)
                     for theirs, turn in zip(rounds, turns[mine])]
            table[name].setdefault("ratios", {})[mine] = {
                "median": statistics.median(pairs), "pairs": pairs}
    return ours, table


def show(ours, table):
    print(f"\n{'':21s} {'median':>9s} {'min':>9s} {'max':>9s} {'tokens/s':>9s} "
          f"{'memory':>9s}   times as fast (min .. max): {', '.join(ours)}")
    for name, row in table.items():
        ratios = "; ".join(
            f"{ratio['median']:6.3f}  ({min(ratio['pairs']):.3f} .. {max(ratio['pairs']):.3f})"
            for ratio in row.get("ratios", {}).values())
        peak = row.get("peak_bytes", {}).get("all", 0) / 2 ** 20
        memory = f"{peak:5.0f} MiB" if peak else ""
        print(f"{name:21s} {row['median_seconds']:8.3f}s {row['min_seconds']:8.3f}s "
              f"{row['max_seconds']:8.3f}s {row['tokens_per_second']:9.1f} {memory:>9s}   "
              f"{ratios}")


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trireme", help="the binary; without it only the peers run")
    parser.add_argument("--python", help="a Python that has torch")
    parser.add_argument("--llmc", help="directory with train_gpt2_4x256 and train_gpt2_1x1024 "
                        "and what they read (perf/README.md)")
    parser.add_argument("--nanogpt", help="directory of a copy of nanoGPT (needs --python)")
    parser.add_argument("--peers", default="compiled,eager",
                        help=f"PyTorch variants: {', '.join(VARIANTS['gpt2'])}; of t5 and bert "
                        "compiled-pure, of bert with -gathered, too")
    parser.add_argument("--compute", default="fp32",
                        help="types that Trireme computes in, each in a run of its own: "
                        "fp32,bf16,fp16")
    parser.add_argument("--case", choices=sorted(CASES), default="gpt2_124m_4x256",
                        metavar="CASE", help="of perf/cases, without .yaml")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="counted steps of a turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--corpus", help="a corpus of the case's vocabulary; made if not given")
    parser.add_argument("--text", help="text to make the corpus from; random words if not given")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="more deck settings for trireme")
    parser.add_argument("--json", help="where to write the report")
    parser.add_argument("--at-least", type=float,
                        help="status 1 if any ratio to PyTorch is below this")
    arguments = parser.parse_args(words)
    kind = CASES[arguments.case]["kind"]
    unknown = set(filter(None, arguments.peers.split(","))) - set(VARIANTS[kind])
    if unknown:
        parser.error(f"no variant of PyTorch: {', '.join(sorted(unknown))}; of {kind} there "
                     f"are {', '.join(VARIANTS[kind])}")
    if kind != "gpt2" and arguments.python and not arguments.trireme:
        parser.error(f"{arguments.case} needs --trireme, which makes its samples")
    if kind != "gpt2" and (arguments.nanogpt or arguments.llmc):
        parser.error(f"nanoGPT and llm.c have no {kind}")
    if not (arguments.trireme or arguments.python or arguments.llmc):
        parser.error("nothing to run: give --trireme, --python or --llmc")
    if arguments.nanogpt and not arguments.python:
        parser.error("--nanogpt needs a Python that has torch: --python")
    return arguments


def warn_if_busy():
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: the machine is busy (load {load:.1f}); ratios will be noisy",
              file=sys.stderr)


def compare(arguments, make=make_contenders):
    """Lets the contenders of make(arguments, scratch) run; the report as --json has it."""
    before = machine()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="trireme-compare-"))
    contenders = []
    try:
        contenders = make(arguments, scratch)
        turns = measure(contenders, arguments)
        ours, table = summarise(turns, tokens_of(CASES[arguments.case]))
        for contender in contenders:
            table[contender.name]["peak_bytes"] = contender.memory()
            if isinstance(contender, Trireme):
                table[contender.name].update(contender.facts())
    finally:
        for contender in contenders:
            contender.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return {"case": arguments.case, "dropout": arguments.dropout, "commit": commit(),
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "command": sys.argv, "machine": before,
            "load_average_after": os.getloadavg(), "threads": arguments.threads,
            "commands": {c.name: c.command for c in contenders},
            "setup": {c.name: c.setup for c in contenders if hasattr(c, "setup")},
            "seconds": turns, "ours": ours, "summary": table}


def tokens_of(case):
    return case["micro"] * case["sequence"] * case["accumulate"]


def main():
    arguments = parse_arguments()
    warn_if_busy()
    # Processes that stand still would stay for ever if this one just died.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        report = compare(arguments)
    except Failure as failure:
        print(f"compare: {failure}", file=sys.stderr)
        return 1
    table = report["summary"]
    show(report["ours"], table)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    below = [name for name, row in table.items()
             if name.startswith("pytorch") and arguments.at_least
             and any(ratio["median"] < arguments.at_least
                     for ratio in row.get("ratios", {}).values())]
    for name in below:
        print(f"compare: below {arguments.at_least} of {name}", file=sys.stderr)
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
