# tools/report_page/run_charts.py — charts of where one run's time went, each made of
# efficiency.json by one function: the identity as a waterfall, losses, a step's parts, POP's
# tree, kernels, messages and who sends them to whom, memory, step times. Bars lie, so that
# names have room on a phone.
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from report_page import tables, words
from report_page.figures import COLOUR, Chart, legend_below, new_figure, tip

SMALLEST_SHOWN = 0.003  # of all time; smaller losses of a factor are one bar
MOST_BARS = 32  # of ranks or stages
MOST_RANKS = 64  # of a matrix
QUANTITIES = {  # what the numerator of a factor is, in words
    "stepping": "in steps that stand", "ideal_network": "had messages no time",
    "slowest_rank": "slowest rank busy", "busy": "mean rank busy", "computing": "in kernels",
    "executed_flops": "FLOPs executed", "model_flops": "model FLOPs"}
PART_COLOURS = {
    "passes": "blue", "optimizer": "violet", "input": "gold", "host": "orange",
    "tensor": "rose", "context": "plum", "gradient": "brick", "pipeline": "pink",
    "model": "mauve", "tied": "salmon", "world": "wait", "warm_up": "mist",
    "validation": "green", "checkpoint": "teal", "sample": "lime", "other": "grey",
    "set_up": "muted"}


def row_axes(figure, labels, place=111):
    """Axes with a row for each label, the first at the top."""
    axes = figure.add_subplot(place)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    return axes


def waterfall_rows(efficiency):
    """[(label, from, to, factor's text or "")] in shares of the capacity: totals from 0."""
    identity = efficiency["identity"]
    amounts = identity["quantities_flops"]
    rows, level = [("capacity", 0.0, 1.0, "")], 1.0
    for factor in identity["factors"]:
        scale = amounts[factor["denominator"]] / amounts["capacity"]
        small = 0.0
        for name, lost in sorted(factor["lost"].items(), key=lambda item: -abs(item[1])):
            if abs(lost * scale) < SMALLEST_SHOWN:
                small += lost * scale
                continue
            rows.append((words.label(name), level, level - lost * scale, ""))
            level -= lost * scale
        end = amounts[factor["numerator"]] / amounts["capacity"]
        if abs(level - end) >= SMALLEST_SHOWN / 3:
            rows.append(("smaller ones" if small else "not told apart", level, end, ""))
        level = end
        rows.append((QUANTITIES.get(factor["numerator"], words.label(factor["numerator"])), 0.0,
                     end, f"\u00d7 {factor['value']:.3f} {words.label(factor['name'])}"))
    return rows


def draw_waterfall(efficiency, narrow):
    rows = waterfall_rows(efficiency)
    figure = new_figure(narrow, 21 * len(rows) + 50)
    axes = row_axes(figure, [row[0] for row in rows])
    right = max(max(start, end) for _, start, end, _ in rows)
    for place, (label, start, end, factor) in enumerate(rows):
        is_total = start == 0.0
        colour = "blue" if is_total else "orange" if end <= start else "green"
        bar = axes.barh(place, end - start, left=start, height=0.72, color=COLOUR[colour])[0]
        said = words.share(end - start)
        tip(bar, f"{label}: {said} of the capacity")
        if not is_total and end > start:
            said = "+" + said
        if factor and not narrow:
            said += f" ({factor})"
        axes.text(max(start, end) + 0.008 * right, place, said, va="center", fontsize=11)
        if is_total:
            axes.get_yticklabels()[place].set_fontweight("bold")
        if place + 1 < len(rows):
            axes.plot([end, end], [place, place + 1], color=COLOUR["frame"], linewidth=0.8)
    axes.set_xlim(0, right * (1.17 if narrow else 1.02))
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0] if not narrow else [0, 0.5, 1.0])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.set_xlabel("of the capacity")
    return figure


def waterfall(efficiency):
    return Chart("waterfall", "From the capacity down to the model's FLOPs",
                 lambda narrow: draw_waterfall(efficiency, narrow),
                 "Blue bars are the quantities of the identity, each a factor times the one "
                 "above it; orange is what was lost on the way. Green are gains: what a factor "
                 "says was less than what was measured beside it.")


