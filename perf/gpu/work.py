#!/usr/bin/env python3
"""One step of the suite, in a process of its own: work.py STEP [ARGUMENT...].

It prints results as lines of JSON (gpu/steps.py keeps each as it comes):

    {"kind": "measured", "case": ..., "what": kernel or "step", "us_per_token": ...}
    {"kind": "finding", "what": ..., "holds": true, false or null, "value": ...}
    {"kind": "facts", ...}

What a finding does not hold is no failure of the step; a program that ends with an error is.
"""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def say(record):
    # One write: threads of a step say things, too.
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def finding(what, holds, value=None):
    say({"kind": "finding", "what": what, "holds": holds, "value": value})


class ProgramFailed(Exception):
    pass


def run(command, **options):
    """What it printed; ProgramFailed with the last of it where it ends with an error."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                          errors="replace", **options)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise ProgramFailed(f"{' '.join(map(str, command))}\nended with status "
                            f"{done.returncode}:\n{tail}")
    return done.stdout


def main():
    import ratio_work
    import truth_work
    import tune_work
    name, *arguments = sys.argv[1:]
    for module in (truth_work, tune_work, ratio_work):
        if name in module.WORK:
            try:
                module.WORK[name](*arguments)
            except ProgramFailed as failure:
                print(failure, flush=True)
                return 1
            return 0
    print(f"work: there is no step '{name}'")
    return 2


if __name__ == "__main__":
    sys.exit(main())
