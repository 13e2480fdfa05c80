# tests/tools/test_report.py — tools/report: which runs it compares, the numbers of its tables,
# its pages and pictures, and what it says of runs that are old, killed, damaged or none.
# The files of runs are written here, as src/report writes them.
import contextlib
import copy
import csv
import html.parser
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
from report_page import command, tables  # noqa: E402
from report_page.run_files import SCHEMA_VERSION, begins_of, read_run  # noqa: E402
from report_page.scaling import Comparison as Scaling  # noqa: E402
from report_page.scaling import read_prediction  # noqa: E402

# As a run writes it, and its values where a test asks for no others.
VALUES = {"hidden": 60, "batch": 8, "tensor": 1, "pipeline": 1, "seed": 1234}
DECK = """# Resolved deck: every default is written out.
model:
  kind: gpt
  layers: 2
  hidden: %(hidden)s
  sequence: 16
data:
  train: [{path: "a: b.h5", weight: 1}, {path: c.h5, weight: 2}]
  seed: %(seed)s
batch:
  micro: 1
  global: %(batch)s
  ramp_up: none
parallel:
  tensor: %(tensor)s
  pipeline: %(pipeline)s
  virtual_pipeline: 1
  context: 1
  data: auto
  sequence: false
  zero: 1
  schedule: 1f1b
precision:
  compute: fp32
  loss_scale:
    initial: 65536
memory:
  recompute: none
optimizer:
  kind: adamw
  clip_norm: 1
run:
  steps: 20
  dir: %(dir)s
"""
FACTORS = (("effective_time", "stepping", "capacity", {"set_up": 0.15, "validation": 0.05}),
           ("transfer", "ideal_network", "stepping", {"tensor": 0.0, "pipeline": 0.1}),
           ("serialisation", "slowest_rank", "ideal_network", {"bubble": 0.1}),
           ("load_balance", "busy", "slowest_rank", {"passes": 0.25}),
           ("orchestration", "computing", "busy", {"host": 0.1, "input": 0.1}),
           ("flop_rate", "executed_flops", "computing", {"products": 0.4}),
           ("useful_flops", "model_flops", "executed_flops", {"padding": 0.2}))
PARTS = {"passes": 0.3, "optimizer": 0.01, "input": 0.02, "host": 0.01, "warm_up": 0.0,
         "validation": 0.02, "checkpoint": 0.01, "sample": 0.0, "other": 0.0, "tensor": 0.0,
         "pipeline": 0.1, "world": 0.01}


def identity():
    amounts, factors = {"capacity": 1e12}, []
    for name, numerator, denominator, lost in FACTORS:
        value = 1 - sum(lost.values())
        amounts[numerator] = amounts[denominator] * value
        factors.append({"name": name, "value": value, "numerator": numerator,
                        "denominator": denominator, "lost": lost})
    goodput = amounts["model_flops"] / amounts["capacity"]
    return {"goodput": goodput, "product": goodput, "factors": factors,
            "quantities_flops": amounts}


def efficiency(ranks=2, bandwidth=10.0, start=1):
    """The fields of efficiency.json, of a pipeline of so many stages."""
    axis = {"device_seconds": 2.0, "calls": 320.0, "bytes": 1e6, "sampled_skew_seconds": 0.75,
            "sampled_transfer_seconds": 0.25}
    no_axis = dict.fromkeys(axis, 0.0)
    kernels = [{"name": "products", "calls": 24.0, "flops": 6e9, "flops_needed": 6e9,
                "bytes": 2e8, "seconds": 0.3, "seconds_bound": bandwidth and 0.2,
                "bound": bandwidth and "products", "share_of_bound": bandwidth and 0.67},
               {"name": "norms", "calls": 8.0, "flops": 0.0, "flops_needed": 0.0,
                "bytes": 4e7, "seconds": 0.01, "seconds_bound": bandwidth and 0.004,
                "bound": bandwidth and "memory", "share_of_bound": bandwidth and 0.4}]
    rows = [{"rank": rank, "stage": rank, "seconds": dict(PARTS, passes=0.25 + 0.25 * rank)}
            for rank in range(ranks)]
    sites = [{"axis": "pipeline", "site": "step::activations", "operation": "send",
              "ranks": 1, "calls": 160.0, "bytes": 6e5},
             {"axis": "pipeline", "site": "step::gradients", "operation": "send",
              "ranks": 1, "calls": 160.0, "bytes": 4e5}] if ranks > 1 else []
    memory = {"bytes_planned": 2.0 ** 21, "bytes_min": 2.0 ** 20, "bytes_avg": 1.5 * 2.0 ** 20,
              "bytes_max": 2.0 ** 21}
    by_category = {"weights": memory, "process": dict(memory, bytes_planned=0.0)}
    stages = [{"stage": row["stage"], "ranks": 1.0, "slowest_rank": row["rank"],
               "seconds": row["seconds"], "memory": by_category,
               "extremes": {"passes": {"least": row["seconds"]["passes"],
                                       "most": row["seconds"]["passes"],
                                       "rank_most": row["rank"]}}} for row in rows]
    grid = {"tensor": 1, "context": 1, "data": 1, "pipeline": ranks,
            "order": ["tensor", "context", "data", "pipeline"]}
    links = [{"axis": "pipeline", "ranks": ranks, "latency_seconds": 2e-6,
              "payload_bytes_per_second": 4e6, "slowest_rank": 0}]
    return {
        "schema_version": 1, "complete": True, "time": "2025-03-01T12:30:05.250Z",
        "run": {"directory": "r", "start": start, "starts": start, "step": 20, "steps": 20,
                "devices": ranks, "grid": grid, "compute": "float32",
                "tied_stages": sorted({0, ranks - 1}) if ranks > 1 else []},
        "machine": {"peak_tflops": 0.04, "memory_gigabytes_per_second": bandwidth,
                    "links": links if bandwidth and ranks > 1 else []},
        "identity": identity(),
        "pop": {"parallel_efficiency": 0.6075, "load_balance": 0.75,
                "communication_efficiency": 0.81, "serialisation": 0.9, "transfer": 0.9,
                "computation_scaling": None, "global_efficiency": None},
        "losses": [{"name": "passes", "share": 0.162, "rank": 1, "stage": 1,
                    "advice": "parallel.stages dealt otherwise"},
                   {"name": "set_up", "share": 0.15, "rank": None, "stage": None,
                    "advice": "longer starts & <fewer>"},
                   {"name": "sample", "share": 0.0, "rank": None, "stage": None, "advice": "-"}],
        "rates": {"step_seconds_mean": 0.5, "tokens_per_second": 256.0,
                  "model_tflops_per_device": 0.01, "hardware_tflops_per_device": 0.0125,
                  "hardware_share_of_peak": 0.3125},
        "steps": 20.0, "samples": 160.0, "tokens": 2560.0,
        "device_seconds": {"all": 25.0, "set_up": 3.75,
                           "parts": {"passes": 12.0, "optimizer": 1.0, "input": 1.5},
                           "messages": {"pipeline": axis, "tensor": no_axis,
                                        "world": dict(no_axis, device_seconds=0.1)}},
        "step_histogram": [{"seconds_from": 0.4, "seconds_to": 0.5, "steps": 12},
                           {"seconds_from": 0.5, "seconds_to": 0.7, "steps": 8}],
        "this_start": {"steps": 20, "stages": stages, "ranks": rows, "messages": sites},
        "kernels": {"steps_profiled": 5, "classes": kernels},
        "pipeline": {"stages": ranks, "chunks": 1, "microbatches": 8, "schedule": "1f1b",
                     "bubble_share": 0.2, "bubble_share_simulated": 0.125,
                     "bubble_share_theory": 0.1, "bubble_share_ideal_network": 0.11},
        "memory": by_category}


