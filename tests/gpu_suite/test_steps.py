"""Steps within a limit of time: what is kept, killed, left out and gone on with."""
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import gpu_modules  # noqa: F401  (finds perf/gpu)
import parts
import steps
from steps import Budget, Results, Step


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def python(text):
    return (sys.executable, "-c", text)


RESULT = "print('{\"kind\": \"measured\", \"value\": %d}', flush=True)"


class Suite(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.results = Results(self.directory / "results.jsonl", "truth")
        self.said, self.log = [], io.StringIO()

    def run_steps(self, *planned, missing=None, budget=None, again=()):
        return steps.run_steps(planned, self.results, dict(os.environ), missing or {}, self.log,
                               budget or Budget(60), again, self.said.append)

    def of(self, name, kind):
        return [record for record in self.results.records()
                if record["step"] == name and record["kind"] == kind]

    def status(self, name):
        return [record["status"] for record in self.of(name, "end")]


class Ends(Suite):
    def test_results_are_kept_and_the_rest_is_logged(self):
        status = self.run_steps(Step("a", 30, python(RESULT % 7 + "; print('talk'); print('{no')")))
        self.assertEqual(status, 0)
        self.assertEqual([record["value"] for record in self.of("a", "measured")], [7])
        self.assertEqual(self.status("a"), ["done"])
        self.assertEqual(self.log.getvalue(), "talk\n{no\n")

    def test_a_failure_has_its_last_words_and_later_steps_run(self):
        status = self.run_steps(Step("bad", 30, python("print('why'); raise SystemExit(3)")),
                                Step("good", 30, python(RESULT % 1)))
        self.assertEqual(status, 1)
        (end,) = self.of("bad", "end")
        self.assertEqual((end["status"], end["returned"], end["tail"]), ("failed", 3, ["why"]))
        self.assertEqual(self.status("good"), ["done"])

    def test_a_program_that_is_not_there_is_a_failure(self):
        self.assertEqual(self.run_steps(Step("a", 30, ("/nowhere/program",)),
                                        Step("b", 30, python("pass"))), 1)
        self.assertEqual(self.status("a"), ["failed"])
        self.assertEqual(self.status("b"), ["done"])

    def test_a_step_that_is_late_is_killed_and_what_it_found_is_kept(self):
        begin = time.monotonic()
        status = self.run_steps(
            Step("slow", 1.0, python(RESULT % 5 + "; import time; time.sleep(60)")),
            Step("next", 30, python("pass")))
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(status, 1)
        self.assertEqual(self.status("slow"), ["killed"])
        self.assertEqual([record["value"] for record in self.of("slow", "measured")], [5])
        self.assertEqual(self.status("next"), ["done"])

    def test_what_a_step_started_is_killed_with_it(self):
        pid = self.directory / "pid"
        text = (f"import subprocess, pathlib; p = subprocess.Popen(['sleep', '600']); "
                f"pathlib.Path({str(pid)!r}).write_text(str(p.pid)); p.wait()")
        self.run_steps(Step("parent", 1.5, python(text)))
        self.assertEqual(self.status("parent"), ["killed"])
        self.assert_gone(int(pid.read_text()))

    def test_a_step_that_leaves_a_process_behind_is_over_all_the_same(self):
        pid = self.directory / "pid"
        text = (f"import subprocess, pathlib; p = subprocess.Popen(['sleep', '600']); "
                f"pathlib.Path({str(pid)!r}).write_text(str(p.pid))")
        self.assertEqual(self.run_steps(Step("parent", 30, python(text))), 0)
        self.assert_gone(int(pid.read_text()))

    def assert_gone(self, pid):
        for _ in range(100):
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except FileNotFoundError:
                return
            if state == "Z":
                return
            time.sleep(0.05)
        self.fail(f"process {pid} still runs")

    def test_a_last_line_without_an_end_is_a_result(self):
        self.run_steps(Step("a", 30, python(
            "import sys; sys.stdout.write('{\"kind\": \"measured\", \"value\": 3}')")))
        self.assertEqual(len(self.of("a", "measured")), 1)


class Budgets(Suite):
    def test_what_the_time_does_not_reach_is_left_for_the_next_call(self):
        clock = Clock()
        budget = Budget(50, clock)
        planned = (Step("a", 40, python("pass")), Step("b", 20, python("pass")))
        clock.now += 35
        self.assertEqual(self.run_steps(*planned, budget=budget), 0)
        self.assertEqual(self.status("a"), [])
        self.assertIn("the next call goes on here", self.said[-1])
        self.assertEqual(self.run_steps(*planned), 0)
        self.assertEqual((self.status("a"), self.status("b")), (["done"], ["done"]))

    def test_no_step_is_run_twice(self):
        self.run_steps(Step("a", 30, python(RESULT % 1)))
        self.run_steps(Step("a", 30, python(RESULT % 2)), Step("b", 30, python("pass")))
        self.assertEqual([record["value"] for record in self.of("a", "measured")], [1])
        self.assertEqual(self.said[1:3], ["a: done", "a: done before"])

    def test_a_step_that_was_cut_off_is_run_again(self):
        self.results.append("a", {"kind": "begin"})
        self.run_steps(Step("a", 30, python("pass")))
        self.assertEqual(self.status("a"), ["done"])

    def test_a_step_that_was_killed_is_run_again_by_later_calls_and_not_for_ever(self):
        slow = Step("a", 0.5, python("import time; time.sleep(60)"))
        for count in range(1, steps.MOST_RUNS + 1):
            self.run_steps(slow)
            self.assertEqual(self.status("a"), ["killed"] * count)
        self.assertEqual(self.run_steps(slow), 1)
        self.assertEqual(self.said[-1], "a: killed before")
        self.assertEqual(self.status("a"), ["killed"] * steps.MOST_RUNS)

    def test_a_step_that_was_killed_may_end_well_later(self):
        self.run_steps(Step("a", 0.5, python("import time; time.sleep(60)")))
        self.assertEqual(self.run_steps(Step("a", 30, python("pass"))), 0)
        self.assertEqual(self.run_steps(Step("a", 30, python("pass"))), 0)
        self.assertEqual(self.status("a"), ["killed", "done"])

    def test_a_process_of_somebody_else_is_left_alone(self):
        other = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.results.append("a", {"kind": "begin", "process": other.pid})
        self.run_steps(Step("a", 30, python("pass")))
        self.assertIsNone(other.poll())

    def test_a_failure_is_not_forgotten_by_a_later_call(self):
        self.run_steps(Step("a", 30, python("raise SystemExit(1)")))
        self.assertEqual(self.run_steps(Step("a", 30, python("pass"))), 1)
        self.assertEqual(self.run_steps(Step("a", 30, python("pass")), again=("a",)), 0)

    def test_what_is_not_here_is_left_out_until_it_is(self):
        one = Step("a", 30, python("pass"), ("torch",))
        self.assertEqual(self.run_steps(one, missing={"torch": "no PyTorch"}), 0)
        self.assertEqual(self.status("a"), ["missing"])
        self.assertIn("no PyTorch", self.said[-1])
        self.assertEqual(self.run_steps(one), 0)
        self.assertEqual(self.status("a"), ["missing", "done"])

    def test_parts_share_a_file_and_not_their_steps(self):
        self.run_steps(Step("peaks", 30, python("pass")))
        other = Results(self.results.path, "tune")
        self.assertEqual(other.ended(), {})
        self.assertEqual(len(steps.read_records(self.results.path)), 2)

    def test_a_line_that_was_cut_off_is_none(self):
        self.results.append("a", {"kind": "measured", "value": 1})
        with open(self.results.path, "a", encoding="utf-8") as file:
            file.write('{"part": "truth", "step": "a", "val')
        self.assertEqual(len(self.results.records()), 1)
        self.results.append("a", {"kind": "measured", "value": 2})
        self.assertEqual(len(self.results.records()), 2)
        self.assertEqual(json.loads(self.results.path.read_text().splitlines()[0])["value"], 1)

    def test_truth_begins_with_what_changes_most(self):
        names = [step.name for step in parts.truth("results.jsonl")]
        self.assertEqual(names[:7], ["versions", "peaks", "start", "tests of attention", "masks",
                                     "twice", "memcheck"])
        # cuDNN's attention is set beside the profile's own.
        self.assertLess(names.index("profile"), names.index("attention of cuDNN"))
        self.assertIn("racecheck of generation", names)
        self.assertIn("profile with dropout",
                      [step.name for step in parts.dropout("results.jsonl")])

    def test_every_part_has_time_for_all_of_its_steps(self):
        for name, planned in parts.PARTS.items():
            with self.subTest(part=name):
                listed = planned("results.jsonl")
                self.assertTrue(steps.limits_fit(listed),
                                sum(step.limit for step in listed))
                self.assertEqual(len({step.name for step in listed}), len(listed))


if __name__ == "__main__":
    unittest.main()
