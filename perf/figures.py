"""What perf/run measures: each function is a row of its table, and yields figures.

A row starts everything that it compares once, and lets it run in turns (perf/compare.py).
What a build lacks (a way of the program, a peer) makes a figure without a value, whose
note says why, so that the table shows what is not known.
"""
import argparse
import dataclasses
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import compare

HERE = pathlib.Path(__file__).resolve().parent
# Benchmarks that memory bounds, of trireme_micro; each of these has to be among the results.
MEMORY_BOUND = ("layer_norm", "residual", "gelu", "dropout", "embedding", "cross_entropy",
                "adamw", "square_sum", "sum_rows")
# What fits a cache says nothing about memory.
BEYOND_CACHES = 64 * 2 ** 20
# Benchmarks of tokenizers, of trireme_micro: what each is, the counter that tells, and what
# is wanted of it.
TOKENIZERS = {
    "encode_word_piece/cased_english_like": ("WordPiece, cased, English-like text: MB/s",
                                             "MB/s", 15),
    "encode_word_piece/cased_mixed": ("WordPiece, cased, mixed text: MB/s", "MB/s", 15),
    "encode_word_piece/uncased_english_like": ("WordPiece, uncased, English-like text: MB/s",
                                               "MB/s", 15),
    "encode_word_piece/uncased_mixed": ("WordPiece, uncased, mixed text: MB/s", "MB/s", 15),
    "encode_sentence_piece/unigram": ("SentencePiece, unigram: as fast as its library called "
                                      "directly", "of_library", 0.95),
    "encode_sentence_piece/unigram_mixed": ("SentencePiece, unigram, with Chinese: as fast as "
                                            "its library", "of_library", 0.95),
    "encode_sentence_piece/bpe": ("SentencePiece, BPE: as fast as its library", "of_library",
                                  0.95)}
# Kinds of vocabulary: the option that learns one, and the words of a text that takes a rank
# seconds.
VOCABULARIES = {"WordPiece": ("--train-wordpiece", 32_000_000),
                "byte-level BPE": ("--train-bpe", 16_000_000),
                "SentencePiece": ("--train-unigram", 4_000_000)}
# Two ranks wait for the slower core; one rank may have the other one.
WANTED_OF_TWO_RANKS = 1.7


@dataclasses.dataclass
class Figure:
    row: str
    what: str
    value: float = None
    wanted: float = None  # none: for information
    at_most: bool = False  # else at least
    spread: tuple = None  # least and most of the rounds
    note: str = ""

    @property
    def reached(self):
        if self.value is None or self.wanted is None:
            return None
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted


def ratio(row, what, above, below, **more):
    """The median of the ratios of two lists of rounds, and their range."""
    pairs = [a / b for a, b in zip(above, below)]
    return Figure(row, what, statistics.median(pairs), spread=(min(pairs), max(pairs)), **more)


def medians(report, name):
    """Of each round of a contender."""
    return [statistics.median(turn) for turn in report["seconds"][name]]


def corpus_of(options, case):
    """Of the case's vocabulary; made when the first of its cases asks for it."""
    kind = compare.CASES[case]["kind"]
    if kind not in options.corpora:
        given = options.corpus if kind == "gpt2" else None
        options.corpora[kind] = str(compare.make_corpus(argparse.Namespace(
            case=case, corpus=given, text=None, trireme=options.trireme), options.scratch))
    return options.corpora[kind]


def compare_arguments(options, case, *more):
    words = ["--trireme", options.trireme, "--case", case, "--rounds", options.rounds,
             "--steps", options.steps, "--threads", options.threads, "--corpus",
             corpus_of(options, case)]
    if options.python:
        words += ["--python", options.python]
    for setting in options.set:
        words += ["--set", setting]
    return compare.parse_arguments([str(word) for word in [*words, *more]])


# The way of the products of a narrow type decides what is wanted of it.
def wanted_of_bf16(facts, instructions):
    if facts["matrix_products"] != "native":
        return None
    return 2.0 if "AMX" in instructions else 1.5


