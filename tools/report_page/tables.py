# tools/report_page/tables.py — every number of the page as a table: formatted in the page, as it
# is in a CSV file. A table is made of efficiency.json by one function each; docs/efficiency.md
# says what its fields mean.
import csv
import io
import math

from report_page import words
from report_page.run_files import is_number

FORMATS = {
    "text": lambda value: "" if value is None else str(value),
    "name": lambda value: words.label(str(value)),
    "whole": lambda value: "" if value is None else f"{value:,.0f}",
    "number": lambda value: "" if value is None else words.number(value),
    "times": lambda value: "" if value is None else f"{value:.2f}",
    "share": lambda value: "" if value is None else words.share(value),
    "seconds": lambda value: "" if value is None else words.seconds(value),
    "size": lambda value: "" if value is None else words.size(value),
    "size_rate": lambda value: "" if value is None else words.rate(value, "B/s"),
    "flops": lambda value: "" if value is None else words.rate(value, "FLOP"),
    "flop_rate": lambda value: "" if value is None else words.rate(value, "FLOP/s"),
}


SMALLEST_LOSS = 0.0005  # of all time: what is less would stand as 0.0 %


UNKNOWN_END = "killed, or trains still"  # of a start that has written none


class Table:
    """columns: (name in CSV, heading, format); rows: values as they are. In the page only the
    first `shown` rows stand (0: none, it is for CSV), of the first `shown_columns`."""

    def __init__(self, slug, title, columns, rows, note="", shown=None, shown_columns=None):
        self.slug, self.title, self.columns, self.rows = slug, title, columns, rows
        self.note, self.shown, self.shown_columns = note, shown, shown_columns

    def csv(self):
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([name for name, _, _ in self.columns])
        for row in self.rows:
            writer.writerow(["" if value is None else value for value in row])
        return out.getvalue()

    def texts(self):
        """The rows that stand in the page, as they do."""
        rows = self.rows if self.shown is None else self.rows[:self.shown]
        columns = self.columns[:self.shown_columns]
        return [[FORMATS[kind](value) for value, (_, _, kind) in zip(row, columns)]
                for row in rows]


def quotient(numerator, denominator):
    return numerator / denominator if denominator else None


def identity(efficiency):
    rows = [(factor["name"], factor["value"], factor["numerator"], factor["denominator"])
            for factor in efficiency["identity"]["factors"]]
    rows.append(("goodput", efficiency["identity"]["goodput"], "model_flops", "capacity"))
    return Table("identity", "The identity: goodput is the product of the factors", (
        ("factor", "factor", "name"), ("value", "value", "share"),
        ("numerator", "numerator", "name"), ("denominator", "denominator", "name")), rows)


def quantities(efficiency):
    amounts = efficiency["identity"]["quantities_flops"]
    rows = [(name, flops, quotient(flops, amounts["capacity"]))
            for name, flops in sorted(amounts.items(), key=lambda item: -item[1])]
    return Table("quantities", "Quantities of the identity", (
        ("quantity", "quantity", "name"), ("flops", "FLOPs", "flops"),
        ("share_of_capacity", "of capacity", "share")), rows, shown=0)


def largest_losses(efficiency):
    """Those that show, largest first; older programs put some at the end."""
    return sorted((loss for loss in efficiency["losses"]
                   if abs(loss["share"]) >= SMALLEST_LOSS), key=lambda loss: -loss["share"])


def losses(efficiency):
    rows = [(loss["name"], loss["share"], loss["rank"], loss["stage"], loss["advice"])
            for loss in largest_losses(efficiency)]
    return Table("losses", "Losses, and what to try", (
        ("loss", "loss", "name"), ("share", "of all time", "share"), ("rank", "rank", "text"),
        ("stage", "stage", "text"), ("advice", "what to try", "text")), rows,
        "Largest first. A rank and stage stand where one stands out.")


def pop(efficiency):
    rows = list(efficiency["pop"].items())
    return Table("pop", "Efficiencies of POP", (
        ("efficiency", "efficiency", "text"), ("value", "value", "share")), rows, shown=0)


def names_of_parts(rows):
    """Of `this_start`, without those that nobody spent time in."""
    names = rows[0]["seconds"] if rows else []
    return [name for name in names if any(row["seconds"][name] for row in rows)]


