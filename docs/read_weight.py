#!/usr/bin/env python3
"""Reads a whole tensor out of a Trireme checkpoint, whatever ranks wrote it.

    docs/read_weight.py runs/gpt model/layers/0/attention/qkv/weight
    docs/read_weight.py runs/gpt/checkpoints/step_00001000     lists what there is

Needs h5py (Debian: python3-h5py); nothing of Trireme.
"""
import json
import os
import sys

import h5py
import numpy


def index_of(path):
    """The index.h5 of a run, of its `checkpoints`, of one step_* directory or `latest`."""
    for below in ("", "latest", "checkpoints/latest"):
        index = os.path.join(path, below, "index.h5")
        if os.path.exists(index):
            return index
    sys.exit(f"read_weight.py: no checkpoint in '{path}'")


def read(index, name):
    """The tensor, as float32 where it is stored as bfloat16."""
    if name not in index or not isinstance(index[name], h5py.Dataset):
        sys.exit(f"read_weight.py: no tensor '{name}'; without a name, all are listed")
    values = index[name][...]
    if index[name].attrs.get("dtype", b"") in (b"bfloat16", "bfloat16"):
        values = (values.astype("uint32") << 16).view("float32")
    if numpy.issubdtype(values.dtype, numpy.floating) and numpy.isnan(values).any():
        sys.exit(f"read_weight.py: '{name}' has holes: is a shard missing?")
    return values


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with h5py.File(index_of(sys.argv[1]), "r") as index:
        if len(sys.argv) == 2:
            index.visititems(
                lambda name, item: print(name, item.shape)
                if isinstance(item, h5py.Dataset) and item.is_virtual else None)
            return
        values = read(index, sys.argv[2])
        print(json.dumps({"step": int(index.attrs["step"]), "name": sys.argv[2],
                          "shape": values.shape, "sum": float(values.sum(dtype="float64")),
                          "first": values.ravel()[:3].tolist(),
                          "last": values.ravel()[-3:].tolist()}))


if __name__ == "__main__":
    main()
