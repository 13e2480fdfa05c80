"""The steps of each part of the suite, with their limits: those of a part add up to less than
the nine minutes of a call, so that a part is over in one call, whatever its steps do."""
import pathlib
import sys

from steps import Step

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ("gpt2-124m", "gpt2-355m", "megatron-1.2b", "slice-8.3b")
# Models of other kinds, and the smallest of them: of each kind one with the keys of the first
# papers, and those with what later ones changed.
KINDS = ("bert-base", "t5-small")
TINY_KINDS = ("tiny-bert", "tiny-bert-post", "tiny-bert-packed", "tiny-t5", "tiny-t5-gated")
SHARDS = 4
# Kernels that Nsight Compute is asked about: a part of their names as they are demangled. Those
# of Kokkos are all called by its own launch function, and have the function that launches them
# in the parameters of their type.
COUNTED = ("forward_kernel", "backward_kernel", "residual_norm_forward", "residual_norm_backward",
           "activation_backward", "adamw")


def kind_of(name):
    """Of a deck: its corpus is that of its kind."""
    return next((kind for kind in ("bert", "t5") if kind in name), "gpt")


def step(name, limit, *work, needs=()):
    return Step(name, limit, (sys.executable, str(HERE / "work.py"), *map(str, work)),
                ("libraries", *needs))


def sanitizer(name, limit, *work):
    return step(name, limit, "sanitizer", *work, needs=("compute-sanitizer",))


def truth(results):
    """First what says whether the kernels that are changed most are right, for a GPU that is
    there for some minutes alone. cuDNN's attention is set beside what the profile found."""
    return [step("versions", 15, "versions"),
            step("peaks", 15, "peaks", needs=("torch",)),
            step("start", 20, "start"),
            step("tests of attention", 38, "first_tests"),
            step("masks", 5, "masks"),
            step("twice", 25, "twice"),
            sanitizer("memcheck", 55, "memcheck"),
            step("profile", 20, "profile", "0"),
            sanitizer("racecheck", 50, "racecheck"),
            sanitizer("racecheck of generation", 30, "racecheck", "generation"),
            *[step(f"tests {shard + 1} of {SHARDS}", 36, "tests", shard, SHARDS)
              for shard in range(SHARDS)],
            step("weights", 10, "weights"),
            step("restart", 25, "restart", results),
            step("attention of cuDNN", 43, "cudnn", results, needs=("cudnn",)),
            step("memory", 25, "memory")]


def tune(results):
    return [step("peaks", 25, "peaks", needs=("torch",)),
            *[step(f"products of {model}", 25, "products", model, needs=("torch",))
              for model in MODELS],
            step("attention of PyTorch", 35, "attention", needs=("torch",)),
            step("attention", 40, "own_attention", results),
            step("rows", 40, "rows"),
            step("layers of a token", 20, "layers_of_a_token"),
            *[step(f"table of {model}", 35, "table", model) for model in MODELS],
            *[step(f"counters of {kernel}", 20, "counters", kernel, needs=("ncu",))
              for kernel in COUNTED]]


LIMITS = {"gpt2-124m": 25, "gpt2-355m": 33, "megatron-1.2b": 42, "slice-8.3b": 52}


def beside_pytorch(dropout, *limits_of_compilers):
    """PyTorch's steps are compiled first, two at a time, which have room in the GPU's memory and
    compile on the host's cores; each model's turns then find them in its cache."""
    pairs = zip(limits_of_compilers, (MODELS[:2], MODELS[2:]))
    return [*[step(f"compile {' and '.join(models)}, dropout {dropout}", limit, "compile",
                   dropout, *models, needs=("torch",)) for limit, models in pairs],
            *[step(f"{model}, dropout {dropout}", LIMITS[model], "ratio", model, dropout,
                   needs=("torch",)) for model in MODELS]]


def ratio(results):
    del results
    return [*beside_pytorch("0", 90, 70), step("decoding gpt2-124m", 25, "decode", "gpt2-124m"),
            step("decoding megatron-1.2b", 110, "decode", "megatron-1.2b")]


def dropout(results):
    """With dropout PyTorch compiles for longer: 53 s of 124M alone, on 16 cores."""
    del results
    return [step("profile with dropout", 20, "profile", "0.1"),
            *beside_pytorch("0.1", 130, 100)]


def kinds(results):
    """What truth asks of GPT, of BERT and T5."""
    del results
    planned = [step(f"{work} of {tiny}", limit, work, tiny) for tiny in TINY_KINDS
               for work, limit in (("weights", 8), ("losses", 22))]
    planned += [step(f"twice of {tiny}", 30, "twice", tiny) for tiny in TINY_KINDS]
    return planned + [step(f"profile of {model}", 25, "profile", "0", model)
                      for model in KINDS]


def kinds_ratio(results):
    """And what ratio and dropout ask."""
    del results
    planned = []
    for dropout_now, limit in (("0", 95), ("0.1", 125)):
        needs = ("torch", "transformers")
        planned.append(step(f"compile {' and '.join(KINDS)}, dropout {dropout_now}", limit,
                            "compile", dropout_now, *KINDS, needs=needs))
        planned += [step(f"{model}, dropout {dropout_now}", 33, "ratio", model, dropout_now,
                         needs=needs) for model in KINDS]
    return planned


PARTS = {"truth": truth, "tune": tune, "ratio": ratio, "dropout": dropout, "kinds": kinds,
         "kinds-ratio": kinds_ratio}