def charted_losses(efficiency):
    return [loss for loss in tables.largest_losses(efficiency) if loss["share"] > 0][:10]


def draw_losses(efficiency, narrow):
    listed = charted_losses(efficiency)
    figure = new_figure(narrow, 24 * len(listed) + 50)
    axes = row_axes(figure, [words.label(loss["name"]) for loss in listed])
    most = max(loss["share"] for loss in listed)
    for place, loss in enumerate(listed):
        where = "" if loss["rank"] is None else f", rank {loss['rank']}"
        if loss["stage"] is not None and not narrow:
            where += f", stage {loss['stage']}"
        bar = axes.barh(place, loss["share"], height=0.7, color=COLOUR["orange"])[0]
        tip(bar, f"{words.label(loss['name'])}: {loss['advice']}")
        axes.text(loss["share"] + 0.01 * most, place, words.share(loss["share"]) + where,
                  va="center", fontsize=11)
    axes.set_xlim(0, most * (1.55 if narrow else 1.25))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.locator_params(axis="x", nbins=4 if narrow else 7)
    axes.set_xlabel("of all time")
    return figure


def losses(efficiency):
    if not charted_losses(efficiency):
        return None
    return Chart("losses", "The largest losses",
                 lambda narrow: draw_losses(efficiency, narrow))


def bars_of_parts(rows):
    """Rows as they are drawn: all, or those with most and least in kernels."""
    if len(rows) <= MOST_BARS:
        return rows
    ordered = sorted(rows, key=lambda row: -row["seconds"]["passes"])
    return ordered[:MOST_BARS // 2] + ordered[-MOST_BARS // 2:]


def part_text(row, name):
    """How long a rank's part of a step is; of a stage its ranks' mean and extremes."""
    said, found = words.seconds(row["seconds"][name]), tables.extremes_of(row, name)
    if not found or found["least"] == found["most"]:
        return f"{said} a step"
    return (f"mean {said} a step, {words.seconds(found['least'])} to "
            f"{words.seconds(found['most'])}, most rank {found['rank_most']}")


def draw_parts(rows, label_of, narrow):
    rows = bars_of_parts(rows)
    names = [name for name in rows[0]["seconds"]
             if max(row["seconds"][name] for row in rows) > 0]
    figure = new_figure(narrow, 24 * len(rows) + 62)
    axes = row_axes(figure, [label_of(row) for row in rows])
    for place, row in enumerate(rows):
        left = 0.0
        for name in names:
            length = row["seconds"][name]
            bar = axes.barh(place, length, left=left, height=0.72,
                            color=COLOUR[PART_COLOURS.get(name, "grey")])[0]
            tip(bar, f"{label_of(row)}, {words.label(name)}: {part_text(row, name)}")
            left += length
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.seconds(value)))
    axes.locator_params(axis="x", nbins=4 if narrow else 8)
    axes.margins(x=0.01)
    axes.set_xlabel("of the loop's time, for each step")
    legend_below(figure, [Patch(color=COLOUR[PART_COLOURS.get(name, "grey")])
                          for name in names], [words.label(name) for name in names], narrow)
    return figure


def step_by_rank(efficiency):
    rows = efficiency["this_start"]["ranks"]
    if not any(any(row["seconds"].values()) for row in rows):
        return None
    note = "Of this start. What is between steps is spread over them."
    if len(rows) > MOST_BARS:
        note += f" Of {len(rows)} ranks those that are longest and shortest in passes."
    return Chart("step_by_rank", "A step's time by rank", lambda narrow: draw_parts(
        rows, lambda row: f"rank {row['rank']}", narrow), note)


def step_by_stage(efficiency):
    rows = efficiency["this_start"]["stages"]
    if len(rows) < 2 or not any(any(row["seconds"].values()) for row in rows):
        return None
    return Chart("step_by_stage", "A step's time by stage", lambda narrow: draw_parts(
        rows, lambda row: f"stage {row['stage']}", narrow),
        "Of this start; the mean of each stage's ranks."
        + (" The pointer on a bar shows the least and the most of them, and which rank has most."
           if any(row.get("extremes") for row in rows) else ""))


