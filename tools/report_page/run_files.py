# tools/report_page/run_files.py — what a run directory holds, as far as it can be read. A run
# may be old, killed midway or damaged: whatever is missing is noted and left out, and only a
# directory that says neither how many ranks there were nor what they did is no run. What is
# kept of train.jsonl and starts.jsonl has the fields that its readers count on; the fields of
# efficiency.json are left to who needs them, and may raise any of LACKING there.
import json
import math
from pathlib import Path

SCHEMA_VERSION = 1  # of efficiency.json, as src/report/efficiency_schema.hpp has it
# What reading a field raises that is not there, or is not what it should be.
LACKING = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError)


class InputError(Exception):
    """What the user gave cannot be reported on."""


class Run:
    """One run directory. efficiency is None where there is none that can be read, and the run
    is_refused where there is one that cannot be used."""

    def __init__(self, name, ranks, deck, environment):
        self.name, self.ranks, self.deck, self.environment = name, ranks, deck, environment
        self.steps, self.validations, self.starts, self.notes = [], [], [], []
        self.efficiency, self.is_refused = None, False


def finite(text):
    """A number of JSON; ValueError where no double holds it."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return int(text) if text.lstrip("-").isdecimal() else value


def parsed(text):
    """Of a text in JSON; ValueError where it is none."""
    try:
        return json.loads(text, parse_float=finite, parse_int=finite, parse_constant=finite)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def whole(text):
    """The number without a sign that a value of a deck is; None where it is none."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def deck_of(text, path):
    """{"model.layers": "2", ...} of a resolved deck, which has one value a line; ValueError
    where it is none, with the path that it was read from."""
    deck, sections = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        key, colon, value = line.strip().partition(":")
        if not key or key.startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        if not colon or depth > len(sections):
            raise ValueError(f"{path}:{number}: '{line}' is no line of a resolved deck")
        sections[depth:] = [key]
        if value.strip():
            deck[".".join(sections)] = value.strip()
    return deck


def read_deck(path):
    return deck_of(path.read_text("utf-8", "surrogateescape"), path)


