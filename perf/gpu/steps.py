"""Runs a list of steps within a limit of time, and keeps what each of them finds as it comes.

A step is a command. A line of its output that is a JSON object is a result, and is appended to
the file of results at once, flushed to the disk: whatever ends the step, the results so far
stay. A step that goes on for longer than its own limit is killed with all that it started;
later steps run all the same. The file also has when steps began and how they ended, so that a
later call goes on where an earlier one stopped, and runs again what was killed: what such a step
had compiled by then is still there.
"""
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import selectors
import signal
import subprocess
import time

# A call of the suite has nine minutes; steps' limits add up to less.
CALL_SECONDS = 540
# Left of a call's time for what is between its steps.
SPARE_SECONDS = 20
TAIL_LINES = 30
# So often is a step begun that is killed each time, one time a call.
MOST_RUNS = 3
# Names, in the environment of a step's processes, the file that its results go to.
MARK = "TRIREME_SUITE_RESULTS"
NO_GPU = 77


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    limit: float  # seconds
    command: tuple
    # What has to be there for the step, by names of Surroundings.missing(): where it is not,
    # the step is left out, and the results say so.
    needs: tuple = ()


class Results:
    """The file: one JSON object a line, each with the name of its part and its step."""

    def __init__(self, path, part):
        self.path, self.part = pathlib.Path(path), part

    def append(self, step, record):
        record = {"part": self.part, "step": step, "time": round(time.time(), 3), **record}
        with open(self.path, "ab+") as file:
            # Behind a line that was cut off.
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            begin = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(begin + json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self):
        """Of this part; a line that was cut off, by a machine that was taken away, is none."""
        return [record for record in read_records(self.path) if record["part"] == self.part]

    def ended(self):
        """Names of the steps that need no further call -> how each ended."""
        ended, kills = {}, collections.Counter()
        for record in self.records():
            if record.get("kind") == "end" and record["status"] != "missing":
                ended[record["step"]] = record["status"]
                kills[record["step"]] += record["status"] == "killed"
        return {name: status for name, status in ended.items()
                if status != "killed" or kills[name] >= MOST_RUNS}

    def left_running(self):
        """Of steps that began and have no end: the processes that lead them."""
        begun = {}
        for record in self.records():
            if record.get("kind") == "begin":
                begun[record["step"]] = record.get("process")
            elif record.get("kind") == "end":
                begun.pop(record["step"], None)
        return [process for process in begun.values() if process]


def read_records(path):
    records = []
    with contextlib.suppress(FileNotFoundError):
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                record = json.loads(line)
                if isinstance(record, dict) and {"part", "step"} <= record.keys():
                    records.append(record)
    return records


class Budget:
    """Time that is left of a call."""

    def __init__(self, seconds=CALL_SECONDS, clock=time.monotonic):
        self.clock = clock
        self.end = clock() + seconds

    def left(self):
        return self.end - self.clock()


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def processes_of(group):
    """Process numbers of a group of processes."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # state, parent, group, behind a name that may have anything in it
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[2]) == group:
                yield int(stat.parent.name)


def kill_left_over(results):
    """What an earlier call left running, being killed itself: it would hold the GPU's memory.
    Only processes that say to be of these results: numbers of processes are used again."""
    mark = f"{MARK}={results.path.resolve()}".encode()
    for group in results.left_running():
        for process in processes_of(group):
            with contextlib.suppress(OSError):
                if mark in pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                    os.kill(process, signal.SIGKILL)


def as_result(line):
    """The JSON object that a line is, or None."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


class Output:
    """What a step prints: results go to the file, the last of the rest is kept."""

    def __init__(self, results, step, log):
        self.results, self.step, self.log = results, step, log
        self.rest, self.tail, self.count = b"", [], 0

    def add(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._line(line.decode(errors="replace"))

    def finish(self):
        if self.rest:
            self._line(self.rest.decode(errors="replace"))
        self.rest = b""

    def _line(self, line):
        record = as_result(line)
        if record is not None:
            self.results.append(self.step, record)
            self.count += 1
            return
        self.tail = [*self.tail, line][-TAIL_LINES:]
        self.log.write(line + "\n")
        self.log.flush()


def run_step(step, results, environment, log, limit):
    """Runs it; returns how it ended: "done", "failed" or "killed"."""
    begin = time.monotonic()
    output = Output(results, step.name, log)
    environment = {**environment, MARK: str(results.path.resolve())}
    try:
        process = subprocess.Popen([str(word) for word in step.command], env=environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        results.append(step.name, {"kind": "end", "status": "failed", "seconds": 0.0,
                                   "tail": [str(error)]})
        return "failed"
    try:
        results.append(step.name, {"kind": "begin", "limit": round(limit, 1),
                                   "process": process.pid})
        is_late = follow(process, output, begin + limit)
    finally:
        kill_group(process)  # and what it may have left behind
    output.finish()
    status = "killed" if is_late else "done" if process.returncode == 0 else "failed"
    end = {"kind": "end", "status": status, "seconds": round(time.monotonic() - begin, 2),
           "results": output.count, "returned": process.returncode}
    results.append(step.name, end if status == "done" else {**end, "tail": output.tail})
    return status


def follow(process, output, deadline):
    """Reads until the process has ended, or the time is up: then True."""
    with selectors.DefaultSelector() as selector, process.stdout as stream:
        os.set_blocking(stream.fileno(), False)
        selector.register(stream, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            if selector.select(min(left, 1.0)):
                data = stream.read(1 << 16)
                if data:
                    output.add(data)
                    continue
                if data == b"":  # nobody can write to it any more
                    break
            elif process.poll() is not None:
                break  # what it left behind holds the pipe open
    try:
        process.wait(max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return True
    return False


def run_steps(steps, results, environment, missing, log, budget, again=(), say=print):
    """All that have not ended yet, and those of `again`, in order, as far as the time goes.
    Status 0, or 1 where one of them failed, in this call or before; a step that the time did
    not reach, or without what it needs, is no failure."""
    kill_left_over(results)
    ended = results.ended()
    for step in steps:
        if step.name in ended and step.name not in again:
            say(f"{step.name}: {ended[step.name]} before")
            continue
        lacking = [missing[name] for name in step.needs if name in missing]
        if lacking:
            say(f"{step.name}: left out: {'; '.join(lacking)}")
            results.append(step.name, {"kind": "end", "status": "missing", "tail": lacking})
            continue
        if budget.left() < step.limit:
            say(f"{step.name}: not begun, {max(budget.left(), 0):.0f} s are left of its "
                f"{step.limit:.0f}: the next call goes on here")
            break
        say(f"{step.name}: at most {step.limit:.0f} s")
        ended[step.name] = run_step(step, results, environment, log, step.limit)
        say(f"{step.name}: {ended[step.name]}")
    known = {step.name for step in steps}
    return 1 if any(status != "done" for name, status in ended.items() if name in known) else 0


def limits_fit(steps):
    """Whether one call has time for all of them, whatever they do."""
    return sum(step.limit for step in steps) <= CALL_SECONDS - SPARE_SECONDS