def parts_of(rows, key):
    """(columns, rows) of the parts of `this_start`."""
    names = names_of_parts(rows)
    columns = [(key, key, "text")] + [(f"{name}_seconds", words.label(name), "seconds")
                                      for name in names]
    return columns, [[row[key]] + [row["seconds"][name] for name in names] for row in rows]


def extremes_of(row, name):
    """{"least", "most", "rank_most"} of a part of a stage's ranks; {} where none are known."""
    return (row.get("extremes") or {}).get(name) or {}


def stages(efficiency):
    listed = efficiency["this_start"]["stages"]
    columns, rows = parts_of(listed, "stage")
    means, note = len(columns), ""
    for name in names_of_parts(listed):
        if not any(extremes_of(row, name) for row in listed):
            continue
        note = "The least and the most of each stage's ranks are in the CSV file."
        for field, what, kind in (("least", "least_seconds", "seconds"),
                                  ("most", "most_seconds", "seconds"),
                                  ("rank_most", "rank_most", "text")):
            columns.append((f"{name}_{what}", f"{words.label(name)}, {words.label(field)}", kind))
            for row, values in zip(listed, rows):
                values.append(extremes_of(row, name).get(field))
    return Table("stages", "Seconds of a step by stage (mean of its ranks)", columns, rows, note,
                 shown_columns=means)


def ranks(efficiency):
    columns, rows = parts_of(efficiency["this_start"]["ranks"], "rank")
    return Table("ranks", "Seconds of a step by rank", columns, rows, shown=0)


def parts(efficiency):
    spent = efficiency["device_seconds"]
    named = {"set_up": spent["set_up"], **spent["parts"],
             **{name: axis["device_seconds"] for name, axis in spent["messages"].items()}}
    rows = [(name, seconds, quotient(seconds, spent["all"]))
            for name, seconds in sorted(named.items(), key=lambda item: -item[1]) if seconds]
    return Table("parts", "Device seconds of all starts", (
        ("part", "part", "name"), ("device_seconds", "device seconds", "seconds"),
        ("share", "of all", "share")), rows, shown=0)


def kernels(efficiency):
    rows = []
    for row in efficiency["kernels"]["classes"]:
        flops = row["flops_needed"] or None
        rows.append((row["name"], row["calls"], flops, row["bytes"], row["seconds"],
                     flops and quotient(flops, row["seconds"]),
                     quotient(row["bytes"], row["seconds"]),
                     flops and quotient(flops, row["bytes"]), row["bound"],
                     row["share_of_bound"]))
    return Table("kernels", "Kernels by class, of a step and rank", (
        ("class", "class", "text"), ("calls", "calls", "number"),
        ("flops_needed", "FLOPs", "flops"), ("bytes", "bytes", "size"),
        ("seconds", "time", "seconds"), ("flops_per_second", "FLOP/s", "flop_rate"),
        ("bytes_per_second", "bytes/s", "size_rate"),
        ("flops_per_byte", "FLOPs a byte", "number"), ("bound", "bound by", "text"),
        ("share_of_bound", "share of the bound", "share")), rows)


def split_of(axis):
    """(lateness, transfer) in device seconds, as in the steps whose messages were sampled;
    (None, None) where none were."""
    skew, transfer = axis["sampled_skew_seconds"], axis["sampled_transfer_seconds"]
    if skew + transfer <= 0:
        return None, None
    late = axis["device_seconds"] * skew / (skew + transfer)
    return late, axis["device_seconds"] - late


def probed_rates(efficiency):
    """{axis: bytes a second of payload that the probe of the links reached}"""
    return {link["axis"]: link["payload_bytes_per_second"]
            for link in efficiency["machine"].get("links", [])}


