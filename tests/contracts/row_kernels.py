# tests/contracts/row_kernels.py — reads the machine code of the kernels of src/kernels/ that are
# written in Kokkos, as a GPU's build has them, and holds it to the table in row_kernels.txt:
# registers, local memory, divisions of 64 bits in loops, 128-bit loads and stores. No GPU is
# needed and no Kokkos with CUDA: nvcc compiles with the headers of any (kokkos_headers.py).
#
# The targets compare_row_kernels and update_row_kernels of a build call it, with the sources that
# are a GPU's and those of them whose multiplications and additions stay apart. That takes five
# minutes on two cores. Every source has to compile for both architectures without a warning. The
# table has kernels of bf16, and of others those that are not made for bf16: fp16 differs from it
# by an instruction here and there, and fp32 and double are not what GPUs train in. The installed
# Kokkos is a part of what is compiled: the table says of which version it is.
import argparse
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import table
from kokkos_headers import ARCHITECTURES, Unusable, version_of, write_headers
from measures import measure_rows
from toolkit import Toolkit, ToolFailed

ROOT = Path(__file__).resolve().parents[2]
CANNOT_RUN = 77
COMPILERS = 2  # at a time
OPTIONS = ["-DNDEBUG", "-DFMT_USE_CONSTEXPR=1", "--Werror=cross-execution-space-call", "-Xcudafe",
           "--diag_error=20013"]  # cmake/TriremeTargets.cmake says why

OF_LOADS = "pieces of 16 bytes: src/kernels/impl/pieces.hpp"
COLUMNS = (
    table.OF_CUDA_FILES.column("registers"), table.OF_CUDA_FILES.column("stack"),
    table.Column("loop_spills", table.AT_MOST, "loads from and stores to local memory in loops",
                 table.OF_REGISTERS, 4),
    table.Column("loop_divisions", table.EXACT, "divisions of 64 bits in loops",
                 "each takes some hundred instructions: step from place to place, or divide by "
                 "a number that is known, or of 32 bits"),
    table.Column("wide_loads", table.EXACT, "loads of 128 bits and more from memory", OF_LOADS),
    table.Column("loop_narrow_loads", table.AT_MOST,
                 "loads of fewer than 128 bits from memory in loops", OF_LOADS, 8),
    table.Column("wide_stores", table.EXACT, "stores of 128 bits and more to memory", OF_LOADS),
    table.Column("loop_narrow_stores", table.AT_MOST,
                 "stores of fewer than 128 bits to memory in loops", OF_LOADS, 8),
    table.Column("split_loads", table.AT_MOST, "pieces of 16 bytes that are loaded word by word",
                 OF_LOADS),
    table.Column("split_stores", table.AT_MOST, "pieces of 16 bytes that are stored word by word",
                 "store() of impl/team_lanes.hpp, or impl::store_whole()"),
    table.Column("loop_waits", table.AT_MOST, "numbers that loops load and wait for at once, as "
                 "registers of the warp", "zero_of_thread() of impl/team_row.hpp"),
)
LAYOUT = table.Layout("row_kernels", "src/kernels/", COLUMNS)


def functor_of(demangled):
    """TeamRows<launch_norm<0, bf16> #1, 2>: the type that Kokkos was given, of which #1 is the
    first closure of a function. None of what no launch is, or one of Kokkos' own."""
    begin = re.search(r"Impl::Parallel(?:For|Reduce|Scan)<"
                      r"(?:Kokkos::Impl::CombinedFunctorReducer<)?", demangled)
    if begin is None or demangled[begin.end():].startswith("Kokkos::"):
        return None
    depth, end = 0, begin.end()
    while end < len(demangled) and not (depth == 0 and demangled[end] in ",>"):
        depth += (demangled[end] in "<({") - (demangled[end] in ">)}")
        end += 1
    text = demangled[begin.end():end].replace("(anonymous namespace)::", "")
    text = re.sub(r"\((?:\w+::)*\w+\)(?=-?\d)", "", text)  # types of numbers
    while "(" in text:
        text = re.sub(r"\([^()]*\)", "", text)
    text = re.sub(r"\b(?:\w+::)+(?=\w)", "", text)
    text = re.sub(r"::\{lambda#(\d+)\}", r" #\1", text)
    text = re.sub(r", LayoutRight, CudaSpace, MemoryTraits<1u> ?>", ">", text)
    text = re.sub(r"\bconst\b|(?<=\d)u?l\b", "", text).replace(" >", ">")
    return re.sub(r" +(?=[ *])", "", text).strip()


