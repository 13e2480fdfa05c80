# tests/tools/test_scaling_report.py — slurm/scaling_report: the numbers of its table, and
# what is no run.
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


class ScalingReport(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)

    def run_of(self, name, ranks, rates):
        directory = self.root / name
        directory.mkdir()
        (directory / "environment.json").write_text(json.dumps({"ranks": ranks}), "utf-8")
        records = [{"step": 5 * (i + 1), "tokens_per_second": rate}
                   for i, rate in enumerate(rates)]
        records.append({"validation": {"step": 20, "loss": 1.0}})
        text = "\n".join(json.dumps(record) for record in records)
        (directory / "train.jsonl").write_text(text, "utf-8")
        return str(directory)

    def report(self, *arguments):
        """(status, rows of words, what was said)"""
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            status = scaling_report.main(list(arguments))
        return status, [line.split() for line in out.getvalue().splitlines()], said.getvalue()

    def test_efficiency_is_of_the_fewest_ranks(self):
        status, rows, said = self.report(
            self.run_of("big-16", 16, [1, 9000, 9600, 9700]),  # the median of the last three
            self.run_of("big-4", 4, [1, 3000, 3000, 3000]),
            self.run_of("a-2", 2, [100, 50]))
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(rows[0], "deck ranks tokens/s per rank speed-up efficiency".split())
        self.assertEqual(rows[1:], [["a", "2", "50.0", "25.0", "1.00", "100.0%"],
                                    ["big", "4", "3000.0", "750.0", "1.00", "100.0%"],
                                    ["big", "16", "9600.0", "600.0", "3.20", "80.0%"]])

    def test_what_is_no_run_is_said_and_left_out(self):
        empty = self.root / "empty"
        empty.mkdir()
        status, rows, said = self.report(str(empty), self.run_of("short-1", 1, [5]),
                                         self.run_of("good-1", 1, [5, 6]))
        self.assertEqual(status, 1)
        self.assertEqual([row[0] for row in rows[1:]], ["good"])
        self.assertIn(f"'{empty}' is no run of trireme train", said)
        self.assertIn("short-1' has 1 records of steps; 2 are needed", said)

    def test_a_pattern_that_the_shell_found_nothing_for(self):
        status, rows, said = self.report(str(self.root / "scaling-77" / "*"))
        self.assertEqual((status, rows), (1, []))
        self.assertIn("scaling-77/*'", said)
        self.assertIn("there is no directory", said)

    def test_usage(self):
        for arguments in ([], ["--help"]):
            status, rows, said = self.report(*arguments)
            self.assertEqual((status, rows), (2, []))
            self.assertIn("usage: scaling_report RUN_DIRECTORY...", said)


if __name__ == "__main__":
    unittest.main()
