# tests/contracts/table.py — the committed tables: their columns, and what these allow.
import re
from dataclasses import dataclass

# What is compared is exact where the source alone decides, and a bound where the next version
# of a compiler may decide otherwise.
EXACT, AT_LEAST, AT_MOST = "=", ">=", "<="


@dataclass(frozen=True)
class Column:
    name: str
    relation: str
    what: str
    advice: str
    unit: int = 1  # a bound is the next multiple of it, or zero
    top: int = 1 << 62

    def bound(self, found):
        """What --update writes for a measured value."""
        if self.relation != AT_MOST:
            return found
        return min(-(-found // self.unit) * self.unit, self.top)

    def allows(self, found, wanted):
        if self.relation == AT_LEAST:
            return found >= wanted
        return found <= wanted if self.relation == AT_MOST else found == wanted


OF_REGISTERS = ("fewer values held at a time (smaller tiles, less unrolling) or fewer threads "
                "give room")
OF_LOADS = ("threads should move 16 bytes at a time: Quad, FloatQuad or copy_quad_async(), from "
            "addresses that the compiler knows to be multiples of 16")
COLUMNS = [
    Column("threads", EXACT, "threads of a block", "launches.cpp prints the class's kThreads"),
    Column("shared", EXACT, "bytes of shared memory, static and dynamic",
           "the class's kSharedBytes is another"),
    Column("blocks", AT_LEAST, "blocks on a multiprocessor at a time",
           "registers, shared memory or threads of a block have grown"),
    Column("warps", AT_LEAST, "warps on a multiprocessor at a time",
           "registers, shared memory or threads of a block have grown"),
    Column("registers", AT_MOST, "registers of a thread", OF_REGISTERS, 8, 255),
    Column("stack", AT_MOST, "bytes of local memory of a thread", "registers are spilled, or an "
           "array is indexed by what is known at run time alone; " + OF_REGISTERS, 32),
    Column("spills", AT_MOST, "loads from and stores to local memory", OF_REGISTERS, 8),
    Column("loop_spills", AT_MOST, "loads from and stores to local memory in the main loop",
           OF_REGISTERS, 4),
    Column("tensor", EXACT, "instructions of tensor cores",
           "products go by multiply_add() of the kernel's own type"),
    Column("ldmatrix", EXACT, "loads of matrices from shared memory (ldmatrix)",
           "fragments come by load_matrices() and load_transposed()"),
    Column("wide_loads", EXACT, "loads of 128 bits and more from memory", OF_LOADS),
    Column("narrow_loads", AT_MOST, "loads of fewer than 128 bits from memory", OF_LOADS, 8),
    Column("loop_narrow_loads", AT_MOST,
           "loads of fewer than 128 bits from memory in the main loop", OF_LOADS, 8),
    Column("wide_stores", EXACT, "stores of 128 bits and more to memory", OF_LOADS),
    Column("narrow_stores", AT_MOST, "stores of fewer than 128 bits to memory", OF_LOADS, 8),
    Column("loop_narrow_shared", AT_MOST, "loads and stores of fewer than 128 bits in shared "
           "memory in the main loop", "operands of tensor cores come by ldmatrix, tiles by "
           "asynchronous copies", 8),
    Column("loop_barriers", AT_MOST, "barriers of the block in the main loop",
           "each keeps all warps waiting for the slowest one"),
]
# Columns whose values are words.
WORDS = ("tensor", "ldmatrix", "wide_loads", "wide_stores")
BANNER = """\
# tests/contracts/{name}.txt — what the machine code of {code} has to be.
# tests/contracts/{name}.py compares and, by --update, writes this table;
# docs/developer/cuda.md says how to read it. Measured with nvcc {version}.
"""


@dataclass(frozen=True)
class Layout:
    """Of one of the tables: the script that has it, and what it is of."""
    name: str
    code: str
    columns: tuple

    def column(self, name):
        return next(column for column in self.columns if column.name == name)


OF_CUDA_FILES = Layout("machine_code", "src/kernels/cuda/", tuple(COLUMNS))


class Malformed(Exception):
    pass


def write(rows, version, layout=OF_CUDA_FILES):
    """The table's text. rows: {(kernel, architecture): {column: bound}}."""
    columns = layout.columns
    lines = [["kernel", "arch", *(column.name for column in columns)],
             ["#", "", *(column.relation for column in columns)]]
    lines += [[*key, *(str(row[column.name]) for column in columns)] for key, row in rows.items()]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = ["  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip()
             for line in lines]
    banner = BANNER.format(name=layout.name, code=layout.code, version=version)
    return banner + "\n".join(shown) + "\n"


def read(text, layout=OF_CUDA_FILES):
    """(rows, the version of nvcc that they were measured with)"""
    version = re.search(r"Measured with nvcc (\S+?)\.?$", text, re.M)
    lines = [re.split(r" {2,}", line) for line in text.splitlines()
             if line.strip() and not line.startswith("#")]
    names = [column.name for column in layout.columns]
    if not lines or lines[0] != ["kernel", "arch", *names]:
        raise Malformed("its columns are not kernel, arch, " + ", ".join(names))
    rows = {}
    for line in lines[1:]:
        if len(line) != len(lines[0]):
            raise Malformed(f"{len(line)} fields in place of {len(lines[0])}: {'  '.join(line)}")
        try:
            rows[line[0], line[1]] = {
                name: word if name in WORDS else int(word)
                for name, word in zip(names, line[2:])}
        except ValueError as error:
            raise Malformed(f"{line[0]} {line[1]}: {error}") from None
    return rows, version.group(1) if version else None


def bounds(found, layout=OF_CUDA_FILES):
    return {name: layout.column(name).bound(value) for name, value in found.items()}


def compare(found, wanted, layout=OF_CUDA_FILES):
    """Findings: where what was measured is not what the table allows."""
    said = []
    for key in found.keys() | wanted.keys():
        place = f"{key[0]} ({key[1]})"
        if key not in wanted:
            said.append(f"{place}: the table has no line for this kernel")
        elif key not in found:
            said.append(f"{place}: in the table, but no file of {layout.code} has it")
        else:
            said += [f"{place}: {column.name}: {column.what}: found {found[key][column.name]}, "
                     f"wanted {column.relation} {wanted[key][column.name]}; {column.advice}"
                     for column in layout.columns
                     if not column.allows(found[key][column.name], wanted[key][column.name])]
    return sorted(said)


def loose(found, wanted, layout=OF_CUDA_FILES):
    """Lines whose bounds are wider than --update would write them now."""
    return sorted(f"{key[0]} ({key[1]}): {name}: {found[key][name]}, and the table allows {limit}"
                  for key, row in wanted.items() if key in found for name, limit in row.items()
                  if limit != layout.column(name).bound(found[key][name])
                  and layout.column(name).allows(found[key][name], limit))


def judge(found, findings, path, layout, measured_with, mending):
    """Prints what else is wrong than `findings`, with the rows that were found, by the table in
    `path`; and, where something is, how to mend it. Status 0, or 1."""
    findings, notes, version = list(findings), [], None
    try:
        wanted, version = read(path.read_text("utf-8"), layout)
        findings += compare(found, wanted, layout)
        notes = loose(found, wanted, layout)
    except FileNotFoundError:
        findings.append(f"{path.name}: there is no table")
    except Malformed as error:
        findings.append(f"{path.name}: {error}")
    for line in notes:
        print(f"note: {line}: --update makes the table stricter")
    for line in findings:
        print(line)
    print(f"{layout.name}: {len(findings)} finding(s) in {len(found)} kernels (nvcc "
          f"{measured_with}; the table is of nvcc {version})")
    if findings:
        print("Mend the kernel, or, where the new code is meant and measured to be as fast:\n"
              f"  {mending}\n"
              "and say in the commit's message why.")
    return 1 if findings else 0