def pop_rows(tree):
    """[(depth, name, value, what it means)], the tree from its root down."""
    return [(0, "global efficiency", tree["global_efficiency"], "needs another run"),
            (1, "parallel efficiency", tree["parallel_efficiency"], ""),
            (2, "load balance", tree["load_balance"], ""),
            (2, "communication", tree["communication_efficiency"], ""),
            (3, "serialisation", tree["serialisation"], ""),
            (3, "transfer", tree["transfer"], ""),
            (1, "computation scaling", tree["computation_scaling"], "needs another run")]


def draw_pop(efficiency, narrow):
    rows = pop_rows(efficiency["pop"])
    figure = new_figure(narrow, 26 * len(rows) + 16)
    axes = figure.add_subplot()
    axes.set_axis_off()
    begin = 1.45 if narrow else 0.55  # of the bars, where one is 100 %
    indent = begin / (18 if narrow else 14)
    parents = {}
    for place, (depth, name, value, _) in enumerate(rows):
        x = depth * indent
        parents[depth] = place
        if depth:
            axes.plot([x - 0.6 * indent] * 2 + [x - 0.15 * indent],
                      [parents[depth - 1] + 0.35, place, place], color=COLOUR["frame"],
                      linewidth=1)
        axes.text(x, place, name, va="center", fontweight="normal" if depth else "bold")
        if value is None:
            axes.text(begin, place, "needs another run", va="center", color=COLOUR["muted"])
            continue
        axes.barh(place, 1, left=begin, height=0.6, color=COLOUR["grid"])
        bar = axes.barh(place, min(value, 1), left=begin, height=0.6,
                        color=COLOUR["green" if value >= 0.9 else "gold" if value >= 0.75
                                     else "orange"])[0]
        tip(bar, f"{name}: {words.share(value)}")
        axes.text(begin + 1.02, place, words.share(value), va="center")
    axes.set_xlim(0, begin + (1.55 if narrow else 1.15))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    return figure


def pop(efficiency):
    return Chart("pop", "POP's tree of efficiencies",
                 lambda narrow: draw_pop(efficiency, narrow),
                 "A parent is the product of its children. Green from 90 %, orange under 75 %.")


def roofs(axes, peak, bandwidth, low, high):
    """The roofs from intensity low to high; what the product roof alone says without a
    bandwidth."""
    if bandwidth:
        ridge = peak / bandwidth
        axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color=COLOUR["ink"])
        middle = (low * ridge) ** 0.5
        axes.annotate(words.rate(bandwidth, "B/s"), (middle, middle * bandwidth), (10, -6),
                      textcoords="offset points", va="top", fontsize=11)
    else:
        axes.plot([low, high], [peak, peak], color=COLOUR["ink"])
    axes.text(high, peak * 1.1, words.rate(peak, "FLOP/s"), ha="right", fontsize=11)


def draw_roofline(efficiency, narrow):
    peak = 1e12 * efficiency["machine"]["peak_tflops"]
    bandwidth = 1e9 * (efficiency["machine"]["memory_gigabytes_per_second"] or 0.0)
    classes = [row for row in efficiency["kernels"]["classes"]
               if row["flops_needed"] and row["bytes"] and row["seconds"]]
    figure = new_figure(narrow, 300 if narrow else 340)
    axes = figure.add_subplot()
    at = [(row["flops_needed"] / row["bytes"], row["flops_needed"] / row["seconds"])
          for row in classes]
    ridge = peak / bandwidth if bandwidth else 1.0
    low = min([x for x, _ in at] + [ridge]) / 4
    high = max([x for x, _ in at] + [ridge]) * 6
    roofs(axes, peak, bandwidth, low, high)
    for (x, y), row, colour in zip(at, classes, ("blue", "orange", "violet", "gold", "teal",
                                                 "rose", "green", "brick", "lime")):
        point = axes.plot([x], [y], "o", markersize=9, color=COLOUR[colour])[0]
        tip(point, f"{row['name']}: {words.rate(y, 'FLOP/s')} at {words.number(x)} FLOPs a byte")
        axes.annotate(row["name"], (x, y), (9, -11), textcoords="offset points")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    bottom = min([y for _, y in at] + [peak / 4])
    axes.set_ylim(bottom / 3, peak * 2.2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words.rate(value, "")))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if not narrow else (1, 3)))
    axes.grid(True)
    axes.set_xlabel("FLOPs for each byte")
    axes.set_ylabel("FLOP/s of a device")
    return figure


