"""What git knows of the tree that the suite is of. Where there is no git, as beside a GPU, an
archive's manifest has what was known when it was packed, and nothing is known of what came
later."""
import os
import pathlib

import bundle
import device

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREDICTIONS = "perf/gpu/predictions.json"
KERNELS = "src/kernels/"
# Variables that say how git works, and not on what.
SETTINGS = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES")
SOURCES = (".hpp", ".cpp", ".cu", ".cuh")


def git(*words):
    """What it printed, or None where it could not. Variables of another repository, as those of
    a hook, are none of this one."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("GIT_") or name in SETTINGS}
    return device.run(["git", "-C", str(ROOT), *words], environment=environment)


def is_own_repository():
    """Whether the tree is one, and not a folder without any in somebody else's."""
    top = (git("rev-parse", "--show-toplevel") or "").strip()
    return top != "" and pathlib.Path(top).resolve() == ROOT.resolve()


def commit_of_tree():
    """HEAD, and whether files that it knows are others now."""
    if not is_own_repository():
        return "unknown"
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
    if not is_own_repository():
        return None
    if git("status", "--porcelain", "--", PREDICTIONS):
        return int((ROOT / PREDICTIONS).stat().st_mtime)
    seconds = (git("log", "-1", "--format=%ct", "--", PREDICTIONS) or "").strip()
    return int(seconds) if seconds else None


def kernels_changed(commit, since):
    """Sources of kernels that are others than at that commit, or were changed after that time
    where the commit is not known here, by names; None where nobody knows."""
    if is_archive() or not is_own_repository():
        return None
    named = git("diff", "--name-only", commit.partition(" ")[0], "--", KERNELS)
    if named is None:
        if (git("rev-parse", "--is-shallow-repository") or "").strip() != "false":
            return None
        named = git("log", f"--since=@{int(since)}", "--name-only", "--format=", "--", KERNELS)
    if named is None:
        return None
    found = {name.removeprefix(KERNELS) for name in named.split()
             if name.endswith(SOURCES) and (ROOT / name).exists()}
    return sorted(found, key=lambda name: (not name.startswith("cuda/"), name))


def is_archive():
    return bundle.MANIFEST.exists()
