# tools/report_page/words.py — numbers as a reader wants them: few digits, and units.


def share(value):
    return "not known" if value is None else f"{100 * value:.1f} %"


def number(value, digits=3):
    """Three digits that count: 0.0123, 1.23, 123; large ones with commas."""
    if value is None:
        return "not known"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def scaled(value, units, base):
    """The largest of the units in which the value is at least 1."""
    for unit in units[:-1]:
        if abs(value) < base:
            return f"{number(value)} {unit}".rstrip()
        value /= base
    return f"{number(value)} {units[-1]}".rstrip()


def seconds(value):
    if value is None:
        return "not known"
    if value and abs(value) < 1:
        return scaled(value * 1e6, ("µs", "ms"), 1000)
    if abs(value) < 120:
        return f"{number(value)} s"
    return scaled(value / 60, ("min", "h"), 60)


def size(value):
    if value is None:
        return "not known"
    return scaled(value, ("B", "KiB", "MiB", "GiB", "TiB"), 1024)


def rate(value, unit):
    """1.23 GFLOP/s"""
    if value is None:
        return "not known"
    if value < 1000:
        return f"{number(value)} {unit}"
    return scaled(value / 1000, tuple(f"{prefix}{unit}" for prefix in "kMGTP"), 1000)


def count(value, what):
    return f"{value:,.0f} {what}" + ("" if value == 1 else "s")


def label(name):
    """A name of efficiency.json in words."""
    return name.replace("_", " ").replace("flop", "FLOP")