def step_figures(row, report, name, peers, profile):
    """Speed beside the faster of the peers, shares of what the machine can do, memory."""
    facts = report["summary"][name]
    fastest = min(peers, key=lambda peer: statistics.median(medians(report, peer)))
    yield Figure(row, f"{name}: seconds of a step", facts["median_seconds"],
                 spread=(facts["min_seconds"], facts["max_seconds"]))
    yield ratio(row, f"{name}: times as fast as {fastest}", medians(report, fastest),
                medians(report, name))
    peak, flops = facts["gemm_peak"], facts["model_flops_per_second"]
    yield Figure(row, f"{name}: model FLOPs, share of the GEMM peak", flops / peak,
                 note=f"{flops / 1e12:.3f} of {peak / 1e12:.3f} TFLOP/s")
    share = profile.get("roofline_share")
    yield Figure(row, f"{name}: share of the step's roofline", share,
                 note=profile.get("note", ""))
    yield memory_figure(row, report, name, fastest)


def memory_figure(row, report, name, peer):
    mine, theirs = (report["summary"][who]["peak_bytes"] for who in (name, peer))
    if "all" not in mine or "all" not in theirs:
        return Figure(row, f"{name}: peak memory beside {peer}'s", note="not known")
    mib = 2 ** 20
    return Figure(row, f"{name}: peak memory beside {peer}'s", mine["all"] / theirs["all"],
                  wanted=0.7, at_most=True,
                  note=f"{mine['all'] / mib:.0f} against {theirs['all'] / mib:.0f} MiB; "
                       f"its steps after the warm-up {theirs['steps'] / mib:.0f}")


def profile_of(options, case, settings):
    """profile.json of a few steps; {"note": why not} where the program makes none."""
    usage = subprocess.run([options.trireme, "train", "--help"], capture_output=True,
                           text=True, check=True).stdout
    if "--profile" not in usage:
        return {"note": "this program has no --profile"}
    with tempfile.TemporaryDirectory() as directory:
        command = [options.trireme, "train", HERE / "cases" / f"{case}.yaml", "--profile",
                   "--run-dir", f"{directory}/run"]
        for setting in [f"data.train={corpus_of(options, case)}", "run.stop_after=8",
                        *settings, *options.set]:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**compare.os.environ,
                                   **compare.threads_of(options)})
        if done.returncode != 0:
            return {"note": "--profile failed: " + done.stderr.strip()[-200:]}
        return json.loads(pathlib.Path(directory, "run", "profile.json").read_text())


def bf16_step(options, row, case, own_fp32=True):
    """GPT-2 in bf16 beside PyTorch's faster way, and its own fp32."""
    arguments = compare_arguments(options, case, "--compute",
                                  "bf16,fp32" if own_fp32 else "bf16", "--peers",
                                  "compiled,compiled-bf16")
    if not own_fp32:
        arguments.steps = 1  # of many passes each
    report = compare.compare(arguments)
    profile = profile_of(options, case, ["precision.compute=bf16"])
    name, peers = "trireme bf16", ["pytorch compiled", "pytorch compiled-bf16"]
    wanted = wanted_of_bf16(report["summary"][name], options.instructions)
    share = profile.get("roofline_share")
    for figure in step_figures(row, report, name, peers, profile):
        if "times as fast" in figure.what:
            figure.wanted = wanted
            if wanted == 1.5 and share:  # or 85 % of the roofline, whichever is less
                figure.wanted = min(wanted, figure.value * 0.85 / share)
        if "GEMM peak" in figure.what and wanted == 2.0:
            figure.wanted = 0.6
            if share:  # or 85 % of the roofline, where that is less
                figure.wanted = min(0.6, 0.85 * figure.value / share)
        yield figure
    if own_fp32:
        yield ratio(row, f"{name}: times as fast as its own fp32",
                    medians(report, "trireme fp32"), medians(report, name),
                    wanted=None if wanted else 0.95)
    yield passes_figure(row, profile)
    options.reports.append(report)


def passes_figure(row, profile):
    passes = profile.get("passes_per_layer", {}).get("all")
    return Figure(row, "passes over (rows, h) per layer outside GEMM and attention", passes,
                  wanted=40, at_most=True, note=profile.get("note", ""))