def messages(efficiency):
    rows, probed = [], probed_rates(efficiency)
    for name, axis in efficiency["device_seconds"]["messages"].items():
        if not axis["device_seconds"] and not axis["calls"]:
            continue
        late, transfer = split_of(axis)
        rows.append((name, axis["calls"], axis["bytes"], axis["device_seconds"], late, transfer,
                     quotient(axis["bytes"], axis["device_seconds"]) or None,
                     quotient(axis["bytes"], transfer or 0) or None, probed.get(name)))
    if not any(row[1] for row in rows):
        return None
    rows.sort(key=lambda row: -row[3])
    return Table("messages", "Communication by axis, of all starts and ranks", (
        ("axis", "axis", "text"), ("calls", "calls", "whole"), ("bytes", "bytes", "size"),
        ("device_seconds", "device seconds", "seconds"),
        ("late_seconds", "of that waiting for who is late", "seconds"),
        ("transfer_seconds", "transfer", "seconds"),
        ("bytes_per_second", "bytes a device second", "size_rate"),
        ("bytes_per_transfer_second", "bytes a second of transfer", "size_rate"),
        ("probed_bytes_per_second", "by the probe", "size_rate")), rows,
        "Bytes are payload. Lateness and transfer are split as in the steps whose messages "
        "were sampled; a message that hides behind kernels takes no device seconds. The probe "
        "(run.probe: true) sent 8 MiB at a time along each axis before the first step.")


def sites(efficiency):
    rows = [(site["axis"], site["site"], site["operation"], site["ranks"], site["calls"],
             site["bytes"]) for site in efficiency["this_start"]["messages"]]
    if not rows:
        return None
    return Table("sites", "Communication by site, of the last start", (
        ("axis", "axis", "text"), ("site", "site", "text"), ("operation", "operation", "text"),
        ("ranks", "ranks", "whole"), ("calls", "calls", "whole"), ("bytes", "bytes", "size")),
        rows, "Of all ranks that send there, validations included. A site is the place in the "
        "step that asks for the message.", shown=12)


# In which axes of the grid the ranks of a group differ.
AXES_WITHIN = {"tensor": ("tensor",), "context": ("context",), "gradient": ("data", "context"),
               "pipeline": ("pipeline",), "tied": ("pipeline",), "model": ("tensor", "pipeline")}


GRID_AXES = ("tensor", "context", "data", "pipeline")


def coordinates(run):
    """Of each rank, {axis: coordinate}: the first axis of the order has stride 1."""
    grid, ranks = run["grid"], [{}]
    degrees = [grid[axis] for axis in GRID_AXES]
    if sorted(grid["order"]) != sorted(GRID_AXES) or min(degrees) < 1 or \
            math.prod(degrees) != run["devices"]:
        raise ValueError(f"the grid is not one of {run['devices']} ranks")
    for axis in reversed(grid["order"]):
        ranks = [{**rank, axis: place} for rank in ranks for place in range(grid[axis])]
    return ranks


def has_chunks(efficiency):
    return (efficiency["pipeline"] or {}).get("chunks", 1) > 1


def knows_neighbours(efficiency):
    """Whether the last stage of a pipeline is a neighbour of the first is known with its
    chunks, at the end of a start; of two stages it is in any case."""
    return efficiency["pipeline"] is not None or efficiency["run"]["grid"]["pipeline"] <= 2


def tied_stages(efficiency):
    """The stages that hold a copy of a tied parameter. Of two stages both do; of more an older
    program did not write which, and KeyError says so."""
    about = efficiency["run"]
    stages = about["grid"]["pipeline"]
    return about["tied_stages"] if stages > 2 else list(range(stages))


def matrix(efficiency):
    """Bytes a step from each rank to each other, rows by the sender: what an axis sends is
    shared out evenly to the pairs of its groups, of a pipeline to neighbouring stages, of tied
    parameters to the stages that hold them. Sites would not do: their messages are also those
    of validations."""
    places = coordinates(efficiency["run"])
    steps, count = efficiency["steps"], len(places)
    sent = [[0.0] * count for _ in places]
    for axis, sums in efficiency["device_seconds"]["messages"].items():
        if not steps or not sums["bytes"]:
            continue
        within = AXES_WITHIN[axis]
        holders = tied_stages(efficiency) if axis == "tied" else None
        last = efficiency["run"]["grid"]["pipeline"] - 1

        def sends(one, other):
            same = all(one[name] == other[name] for name in one if name not in within)
            if not same or one == other:
                return False
            if holders is not None:
                return one["pipeline"] in holders and other["pipeline"] in holders
            away = abs(one["pipeline"] - other["pipeline"])
            return axis != "pipeline" or away == 1 or (has_chunks(efficiency) and away == last)

        pairs = [(i, j) for i, one in enumerate(places) for j, other in enumerate(places)
                 if sends(one, other)]
        for i, j in pairs:
            sent[i][j] += sums["bytes"] / steps / len(pairs)
    return sent