def roofline(efficiency):
    note = ("Roofs are the measured peak of products and the measured speed of memory. FLOPs "
            "that a mask hides are not counted.")
    if not efficiency["machine"]["memory_gigabytes_per_second"]:
        note = ("The speed of memory was not measured (run.probe: true does): the roof "
                "of products stands alone. FLOPs that a mask hides are not counted.")
    return Chart("roofline", "Roofline of the kernels that multiply",
                 lambda narrow: draw_roofline(efficiency, narrow), note)


def draw_kernels(efficiency, narrow):
    rows = sorted(efficiency["kernels"]["classes"], key=lambda row: -row["seconds"])
    figure = new_figure(narrow, 24 * len(rows) + 58)
    axes = row_axes(figure, [row["name"] for row in rows])
    most = max(row["seconds"] for row in rows)
    knows = any(row["seconds_bound"] is not None for row in rows)
    for place, row in enumerate(rows):
        bar = axes.barh(place, row["seconds"], height=0.72, color=COLOUR["blue"])[0]
        said = words.seconds(row["seconds"])
        if row["seconds_bound"] is not None:
            axes.plot([row["seconds_bound"]] * 2, [place - 0.42, place + 0.42],
                      color=COLOUR["orange"], linewidth=2.5)
            said += f", {words.share(row['share_of_bound'])} of the bound"
        tip(bar, f"{row['name']}: {said}")
        if narrow:
            said = words.seconds(row["seconds"])
        axes.text(max(row["seconds"], row["seconds_bound"] or 0.0) + 0.012 * most, place, said,
                  va="center", fontsize=11)
    axes.set_xlim(0, most * (1.3 if narrow else 1.38 if knows else 1.12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.seconds(value)))
    axes.locator_params(axis="x", nbins=4 if narrow else 8)
    axes.set_xlabel("a step and rank")
    if knows:
        legend_below(figure, [Patch(color=COLOUR["blue"]), Patch(color=COLOUR["orange"])],
                     ["measured", "what the roofs allow"], narrow)
    return figure


def kernels(efficiency):
    return Chart("kernels", "Kernels by class, and what the roofs allow",
                 lambda narrow: draw_kernels(efficiency, narrow),
                 "A class beyond its bound found its data in caches, or the machine slower "
                 "while the bound was measured.")


def draw_messages(efficiency, narrow):
    axes_of = sorted(((name, axis) for name, axis in
                      efficiency["device_seconds"]["messages"].items()
                      if axis["device_seconds"]), key=lambda item: -item[1]["device_seconds"])
    figure = new_figure(narrow, 26 * len(axes_of) + 58)
    axes = row_axes(figure, [name for name, _ in axes_of])
    most = max(axis["device_seconds"] for _, axis in axes_of)
    probed = tables.probed_rates(efficiency)
    for place, (name, axis) in enumerate(axes_of):
        late, transfer = tables.split_of(axis)
        pieces = [(late, "gold", "waiting for who is late"), (transfer, "rose", "transfer")]
        if late is None:
            pieces = [(axis["device_seconds"], "wait", "not told apart")]
        left = 0.0
        for length, colour, what in pieces:
            bar = axes.barh(place, length, left=left, height=0.7, color=COLOUR[colour])[0]
            tip(bar, f"{name}, {what}: {words.seconds(length)}")
            left += length
        said = words.size(axis["bytes"])
        if transfer and axis["bytes"] and not narrow:
            said += f", {words.rate(axis['bytes'] / transfer, 'B/s')} in transfer"
            if name in probed:
                said += f" (probe: {words.rate(probed[name], 'B/s')})"
        axes.text(left + 0.012 * most, place, said if axis["bytes"] else "", va="center",
                  fontsize=11)
    axes.set_xlim(0, most * (1.35 if narrow else 1.6 if probed else 1.33))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.seconds(value)))
    axes.locator_params(axis="x", nbins=4 if narrow else 8)
    axes.set_xlabel("device seconds")
    legend_below(figure, [Patch(color=COLOUR[colour]) for colour in ("gold", "rose", "wait")],
                 ["waiting for who is late", "transfer", "not told apart"], narrow)
    return figure


