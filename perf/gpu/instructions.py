#!/usr/bin/env python3
"""Instructions of the main loops of attention's kernels in src/kernels/cuda/, for
perf/gpu/predict.py.

    perf/gpu/instructions.py             # compares with instructions.json
    perf/gpu/instructions.py --update    # writes it

It needs nvcc and CUDA's disassemblers, as tests/contracts/machine_code.py does, whose reading
of machine code it uses; status 77 without. Loops inside of the main loop are counted by
themselves ("inner"), because how often they run is no matter of the code alone. Where a round
computes its products in one of two ways, the shorter one is counted, and by itself how many
more instructions the other one has ("masks"): of a tile in which some query does not see some
key.
"""
import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "contracts"))

import machine_code  # noqa: E402
import measures  # noqa: E402
from sass import find_choices, find_loops  # noqa: E402
from toolkit import Toolkit  # noqa: E402

OUTPUT = HERE / "instructions.json"
FILES = "attention_*.cu"
CANNOT_RUN = 77


def counts_of(instructions):
    """By the unit of a multiprocessor that executes them."""
    bases = [one.base for one in instructions]
    return {"all": sum(base != "NOP" for base in bases),
            "tensor": sum(base in measures.TENSOR for base in bases),
            "special": bases.count("MUFU"),
            "matrix_loads": bases.count("LDSM"),
            "shared": sum(base in measures.SHARED for base in bases),
            "global": sum(base in (*measures.GLOBAL_LOADS, *measures.GLOBAL_STORES)
                          for base in bases),
            "barriers": bases.count("BAR")}


def inner_loops(instructions, main):
    """Loops inside of the main loop, the outermost of each nest."""
    inside = [loop for loop in find_loops(instructions) if loop < main]
    return [loop for loop in inside if not any(loop < other for other in inside)]


def two_ways(instructions, main):
    """The shorter and the longer of two ways to compute a round's products: places."""
    def tensors(places):
        return sum(instructions[at].base in measures.TENSOR for at in places)

    choices = [choice for choice in find_choices(instructions)
               if all(way and way <= main and tensors(way) for way in choice)]
    if not choices:
        return set(), set()
    return sorted(max(choices, key=lambda choice: min(map(tensors, choice))), key=len)


def entry(instructions, row, asks_masks):
    """`asks_masks`: whether a round has two ways; an error where the code has not."""
    main = set(measures.main_loop(instructions))

    def counts(places):
        return counts_of([instructions[at] for at in sorted(places)])

    shorter, longer = two_ways(instructions, main)
    masks = {name: count - counts(shorter)[name] for name, count in counts(longer).items()}
    if bool(shorter) != asks_masks or masks["tensor"] or masks["matrix_loads"] or masks["all"] < 0:
        raise ValueError(f"of two ways of a round {'two' if asks_masks else 'none'} were expected; "
                         f"what the longer one has more: {masks}")
    main -= longer
    loops = [loop for loop in inner_loops(instructions, main | longer) if loop <= main]
    within = set().union(*loops) if loops else set()
    return {"threads": row["threads"], "blocks": row["blocks"],
            "loop": counts(main - within), "inner": [counts(loop) for loop in loops],
            "masks": masks,
            "outside": counts(set(range(len(instructions))) - main - longer)}


def read(reading):
    """What a machine_code.Reading of at least FILES says."""
    if reading.findings:
        sys.exit("instructions: " + "\n".join(reading.findings))
    kernels = {}
    for (name, arch), row in reading.rows.items():
        if not name.startswith("attention_") or " bf16 " not in name:
            continue
        try:
            found = entry(reading.instructions[name, arch], row,
                          name.startswith("attention_backward "))
        except ValueError as error:
            sys.exit(f"instructions: {name} of {arch}: {error}")
        kernels.setdefault(name, {})[arch] = found
    return {"nvcc": reading.toolkit.version(), "kernels": kernels}


def text_of(found):
    """One line for each kernel and architecture."""
    lines = []
    for name, archs in found["kernels"].items():
        rows = [f'  "{arch}": {json.dumps(one)}' for arch, one in archs.items()]
        lines.append(f' "{name}": {{\n' + ",\n".join(rows) + "}")
    return (f'{{"nvcc": "{found["nvcc"]}", "kernels": {{\n' + ",\n".join(lines) + "}}\n")


def compare(reading):
    """Status 0, or 1 and what differs, or 77 where the file is of another compiler."""
    text = OUTPUT.read_text(encoding="utf-8")
    if reading.toolkit.version() != json.loads(text)["nvcc"]:
        print("SKIPPED: instructions.json is of another nvcc")
        return CANNOT_RUN
    if text_of(read(reading)) != text:
        print("instructions: the kernels have changed since instructions.json was written: "
              "perf/gpu/instructions.py --update, then perf/gpu/predict.py --update")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--update", action="store_true", help="write instructions.json")
    arguments = parser.parse_args()
    toolkit, missing = Toolkit.find()
    if toolkit is None:
        print(f"SKIPPED: instructions are not counted: {missing}")
        return CANNOT_RUN
    reading = machine_code.Reading(toolkit, ROOT, FILES)
    if arguments.update:
        OUTPUT.write_text(text_of(read(reading)), encoding="utf-8")
        return 0
    return compare(reading)


if __name__ == "__main__":
    sys.exit(main())
