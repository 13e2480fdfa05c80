# tests/tools/test_same_bits.py — perf/same_bits: that it finds a changed number or tensor, and
# that it does not take another division of a checkpoint for another checkpoint.
import array
import importlib.machinery
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "perf" / "same_bits"
sys.path.insert(0, str(TOOL.parent))  # as where it is started as a program
loader = importlib.machinery.SourceFileLoader("same_bits", str(TOOL))
same_bits = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("same_bits", loader))
sys.modules["same_bits"] = same_bits  # where its dataclasses look for themselves
loader.exec_module(same_bits)


# Leaves what a training leaves, with PLANTED in the place of some number.
PROGRAM = """#!%(python)s
import json, pathlib, struct, sys
if sys.argv[1] == "tokenize":
    sys.exit(0)
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
(run / "checkpoints" / "latest").mkdir(parents=True, exist_ok=True)
numbers = {"loss": 2.5, "grad_norm": 1.5, "lr": 0.1, "samples": 8, "weight": 0.25}
planted = %(planted)s
records = [{"step": step, **numbers, **(planted if step == 2 else {})} for step in range(1, 7)]
records.append({"validation": {"step": 6, "loss": 3.0}})
(run / "train.jsonl").write_text("\\n".join(map(json.dumps, records)))
weight = {**numbers, **planted}["weight"]
(run / "checkpoints" / "latest" / "shard.h5").write_bytes(struct.pack("2f", 0.5, weight))
(run / "checkpoints" / "latest" / "manifest.json").write_text(json.dumps({
    "files": [{"name": "shard.h5"}],
    "tensors": [{"name": "model/bias", "dtype": "float32", "shape": [2]}],
    "blocks": [{"tensor": 0, "file": 0, "offset": 0, "start": [0], "shape": [2]}]}))
"""


class SameBits(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)

    def program(self, name, **planted):
        path = self.root / name
        path.write_text(PROGRAM % {"python": sys.executable, "planted": planted}, "utf-8")
        path.chmod(0o755)
        return str(path)

    def compared(self, planted, *more):
        """(status, table) of a program with itself, but for what is planted in the second"""
        said = subprocess.run(
            [sys.executable, "-B", str(TOOL), self.program("before"),
             self.program("after", **planted), "--layouts", "one,handed-over-one", "--quick",
             *more],
            capture_output=True, text=True, timeout=50)
        self.assertEqual(said.stderr, "")
        return said.returncode, said.stdout

    def test_a_program_is_the_same_as_itself(self):
        status, table = self.compared({})
        self.assertEqual(status, 0, table)
        self.assertEqual(table.count("  same\n"), 2, table)
        self.assertIn("all 2 rows", table)

    def test_a_last_bit_of_a_number_or_tensor_is_found(self):
        for planted, found in (({"loss": math.nextafter(2.5, 3)}, "step 2, loss: 1.8e-16"),
                               ({"grad_norm": math.nextafter(1.5, 2)}, "step 2, grad_norm"),
                               ({"lr": 0.2}, "step 2, lr: 5.0e-01"),
                               ({"weight": 0.25 + 2.0**-25}, "model/bias: 6.0e-08")):
            with self.subTest(found):
                status, table = self.compared(planted)
                self.assertEqual(status, 1, table)
                self.assertEqual(table.count(f"DIFFERS: {found}"), 2, table)

    def test_what_is_allowed_stays_within_the_promise(self):
        status, table = self.compared({"loss": 2.5 * (1 + 4e-6)}, "--allow", "one,hand*")
        self.assertEqual(status, 0, table)
        self.assertEqual(table.count("allowed: step 2, loss: 4.0e-06"), 2, table)
        status, table = self.compared({"loss": 2.5 * (1 + 4e-6)}, "--allow", "one")
        self.assertEqual(status, 1, table)
        self.assertEqual(table.count("DIFFERS: step 2"), 1, table)
        for beyond in ({"loss": 2.5 * (1 + 6e-6)}, {"grad_norm": 1.6}, {"samples": 9}):
            status, table = self.compared(beyond, "--allow", "*")
            self.assertEqual(status, 1, table)
            self.assertEqual(table.count("DIFFERS BY MORE THAN IS ALLOWED"), 2, table)

    def test_a_program_that_fails_is_no_program_that_agrees(self):
        self.root.joinpath("broken").write_text("#!/bin/sh\necho no such layout\nexit 2\n")
        self.root.joinpath("broken").chmod(0o755)
        said = subprocess.run(
            [sys.executable, "-B", str(TOOL), self.program("before"),
             str(self.root / "broken"), "--layouts", "one"],
            capture_output=True, text=True, timeout=50)
        self.assertEqual(said.returncode, 1)
        self.assertIn("status 2", said.stdout)
        self.assertIn("no such layout", said.stdout)

    def checkpoint(self, name, blocks):
        """A tensor of 4 rows of 3 and one of 5, cut into (tensor, start, shape)."""
        directory = self.root / name
        directory.mkdir()
        rows = [[10 * i + j for j in range(3)] for i in range(4)]
        entries, files = [], []
        for number, (tensor, start, shape) in enumerate(blocks):
            if tensor == 0:
                values = [rows[start[0] + i][start[1] + j]
                          for i in range(shape[0]) for j in range(shape[1])]
            else:
                values = list(range(100 + start[0], 100 + start[0] + shape[0]))
            padding = b"\0" * 8 * number
            (directory / f"{number}.h5").write_bytes(padding + array.array("f", values).tobytes())
            files.append({"name": f"{number}.h5"})
            entries.append({"tensor": tensor, "file": number, "offset": len(padding),
                            "start": start, "shape": shape})
        (directory / "manifest.json").write_text(json.dumps({
            "files": files, "blocks": entries,
            "tensors": [{"name": "w", "dtype": "float32", "shape": [4, 3]},
                        {"name": "b", "dtype": "float32", "shape": [5]}]}))
        return same_bits.tensors_of(directory)

    def test_tensors_are_the_same_however_they_are_cut(self):
        whole = self.checkpoint("whole", [(0, [0, 0], [4, 3]), (1, [0], [5])])
        cut = self.checkpoint("cut", [(1, [3], [2]), (0, [0, 2], [4, 1]), (0, [0, 0], [1, 2]),
                                      (0, [1, 0], [3, 2]), (1, [0], [3])])
        self.assertEqual(array.array("f", whole["w"])[4], 11)
        self.assertEqual(whole, cut)

    def test_every_row_has_a_name_of_its_own(self):
        names = [row.name for row in same_bits.ROWS]
        self.assertEqual(len(set(names)), len(names))
        self.assertGreaterEqual(len(names), 20)


if __name__ == "__main__":
    unittest.main()
