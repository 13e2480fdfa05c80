# tools/report_page/command.py — the command line of tools/report: reads the runs, says what cannot
# be read, prints the tables of scaling, and writes what is asked for. Status 0: all of it; 1:
# some run or prediction was left out, or a run's efficiency.json cannot be used, and the rest
# is there; 2: nothing could be made.
import argparse
import os
import sys
from pathlib import Path

from report_page import scaling, sections, tables
from report_page.run_files import InputError, read_run

HOW_TO_GET = ("pages and pictures need matplotlib for Python 3: apt-get install "
              "python3-matplotlib, or python3 -m pip install matplotlib")
SYSTEM_PYTHON = "/usr/bin/python3"


def say(text):
    print(f"report: {text}", file=sys.stderr)


def arguments_of(given):
    parser = argparse.ArgumentParser(
        prog="report", description="How efficient runs were and why not more: a page that opens "
        "without a network, pictures, and tables. Of several runs: how they scale.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("-o", "--out", metavar="FILE", help="the page, HTML")
    parser.add_argument("--title", help="of the page")
    parser.add_argument("--trace", action="append", default=[], metavar="FILE",
                        help="of trireme train --trace: the first of the first run, and so on")
    parser.add_argument("--prediction", action="append", default=[], metavar="FILE",
                        help="of trireme plan --json; repeatable")
    parser.add_argument("--charts", metavar="DIR", help="every picture as SVG and PNG")
    parser.add_argument("--csv", metavar="DIR", help="every table as CSV")
    options = parser.parse_args(given)
    if len(options.trace) > len(options.runs):
        parser.error("more traces than runs")
    options.traces = {str(Path(run)): trace for run, trace in zip(options.runs, options.trace)}
    return options


def has_matplotlib():
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def find_matplotlib():
    """False where there is none. A distribution's matplotlib belongs to the system's Python,
    which need not be the first of PATH: then all begins anew with that one."""
    if has_matplotlib():
        return True
    if os.path.realpath(sys.executable) == os.path.realpath(SYSTEM_PYTHON):
        return False
    if os.path.exists(SYSTEM_PYTHON) and os.environ.get("TRIREME_REPORT_PYTHON") != "system":
        os.environ["TRIREME_REPORT_PYTHON"] = "system"
        sys.stdout.flush()
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    return False


def distinct(names):
    """Each directory once, under the first name that it is given by: a run is no repeat of
    itself."""
    first = {}
    for name in names:
        place = os.path.realpath(name)
        if place in first:
            say(f"'{name}' is the directory of '{first[place]}', and counts once")
        first.setdefault(place, name)
    return list(first.values())


def read_all(names):
    """(the runs, whether any of them, or of what they measured, was left out)"""
    runs, failed = [], False
    for name in names:
        try:
            runs.append(read_run(name))
            failed = failed or runs[-1].is_refused
        except InputError as error:
            say(error)
            failed = True
    return runs, failed


def write(path, content):
    """In one rename, so that a reader finds the old or the new one. OSError names the file
    that was asked for; nothing else is left then."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        if isinstance(content, bytes):
            part.write_bytes(content)
        else:
            part.write_text(content, encoding="utf-8", errors="replace")
        os.replace(part, path)
    except OSError as error:
        if part.is_file():
            part.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_tables(directory, every):
    Path(directory).mkdir(parents=True, exist_ok=True)
    for section in every:
        for table in section.tables():
            if table.rows:
                write(Path(directory) / f"{section.slug}.{table.slug}.csv", table.csv())


def write_charts(directory, every):
    from report_page import figures
    Path(directory).mkdir(parents=True, exist_ok=True)
    for section in every:
        for chart in section.charts():
            path = Path(directory) / f"{section.slug}.{chart.slug}"
            write(f"{path}.svg", figures.standalone_svg(chart))
            figures.write_png(chart, f"{path}.png")


def traces_of(options, runs):
    """{name of the run: timeline}"""
    if not options.traces:
        return {}
    from report_page import course_charts
    known = {run.name for run in runs}
    return {name: course_charts.read_timeline(path)
            for name, path in options.traces.items() if name in known}


def compare(options, runs):
    """The comparison, as text on the terminal; (it, whether anything was left out)"""
    comparison = scaling.Comparison(runs)
    for text in comparison.left_out:
        say(text)
    predictions = [plan for path in options.prediction
                   for plan in scaling.read_prediction(path)]
    why_none = scaling.add_predictions(comparison.rows, predictions) if predictions else ""
    if why_none:
        comparison.left_out.append(why_none)
        say(why_none)
    if comparison.sets:
        print(scaling.text_of(comparison), flush=True)
    return comparison


def sections_of(options, runs, comparison, with_charts):
    """(sections of the page, what is said above them)"""
    taken, said, every = set(), [], []
    shown = runs
    if comparison is not None:
        shown, left_out = sections.detailed(runs, comparison)
        overview = sections.Section(sections.slug_of("runs", taken), "Runs")
        sections.add(overview, tables.runs, runs)
        every = [overview, *sections.comparison_sections(comparison, with_charts)]
        taken.update(section.slug for section in every)
        said += comparison.left_out + ([left_out] if left_out else [])
        if comparison.different:
            said.append("Runs whose work differs are not compared: "
                        + ", ".join(comparison.different))
    timelines = traces_of(options, runs) if with_charts else {}
    for run in shown:
        every.append(sections.run_section(run, sections.slug_of(run.name, taken), with_charts,
                                          timelines.get(run.name)))
    return every, said


def make(options):
    with_charts = bool(options.out or options.charts)
    if with_charts and has_matplotlib() is False:
        find_matplotlib()  # comes back only where there is none
    names = distinct(options.runs)
    runs, failed = read_all(names)
    if not runs:
        say("no run to report on")
        return 2
    is_compared = len(names) > 1 or bool(options.prediction)
    comparison = compare(options, runs) if is_compared else None
    failed = failed or bool(comparison and comparison.left_out)
    is_possible = with_charts and has_matplotlib()
    every, said = sections_of(options, runs, comparison, is_possible)
    for run in runs:
        for note in run.notes:
            say(f"'{run.name}': {note}")
    if options.csv:
        write_tables(options.csv, every)
    if with_charts and not is_possible:
        say(HOW_TO_GET)
        return 2
    if options.charts:
        write_charts(options.charts, every)
    if options.out:
        from report_page import page
        title = options.title or ("Efficiency of " + (
            runs[0].name if len(runs) == 1 else f"{len(runs)} runs"))
        about = "Made by tools/report of Trireme; docs/efficiency.md says how to read it."
        write(options.out, page.page_html(title, about, said, every))
    return 1 if failed else 0


def main(arguments):
    options = arguments_of(arguments)
    try:
        return make(options)
    except InputError as error:
        say(error)
    except OSError as error:
        say(f"cannot write '{error.filename}' ({error.strerror})" if error.filename else error)
    return 2
