"""perf/gpu/tally.json is what trireme_gpu_tally prints now: check_tally.py PROGRAM"""
import difflib
import subprocess
import sys

from gpu_modules import ROOT

TALLY = ROOT / "perf" / "gpu" / "tally.json"


def main():
    decks = sorted((ROOT / "perf" / "gpu" / "models").glob("*.yaml"))
    printed = subprocess.run([sys.argv[1], *decks], check=True, stdout=subprocess.PIPE,
                             encoding="utf-8").stdout
    written = TALLY.read_text(encoding="utf-8")
    if printed == written:
        return 0
    changes = difflib.unified_diff(written.splitlines(), printed.splitlines(), "tally.json",
                                   "now", lineterm="", n=0)
    print("\n".join([*list(changes)[:40], "What a step launches has changed:",
                     f"  {sys.argv[1]} perf/gpu/models/*.yaml > perf/gpu/tally.json",
                     "  perf/gpu/predict.py --update"]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
