# tests/tools/test_planner_runs.py — perf/planner_runs.py: the page that it makes of runs says which
# way predictions are wrong, of which program, and with which machine file.
import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

PERF = Path(__file__).resolve().parents[2] / "perf"
sys.path.insert(0, str(PERF))
import planner_runs  # noqa: E402

MACHINE = "name: %s\ndevice:\n  bandwidth: 1e9\n"


def case(name, seconds, predicted):
    return {"model": "wide", "compute": "fp32", "name": name, "seconds": seconds,
            "predicted": predicted, "parts": {}, "bytes_taken": 100e6, "bytes_planned": 99e6,
            "keys": {}}


class PlannerRuns(unittest.TestCase):
    def page_of(self, cases, machines):
        facts = {"cpu": "X", "rounds": 3, "steps": 4, "load_average": [0.5], "machines": machines,
                 "commit": "0123456789abcdef with changes", "cases": cases}
        with tempfile.TemporaryDirectory() as scratch:
            runs, page = Path(scratch) / "runs.json", Path(scratch) / "page.md"
            runs.write_text(json.dumps(facts), "utf-8")
            words = ["planner_runs.py", "--show", str(runs), "--page", str(page)]
            with unittest.mock.patch.object(sys, "argv", words), \
                    unittest.mock.patch("builtins.print"):
                planner_runs.main()
            return page.read_text("utf-8")

    def test_errors_have_signs_and_runs_a_program_and_a_machine(self):
        page = self.page_of([case("data", [1.0, 1.0, 1.2], [0.9, 0.94]),
                             case("tensor", [1.0], [0.96]), case("pipeline", [2.0], [2.02])],
                            [MACHINE % "before", MACHINE % "after"])
        self.assertIn("Errors: 4.3 % in the mean (7 are wanted), 8.0 % at most (15)", page)
        self.assertIn("With their signs -3.7 % in the mean: 2 of 3 are predicted to be faster "
                      "than they are.\n", page)
        self.assertIn("commit 01234567 with changes.", page)
        for text in ("made there before and after", MACHINE % "before", MACHINE % "after"):
            self.assertIn(text, page)

    def test_one_machine_file_may_be_given(self):
        page = self.page_of([case("data", [1.0], [1.0])], [MACHINE % "mine"])
        self.assertIn("predicts with\nthe machine file below, beside the median step.", page)


if __name__ == "__main__":
    unittest.main()
