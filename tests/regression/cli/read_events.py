#!/usr/bin/env python3
"""What TensorBoard makes of a directory of event files: {tag: [[step, value], ...]} as JSON.

    read_events.py DIRECTORY

Read by both of TensorBoard's accumulators, that for scripts and that of its own server, which
must agree. Values that are not finite are the texts nan, inf and -inf.
"""
import json
import logging
import math
import os
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]
DEPS = Path(os.environ.get("TRIREME_DEPS", TREE / ".deps"))
sys.path.insert(0, str(DEPS / "tensorboard"))

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    from tensorboard.util import tensor_util
except ImportError as error:
    sys.exit(f"{error} ({sys.executable}). TensorBoard's package, python3-protobuf and "
             "python3-absl are what tools/bootstrap --tests installs")


def plain(value):
    value = float(value)
    return value if math.isfinite(value) else str(value)


def curves_of_scripts(directory):
    events = event_accumulator.EventAccumulator(
        directory, size_guidance=event_accumulator.STORE_EVERYTHING_SIZE_GUIDANCE).Reload()
    return {tag: [[point.step, plain(point.value)] for point in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]}


def curves_of_server(directory):
    events = plugin_event_accumulator.EventAccumulator(
        directory, size_guidance={plugin_event_accumulator.TENSORS: 0}).Reload()
    return {tag: [[point.step, plain(tensor_util.make_ndarray(point.tensor_proto).item())]
                  for point in events.Tensors(tag)]
            for tag in events.Tags()["tensors"]
            if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"}


def main():
    logging.disable(logging.WARNING)  # each purge is one
    curves = curves_of_scripts(sys.argv[1])
    if curves_of_server(sys.argv[1]) != curves:
        sys.exit("TensorBoard's two accumulators read different curves")
    json.dump(curves, sys.stdout)


main()
