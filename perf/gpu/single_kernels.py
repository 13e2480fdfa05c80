"""Predictions of kernels that `gpu_suite tune` measures alone: rows of a call each, for report.py.

Kernels and losses are those of kernel_models.py, as in a step; sizes are in the records.
"""
import functools
import json
import pathlib

import kernel_models as models

INSTRUCTIONS = pathlib.Path(__file__).resolve().parent / "instructions.json"
# Smaller arrays lie in caches, of whose speed nothing is predicted.
BEYOND_CACHES = 256 * 2 ** 20  # bytes


@functools.lru_cache(maxsize=None)
def instructions():
    return json.loads(INSTRUCTIONS.read_text(encoding="utf-8"))["kernels"]


def attention_seconds(machine, shape):
    """{"forward", "both"} of bf16, causal, without dropout; shape is batch, heads, length, head
    size. Nothing of a head size that no kernel has."""
    batch, heads, length, head_size = shape
    entries = [instructions().get(f"attention_{one} bf16 d{head_size}", {}).get(machine.arch)
               for one in ("forward", "backward")]
    if None in entries:
        return {}
    kind = {"queries": length, "keys": length, "causal": True}
    sizes = batch, heads, kind, head_size
    forward = models.attention_forward_seconds(machine, entries[0], *sizes)
    backward = models.attention_backward_seconds(machine, entries[1], *sizes)
    # Row sums of o and d_o, which are read, and one number a row.
    moved = 4 * batch * heads * length * (head_size + 1)
    delta = models.row_seconds(machine, "attention_backward[delta]", 1, moved)
    return {"forward": forward, "both": forward + backward + delta}


def attention_rows(record, machine):
    predicted = attention_seconds(machine, record["shape"]) if machine else {}
    sizes = " x ".join(map(str, record["shape"]))
    for which in ("forward", "both"):
        if which in record:
            yield f"attention, {which}", sizes, predicted.get(which), record[which]


def row_kernel_rows(record, machine):
    moved = 1e9 * record.get("GB/s", 0) * record.get("seconds", 0)
    if moved <= BEYOND_CACHES:
        return
    label = record["name"].partition("<")[0].partition("/")[0]
    predicted = models.row_seconds(machine, label, 1, moved) if machine else None
    yield "a kernel over rows", record["name"], predicted, record["seconds"]


def rows_of(records, machine):
    """(what it is, sizes, predicted, measured), in microseconds a call."""
    for record in records:
        rows = ()
        if record.get("kind") == "attention" and record["by"] == "trireme":
            rows = attention_rows(record, machine)
        elif record.get("kind") == "benchmark":
            rows = row_kernel_rows(record, machine)
        for case, what, predicted, measured in rows:
            yield case, what, predicted and 1e6 * predicted, 1e6 * measured
