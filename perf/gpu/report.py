"""Predicted and measured, the worst gap first."""
import json
import pathlib
import statistics

import machines

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
    if what == "step":
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


def gaps(records, predictions):
    """Rows (case, what, predicted, measured, gap): measured over predicted less one, the
    farthest from it first; what has no prediction comes last, with None."""
    gpu = gpu_of(records)
    machine = machines.machine_of(gpu) if gpu else None
    cases = predictions.get(machine.name, {}) if machine else {}
    rows = list(peak_rows(records, machine))
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


def finding_lines(records):
    """What was found to be so or not, and numbers without a prediction."""
    for record in last_findings(records):
        verdict = {True: "yes", False: "NO", None: ""}[record.get("holds")]
        value = record.get("value")
        yield (f"{record['step']:<32} {record['what']:<60} "
               f"{'' if value is None else value} {verdict}").rstrip()


def text_of(records, predictions):
    gpu = gpu_of(records) or "no GPU is named in the results"
    parts = [[f"GPU: {gpu}"], ["", "Predicted and measured, µs a token, the worst gap first", ""],
             gap_lines(records, predictions), ["", "Findings", ""], finding_lines(records),
             ["", "Steps", ""], step_lines(records)]
    return "\n".join(line for part in parts for line in part) + "\n"


def failed(records):
    """Whether anything was found not to hold, or a step failed the last time."""
    ends = {(record["part"], record["step"]): record.get("status") for record in records
            if record.get("kind") in ("begin", "end")}
    return (any(record.get("holds") is False for record in last_findings(records))
            or any(status not in ("done", "missing") for status in ends.values()))
