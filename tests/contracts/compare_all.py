# tests/contracts/compare_all.py — all that the machine code of src/kernels/cuda/ is compared with,
# compiled once, which takes minutes: the table that it is held to (machine_code.py), and the
# counts that predictions are made of (perf/gpu/instructions.py). Status 77 where neither can be.
import sys
from pathlib import Path

import machine_code
from toolkit import Toolkit, ToolFailed

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf" / "gpu"))

import instructions  # noqa: E402


def main():
    toolkit, missing = Toolkit.find()
    if toolkit is None:
        print(f"SKIPPED: the machine code of src/kernels/cuda/ is not looked at: {missing}")
        return machine_code.CANNOT_RUN
    try:
        reading = machine_code.Reading(toolkit, ROOT)
    except ToolFailed as error:
        print(f"machine_code: {error}")
        return 1
    table = machine_code.compare(reading, ROOT / "tests" / "contracts" / "machine_code.txt")
    return 1 if 1 in (table, instructions.compare(reading)) else 0


if __name__ == "__main__":
    sys.exit(main())
