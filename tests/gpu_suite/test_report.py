"""Predicted and measured, the worst gap first."""
import unittest

import gpu_modules  # noqa: F401  (finds perf/gpu)
import report

PREDICTIONS = {"H200": {"gpt2-124m, dropout 0": {"us_per_token": 2.0, "kernels": [
    {"kernel": "attention_backward", "group": "attention", "us_per_token": 0.4},
    {"kernel": "forward 1 x 2 x 3", "group": "products", "us_per_token": 0.5},
    {"kernel": "input gradient 1 x 2 x 3", "group": "head", "us_per_token": 0.3},
    {"kernel": "adamw", "group": "optimizer", "us_per_token": 0.02}]}}}
CASE = "gpt2-124m, dropout 0"


def measured(what, value, case=CASE):
    return {"part": "truth", "step": "profile", "kind": "measured", "case": case, "what": what,
            "us_per_token": value}


GPU = {"part": "truth", "step": "versions", "kind": "facts", "gpu": {"name": "NVIDIA H200"}}
RECORDS = [GPU, measured("step", 2.2), measured("attention_backward", 0.8),
           measured("all products", 0.4), measured("adamw", 0.021), measured("unheard of", 1.0)]


def end(step, status, **more):
    return {"part": "truth", "step": step, "kind": "end", "status": status, "seconds": 3.0, **more}


class Gaps(unittest.TestCase):
    def test_the_worst_comes_first_and_what_nobody_predicted_last(self):
        found = report.gaps(RECORDS, PREDICTIONS)
        self.assertEqual([row[1] for row in found], ["attention_backward", "all products", "step",
                                                     "adamw", "unheard of"])
        self.assertAlmostEqual(found[0][4], 1.0)
        self.assertAlmostEqual(found[1][4], -0.5)  # of 0.5 and 0.3 together
        self.assertIsNone(found[-1][4])

    def test_several_measurements_count_by_their_median(self):
        records = [GPU, *(measured("adamw", value) for value in (0.04, 0.02, 9.0))]
        self.assertAlmostEqual(report.gaps(records, PREDICTIONS)[0][3], 0.04)

    def test_a_product_by_another_program_is_that_product(self):
        records = [GPU, measured("torch: forward 1 x 2 x 3", 0.55)]
        self.assertAlmostEqual(report.gaps(records, PREDICTIONS)[0][4], 0.1)

    def test_of_another_gpu_there_are_no_predictions(self):
        records = [{**GPU, "gpu": {"name": "NVIDIA T4"}}, measured("step", 2.2)]
        self.assertEqual([row[2] for row in report.gaps(records, PREDICTIONS)], [None])

    def test_of_a_slice_and_of_a_name_that_is_longer_there_are_no_predictions(self):
        for name in ("NVIDIA H200 MIG 1g.18gb", "NVIDIA GH200 480GB"):
            records = [{**GPU, "gpu": {"name": name}}, measured("step", 2.2)]
            self.assertEqual([row[2] for row in report.gaps(records, PREDICTIONS)], [None])

    def test_peaks_are_beside_what_was_assumed(self):
        records = [GPU, {"part": "truth", "step": "peaks", "kind": "peak", "what": "gemm_peak",
                         "value": 600e12}]
        row = report.gaps(records, PREDICTIONS)[0]
        self.assertEqual(row[:2], ("peak", "gemm_peak"))
        self.assertLess(row[4], 0)


class Text(unittest.TestCase):
    def test_it_names_the_gpu_the_findings_and_how_steps_ended(self):
        records = [*RECORDS, end("masks", "done"),
                   {"part": "truth", "step": "masks", "kind": "finding", "what": "masks are equal",
                    "holds": False, "value": "1 of 6 differs"},
                   end("twice", "killed", tail=["last words"]),
                   {"part": "tune", "step": "rows", "kind": "begin"}]
        text = report.text_of(records, PREDICTIONS)
        self.assertIn("GPU: NVIDIA H200", text)
        self.assertRegex(text, r"attention_backward +0.4 +0.8 +\+100 %")
        self.assertRegex(text, r"masks are equal +1 of 6 differs NO")
        self.assertRegex(text, r"twice +killed +3 s\n +last words")
        self.assertRegex(text, r"tune +rows +cut off")

    def test_what_does_not_hold_is_a_failure(self):
        finding = {"part": "truth", "step": "a", "kind": "finding", "what": "x"}
        self.assertFalse(report.failed([end("a", "done"), {**finding, "holds": True}]))
        self.assertFalse(report.failed([end("a", "done"), {**finding, "holds": None}]))
        self.assertFalse(report.failed([end("a", "missing")]))
        self.assertTrue(report.failed([end("a", "done"), {**finding, "holds": False}]))
        self.assertTrue(report.failed([end("a", "killed")]))
        self.assertFalse(report.failed([end("a", "killed"), end("a", "done")]))
        again = [{**finding, "holds": False}, end("a", "done"),
                 {"part": "truth", "step": "a", "kind": "begin"}, {**finding, "holds": True},
                 end("a", "done")]
        self.assertFalse(report.failed(again))
        self.assertEqual(len(list(report.finding_lines(again))), 1)

    def test_the_committed_predictions_can_be_read(self):
        cases = report.read_predictions()["H100-SXM"]
        self.assertGreater(report.predicted_value(cases, CASE, "step"), 1.0)
        self.assertGreater(report.predicted_value(cases, CASE, "all products"), 0.5)


if __name__ == "__main__":
    unittest.main()