def records_of(path, fits):
    """(objects of a file with one on each line, how many lines are none that fits)."""
    records, torn = [], 0
    for line in path.read_text("utf-8", "surrogateescape").splitlines():
        try:
            record = parsed(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and fits(record):
            records.append(record)
        else:
            torn += 1
    return records, torn


def lines_of(run, directory, name, what, fits):
    """The records of one of the run's files; what cannot be read of it is noted."""
    try:
        records, torn = records_of(directory / name, fits)
    except OSError as error:
        run.notes.append(f"{name} cannot be read ({error.strerror}): {what} left out")
        return []
    if torn:
        lines = "line is" if torn == 1 else "lines are"
        run.notes.append(f"{name}: {torn} {lines} torn or unreadable, and left out")
    return records


def is_step(record):
    return is_number(record.get("step")) and is_number(record.get("tokens_per_second")) \
        and record["tokens_per_second"] > 0


def is_validation(record):
    seen = record.get("validation")
    return isinstance(seen, dict) and is_number(seen.get("step"))


def is_event(record):
    """Of starts.jsonl; one that a start goes on from some step says from which."""
    return is_whole(record.get("start")) and is_number(record.get("time")) and (
        is_whole(record.get("step")) or record.get("event") not in ("began", "from", "saved"))


def read_efficiency(run, directory):
    """Fills in run.efficiency, or notes why it stays empty."""
    left_out = "where the time went is left out"
    try:
        efficiency = parsed((directory / "efficiency.json").read_text("utf-8"))
    except FileNotFoundError:
        run.notes.append("there is no efficiency.json (a run of an older program, or killed "
                         f"before its first checkpoint): {left_out}")
        return
    except (OSError, ValueError) as error:
        run.notes.append(f"efficiency.json cannot be read ({error}): {left_out}")
        run.is_refused = True
        return
    version = efficiency.get("schema_version") if isinstance(efficiency, dict) else None
    if version != SCHEMA_VERSION:
        run.notes.append(f"efficiency.json has schema version {version!r}, and this tool reads "
                         f"{SCHEMA_VERSION}: {left_out}")
        run.is_refused = True
        return
    run.efficiency = efficiency
    if efficiency.get("complete") is False:
        run.notes.append("partial: the run was killed, or trains still. The account is of its "
                         "last checkpoint; kernels, pipeline, memory and sites of messages "
                         "come with the end of a start")
    elif efficiency.get("complete") is not True:
        run.notes.append("efficiency.json is damaged (it does not say whether it is complete): "
                         "what is made of fields that are missing is left out")
    note_missing_start(run)


def note_missing_start(run):
    """Notes that efficiency.json is of an earlier start than the newest one that began."""
    begins = begins_of(run)
    about = run.efficiency.get("run")
    number = about.get("start") if isinstance(about, dict) else None
    if not is_whole(number):
        run.notes.append("efficiency.json is damaged (it does not say of which start it is)")
    elif begins and number < begins[-1][0]:
        run.notes.append(f"partial: the newest start, number {begins[-1][0]}, has not written "
                         "its account: it was killed, or failed, before it could, or trains "
                         f"still. Where the time went is told up to start {number}")


def environment_of(directory):
    """environment.json, which has a number of ranks; ValueError where it has none."""
    environment = parsed((directory / "environment.json").read_text("utf-8"))
    if not isinstance(environment, dict) or "ranks" not in environment:
        raise ValueError("no 'ranks' in environment.json")
    ranks = environment["ranks"]
    if not is_whole(ranks) or ranks < 1:
        raise ValueError(f"'ranks' in environment.json is {ranks!r}")
    return environment


def read_run(directory):
    """A Run; InputError where the directory is none."""
    directory = Path(directory)
    if not directory.is_dir():
        pattern = any(letter in str(directory) for letter in "*?[")
        raise InputError(f"there is no directory '{directory}'" + (
            ": the pattern fits nothing (have the runs ended with an error?)" if pattern
            else ": expected that of a run of trireme train"))
    try:
        environment = environment_of(directory)
        run = Run(str(directory), environment["ranks"], read_deck(directory / "deck.yaml"),
                  environment)
    except (OSError, ValueError) as error:
        raise InputError(f"'{directory}' is no run of trireme train: {error}") from error
    records = lines_of(run, directory, "train.jsonl", "loss and throughput are",
                       lambda record: is_step(record) or is_validation(record))
    run.steps = [record for record in records if is_step(record)]
    run.validations = [record["validation"] for record in records if is_validation(record)]
    run.starts = lines_of(run, directory, "starts.jsonl", "starts are", is_event)
    read_efficiency(run, directory)
    return run


def begins_of(run):
    """[(number of the start, step it began at, whether the start before it was killed)];
    starts that were refused did not begin."""
    begins, ended = [], True
    for event in run.starts:
        if event.get("event") == "began":
            begins.append((event["start"], event["step"], not ended))
            ended = False
        elif event.get("event") == "from" and begins:  # of a checkpoint older than was thought
            number, _, was_killed = begins[-1]
            begins[-1] = (number, event["step"], was_killed)
        elif event.get("event") == "ended":
            ended = True
    return begins


def layout_of(run):
    """What decides how the ranks work, as trireme plan names it; numbers where it has them."""
    def of(key, default):
        value = run.deck.get(key, default)
        number = whole(value)
        return value if number is None else number

    layout = {key: of(f"parallel.{key}", "1")
              for key in ("tensor", "pipeline", "virtual_pipeline", "context", "zero")}
    degrees = [layout[key] for key in ("tensor", "pipeline", "context")]
    known = all(is_whole(degree) and degree > 0 for degree in degrees)
    layout["data"] = run.ranks // math.prod(degrees) if known else "?"
    layout["sequence"] = run.deck.get("parallel.sequence", "false") == "true"
    layout["schedule"] = run.deck.get("parallel.schedule", "1f1b")
    layout["micro"] = of("batch.micro", "1")
    layout["recompute"] = run.deck.get("memory.recompute", "none")
    return layout


def layout_text(run):
    """ "2 ranks: tensor 2, micro-batch 4": degrees of one and defaults are not said."""
    layout = layout_of(run)
    said = [f"{key.replace('_', ' ')} {layout[key]}"
            for key in ("tensor", "context", "pipeline", "virtual_pipeline", "data")
            if layout[key] != 1]
    if layout["sequence"]:
        said.append("sequence")
    if layout["pipeline"] != 1:
        said.append(str(layout["schedule"]))
    if layout["data"] != 1:
        said.append(f"ZeRO {layout['zero']}")
    said.append(f"micro-batch {layout['micro']}")
    if layout["recompute"] != "none":
        said.append(f"{layout['recompute']} recomputation")
    ranks = "1 rank" if run.ranks == 1 else f"{run.ranks} ranks"
    return f"{ranks}: {', '.join(said)}"


def model_text(run):
    deck = run.deck
    return (f"{deck.get('model.kind', '?')} of {deck.get('model.layers', '?')} layers x "
            f"{deck.get('model.hidden', '?')}, {deck.get('precision.compute', '?')}, "
            f"{deck.get('data.train', '?')}")