def memory(efficiency):
    rows = [(name, row["bytes_planned"] or None, row["bytes_min"], row["bytes_avg"],
             row["bytes_max"]) for name, row in efficiency["memory"].items()]
    return Table("memory", "Memory of a rank by category", (
        ("category", "category", "text"), ("bytes_planned", "planned", "size"),
        ("bytes_min", "least of the ranks", "size"), ("bytes_avg", "mean", "size"),
        ("bytes_max", "most", "size")), rows,
        "Planned is the rank with most. Process is all that the system gave, libraries "
        "included; nothing is planned of it.")


def memory_of_stages(efficiency):
    """[(stage, planned, most measured)] of all that is planned, in bytes of a rank."""
    rows = []
    for stage in efficiency["this_start"]["stages"]:
        planned = [row for name, row in stage["memory"].items()
                   if row["bytes_planned"] and name != "device"]
        rows.append((stage["stage"], sum(row["bytes_planned"] for row in planned),
                     sum(row["bytes_max"] for row in planned)))
    return rows if any(planned for _, planned, _ in rows) else []


def stage_memory(efficiency):
    rows = memory_of_stages(efficiency)
    if len(rows) < 2:
        return None
    return Table("stage_memory", "Memory of a rank by stage", (
        ("stage", "stage", "whole"), ("bytes_planned", "planned", "size"),
        ("bytes_max", "measured", "size")), rows,
        "The rank with most of each category, and all categories that are planned.", shown=0)


def histogram(efficiency):
    rows = [(row["seconds_from"], row["seconds_to"], row["steps"])
            for row in efficiency["step_histogram"]]
    return Table("step_times", "How long steps took", (
        ("seconds_from", "from", "seconds"), ("seconds_to", "to", "seconds"),
        ("steps", "steps", "whole")), rows, shown=0)


OF_EFFICIENCY = (identity, quantities, losses, pop, parts, stages, ranks, kernels, messages,
                 sites, memory, stage_memory, histogram)


def progress(run):
    columns = ("step", "tokens", "loss", "lr", "grad_norm", "seconds", "tokens_per_second",
               "model_tflops")
    rows = [[record.get(name) for name in columns] for record in run.steps]
    return Table("progress", "Records of steps",
                 [(name, words.label(name), "number") for name in columns], rows, shown=0)


def validations(run):
    columns = ("step", "name", "loss")
    rows = [[record.get(name) for name in columns] for record in run.validations]
    return Table("validations", "Validations",
                 [(name, name, "text") for name in columns], rows, shown=0)


def starts(run):
    """A row for each start: where it began, and what became of it."""
    rows = {}
    for event in run.starts:
        row = rows.setdefault(event["start"], dict.fromkeys(
            ("began", "step", "ended", "end"), None))
        if event.get("event") == "began":
            row["began"], row["step"] = event["time"], event["step"]
            row["end"] = UNKNOWN_END
        elif event.get("event") == "from":
            row["step"] = event["step"]
        elif event.get("event") == "saved":
            row["saved"] = event["step"]
        elif event.get("event") == "ended":
            row["ended"] = event["time"]
            row["end"] = str(event.get("by") or f"status {event.get('status')}")
    listed, last = [], next(reversed(rows), None)
    for number, row in rows.items():
        if number != last and row["end"] == UNKNOWN_END:
            row["end"] = "killed"
        is_known = row["began"] is not None and row["ended"] is not None
        listed.append((number, row["step"], row.get("saved"),
                       row["ended"] - row["began"] if is_known else None, row["end"]))
    return Table("starts", "Starts", (
        ("start", "start", "text"), ("from_step", "from step", "text"),
        ("last_saved_step", "last saved", "text"), ("seconds", "length", "seconds"),
        ("end", "end", "text")), listed, shown=20)


# --- of several runs ----------------------------------------------------------------------------