# Of a run whose efficiency.json comes before the end of a start.
def partial():
    known = efficiency()
    start = dict(known["this_start"], messages=[],
                 stages=[dict(stage, memory={}) for stage in known["this_start"]["stages"]])
    return dict(known, complete=False, pipeline=None, memory={}, this_start=start,
                kernels={"steps_profiled": 0, "classes": []})


# In the place of a field, as text of JSON or of a deck; "" where the field goes.
WRONG = ("", "null", '"x"', "[]", "-1", "0", "1e999")


def places_in(value, path=()):
    """The paths of all fields in an object; of the elements of a list that of the first."""
    if isinstance(value, dict):
        inner = value.items()
    else:
        inner = list(enumerate(value))[:1] if isinstance(value, list) else []
    for key, field in inner:
        yield path + (key,)
        yield from places_in(field, path + (key,))


def damaged_json(text):
    """(what is damaged, the text with that) of every field of an object."""
    for path in places_in(json.loads(text)):
        for wrong in WRONG:
            whole = json.loads(text)
            within = whole
            for key in path[:-1]:
                within = within[key]
            if wrong:
                within[path[-1]] = "(here)"
            else:
                del within[path[-1]]
            yield f"{path}: {wrong}", json.dumps(whole).replace('"(here)"', wrong)


def damaged(name, text):
    """The same of a file of a run."""
    if name.endswith(".json"):
        yield from damaged_json(text)
        return
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if name.endswith(".jsonl"):
            changed = damaged_json(line)
        else:
            key = line.partition(":")[0]
            changed = ((f"{key}: {wrong}", wrong and f"{key}: {wrong}") for wrong in WRONG)
        for what, other in changed:
            yield f"line {number}, {what}", "\n".join(
                lines[:number] + [other] * bool(other) + lines[number + 1:]) + "\n"


TRACE = {"traceEvents": [
    {"name": name, "ph": "X", "pid": rank, "tid": row, "ts": 1000.0 * begin, "dur": 1000.0 * length,
     "args": {"microbatch": 0} if "ward" in name else {}}
    for rank in (0, 1) for step in (0, 10)
    for name, row, begin, length in (("forward 0", 0, step + 1 + rank, 1), ("send", 1, step + 2, 1),
                                     ("wait", 0, step + 3, 1), ("backward 0", 0, step + 4, 2),
                                     ("optimizer", 0, step + 7, 1))]}
CHARTS = ["waterfall", "losses", "step_by_rank", "step_by_stage", "pop", "roofline", "kernels",
          "messages", "matrix", "memory", "stage_memory", "step_times", "timeline", "progress"]


