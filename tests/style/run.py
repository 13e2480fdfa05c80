# tests/style/run.py CHECK [ROOT] — runs one check on the tree; prints what it finds, one
# file:line a line, and ends with status 1 if there is anything.
import importlib
import sys
from pathlib import Path

CHECKS = ["layers", "vendor_headers", "kernel_labels", "text_rules", "direct_includes",
          "formatting", "documentation", "plurals", "function_length", "top_comments",
          "module_map"]


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in CHECKS:
        print(f"usage: run.py {'|'.join(CHECKS)} [ROOT]", file=sys.stderr)
        return 2
    root = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).resolve().parents[2]
    found = importlib.import_module(sys.argv[1]).check(root)
    for line in found:
        print(line)
    print(f"{sys.argv[1]}: {len(found)} finding(s) in {root}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
