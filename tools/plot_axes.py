# tools/plot_axes.py — round numbers for the axes of tools/plot_curve and tools/plot_trace,
# which find it beside them.
import math


def nice_ticks(low, high, about):
    """Multiples of 1, 2, 2.5 or 5 times a power of ten that cover [low, high]."""
    span = high - low
    if not span > 0:
        span = abs(high) or 1.0
        low, high = low - span / 2, high + span / 2
    power = 10.0 ** math.floor(math.log10(span / about))
    step = min((factor * power for factor in (1, 2, 2.5, 5, 10)),
               key=lambda s: abs(span / s - about))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, last + 1)]


def ticks_within(low, high, about):
    """Those of them that lie in [low, high], where an axis begins and ends as it likes."""
    slack = 1e-9 * (high - low)
    return [tick for tick in nice_ticks(low, high, about)
            if low - slack <= tick <= high + slack]


def tick_text(value, step):
    if abs(value) >= 1e4 or step >= 1e4:
        for unit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if step >= unit or abs(value) >= 10 * unit:
                return f"{value / unit:.10g}{suffix}" if value else "0"
    return f"{round(value / step) * step:.10g}"
