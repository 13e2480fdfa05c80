"""gpu_suite as it is called, where there is no GPU and where a script pretends to be one."""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from gpu_modules import ROOT
import bundle
import device
import machines
import truth_work
import tune_work
import ratio_work
import parts

PERF = ROOT / "perf"
MASKS = '{"mask": "residual bf16", "digest": "0123"}'
# nvidia-smi of a machine with one GPU: the fields that it was asked for.
SMI = """#!/bin/sh
case "$1" in
  --query-gpu=name,*) echo "NVIDIA H100 80GB HBM3, 580.1, 81559" ;;
  --query-gpu=memory.used) echo "512" ;;
  *) echo "a table" ;;
esac
"""


# All unit tests, as GoogleTest lists and runs them: what each does is in its name. It also keeps
# the tests of each start.
FAKE_TESTS = """#!{python}
import pathlib, sys
if sys.argv[1] == "--gtest_list_tests":
    print('''Trireme's tests
A.
  Passes1
  Crashes2
  Passes3
  DISABLED_Passes4
B/0.  # TypeParam = float
  Fails5
  Crashes6  # GetParam() = 8-byte object
  Passes7
  Passes8
AttentionOf/0.  # TypeParam = float
  Fails9
  Fails10
Shapes/DecodeLayersOf.
  Crashes11
TypedAttention.
  Passes12
''')
    sys.exit()
path, file = sys.argv[1].split("=")
assert path == "--gtest_flagfile"
flags = dict(line.split("=") for line in pathlib.Path(file).read_text().split())
names = flags["--gtest_filter"].split(":")
with open(pathlib.Path(__file__).parent / "starts", "a") as starts:
    print(*names, file=starts)
for name in names:
    print("[ RUN      ]", name, flush=True)
    if "Passes" not in name:
        print("what", name, "says\\n" + "more\\n" * 50 + "the end", flush=True)
    if "Crashes" in name:
        sys.exit(3)
    print("[       OK ]" if "Passes" in name else "[  FAILED  ]", name, "(1 ms)", flush=True)
"""


def write_program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class NoGpu(unittest.TestCase):
    def test_status_77_without_a_gpu(self):
        for part in parts.PARTS:
            with tempfile.TemporaryDirectory() as directory:
                results = pathlib.Path(directory) / "results.jsonl"
                done = subprocess.run(
                    [sys.executable, "-B", PERF / "gpu_suite", part, "--results", results],
                    env={"PATH": directory}, stdout=subprocess.PIPE, encoding="utf-8")
                if done.returncode != 77:
                    self.skip_where_there_is_one()
                self.assertEqual(done.returncode, 77, done.stdout)
                self.assertIn("no GPU", done.stdout)
                self.assertFalse(results.exists())

    def skip_where_there_is_one(self):
        import device
        if device.count_by_driver() > 0:
            self.skipTest("this machine has a GPU")

    def test_steps_are_listed_without_one(self):
        done = subprocess.run([sys.executable, "-B", PERF / "gpu_suite", "tune", "--list"],
                              stdout=subprocess.PIPE, encoding="utf-8")
        self.assertEqual(done.returncode, 0)
        self.assertIn("s  rows", done.stdout)


