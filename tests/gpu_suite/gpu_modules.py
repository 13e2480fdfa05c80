"""Where the modules of perf/gpu_suite are."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "perf" / "gpu"), str(ROOT / "perf")]
