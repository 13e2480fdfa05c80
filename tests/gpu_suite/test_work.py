"""The steps themselves, with the host's trireme in the place of the GPU's: what is to hold on a
GPU holds of the CPU and itself. And turns beside a peer, with scripts in both places."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import gpu_modules
import bundle
import pack
import parts
import ratio_work
import truth_work

# Writes a step every hundredth of a second, as a run on a GPU does: behind a pause, one has the
# pause in it, and the next one less than it takes.
FAKE_TRIREME = """#!{python}
import json, pathlib, signal, sys, time
behind_a_pause = []
signal.signal(signal.SIGCONT, lambda *_: behind_a_pause.extend([9.0, 0.01]))
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
run.mkdir()
(run / "log.txt").write_text("GEMM peak 700.0 TFLOP/s")
(run / "environment.json").write_text("{{}}")
step = 0
while True:
    step += 1
    time.sleep(0.01)
    with open(run / "train.jsonl", "a") as file:
        seconds = behind_a_pause.pop(0) if behind_a_pause else 0.2
        file.write(json.dumps({{"step": step, "loss": 1.0, "seconds": seconds,
                               "model_tflops": 350.0}}) + "\\n")
"""
# Takes 5 s for what it does once, and a millisecond a token.
FAKE_GENERATE = """#!{python}
import json, pathlib, sys
words = dict(zip(sys.argv, sys.argv[1:]))
if sys.argv[1] == "train":
    run = pathlib.Path(words["--run-dir"])
    run.mkdir()
    (run / "train.jsonl").write_text("")
else:
    pathlib.Path(words["--out"]).write_text("")
    pathlib.Path(words["--json"]).write_text(
        json.dumps({{"seconds": 5 + 0.001 * int(words["--max-tokens"])}}))