def number_at(efficiency, *names):
    """The number that the names lead to; None where there is none."""
    for name in names:
        efficiency = efficiency.get(name) if isinstance(efficiency, dict) else None
    return efficiency if is_number(efficiency) else None


def runs(listed):
    rows = []
    for run in listed:
        rows.append((run.name, run.ranks, run.deck.get("model.kind"),
                     run.deck.get("model.layers"), run.deck.get("model.hidden"),
                     number_at(run.efficiency, "steps"),
                     number_at(run.efficiency, "identity", "goodput"),
                     number_at(run.efficiency, "rates", "tokens_per_second"),
                     number_at(run.efficiency, "rates", "hardware_share_of_peak"),
                     "; ".join(run.notes)))
    return Table("runs", "All runs", (
        ("run", "run", "text"), ("ranks", "ranks", "text"), ("model", "model", "text"),
        ("layers", "layers", "text"), ("hidden", "hidden", "text"),
        ("steps", "steps that stand", "whole"), ("goodput", "goodput", "share"),
        ("tokens_per_second", "tokens/s", "number"),
        ("share_of_peak", "share of peak", "share"), ("notes", "notes", "text")), rows)


def scaling(each, number):
    rows = []
    for row in each.rows:
        rows.append((row.ranks, row.grid, row.batch, len(row.runs), row.rate, min(row.rates),
                     max(row.rates), row.rate / row.ranks, each.speed_up(row),
                     each.efficiency(row), row.predicted,
                     quotient(row.predicted or 0, row.rate) - 1 if row.predicted else None,
                     row.short_name))
    has = any(row.predicted for row in each.rows)
    columns = [("ranks", "ranks", "text"), ("layout", "layout", "text"),
               ("batch", "batch", "text"), ("repeats", "runs", "text"),
               ("tokens_per_second", "tokens/s", "number"),
               ("tokens_per_second_least", "least", "number"),
               ("tokens_per_second_most", "most", "number"),
               ("tokens_per_second_of_rank", "a rank", "number"),
               ("speed_up", "speed-up", "times"), ("efficiency", "efficiency", "share"),
               ("tokens_per_second_predicted", "predicted", "number"),
               ("error_of_prediction", "error", "share"), ("run", "run", "text")]
    keep = [i for i, column in enumerate(columns) if has or "predict" not in column[0]]
    said = [f"differ in {line}" for line in each.differences]
    if has:
        said.append("predicted for the machine " + ", ".join(sorted(
            {row.prediction.machine for row in each.rows if row.prediction})))
    return Table(f"scaling_{number}_{each.kind}", each.heading,
                 [columns[i] for i in keep], [[row[i] for i in keep] for row in rows],
                 "; ".join(said))


def computing_of_sample(efficiency):
    spent = efficiency["device_seconds"]["parts"]
    return quotient(spent["passes"] + spent["optimizer"], efficiency["samples"])


def pop_of_set(each, number):
    """POP's table of a scaling set: how computation scales is said against its measure."""
    rows, reference = [], None
    for row in each.rows:
        run = row.typical
        if run.efficiency is None:
            continue
        pop_tree, mine = run.efficiency["pop"], computing_of_sample(run.efficiency)
        reference = reference or (mine if row is each.measure else None)
        computation = quotient(reference, mine) if reference and mine else None
        parallel = pop_tree["parallel_efficiency"]
        rows.append((row.ranks, row.grid,
                     None if computation is None else parallel * computation, parallel,
                     pop_tree["load_balance"], pop_tree["communication_efficiency"],
                     pop_tree["serialisation"], pop_tree["transfer"], computation))
    return Table(f"pop_{number}_{each.kind}", "Efficiencies of POP (the typical run of each row)",
                 (("ranks", "ranks", "text"), ("layout", "layout", "text"),
                  ("global_efficiency", "global", "share"),
                  ("parallel_efficiency", "parallel", "share"),
                  ("load_balance", "load balance", "share"),
                  ("communication_efficiency", "communication", "share"),
                  ("serialisation", "serialisation", "share"), ("transfer", "transfer", "share"),
                  ("computation_scaling", "computation scaling", "share")), rows,
                 "Global = parallel x computation scaling: device seconds of the first row's "
                 "kernels for a sample, of those of the row.")
