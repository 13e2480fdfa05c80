# tools/report_page/scaling_charts.py — speed-up and parallel efficiency over ranks, of runs that may be
# compared (scaling.py says which): the mean of repeats with the least and the most of them,
# the ideal, and what the planner predicted.
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator, \
    PercentFormatter

from report_page.figures import COLOUR, Chart, legend_below, new_figure, tip

MARKS = (("o", "blue"), ("s", "orange"), ("^", "violet"), ("D", "green"), ("v", "rose"),
         ("P", "gold"), ("X", "teal"), ("*", "brick"))


def layout_name(row):
    """Without the number of ranks, which is an axis."""
    return row.layout.partition(": ")[2]


def names_of(rows):
    return list(dict.fromkeys(layout_name(row) for row in rows))


def draw_points(axes, each, value_of, names):
    for row in each.rows:
        mark, colour = MARKS[names.index(layout_name(row)) % len(MARKS)]
        value = value_of(row, row.rate)
        span = [[value - value_of(row, min(row.rates))], [value_of(row, max(row.rates)) - value]]
        drawn = axes.errorbar([row.ranks], [value], yerr=span, fmt=mark, color=COLOUR[colour],
                              capsize=4, markersize=7)
        tip(drawn[0], f"{row.layout}: {value:.3g}")
        if row.predicted:
            axes.plot([row.ranks], [value_of(row, row.predicted)], mark, markersize=12,
                      markerfacecolor="none", markeredgecolor=COLOUR["muted"])
    best = {}
    for row in each.rows:
        best[row.ranks] = max(best.get(row.ranks, 0.0), value_of(row, row.rate))
    axes.plot(list(best), list(best.values()), color=COLOUR["frame"], linewidth=1, zorder=0)


def rank_axis(axes, each, is_log):
    counts = sorted({row.ranks for row in each.rows})
    if is_log:
        axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.25, counts[-1] * 1.25)
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
    counts = rank_axis(left, each, True)
    measure = each.measure.ranks
    ideal = left.plot([counts[0], counts[-1]],
                      [counts[0] / measure, counts[-1] / measure], color=COLOUR["ink"],
                      linestyle=(0, (5, 3)), linewidth=1.2)[0]
    draw_points(left, each, each.speed_up, names)
    left.set_yscale("log", base=2)
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.yaxis.set_minor_formatter(NullFormatter())
    left.set_ylabel("speed-up")
    rank_axis(right, each, True)
    right.axhline(1.0, color=COLOUR["ink"], linestyle=(0, (5, 3)), linewidth=1.2)
    draw_points(right, each, each.efficiency, names)
    most = max([each.efficiency(row, max(row.rates + [row.predicted or 0.0]))
                for row in each.rows])
    right.set_ylim(0, 1.1 * max(1.0, most))
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    right.set_ylabel("parallel efficiency")
    handles, labels = [ideal], ["ideal"]
    for name, (mark, colour) in zip(names, MARKS * (1 + len(names) // len(MARKS))):
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
    return Chart(f"scaling_{number}_{each.kind}", kind,
                 lambda narrow: draw_scaling(each, narrow), note)
