"""Reads the tensors of a checkpoint with nothing but Python: for comparing bytes."""
import json
import math


class Failure(Exception):
    """A program did not do what both are to do; what it said is in the message."""


def tensors_of(checkpoint):
    """Every tensor whole, from the blocks of the shards, whatever these are."""
    manifest = json.loads((checkpoint / "manifest.json").read_text("utf-8"))
    files = [(checkpoint / file["name"]).read_bytes() for file in manifest["files"]]
    tensors = manifest["tensors"]
    wholes = [bytearray(4 * math.prod(tensor["shape"])) for tensor in tensors]
    for block in manifest["blocks"]:
        tensor, whole = tensors[block["tensor"]], wholes[block["tensor"]]
        if tensor["dtype"] != "float32":
            raise Failure(f"{tensor['name']} is of {tensor['dtype']}; float32 is compared")
        # A rectangle: a tensor of one dimension is one row of its elements.
        columns = tensor["shape"][-1]
        rows = math.prod(block["shape"][:-1])
        top = block["start"][0] if len(tensor["shape"]) > 1 else 0
        bytes_of_row = 4 * block["shape"][-1]
        for row in range(rows):
            to = 4 * ((top + row) * columns + block["start"][-1])
            at = block["offset"] + row * bytes_of_row
            whole[to:to + bytes_of_row] = files[block["file"]][at:at + bytes_of_row]
    return {tensor["name"]: bytes(whole) for tensor, whole in zip(tensors, wholes)}
