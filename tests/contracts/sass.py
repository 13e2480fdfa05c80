# tests/contracts/sass.py — reads what cuobjdump prints of a CUDA object: of each kernel the
# instructions, which of them are in loops, and the resources it asks for. No CUDA is needed.
#
# The instruction set has no public reference beyond a list of its opcodes ("CUDA Binary
# Utilities"). What is read here is the opcode with its suffixes, and where jumps go.
import re
from dataclasses import dataclass

INSTRUCTION = re.compile(
    r"^\s+/\*(?P<address>[0-9a-f]{4,})\*/\s+\{?\s*(?:@(?P<guard>!?U?P[0-9T]+)\s+)?"
    r"(?P<opcode>[A-Z][A-Za-z0-9_.]*)\s*(?P<operands>[^;]*?)\s*;", re.M)
FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$", re.M)
RESOURCES = re.compile(r"^ *Function (\S+):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)", re.M)
TARGET = re.compile(r"0x([0-9a-f]+)$")
NEVER = ("!PT", "!UPT")
# A call may be that of a subroutine, which comes back, or a mere jump.
BRANCHES = ("BRA", "BRX", "JMP", "JMX")
JUMPS = (*BRANCHES, "CALL")
ENDS = ("EXIT", "RET")


@dataclass
class Instruction:
    address: int
    opcode: str  # with its suffixes: LDG.E.128
    operands: str
    is_guarded: bool = False

    @property
    def base(self):
        return self.opcode.split(".")[0]

    @property
    def suffixes(self):
        return self.opcode.split(".")[1:]

    @property
    def target(self):
        """The address that a jump names; None where there is none."""
        match = TARGET.search(self.operands)
        return int(match.group(1), 16) if match else None


@dataclass
class Resources:
    registers: int
    stack: int
    shared: int  # static


def read_functions(text):
    """cuobjdump -sass: mangled name -> instructions, in the order of their addresses."""
    found = {}
    starts = list(FUNCTION.finditer(text))
    for start, following in zip(starts, [*starts[1:], None]):
        body = text[start.end():following.start() if following else len(text)]
        # Compilers pad with instructions whose predicate is never true.
        found[start.group(1)] = [
            Instruction(int(match["address"], 16),
                        "NOP" if match["guard"] in NEVER else match["opcode"], match["operands"],
                        match["guard"] is not None)
            for match in INSTRUCTION.finditer(body)]
    return found


def read_resources(text):
    """cuobjdump -res-usage: mangled name -> Resources."""
    return {match.group(1): Resources(*(int(match.group(i)) for i in (2, 3, 4)))
            for match in RESOURCES.finditer(text)}


def read_launch_bounds(text):
    """cuobjdump -elf: mangled name -> threads that __launch_bounds__ allows a block."""
    found = {}
    parts = re.split(r"^\.nv\.info\.(\S+)\s*$", text, flags=re.M)
    for name, body in zip(parts[1::2], parts[2::2]):
        body = re.split(r"^\.(?!nv\.info)\w", body, maxsplit=1, flags=re.M)[0]
        match = re.search(r"EIATTR_(?:MAX_THREADS|REQNTID)\s+Format:\s*\S+\s+"
                          r"Value:\s*0x(\w+) 0x(\w+) 0x(\w+)", body)
        if match:
            x, y, z = (int(part, 16) for part in match.groups())
            found[name] = x * y * z
    return found


# ---- loops

def find_blocks(instructions):
    """Where blocks of instructions without jumps begin -> (where it ends, who may follow)."""
    place_of = {one.address: at for at, one in enumerate(instructions)}
    begins = {0}
    for at, one in enumerate(instructions):
        if one.base in JUMPS and one.target in place_of:
            begins.add(place_of[one.target])
        if one.base in (*JUMPS, *ENDS) and at + 1 < len(instructions):
            begins.add(at + 1)
    begins = sorted(begins)
    blocks = {}
    for begin, end in zip(begins, [*begins[1:], len(instructions)]):
        last = instructions[end - 1]
        to = [place_of[last.target]] if last.base in JUMPS and last.target in place_of else []
        # A second predicate may be among a branch's operands.
        goes_on = last.is_guarded or "," in last.operands or last.base not in (*BRANCHES, *ENDS)
        if goes_on and end < len(instructions):
            to.append(end)
        blocks[begin] = end, list(dict.fromkeys(to))
    return blocks


def _order(blocks):
    """The blocks that are reached from the first one, each before what only it leads to."""
    left, seen = [], {0}
    stack = [(0, iter(blocks[0][1]))]
    while stack:
        block, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            left.append(block)
            stack.pop()
        elif following not in seen:
            seen.add(following)
            stack.append((following, iter(blocks[following][1])))
    return left[::-1]


def _graph(instructions):
    """find_blocks() and _order(), of each block in it who leads there and what every way passes."""
    blocks = find_blocks(instructions)
    order = _order(blocks)
    before = {block: [] for block in order}
    for block in order:
        for following in blocks[block][1]:
            before[following].append(block)
    passed = {block: set(order) for block in order}
    passed[0] = {0}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            common = set.intersection(*(passed[one] for one in before[block])) | {block}
            changed |= common != passed[block]
            passed[block] = common
    return blocks, order, before, passed


def _places(blocks, members):
    return {at for block in members for at in range(block, blocks[block][0])}


def find_loops(instructions):
    """Natural loops (Aho, Lam, Sethi, Ullman, section 9.6), those with one head as one: sets of
    places of instructions. A subroutine that is called in a loop is no part of it."""
    if not instructions:
        return []
    blocks, order, before, passed = _graph(instructions)
    loops = {}
    for block in order:
        for head in set(blocks[block][1]) & passed[block]:
            members, stack = loops.setdefault(head, {head}), [block]
            while stack:
                one = stack.pop()
                if one not in members:
                    members.add(one)
                    stack += before[one]
    return [_places(blocks, members) for members in loops.values()]


def find_choices(instructions):
    """Of each branch with two ways on, the places of instructions that only the one, and only
    the other, leads to: pairs of sets."""
    if not instructions:
        return []
    blocks, order, before, passed = _graph(instructions)
    choices = []
    for block in order:
        ways = blocks[block][1]
        if len(ways) == 2:
            choices.append(tuple(
                _places(blocks, [one for one in order if way in passed[one]]
                        if all(one == block or way in passed[one] for one in before[way])
                        else [])
                for way in ways))
    return choices
