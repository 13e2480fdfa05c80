# tools/report_page/sections.py — what stands in a report, of one run and of several: which
# charts and tables, in which order, and what is said where one cannot be made. A field that
# efficiency.json lacks costs the chart or the table that needs it, and no more.
import re
from pathlib import Path

from report_page import tables, words
from report_page.run_files import LACKING, layout_text, model_text

MOST_DETAILED = 6  # runs with a section of their own, where there are several
HOW_TO_TRACE = ("There is no timeline here: `trireme train ... --trace FILE` records some "
                "steps, and --trace FILE gives that file to this tool.")


class Section:
    """A heading and what stands under it: charts, tables and sentences, in parts; facts are
    (what, value)."""

    def __init__(self, slug, title, about=""):
        self.slug, self.title, self.about = slug, title, about
        self.warnings, self.facts, self.parts = [], [], []

    def charts(self):
        return [part for part in self.parts if hasattr(part, "make")]

    def tables(self):
        return [part for part in self.parts if hasattr(part, "rows")]


def slug_of(name, taken):
    """A name that is good for files and anchors, and not in use."""
    base = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(name).name) or "run"
    slug, number = base, 2
    while slug in taken:
        slug, number = f"{base}_{number}", number + 1
    taken.add(slug)
    return slug


def add(section, make, *given):
    """Makes a chart or a table, unless what it is made of is not there. All of it is made
    here, pictures and texts, so that nothing is left to fail when the page is written."""
    try:
        part = make(*given)
        if hasattr(part, "make"):
            part.picture(narrow=False)
            part.picture(narrow=True)
        elif hasattr(part, "rows"):
            part.texts()
    except LACKING as error:
        lacking = f"no field '{error.args[0]}'" if isinstance(error, KeyError) else str(error)
        section.warnings.append(f"{words.label(make.__name__)}: left out, the files of the run "
                                f"do not have what it is made of ({lacking})")
        return
    if part is not None:
        section.parts.append(part)


def facts_of(run):
    """[(what, value)] for the boxes at the top."""
    known = run.efficiency
    rates, identity = known["rates"], known["identity"]
    return [("goodput", words.share(identity["goodput"])),
            ("parallel efficiency", words.share(known["pop"]["parallel_efficiency"])),
            ("of peak, in steps", words.share(rates["hardware_share_of_peak"])),
            ("tokens/s", words.number(rates["tokens_per_second"])),
            ("a step", words.seconds(rates["step_seconds_mean"])),
            ("of the model, a device", words.rate(1e12 * rates["model_tflops_per_device"],
                                                  "FLOP/s")),
            ("measured peak", words.rate(1e12 * known["machine"]["peak_tflops"], "FLOP/s")),
            ("steps that stand", f"{known['steps']:,.0f} of {known['run']['steps']:,.0f}"),
            ("starts", f"{known['run']['starts']:,.0f}"),
            ("tokens", words.rate(known["tokens"], "").strip())]


def bubble_text(pipeline):
    """Of a run with a pipeline: measured and simulated bubble."""
    said = (f"Pipeline: {pipeline['stages']} stages, {words.count(pipeline['chunks'], 'chunk')} "
            f"each, {pipeline['microbatches']} micro-batches to a step, {pipeline['schedule']}; "
            f"bubble {words.share(pipeline['bubble_share'])} of the busiest stage's work as "
            "measured")
    for field, what in (("bubble_share_simulated", "as simulated"),
                        ("bubble_share_theory", "by theory (equal stages, no messages)")):
        if pipeline[field] is not None:
            said += f", {words.share(pipeline[field])} {what}"
    ideal = pipeline.get("bubble_share_ideal_network")  # older programs do not write it
    if ideal is not None:
        said += f", {words.share(ideal)} of kernels alone on a network that takes no time"
    return said + "."


def add_efficiency(section, run, charts):
    """What efficiency.json tells. charts: the module run_charts, or None for tables alone."""
    known = run.efficiency

    def of(name):
        if charts is not None:
            add(section, getattr(charts, name), known)

    try:
        section.facts = facts_of(run)
    except LACKING as error:
        section.warnings.append(f"efficiency.json is damaged: {error!r}")
    of("waterfall")
    add(section, tables.identity, known)
    add(section, tables.quantities, known)
    of("losses")
    add(section, tables.losses, known)
    of("step_by_rank")
    of("step_by_stage")
    for make in (tables.stages, tables.ranks, tables.parts):
        add(section, make, known)
    of("pop")
    add(section, tables.pop, known)
    of("roofline_if_any")
    of("kernels_if_any")
    add(section, tables.kernels, known)
    of("messages")
    add(section, tables.messages, known)
    of("matrix")
    add(section, tables.sites, known)
    of("memory")
    add(section, tables.memory, known)
    of("stage_memory")
    add(section, tables.stage_memory, known)
    of("histogram")
    add(section, tables.histogram, known)


def run_section(run, slug, with_charts, timeline=None):
    """All of one run. timeline: as course_charts.read_timeline() gives it."""
    charts = course = None
    if with_charts:
        from report_page import course_charts as course
        from report_page import run_charts as charts
    about = f"{model_text(run)}. {layout_text(run)}."
    section = Section(slug, run.name, about)
    section.warnings += run.notes
    if run.efficiency is not None:
        add_efficiency(section, run, charts)
    if timeline is not None and course is not None:
        add(section, course.timeline, timeline)
    pipeline = (run.efficiency or {}).get("pipeline")
    if pipeline:
        add(section, bubble_text, pipeline)
    if timeline is None:
        section.parts.append(HOW_TO_TRACE)
    if course is not None:
        add(section, course.progress, run)
    for make in (tables.progress, tables.validations, tables.starts):
        add(section, make, run)
    return section


def comparison_sections(comparison, with_charts):
    """One for each set of runs that may be compared."""
    sections = []
    for number, each in enumerate(comparison.sets, 1):
        title = {"strong": "Strong scaling", "weak": "Weak scaling",
                 "alone": "One number of ranks"}[each.kind]
        section = Section(f"set-{number}", title, f"{each.model}: {each.heading}.")
        if each.kind != "alone" and with_charts:
            from report_page import scaling_charts
            add(section, scaling_charts.scaling, each, number)
        elif len(each.rows) > 1 and with_charts:
            from report_page import scaling_charts
            add(section, scaling_charts.layouts, each, number)
        add(section, tables.scaling, each, number)
        if each.kind != "alone":
            add(section, tables.pop_of_set, each, number)
        sections.append(section)
    return sections


def detailed(runs, comparison):
    """(runs with a section of their own, what is said of the others)"""
    if len(runs) <= MOST_DETAILED:
        return runs, ""
    typical = [row.typical for row in comparison.rows] or runs
    chosen = typical[:MOST_DETAILED]
    return chosen, (f"{len(chosen)} of {len(runs)} runs are shown one by one: the typical one of "
                    "each layout, as far as there is room. tools/report with fewer of them "
                    "shows the others.")