def widened_step(options, row, case):
    """bf16 by widening: what a CPU without fast products of it has."""
    def make(arguments, scratch):
        return [compare.trireme_contender(arguments, scratch, arguments.corpus, name,
                                          [f"precision.compute={compute}", *settings])
                for name, compute, settings in (
                    ("fp32", "fp32", []), ("widened", "bf16", ["precision.gemm=widened"]))]

    # What --set says of products is of the other rows.
    options = dataclasses.replace(options, set=[
        word for word in options.set if not word.startswith("precision.")])
    report = compare.compare(compare_arguments(options, case), make)
    yield ratio(row, "bf16 by widening: times as fast as its own fp32",
                medians(report, "trireme fp32"), medians(report, "trireme widened"),
                wanted=0.95)
    yield passes_figure(row, profile_of(options, case, ["precision.compute=bf16",
                                                        "precision.gemm=widened"]))
    narrow, wide = (activations(options, case, compute) for compute in ("bf16", "fp32"))
    yield Figure(row, "activations in bf16 beside fp32's", narrow / wide, wanted=0.51,
                 at_most=True, note=f"{narrow / 2 ** 20:.0f} of {wide / 2 ** 20:.0f} MiB; "
                 "statistics of rows stay fp32")
    options.reports.append(report)


def activations(options, case, compute):
    """Bytes of a micro-batch's activations, by the plan."""
    with tempfile.TemporaryDirectory() as directory:
        plan = pathlib.Path(directory) / "plan.json"
        subprocess.run([options.trireme, "train", HERE / "cases" / f"{case}.yaml",
                        "--dry-run", "--json", plan, "--set",
                        f"data.train={options.corpus}", "--set",
                        f"precision.compute={compute}"], check=True, capture_output=True)
        return json.loads(plan.read_text())["memory"]["stages"][0]["activations"]


def fp32_step(options, row, case, dropout):
    """GPT-2 in fp32 beside PyTorch in fp32."""
    arguments = compare_arguments(options, case, "--peers", "compiled", "--dropout", dropout)
    report = compare.compare(arguments)
    profile = profile_of(options, case, compare.dropout_settings(dropout))
    for figure in step_figures(row, report, "trireme fp32", ["pytorch compiled"], profile):
        if "times as fast" in figure.what:
            figure.wanted = 1.2
        if "roofline" in figure.what and dropout == 0:
            figure.wanted = 0.92
        yield figure
    yield passes_figure(row, profile)
    options.reports.append(report)


def kind_step(options, row, case, compute):
    """BERT or T5 beside Hugging Face's model in PyTorch: in bf16 beside the faster of
    autocast and bf16 throughout, of BERT also where its head has masked positions alone."""
    variants = ["compiled"] if compute == "fp32" else ["compiled-bf16", "compiled-pure"]
    beside = [variant.replace("compiled", "compiled-gathered") for variant in variants
              if compare.CASES[case]["kind"] == "bert"]
    report = compare.compare(compare_arguments(options, case, "--compute", compute, "--peers",
                                               ",".join(variants + beside)))
    name = f"trireme {compute}"
    profile = profile_of(options, case, [f"precision.compute={compute}"])
    wanted = 1.3 if compute == "fp32" or "AMX" in options.instructions else None
    for figure in step_figures(row, report, name, [f"pytorch {way}" for way in variants],
                               profile):
        figure.wanted = wanted if "times as fast" in figure.what else None
        yield figure
    if beside:
        fastest = min((f"pytorch {way}" for way in beside),
                      key=lambda peer: statistics.median(medians(report, peer)))
        yield ratio(row, f"{name}: times as fast as {fastest}", medians(report, fastest),
                    medians(report, name))
    yield dataclasses.replace(passes_figure(row, profile), wanted=None)
    options.reports.append(report)


def dropout_step(options, row, case):
    """What dropout 0.1 costs of a whole step."""
    def make(arguments, scratch):
        return [compare.trireme_contender(
                    arguments, scratch, arguments.corpus, f"{compute} {dropout}",
                    [f"precision.compute={compute}", *compare.dropout_settings(dropout)])
                for compute in ("bf16", "fp32") for dropout in (0, 0.1)]

    report = compare.compare(compare_arguments(options, case), make)
    for compute in ("bf16", "fp32"):
        yield ratio(row, f"{compute}: time with dropout 0.1 beside 0",
                    medians(report, f"trireme {compute} 0.1"),
                    medians(report, f"trireme {compute} 0"), wanted=1.05, at_most=True)
    options.reports.append(report)


