# tests/tools/test_scaling_report.py — slurm/scaling_report: which runs it compares, the numbers
# of its tables, and what is no run.
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "slurm" / "scaling_report"
loader = importlib.machinery.SourceFileLoader("scaling_report", str(TOOL))
scaling_report = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("scaling_report", loader))
loader.exec_module(scaling_report)


# As a run writes it.
DECK = """# Resolved deck: every default is written out.
model:
  kind: gpt
  layers: 2
  hidden: %(hidden)s
data:
  train: [{path: "a: b.h5", weight: 1}, {path: c.h5, weight: 2}]
  seed: %(seed)s
batch:
  micro: 1
  global: %(batch)s
  ramp_up: none
parallel:
  tensor: %(tensor)s
precision:
  compute: fp32
  loss_scale:
    initial: 65536
optimizer:
  kind: adamw
  clip_norm: 1
run:
  steps: 20
  dir: %(dir)s
"""


class ScalingReport(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)

    def run_of(self, name, ranks, rates, began=None, **deck):
        directory = self.root / name
        directory.mkdir()
        (directory / "environment.json").write_text(json.dumps({"ranks": ranks}), "utf-8")
        values = {"hidden": 60, "batch": 8, "tensor": 1, "dir": name, "seed": 1234}
        (directory / "deck.yaml").write_text(DECK % (values | deck), "utf-8")
        records = [{"step": 5 * (i + 1), "tokens_per_second": rate}
                   for i, rate in enumerate(rates)]
        records.append({"validation": {"step": 20, "loss": 1.0}})
        text = "\n".join(json.dumps(record) for record in records)
        (directory / "train.jsonl").write_text(text + '\n{"step": 99, "tok', "utf-8")
        if began is not None:
            events = [{"event": "began", "step": step} for step in (0, began)]
            (directory / "starts.jsonl").write_text(
                "\n".join(json.dumps(event) for event in events), "utf-8")
        return str(directory)

    def report(self, *arguments):
        """(status, tables as lists of lines, what was said)"""
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            status = scaling_report.main(list(arguments))
        tables = [table.split("\n") for table in out.getvalue().strip().split("\n\n")]
        return status, tables, said.getvalue()

    def rows(self, table):
        """{directory's name: the words before it} of the lines under a table's head."""
        head = next(i for i, line in enumerate(table) if line.split()[:1] == ["ranks"])
        self.assertEqual(" ".join(table[head].split()),
                         "ranks tokens/s per rank speed-up efficiency run")
        rows = [line.rsplit(maxsplit=1) for line in table[head + 1:]]
        return {Path(name).name: words.split() for words, name in rows}

    def test_names_of_directories_say_nothing(self):
        status, tables, said = self.report(
            self.run_of("sc2", 2, [1, 150, 160, 155], tensor=2),  # median of the last three
            self.run_of("sc1", 1, [1, 100, 100]))
        self.assertEqual((status, said, len(tables)), (0, "", 1))
        self.assertEqual(self.rows(tables[0]), {
            "sc1": ["1", "100.0", "100.0", "1.00", "100.0%"],
            "sc2": ["2", "155.0", "77.5", "1.55", "77.5%"]})
        self.assertIn("strong scaling: a batch of 8 on every number of ranks", tables[0])
        self.assertIn("  differ in parallel.tensor: 1, 2", tables[0])
        self.assertNotIn("run.dir", "".join(tables[0]))

    def test_other_work_is_not_compared(self):
        status, tables, _ = self.report(
            self.run_of("a-1", 1, [1, 50]), self.run_of("a-2", 2, [1, 80]),
            self.run_of("b-2", 2, [1, 70], hidden=120))
        self.assertEqual(status, 0)
        self.assertEqual(list(self.rows(tables[0])), ["a-1", "a-2"])
        self.assertEqual(self.rows(tables[1]), {"b-2": ["2", "70.0", "35.0", "1.00", "100.0%"]})
        self.assertIn("no other number of ranks", tables[1][1])
        self.assertEqual(tables[2], ["Runs whose work differs are not compared: model.hidden"])

    def test_batches_that_grow_are_weak_scaling(self):
        status, tables, _ = self.report(
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
        _, tables, _ = self.report(
            self.run_of("one", 1, [1, 50]), self.run_of("again", 1, [1, 60], seed=7))
        self.assertEqual(len(tables), 1)
        self.assertIn("  differ in data.seed: 7, 1234", tables[0])  # in order of the rows
        self.assertEqual(list(self.rows(tables[0])), ["again", "one"])

    def test_a_run_taken_up_again_counts_by_its_last_start(self):
        _, tables, _ = self.report(self.run_of("a", 2, [9000, 9000, 9000, 5, 70, 80], began=15))
        self.assertEqual(self.rows(tables[0])["a"][1], "75.0")

    def test_what_is_no_run_is_said_and_left_out(self):
        empty = self.root / "empty"
        empty.mkdir()
        broken = self.run_of("broken", 1, [5, 6])
        (Path(broken) / "deck.yaml").write_text("model:\n      layers: 2\n", "utf-8")
        status, tables, said = self.report(
            str(empty), self.run_of("short", 1, [5]), self.run_of("good", 1, [5, 6]), broken)
        self.assertEqual(status, 1)
        self.assertEqual(list(self.rows(tables[0])), ["good"])
        self.assertIn(f"'{empty}' is no run of trireme train", said)
        self.assertIn("short' has 1 record of a step of its last start; 2 are needed", said)
        self.assertIn("deck.yaml:2: '      layers: 2' is no line of a resolved deck", said)

    def test_a_pattern_that_fits_nothing(self):
        pattern = str(self.root / "scaling-77" / "*")
        status, tables, said = self.report(pattern)
        self.assertEqual((status, tables), (2, [[""]]))
        self.assertIn(f"there is no directory '{pattern}': the pattern fits nothing", said)
        self.assertIn("no run to report on", said)
        self.assertIn("expected that of a run", self.report(str(self.root / "no"))[2])

    def test_usage(self):
        for arguments in ([], ["--helf"]):
            status, _, said = self.report(*arguments)
            self.assertEqual(status, 2)
            self.assertIn("usage: scaling_report RUN_DIRECTORY...", said)
        status, tables, said = self.report("--help")
        self.assertEqual((status, said), (0, ""))
        self.assertIn("slurm/scaling_report runs/a runs/b", "".join(tables[1]))


if __name__ == "__main__":
    unittest.main()
