#!/usr/bin/env python3
"""amx.py — whether what is tested under the label `amx` can run here: status 0, or 77 and why not.

It asks the CPU and Linux, and not the program, whose own answer is among what is tested: where
they have matrix tiles and the program finds none, its tests skip themselves, which ./runtests
takes for a failure."""
import ctypes
import os
import platform
import re
import sys

CANNOT_RUN = 77
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # arch_prctl(2), of x86-64


def flags(cpuinfo):
    found = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def missing(machine, cpuinfo, environment, lends_tiles):
    """What is missing, in words, or None."""
    if machine not in ("x86_64", "AMD64"):
        return f"this is a CPU of another make ({machine})"
    lacking = {"amx_tile", "amx_bf16", "avx512_bf16"} - flags(cpuinfo)
    if lacking:
        return f"this CPU has no matrix tiles (no {', '.join(sorted(lacking))} in /proc/cpuinfo)"
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        isa = environment.get(name, "ALL").upper()
        if isa not in ("ALL", "DEFAULT") and "AMX" not in isa:
            return f"{name}={environment[name]} denies them"
    return None if lends_tiles() else "this Linux lends no matrix tiles to a process (arch_prctl)"


def linux_lends_tiles():
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0


def main():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        why = missing(platform.machine(), file.read(), os.environ, linux_lends_tiles)
    if why is None:
        return 0
    print(why)
    return CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