def is_hot(name, names):
    """Of a kernel, whether the table has it, where these are all."""
    if re.search(r"\b(?:fp16|double)\b", name):
        return False
    if "bf16" in name:
        return True
    # A type after the other in bf16's place: a sum may be of float there, too.
    places = [match.span() for match in re.finditer(r"\bfloat\b", name)]
    others = {re.sub(r"\bfloat\b", "bf16", name)} | {
        f"{name[:begin]}bf16{name[end:]}" for begin, end in places}
    return not others & (names - {name})


class Reading:
    """The kernels of these sources, measured, and what was found to be wrong on the way."""

    def __init__(self, toolkit, kokkos, sources, plain=()):
        self.toolkit, self.kokkos, self.plain = toolkit, Path(kokkos), plain
        self.rows, self.findings = {}, []
        jobs = [(Path(source), arch) for source in sources for arch in ARCHITECTURES]
        with tempfile.TemporaryDirectory() as scratch:
            self.scratch = Path(scratch)
            self.first = {arch: write_headers(kokkos, self.scratch / arch, arch)
                          for arch in ARCHITECTURES}
            with ThreadPoolExecutor(COMPILERS) as pool:
                found = list(pool.map(lambda job: self._read(*job), jobs))
        for (source, arch), kernels in zip(jobs, found):
            names = set(kernels)
            for name in sorted(names):
                if not is_hot(name, names):
                    continue
                # A kernel of a header may be in two sources.
                if self.rows.get((name, arch), kernels[name]) != kernels[name]:
                    self.findings.append(f"{source.name} ({arch}): another source has another "
                                         f"kernel that is {name} for short, too")
                self.rows[name, arch] = kernels[name]
        self.rows = dict(sorted(self.rows.items()))

    def _read(self, source, arch):
        place = f"{source.name} ({arch})"
        output = self.scratch / f"{source.stem}.{arch}.cubin"
        try:
            self.toolkit.compile_device_code(
                source, arch, output, *OPTIONS,
                *(["--fmad=false"] if source.name in self.plain else []),
                "-include", self.first[arch],
                "-I", self.scratch / arch, "-isystem", self.kokkos, "-I", ROOT / "src")
            kernels = self.toolkit.kernels(output, functor_of)
        except ToolFailed as error:
            self.findings.append(f"{place}: {error}")
            return {}
        return {name: measure_rows(kernel.instructions, kernel.resources)
                for name, kernel in kernels.items()}


def of_compiler(reading):
    """13.0.88-kokkos-4.7.0"""
    return f"{reading.toolkit.version()}-kokkos-{version_of(reading.kokkos)}"


def compare(reading, path):
    """Status 0, or 1 and what differs."""
    return table.judge(reading.rows, reading.findings, path, LAYOUT, of_compiler(reading),
                       "cmake --build build/release --target update_row_kernels")


def main(arguments):
    parser = argparse.ArgumentParser(description="The machine code of kernels in Kokkos against "
                                                 "tests/contracts/row_kernels.txt.")
    parser.add_argument("--kokkos", type=Path, required=True, metavar="DIR",
                        help="headers of an installed Kokkos")
    parser.add_argument("--plain-arithmetic", nargs="*", default=[], metavar="NAME",
                        help="sources that are compiled without multiply-adds")
    parser.add_argument("--sources", nargs="+", required=True, metavar="SOURCE")
    parser.add_argument("--update", action="store_true", help="write the table")
    chosen = parser.parse_args(arguments)
    toolkit, missing = Toolkit.find()
    if toolkit is None:
        print(f"SKIPPED: the machine code of kernels in Kokkos is not looked at: {missing}")
        return CANNOT_RUN
    path = ROOT / "tests" / "contracts" / "row_kernels.txt"
    try:
        reading = Reading(toolkit, chosen.kokkos, chosen.sources, chosen.plain_arithmetic)
    except (ToolFailed, Unusable) as error:
        print(f"row_kernels: {chosen.kokkos}: {error}")
        return 1
    if not chosen.update:
        return compare(reading, path)
    if reading.findings:
        print("".join(f"{line}\n" for line in reading.findings), end="")
        print(f"{path.name} is left as it is")
        return 1
    bounds = {key: table.bounds(row, LAYOUT) for key, row in reading.rows.items()}
    path.write_text(table.write(bounds, of_compiler(reading), LAYOUT), "utf-8")
    print(f"{path}: {len(bounds)} kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