def messages(efficiency):
    if not any(axis["device_seconds"] and axis["calls"] for axis in
               efficiency["device_seconds"]["messages"].values()):
        return None
    return Chart("messages", "Time in messages by axis",
                 lambda narrow: draw_messages(efficiency, narrow),
                 "Of all ranks and starts; beside the bars the payload. Where messages hide "
                 "behind kernels, what is seen of their transfer is short and the rate above "
                 "the probe's.")


def draw_memory(efficiency, narrow):
    rows = [(name, row) for name, row in efficiency["memory"].items()
            if row["bytes_planned"] and row["bytes_max"] is not None and name != "device"]
    figure = new_figure(narrow, 32 * len(rows) + 58)
    axes = row_axes(figure, [words.label(name) for name, _ in rows])
    most = max(max(row["bytes_planned"], row["bytes_max"]) for _, row in rows)
    for place, (name, row) in enumerate(rows):
        axes.barh(place - 0.19, row["bytes_planned"], height=0.34, color=COLOUR["frame"])
        bar = axes.barh(place + 0.19, row["bytes_avg"], height=0.34, color=COLOUR["blue"])[0]
        tip(bar, f"{words.label(name)}: planned {words.size(row['bytes_planned'])}, measured "
                 f"{words.size(row['bytes_min'])} to {words.size(row['bytes_max'])}")
        axes.plot([row["bytes_min"], row["bytes_max"]], [place + 0.19] * 2,
                  color=COLOUR["orange"], linewidth=2)
        end = max(row["bytes_planned"], row["bytes_max"])
        axes.text(end + 0.012 * most, place, words.size(row["bytes_max"]), va="center",
                  fontsize=11)
    axes.set_xlim(0, most * (1.3 if narrow else 1.13))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.size(value)))
    axes.xaxis.set_major_locator(binary_ticks(most, 3 if narrow else 6))
    axes.set_xlabel("of a rank")
    legend_below(figure, [Patch(color=COLOUR[colour]) for colour in ("frame", "blue", "orange")],
                 ["planned (most)", "measured (mean)", "least to most"], narrow)
    return figure


def binary_ticks(most, about):
    """Multiples of a power of two, so that they are round in MiB."""
    from matplotlib.ticker import MultipleLocator
    step = 1
    while most / step > about:
        step *= 2
    return MultipleLocator(step)


def memory(efficiency):
    if not any(row["bytes_planned"] for row in efficiency["memory"].values()):
        return None
    return Chart("memory", "Memory, planned and measured",
                 lambda narrow: draw_memory(efficiency, narrow))


def draw_stage_memory(efficiency, narrow):
    rows = tables.memory_of_stages(efficiency)[:MOST_BARS]
    figure = new_figure(narrow, 32 * len(rows) + 58)
    axes = row_axes(figure, [f"stage {stage}" for stage, _, _ in rows])
    most = max(max(planned, measured) for _, planned, measured in rows)
    for place, (stage, planned, measured) in enumerate(rows):
        for offset, amount, colour, what in ((-0.19, planned, "frame", "planned"),
                                             (0.19, measured, "blue", "measured")):
            bar = axes.barh(place + offset, amount, height=0.34, color=COLOUR[colour])[0]
            tip(bar, f"stage {stage}: {what} {words.size(amount)}")
        axes.text(max(planned, measured) + 0.012 * most, place, words.size(measured),
                  va="center", fontsize=11)
    axes.set_xlim(0, most * (1.3 if narrow else 1.13))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.size(value)))
    axes.xaxis.set_major_locator(binary_ticks(most, 3 if narrow else 6))
    axes.set_xlabel("of a rank")
    legend_below(figure, [Patch(color=COLOUR[colour]) for colour in ("frame", "blue")],
                 ["planned", "measured"], narrow)
    return figure


