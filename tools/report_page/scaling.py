# tools/report_page/scaling.py — which runs may be compared, and how they scale. Runs are
# compared where their resolved decks ask for the same work: the same model, corpus, precision
# and optimizer, on whatever grid. The same batch on more ranks is strong scaling; a batch that
# grows as the ranks do is weak scaling; neither is compared with the other.
#
# Runs of one deck on as many ranks, each with as many threads, on the same machine are repeats:
# they make one row, the mean, from the least to the most. The first row, on fewest ranks, is the
# measure; efficiency is (tokens per second / ranks) in parts of that of the measure.
import collections
import statistics
from pathlib import Path
from typing import NamedTuple

from report_page.run_files import LACKING, InputError, begins_of, deck_of, layout_of, \
    layout_text, model_text, parsed, whole

# What a step has to do, by the keys of the deck: each group of them, or one.
WORK = ("model.", "precision.", "data.train", "data.mask_eod_loss", "batch.ramp_up",
        "optimizer.kind", "optimizer.clip_norm")
BATCH = "batch.global"
DATA_RANKS = "parallel.data"
# Where a run leaves its files says nothing about it.
PLACES = ("run.dir", "checkpoint.dir")
LONGEST_DIFFERENCE = 60  # letters of a value that is named
MOST_NAMES = 4  # of runs that have it
# By how much further right a mark stands than the one before it on as many ranks, and the last
# of all than their number: half way to the next power of two and less.
BESIDE, WIDEST = 1.05, 1.2
# What of that a prediction must agree in: the planner knows no corpus.
MODEL = ("model.", "precision.", "optimizer.kind")
# And of a layout, only where it has ranks along that axis.
OF_AXIS = {"sequence": "tensor", "schedule": "pipeline", "virtual_pipeline": "pipeline",
           "zero": "data"}