def quickstart(options, row):
    """The run of ./quickstart in bf16 beside fp32, on one rank."""
    def make(arguments, scratch):
        text, corpus = scratch / "text.txt", scratch / "small.h5"
        compare.write_text(text)
        subprocess.run([options.trireme, "tokenize", "--train-bpe", "8192", "--out", corpus,
                        text], check=True, stdout=subprocess.DEVNULL)
        forever = ["run.steps=1000000", "run.log_every=1", "run.validate_every=0",
                   "run.sample_every=0", "checkpoint.every=0", "run.hang_timeout=24h"]
        return [compare.trireme_contender(
                    arguments, scratch, corpus, compute,
                    [f"precision.compute={compute}", *forever],
                    deck=HERE.parent / "inputs" / "quickstart.yaml")
                for compute in ("fp32", "bf16")]

    arguments = compare_arguments(options, "gpt2_124m_4x256")
    arguments.steps = 10 * options.steps
    report = compare.compare(arguments, make)
    is_native = report["summary"]["trireme bf16"]["matrix_products"] == "native"
    has_tiles = is_native and "AMX" in options.instructions
    yield ratio(row, "bf16: times as fast as fp32", medians(report, "trireme fp32"),
                medians(report, "trireme bf16"), wanted=1.5 if has_tiles else 0.95,
                note=f"{1e3 * statistics.median(medians(report, 'trireme bf16')):.0f} ms "
                "a step")
    options.reports.append(report)