class Page(html.parser.HTMLParser):
    """Tables as {slug: rows of texts}, charts as {slug: number of pictures}, and what is said."""
    VOID = {"meta", "br", "img", "link"}

    def __init__(self, text):
        super().__init__()
        self.tables, self.charts, self.said, self.open, self.ids = {}, {}, "", [], []
        self.rows, self.chart = None, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = self.tables.setdefault(given["data-table"], [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "figure":
            self.chart = given["data-chart"]
        elif tag == "svg":
            self.charts[self.chart] = self.charts.get(self.chart, 0) + 1

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, text):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += text
        elif self.open and self.open[-1] in ("p", "h1", "h2", "figcaption"):
            self.said += text + "\n"


class Report(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)

    def run_of(self, name, ranks, rates, began=None, known=None, environment=None, **deck):
        """The directory of a run; known is its efficiency.json."""
        directory = self.root / name
        directory.mkdir()
        (directory / "environment.json").write_text(
            json.dumps({"ranks": ranks} | (environment or {})), "utf-8")
        (directory / "deck.yaml").write_text(DECK % (VALUES | {"dir": name} | deck), "utf-8")
        records = [{"step": 5 * (i + 1), "tokens_per_second": rate, "loss": 6.0 - 0.1 * i}
                   for i, rate in enumerate(rates)]
        records.append({"validation": {"step": 20, "loss": 5.0, "name": "validation"}})
        text = "\n".join(json.dumps(record) for record in records) + "\n"
        (directory / "train.jsonl").write_text(text, "utf-8")
        starts = [0] if began is None else [0, began]
        (directory / "starts.jsonl").write_text("".join(
            json.dumps({"start": number, "event": "began", "step": step, "time": 1.0}) + "\n"
            for number, step in enumerate(starts, 1)), "utf-8")
        if known is not None:
            (directory / "efficiency.json").write_text(json.dumps(known), "utf-8")
        return str(directory)

    def texts(self, *arguments):
        """(status, tables as lists of lines, what was said) of the tables on the terminal."""
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            try:
                status = command.main(list(arguments))
            except SystemExit as end:
                status = end.code
        tables = [table.split("\n") for table in out.getvalue().strip().split("\n\n")]
        kept = [line for line in said.getvalue().splitlines(True) if "efficiency.json" not in line]
        return status, tables, "".join(kept)

    def program(self, *arguments, environment=()):
        """As a program, which finds a Python that has matplotlib: (status, stdout, stderr)."""
        done = subprocess.run([sys.executable, "-B", TOOLS / "report", *arguments], check=False,
                              capture_output=True, text=True, timeout=240,
                              env=os.environ | dict(environment))
        return done.returncode, done.stdout, done.stderr

    def page_of(self, *arguments, status=0):
        out = self.root / "report.html"
        ended, _, said = self.program(*arguments, "-o", str(out))
        self.assertEqual(ended, status, said)
        return Page(out.read_text("utf-8")), said

    def rows(self, table):
        """{directory's name: the words before it} of the lines under a table's head."""
        head = next(i for i, line in enumerate(table) if line.split()[:1] == ["ranks"])
        self.assertEqual(" ".join(table[head].split()),
                         "ranks tokens/s per rank speed-up efficiency run")
        rows = [line.split(maxsplit=5) for line in table[head + 1:]]
        return {row[5].removeprefix(f"{self.root}/"): row[:5] for row in rows}


class Comparison(Report):
    """What is compared, and the tables of it, which need Python alone."""

    def test_names_of_directories_say_nothing(self):
        status, tables, said = self.texts(
            self.run_of("sc2", 2, [1, 150, 160, 155], tensor=2),  # median of the last three
            self.run_of("sc1", 1, [1, 100, 100]))
        self.assertEqual((status, said, len(tables)), (0, "", 1))
        self.assertEqual(self.rows(tables[0]), {
            "sc1": ["1", "100.0", "100.0", "1.00", "100.0%"],
            "sc2": ["2", "155.0", "77.5", "1.55", "77.5%"]})
        self.assertIn("strong scaling: a batch of 8 on every number of ranks", tables[0])
        self.assertIn("  differ in parallel.tensor: 1 of sc1; 2 of sc2", tables[0])
        self.assertNotIn("run.dir", "".join(tables[0]))

    def test_other_work_is_not_compared(self):
        status, tables, _ = self.texts(
            self.run_of("a-1", 1, [1, 50]), self.run_of("a-2", 2, [1, 80]),
            self.run_of("b-2", 2, [1, 70], hidden=120))
        self.assertEqual(status, 0)
        self.assertEqual(list(self.rows(tables[0])), ["a-1", "a-2"])
        self.assertEqual(self.rows(tables[1]), {"b-2": ["2", "70.0", "35.0", "1.00", "100.0%"]})
        self.assertIn("no other number of ranks", tables[1][1])
        self.assertEqual(tables[2], ["Runs whose work differs are not compared: model.hidden"])

    def test_batches_that_grow_are_weak_scaling(self):
        status, tables, _ = self.texts(
            self.run_of("base", 1, [1, 100]), self.run_of("strong", 4, [1, 300]),
            self.run_of("weak", 4, [1, 360], batch=32), self.run_of("odd", 4, [1, 9], batch=9))
        self.assertEqual((status, len(tables)), (0, 3))
        self.assertIn("strong scaling: a batch of 8", tables[0][1])
        self.assertEqual(self.rows(tables[0])["strong"][3:], ["3.00", "75.0%"])
        self.assertIn("weak scaling: a batch that grows with the ranks, 8 for each", tables[1])
        self.assertEqual(self.rows(tables[1])["weak"][3:], ["3.60", "90.0%"])
        self.assertEqual(list(self.rows(tables[1])), ["base", "weak"])
        self.assertNotIn("batch.global", "".join(tables[1]))
        self.assertEqual(list(self.rows(tables[2])), ["odd"])

    def test_what_else_differs_is_said(self):
        _, tables, _ = self.texts(
            self.run_of("one", 1, [1, 50]), self.run_of("again", 1, [1, 60], seed=7))
        self.assertEqual(len(tables), 1)
        self.assertIn("  differ in data.seed: 7 of again; 1234 of one", tables[0])
        self.assertEqual(list(self.rows(tables[0])), ["again", "one"])

    def test_a_value_that_differs_is_said_to_be_of_its_runs(self):
        runs = [self.run_of(f"r{seed}", 2, [1, 100 + seed], seed=seed, tensor=2)
                for seed in range(7)]
        runs += [self.run_of("s", 2, [1, 60], seed=7, pipeline=2),
                 self.run_of("t", 2, [1, 50], seed=8, pipeline=2)]
        _, tables, _ = self.texts(*runs)
        self.assertIn("  differ in parallel.pipeline: 2 of s, t; 1 of the others", tables[0])
        halves = [self.run_of(f"q{i}", 2, [1, 100 - i], seed=i, tensor=1 + i // 6,
                              pipeline=2 - i // 6) for i in range(12)]
        _, tables, _ = self.texts(*halves)
        self.assertIn("  differ in parallel.tensor: 1 of q0, q1, q2, q3 and 2 more; "
                      "2 of q6, q7, q8, q9 and 2 more", tables[0])

    def test_data_ranks_that_are_left_open_are_those_that_there_were(self):
        run, same = self.run_of("a", 2, [1, 50]), Path(self.run_of("b", 2, [1, 60]))
        deck = (same / "deck.yaml").read_text("utf-8")
        (same / "deck.yaml").write_text(deck.replace("data: auto", "data: 2"), "utf-8")
        _, tables, _ = self.texts(run, str(same))
        self.assertEqual([row[1] for row in self.rows(tables[0]).values()], ["55.0"])  # repeats
        _, tables, _ = self.texts(run, self.run_of("c", 2, [1, 40], tensor=2))
        self.assertIn("  differ in parallel.data: 2 of a; 1 of c", tables[0])

    def test_a_directory_counts_once_by_whatever_name(self):
        run, other = self.run_of("a", 1, [1, 100]), self.run_of("b", 2, [1, 150], tensor=2)
        (self.root / "link").symlink_to(run)
        status, tables, said = self.texts(run, other, run + "/", str(self.root / "link"))
        self.assertEqual((status, list(self.rows(tables[0]))), (0, ["a", "b"]))
        self.assertEqual(said, "".join(
            f"report: '{name}' is the directory of '{run}', and counts once\n"
            for name in (f"{run}/", f"{self.root}/link")))
        self.assertEqual(self.texts(run, run)[1], [[""]])  # of one run there is no comparison

    def test_marks_of_as_many_ranks_stand_under_their_own_ideal(self):
        runs = [self.run_of("one", 1, [1, 100])]
        runs += [self.run_of(f"r{i}", 2, [1, 193 - i], seed=i, tensor=2) for i in range(40)]
        each = Scaling([read_run(run) for run in runs]).sets[0]
        self.assertEqual((each.kind, len(each.rows)), ("strong", 41))
        line = each.ideal()
        self.assertEqual([ideal for _, ideal in line], [1, 1, 2, 2])
        self.assertEqual([place for place, _ in line], sorted(place for place, _ in line))
        self.assertLess(line[-1][0] / 2, 2 ** 0.5)  # no nearer to 4 ranks than to 2
        self.assertEqual(each.place(each.measure), 1)
        places = [each.place(row) for row in each.rows[1:]]
        self.assertEqual(places, sorted(set(places)))
        self.assertTrue(line[2][0] < min(places) and max(places) < line[3][0])

    def test_repeats_make_one_row(self):
        _, tables, _ = self.texts(
            self.run_of("a.1", 1, [1, 100]), self.run_of("a.2", 1, [1, 110]),
            self.run_of("a.3", 1, [1, 90]), self.run_of("b", 2, [1, 150], tensor=2))
        self.assertEqual(self.rows(tables[0]), {
            "a.1 and 2 more (90.0 to 110.0 tokens/s)": ["1", "100.0", "100.0", "1.00", "100.0%"],
            "b": ["2", "150.0", "75.0", "1.50", "75.0%"]})

    def test_runs_on_other_machines_are_no_repeats(self):
        def on(hosts, *devices):
            return {"hosts": hosts, "devices": [{"host": hosts[0], "name": name,
                                                 "address": "03:00.0"} for name in devices]}

        def rows_of(*environments):
            first = len(list(self.root.iterdir()))
            _, tables, _ = self.texts(*(
                self.run_of(f"r{first + i}", 2, [1, 100 + i], environment=environment, tensor=2)
                for i, environment in enumerate(environments)))
            return [row[1] for row in self.rows(tables[0]).values()], "\n".join(tables[0])

        self.assertEqual(rows_of(on(["a"]), on(["a"]))[0], ["100.5"])
        rates, said = rows_of(on(["a"]), on(["b"]))
        self.assertEqual(rates, ["101.0", "100.0"])
        self.assertIn("  differ in hosts: b of r3; a of r2\n", said)
        # Another host of the same GPUs is another repeat; other GPUs, or more hosts, are not.
        self.assertEqual(rows_of(on(["a"], "X", "X"), on(["b"], "X", "X"))[0], ["100.5"])
        rates, said = rows_of(on(["a"], "X", "X"), on(["a"], "Y", "Y"), on(["a"], "X", "Y"))
        self.assertEqual(rates, ["102.0", "101.0", "100.0"])
        self.assertIn("  differ in devices: 1 x X + 1 x Y of r8; Y of r7; X of r6\n", said)
        self.assertIn("  differ in hosts: 2 of r10; 1 of r9\n",
                      rows_of(on(["a"], "X", "X"), on(["a", "b"], "X", "X"))[1])
        # So it is with processors, where they are named.
        def of(name, *hosts):
            return {"hosts": list(hosts), "processors": [name]}
        self.assertEqual(rows_of(of("E", "a"), of("E", "b"))[0], ["100.5"])
        self.assertIn("  differ in processors: F of r14; E of r13\n",
                      rows_of(of("E", "a"), of("F", "a"))[1])
        many = [f"node{number:03}" for number in range(100)]
        said = rows_of(on(many), on(["a"]))[1]
        self.assertIn("  differ in hosts: a of r16; node000 + node001", said)
        self.assertLess(max(map(len, said.split("\n"))), 100)

    def test_a_run_taken_up_again_counts_by_its_last_start(self):
        _, tables, _ = self.texts(self.run_of("a", 2, [9000, 9000, 9000, 5, 70, 80], began=15),
                                  self.run_of("b", 1, [1, 50]))
        self.assertEqual(self.rows(tables[0])["a"][1], "75.0")

    def test_the_committed_study_is_that_of_its_committed_runs(self):
        study = Path("perf/report")
        runs = sorted(str(path.relative_to(TOOLS.parent))
                      for path in (TOOLS.parent / study / "runs").glob("*.[0-9]"))
        plans = sorted((TOOLS.parent / study / "runs").glob("*.plan.json"))
        self.assertEqual((len(runs), len(plans)), (30, 10))
        done = subprocess.run(
            [sys.executable, "-B", TOOLS / "report", *runs, "--csv", str(self.root)] +
            [word for plan in plans for word in ("--prediction", str(plan))],
            check=False, capture_output=True, text=True, timeout=240, cwd=TOOLS.parent)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, (TOOLS.parent / study / "scaling.txt").read_text("utf-8"))
        for made in self.root.iterdir():
            kept = TOOLS.parent / study / "tables" / made.name
            self.assertEqual(made.read_text("utf-8"), kept.read_text("utf-8"), made.name)

    def test_what_is_no_run_is_said_and_left_out(self):
        empty = self.root / "empty"
        empty.mkdir()
        broken = self.run_of("broken", 1, [5, 6])
        (Path(broken) / "deck.yaml").write_text("model:\n      layers: 2\n", "utf-8")
        status, tables, said = self.texts(
            str(empty), self.run_of("short", 1, [5]), self.run_of("good", 1, [5, 6]), broken)
        self.assertEqual(status, 1)
        self.assertEqual(list(self.rows(tables[0])), ["good"])
        self.assertIn(f"'{empty}' is no run of trireme train", said)
        self.assertIn("short' has 1 record of a step of its last start; 2 are needed", said)
        self.assertIn("deck.yaml:2: '      layers: 2' is no line of a resolved deck", said)

    def test_a_short_run_that_is_alone_in_its_group_costs_a_note(self):
        good = self.run_of("good", 1, [5, 6])
        for rates, have in (([5], "1 record of a step"), ([], "0 records of steps")):
            short = self.run_of(f"short-{len(rates)}", 2, rates)
            status, tables, said = self.texts(short, good)
            self.assertEqual(status, 1)
            self.assertEqual(list(self.rows(tables[0])), ["good"])
            self.assertIn(f"'{short}' has {have} of its last start; 2 are needed", said)

    def test_a_damaged_field_costs_no_more_than_a_note(self):
        """Each field of each file in turn is not there, or is something else."""
        good = self.run_of("good", 1, [90, 100])
        environment = {"hosts": ["a"], "devices": [{"name": "X"}], "build": {"git": "1"},
                       "threads_per_rank": 2}
        bad = Path(self.run_of("bad", 2, [1, 1, 50, 60], began=5, known=efficiency(start=2),
                               environment=environment, pipeline=2))
        without_writing = unittest.mock.patch.object(command, "write")  # which takes longest
        without_writing.start()
        self.addCleanup(without_writing.stop)
        cases = 0
        for name in ("efficiency.json", "environment.json", "train.jsonl", "starts.jsonl",
                     "deck.yaml"):
            file = bad / name
            whole = file.read_text("utf-8")
            for what, text in damaged(name, whole):
                file.write_text(text, "utf-8")
                with self.subTest(file=name, field=what):
                    status, tables, _ = self.texts(str(bad), good, "--csv", str(self.root))
                    self.assertIn(status, (0, 1))
                    self.assertIn("good", "".join(map("".join, tables)))
                cases += 1
            file.write_text(whole, "utf-8")
        self.assertGreater(cases, 1000)

    def test_an_account_of_an_earlier_start_makes_the_run_partial(self):
        for known, events, is_partial in (
                (efficiency(), [], True),  # start 2 began
                (efficiency(start=2), [], False),
                (efficiency(start=2), [{"start": 2, "event": "refused", "time": 3.0}], False),
                (efficiency(start=2), [{"start": 3, "event": "began", "step": 9, "time": 3.0},
                                       {"start": 3, "event": "ended", "time": 4.0}], True)):
            run = Path(self.run_of(f"r{len(list(self.root.iterdir()))}", 2, [1, 50], began=5,
                                   known=known))
            with open(run / "starts.jsonl", "a", encoding="utf-8") as file:
                file.writelines(json.dumps(event) + "\n" for event in events)
            notes = read_run(run).notes
            self.assertEqual(len(notes), int(is_partial), notes)
            if is_partial:
                first = known["run"]["start"]
                self.assertIn(f"partial: the newest start, number {first + 1}, has not written "
                              "its account", notes[0])
                self.assertIn(f"Where the time went is told up to start {first}", notes[0])
        del known["run"]["start"]
        (run / "efficiency.json").write_text(json.dumps(known), "utf-8")
        self.assertIn("it does not say of which start it is", read_run(run).notes[0])

    def test_a_start_from_another_step_than_it_began_at(self):
        run = self.run_of("a", 1, [9000, 9000, 5, 70, 80], began=15)
        with open(Path(run) / "starts.jsonl", "a", encoding="utf-8") as file:
            file.write('{"start": 2, "event": "from", "step": 10, "time": 2.0}\n')
        self.assertEqual(begins_of(read_run(run)), [(1, 0, False), (2, 10, True)])
        self.assertEqual([row[:2] for row in tables.starts(read_run(run)).rows], [(1, 0), (2, 10)])
        _, printed, _ = self.texts(run, self.run_of("b", 2, [1, 50]))
        self.assertEqual(self.rows(printed[0])["a"][1], "75.0")

    def test_a_pattern_that_fits_nothing(self):
        pattern = str(self.root / "scaling-77" / "*")
        status, tables, said = self.texts(pattern)
        self.assertEqual((status, tables), (2, [[""]]))
        self.assertIn(f"there is no directory '{pattern}': the pattern fits nothing", said)
        self.assertIn("no run to report on", said)
        self.assertIn("expected that of a run", self.texts(str(self.root / "no"))[2])

    def test_usage(self):
        for arguments in ([], ["--helf"], [".", "--trace", "a", "--trace", "b"]):
            status, _, said = self.texts(*arguments)
            self.assertEqual(status, 2)
            self.assertIn("usage: report ", said)
        self.assertEqual(self.texts("--help")[0], 0)

    def test_numbers_of_csv_are_those_of_the_file(self):
        known = efficiency()
        run = self.run_of("r", 2, [1, 50], known=known, pipeline=2)
        self.assertEqual(self.texts(run, "--csv", str(self.root / "csv"))[0], 0)

        def table(name):
            with open(self.root / "csv" / f"r.{name}.csv", encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))

        for row, factor in zip(table("identity"), known["identity"]["factors"]):
            self.assertEqual((row["factor"], float(row["value"])),
                             (factor["name"], factor["value"]))
        self.assertEqual(float(table("identity")[-1]["value"]), known["identity"]["goodput"])
        self.assertEqual([(row["loss"], row["rank"], row["share"]) for row in table("losses")],
                         [("passes", "1", "0.162"), ("set_up", "", "0.15")])
        axis = table("messages")[0]
        self.assertEqual([float(axis[key]) for key in (
            "calls", "bytes", "late_seconds", "transfer_seconds", "bytes_per_transfer_second")],
            [320, 1e6, 1.5, 0.5, 2e6])
        self.assertEqual([float(row["passes_seconds"]) for row in table("ranks")], [0.25, 0.5])
        self.assertEqual(float(table("kernels")[0]["flops_per_second"]), 2e10)
        self.assertEqual(float(table("memory")[0]["bytes_max"]), 2 ** 21)
        self.assertEqual([row["steps"] for row in table("step_times")], ["12", "8"])
        self.assertEqual([float(row["loss"]) for row in table("progress")], [6.0, 5.9])

    def prediction(self, changes=None, **deck):
        """A plan of 1000 steps of 8 x 16 tokens that take 2 s, and 4 s in another layout."""
        layout = {"tensor": 2, "pipeline": 1, "virtual_pipeline": 1, "data": 1,
                  "sequence": False, "zero": 3, "schedule": "zero_bubble", "micro": 1,
                  "recompute": "none"}
        plans = [{"layout": layout, "step_seconds": 2.0},
                 {"layout": dict(layout, tensor=1, data=2), "step_seconds": 4.0}]
        plan = {"machine": "cluster", "tokens": 128000.0, "days": 2000 / 86400.0, "plans": plans,
                "resolved_deck": DECK % (VALUES | {"dir": "-", "seed": 1} | deck)}
        path = self.root / "plan.json"
        path.write_text(json.dumps(plan | (changes or {})), "utf-8")
        return str(path)

    def test_predictions_are_of_the_same_layout_and_batch(self):
        path = self.prediction()
        self.assertEqual([plan.rate for plan in read_prediction(path)], [64.0, 32.0])
        runs = [self.run_of("a", 1, [1, 50]), self.run_of("b", 2, [1, 80], tensor=2)]
        status, _, said = self.texts(*runs, "--prediction", path, "--csv", str(self.root))
        self.assertEqual((status, said), (0, ""))
        with open(self.root / "set-1.scaling_1_strong.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["tokens_per_second_predicted"] for row in rows], ["", "64.0"])
        self.assertAlmostEqual(float(rows[1]["error_of_prediction"]), -0.2)
        other = [self.run_of("c", 1, [1, 50], batch=4), self.run_of("d", 2, [1, 80], batch=4)]
        status, _, said = self.texts(*other, "--prediction", path)
        self.assertEqual(status, 1)
        self.assertIn("no prediction is of a layout and a batch that was run", said)
        status, _, said = self.texts(*other, "--prediction", runs[0] + "/deck.yaml")
        self.assertEqual(status, 2)
        self.assertIn("is no plan that `trireme plan --json` wrote", said)

    def test_predictions_are_of_the_same_model(self):
        run = self.run_of("a", 2, [1, 80], tensor=2)
        status, _, said = self.texts(run, "--prediction", self.prediction(), "--csv",
                                     str(self.root))
        self.assertEqual((status, said), (0, ""))
        with open(self.root / "set-1.scaling_1_alone.csv", encoding="utf-8", newline="") as file:
            self.assertEqual(next(csv.DictReader(file))["tokens_per_second_predicted"], "64.0")
        status, _, said = self.texts(run, "--prediction", self.prediction(hidden=120))
        self.assertEqual(status, 1)
        self.assertIn("no prediction is of a model that was run: they differ in model.hidden\n",
                      said)
        other = DECK.replace("compute: fp32", "compute: bf16") % (VALUES | {"dir": "-"})
        _, _, said = self.texts(run, "--prediction", self.prediction({"resolved_deck": other}))
        self.assertIn("they differ in precision.compute\n", said)

    def test_plans_that_are_none(self):
        run = self.run_of("a", 2, [1, 80], tensor=2)
        whole = Path(self.prediction()).read_text("utf-8")
        for what, text in damaged_json(whole):
            (self.root / "plan.json").write_text(text, "utf-8")
            with self.subTest(field=what):
                status, _, said = self.texts(run, "--prediction", str(self.root / "plan.json"))
                self.assertIn(status, (0, 1, 2))
                self.assertEqual(said == "", status == 0)
        del (plan := json.loads(whole))["resolved_deck"]
        (self.root / "plan.json").write_text(json.dumps(plan), "utf-8")
        self.assertIn("plan.json' does not say of which model it is (resolved_deck)",
                      self.texts(run, "--prediction", str(self.root / "plan.json"))[2])

    def test_without_matplotlib_there_are_tables_and_one_line_of_advice(self):
        (self.root / "matplotlib.py").write_text("raise ImportError('planted')\n", "utf-8")
        out = self.root / "x.html"
        status, _, said = self.program(
            self.run_of("r", 2, [1, 50], known=efficiency()), "-o", str(out), "--csv",
            str(self.root / "csv"), environment=[("PYTHONPATH", str(self.root))])
        self.assertEqual(status, 2)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("apt-get install python3-matplotlib", said)
        self.assertFalse(out.exists())
        self.assertTrue((self.root / "csv" / "r.identity.csv").exists())


class Pages(Report):
    """Pages and pictures, by matplotlib: tools/bootstrap --tests installs it."""

    def test_a_page_has_every_chart_and_the_numbers_of_the_file(self):
        run = self.run_of("r <1>", 2, [1, 50, 60], began=5, known=efficiency(start=2),
                          pipeline=2)
        trace = self.root / "trace.json"
        trace.write_text(json.dumps(TRACE), "utf-8")
        page, said = self.page_of(run, "--trace", str(trace), "--charts", str(self.root / "p"))
        self.assertEqual(said, "")
        self.assertEqual(page.open, [])
        self.assertEqual(page.charts, dict.fromkeys(CHARTS, 2))  # wide and narrow
        self.assertEqual(len(page.ids), len(set(page.ids)))
        self.assertEqual([row[:2] for row in page.tables["identity"][1:]], [
            ["effective time", "80.0 %"], ["transfer", "90.0 %"], ["serialisation", "90.0 %"],
            ["load balance", "75.0 %"], ["orchestration", "80.0 %"], ["FLOP rate", "60.0 %"],
            ["useful FLOPs", "80.0 %"], ["goodput", "18.7 %"]])
        self.assertEqual(page.tables["losses"][2],
                         ["set up", "15.0 %", "", "", "longer starts & <fewer>"])
        self.assertEqual(page.tables["messages"][1], [
            "pipeline", "320", "977 KiB", "2 s", "1.5 s", "500 ms", "500 kB/s", "2 MB/s",
            "4 MB/s"])
        self.assertEqual(page.tables["sites"][1], [
            "pipeline", "step::activations", "send", "1", "160", "586 KiB"])
        self.assertEqual(tables.stage_memory(efficiency()).rows[1], (1, 2.0 ** 21, 2.0 ** 21))
        self.assertEqual(page.tables["kernels"][1][:6], [
            "products", "24", "6 GFLOP", "191 MiB", "300 ms", "20 GFLOP/s"])
        self.assertEqual(page.tables["memory"][1], ["weights", "2 MiB", "1 MiB", "1.5 MiB",
                                                    "2 MiB"])
        self.assertIn("bubble 20.0 % of the busiest stage's work as measured, 12.5 % as "
                      "simulated, 10.0 % by theory (equal stages, no messages), 11.0 % of kernels "
                      "alone on a network that takes no time", page.said)
        self.assertIn("2 starts: an orange line", page.said)
        text = (self.root / "report.html").read_text("utf-8")
        self.assertIsNone(re.search(r"<script|<link|(?:src|href)=[\"'](?!#)|https?://", text))
        self.assertLess(len(text), 2e6)
        for said in ("0.800 effective time)", ">-15.0 %<", ">16.2 %, rank 1, stage 1<",
                     "<title>products: 20 GFLOP/s at 30 FLOPs a byte</title>",
                     "<title>rank 0 to rank 1: 24.4 KiB a step</title>"):
            self.assertIn(said, text)
        for name in CHARTS:
            svg, png = (self.root / "p" / f"r_1_.{name}.{kind}" for kind in ("svg", "png"))
            ElementTree.parse(svg)
            self.assertTrue(png.read_bytes().startswith(b"\x89PNG"))

    def test_a_matrix_follows_the_groups_of_the_grid(self):
        known = efficiency(8)
        known["run"]["grid"] = {"tensor": 2, "context": 1, "data": 2, "pipeline": 2,
                                "order": ["tensor", "context", "data", "pipeline"]}
        messages = known["device_seconds"]["messages"]  # of the 20 steps
        for axis, amount in (("tensor", 8), ("gradient", 16), ("pipeline", 24)):
            messages[axis] = {"bytes": 20.0 * amount}
        sent = tables.matrix(known)
        self.assertEqual(sent[0], [0, 1, 2, 0, 3, 0, 0, 0])
        self.assertEqual(sent[7], [0, 0, 0, 3, 0, 2, 1, 0])
        self.assertEqual(sum(map(sum, sent)), 48)
        known["steps"] = 0.0
        self.assertEqual(sum(map(sum, tables.matrix(known))), 0)

    def test_tied_messages_are_of_the_stages_that_hold_a_copy(self):
        known = efficiency(4)
        known["device_seconds"]["messages"] = {"tied": {"bytes": 20.0 * 6}}
        known["run"]["tied_stages"] = [0, 3]
        self.assertEqual(tables.matrix(known), [[0, 0, 0, 3], [0] * 4, [0] * 4, [3, 0, 0, 0]])
        del known["run"]["tied_stages"]  # of an older program, which knew them and did not say
        with self.assertRaises(KeyError):
            tables.matrix(known)
        two = efficiency(2)
        two["device_seconds"]["messages"] = {"tied": {"bytes": 20.0 * 6}}
        self.assertEqual(tables.matrix(two), [[0, 3], [3, 0]])

    def test_losses_stand_largest_first(self):
        known = efficiency()
        known["losses"].reverse()
        self.assertEqual([row[0] for row in tables.losses(known).rows], ["passes", "set_up"])

    def test_a_matrix_is_of_steps_and_of_no_validation(self):
        known = efficiency()
        known["this_start"].update(steps=5)  # of 20 that stand
        for site in known["this_start"]["messages"]:
            site["bytes"] *= 11.0  # with those of validations
        self.assertEqual(tables.matrix(known), [[0, 25e3], [25e3, 0]])
        page, _ = self.page_of(self.run_of("r", 2, [1, 50], known=known, pipeline=2))
        self.assertIn("messages of validations are not in it", page.said)
        self.assertIn("rank 0 to rank 1: 24.4 KiB a step",
                      (self.root / "report.html").read_text("utf-8"))
        # Whether the last of three stages sends to the first is not known before the end.
        three = dict(efficiency(3), pipeline=None)
        page, said = self.page_of(self.run_of("p", 3, [1, 50], known=three, pipeline=3))
        self.assertNotIn("matrix", page.charts)

    def test_extremes_of_a_stage_stand_in_the_tip_and_in_the_table(self):
        known = efficiency()
        first, second = known["this_start"]["stages"]
        first["extremes"] = {"passes": {"least": 0.21, "most": 0.28, "rank_most": 5},
                             "world": {"least": 0.01, "most": 0.01, "rank_most": 0}}
        second["extremes"] = None
        page, _ = self.page_of(self.run_of("r", 8, [1, 50], known=known), "--csv",
                               str(self.root))
        text = (self.root / "report.html").read_text("utf-8")
        for said in ("stage 0, passes: mean 250 ms a step, 210 ms to 280 ms, most rank 5<",
                     "stage 0, world: 10 ms a step<", "stage 1, passes: 500 ms a step<"):
            self.assertIn(said, text)
        self.assertIn("which rank has most", page.said)
        self.assertNotIn("least", "".join(page.tables["stages"][0]))  # means alone
        self.assertEqual({len(row) for row in page.tables["stages"]}, {1 + 8})
        with open(self.root / "r.stages.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([[row[f"passes_{what}"] for what in (
            "seconds", "least_seconds", "most_seconds", "rank_most")] for row in rows],
            [["0.25", "0.21", "0.28", "5"], ["0.5", "", "", ""]])
        self.assertNotIn("host_least_seconds", rows[0])
        del first["extremes"]  # of a program that does not write them
        self.assertEqual(len(tables.stages(known).columns), 1 + 8)

    def test_what_was_not_measured_is_said(self):
        page, _ = self.page_of(self.run_of("r", 2, [1, 50], known=efficiency(bandwidth=None)))
        self.assertEqual(sorted(page.charts), sorted(set(CHARTS) - {"timeline"}))
        self.assertIn("The speed of memory was not measured (run.probe: true does)",
                      page.said)
        self.assertIn("There is no timeline here: `trireme train ... --trace FILE`", page.said)

    def test_a_run_killed_midway_is_marked_partial(self):
        run = self.run_of("r", 2, [1, 50], known=partial())
        with open(Path(run) / "train.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 99, "tok')
        page, said = self.page_of(run)
        self.assertIn("partial: the run was killed, or trains still", page.said)
        self.assertIn("train.jsonl: 1 line is torn or unreadable, and left out", page.said)
        self.assertIn("train.jsonl: 1 line is torn", said)
        self.assertEqual(sorted(page.charts), sorted(
            set(CHARTS) - {"timeline", "roofline", "kernels", "memory", "stage_memory"}))

    def test_a_run_that_has_done_no_step_lacks_nothing(self):
        def none(value):
            if isinstance(value, dict):
                return {key: none(field) for key, field in value.items()}
            return [none(field) for field in value] if isinstance(value, list) else \
                0.0 if isinstance(value, float) else value

        known = none(partial())
        known.update(losses=[], step_histogram=[])
        known["identity"]["quantities_flops"]["capacity"] = 1e12
        page, _ = self.page_of(self.run_of("r", 2, [], known=known))
        self.assertNotIn("left out", page.said)
        self.assertEqual(sorted(page.charts), ["pop", "waterfall"])

    def test_old_damaged_and_newer_files_cost_what_is_made_of_them(self):
        damaged = efficiency()
        del damaged["pop"]["load_balance"], damaged["step_histogram"][0]["steps"]
        page, _ = self.page_of(self.run_of("damaged", 2, [1, 50], known=damaged))
        self.assertNotIn("pop", page.charts)
        self.assertIn("the files of the run do not have what it is made of (no field "
                      "'load_balance')", page.said)
        self.assertIn("waterfall", page.charts)
        old = self.run_of("old", 2, [1, 50])
        (Path(old) / "starts.jsonl").unlink()
        page, _ = self.page_of(old)
        self.assertEqual(list(page.charts), ["progress"])
        self.assertIn("there is no efficiency.json (a run of an older program", page.said)
        self.assertIn("starts.jsonl cannot be read", page.said)
        newer = self.run_of("newer", 2, [], known=dict(efficiency(), schema_version="1"))
        torn = self.run_of("torn", 2, [1, 50])
        (Path(torn) / "efficiency.json").write_text('{"schema_version": 1, "comp', "utf-8")
        page, said = self.page_of(newer, torn, status=1)
        self.assertIn("newer': efficiency.json has schema version '1', and this tool reads 1",
                      said)
        self.assertIn("torn': efficiency.json cannot be read", said)
        self.assertIn("newer' has 0 records of steps", page.said)

    def test_it_reads_what_the_program_writes(self):
        root = TOOLS.parent
        said = (root / "src/report/efficiency_schema.hpp").read_text("utf-8")
        self.assertEqual(re.findall(r"kEfficiencySchema = (\d+);", said), [str(SCHEMA_VERSION)])
        page = (root / "docs/efficiency.md").read_text("utf-8")
        self.assertIn(f"\n| `schema_version` | {SCHEMA_VERSION}; ", page)

    def test_status_says_whether_all_could_be_used(self):
        newer = self.run_of("newer", 2, [1, 50], known=dict(efficiency(), schema_version=2))
        self.assertEqual(self.texts(newer)[0], 1)
        self.assertEqual(self.texts(self.run_of("none", 2, [1, 50]))[0], 0)

    def test_a_directory_is_no_page(self):
        place = self.root / "pages"
        place.mkdir()
        status, _, said = self.program(self.run_of("r", 2, [1, 50], known=efficiency()), "-o",
                                       str(place))
        self.assertEqual((status, said),
                         (2, f"report: cannot write '{place}' (Is a directory)\n"))
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), ["pages", "r"])

    def test_traces_that_are_none(self):
        run = self.run_of("r", 2, [1, 50], known=efficiency())
        status, _, said = self.program(run, "--trace", run + "/deck.yaml", "-o",
                                       str(self.root / "x.html"))
        self.assertEqual(status, 2)
        self.assertIn("is no trace that `trireme train --trace` wrote", said)

    def test_several_runs_are_compared_and_others_kept_apart(self):
        slower = copy.deepcopy(efficiency())
        slower["device_seconds"]["parts"].update(passes=15.0, optimizer=1.25)
        runs = [self.run_of("a", 1, [1, 100], known=efficiency(1)),
                self.run_of("b.1", 2, [1, 150], known=slower, pipeline=2),
                self.run_of("b.2", 2, [1, 170], known=slower, pipeline=2),
                self.run_of("c", 2, [1, 70], known=efficiency(), hidden=120)]
        page, _ = self.page_of(*runs)
        self.assertEqual(page.charts["scaling_1_strong"], 2)
        self.assertEqual([row[4:10] for row in page.tables["scaling_1_strong"][1:]], [
            ["100", "100", "100", "100", "1.00", "100.0 %"],
            ["160", "150", "170", "80", "1.60", "80.0 %"]])
        self.assertEqual(page.tables["pop_1_strong"][2], [
            "2", "pipeline 2, 1f1b, micro-batch 1", "48.6 %", "60.8 %", "75.0 %",
            "81.0 %", "90.0 %", "90.0 %", "80.0 %"])
        self.assertIn("Runs whose work differs are not compared: model.hidden", page.said)
        self.assertEqual(list(page.charts).count("layouts_2"), 0)  # one has nothing beside it
        self.assertEqual(page.charts["waterfall"], 2 * 4)
        self.assertEqual([Path(row[0]).name for row in page.tables["runs"][1:]],
                         ["a", "b.1", "b.2", "c"])

    def test_layouts_of_one_number_of_ranks_stand_side_by_side(self):
        page, _ = self.page_of(self.run_of("a", 2, [1, 100]),
                               self.run_of("b", 2, [1, 150], pipeline=2))
        self.assertEqual(page.charts["layouts_1"], 2)
        self.assertEqual([row[1] for row in page.tables["scaling_1_alone"][1:]], [
            "pipeline 2, 1f1b, micro-batch 1", "data 2, ZeRO 1, micro-batch 1"])

    def test_many_runs_are_shown_by_typical_ones(self):
        runs = [self.run_of(f"r{i}", ranks, [1, rate], known=efficiency(1))
                for i, (ranks, rate) in enumerate([(1, 90), (1, 100), (1, 110), (2, 150),
                                                   (2, 160), (2, 170), (2, 140)])]
        page, _ = self.page_of(*runs)
        self.assertEqual(page.charts["waterfall"], 2 * 2)
        self.assertNotIn("layouts_1", page.charts)
        self.assertIn("2 of 7 runs are shown one by one", page.said)
        self.assertEqual(read_run(runs[1]).notes, [])


