# tests/contracts/occupancy.py — how many blocks of a kernel a multiprocessor holds at a time,
# from registers, shared memory and threads (CUDA C++ Programming Guide, "Compute
# Capabilities"; the rules are those of cuda_occupancy.h).
from dataclasses import dataclass


@dataclass(frozen=True)
class Multiprocessor:
    shared_bytes: int        # of all blocks
    block_shared_bytes: int  # of one block, which asks for more than 48 KiB
    registers: int = 65536
    partitions: int = 4  # each has its share of the registers, and warps of its own
    warps: int = 64
    blocks: int = 32
    register_unit: int = 256  # what a warp's registers are given out in
    shared_unit: int = 128
    reserved_shared_bytes: int = 1024  # of every block, for the system
    lists_reserved: bool = False  # whether cuobjdump counts these, where a kernel shares memory


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(164 << 10, 163 << 10),
    "sm_90a": Multiprocessor(228 << 10, 227 << 10, lists_reserved=True),
}


def round_up(value, unit):
    return -(-value // unit) * unit


def static_shared_bytes(arch, listed):
    """Of what cuobjdump lists, what the kernel itself declares."""
    of = MULTIPROCESSORS[arch]
    is_part = of.lists_reserved and listed >= of.reserved_shared_bytes
    return listed - of.reserved_shared_bytes if is_part else listed


def blocks_per_multiprocessor(arch, threads, registers, shared_bytes):
    """0 where such a block cannot be launched at all. shared_bytes: static and dynamic."""
    of = MULTIPROCESSORS[arch]
    warps = round_up(threads, 32) // 32
    if shared_bytes > of.block_shared_bytes:
        return 0
    of_warp = round_up(max(registers, 1) * 32, of.register_unit)
    warps_of_registers = of.registers // of.partitions // of_warp * of.partitions
    of_block = round_up(shared_bytes + of.reserved_shared_bytes, of.shared_unit)
    return min(of.blocks, of.warps // warps, warps_of_registers // warps,
               of.shared_bytes // of_block)
