# tools/report_page/course_charts.py — the charts of one run over time: loss and throughput over
# all its starts, and the timeline of one step, which tools/plot_trace reads.
import importlib.machinery
import importlib.util
import statistics
from pathlib import Path

from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from report_page import words
from report_page.figures import COLOUR, Chart, legend_below, new_figure, tip
from report_page.run_files import LACKING, InputError, begins_of, is_number

MOST_POINTS = 600  # of a curve: about one for each pixel
MOST_NAMED_STARTS = 6
MOST_RANKS = 16  # of a timeline


def thinned(points):
    """At most MOST_POINTS of them: means of neighbours."""
    if len(points) <= MOST_POINTS:
        return points
    width = -(-len(points) // MOST_POINTS)
    return [tuple(map(statistics.mean, zip(*points[i:i + width])))
            for i in range(0, len(points), width)]


def points_of(run, *names):
    """[(step, value)] of the first of the fields that a record has."""
    points = []
    for record in run.steps:
        value = next((record[name] for name in names if is_number(record.get(name))), None)
        if value is not None:
            points.append((record["step"], value))
    return thinned(points)


def mark_restarts(run, axes, named):
    begins = begins_of(run)[1:]
    for number, step, was_killed in begins:
        axes.axvline(step, color=COLOUR["orange"], linewidth=1,
                     linestyle=(0, (4, 3)) if was_killed else "solid")
        if named and len(begins) <= MOST_NAMED_STARTS:
            what = f"start {number}" + (", after a kill" if was_killed else "")
            axes.text(step, 0.04, what, transform=axes.get_xaxis_transform(), fontsize=11,
                      rotation=90, ha="right", va="bottom")


def draw_progress(run, narrow):
    figure = new_figure(narrow, 430)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    loss = points_of(run, "loss_mean", "loss")
    style = {"marker": "o", "markersize": 3} if len(loss) < 3 else {}
    if loss:
        upper.plot(*zip(*loss), color=COLOUR["blue"], label="training", **style)
    sets = sorted({str(record.get("name")) for record in run.validations})
    for name, colour in zip(sets, ("green", "violet", "gold", "rose", "teal") * len(sets)):
        points = [(record["step"], record["loss"]) for record in run.validations
                  if str(record.get("name")) == name and is_number(record.get("loss"))]
        if points:
            upper.plot(*zip(*points), color=COLOUR[colour], marker="o", markersize=5,
                       label="validation" if name == "validation" else f"validation: {name}")
    upper.set_ylabel("loss, nats per token" if not narrow else "nats per token")
    if upper.get_legend_handles_labels()[0]:
        upper.legend(loc="upper right")
    speed = points_of(run, "tokens_per_second")
    lower.plot(*zip(*speed), color=COLOUR["blue"], **style)
    lower.set_ylim(0, 1.08 * max(value for _, value in speed))
    lower.set_ylabel("tokens/s")
    lower.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words.rate(value, "").strip()))
    lower.set_xlabel("step")
    for axes, named in ((upper, False), (lower, True)):
        axes.grid(True)
        mark_restarts(run, axes, named)
    return figure


def progress(run):
    if not run.steps:
        return None
    note = "Throughput is of steps alone, by their median since the record before."
    begins = begins_of(run)
    if len(begins) > 1:
        note += (f" {len(begins)} starts: an orange line where one went on from a checkpoint, "
                 "dashed where the start before was killed.")
    return Chart("progress", "Loss and throughput over the whole run",
                 lambda narrow: draw_progress(run, narrow), note)


# --- the timeline of a step ---------------------------------------------------------------------


def plot_trace():
    """tools/plot_trace as a module: it reads traces, and knows kinds of events."""
    path = Path(__file__).resolve().parents[1] / "plot_trace"
    loader = importlib.machinery.SourceFileLoader("plot_trace", str(path))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("plot_trace", loader))
    loader.exec_module(module)
    return module


KIND_COLOURS = {"forward": "blue", "backward": "green", "weight": "violet", "wait": "wait",
                "gradients": "orange", "other": "grey"}