def run_micro(options, pattern, repetitions=1):
    """Results of trireme_micro, and what it says of the machine."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([options.micro, f"--benchmark_filter={pattern}",
                        f"--benchmark_out={file.name}", "--benchmark_out_format=json",
                        f"--benchmark_repetitions={repetitions}",
                        "--benchmark_min_time=0.2"],
                       check=True, capture_output=True,
                       env={**compare.os.environ, **compare.threads_of(options)})
        text = file.read()
    if not text:  # nothing has such a name
        return [], {}
    result = json.loads(text)
    if int(result["context"]["cores"]) < options.threads:
        raise compare.Failure(f"the {options.threads} threads of trireme_micro may run on "
                              f"{result['context']['cores']} of the host's cores only: is "
                              "OMP_PROC_BIND set?")
    return ([one for one in result["benchmarks"] if one.get("run_type") == "iteration"
             and not one.get("error_occurred")], result["context"])


def kernels(options, row):
    """Kernels that memory bounds, as shares of its bandwidth."""
    results, context = run_micro(options, "|".join(MEMORY_BOUND), options.rounds)
    shares, kinds = {}, {}
    for one in results:
        name = one["name"].replace("/real_time", "")
        seconds = one["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[one["time_unit"]]
        kind = next((kind for kind in ("of_triad", "of_reading") if kind in one), None)
        # What stands apart is the reference of what is fused: no step runs it.
        if (kind is None or "_apart" in name
                or 1e9 * one["GB/s"] * seconds < BEYOND_CACHES):
            continue
        kinds[name] = "triad" if kind == "of_triad" else "read"
        shares.setdefault(name, []).append(one[kind])
    for name, found in shares.items():
        yield Figure(row, f"{name}: share of the bandwidth", statistics.median(found),
                     wanted=0.85, spread=(min(found), max(found)),
                     note=f"{kinds[name]} {context.get('memory ' + kinds[name], '')}")
    for family in MEMORY_BOUND:
        if not any(family in name for name in shares):
            yield Figure(row, f"{family}: share of the bandwidth", wanted=0.85,
                         note="no such benchmark beyond the caches")


class Served:
    """A peer that runs once for each line that it is sent, and answers with seconds."""

    def __init__(self, options, script, *arguments):
        self.process = subprocess.Popen(
            [options.python, HERE / "peers" / script, *map(str, arguments), "--threads",
             str(options.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise compare.Failure(f"{script} did not start")

    def seconds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def attention_seconds(options, element, sequence, dropout):
    """Of forward and backward by the fastest way that the program has."""
    results, _ = run_micro(options, f"attention<{element}, k(Vectors|Matrices), both>/batch:1/"
                           f"sequence:{sequence}/dropout:{dropout}/")
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
    return min((one["real_time"] * units[one["time_unit"]] for one in results), default=None)


def attention(options, row, sequence):
    """Attention alone beside scaled_dot_product_attention, and what its dropout costs."""
    for element, peer, wanted in (("bf16", "bfloat16", 1.5), ("float", "float32", 1.2)):
        if attention_seconds(options, element, sequence, 0) is None:
            yield Figure(row, f"{element}, {sequence} positions", note="no such benchmark")
            continue
        mine, theirs, dropping = [], [], []
        with Served(options, "attention.py", "--type", peer, "--sequence",
                    sequence) as torch:
            for _ in range(options.rounds):
                mine.append(attention_seconds(options, element, sequence, 0))
                theirs.append(torch.seconds())
                dropping.append(attention_seconds(options, element, sequence, 10))
        yield ratio(row, f"{element}, {sequence} positions: times as fast as PyTorch's",
                    theirs, mine, wanted=wanted,
                    note=f"{1e3 * statistics.median(mine):.1f} ms")
        yield ratio(row, f"{element}, {sequence} positions: time with dropout 0.1 beside 0",
                    dropping, mine, wanted=1.15, at_most=True)


def tokenizers(options, row):
    """Text to ids by one core: WordPiece, and SentencePiece beside its library."""
    results, _ = run_micro(options, "encode_(word|sentence)_piece/", options.rounds)
    for name, (what, counter, wanted) in TOKENIZERS.items():
        found = [one for one in results if one["name"] == name]
        if not found:
            yield Figure(row, what, wanted=wanted, note="no such benchmark: GPT-2's vocabulary "
                         "or SentencePiece is not here")
            continue
        values = [one[counter] for one in found]
        note = ""
        if counter == "of_library":
            mine, theirs = (statistics.median(one[rate] for one in found)
                            for rate in ("MB/s", "library_MB/s"))
            note = f"{mine:.2f} and {theirs:.2f} MB/s"
        yield Figure(row, what, statistics.median(values), wanted=wanted,
                     spread=(min(values), max(values)), note=note)


def tokenize_once(options, ranks, *words):
    """Runs `trireme tokenize` on so many ranks of one thread each: what it says of itself, and
    all the seconds that the command took."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as directory:
        corpus, said = (pathlib.Path(directory) / name for name in ("corpus.h5", "said.json"))
        command = [*options.mpiexec.split(), "-n", ranks, options.trireme, "tokenize", *words,
                   "--out", corpus, "--json", said]
        begin = time.monotonic()
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        seconds = time.monotonic() - begin
        if done.returncode != 0:
            raise compare.Failure("tokenize failed: " + done.stderr.strip()[-300:])
        return {**json.loads(said.read_text()), "all_seconds": seconds}


def tokenize_in_turns(options, *words):
    """Rounds of one rank and of two; every other one the other way round."""
    rounds = {1: [], 2: []}
    for number in range(options.rounds):
        for ranks in (1, 2) if number % 2 == 0 else (2, 1):
            rounds[ranks].append(tokenize_once(options, ranks, *words))
    return rounds


def ranks_figures(row, what, rounds, wanted):
    """How many times as fast two ranks are: where text becomes ids, and with all that a
    command does besides, which is to start, to write the file and to sum it."""
    def rate(ranks):
        return statistics.median(one["input_bytes"] / one["seconds"] / 1e6
                                 for one in rounds[ranks])

    for which, scope, least in (("seconds", "text to ids", wanted),
                                ("all_seconds", "the whole command", None)):
        one, two = ([turn[which] for turn in rounds[ranks]] for ranks in (1, 2))
        note = f"{rate(1):.1f} and {rate(2):.1f} MB/s" if which == "seconds" else ""
        yield ratio(row, f"{what}, {scope}: times as fast on 2 ranks as on 1", one, two,
                    wanted=least, note=note)


