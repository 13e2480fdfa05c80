"""What git knows of the tree that the suite is of. Where there is no git, as beside a GPU, an
archive's manifest has what was known when it was packed, and nothing is known of what came
later."""
import pathlib
import time

import bundle
import device

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREDICTIONS = "perf/gpu/predictions.json"
KERNELS = "src/kernels/"
SOURCES = (".hpp", ".cpp", ".cu", ".cuh")


def git(*words):
    """What it printed, or None where it could not."""
    return device.run(["git", "-C", str(ROOT), *words])


def commit_of_tree():
    """HEAD, and whether files that it knows are others now."""
    commit = (git("rev-parse", "HEAD") or "").strip()
    if not commit:
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no")
    return commit if changed == "" else f"{commit} with changes"


def predictions_changed():
    """When predictions.json was last changed, in seconds since 1970, or None."""
    try:
        return bundle.manifest().get("predictions_changed")
    except bundle.NotPacked:
        pass
    if git("status", "--porcelain", "--", PREDICTIONS):
        return int(time.time())
    seconds = (git("log", "-1", "--format=%ct", "--", PREDICTIONS) or "").strip()
    return int(seconds) if seconds else None


def kernels_changed(since):
    """Sources of kernels that were changed after that time, by names; None where nobody knows."""
    if is_archive():
        return None
    named = git("log", f"--since=@{int(since)}", "--name-only", "--format=", "--", KERNELS)
    if named is None:
        return None
    found = {name.removeprefix(KERNELS) for name in named.split()
             if name.endswith(SOURCES) and (ROOT / name).exists()}
    return sorted(found, key=lambda name: (not name.startswith("cuda/"), name))


def is_archive():
    return bundle.MANIFEST.exists()
