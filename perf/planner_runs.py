#!/usr/bin/env python3
"""What `trireme plan --fixed` predicts of runs on this host, and what they take.

    perf/planner_runs.py --trireme build/release/bin/trireme --rounds 3 \\
        --json runs.json --page docs/planner_runs.md
    perf/planner_runs.py --trireme ... --only tensor --compute bf16
    perf/planner_runs.py --show runs.json

Two models of different shape, on two ranks of one core each, in every kind of
layout and in fp32 and bf16. A round starts every run once for a few steps, all
in random order, so that a drift of the machine's clock falls on all alike; a
time is the median over the rounds of the median step. Before the first round
and after the last the host is measured (trireme plan --measure) unless
--machine says what it is: both files predict, and the mean of the two counts.
Memory is what the run's own report has of its ranks, without the copy of a
checkpoint. --only takes some of the runs, --show makes the page of a file.

It ends with status 1 where a requirement is missed: 15 % for each time, 7 % in
the mean, 5 % for memory, and the order of any two layouts of a model, in one
type, whose times differ by more than 10 %. Times mean nothing where others use
the machine.
"""
import argparse
import dataclasses
import itertools
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import compare
import layouts

WANTED = {"step": 15.0, "mean": 7.0, "memory": 5.0, "order": 10.0}
RANKS = 2
# One whose products are most of its work, and a narrow one with much attention.
MODELS = {
    "wide": "model: {kind: gpt, layers: 4, hidden: 512, heads: 8, sequence: 128, "
            "dropout: 0.1, attention_dropout: 0.1}\nbatch: {micro: 2, global: 8}\n",
    "deep": "model: {kind: gpt, layers: 8, hidden: 256, heads: 4, sequence: 512, "
            "dropout: 0.0, attention_dropout: 0.0}\nbatch: {micro: 1, global: 4}\n"}
# Layers are dealt here, so that a run does not deal them by what it measures.
LAYOUTS = {
    "data": "parallel.data=2 parallel.zero=0",
    "data, ZeRO 1": "parallel.data=2 parallel.zero=1",
    "data, ZeRO 2": "parallel.data=2 parallel.zero=2",
    "data, ZeRO 3": "parallel.data=2 parallel.zero=3",
    "data, larger micro-batch": "parallel.data=2 parallel.zero=0 batch.micro={twice}",
    "data, recompute full": "parallel.data=2 parallel.zero=0 memory.recompute=full",
    "data, recompute selective": "parallel.data=2 parallel.zero=0 memory.recompute=selective",
    "tensor": "parallel.tensor=2",
    "tensor, sequence": "parallel.tensor=2 parallel.sequence=true",
    "tensor, recompute full": "parallel.tensor=2 memory.recompute=full",
    "pipeline": "parallel.pipeline=2 parallel.stages=[{half},{half}]",
    "pipeline, GPipe": "parallel.pipeline=2 parallel.stages=[{half},{half}] "
                       "parallel.schedule=gpipe",
    "pipeline, zero bubble": "parallel.pipeline=2 parallel.stages=[{half},{half}] "
                             "parallel.schedule=zero_bubble",
    "pipeline, 2 chunks": "parallel.pipeline=2 parallel.virtual_pipeline=2 "
                          "parallel.stages=[{quarter},{quarter},{quarter},{quarter}]",
    "pipeline, uneven": "parallel.pipeline=2 parallel.stages=[{more},{fewer}]"}
SIZES = {"wide": {"layers": 4, "micro": 2}, "deep": {"layers": 8, "micro": 1}}


@dataclasses.dataclass
class Case:
    """A model in a layout, what it took in each round, and what was predicted."""
    model: str
    compute: str
    name: str
    layout: layouts.Layout
    seconds: list = dataclasses.field(default_factory=list)
    predicted: list = dataclasses.field(default_factory=list)  # by each machine file
    parts: dict = dataclasses.field(default_factory=dict)
    bytes_taken: float = 0.0
    bytes_planned: float = 0.0


def cases_of(options):
    cases = []
    for model, compute in itertools.product(MODELS, options.compute.split(",")):
        size = SIZES[model]
        words = {"half": size["layers"] // 2, "quarter": size["layers"] // 4,
                 "more": size["layers"] // 2 + 1, "fewer": size["layers"] // 2 - 1,
                 "twice": 2 * size["micro"]}
        for name, keys in LAYOUTS.items():
            if any(only not in f"{model} {compute} {name}" for only in options.only):
                continue
            text = f"{name}: ranks={RANKS} threads=1 precision.compute={compute} "
            cases.append(Case(model, compute, name,
                              layouts.Layout(text + keys.format(**words))))
    return cases