class Pretended(unittest.TestCase):
    """An unpacked archive whose programs are scripts, and a GPU that is one."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / "path").mkdir()
        (self.root / "bin").mkdir()
        (self.root / "expected").mkdir()
        shutil.copytree(PERF / "gpu", self.root / "gpu",
                        ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("gpu_suite", "compare.py", "checkpoint_tensors.py"):
            shutil.copy(PERF / name, self.root / name)
        (self.root / "manifest.json").write_text('{"nvidia_libraries": [], "commit": "abc"}')
        (self.root / "expected" / "masks.json").write_text('{"residual bf16": "0123"}')
        write_program(self.root / "path" / "nvidia-smi", SMI)
        write_program(self.root / "bin" / "trireme_gpu_masks", f"#!/bin/sh\necho '{MASKS}'\n")
        write_program(self.root / "bin" / "trireme", "#!/bin/sh\necho trireme 0\n")

    def environment(self):
        return {**os.environ, "PATH": f"{self.root / 'path'}:/usr/bin:/bin"}

    def command(self, *words):
        return [sys.executable, "-B", self.root / "gpu_suite", *words, "--results",
                self.root / "results.jsonl"]

    def call(self, *words, **variables):
        return subprocess.run(self.command(*words), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8",
                              env={**self.environment(), **variables})

    def records(self):
        return [json.loads(line)
                for line in (self.root / "results.jsonl").read_text().splitlines()]

    def test_what_is_asked_for_is_run_and_kept(self):
        done = self.call("truth", "--only", "masks", "--only", "versions")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("NVIDIA H100 80GB HBM3", done.stdout)
        (finding,) = [one for one in self.records() if one["kind"] == "finding"]
        self.assertIs(finding["holds"], True)
        self.assertEqual(self.call("report").returncode, 0)

    def test_results_say_which_commit_they_are_of(self):
        (self.root / "lib").mkdir()
        (self.root / "lib" / bundle.KERNEL_LIBRARY).write_text("kernels")
        (self.root / "manifest.json").write_text(json.dumps({
            "nvidia_libraries": [], "commit": "abc", "predictions_changed": 4e9,
            "kernels": bundle.digest_of_kernels(self.root)}))
        self.call("truth", "--only", "masks")
        report = self.call("report").stdout
        self.assertIn("Of commit abc: truth\n", report)
        self.assertIn("The predictions are newer (2096-10-02)", report)
        (self.root / "lib" / bundle.KERNEL_LIBRARY).write_text("others, by rebuild.sh")
        self.call("kinds", "--only", "weights of tiny-bert")
        begins = [one for one in self.records() if one["step"] == "surroundings"]
        self.assertEqual([one["commit"] for one in begins],
                         ["abc", "abc with kernels made anew"])

    def test_a_failure_is_kept_and_reported_and_the_rest_is_run(self):
        write_program(self.root / "bin" / "trireme_gpu_masks", "#!/bin/sh\nexit 4\n")
        done = self.call("truth", "--only", "masks", "--only", "weights", "--only", "memcheck")
        self.assertEqual(done.returncode, 1, done.stdout)
        ends = {one["step"]: one["status"] for one in self.records() if one["kind"] == "end"}
        self.assertEqual(ends["masks"], "failed")
        self.assertEqual(ends["weights"], "failed")  # the pretended program leaves no run
        self.assertIn("memcheck", ends)
        report = self.call("report")
        self.assertEqual(report.returncode, 1)
        self.assertIn("masks", report.stdout)

    def test_a_mask_that_differs_does_not_hold(self):
        (self.root / "expected" / "masks.json").write_text('{"residual bf16": "4567"}')
        self.assertEqual(self.call("truth", "--only", "masks").returncode, 0)
        (finding,) = [one for one in self.records() if one["kind"] == "finding"]
        self.assertIs(finding["holds"], False)
        self.assertIn("residual bf16", finding["value"])
        self.assertEqual(self.call("report").returncode, 1)

    def run_tests(self, shard, program=FAKE_TESTS, processes=1, step="tests {} of 4"):
        """Findings of a part of four, by what they say; and the tests of each start."""
        write_program(self.root / "bin" / "trireme_gpu_tests",
                      program.replace("{python}", sys.executable))
        done = self.call("truth", "--only", step.format(shard),
                         TRIREME_SUITE_PROCESSES=str(processes))
        self.assertEqual(done.returncode, 0, done.stdout)
        starts = self.root / "bin" / "starts"
        return ({one["what"]: one for one in self.records() if one["kind"] == "finding"},
                starts.read_text().splitlines() if starts.exists() else [])

    def test_behind_a_test_that_crashes_the_rest_is_run_and_nothing_twice(self):
        findings, starts = self.run_tests(2)
        self.assertEqual(starts, ["A.Crashes2 B/0.Passes7", "B/0.Passes7"])
        self.assertEqual(findings["unit test A.Crashes2"]["value"],
                         "ended the program: status 3")
        whole = findings["unit tests, part 2 of 4"]
        self.assertEqual((whole["holds"], whole["value"]),
                         (False, "1 passed, 0 failed, 1 crashed, 0 not run"))

    def test_all_tests_are_in_one_part_each(self):
        ran = []
        for shard in (1, 2, 3, 4):
            (self.root / "bin" / "starts").unlink(missing_ok=True)
            findings, starts = self.run_tests(shard)
            ran += starts[0].split()
        self.assertEqual(sorted(ran), ["A.Crashes2", "A.Passes1", "A.Passes3", "B/0.Crashes6",
                                       "B/0.Fails5", "B/0.Passes7", "B/0.Passes8",
                                       "TypedAttention.Passes12"])
        self.assertIs(findings["unit test B/0.Fails5"]["holds"], False)
        self.assertEqual(findings["unit tests, part 3 of 4"]["value"],
                         "2 passed, 0 failed, 0 crashed, 0 not run")
        self.assertIs(findings["unit tests, part 3 of 4"]["holds"], True)

    def test_what_a_gpu_has_alone_is_tested_first_and_says_why_it_fails(self):
        findings, starts = self.run_tests(1, step="tests of attention")
        self.assertEqual(starts, ["AttentionOf/0.Fails9 AttentionOf/0.Fails10 "
                                  "Shapes/DecodeLayersOf.Crashes11"])
        whole = findings["unit tests of attention and of a token's layers"]
        self.assertEqual((whole["holds"], whole["value"]),
                         (False, "0 passed, 2 failed, 1 crashed, 0 not run"))
        # Of the second failure of a process its name is enough.
        said = {one["test"]: one["text"] for one in self.records() if one["kind"] == "failure"}
        self.assertEqual(sorted(said), ["AttentionOf/0.Fails9", "Shapes/DecodeLayersOf.Crashes11"])
        for name, text in said.items():
            self.assertEqual(text.splitlines(), [f"what {name} says", *["more"] * 29])
        report = self.call("report").stdout
        self.assertRegex(report, r"tests of attention +AttentionOf/0.Fails9\n"
                                 r"    what AttentionOf/0.Fails9 says\n    more")

    def test_a_text_without_an_end_is_kept_in_part(self):
        self.run_tests(4, FAKE_TESTS.replace('"more\\n" * 50', '"x" * 9999'))
        (failure,) = [one for one in self.records() if one["kind"] == "failure"]
        self.assertEqual(len(failure["text"]), truth_work.FAILURE_CHARACTERS)

    def test_several_processes_share_a_part(self):
        findings, starts = self.run_tests(2, processes=3)
        self.assertEqual(sorted(starts), ["A.Crashes2", "B/0.Passes7"])
        self.assertIs(findings["unit test A.Crashes2"]["holds"], False)
        self.assertEqual(findings["unit tests, part 2 of 4"]["value"],
                         "1 passed, 0 failed, 1 crashed, 0 not run")

    def test_tests_that_do_not_run_are_no_success(self):
        findings, _ = self.run_tests(1, FAKE_TESTS.replace("names = flags",
                                                           "print('no driver')\n"
                                                           "sys.exit(4)\nnames = flags"))
        (failure,) = [one for one in self.records() if one["kind"] == "failure"]
        self.assertEqual(failure["text"], "no driver")
        whole = findings["unit tests, part 1 of 4"]
        self.assertEqual((whole["holds"], whole["value"]),
                         (False, "0 passed, 0 failed, 0 crashed, 2 not run"))

    def begin_a_slow_step(self):
        """A call of which the second step has begun, and does not end by itself."""
        write_program(self.root / "bin" / "trireme_gpu_masks",
                      "#!/bin/sh\necho $$ >$(dirname $0)/../process\nexec sleep 600\n")
        suite = subprocess.Popen(
            self.command("truth", "--only", "versions", "--only", "masks"), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment())
        self.addCleanup(suite.wait)
        self.addCleanup(suite.stdout.close)
        self.addCleanup(suite.kill)
        self.wait_for(lambda: (self.root / "process").exists()
                      and (self.root / "process").read_text().strip())
        return suite, int((self.root / "process").read_text())

    def wait_for(self, holds):
        for _ in range(600):
            if holds():
                return
            time.sleep(0.05)
        self.fail("waited for 30 s")

    @staticmethod
    def is_gone(process):
        try:
            stat = pathlib.Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return True
        return stat.rpartition(")")[2].split()[0] == "Z"

    def test_a_call_that_is_killed_is_gone_on_with(self):
        suite, process = self.begin_a_slow_step()
        suite.kill()
        suite.wait()
        self.assertFalse(self.is_gone(process))
        before = self.records()
        write_program(self.root / "bin" / "trireme_gpu_masks", f"#!/bin/sh\necho '{MASKS}'\n")
        done = self.call("truth", "--seconds", "25.5")
        self.assertIn("versions: done before", done.stdout)
        self.wait_for(lambda: self.is_gone(process))
        self.assertEqual(self.records()[:len(before)], before)
        # As far as the time goes, the call went on where the first one was killed.
        self.call("truth", "--only", "masks")
        ends = [(one["step"], one["status"]) for one in self.records() if one.get("kind") == "end"]
        self.assertEqual(ends.count(("versions", "done")), 1)
        self.assertIn(("masks", "done"), ends)
        self.assertNotIn("cut off", self.call("report").stdout)

    def test_a_call_that_is_asked_to_end_ends_its_step(self):
        suite, process = self.begin_a_slow_step()
        suite.terminate()
        suite.wait(30)
        self.wait_for(lambda: self.is_gone(process))

    def test_looking_around_is_within_the_time_of_a_call(self):
        slow = self.root / "path" / "slow_python"
        write_program(slow, "#!/bin/sh\nsleep 3\nexit 1\n")
        done = self.call("truth", "--only", "masks", "--seconds", "7",
                         TRIREME_SUITE_PYTHON=str(slow))
        self.assertIn("masks: not begun", done.stdout)

    def test_modules_are_loaded_as_programs_load_them_for_users(self):
        write_program(self.root / "bin" / "trireme_gpu_masks",
                      "#!/bin/sh\necho \"loading is '$CUDA_MODULE_LOADING'\"\nexit 5\n")
        self.call("truth", "--only", "masks", CUDA_MODULE_LOADING="LAZY")
        (end,) = [one for one in self.records() if one["kind"] == "end"]
        self.assertIn("loading is ''", end["tail"])

    def test_a_step_that_does_not_exist_is_refused(self):
        done = self.call("truth", "--only", "everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("everything", done.stdout)

    def test_libraries_that_are_nowhere_leave_steps_out(self):
        (self.root / "manifest.json").write_text('{"nvidia_libraries": ["libcublasLt.so.99"]}')
        self.assertEqual(self.call("truth", "--only", "masks").returncode, 0)
        (end,) = [one for one in self.records() if one["kind"] == "end"]
        self.assertEqual(end["status"], "missing")
        self.assertIn("libcublasLt.so.99", end["tail"][0])


    def test_cudnn_is_found_in_packages_and_its_step_left_out_where_it_is_not(self):
        (self.root / "manifest.json").write_text(
            '{"nvidia_libraries": [], "optional_libraries": ["libcudnn.so.9"]}')
        packages = self.root / "site-packages"
        library = packages / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
        library.parent.mkdir(parents=True)
        library.touch()
        write_program(self.root / "bin" / "trireme",
                      "#!/bin/sh\necho \"path: $LD_LIBRARY_PATH\"\nexit 5\n")
        self.call("truth", "--only", "attention of cuDNN", PYTHONPATH=str(packages))
        (end,) = [one for one in self.records() if one["kind"] == "end"]
        self.assertEqual(end["status"], "failed")
        self.assertTrue(any(line.startswith("path: ") and "nvidia/cudnn/lib" in line
                            for line in end["tail"]), end)
        with mock.patch.object(bundle, "manifest", lambda: {
                "nvidia_libraries": [], "optional_libraries": ["libcudnn.so.99"]}):
            missing = bundle.Surroundings().missing()
        self.assertIn("no libcudnn.so.99", missing["cudnn"])
        self.assertNotIn("libraries", missing)


SMI_OF_A_SLICE = """#!/bin/sh
case "$1" in
  -L) echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)"
      echo "  MIG 1g.10gb     Device  0: (UUID: MIG-2)" ;;
  *) echo "NVIDIA H100 80GB HBM3, 580.1, [N/A]" ;;