# In the place of trireme and mpiexec: a run that is as fast as it has ranks, and fails on three.
PROGRAM = """#!/usr/bin/env bash
while (($# > 0)); do
  [[ $1 != --run-dir ]] || run=$2
  [[ $1 != batch.global=* ]] || batch=${1#*=}
  shift
done
((RANKS != 3)) || exit 2
mkdir -p "$run/checkpoints"
echo "$run" >>order.txt
echo '{"ranks": '$RANKS'}' >"$run/environment.json"
sed "s/global: .*/global: ${batch:-8}/" deck >"$run/deck.yaml"
for step in 5 10; do
  echo '{"step": '$step', "loss": 3, "tokens_per_second": '$((100 * RANKS))'}'
done >"$run/train.jsonl"
"""
LAUNCHER = """#!/usr/bin/env bash
[[ $1 == -n ]] && RANKS=$2 exec "${@:3}"
"""


class Sweep(Report):
    """tools/scaling, which shares slurm/sweep.sh with slurm/scaling.sbatch."""

    def sweep(self, *arguments):
        for name, text in (("trireme", PROGRAM), ("mpiexec", LAUNCHER)):
            (self.root / name).write_text(text, "utf-8")
            (self.root / name).chmod(0o755)
        (self.root / "deck").write_text(DECK % (VALUES | {"dir": "-"}), "utf-8")
        (self.root / "my.yaml").write_text("model: {}\n", "utf-8")
        done = subprocess.run(
            [TOOLS / "scaling", *arguments], check=False, capture_output=True, text=True,
            cwd=self.root, timeout=240,
            env=os.environ | {"TRIREME": str(self.root / "trireme"),
                              "TRIREME_MPIEXEC": str(self.root / "mpiexec")})
        return done.returncode, done.stdout, done.stderr

    def test_every_run_is_repeated_and_the_report_made(self):
        status, said, errors = self.sweep("my.yaml", "--ranks", "1 2", "--out", "out")
        self.assertEqual(status, 0, errors)
        self.assertRegex(said, r" 2 +200.0 +100.0 +2.00 +100.0%  out/my-2.1 and 2 more")
        order = (self.root / "order.txt").read_text("utf-8").split()
        wanted = {f"out/my-{ranks}.{repeat}" for ranks in (1, 2) for repeat in (1, 2, 3)}
        self.assertEqual((set(order), len(order)), (wanted, 6))
        self.assertEqual([name[-1] for name in order], list("112233"))
        self.assertEqual(list((self.root / "out").glob("*/checkpoints")), [])
        self.assertIn("Strong scaling", (self.root / "out/report.html").read_text("utf-8"))
        self.assertTrue((self.root / "out/tables/runs.runs.csv").exists())
        status, _, errors = self.sweep("my.yaml", "--out", "out")
        self.assertEqual((status, errors),
                         (2, "scaling: 'out' is there already; --out names another\n"))

    def test_what_fails_is_left_out_and_a_batch_can_grow(self):
        status, said, errors = self.sweep("my.yaml", "--ranks", "1 2 3", "--repeats", "1",
                                          "--batch-per-rank", "4", "--out", "out")
        self.assertEqual(status, 1)
        self.assertIn("my.yaml on 3 ranks: status 2, left out of the table", errors)
        self.assertIn("weak scaling: a batch that grows with the ranks, 4 for each", said)
        self.assertRegex(said, r" 2 +200.0 +100.0 +2.00 +100.0%  out/my-2\n")
        status, _, errors = self.sweep("my.yaml", "--ranks", "3", "--out", "none")
        self.assertEqual(status, 1)
        self.assertIn("no run was measured: there is no table\n", errors)

    def test_usage(self):
        for arguments in ([], ["no.yaml"], ["my.yaml", "--ranks", "x"], ["my.yaml", "--ranks"],
                          ["my.yaml", "--helf", "1"]):
            status, _, errors = self.sweep(*arguments)
            self.assertEqual((status, errors[:9], errors.count("\n")), (2, "scaling: ", 1))
        self.assertIn("tools/scaling my.yaml", self.sweep("--help")[1])


if __name__ == "__main__":
    unittest.main()