def read_timeline(path):
    """(ranks as plot_trace has them, begin and end of the step that is shown, in µs)"""
    reader = plot_trace()
    try:
        ranks = reader.read_trace(path)
        return ranks, *one_step(ranks, reader)
    except reader.InputError as error:
        raise InputError(str(error)) from None
    except LACKING:
        raise InputError(f"'{path}' is no trace that `trireme train --trace` wrote") from None


def one_step(ranks, reader):
    """The second step of the trace where it has one: the first is the one in which the host
    still catches up. A step ends with the optimizer, on whichever rank is last."""
    ends = {}
    for rank, what in ranks.items():
        passes = what["rows"].get(0, ["", []])[1]
        optimizers = sorted((event["ts"], event["ts"] + event["dur"]) for event in passes
                            if event["name"] == "optimizer")
        for number, (_, end) in enumerate(optimizers):
            ends.setdefault(number, []).append(end)
    everything = [event for what in ranks.values() for _, events in what["rows"].values()
                  for event in events]
    first = min(event["ts"] for event in everything)
    last = max(event["ts"] + event["dur"] for event in everything)
    if not ends:
        return first, last
    number = min(1, max(ends))
    before = max(ends[number - 1]) if number else first
    starts = [event["ts"] for event in everything if event["ts"] >= before
              and reader.kind_of(event["name"])[0] == "forward"]
    return min(starts, default=before), max(ends[number])


def draw_timeline(timeline, narrow):
    ranks, begin, end = timeline
    reader = plot_trace()
    shown = sorted(ranks)[:MOST_RANKS]
    figure = new_figure(narrow, 36 * len(shown) + 58)
    axes = figure.add_subplot()
    used = {}
    for place, rank in enumerate(shown):
        for row, (title, events) in sorted(ranks[rank]["rows"].items()):
            is_pass = row == 0
            kinds = {}
            for event in events:
                start = max(event["ts"], begin)
                stop = min(event["ts"] + event["dur"], end)
                if start >= stop:
                    continue
                kind = reader.kind_of(event["name"]) if is_pass or title == "kernels" \
                    else reader.MESSAGE
                used[kind[0]] = kind[1]
                kinds.setdefault(kind[0], []).append(
                    (1e-3 * (start - begin), 1e-3 * (stop - start)))
                number = event["args"].get("microbatch")
                if is_pass and number is not None and \
                        stop - start > (end - begin) * (0.06 if narrow else 0.024):
                    axes.text(1e-3 * ((start + stop) / 2 - begin), place - 0.08, str(number),
                              ha="center", va="center", fontsize=10, color=COLOUR["page"],
                              zorder=9)
            draw_row(axes, place, kinds, is_pass)
    axes.set_yticks(range(len(shown)), [f"rank {rank}" for rank in shown])
    axes.set_ylim(len(shown) - 0.45, -0.5)
    axes.set_xlim(0, 1e-3 * (end - begin))
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=5 if narrow else 9)
    axes.set_xlabel("ms")
    colours = dict(KIND_COLOURS, message="rose")
    legend_below(figure, [Patch(color=COLOUR[colours[kind]]) for kind in used],
                 list(used.values()), narrow)
    return figure


def draw_row(axes, place, kinds, is_pass):
    """Passes as one high bar, what lies within them low in front; messages thin and below."""
    for kind, spans in kinds.items():
        if not is_pass:
            bars = axes.broken_barh(spans, (place + 0.28, 0.13), color=COLOUR["rose"])
        else:
            low = kind in ("wait", "other")
            bars = axes.broken_barh(
                spans, (place - (0.2 if low else 0.34), 0.24 if low else 0.52),
                color=COLOUR[KIND_COLOURS[kind]], zorder=3 if low else 2)
        bars.set_linewidth(0)


def timeline(read):
    note = ("High bars are passes with the number of their micro-batch, low ones in front of "
            "them waits for messages; the thin ones below are messages under way.")
    if len(read[0]) > MOST_RANKS:
        note += f" The first {MOST_RANKS} of {len(read[0])} ranks."
    return Chart("timeline", "Timeline of one step",
                 lambda narrow: draw_timeline(read, narrow), note)