esac
"""


class Slices(unittest.TestCase):
    def test_a_slice_is_named_and_is_not_its_gpu(self):
        with tempfile.TemporaryDirectory() as directory:
            write_program(pathlib.Path(directory) / "nvidia-smi", SMI_OF_A_SLICE)
            with mock.patch.dict(os.environ, PATH=f"{directory}:/usr/bin:/bin"):
                gpu = device.find_gpu()
        self.assertEqual(gpu, {"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "driver": "580.1",
                               "memory_mib": 0.0})
        self.assertIsNone(machines.machine_of(gpu["name"]))
        self.assertEqual(machines.machine_of("NVIDIA H100 80GB HBM3").name, "H100-SXM")


class Unpacked(unittest.TestCase):
    def test_parts_run_from_an_archive_only(self):
        with tempfile.TemporaryDirectory() as directory:
            write_program(pathlib.Path(directory) / "nvidia-smi", SMI)
            done = subprocess.run(
                [sys.executable, "-B", PERF / "gpu_suite", "truth", "--results",
                 pathlib.Path(directory) / "results.jsonl"], stdout=subprocess.PIPE,
                env={**os.environ, "PATH": f"{directory}:/usr/bin:/bin"}, encoding="utf-8")
        self.assertEqual(done.returncode, 2)
        self.assertIn("gpu_suite pack", done.stdout)


class Work(unittest.TestCase):
    def test_every_step_of_a_part_is_some_work(self):
        known = {**truth_work.WORK, **tune_work.WORK, **ratio_work.WORK}
        for planned in parts.PARTS.values():
            for step in planned("results.jsonl"):
                self.assertIn(step.command[2], known)

    def test_kernels_whose_counters_are_read_are_functions_of_the_source(self):
        text = "".join(path.read_text(encoding="utf-8")
                       for path in sorted((ROOT / "src" / "kernels").glob("**/*.c*")))
        for name in parts.COUNTED:
            self.assertRegex(text, rf"void (__launch_bounds__\([^()]*\)\s+)?(launch_)?{name}\(")

    def test_tests_are_read_as_googletest_prints_them(self):
        lines = truth_work.TestLines()
        said = [lines.add(line) for line in (
            "[ RUN      ] Gemm.Small", "[       OK ] Gemm.Small (3 ms)",
            "[ RUN      ] Gemm/0.Large", "a message",
            "[  FAILED  ] Gemm/0.Large, where TypeParam = float (12 ms)",
            "[ RUN      ] Other.Skips", "[  SKIPPED ] Other.Skips (0 ms)",
            "[ RUN      ] Other.Crashes")]
        self.assertEqual([how for how in said if how], ["OK", "FAILED", "SKIPPED"])
        self.assertEqual(lines.ended, {"OK": ["Gemm.Small"], "FAILED": ["Gemm/0.Large"],
                                       "SKIPPED": ["Other.Skips"]})
        self.assertEqual(lines.running, "Other.Crashes")

    def test_kernels_of_a_profile_are_those_of_the_predictions(self):
        found = truth_work.kernel_seconds({"kernels": [
            {"kernel": "kernels::gemm", "seconds": 1.0},
            {"kernel": "kernels::linear_forward[fused]", "seconds": 2.0},
            {"kernel": "kernels::adamw", "seconds": 0.5},
            {"kernel": "kernels::adamw", "seconds": 0.25}]})
        self.assertEqual(found, {"all products": 3.0, "adamw": 0.75})


if __name__ == "__main__":
    unittest.main()