"""
FAKE_PEER = """
import json, sys
print(json.dumps({"setup": True}), flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        print(json.dumps({"step": 1, "loss": 1.0, "seconds": 0.3}), flush=True)
    print(json.dumps({"summary": True}), flush=True)
"""


def write_program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


# Of every day; pack's tests train all of them, and test_every_kind.py does all steps.
KINDS = ("tiny-bert", "tiny-t5")


def setUpModule():
    make_bundle(KINDS)


def make_bundle(kinds):
    """An archive that is unpacked already, in Bundle.root, with the tiny models of these kinds."""
    unittest.addModuleCleanup(setattr, parts, "TINY_KINDS", parts.TINY_KINDS)
    parts.TINY_KINDS = kinds
    directory = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(directory.cleanup)
    root = Bundle.root = pathlib.Path(directory.name) / pack.NAME
    root.mkdir()
    host = pathlib.Path(directory.name) / "host"
    host.mkdir()
    (host / "trireme").symlink_to(os.environ["TRIREME_BINARY"])
    write_program(host / "trireme_gpu_masks",
                  '#!/bin/sh\necho \'{"mask": "residual bf16", "digest": "0123"}\'\n')
    pack.stage_suite(root)
    unittest.addModuleCleanup(setattr, pack, "WORDS_OF_TEXT", pack.WORDS_OF_TEXT)
    pack.WORDS_OF_TEXT = 20_000
    pack.stage_decks(root, host / "trireme")
    gpu_modules.write_samples_program(host / "trireme_samples")
    pack.stage_expected(root, host)
    pack.stage_samples(root, host)
    pack.write_manifest(root, [])
    (root / "bin").symlink_to(host)


class Bundle(unittest.TestCase):
    root = None

    def work(self, *arguments, **environment):
        """Findings and other results of a step that ends well."""
        done = subprocess.run([sys.executable, "-B", self.root / "gpu" / "work.py",
                               *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8",
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout)
        records = [json.loads(line) for line in done.stdout.splitlines()
                   if line.startswith("{")]
        return [one for one in records if one["kind"] == "finding"], records

    def assert_all_hold(self, findings, count):
        self.assertEqual(len(findings), count, findings)
        for finding in findings:
            self.assertIs(finding["holds"], True, finding)

    def assert_kind_is_the_cpus(self, deck):
        findings, _ = self.work("weights", deck)
        self.assert_all_hold(findings, 1)
        self.assertTrue(findings[0]["what"].startswith(f"{deck}: initial weights"))
        findings, _ = self.work("losses", deck)
        self.assert_all_hold(findings, 3)
        self.assertEqual(findings[0]["value"], 0.0)


class Modules(Bundle):
    def test_predictions_can_be_made_from_an_archive(self):
        done = subprocess.run(
            [sys.executable, "-B", "-c", "import predict; print(predict.logit_bytes())"],
            cwd=self.root / "gpu", stdout=subprocess.PIPE, encoding="utf-8", check=True)
        self.assertEqual(int(done.stdout), 512 * 2 ** 20)

    def test_every_module_can_be_loaded_from_an_archive(self):
        for path in sorted((self.root / "gpu").glob("*.py")):
            if path.stem in ("torch_peaks", "instructions"):  # of PyTorch, and of the tree
                continue
            subprocess.run([sys.executable, "-B", "-c",
                            f"import sys; sys.path[:0] = ['gpu', '.']; import {path.stem}"],
                           cwd=self.root, check=True)


class Truth(Bundle):
    def test_a_start_with_each_way_of_loading_modules(self):
        _, records = self.work("start")
        self.assertEqual([one["module_loading"] for one in records], ["EAGER", "LAZY"])
        self.assertTrue(all(one["seconds"] > 0 for one in records))

    def test_initial_weights(self):
        findings, _ = self.work("weights")
        self.assert_all_hold(findings, 1)
        self.assertEqual(findings[0]["value"], "28 equal")

    def test_bert_and_t5_are_the_cpus_and_the_same_twice(self):
        for deck in KINDS:
            self.assert_kind_is_the_cpus(deck)
        findings, _ = self.work("twice", "tiny-t5")
        self.assert_all_hold(findings, 4)

    def test_a_loss_of_bert_that_differs_is_seen(self):
        path = self.root / "expected" / "losses-tiny-bert.json"
        text = path.read_text()
        self.addCleanup(path.write_text, text)
        path.write_text(json.dumps({step: loss * 1.001
                                    for step, loss in json.loads(text).items()}))
        findings, _ = self.work("losses", "tiny-bert")
        self.assertIs(findings[0]["holds"], False)

    def test_a_weight_that_differs_is_seen(self):
        path = self.root / "expected" / "weights.json"
        text = path.read_text()
        self.addCleanup(path.write_text, text)
        spoilt = json.loads(text)
        spoilt["model/final_norm/bias"] = "0" * 64
        path.write_text(json.dumps(spoilt))
        (finding,), _ = self.work("weights")
        self.assertIs(finding["holds"], False)
        self.assertIn("1 of 28 differ, first model/final_norm/bias", finding["value"])

    def test_restart_both_ways(self):
        results = self.root / "results.jsonl"
        findings, records = self.work("restart", results)
        self.assert_all_hold(findings, 2)
        kept = self.root / "gpu_checkpoint"
        self.assertTrue((kept / "step_00000003" / "manifest.json").exists())
        program = self.root / "bin" / "trireme"
        self.assertEqual(truth_work.go_on_from(kept, program), 0.0)
        losses = json.loads((kept / "losses_behind.json").read_text())
        self.assertEqual(sorted(losses), ["4", "5", "6"])
        losses["6"] *= 1.001
        (kept / "losses_behind.json").write_text(json.dumps(losses))
        self.assertGreater(truth_work.go_on_from(kept, program), truth_work.LOSS_TOLERANCE)
        self.assertIsNone(truth_work.go_on_from(self.root / "nowhere", program))

    def test_losses_that_differ_are_seen(self):
        path = self.root / "expected" / "losses.json"
        text = path.read_text()
        self.addCleanup(path.write_text, text)
        losses = json.loads(text)
        losses["5"] *= 1.001
        path.write_text(json.dumps(losses))
        findings, _ = self.work("restart", self.root / "results.jsonl")
        self.assertEqual([one["holds"] for one in findings], [False, False])

    def test_the_same_run_twice(self):
        findings, _ = self.work("twice")
        self.assert_all_hold(findings, 4)

    def make_small(self):
        """GPT-2 124M becomes a model that a test has time for."""
        deck = self.root / "decks" / "gpt2-124m.yaml"
        text = deck.read_text()
        self.addCleanup(deck.write_text, text)
        deck.write_text(pack.TINY_DECK + "precision: {compute: bf16}\n")

    def test_memory_beside_the_plan(self):
        self.make_small()
        (finding,), _ = self.work("memory")
        self.assertIs(finding["holds"], True)
        self.assertGreater(finding["value"][1], 0)

    def pretend_cudnn(self):
        """trireme with own attention where cuDNN's is asked for, which is kept in a file."""
        target = os.readlink(self.root / "bin")
        fakes = self.root / "with_cudnn"
        fakes.mkdir()
        self.addCleanup(shutil.rmtree, fakes)
        asked = fakes / "asked"
        write_program(fakes / "trireme", f"""#!{sys.executable}
import os, sys
words = [word.replace("precision.attention=cudnn", "precision.attention=own")
         for word in sys.argv[1:]]
if words != sys.argv[1:]:
    open({str(asked)!r}, "a").write(" ".join(words) + "\\n")
os.execv({os.environ["TRIREME_BINARY"]!r}, ["trireme", *words])
""")
        (self.root / "bin").unlink()
        (self.root / "bin").symlink_to(fakes)

        def restore():
            (self.root / "bin").unlink()
            (self.root / "bin").symlink_to(target)
        self.addCleanup(restore)
        return asked

    def test_cudnns_attention(self):
        self.make_small()
        asked = self.pretend_cudnn()
        results = self.root / "profile.jsonl"
        results.write_text("".join(json.dumps(
            {"part": "truth", "step": "profile", "kind": "measured", "us_per_token": 5e5,
             "case": "gpt2-124m, dropout 0", "what": what}) + "\n"
            for what in ("attention_forward", "attention_backward", "step")))
        findings, records = self.work("cudnn", results)
        self.assert_all_hold(findings[:3], 3)
        (theirs,) = [one["us_per_token"] for one in records if one["kind"] == "measured"]
        self.assertAlmostEqual(findings[3]["value"], 1e6 / theirs, delta=0.001)
        runs = asked.read_text().splitlines()
        self.assertEqual(len(runs), 3)
        for line in runs:
            for setting in ("run.deterministic=true", "model.attention_dropout=0"):
                self.assertIn(setting, line)

    def test_attention_that_is_another_or_varies_is_seen(self):
        count = 0

        def train(directory, *settings, **_):
            nonlocal count
            count += 1
            directory.mkdir()
            (directory / "profile.json").write_text(json.dumps({"kernels": [
                {"kernel": "kernels::attention_forward", "seconds": 1.0}]}))
            return [{"step": 1, "loss": 5.0 + 0.2 * count, "grad_norm": 1.0}]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), mock.patch.multiple(
                truth_work, train=train, last_checkpoint=str, tokens_of_a_step=lambda _: 1,
                digests_of=lambda where: {"a": where}):
            truth_work.cudnn(self.root / "nothing.jsonl")
        records = [json.loads(line) for line in printed.getvalue().splitlines()]
        self.assertEqual([one["holds"] for one in records if one["kind"] == "finding"],
                         [False, False, False, None])

    def sanitize(self, *words):
        """A stand-in of compute-sanitizer that runs the program: the finding, what the tool was
        asked, and what the program was."""
        tool = self.root / "compute-sanitizer"
        asked = self.root / "asked"
        write_program(tool, f"""#!{sys.executable}
import json, subprocess, sys
program = next(at for at, word in enumerate(sys.argv) if word.endswith("/bin/trireme"))
json.dump([sys.argv[1:program], sys.argv[program + 1:]], open({str(asked)!r}, "w"))
status = subprocess.run(sys.argv[program:]).returncode
print("========= ERROR SUMMARY:", "0 errors" if status == 0 else "the program failed")
sys.exit(status)
""")
        (finding,), _ = self.work("sanitizer", *words, TRIREME_SUITE_SANITIZER=str(tool))
        self.assertEqual((finding["holds"], finding["value"]),
                         (True, "========= ERROR SUMMARY: 0 errors"))
        return finding["what"], *json.loads(asked.read_text())

    def test_compute_sanitizer(self):
        what, options, program = self.sanitize("memcheck")
        self.assertEqual(what, "compute-sanitizer memcheck finds nothing in a step in bf16 with "
                               "dropout")
        self.assertEqual(options[:2], ["--tool", "memcheck"])
        self.assertNotIn("--kernel-name", options)
        self.assertEqual(program[0], "train")
        self.assertIn("precision.attention=own", program)
        tool = self.root / "compute-sanitizer"
        write_program(tool, "#!/bin/sh\necho '========= ERROR SUMMARY: 2 errors'\nexit 99\n")
        (finding,), _ = self.work("sanitizer", "memcheck", TRIREME_SUITE_SANITIZER=str(tool))
        self.assertEqual((finding["holds"], finding["value"]),
                         (False, "========= ERROR SUMMARY: 2 errors"))

    def test_races_are_looked_for_in_own_kernels_alone(self):
        _, options, program = self.sanitize("racecheck")
        self.assertEqual(options[options.index("--kernel-name") + 1], "kns=trireme")
        self.assertEqual(program[0], "train")

    def test_races_are_looked_for_in_generation(self):
        what, options, program = self.sanitize("racecheck", "generation")
        self.assertEqual(what, "compute-sanitizer racecheck finds nothing in generation")
        self.assertEqual(options[options.index("--kernel-name") + 1], "kns=trireme")
        self.assertEqual(program[0], "generate")

    def test_decoding(self):
        self.make_small()
        deck = self.root / "decks" / "gpt2-124m.yaml"  # texts are as long as its sequence
        deck.write_text(deck.read_text().replace("sequence: 128", "sequence: 1024"))
        (finding,), records = self.work("decode", "gpt2-124m", TRIREME_SUITE_COPY_BANDWIDTH="1e9")
        (texts,) = [one for one in records if "seconds_of_a_text" in one]
        short, long = texts["seconds_of_a_text"]
        (token,) = [one for one in records if one["kind"] == "measured"]
        self.assertAlmostEqual(token["us_per_token"], 1e6 * (long - short) / (768 - 128))
        self.assertEqual((token["case"], token["what"]), ("decoding gpt2-124m", "token"))
        weights = 2 * (124439808 - 1024 * 768)
        self.assertAlmostEqual(finding["value"], weights / 1e3 / token["us_per_token"],
                               delta=0.001)

    def test_a_profile_names_kernels_as_predictions_do(self):
        self.make_small()
        _, records = self.work("profile", "0.1")
        measured = {one["what"]: one["us_per_token"] for one in records
                    if one["kind"] == "measured"}
        for name in ("step", "all products", "attention_forward", "adamw",
                     "residual_norm_backward", "cross_entropy_in_place"):
            self.assertGreater(measured[name], 0.0)

    def test_a_profile_is_of_the_attention_that_is_predicted(self):
        asked = []

        def train(directory, *settings, **_):
            asked.append(settings)
            directory.mkdir()
            (directory / "profile.json").write_text('{"kernels": []}')
            return [{"step": step, "seconds": 1.0, "tokens": 1.0} for step in range(12)]
        with contextlib.redirect_stdout(io.StringIO()), mock.patch.multiple(
                truth_work, train=train, tokens_of_a_step=lambda _: 1):
            truth_work.profile("0")
        self.assertEqual(len(asked), 2)
        for settings in asked:
            self.assertIn("precision.attention=own", settings)