def stage_memory(efficiency):
    if len(tables.memory_of_stages(efficiency)) < 2:
        return None
    return Chart("stage_memory", "Memory by stage, planned and measured",
                 lambda narrow: draw_stage_memory(efficiency, narrow),
                 "The rank with most of each category; what is not planned (libraries, the "
                 "system) is left out.")


def draw_matrix(efficiency, narrow):
    sent = tables.matrix(efficiency)
    count, most = len(sent), max(max(row) for row in sent)
    size = 230 if narrow else 330
    figure = new_figure(narrow, size + 60)
    axes = figure.add_subplot()
    # Squares whose share of a cell says how much: colours alone are hard to compare.
    for sender, row in enumerate(sent):
        for receiver, amount in enumerate(row):
            if amount <= 0:
                continue
            side = 0.94 * (amount / most) ** 0.5
            square = axes.add_patch(Rectangle(
                (receiver - side / 2, sender - side / 2), side, side,
                facecolor=COLOUR["blue"]))
            tip(square, f"rank {sender} to rank {receiver}: {words.size(amount)} a step")
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    ticks = range(0, count, max(1, count // 8))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.set_title(f"largest square: {words.size(most)} a step", fontsize=11.5)
    return figure


def matrix(efficiency):
    if not 2 <= efficiency["run"]["devices"] <= MOST_RANKS or \
            not tables.knows_neighbours(efficiency) or \
            not any(map(any, tables.matrix(efficiency))):
        return None
    return Chart("matrix", "Who sends how much to whom",
                 lambda narrow: draw_matrix(efficiency, narrow),
                 "Payload of a step, squares by area: the mean of all steps that stand, on the "
                 "grid of the last start; messages of validations are not in it. What a "
                 "collective sends is shared out evenly among the ranks of its group, whichever "
                 "way it takes.")


def draw_histogram(efficiency, narrow):
    bins = efficiency["step_histogram"]
    figure = new_figure(narrow, 230)
    axes = figure.add_subplot()
    for row in bins:
        width = row["seconds_to"] - row["seconds_from"]
        bar = axes.bar(row["seconds_from"], row["steps"], width=width, align="edge",
                       color=COLOUR["blue"], edgecolor=COLOUR["page"], linewidth=0.8)[0]
        tip(bar, f"{words.seconds(row['seconds_from'])} to {words.seconds(row['seconds_to'])}: "
                 + words.count(row["steps"], "step"))
    first, last = bins[0]["seconds_from"], bins[-1]["seconds_to"]
    if last > 6 * first:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.locator_params(axis="x", nbins=4 if narrow else 8)
    if max(row["steps"] for row in bins) > 200 * min(row["steps"] for row in bins):
        axes.set_yscale("symlog", linthresh=10)
    mean = efficiency["rates"]["step_seconds_mean"]
    axes.axvline(mean, color=COLOUR["orange"], linewidth=1.4)
    axes.text(mean, 1.02, f"mean {words.seconds(mean)}", ha="center", fontsize=11,
              transform=axes.get_xaxis_transform())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.seconds(value)))
    axes.grid(True, axis="y")
    axes.set_xlabel("length of a step")
    axes.set_ylabel("steps")
    return figure


def histogram(efficiency):
    if not efficiency["step_histogram"]:
        return None
    return Chart("step_times", "How long steps took",
                 lambda narrow: draw_histogram(efficiency, narrow))


def kernels_if_any(efficiency):
    return kernels(efficiency) if efficiency["kernels"]["classes"] else None


def roofline_if_any(efficiency):
    return roofline(efficiency) if efficiency["kernels"]["classes"] else None
