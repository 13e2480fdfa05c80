# tests/contracts/measures.py — what the contract speaks of, counted in a kernel's machine code.
import re
from collections import Counter

from occupancy import blocks_per_multiprocessor, static_shared_bytes
from sass import ENDS, find_blocks, find_loops

# Loads and stores by where they go. LD and ST name no kind of memory: what should have been
# known to be global or shared was not.
GLOBAL_LOADS, GLOBAL_STORES = ("LDG", "LDGSTS", "LD"), ("STG", "ST")
SHARED = ("LDS", "STS")
LOCAL = ("LDL", "STL")
# Copies of whole boxes and rows by the unit that Hopper has for it.
BULK_LOADS, BULK_STORES = ("UTMALDG", "UBLKCP.S"), ("UTMASTG", "UTMAREDG", "UBLKCP.G", "UBLKRED")
WIDE = 128
MATRIX_LOADS = ("LDSM",)
TENSOR = ("HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "DMMA", "BMMA", "UTCHMMA")
OPERAND_TYPES = {"BF16": "bf16", "TF32": "tf32", "E4M3": "fp8", "E5M2": "fp8"}
WIDTHS = {"8": 8, "U8": 8, "S8": 8, "16": 16, "U16": 16, "S16": 16, "64": 64, "128": 128,
          "256": 256}


def width(instruction):
    """Bits that one thread moves."""
    return next((WIDTHS[one] for one in instruction.suffixes if one in WIDTHS), 32)


def tensor_kind(instruction):
    """HMMA.bf16 for a product of matrices of bf16 whose sums are float."""
    suffixes = instruction.suffixes
    types = [OPERAND_TYPES[one] for one in suffixes if one in OPERAND_TYPES]
    if instruction.base in ("HMMA", "HGMMA") and not types:
        types = ["fp16"]
    kind = ".".join([instruction.base, *dict.fromkeys(types)])
    is_narrow = instruction.base in ("HMMA", "HGMMA") and "F32" not in suffixes
    return kind + "(sums-fp16)" if is_narrow else kind


def main_loop(instructions):
    """Places of the instructions that a kernel's time goes to: the smallest loop with more than
    half of its instructions of tensor cores, so that the loops of single products inside do not
    hide what is around them; or else all loops, or, where there is none, all of the kernel."""
    loops = find_loops(instructions)
    tensors = {at for at, one in enumerate(instructions) if one.base in TENSOR}
    main = [loop for loop in loops if 2 * len(loop & tensors) > len(tensors)] if tensors else []
    if main:
        return min(main, key=len)
    return set().union(*loops) if loops else set(range(len(instructions)))


def _kinds(names):
    return "+".join(sorted(set(names))) or "-"


def _bulk(instructions, opcodes):
    return [one.base for one in instructions
            if any(one.opcode == name or one.opcode.startswith(name + ".") for name in opcodes)]


def _wide(instructions, bases, bulk):
    return _kinds([f"{one.base}.{width(one)}" for one in instructions
                   if one.base in bases and width(one) >= WIDE] + _bulk(instructions, bulk))


def _narrow(instructions, bases):
    return sum(one.base in bases and width(one) < WIDE for one in instructions)


def _count(instructions, bases):
    return sum(one.base in bases for one in instructions)


ADDRESS = re.compile(r"\[(R\d+)(?:\.\w+)*(?:\+(-?0x[0-9a-f]+))?\]")
WORD = 4  # bytes


def count_split(instructions, bases):
    """Pieces of 16 bytes that are moved by four instructions of a word each, which a compiler
    makes here and there of one assignment: words that are neighbours, from one register on, with
    no jump in between."""
    split = 0
    for begin, (end, _) in find_blocks(instructions).items():
        words = {}
        for one in instructions[begin:end]:
            match = ADDRESS.search(one.operands)
            if one.base in bases and width(one) == 8 * WORD and match:
                words.setdefault(match[1], set()).add(int(match[2] or "0", 16))
        for places in words.values():
            while places:  # the first of a run, and the three behind it
                first = min(places)
                run = {first + i * WORD for i in range(4)}
                split += run <= places
                places -= run if run <= places else {first}
    return split


DESTINATION = re.compile(r"(?:!?U?P[0-9T]+, )?R(\d+)\b")
SOURCE = re.compile(r"^UR\d+, R(\d+)\b")
WRITE_NO_REGISTER = (*GLOBAL_STORES, "STS", "STL", "RED", "BAR", "BRA", *ENDS)


def count_waits(instructions):
    """Numbers that a loop inside a loop loads and moves to a register of the warp (R2UR): it is
    waited for where it is moved, which is right behind the load where nvcc sees that all threads
    load it from one place, however late it is used."""
    loops = find_loops(instructions)
    waits = set()
    for loop in loops:
        if not any(loop < other for other in loops):
            continue  # Kokkos' own one, over the blocks of a grid
        loaded = set()
        for at in sorted(loop):
            one = instructions[at]
            moved = SOURCE.match(one.operands) if one.base == "R2UR" else None
            if moved and int(moved[1]) in loaded:
                waits.add(at)
            to = DESTINATION.match(one.operands)
            if one.base in ("LDG", "LD") and to:
                loaded |= {int(to[1]) + i for i in range(max(1, width(one) // (8 * WORD)))}
            elif to and one.base not in WRITE_NO_REGISTER:
                loaded.discard(int(to[1]))
    return len(waits)


def measure(arch, instructions, resources, launch):
    """A row of the table, by the names of its columns."""
    shared = static_shared_bytes(arch, resources.shared) + launch.shared_bytes
    blocks = blocks_per_multiprocessor(arch, launch.threads, resources.registers, shared)
    hot = [instructions[at] for at in sorted(main_loop(instructions))]
    return {
        "threads": launch.threads,
        "shared": shared,
        "blocks": blocks,
        "warps": blocks * -(-launch.threads // 32),
        "registers": resources.registers,
        "stack": resources.stack,
        "spills": _count(instructions, LOCAL),
        "loop_spills": _count(hot, LOCAL),
        "tensor": _kinds(tensor_kind(one) for one in instructions if one.base in TENSOR),
        "ldmatrix": "yes" if _count(instructions, MATRIX_LOADS) else "no",
        "wide_loads": _wide(instructions, GLOBAL_LOADS, BULK_LOADS),
        "narrow_loads": _narrow(instructions, GLOBAL_LOADS),
        "loop_narrow_loads": _narrow(hot, GLOBAL_LOADS),
        "wide_stores": _wide(instructions, GLOBAL_STORES, BULK_STORES),
        "narrow_stores": _narrow(instructions, GLOBAL_STORES),
        "loop_narrow_shared": _narrow(hot, SHARED),
        "loop_barriers": _count(hot, ("BAR",)),
    }


def divides(instructions, at):
    """Whether the call there is that of a division of numbers of 64 bits: a subroutine, which
    takes the reciprocal of one. A call may be a mere jump, to what ends otherwise."""
    place_of = {one.address: place for place, one in enumerate(instructions)}
    begin = place_of.get(instructions[at].target)
    for one in instructions[begin:] if begin is not None else []:
        if one.base in ENDS:
            return False
        if one.base == "I2F" and "U64" in one.suffixes:
            return True
    return False


def measure_rows(instructions, resources):
    """A row of the table of kernels over rows, whose launches say nothing before they run."""
    loops = find_loops(instructions)
    looping = sorted(set().union(*loops)) if loops else []
    hot = [instructions[at] for at in looping]
    return {
        "registers": resources.registers,
        "stack": resources.stack,
        "loop_spills": _count(hot, LOCAL),
        "loop_divisions": sum(instructions[at].base == "CALL" and divides(instructions, at)
                              for at in looping),
        "wide_loads": _wide(instructions, GLOBAL_LOADS, BULK_LOADS),
        "loop_narrow_loads": _narrow(hot, GLOBAL_LOADS),
        "wide_stores": _wide(instructions, GLOBAL_STORES, BULK_STORES),
        "loop_narrow_stores": _narrow(hot, GLOBAL_STORES),
        "split_loads": count_split(instructions, GLOBAL_LOADS),
        "split_stores": count_split(instructions, GLOBAL_STORES),
        "loop_waits": count_waits(instructions),
    }


def details(instructions):
    """Counts of what moves and multiplies, in all and (in the main loop), for people."""
    hot = main_loop(instructions)
    counts, hot_counts = Counter(), Counter()
    for at, one in enumerate(instructions):
        if one.base in TENSOR:
            name = tensor_kind(one)
        elif one.base in (*GLOBAL_LOADS, *GLOBAL_STORES, *SHARED, *LOCAL):
            name = f"{one.base}.{width(one)}"
        elif one.base in (*MATRIX_LOADS, "BAR", "MUFU"):
            name = one.base
        else:
            continue
        counts[name] += 1
        hot_counts[name] += at in hot
    shown = [f"{name} {counts[name]}({hot_counts[name]})" for name in sorted(counts)]
    return f"instructions {len(instructions)}({len(hot)}) " + " ".join(shown)