def measured_machine(options, path):
    subprocess.run([options.mpiexec, "-n", str(RANKS), *options.launcher_options.split(),
                    options.trireme, "plan", "--measure", "--out", path], check=True,
                   env={**layouts.os.environ, "OMP_NUM_THREADS": "1"},
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def predict(options, case, deck, machine, scratch):
    """Adds what a machine file says of a case."""
    result = scratch / "plan.json"
    sets = [word for key, value in case.layout.keys.items()
            for word in ("--set", f"{key}={value}")]
    subprocess.run([options.trireme, "plan", deck, "--machine", machine, "--devices",
                    str(RANKS), "--fixed", "--json", result, *sets], check=True,
                   stdout=subprocess.DEVNULL)
    plan = json.loads(result.read_text())["plans"][0]
    case.predicted.append(plan["step_seconds"])
    case.parts = plan["parts"]
    case.bytes_planned = plan["memory"]["total"] - plan["memory"]["libraries"]


def run_once(options, case, deck):
    def look(directory):
        memory = json.loads((directory / "report.json").read_text())["this_start"]["memory"]
        case.bytes_taken = sum(part["bytes_max"] for name, part in memory.items()
                               if name not in ("snapshot", "process"))
    options.deck = deck
    seconds, _ = case.layout.step_seconds(options, True, look)
    case.seconds.append(seconds)


def error(case):
    return 100.0 * (statistics.mean(case.predicted) / statistics.median(case.seconds) - 1.0)


def memory_error(case):
    return 100.0 * (case.bytes_planned / case.bytes_taken - 1.0)


def wrong_orders(cases):
    """Pairs of a model's layouts, of one type, that differ by more than a tenth, and those
    that are predicted the other way."""
    pairs = wrong = 0
    names = []
    for a, b in itertools.combinations(cases, 2):
        one, other = statistics.median(a.seconds), statistics.median(b.seconds)
        are_alike = max(one, other) < (1 + WANTED["order"] / 100) * min(one, other)
        if (a.model, a.compute) != (b.model, b.compute) or are_alike:
            continue
        pairs += 1
        if (one < other) != (statistics.mean(a.predicted) < statistics.mean(b.predicted)):
            wrong += 1
            names.append(f"{a.model}, {a.compute}: {a.name} and {b.name}")
    return pairs, wrong, names


def summary(cases):
    signed = [error(case) for case in cases]
    errors = [abs(each) for each in signed]
    pairs, wrong, names = wrong_orders(cases)
    return {"mean": statistics.mean(errors), "largest": max(errors),
            "signed": statistics.mean(signed), "faster": sum(each < 0 for each in signed),
            "memory": max(abs(memory_error(case)) for case in cases),
            "pairs": pairs, "wrong": wrong, "wrong_names": names}


def page(cases, facts):
    found = summary(cases)
    commit, *changes = facts["commit"].split(" ", 1)
    program = " ".join([commit[:8], *changes])
    made = ("the machine files that `trireme plan --measure` made there before and after, the "
            "mean of both" if len(facts["machines"]) > 1 else "the machine file below")
    lines = ["# The planner against runs on a host", "",
             "<!-- Written by perf/planner_runs.py; its help says how. -->", "",
             f"Two ranks on {facts['cpu']}, one core each; {facts['rounds']} rounds of "
             f"{facts['steps']} counted steps,",
             f"the load before them {facts['load_average'][0]:.1f}, commit {program}. What "
             "`trireme plan --fixed` predicts with",
             f"{made}, beside the median step.", "",
             f"Errors: {found['mean']:.1f} % in the mean ({WANTED['mean']:g} are wanted), "
             f"{found['largest']:.1f} % at most ({WANTED['step']:g}); memory "
             f"{found['memory']:.1f} % at most ({WANTED['memory']:g}).",
             f"With their signs {found['signed']:+.1f} % in the mean: {found['faster']} of "
             f"{len(cases)} are predicted to be faster than they are.",
             f"Of {found['pairs']} pairs of a model's layouts that differ by more than "
             f"{WANTED['order']:g} %, {found['wrong']} are predicted in the wrong order.", "",
             "| Model | Type | Layout | Measured, s | Range | Predicted, s | Error | Memory, MB "
             "| Planned | Error |", "|---|---|---|--:|---|--:|--:|--:|--:|--:|"]
    for case in cases:
        lines.append(
            f"| {case.model} | {case.compute} | {case.name} | "
            f"{statistics.median(case.seconds):.3f} | {min(case.seconds):.3f} to "
            f"{max(case.seconds):.3f} | {statistics.mean(case.predicted):.3f} | "
            f"{error(case):+.1f} % | {case.bytes_taken / 1e6:.0f} | "
            f"{case.bytes_planned / 1e6:.0f} | {memory_error(case):+.1f} % |")
    lines += [""] + [f"- Wrong order: {name}." for name in found["wrong_names"]]
    lines += ["Models:", "", "```yaml", *"".join(
        f"# {name}\n{text}" for name, text in MODELS.items()).rstrip().split("\n"), "```", "",
              "The host, as it was measured:"]
    for machine in facts["machines"]:
        lines += ["", "```yaml", *machine.rstrip().split("\n"), "```"]
    return "\n".join(lines) + "\n"


def measure(options, scratch):
    words = scratch / "words.txt"
    compare.write_text(words, 60_000)
    corpus = scratch / "corpus.h5"
    subprocess.run([options.trireme, "tokenize", "--train-bpe", "2048", "--out", corpus, words],
                   check=True, stdout=subprocess.DEVNULL)
    decks = {}
    for model, text in MODELS.items():
        decks[model] = scratch / f"{model}.yaml"
        decks[model].write_text(f"{text}data: {{train: {corpus}}}\n"
                                "checkpoint: {async: false}\n")
    cases = cases_of(options)
    if not cases:
        raise ValueError("--only leaves no run")
    facts = {**compare.machine(), "commit": compare.commit(), "rounds": options.rounds,
             "steps": options.steps}
    compare.warn_if_busy()
    machines = [options.machine or measured_machine(options, scratch / "before.yaml")]
    order = random.Random(options.seed)
    for number in range(options.rounds):
        order.shuffle(turn := list(cases))
        for case in turn:
            run_once(options, case, decks[case.model])
            print(f"round {number + 1}: {case.model}, {case.compute}, {case.name}: "
                  f"{case.seconds[-1]:.3f} s", file=sys.stderr)
    if not options.machine:
        machines.append(measured_machine(options, scratch / "after.yaml"))
    for case, machine in itertools.product(cases, machines):
        predict(options, case, decks[case.model], machine, scratch)
    facts["machines"] = [pathlib.Path(machine).read_text() for machine in machines]
    return cases, facts


def as_json(cases, facts):
    return {**facts, "summary": summary(cases),
            "cases": [{**{field.name: getattr(case, field.name)
                          for field in dataclasses.fields(case) if field.name != "layout"},
                       "keys": case.layout.keys} for case in cases]}


def read_json(path):
    facts = json.loads(pathlib.Path(path).read_text())
    cases = []
    for values in facts.pop("cases"):
        del values["keys"]
        cases.append(Case(layout=None, **values))
    return cases, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme")
    parser.add_argument("--show", metavar="JSON", help="measures nothing: the page of a file")
    parser.add_argument("--machine", help="a machine file; without it this host is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="counted ones, of each run")
    parser.add_argument("--compute", default="fp32,bf16")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS",
                        help="runs whose model, type and layout have these words (repeatable)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of runs")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--launcher-options", default="", help="e.g. '-bind-to core:1'")
    parser.add_argument("--scratch", help="where runs lie meanwhile")
    parser.add_argument("--json", help="writes all figures there")
    parser.add_argument("--page", help="writes the table there")
    options = parser.parse_args()
    if options.show:
        cases, facts = read_json(options.show)
    elif options.trireme:
        options.trireme = str(pathlib.Path(options.trireme).resolve())
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            cases, facts = measure(options, pathlib.Path(scratch))
    else:
        parser.error("--trireme or --show is needed")
    text = page(cases, facts)
    print(text)
    if options.page:
        pathlib.Path(options.page).write_text(text)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(as_json(cases, facts), indent=2))
    found = summary(cases)
    missed = [what for what, is_missed in (("a step", found["largest"] > WANTED["step"]),
                                           ("the mean", found["mean"] > WANTED["mean"]),
                                           ("memory", found["memory"] > WANTED["memory"]),
                                           ("an order", found["wrong"] > 0)) if is_missed]
    if missed:
        sys.exit(f"outside of what is wanted: {', '.join(missed)}")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError, OSError, subprocess.CalledProcessError) as problem:
        sys.exit(f"perf/planner_runs.py: {problem}")
