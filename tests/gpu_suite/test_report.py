"""Predicted and measured, the worst gap first; and what was predicted beforehand."""
import datetime
import json
import statistics
import unittest
from unittest import mock

import gpu_modules
import history
import kernel_models
import machines
import report
import single_kernels
import steps

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

    def test_kernels_alone_are_beside_what_is_predicted_of_a_call(self):
        gpu = {**GPU, "gpu": {"name": "NVIDIA H100 80GB HBM3"}}
        machine = machines.MACHINES["H100-SXM"]
        attention = {"part": "tune", "step": "attention", "kind": "attention", "by": "trireme",
                     "shape": [16, 12, 1024, 64], "forward": 1e-4, "both": 1e-3}
        norm = {"part": "tune", "step": "rows", "kind": "benchmark", "GB/s": 2000.0,
                "name": "layer_norm_forward<bf16>/65536/real_time", "seconds": 2e-4}
        small = {**norm, "seconds": 1e-5}
        theirs = {**attention, "by": "torch flash"}
        found = {row[:2]: row[2:] for row in report.gaps([gpu, attention, norm, small, theirs],
                                                         {})}
        self.assertEqual(len(found), 3)
        case = report.read_predictions()["H100-SXM"][CASE]
        in_a_step = sum(report.predicted_value({CASE: case}, CASE, f"attention_{one}")
                        for one in ("forward", "backward", "backward[delta]"))
        predicted, measured, gap = found["attention, both", "16 x 12 x 1024 x 64"]
        # 48 calls for 65536 tokens.
        self.assertAlmostEqual(predicted / (in_a_step * 65536 / 48), 1.0, delta=1e-3)
        self.assertAlmostEqual(measured, 1e3)
        self.assertAlmostEqual(gap, 1e3 / predicted - 1)
        predicted, measured, _ = found["a kernel over rows", norm["name"]]
        self.assertAlmostEqual(predicted, 1e6 * kernel_models.row_seconds(
            machine, "layer_norm_forward", 1, 400e6))
        self.assertAlmostEqual(measured, 200.0)

    def test_a_head_size_that_no_kernel_has_is_not_predicted(self):
        self.assertEqual(single_kernels.attention_seconds(machines.MACHINES["H200"],
                                                          (1, 1, 1024, 72)), {})

    def test_tokens_of_texts_are_predicted(self):
        gpu = {**GPU, "gpu": {"name": "NVIDIA H200"}}
        records = [gpu, measured("token", 500.0, "decoding gpt2-124m")]
        predicted = report.read_predictions()
        (row,) = report.gaps(records, predicted)
        self.assertEqual(row[2], predicted["H200"]["decoding gpt2-124m"]["us_per_token"])

    def test_peaks_are_beside_what_was_assumed(self):
        records = [GPU, {"part": "truth", "step": "peaks", "kind": "peak", "what": "gemm_peak",
                         "value": 600e12}]
        row = report.gaps(records, PREDICTIONS)[0]
        self.assertEqual(row[:2], ("peak", "gemm_peak"))
        self.assertLess(row[4], 0)


def call(part, **more):
    return {"part": part, "step": "surroundings", "kind": "facts", **more}


