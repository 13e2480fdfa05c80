"""Predicted and measured, the worst gap first."""
import json
import pathlib
import re
import statistics

import machines
import single_kernels

HERE = pathlib.Path(__file__).resolve().parent
PREDICTIONS = HERE / "predictions.json"


def read_predictions(path=PREDICTIONS):
    return json.loads(path.read_text(encoding="utf-8"))


def gpu_of(records):
    """The name by which the driver calls the GPU that the results are of."""
    return next((record["gpu"]["name"] for record in records
                 if isinstance(record.get("gpu"), dict) and "name" in record["gpu"]), None)


def measured_values(records):
    """(case, what) -> values, of records of the kind "measured": what is a kernel's name, or
    "step" for the whole of it, in microseconds a token."""
    found = {}
    for record in records:
        if record.get("kind") == "measured":
            key = record["case"], record["what"]
            found.setdefault(key, []).append(record["us_per_token"])
    return found


def predicted_value(cases, case, what):
    if case not in cases:
        return None
    if what in ("step", "token"):
        return cases[case]["us_per_token"]
    what = what.removeprefix("torch: ")  # the same product by another program
    values = [kernel["us_per_token"] for kernel in cases[case]["kernels"]
              if kernel["kernel"] == what
              or (what == "all products" and kernel["group"] in ("products", "head"))]
    return sum(values) if values else None


def peak_rows(records, machine):
    """What the GPU was measured to be able to do, beside what was assumed of it."""
    for record in records:
        if record.get("kind") == "peak":
            predicted = getattr(machine, record["what"]) if machine else None
            gap = record["value"] / predicted - 1 if predicted else None
            yield "peak", record["what"], predicted, record["value"], gap


def predicted_of(gpu, predictions):
    """The Machine that a driver's name means, and what is predicted of it, if anything."""
    machine = machines.machine_of(gpu) if gpu else None
    return machine, predictions.get(machine.name, {}) if machine else {}


def gaps(records, predictions):
    """Rows (case, what, predicted, measured, gap): measured over predicted less one, the
    farthest from it first; what has no prediction comes last, with None."""
    machine, cases = predicted_of(gpu_of(records), predictions)
    rows = list(peak_rows(records, machine))
    for case, what, predicted, measured in single_kernels.rows_of(records, machine):
        rows.append((case, what, predicted, measured,
                     measured / predicted - 1 if predicted else None))
    for (case, what), values in measured_values(records).items():
        measured = statistics.median(values)
        predicted = predicted_value(cases, case, what)
        gap = measured / predicted - 1 if predicted else None
        rows.append((case, what, predicted, measured, gap))
    return sorted(rows, key=lambda row: (row[4] is None, -abs(row[4] or 0), row[0], row[1]))


def gap_lines(records, predictions):
    yield f"{'case':<28} {'what':<44} {'predicted':>10} {'measured':>10} {'gap':>8}"
    for case, what, predicted, measured, gap in gaps(records, predictions):
        said = "-" if predicted is None else f"{predicted:.4g}"
        share = "-" if gap is None else f"{100 * gap:+.0f} %"
        yield f"{case:<28} {what:<44} {said:>10} {measured:>10.4g} {share:>8}"


def step_lines(records):
    """How each step of each part ended, the last time it was run."""
    ends = {}
    for record in records:
        if record.get("kind") in ("begin", "end"):
            status = record.get("status", "cut off")
            ends[record["part"], record["step"]] = (status, record.get("seconds"),
                                                    record.get("tail", []))
    for (part, step), (status, seconds, tail) in ends.items():
        took = "" if seconds is None else f"{seconds:.0f} s"
        yield f"{part:<8} {step:<32} {status:<8} {took}".rstrip()
        if status != "done":
            yield from (f"    {line}" for line in tail[-5:])


def last_findings(records):
    """Of each step, what was found the last time it was run."""
    found = {}
    for record in records:
        key = record["part"], record["step"]
        if record.get("kind") == "begin":
            found[key] = []
        elif record.get("kind") == "finding":
            found.setdefault(key, []).append(record)
    return [record for records_of_step in found.values() for record in records_of_step]


# What is found of a case, and what of it is predicted.
PREDICTED_SHARES = ((re.compile(r"(.*): share of the measured GEMM peak"), "{}", "share_of_peak"),
                    (re.compile(r"(.*): decoding, share of reading the weights"), "decoding {}",
                     "share_of_weights"))


def predicted_share(cases, what):
    """Of a finding that is a share, or None."""
    for pattern, name, key in PREDICTED_SHARES:
        found = pattern.fullmatch(what)
        if found:
            return cases.get(name.format(found[1]), {}).get(key)
    return None


def finding_lines(records, cases):
    """What was found to be so or not, and what was predicted of it."""
    for record in last_findings(records):
        verdict = {True: "yes", False: "NO", None: ""}[record.get("holds")]
        value = record.get("value")
        share = predicted_share(cases, record["what"])
        said = "" if share is None else f"(predicted {share:.3g})"
        yield " ".join(filter(None, (f"{record['step']:<32} {record['what']:<60}",
                                     "" if value is None else str(value), said, verdict)))


def text_of(records, predictions):
    gpu = gpu_of(records) or "no GPU is named in the results"
    _, cases = predicted_of(gpu, predictions)
    parts = [[f"GPU: {gpu}"],
             ["", "Predicted and measured, the worst gap first: µs a token, of kernels alone µs a "
              "call", ""],
             gap_lines(records, predictions), ["", "Findings", ""], finding_lines(records, cases),
             ["", "Steps", ""], step_lines(records)]
    return "\n".join(line for part in parts for line in part) + "\n"


def failed(records):
    """Whether anything was found not to hold, or a step failed the last time."""
    ends = {(record["part"], record["step"]): record.get("status") for record in records
            if record.get("kind") in ("begin", "end")}
    return (any(record.get("holds") is False for record in last_findings(records))
            or any(status not in ("done", "missing") for status in ends.values()))
