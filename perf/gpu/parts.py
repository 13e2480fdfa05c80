"""The steps of each part of the suite, with their limits: those of a part add up to less than
the nine minutes of a call, so that a part is over in one call, whatever its steps do."""
import pathlib
import sys

from steps import Step

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ("gpt2-124m", "gpt2-355m", "megatron-1.2b", "slice-8.3b")
SHARDS = 4


def step(name, limit, *work, needs=()):
    return Step(name, limit, (sys.executable, str(HERE / "work.py"), *map(str, work)),
                ("libraries", *needs))


def truth(results):
    return [step("versions", 15, "versions"),
            step("peaks", 25, "peaks", needs=("torch",)),
            step("start", 20, "start"),
            *[step(f"tests {shard + 1} of {SHARDS}", 40, "tests", shard, SHARDS)
              for shard in range(SHARDS)],
            step("masks", 10, "masks"),
            step("weights", 10, "weights"),
            step("restart", 30, "restart", results),
            step("twice", 30, "twice"),
            step("profile", 35, "profile", "0"),
            step("memory", 30, "memory"),
            step("memcheck", 60, "sanitizer", "memcheck", needs=("compute-sanitizer",)),
            step("racecheck", 60, "sanitizer", "racecheck", needs=("compute-sanitizer",)),
            step("profile with dropout", 35, "profile", "0.1")]


def tune(results):
    return [step("peaks", 35, "peaks", needs=("torch",)),
            *[step(f"products of {model}", 35, "products", model, needs=("torch",))
              for model in MODELS],
            *[step(f"table of {model}", 45, "table", model) for model in MODELS[:2]],
            step("attention of PyTorch", 40, "attention", needs=("torch",)),
            step("attention", 30, "own_attention", results),
            step("rows", 90, "rows"),
            step("counters", 90, "counters", needs=("ncu",))]


def ratio(results):
    del results
    limits = {"gpt2-124m": 55, "gpt2-355m": 65, "megatron-1.2b": 70, "slice-8.3b": 45}
    return [*[step(f"{model}, dropout {dropout}", limits[model], "ratio", model, dropout,
                   needs=("torch",)) for dropout in ("0", "0.1") for model in MODELS],
            step("decoding gpt2-124m", 20, "decode", "gpt2-124m"),
            step("decoding megatron-1.2b", 30, "decode", "megatron-1.2b")]


PARTS = {"truth": truth, "tune": tune, "ratio": ratio}