def tokenize_ranks(options, row):
    """`trireme tokenize` of one text, a document a line, on one rank and on two."""
    if len(os.sched_getaffinity(0)) < 2:
        yield Figure(row, "times as fast on 2 ranks as on 1", note="there is one core")
        return
    place = options.scratch / "tokenize-ranks"
    place.mkdir()
    sample, text = place / "sample.txt", place / "text.txt"
    compare.write_text(sample)
    for what, (option, words) in VOCABULARIES.items():
        compare.write_text(text, words=words, seed=8)  # 6 bytes a word
        vocabulary = place / f"{option}.h5"
        made = subprocess.run([options.trireme, "tokenize", option, "8192", "--out", vocabulary,
                               sample], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            yield Figure(row, f"{what}: times as fast on 2 ranks as on 1",
                         wanted=WANTED_OF_TWO_RANKS,
                         note="no vocabulary: " + made.stderr.strip()[-200:])
            continue
        by_lines = ["--documents", "line", "--tokenizer", vocabulary]
        yield from ranks_figures(row, what, tokenize_in_turns(options, *by_lines, text),
                                 WANTED_OF_TWO_RANKS)
        if what == "WordPiece":
            packed = place / "text.txt.gz"
            with open(text, "rb") as whole, gzip.open(packed, "wb", compresslevel=1) as file:
                shutil.copyfileobj(whole, file)
            rounds = tokenize_in_turns(options, *by_lines, packed)
            figure = next(ranks_figures(row, f"{what}, one gz file", rounds, None))
            yield dataclasses.replace(figure, note="one rank reads it; " + figure.note)


def generation(options, row):
    """Text of 256 tokens beside Hugging Face's generate, by perf/generation.py."""
    script = HERE / "generation.py"
    if not script.exists():
        yield Figure(row, "new tokens", note="perf/generation.py is not here")
        return
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [script, "--trireme", options.trireme, "--python", options.python,
                   "--micro", options.micro, "--rounds", options.rounds, "--threads",
                   options.threads, "--json", file.name]
        subprocess.run([str(word) for word in command], check=True)
        figures = json.load(file)
    for found in figures:
        name = f"{found['type']}, {texts(found['texts'])}"
        yield Figure(row, f"{name}: times as fast as generate()", found["ratio"], wanted=2.0,
                     spread=(min(found["ratios"]), max(found["ratios"])),
                     note=f"{found['seconds']:.2f} s")
        if found["texts"] == 1:
            yield Figure(row, f"{name}: share of the bound of reading the weights",
                         found.get("share_of_bound"), wanted=0.7)


def texts(number):
    return "1 text" if number == 1 else f"{number} texts"


def rows_of_table():
    """{name: function of the options}, in the order of the table."""
    table = {}
    for case in ("4x256", "1x1024"):
        table[f"bf16-{case}"] = (bf16_step, f"gpt2_124m_{case}")
    table["bf16-4of8x256"] = (bf16_step, "gpt2_124m_4of8x256", False)
    table["widened-4x256"] = (widened_step, "gpt2_124m_4x256")
    for case in ("4x256", "1x1024"):
        for dropout in (0, 0.1):
            table[f"fp32-{case}-dropout-{dropout}"] = (fp32_step, f"gpt2_124m_{case}",
                                                       dropout)
    for case in ("4x256", "1x1024"):
        table[f"dropout-{case}"] = (dropout_step, f"gpt2_124m_{case}")
    for case in ("bert_base_8x128", "bert_base_2x512", "t5_small_8x512"):
        for compute in ("fp32", "bf16"):
            row = f"{compute}-{case.replace('_', '-')}"
            table[row] = (kind_step, case, compute)
    for sequence in (1024, 2048, 8192):
        table[f"attention-{sequence}"] = (attention, sequence)
    table["quickstart"] = (quickstart,)
    table["kernels"] = (kernels,)
    table["tokenizers"] = (tokenizers,)
    table["tokenize-ranks"] = (tokenize_ranks,)
    table["generation"] = (generation,)
    return table