class Repeats:
    """Runs of one layout; rates are tokens per second, one of each run."""

    def __init__(self, runs, rates):
        self.runs, self.rates = runs, rates
        self.ranks, self.deck = runs[0].ranks, conditions(runs[0])
        self.batch = whole(runs[0].deck[BATCH])
        self.layout = layout_text(runs[0])
        self.grid = self.layout.partition(": ")[2]  # without the number of ranks
        self.rate = statistics.mean(rates)
        self.prediction = None

    @property
    def predicted(self):
        """Tokens per second; None where nothing was predicted."""
        return self.prediction and self.prediction.rate

    @property
    def short_name(self):
        """Of the directories."""
        more = len(self.runs) - 1
        return self.runs[0].name + (f" and {more} more" if more else "")

    @property
    def name(self):
        """With the least and the most of them."""
        span = f" ({min(self.rates):.1f} to {max(self.rates):.1f} tokens/s)"
        return self.short_name + (span if len(self.runs) > 1 else "")

    @property
    def typical(self):
        """The run whose rate is the median of them."""
        return sorted(zip(self.rates, range(len(self.runs)), self.runs))[
            len(self.runs) // 2][2]


def rate_of(run):
    """Median tokens per second of the last start's records but the first, whose first step
    is slow; InputError where there are not enough."""
    begins = begins_of(run)
    began = begins[-1][1] if begins else 0
    rates = [record["tokens_per_second"] for record in run.steps if record["step"] > began]
    if len(rates) < 2:
        have = "1 record of a step" if len(rates) == 1 else f"{len(rates)} records of steps"
        raise InputError(f"'{run.name}' has {have} of its last start; 2 are needed "
                         "(run.log_every, run.steps)")
    return statistics.median(rates[1:])


def work_of(run):
    return tuple(sorted(item for item in run.deck.items() if item[0].startswith(WORK)))


def listed(field):
    return field if isinstance(field, list) else []


def machine_of(environment):
    """{what: text} of where a run was. GPUs and processors are known by their names, and their
    hosts are counted; of a run before processors were named the hosts stand for them."""
    hosts = sorted(map(str, listed(environment.get("hosts"))))
    processors = sorted(map(str, listed(environment.get("processors"))))
    kinds = collections.Counter(str(device.get("name"))
                                for device in listed(environment.get("devices"))
                                if isinstance(device, dict))
    if len(kinds) == 1:
        return {"devices": next(iter(kinds)), "hosts": str(len(hosts))}
    if kinds:
        return {"devices": " + ".join(f"{count} x {name}"
                                      for name, count in sorted(kinds.items())),
                "hosts": str(len(hosts))}
    if processors:
        return {"processors": " + ".join(processors), "hosts": str(len(hosts))}
    return {"hosts": " + ".join(hosts) or "not known"}


def conditions(run):
    """The deck without places, and what else runs can differ in. Data ranks that the deck
    leaves open are those that there were."""
    build = run.environment.get("build")
    build = build if isinstance(build, dict) else {}
    said = {key: value for key, value in run.deck.items() if key not in PLACES}
    if said.get(DATA_RANKS) == "auto":
        said[DATA_RANKS] = str(layout_of(run)["data"])
    said["threads of a rank"] = str(run.environment.get("threads_per_rank", "not known"))
    said["build"] = str(build.get("git", "not known"))
    return said | machine_of(run.environment)


def repeats_of(runs):
    """(runs with the same work grouped as Repeats: {work: [Repeats]}, why others are not)"""
    groups, said = {}, []
    for run in runs:
        try:
            if not whole(run.deck.get(BATCH, "")):
                raise InputError(f"'{run.name}' has no {BATCH} in its deck")
            member = run, rate_of(run)  # before its group, which else could stay empty
            key = (work_of(run), run.ranks, tuple(sorted(conditions(run).items())))
            groups.setdefault(key, []).append(member)
        except InputError as error:
            said.append(str(error))
    works = {}
    for (work, _, _), members in groups.items():
        works.setdefault(work, []).append(Repeats(*map(list, zip(*members))))
    return works, said


def shortened(value):
    return value if len(value) <= LONGEST_DIFFERENCE else value[:LONGEST_DIFFERENCE - 3] + "..."


def short_names(rows):
    """The name of each row's first run, without the directories above it where that is enough."""
    names = [Path(row.runs[0].name).name for row in rows]
    return names if len(set(names)) == len(names) else [row.runs[0].name for row in rows]


def names_text(names):
    """ "a, b, c and 4 more" """
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def values_text(values, names):
    """ "2 of a, b; 1 of the others": whose each value is. What more than half have stands
    last, without their names."""
    owners = {}
    for value, name in zip(values, names):
        owners.setdefault(value, []).append(name)
    usual = next((value for value, mine in owners.items() if 2 * len(mine) > len(values)), None)
    said = [f"{shortened(value)} of {names_text(mine)}" for value, mine in owners.items()
            if value != usual]
    return "; ".join(said + ([] if usual is None else [f"{shortened(usual)} of the others"]))


def differences(rows, but=()):
    """["parallel.tensor: 1 of a; 2 of b", ...]: conditions that the rows do not agree in."""
    said, names = [], short_names(rows)
    for key in sorted(set().union(*(row.deck for row in rows))):
        values = [row.deck.get(key, "(none)") for row in rows]
        if len(set(values)) > 1 and key not in but:
            said.append(f"{key}: {values_text(values, names)}")
    return said


class ScalingSet:
    """Rows that one measure holds for: kind is strong, weak or alone."""

    def __init__(self, kind, rows):
        self.kind = kind
        self.rows = sorted(rows, key=lambda row: (row.ranks, -row.rate))
        self.measure = self.rows[0]

    def speed_up(self, row, rate=None):
        return (row.rate if rate is None else rate) / self.measure.rate

    def efficiency(self, row, rate=None):
        return self.speed_up(row, rate) * self.measure.ranks / row.ranks

    def predicted_speed_up(self, row):
        """Of the predicted measure where there is one: how well it scales is another matter
        than how fast it is."""
        return row.predicted / (self.measure.predicted or self.measure.rate)

    def beside(self, ranks):
        """The rows on so many ranks, which stand side by side in a chart."""
        return [row for row in self.rows if row.ranks == ranks]

    def place(self, row):
        """Where on the axis of ranks the row stands: beside the others on as many ranks, where
        they would hide each other."""
        beside = self.beside(row.ranks)
        away = 2 * beside.index(row) - (len(beside) - 1)  # from -(n - 1) to n - 1
        widest = min(BESIDE ** ((len(beside) - 1) / 2), WIDEST)
        return row.ranks * widest ** (away / max(1, len(beside) - 1))

    def ideal(self):
        """[(place, speed-up)] of a line: as level as the rows on one number of ranks stand, so
        that each mark has the ideal of its ranks right above it."""
        line = []
        for ranks in sorted({row.ranks for row in self.rows}):
            beside = self.beside(ranks)
            line += [(self.place(row) * margin, ranks / self.measure.ranks)
                     for row, margin in ((beside[0], 1 / BESIDE), (beside[-1], BESIDE))]
        return line

    @property
    def differences(self):
        return differences(self.rows, (BATCH,) if self.kind == "weak" else ())

    @property
    def heading(self):
        row = self.measure
        if self.kind == "strong":
            return f"strong scaling: a batch of {row.batch} on every number of ranks"
        if self.kind == "weak":
            return (f"weak scaling: a batch that grows with the ranks, "
                    f"{row.batch / row.ranks:g} for each")
        ranks = "1 rank" if row.ranks == 1 else f"{row.ranks} ranks"
        return f"a batch of {row.batch} on {ranks}: no other number of ranks to compare with"

    @property
    def model(self):
        return model_text(self.measure.runs[0])


def scaling_sets(rows):
    """ScalingSets of rows with the same work. One may stand in two: as the smallest both of the
    same batch on more ranks and of larger batches on more ranks."""
    sets, taken = [], set()

    def sort_by(size_of):
        return [[row for row in rows if size_of(row) == value]
                for value in sorted({size_of(row) for row in rows})]

    for kind, size_of in (("strong", lambda row: row.batch),
                          ("weak", lambda row: row.batch / row.ranks)):
        for members in sort_by(size_of):
            if len({row.ranks for row in members}) > 1:
                sets.append(ScalingSet(kind, members))
                taken.update(map(id, members))
    for members in sort_by(lambda row: row.batch):
        left = [row for row in members if id(row) not in taken]
        if left:
            sets.append(ScalingSet("alone", left))
    return sets


class Comparison:
    """All sets of some runs, and what keeps others out."""

    def __init__(self, runs):
        works, self.left_out = repeats_of(runs)
        self.sets = [each for rows in works.values() for each in scaling_sets(rows)]
        self.rows = [row for rows in works.values() for row in rows]
        self.different = []
        if len(works) > 1:
            first = set(next(iter(works)))
            self.different = sorted({key for work in works for key, _ in set(work) ^ first})


def text_of(comparison):
    """As tables for a terminal."""
    tables = []
    for each in comparison.sets:
        lines = [each.model, each.heading]
        lines += [f"  differ in {line}" for line in each.differences]
        lines.append(f"  {'ranks':>6} {'tokens/s':>12} {'per rank':>10} {'speed-up':>9} "
                     f"{'efficiency':>10}  run")
        for row in each.rows:
            lines.append(f"  {row.ranks:6} {row.rate:12.1f} {row.rate / row.ranks:10.1f} "
                         f"{each.speed_up(row):9.2f} {each.efficiency(row):10.1%}  {row.name}")
        tables.append("\n".join(lines))
    if comparison.different:
        tables.append("Runs whose work differs are not compared: "
                      + ", ".join(comparison.different))
    return "\n\n".join(tables)


# --- what the planner says ---------------------------------------------------------------------


class Prediction(NamedTuple):
    """What a plan says of one layout."""
    layout: dict
    tokens: float  # of a step
    rate: float  # tokens per second
    model: dict  # model_of() its deck
    machine: str


def model_of(deck):
    """What of a deck makes a step's products and sums, on whatever corpus and grid."""
    return {key: value for key, value in deck.items() if key.startswith(MODEL)}


def read_prediction(path):
    """[Prediction] of a file of `trireme plan --json`."""
    no_plan = f"'{path}' is no plan that `trireme plan --json` wrote"
    try:
        plan = parsed(Path(path).read_text("utf-8"))
        plans = plan["plans"]
        # The file tells the tokens of a step by how long the best plan takes for all of them.
        tokens = plan["tokens"] * plans[0]["step_seconds"] / (86400 * plan["days"])
        made = [(dict(each["layout"]), tokens / each["step_seconds"]) for each in plans]
        if "resolved_deck" not in plan:
            raise InputError(f"'{path}' does not say of which model it is (resolved_deck): have "
                             "a newer `trireme plan --json` write it anew")
        model = model_of(deck_of(plan["resolved_deck"], path))
    except OSError as error:
        raise InputError(f"cannot read '{path}' ({error.strerror})") from None
    except LACKING as error:
        raise InputError(f"{no_plan} ({error!r})") from None
    if tokens <= 0 or any(rate <= 0 for _, rate in made):
        raise InputError(f"{no_plan} (times and tokens are positive)")
    return [Prediction(layout, tokens, rate, model, str(plan.get("machine")))
            for layout, rate in made]


def is_of(layout, run):
    mine = layout_of(run)
    for key, value in layout.items():
        axis = OF_AXIS.get(key)
        if axis and mine[axis] == 1:
            continue
        if key in mine and mine[key] != value:
            return False
    return mine["context"] == layout.get("context", 1)


def has_tokens(prediction, row):
    """Whether a step of the row's runs is of as many tokens."""
    tokens = row.batch * (whole(row.deck.get("model.sequence", "")) or 0)
    return tokens > 0 and abs(prediction.tokens / tokens - 1) < 1e-3


def add_predictions(rows, predictions):
    """Fills in what was predicted of the rows' own models, layouts and batches. Says why none
    was; "" where one was."""
    said, others = "", set()
    for row in rows:
        model = model_of(row.deck)
        same = [each for each in predictions if each.model == model]
        others |= {key for each in predictions if each.model != model
                   for key, _ in each.model.items() ^ model.items()}
        row.prediction = next((each for each in same if has_tokens(each, row)
                               and is_of(each.layout, row.runs[0])), None)
        if same:
            said = ("no prediction is of a layout and a batch that was run: see `layout` in its "
                    "file")
    if not rows or any(row.prediction for row in rows):
        return ""
    return said or ("no prediction is of a model that was run: they differ in "
                    + ", ".join(sorted(others)))