# As Google Benchmark writes its results: one kernel beyond the caches, and one within; and two
# shapes of attention.
FAKE_MICRO = """#!{python}
import json, re, sys
out = next(word for word in sys.argv if word.startswith("--benchmark_out=")).split("=")[1]
wanted = next(word for word in sys.argv if word.startswith("--benchmark_filter=")).split("=")[1]
shape = "/batch:%d/sequence:%d/dropout:0/heads:12/head_size:80/real_time"
found = [{{"name": "layer_norm_forward<bf16>/65536/real_time", "seconds": 200e-6, "GB/s": 2500.0,
          "of_triad": 0.9, "of_copy": 0.83}},
         {{"name": "sum_rows<bf16>/65536/real_time", "seconds": 2e-6, "GB/s": 9000.0,
          "of_triad": 3.0, "of_copy": 3.0}},
         {{"name": "layer_norm_forward<bf16>/1024/real_time", "seconds": 1.0, "GB/s": 1.0,
          "of_copy": 1.0}},
         {{"name": "attention<bf16, kMatrices, both>/batch:4/sequence:256/dropout:0/real_time"}},
         {{"name": "attention_of_sizes<forward>" + shape % (16, 1024), "seconds": 1e-3}},
         {{"name": "attention_of_sizes<both>" + shape % (16, 1024), "seconds": 4e-3}},
         {{"name": "attention_of_sizes<both>" + shape % (8, 2048), "seconds": 6e-3}}]
token = "decode_layers<bf16>/layers:12/hidden:768/heads:12/texts:1/positions:%d/boxes:%d/real_time"
found += [{{"name": token % (128, 0), "seconds": 180e-6}},
          {{"name": token % (128, 1), "seconds": 150e-6}},
          {{"name": token % (768, 0), "seconds": 190e-6}},
          {{"name": token % (768, 1), "error_occurred": True}}]
json.dump({{"benchmarks": [one for one in found if re.search(wanted, one["name"])]}},
          open(out, "w"))
"""
# Asked as Nsight Compute is, of a program whose kernels have names as a CUDA build's.
FAKE_NCU = """#!{python}
import re, sys
words = dict(zip(sys.argv, sys.argv[1:]))
assert words["--launch-count"] == "1" and words["--kernel-name-base"] == "demangled"
assert "precision.attention=own" in sys.argv
kernels = ["void cuda::forward_kernel<(Element)0, 64, false>(Task)",
           "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<"
           "DeviceRows<__nv_dl_wrapper_t<__nv_dl_tag<void (*)(Exec const&), &trireme::kernels::"
           "adamw<float>, 1>>>>>(ParallelFor)"]
print("==PROF== Connected to process 1")
for kernel in kernels:
    if re.search(words["--kernel-name"].removeprefix("regex:"), kernel):
        print('"0","1","trireme","127.0.0.1","' + kernel + '","1","7"')
"""


