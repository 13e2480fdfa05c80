"""Where the modules of perf/gpu_suite are, and what tests of several parts pretend."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "perf" / "gpu"), str(ROOT / "perf")]

# As many samples as are asked for, and a word beside them, as a warning is.
SAMPLES = f"""#!{sys.executable}
import json, sys
print("a warning")
for number in range(int(sys.argv[2])):
    print(json.dumps({{"tokens": [number]}}))
"""


def write_samples_program(path):
    path.write_text(SAMPLES, encoding="utf-8")
    path.chmod(0o755)
