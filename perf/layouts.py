#!/usr/bin/env python3
"""Layouts of one deck against each other: how fast each is beside the first.

    perf/layouts.py --trireme build/release/bin/trireme --deck my.yaml \\
        --rounds 3 \\
        "1 rank: ranks=1 threads=2" \\
        "tensor 2: ranks=2 threads=1 parallel.tensor=2" \\
        "data 2: ranks=2 threads=1 parallel.zero=0"

A layout is a name, ranks, threads of each, and keys of the deck; words in
capitals (TRIREME_WAIT=spin) are variables of its environment. A round starts
every layout once, for a few steps, every other round backwards, so that a slow
drift of the machine's clock cancels; the first step is not counted. A run is
ended after its last step; with --tables the last round's go on to their end,
with a validation and a checkpoint. Ratios are taken within a round: 0.9 is nine
tenths of the first layout's samples per second. --at-least fails where the
median is lower. --busy 2 keeps two processes busy beside all of it, as on a
machine that is shared.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time


class Layout:
    def __init__(self, text):
        self.name, colon, rest = text.partition(":")
        words = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        if not colon or len(words) != len(rest.split()):
            raise ValueError(f"'{text}' is no layout; one is 'NAME: ranks=2 threads=1 "
                             "KEY=VALUE ...'")
        self.ranks, self.threads = (int(words.pop(key, "1")) for key in ("ranks", "threads"))
        self.variables = {key: value for key, value in words.items() if key.isupper()}
        self.keys = {key: value for key, value in words.items() if not key.isupper()}

    def command(self, options, directory):
        launcher = [] if self.ranks == 1 else [options.mpiexec, "-n", str(self.ranks),
                                               *options.launcher_options.split()]
        keys = {**self.keys, "run.stop_after": options.steps + 1, "run.log_every": 1,
                "run.validate_every": 0, "run.validate_samples": 1, "checkpoint.every": 0,
                "checkpoint.dir": f"{directory}/checkpoints"}
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        return [*launcher, options.trireme, "train", options.deck, "--run-dir",
                f"{directory}/run", *sets]

    def end(self, run):
        """Ends a run that has not ended by itself, with all of its ranks."""
        if run.poll() is not None:
            return
        run.send_signal(signal.SIGTERM if self.ranks > 1 else signal.SIGKILL)
        try:
            run.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()

    def step_seconds(self, options, to_the_end, look=lambda directory: None):
        """Median seconds of a step after the first, and what the run printed.

        look: is shown the run's directory before that goes."""
        with tempfile.TemporaryDirectory(dir=options.scratch) as directory, \
                tempfile.TemporaryFile(mode="w+") as said:
            log = pathlib.Path(directory, "run", "train.jsonl")
            run = subprocess.Popen(self.command(options, directory), stdout=said,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, "OMP_NUM_THREADS": str(self.threads),
                                        **self.variables})
            try:
                while run.poll() is None and (to_the_end or len(steps_of(log)) <= options.steps):
                    time.sleep(0.05)
            finally:
                self.end(run)
            said.seek(0)
            text = said.read()
            steps = steps_of(log)
            if run.returncode == 0:
                look(log.parent)
        if len(steps) <= options.steps or (to_the_end and run.returncode != 0):
            raise RuntimeError(f"{self.name} ended with status {run.returncode}:\n{text[-3000:]}")
        return statistics.median(step["seconds"] for step in steps[1:]), text


def steps_of(log):
    """The records of steps that are there so far; the last line may be half written."""
    if not log.exists():
        return []
    lines = log.read_text().split("\n")[:-1]
    return [record for record in map(json.loads, lines) if "loss" in record]


@contextlib.contextmanager
def busy_processes(number):
    """Processes that compute for nobody, for as long as this lasts."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layouts", nargs="+", metavar="LAYOUT")
    parser.add_argument("--trireme", required=True)
    parser.add_argument("--deck", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="counted ones, of each turn")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--launcher-options", default="", help="e.g. '-bind-to core:1'")
    parser.add_argument("--scratch", help="where runs lie meanwhile")
    parser.add_argument("--tables", action="store_true",
                        help="shows the tables at the end of each layout's last run")
    parser.add_argument("--json", help="writes all figures there")
    parser.add_argument("--busy", type=int, default=0, metavar="N",
                        help="N processes compute beside the runs")
    parser.add_argument("--at-least", type=float, default=0.0)
    options = parser.parse_args()
    try:
        layouts = [Layout(text) for text in options.layouts]
    except ValueError as error:
        parser.error(str(error))

    # What was started is ended when this process is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seconds = {layout.name: [] for layout in layouts}
    tables = {}
    with busy_processes(options.busy):
        for number in range(options.rounds):
            for layout in layouts if number % 2 == 0 else reversed(layouts):
                to_the_end = options.tables and number == options.rounds - 1
                once, tables[layout.name] = layout.step_seconds(options, to_the_end)
                seconds[layout.name].append(once)
                print(f"round {number + 1}: {layout.name}: {once:.3f} s", file=sys.stderr)

    first = seconds[layouts[0].name]
    ratios = {name: [a / b for a, b in zip(first, times)] for name, times in seconds.items()}
    width = max(len(name) for name in seconds)
    for name, times in seconds.items():
        print(f"{name:<{width}}  {statistics.median(times):8.3f} s a step   "
              f"{statistics.median(ratios[name]):.3f} of the first "
              f"({min(ratios[name]):.3f} to {max(ratios[name]):.3f})")
    if options.tables:
        for name, text in tables.items():
            print(f"\n== {name}\n{text[text.index('Loop time'):]}")
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({"deck": options.deck, "seconds": seconds, "ratios": ratios}, indent=2))
    slow = [name for name in ratios if statistics.median(ratios[name]) < options.at_least]
    if slow:
        sys.exit(f"slower than {options.at_least} of the first: {', '.join(slow)}")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError) as error:
        sys.exit(f"perf/layouts.py: {error}")
