"""Predicted and measured, the worst gap first."""
import datetime
import json
import pathlib
import re
import statistics

import history
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


def last_of(records, kind):
    """Of each step, the records of that kind of the last time that it was run."""
    found = {}
    for record in records:
        key = record["part"], record["step"]
        if record.get("kind") == "begin":
            found[key] = []
        elif record.get("kind") == kind:
            found.setdefault(key, []).append(record)
    return [record for records_of_step in found.values() for record in records_of_step]


def last_findings(records):
    return last_of(records, "finding")


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


UNNAMED = "an unnamed commit"
# Kinds of records that say no more than when and how something was run.
NO_RESULTS = ("begin", "end", "facts")


def parts_of_commits(records):
    """Commits that the results are of, in their order -> names of parts. Each call says which it
    is of, before its steps."""
    now, found = {}, {}
    for record in records:
        part = record["part"]
        if record["step"] == "surroundings":
            now[part] = record.get("commit", UNNAMED)
        elif record.get("kind") not in NO_RESULTS:
            parts = found.setdefault(now.get(part, UNNAMED), [])
            if part not in parts:
                parts.append(part)
    return found


MOST_NAMES = 12


def commit_lines(records):
    """Of which commits they are, and which sources of kernels are others now."""
    for commit, parts in parts_of_commits(records).items():
        yield f"Of {commit if commit == UNNAMED else 'commit ' + commit}: {', '.join(parts)}"
        last = max((record["time"] for record in records
                    if record["part"] in parts and "time" in record), default=0)
        names = history.kernels_changed(commit, last) if last else None
        if names:
            more = f" and {len(names) - MOST_NAMES} others" if len(names) > MOST_NAMES else ""
            yield (f"  sources of kernels that were changed since: {', '.join(names[:MOST_NAMES])}"
                   f"{more}: what they compute with may not be what is measured here")


def day(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d")


def age_lines(records):
    """Whether what stands beside the results is newer than they are."""
    times = [record["time"] for record in records
             if "time" in record and record.get("kind") not in NO_RESULTS]
    if not times:
        return
    first, last = min(times), max(times)
    when = f"{day(first)} to {day(last)}" if day(first) != day(last) else day(first)
    yield f"Measured: {when}"
    changed = history.predictions_changed()
    if changed is None:
        yield "Nobody knows here whether the predictions are older"
    elif changed > first:
        yield (f"The predictions are newer ({day(changed)}): they may have been corrected by "
               "these results, and be of other kernels")


def failure_lines(records):
    """What the first test that failed in each process said."""
    for record in last_of(records, "failure"):
        yield f"{record['step']:<32} {record['test']}"
        yield from (f"    {line}" for line in record["text"].splitlines())


def text_of(records, predictions):
    gpu = gpu_of(records) or "no GPU is named in the results"
    _, cases = predicted_of(gpu, predictions)
    failures = list(failure_lines(records))
    parts = [[f"GPU: {gpu}"], commit_lines(records), age_lines(records),
             ["", "Predicted and measured, the worst gap first: µs a token, of kernels alone µs a "
              "call", ""],
             gap_lines(records, predictions), ["", "Findings", ""], finding_lines(records, cases),
             ["", "What the first failures said", "", *failures] if failures else [],
             ["", "Steps", ""], step_lines(records)]
    return "\n".join(line for part in parts for line in part) + "\n"


def failed(records):
    """Whether anything was found not to hold, or a step failed the last time."""
    ends = {(record["part"], record["step"]): record.get("status") for record in records
            if record.get("kind") in ("begin", "end")}
    return (any(record.get("holds") is False for record in last_findings(records))
            or any(status not in ("done", "missing") for status in ends.values()))