class Age(unittest.TestCase):
    DAY = 86400

    def lines(self, changed, days=(10, 11)):
        records = [{**measured("step", 2.2), "time": self.DAY * day} for day in days]
        # How a step ended says nothing of when it measured.
        records.append({**end("profile", "done"), "time": 0})
        with mock.patch.object(history, "predictions_changed", lambda: changed):
            return "\n".join(report.age_lines(records))

    def test_predictions_that_are_newer_are_said_to_be(self):
        self.assertEqual(self.lines(self.DAY * 9), "Measured: 1970-01-11 to 1970-01-12")
        # Of some of the results they are newer.
        self.assertIn("The predictions are newer (1970-01-11)", self.lines(self.DAY * 10.5))
        self.assertIn("Nobody knows", self.lines(None))
        self.assertEqual(self.lines(0, days=[10]), "Measured: 1970-01-11")

    def of_commits(self, records, kernels):
        with mock.patch.object(history, "kernels_changed",
                               lambda commit, since: [f"{commit} {since} {name}"
                                                      for name in kernels]):
            return "\n".join(report.commit_lines(records))

    def test_kernels_that_were_changed_since_are_named(self):
        records = [call("truth", commit="abc"), {**measured("step", 2.2), "time": 5},
                   {**measured("step", 2.2), "time": 7}]
        part = records[1]["part"]
        records[0]["part"] = part
        self.assertIn("changed since: abc 7 a.cu, abc 7 b.cu: what they",
                      self.of_commits(records, ["a.cu", "b.cu"]))
        self.assertIn(" and 8 others: what they", self.of_commits(records, map(str, range(20))))
        self.assertEqual(self.of_commits(records, []), f"Of commit abc: {part}")

    def test_results_without_a_time_have_no_age(self):
        self.assertEqual(list(report.age_lines(RECORDS)), [])

    def test_each_call_is_of_the_commit_that_it_names(self):
        finding = {"part": "truth", "step": "a", "kind": "finding", "what": "x", "holds": True}
        of_tune = {**finding, "part": "tune"}
        self.assertEqual(list(report.commit_lines([finding, of_tune])),
                         ["Of an unnamed commit: truth, tune"])
        records = [call("truth"), call("tune", commit="abc"), of_tune, finding,
                   call("truth", commit="def"), finding, of_tune, call("ratio", commit="0")]
        self.assertEqual(list(report.commit_lines(records)),
                         ["Of commit abc: tune", "Of an unnamed commit: truth",
                          "Of commit def: truth"])


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

    def test_shares_are_beside_what_was_predicted_of_them(self):
        cases = {CASE: {"share_of_peak": 0.5512},
                 "decoding gpt2-124m": {"share_of_weights": 0.2}}
        for what, said in ((f"{CASE}: share of the measured GEMM peak", "0.4 (predicted 0.551) NO"),
                           ("gpt2-124m: decoding, share of reading the weights",
                            "0.4 (predicted 0.2) NO"),
                           (f"{CASE}: times as fast as compiled PyTorch", "0.4 NO")):
            record = {"part": "ratio", "step": "a", "kind": "finding", "what": what,
                      "holds": False, "value": 0.4}
            (line,) = report.finding_lines([record], cases)
            self.assertTrue(line.endswith(f" {said}"), line)

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
        self.assertEqual(len(list(report.finding_lines(again, {}))), 1)

    def test_a_variant_that_is_gone_says_nothing_of_the_code_as_it_is(self):
        path = gpu_modules.ROOT / "perf" / "gpu" / "measured" / "h100_28_november.jsonl"
        text = report.text_of(steps.read_records(path), report.read_predictions())
        found = [line.split()[-1] for line in text.splitlines()
                 if line.startswith("decoding gpt2-124m ") and "share of reading" in line]
        self.assertEqual(found, ["NO"])
        self.assertRegex(text, r"decoding gpt2-124m +token +[0-9.]+ +238.6")

    def test_the_committed_predictions_can_be_read(self):
        cases = report.read_predictions()["H100-SXM"]
        self.assertGreater(report.predicted_value(cases, CASE, "step"), 1.0)
        self.assertGreater(report.predicted_value(cases, CASE, "all products"), 0.5)


MEASURED = gpu_modules.ROOT / "perf" / "gpu" / "measured"
BEFORE = json.loads((MEASURED / "predicted_before.json").read_text(encoding="utf-8"))
FIRST = min(BEFORE, key=lambda commit: BEFORE[commit]["committed"])


def last_before(machine, seconds):
    return max((commit for commit in BEFORE if BEFORE[commit]["committed"] < seconds
                and machine in BEFORE[commit]), key=lambda commit: BEFORE[commit]["committed"])


def rows_of_file(path):
    """Time and row of what was measured of steps with own attention and of tokens, as
    docs/performance.md has them."""
    records = steps.read_records(path)
    machine = machines.machine_of(report.gpu_of(records)).name
    times = {(one["case"], one["what"]): one["time"] for one in records
             if one.get("kind") == "measured" and one["what"] in ("step", "token")}
    for (case, what), values in report.measured_values(records).items():
        seconds = times.get((case, what), 0)
        commit = last_before(machine, seconds) if seconds else None
        if commit is None or case not in BEFORE[commit][machine]:
            continue
        first = BEFORE[FIRST][machine].get(case, {}).get("us_per_token")
        last, value = BEFORE[commit][machine][case]["us_per_token"], statistics.median(values)
        day = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%d %B")
        yield seconds, (f"| {day}, {machine} | {case} | {'' if first is None else first} | {last} "
                        f"({commit[:8]}) | {value:.4g} | {100 * (value / last - 1):+.0f} % |")


class Beforehand(unittest.TestCase):
    def test_what_is_kept_is_what_was_committed(self):
        for commit, kept in BEFORE.items():
            text = history.git("show", f"{commit}:{history.PREDICTIONS}")
            if text is None:  # a source archive, or a clone without its history
                continue
            predictions = json.loads(text)
            self.assertEqual(history.git("log", "-1", "--format=%ct", commit).strip(),
                             str(kept["committed"]))
            for machine in kept.keys() - {"committed"}:
                for case, head in kept[machine].items():
                    self.assertEqual({key: predictions[machine][case][key] for key in head}, head)

    def test_the_page_has_it_beside_what_was_measured(self):
        rows = [row for path in sorted(MEASURED.glob("*.jsonl")) for row in rows_of_file(path)]
        page = (gpu_modules.ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
        wanted = "\n".join(row for _, row in sorted(rows))
        self.assertEqual(len(rows), 19)
        self.assertIn(wanted, page, wanted)


if __name__ == "__main__":
    unittest.main()