class Ratio(Bundle):
    """Programs that are scripts."""

    def setUp(self):
        fakes = self.root / "fakes"
        fakes.mkdir()
        self.addCleanup(shutil.rmtree, fakes)
        write_program(fakes / "trireme", FAKE_TRIREME.format(python=sys.executable))
        write_program(fakes / "trireme_micro", FAKE_MICRO.format(python=sys.executable))
        bin_directory, target = self.root / "bin", os.readlink(self.root / "bin")
        bin_directory.unlink()
        bin_directory.symlink_to(fakes)
        self.addCleanup(self.restore, target)
        self.peer = self.root / "peers" / "gpt2_step_gpu.py"
        self.peer_text = self.peer.read_text()
        self.peer.write_text(FAKE_PEER)

    def restore(self, target):
        (self.root / "bin").unlink()
        (self.root / "bin").symlink_to(target)
        self.peer.write_text(self.peer_text)

    def test_rows_count_beyond_the_caches(self):
        (finding,), records = self.work("rows")
        self.assertEqual((finding["what"], finding["holds"], finding["value"]),
                         ("layer_norm_forward<bf16>/65536/real_time: share of the bandwidth",
                          False, 0.83))
        self.assertEqual([one["name"].split("<")[0] for one in records
                          if one["kind"] == "benchmark"], ["layer_norm_forward", "sum_rows"])
        (finding,), _ = self.work("rows", TRIREME_SUITE_COPY_BANDWIDTH="2.8e12")
        self.assertEqual((finding["holds"], finding["value"]), (True, 0.893))

    def test_attention_beside_pytorchs(self):
        results = self.root / "attention.jsonl"
        results.write_text(json.dumps({
            "part": "tune", "step": "attention of PyTorch", "kind": "attention",
            "by": "torch flash", "shape": [16, 12, 1024, 80], "both": 2e-3}) + "\n")
        findings, records = self.work("own_attention", results)
        self.assertEqual([(one["holds"], one["value"]) for one in findings],
                         [(False, 0.5), (None, "not judged: the results have no time of "
                                               "PyTorch's")])
        self.assertIn("12 heads of 80, length 1024", findings[0]["what"])
        self.assertEqual([one for one in records if one["kind"] == "attention"][0],
                         {"kind": "attention", "by": "trireme", "shape": [16, 12, 1024, 80],
                          "forward": 1e-3, "both": 4e-3})

    def test_weights_by_boxes_beside_those_by_quads(self):
        findings, records = self.work("layers_of_a_token")
        self.assertEqual([(one["holds"], one["value"]) for one in findings],
                         [(True, 1.2), (None, "not judged: this GPU has only quads")])
        self.assertIn("hidden 768, heads 12, texts 1, positions 128", findings[0]["what"])
        self.assertEqual([(one["copies"], one["seconds"]) for one in records
                          if one["kind"] == "layers_of_a_token"],
                         [("quads", 180e-6), ("boxes", 150e-6), ("quads", 190e-6)])

    def counters(self, kernel, program):
        tool = self.root / "fakes" / "ncu"
        write_program(tool, program.replace("{python}", sys.executable))
        (finding,), _ = self.work("counters", kernel, TRIREME_SUITE_NCU=str(tool))
        return finding["holds"], finding["value"]

    def test_counters_are_of_the_kernel_that_was_meant(self):
        self.assertEqual(self.counters("adamw", FAKE_NCU), (True, "1 lines"))
        self.assertEqual(self.counters("forward_kernel", FAKE_NCU), (True, "1 lines"))
        self.assertEqual(self.counters("gelu_backward", FAKE_NCU), (False, "0 lines"))

    def test_counters_that_a_user_may_not_read_are_no_failure(self):
        holds, value = self.counters(
            "adamw", "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - no permission'\nexit 1\n")
        self.assertIsNone(holds)
        self.assertIn("ERR_NVGPUCTRPERM", value)

    def test_turns_of_both_and_what_follows(self):
        findings, records = self.work("ratio", "gpt2-124m", "0",
                                      TRIREME_SUITE_PYTHON=sys.executable)
        turns = [one["who"] for one in records if one["kind"] == "turn"]
        self.assertEqual(turns, ["trireme", "pytorch", "pytorch", "trireme", "trireme",
                                 "pytorch"])
        (step,) = [one for one in records if one["kind"] == "measured"]
        self.assertAlmostEqual(step["us_per_token"], 0.2e6 / 65536)
        times, share = findings
        self.assertEqual((times["holds"], times["value"]), (True, 1.5))
        # 854 MFLOPs a token at 65536 tokens in 0.2 s, of 700 TFLOP/s.
        self.assertEqual((share["holds"], share["value"]), (False, 0.4))

    def test_a_step_with_attention_that_is_not_predicted_has_a_name_of_its_own(self):
        for attention, what in (("own kernels", "step"),
                                ("cuDNN 9.19.0 (sums in any order)",
                                 "step, attention by cuDNN 9.19.0 (sums in any order)")):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                ratio_work.say_step("gpt2-124m, dropout 0", {"tokens": 1000},
                                    {"trireme": [0.2, 0.1, 0.3]}, attention)
            self.assertEqual(json.loads(printed.getvalue()), {
                "kind": "measured", "case": "gpt2-124m, dropout 0", "what": what,
                "us_per_token": 200.0})

    def test_steps_around_a_pause_do_not_count(self):
        with tempfile.TemporaryDirectory() as scratch:
            case = {"micro": 1, "micro_batches": 1, "layers": 1, "hidden": 1, "heads": 1,
                    "sequence": 1}
            with mock.patch.dict(os.environ, TRIREME_SUITE_PYTHON=sys.executable), \
                    mock.patch.object(bundle, "ROOT", self.root):
                ours, theirs = ratio_work.contenders("gpt2-124m", "0", case,
                                                     pathlib.Path(scratch))
            for one in (ours, theirs):
                self.addCleanup(one.messages.close)
            self.addCleanup(ours.stop)
            self.assertEqual([ours.turn(3) for _ in range(3)], [[0.2] * 3] * 3)

    def test_peers_of_bert_and_t5_take_the_samples_of_the_run(self):
        with mock.patch.dict(os.environ, TRIREME_SUITE_PYTHON="python"), \
                mock.patch.object(bundle, "ROOT", self.root):
            for model, kind in (("bert-base", "bert"), ("t5-small", "t5")):
                command = [str(word) for word in ratio_work.peer_command(
                    model, ratio_work.case_of(model, "0"), "0")]
                self.assertTrue(command[1].endswith("hugging_face_gpu.py"))
                self.assertEqual(command[2], kind)
                samples = pathlib.Path(command[command.index("--samples") + 1])
                micro, passes = (int(float(command[command.index(name) + 1]))
                                 for name in ("--micro", "--accumulate"))
                self.assertEqual(len(samples.read_text().splitlines()), micro * passes)

    def test_turns_beside_hugging_faces_bert(self):
        peer = self.root / "peers" / "hugging_face_gpu.py"
        self.addCleanup(peer.write_text, peer.read_text())
        peer.write_text(FAKE_PEER)
        findings, records = self.work("ratio", "bert-base", "0",
                                      TRIREME_SUITE_PYTHON=sys.executable)
        (step,) = [one for one in records if one["kind"] == "measured"]
        self.assertEqual(step["case"], "bert-base, dropout 0")
        self.assertEqual([one["holds"] for one in findings], [True, None])

    def test_what_is_used_for_the_first_time_is_not_in_a_tokens_time(self):
        write_program(self.root / "fakes" / "trireme", FAKE_GENERATE.format(
            python=sys.executable))
        (finding,), _ = self.work("decode", "megatron-1.2b", TRIREME_SUITE_COPY_BANDWIDTH="3e12")
        seconds = 2 * (1213459968 - 1024 * 1536) / 3e12 / 0.001
        self.assertAlmostEqual(finding["value"], seconds, delta=0.02)

    def test_peers_are_compiled_before_they_are_timed(self):
        kept = self.root / "fakes" / "kept"
        self.peer.write_text(f"import sys\nopen({str(kept)!r}, 'a').write("
                             "' '.join(sys.argv[1:]) + '\\n')\n")
        _, records = self.work("compile", "0.1", "gpt2-124m", "slice-8.3b",
                               TRIREME_SUITE_PYTHON=sys.executable)
        self.assertEqual([one["compiled"] for one in records],
                         ["gpt2-124m, dropout 0.1", "slice-8.3b, dropout 0.1"])
        self.assertEqual(len(kept.read_text().splitlines()), 2)
        for line in kept.read_text().splitlines():
            self.assertIn("--dropout 0.1 --warmup 1 --steps 0", line)
        for dropout, part in (("0", parts.ratio), ("0.1", parts.dropout)):
            planned = [step.name for step in part("results.jsonl")]
            compiling = [planned.index(name) for name in planned
                         if name.startswith("compile") and name.endswith(f" {dropout}")]
            for model in parts.MODELS:
                self.assertGreater(planned.index(f"{model}, dropout {dropout}"), max(compiling))

    def test_a_peer_that_ends_is_a_failure_that_says_why(self):
        self.peer.write_text("raise SystemExit('out of memory')")
        done = subprocess.run([sys.executable, "-B", self.root / "gpu" / "work.py", "ratio",
                               "gpt2-124m", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8",
                              env={**os.environ, "TRIREME_SUITE_PYTHON": sys.executable})
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of memory", done.stdout)


if __name__ == "__main__":
    unittest.main()
