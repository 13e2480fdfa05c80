# tests/contracts/machine_code.py — reads the machine code of src/kernels/cuda/*.cu and holds it
# to the table in machine_code.txt: tensor cores, 128-bit loads, spills, registers, shared memory,
# occupancy. No GPU is needed: nvcc compiles, CUDA's disassemblers print.
#
#   python3 tests/contracts/machine_code.py            compares; status 1 where it differs
#   python3 tests/contracts/machine_code.py --show     what was measured, with counts
#   python3 tests/contracts/machine_code.py --update   writes the table from that
#   python3 tests/contracts/machine_code.py --can-run  status 77, and why, where it cannot
#
# Status 77, and so skipped by ctest, where nvcc or a disassembler is missing.
import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import table
from measures import details, measure
from occupancy import MULTIPROCESSORS
from toolkit import Toolkit, ToolFailed, architectures

CANNOT_RUN = 77
COMPILERS = 2  # at a time


class Reading:
    """All kernels of a tree, or of the files whose names fit, measured, and what was found to be
    wrong on the way."""

    def __init__(self, toolkit, root, files="*.cu"):
        self.toolkit, self.root = toolkit, Path(root)
        self.rows, self.instructions, self.findings = {}, {}, []
        sources = sorted((self.root / "src" / "kernels" / "cuda").glob(files))
        if not sources:
            self.findings.append(f"src/kernels/cuda: no {files} there")
        with tempfile.TemporaryDirectory() as scratch:
            self._launches = [launch for launch in toolkit.launches(self.root, Path(scratch))
                              if fnmatch(launch.file, files)]
            jobs = [(source, arch) for source in sources for arch in architectures(source)]
            with ThreadPoolExecutor(COMPILERS) as pool:
                read = list(pool.map(lambda job: self._read(Path(scratch), *job), jobs))
            for (source, arch), kernels in zip(jobs, read):
                self._measure(source.name, arch, kernels)
            names = {source.name for source in sources}
            self.findings += [f"launches.cpp names {launch.file}, which is not in src/kernels/cuda"
                              for launch in self._launches if launch.file not in names]
        order = {launch.name: at for at, launch in enumerate(self._launches)}
        self.rows = dict(sorted(self.rows.items(),
                                key=lambda item: (order[item[0][0]], item[0][1])))

    def _read(self, scratch, source, arch):
        """The kernels of one file for one architecture; None where it does not compile."""
        place = f"src/kernels/cuda/{source.name} ({arch})"
        if arch not in MULTIPROCESSORS:
            self.findings.append(f"{place}: a file's architecture is one of "
                                 f"{', '.join(MULTIPROCESSORS)}: tests/contracts/occupancy.py")
            return None
        output = scratch / f"{source.stem}.{arch}.o"
        try:
            headers = self.toolkit.compile(self.root, source, arch, output)
            kernels = self.toolkit.kernels(output)
        except ToolFailed as error:
            self.findings.append(f"{place}: does not compile alone without warnings: {error}")
            return None
        of_kokkos = [name for name in headers if Path(name).name.lower().startswith("kokkos")]
        if of_kokkos:
            self.findings.append(f"{place}: includes {Path(of_kokkos[0]).name}: files here include "
                                 "nothing of Kokkos, to compile alone and in seconds")
        return kernels

    def _measure(self, file, arch, kernels):
        if kernels is None:
            return
        launches = {launch.kernel: launch for launch in self._launches if launch.file == file}
        for name in launches.keys() - kernels.keys():
            self.findings.append(f"{file} ({arch}): launches.cpp names {name}, which is not among "
                                 f"its kernels: {', '.join(sorted(kernels))}")
        for name, kernel in kernels.items():
            if name not in launches:
                self.findings.append(f"{file} ({arch}): tests/contracts/launches.cpp does not say "
                                     f"what the launch of {name} asks for")
                continue
            launch = launches[name]
            if kernel.launch_bounds != launch.threads:
                self.findings.append(
                    f"{launch.name} ({arch}): __launch_bounds__ says {kernel.launch_bounds or 'no'}"
                    f" threads, and the launch has {launch.threads}")
            self.rows[launch.name, arch] = measure(arch, kernel.instructions, kernel.resources,
                                                   launch)
            self.instructions[launch.name, arch] = kernel.instructions


def show(reading):
    print(table.write(reading.rows, reading.toolkit.version()))
    print("Counts of instructions, and those in the main loop:")
    for kernel, arch in reading.rows:
        print(f"{kernel} ({arch}): {details(reading.instructions[kernel, arch])}")


def compare(reading, path):
    """Status 0, or 1 and what differs."""
    return table.judge(reading.rows, reading.findings, path, table.OF_CUDA_FILES,
                       reading.toolkit.version(),
                       "python3 tests/contracts/machine_code.py --update")


def main(arguments):
    parser = argparse.ArgumentParser(description="The machine code of src/kernels/cuda/ against "
                                                 "tests/contracts/machine_code.txt.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="print what is measured")
    what.add_argument("--update", action="store_true", help="write the table from that")
    what.add_argument("--can-run", action="store_true", help="say what is missing; status 77")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2],
                        help="the tree (this one)")
    chosen = parser.parse_args(arguments)
    toolkit, missing = Toolkit.find()
    if toolkit is None:
        print(missing if chosen.can_run else
              f"SKIPPED: the machine code of src/kernels/cuda/ is not looked at: {missing}")
        return CANNOT_RUN
    if chosen.can_run:
        return 0
    path = chosen.root / "tests" / "contracts" / "machine_code.txt"
    try:
        reading = Reading(toolkit, chosen.root)
    except ToolFailed as error:
        print(f"machine_code: {error}")
        return 1
    if chosen.show:
        show(reading)
    if chosen.update:
        bounds = {key: table.bounds(row) for key, row in reading.rows.items()}
        path.write_text(table.write(bounds, toolkit.version()), "utf-8")
        print(f"{path}: {len(bounds)} kernels")
    if chosen.show or chosen.update:
        for line in reading.findings:
            print(line)
        return 1 if reading.findings else 0
    return compare(reading, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
