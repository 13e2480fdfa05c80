# tools/report_page/scaling_charts.py — speed-up and parallel efficiency over ranks, of runs that
# may be compared (scaling.py says which): the mean of repeats with the least and the most of
# them, the ideal, and what the planner predicted.
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator, \
    PercentFormatter

from report_page import words
from report_page.figures import COLOUR, Chart, legend_below, new_figure, tip
from report_page.run_charts import row_axes

SHAPES = "os^DvPX*"
COLOURS = ("blue", "orange", "violet", "green", "rose", "gold", "teal", "brick")


def mark_of(series):
    """(shape, colour) of the series of this number: 64 differ."""
    turn, shape = divmod(series, len(SHAPES))
    return SHAPES[shape], COLOURS[(shape + turn) % len(COLOURS)]


def names_of(rows):
    return list(dict.fromkeys(row.grid for row in rows))


def draw_points(axes, each, value_of, names):
    for row in each.rows:
        mark, colour = mark_of(names.index(row.grid))
        value = value_of(row, row.rate)
        span = [[value - value_of(row, min(row.rates))], [value_of(row, max(row.rates)) - value]]
        ranks = each.place(row)
        drawn = axes.errorbar([ranks], [value], yerr=span, fmt=mark, color=COLOUR[colour],
                              capsize=4, markersize=7)
        tip(drawn[0], f"{row.layout}: {value:.3g}")
        if row.predicted:
            predicted = each.predicted_speed_up(row) * each.measure.rate
            axes.plot([ranks], [value_of(row, predicted)], mark, markersize=12,
                      markerfacecolor="none", markeredgecolor=COLOUR["muted"])
    fastest = {row.ranks: row for row in reversed(each.rows)}  # which comes first of as many
    axes.plot([each.place(row) for row in reversed(fastest.values())],
              [value_of(row, row.rate) for row in reversed(fastest.values())],
              color=COLOUR["frame"], linewidth=1, zorder=0)


def rank_axis(axes, each, is_log):
    counts = sorted({row.ranks for row in each.rows})
    if is_log:
        axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("ranks")
    axes.grid(True)
    return counts


def draw_scaling(each, narrow):
    names = names_of(each.rows)
    figure = new_figure(narrow, 560 if narrow else 330)
    left, right = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
    rank_axis(left, each, True)
    ideal = left.plot(*zip(*each.ideal()), color=COLOUR["ink"], linestyle=(0, (5, 3)),
                      linewidth=1.2)[0]
    draw_points(left, each, each.speed_up, names)
    left.set_yscale("log", base=2)
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.yaxis.set_minor_formatter(NullFormatter())
    left.set_ylabel("speed-up")
    rank_axis(right, each, True)
    right.axhline(1.0, color=COLOUR["ink"], linestyle=(0, (5, 3)), linewidth=1.2)
    draw_points(right, each, each.efficiency, names)
    right.set_ylim(0, 1.05 * max(1.05, right.get_ylim()[1]))
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    right.set_ylabel("parallel efficiency")
    handles, labels = [ideal], ["ideal"]
    for series, name in enumerate(names):
        mark, colour = mark_of(series)
        handles.append(left.plot([], [], mark, color=COLOUR[colour])[0])
        labels.append(name)
    if any(row.predicted for row in each.rows):
        handles.append(left.plot([], [], "o", markersize=11, markerfacecolor="none",
                                 markeredgecolor=COLOUR["muted"])[0])
        labels.append("predicted by trireme plan")
    legend_below(figure, handles, labels, narrow)
    return figure


def scaling(each, number):
    kind = {"strong": "Strong scaling", "weak": "Weak scaling"}[each.kind]
    note = "Points are means of repeats, bars go from the least to the most of them; " \
           "the thin line joins the fastest layout on each number of ranks."
    if any(row.predicted for row in each.rows):
        note += " Predictions are in parts of what is predicted of the first point."
    return Chart(f"scaling_{number}_{each.kind}", kind,
                 lambda narrow: draw_scaling(each, narrow), note)


def draw_layouts(each, narrow):
    rows = sorted(each.rows, key=lambda row: -row.rate)
    names = [row.grid.replace(", ", ",\n", 1) if narrow else row.grid
             for row in rows]
    figure = new_figure(narrow, (44 if narrow else 28) * len(rows) + 58)
    axes = row_axes(figure, names)
    most = max(max(row.rates + [row.predicted or 0.0]) for row in rows)
    for place, row in enumerate(rows):
        bar = axes.barh(place, row.rate, height=0.66, color=COLOUR["blue"])[0]
        tip(bar, f"{row.layout}: {row.rate:.5g} tokens/s")
        axes.errorbar([row.rate], [place], xerr=[[row.rate - min(row.rates)],
                                                 [max(row.rates) - row.rate]],
                      color=COLOUR["ink"], capsize=4, linewidth=1.2)
        if row.predicted:
            axes.plot([row.predicted], [place], "o", markersize=11, markerfacecolor="none",
                      markeredgecolor=COLOUR["orange"])
        axes.text(max(row.rates + [row.predicted or 0.0]) + 0.05 * most, place,
                  words.number(row.rate), va="center", fontsize=11)
    axes.set_xlim(0, 1.18 * most)
    axes.locator_params(axis="x", nbins=3 if narrow else 7)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.rate(value, "").strip()))
    axes.set_xlabel("tokens/s")
    handles, labels = [Patch(color=COLOUR["blue"])], ["measured (bars: least to most)"]
    if any(row.predicted for row in rows):
        handles.append(axes.plot([], [], "o", markersize=10, markerfacecolor="none",
                                 markeredgecolor=COLOUR["orange"])[0])
        labels.append("predicted by trireme plan")
    legend_below(figure, handles, labels, narrow)
    return figure


def layouts(each, number):
    return Chart(f"layouts_{number}", "Layouts side by side",
                 lambda narrow: draw_layouts(each, narrow))
