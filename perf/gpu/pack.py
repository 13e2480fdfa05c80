"""`gpu_suite pack`: an archive that runs on a machine with a Hopper GPU, its driver and
NVIDIA's Python packages, and nothing else.

    bin/        trireme, all unit tests in one program, masks, benchmarks; stripped
    lib/        the libraries that they need beside the C library's and NVIDIA's
    decks/ corpora/   what they train
    expected/   what the CPU says: masks, initial weights, losses, a checkpoint, samples
    sources/    src/kernels/cuda and what it includes, with rebuild.sh: only these kernels can
                be changed there
    gpu_suite gpu/ compare.py peers/   the suite itself
    manifest.json
"""
import datetime
import json
import os
import pathlib
import platform
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import bundle
import history
import loader
import parts

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "trireme-gpu-suite"
MOST_BYTES = 45 * 2 ** 20
PROGRAMS = ("trireme", "trireme_gpu_tests", "trireme_gpu_masks", "trireme_micro")
# Loaded when a run asks for them, so that the loader does not name them: steps that need one are
# left out where it is not.
OPTIONAL_LIBRARIES = ("libcudnn.so.9",)
KERNEL_LIBRARY = bundle.KERNEL_LIBRARY
# Programs look for libraries beside themselves first, and so do these libraries.
LINKER_FLAGS = "-Wl,--disable-new-dtags,-rpath,'$ORIGIN/../lib'"
TINY_DECK = """# A model as small as tensor cores take, for perf/gpu_suite truth.
model: {layers: 2, hidden: 128, heads: 2, sequence: 128}
data: {train: corpus.h5, split: [1.0, 0.0, 0.0]}
batch: {micro: 2, global: 8}
optimizer: {lr: 1.0e-3, schedule: constant}
run: {steps: 6, seed: 7, log_every: 1, validate_every: 0}
checkpoint: {every: 3, keep: 2}
"""
# The same of other kinds of model, whose corpora those of their larger ones are, too.
DECK_OF_KIND = """# A model as small as tensor cores take, for perf/gpu_suite kinds.
model: {{kind: {kind}, layers: 2, hidden: 128, heads: 2, head_size: 64, sequence: 128{model}}}
data: {{train: corpus.h5, split: [1.0, 0.0, 0.0]{data}}}
batch: {{micro: 2, global: 8}}
optimizer: {{lr: 1.0e-3, schedule: constant}}
run: {{steps: 6, seed: 7, log_every: 1, validate_every: 0}}
checkpoint: {{every: 3, keep: 2}}
"""
# By parts.TINY_KINDS: what their decks have beside that, under `model` and under `data`.
KEYS_OF_KIND = {
    "tiny-bert": ("", ""),
    "tiny-bert-post": (", norm_placement: post", ""),
    "tiny-bert-packed": (", binary_head: false, type_vocab_size: 0, activation: gelu",
                         ", pack: true, reset_attention_mask: true, reset_position_ids: true"),
    "tiny-t5": ("", ""),
    "tiny-t5-gated": (", activation: geglu_tanh, tie_embeddings: false", ""),
}
DOCUMENTS_OF_KINDS = 60  # of 3000 words
TINY_STEPS, TINY_STOP, TINY_VOCABULARY = 6, 3, 300
WORDS_OF_TEXT = 300_000
PRESET = 9  # of xz
# What unit tests read of the tree, and what is needed of it to compile the kernels.
TEST_DATA = ("tests/parity/fixtures", "inputs", "slurm", "docs")
PEERS = ("gpt2_step.py", "gpt2_step_gpu.py", "samples.py", "bert_step.py", "t5_step.py",
         "hugging_face_gpu.py")


class Failed(Exception):
    pass


def run(command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", **options)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise Failed(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n"
                     f"{tail}")
    return done.stdout


# ---- building

def configure_command(kokkos, build):
    return ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            f"-DKokkos_ROOT={kokkos}", f"-DCMAKE_CXX_COMPILER={kokkos / 'bin' / 'nvcc_wrapper'}",
            "-DTRIREME_REQUIRE_CUDA=ON", "-DTRIREME_ENABLE_TESTS=ON", "-DTRIREME_ENABLE_PERF=ON",
            "-DTRIREME_ARCH=x86-64-v3", "-DTRIREME_SHARED_CUDA_KERNELS=ON",
            f"-DCMAKE_EXE_LINKER_FLAGS={LINKER_FLAGS}", "-DCMAKE_SKIP_RPATH=ON"]


def build_programs(kokkos, build, jobs):
    """The programs for one Hopper GPU, in a build of their own."""
    if not shutil.which("nvcc"):
        raise Failed("no nvcc on PATH")
    if kokkos is None or not (kokkos / "bin" / "nvcc_wrapper").exists():
        raise Failed("--kokkos DIR: a Kokkos with CUDA for one architecture (Hopper), installed "
                     "with its nvcc_wrapper; docs/developer/cuda.md says how")
    # Kokkos' wrapper of nvcc does not know how to hand on what is for the fat binary.
    environment = {**os.environ, "CMAKE_CXX_COMPILER_LAUNCHER": "",
                   "NVCC_APPEND_FLAGS": "-Xfatbin -compress-all"}
    print(run(configure_command(kokkos.resolve(), build), env=environment).splitlines()[-1])
    run(["cmake", "--build", build, "-j", jobs, "--target", *PROGRAMS], env=environment)


# ---- what goes into it

def stage_programs(build, stage):
    """Programs, stripped, and the libraries beside them; NVIDIA's names and those missing."""
    (stage / "bin").mkdir()
    (stage / "lib").mkdir()
    kernels = sorted(build.glob(f"**/{KERNEL_LIBRARY}"))
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(
        [*(str(one.parent) for one in kernels), os.environ.get("LD_LIBRARY_PATH", "")])}
    libraries, nvidia = {}, set()
    for name in PROGRAMS:
        source = build / "bin" / name
        if not source.exists():
            raise Failed(f"'{source}' was not built")
        ours, theirs, missing = loader.sort_out(loader.libraries_of(source, environment))
        if missing:
            raise Failed(f"{name} needs {', '.join(missing)}, which is nowhere here")
        libraries.update(ours)
        nvidia.update(theirs)
        shutil.copy(source, stage / "bin" / name)
        run(["strip", stage / "bin" / name])
    for name, path in libraries.items():
        shutil.copy(pathlib.Path(path).resolve(), stage / "lib" / name)
        os.chmod(stage / "lib" / name, 0o755)
        run(["strip", "--strip-unneeded", stage / "lib" / name])
    return sorted(nvidia)


def stage_suite(stage):
    """The suite itself, and what it reads."""
    perf = ROOT / "perf"
    shutil.copy(perf / "gpu_suite", stage / "gpu_suite")
    for name in ("compare.py", "checkpoint_tensors.py"):
        shutil.copy(perf / name, stage / name)
    (stage / "peers").mkdir()
    for name in PEERS:
        shutil.copy(perf / "peers" / name, stage / "peers" / name)
    (stage / "gpu").mkdir()
    for path in sorted([*(perf / "gpu").glob("*.py"), *(perf / "gpu").glob("*.json")]):
        shutil.copy(path, stage / "gpu" / path.name)
    # predict.py reads one constant of the source.
    (stage / "src" / "nn").mkdir(parents=True)
    shutil.copy(ROOT / "src" / "nn" / "word_loss.hpp", stage / "src" / "nn" / "word_loss.hpp")
    for directory in TEST_DATA:
        shutil.copytree(ROOT / directory, stage / directory,
                        ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)


INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.M)


def kernel_sources():
    """src/kernels/cuda/*.cu and all of src/ that they include, by paths from src/."""
    source = ROOT / "src"
    left = [path.relative_to(source) for path in sorted((source / "kernels/cuda").glob("*.cu"))]
    found = []
    while left:
        path = left.pop()
        if path in found:
            continue
        found.append(path)
        text = (source / path).read_text(encoding="utf-8")
        left += [pathlib.Path(name) for name in INCLUDE.findall(text)
                 if (source / name).exists()]
    return sorted(found)


REBUILD = """#!/bin/sh
# Makes the library of the attention kernels again, of the sources beside this file.
set -e
cd "$(dirname "$0")"
nvcc -std=c++20 -O3 -arch=sm_90a --expt-relaxed-constexpr -I src -Xcompiler -fPIC --shared \\
  --cudart shared -Xfatbin -compress-all -o ../lib/{library} src/kernels/cuda/*.cu
"""


def stage_sources(stage):
    for path in kernel_sources():
        target = stage / "sources" / "src" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "src" / path, target)
    script = stage / "sources" / "rebuild.sh"
    script.write_text(REBUILD.format(library=KERNEL_LIBRARY), encoding="utf-8")
    script.chmod(0o755)


def write_text(path, words):
    """Random words: what they say does not change a step's time."""
    letters = random.Random(7)
    vocabulary = ["".join(letters.choices("etaoinshrdlucmfwypvbgkjqxz", k=letters.randint(1, 9)))
                  for _ in range(20_000)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(words // 20):
            file.write(" ".join(letters.choices(vocabulary, k=20)) + "\n")


def stage_decks(stage, trireme):
    (stage / "decks").mkdir()
    (stage / "corpora").mkdir()
    (stage / "decks" / "tiny.yaml").write_text(TINY_DECK, encoding="utf-8")
    for deck in sorted((ROOT / "perf" / "gpu" / "models").glob("*.yaml")):
        shutil.copy(deck, stage / "decks" / deck.name)
    with tempfile.TemporaryDirectory() as scratch:
        text = pathlib.Path(scratch) / "words.txt"
        write_text(text, WORDS_OF_TEXT)
        run([trireme, "tokenize", "--tokenizer", "gpt2", "--out", stage / "corpora" / "gpt2.h5",
             text])
        write_text(text, 20_000)
        run([trireme, "tokenize", "--train-bpe", TINY_VOCABULARY, "--out",
             stage / "corpora" / "tiny.h5", text])
        for kind in ("bert", "t5"):
            stage_kind(stage, trireme, kind, pathlib.Path(scratch))


def stage_kind(stage, trireme, kind, scratch):
    """A corpus of made-up words of BERT's or T5's vocabulary, and the smallest decks."""
    import compare  # not before: it is a part of the suite, as truth_work
    for name in parts.TINY_KINDS:
        if parts.kind_of(name) == kind:
            model, data = KEYS_OF_KIND[name]
            (stage / "decks" / f"{name}.yaml").write_text(
                DECK_OF_KIND.format(kind=kind, model=model, data=data), encoding="utf-8")
    write = {"bert": compare.write_bert_vocabulary, "t5": compare.write_t5_vocabulary}[kind]
    directory = scratch / kind
    directory.mkdir()
    vocabulary, words = write(directory)
    text = directory / "documents.jsonl"
    # Blank lines end BERT's sentences; T5's have no newline.
    compare.write_documents(text, words, "\n\n" if kind == "bert" else " ",
                            documents=DOCUMENTS_OF_KINDS)
    sentences = ["--sentences", "none"] if kind == "bert" else []
    run([trireme, "tokenize", "--tokenizer", vocabulary, *sentences, "--out",
         stage / "corpora" / f"{kind}.h5", text])


def stage_samples(stage, host):
    """What PyTorch's steps of BERT and T5 train on: the first samples of the run."""
    for model in parts.KINDS:
        deck = stage / "decks" / f"{model}.yaml"
        batch = int(re.search(r"^  global: (\d+)$", deck.read_text(encoding="utf-8"), re.M)[1])
        corpus = stage / "corpora" / f"{parts.kind_of(model)}.h5"
        printed = run([host / "trireme_samples", deck, batch, f"data.train={corpus}"])
        lines = [line for line in printed.splitlines() if line.startswith("{")]
        if len(lines) != batch:
            raise Failed(f"trireme_samples printed {len(lines)} samples of {batch} of {model}")
        (stage / "expected" / f"samples-{model}.jsonl").write_text("\n".join(lines) + "\n",
                                                                   encoding="utf-8")


def stage_expected(stage, host):
    """What the CPU says, by programs of the host's build."""
    import truth_work  # not before: it is a part of the suite, whose paths are the archive's
    expected = stage / "expected"
    expected.mkdir()
    masks = [json.loads(line) for line in run([host / "trireme_gpu_masks"]).splitlines()
             if line.startswith("{")]
    write_json(expected / "masks.json", {one["mask"]: one["digest"] for one in masks})
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        command = [host / "trireme", "train", stage / "decks" / "tiny.yaml", "--set",
                   f"data.train={stage / 'corpora' / 'tiny.h5'}"]
        run([*command, "--run-dir", scratch / "whole"])
        losses = truth_work.losses_of(truth_work.steps_of(scratch / "whole"))
        if sorted(losses) != list(range(1, TINY_STEPS + 1)):
            raise Failed(f"the CPU's run has the steps {sorted(losses)}")
        write_json(expected / "losses.json", losses)
        shutil.copytree(scratch / "whole" / "checkpoints" / f"step_{TINY_STOP:08}",
                        expected / "checkpoint")
        settings = [word for one in (*truth_work.NO_STEP, "checkpoint.every=1")
                    for word in ("--set", one)]
        run([*command, *settings, "--run-dir", scratch / "first"])
        write_json(expected / "weights.json", initial_weights(scratch / "first"))
        for name in parts.TINY_KINDS:
            corpus = stage / "corpora" / f"{parts.kind_of(name)}.h5"
            command = [host / "trireme", "train", stage / "decks" / f"{name}.yaml", "--set",
                       f"data.train={corpus}"]
            run([*command, "--run-dir", scratch / name, "--set", "checkpoint.every=0"])
            losses = truth_work.losses_of(truth_work.steps_of(scratch / name))
            write_json(expected / f"losses-{name}.json", losses)
            run([*command, *settings, "--run-dir", scratch / f"first-{name}"])
            write_json(expected / f"weights-{name}.json",
                       initial_weights(scratch / f"first-{name}"))


def initial_weights(directory):
    """Digests of a run's parameters, which its step left as they were."""
    import truth_work
    digests = truth_work.digests_of(truth_work.last_checkpoint(directory))
    return {name: digest for name, digest in digests.items() if name.startswith("model/")}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def first_line(command, pattern):
    try:
        found = re.search(pattern, run(command))
    except (OSError, Failed):
        return "unknown"
    return found.group(1) if found else "unknown"


def write_manifest(stage, nvidia):
    write_json(stage / "manifest.json", {
        "commit": history.commit_of_tree(),
        "kernels": bundle.digest_of_kernels(stage),
        "predictions_changed": history.predictions_changed(),
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "nvcc": first_line(["nvcc", "--version"], r"release [0-9.]+, V([0-9.]+)"),
        "glibc": platform.libc_ver()[1],
        "nvidia_libraries": nvidia,
        "optional_libraries": list(OPTIONAL_LIBRARIES),
        "files": sorted(str(path.relative_to(stage)) for path in stage.glob("**/*")
                        if path.is_file())})


def write_archive(stage, out):
    """Bytes of the archive; Failed where it is larger than it may be."""
    def without_owner(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry
    # What several programs have, kernels above all, is within the reach of this dictionary.
    with tarfile.open(out, "w:xz", preset=PRESET) as archive:
        archive.add(stage, arcname=NAME, filter=without_owner)
    size = out.stat().st_size
    if size >= MOST_BYTES:
        raise Failed(f"'{out}' has {size / 2 ** 20:.1f} MiB, and less than "
                     f"{MOST_BYTES >> 20} is wanted: the largest files are "
                     + ", ".join(largest_files(stage)))
    return size


def largest_files(stage):
    files = sorted(((path.stat().st_size, path) for path in stage.glob("**/*")
                    if path.is_file()), reverse=True)
    return [f"{path.relative_to(stage)} ({size / 2 ** 20:.1f} MiB)" for size, path in files[:5]]


def fill(stage, build, host):
    """All of it; `build` has the programs for the GPU, `host` is a directory of the host's."""
    nvidia = stage_programs(build, stage)
    stage_suite(stage)
    stage_sources(stage)
    stage_decks(stage, host / "trireme")
    stage_expected(stage, host)
    stage_samples(stage, host)
    write_manifest(stage, nvidia)


def pack(arguments):
    build = arguments.build or ROOT / "build" / "gpu_suite"
    host = (arguments.host or ROOT / "build" / "release") / "bin"
    out = arguments.out or ROOT / "build" / f"{NAME}.tar.xz"
    try:
        for name in ("trireme", "trireme_gpu_masks", "trireme_samples"):
            if not (host / name).exists():
                raise Failed(f"'{host / name}' is not there: build the host's programs first "
                             "(--host; -DTRIREME_ENABLE_PERF=ON)")
        if not arguments.no_build:
            build_programs(arguments.kokkos, build, arguments.jobs)
        with tempfile.TemporaryDirectory() as scratch:
            stage = pathlib.Path(scratch) / NAME
            stage.mkdir()
            fill(stage, build, host)
            size = write_archive(stage, out)
    except Failed as failure:
        print(f"gpu_suite pack: {failure}", file=sys.stderr)
        return 1
    print(f"{out}: {size / 2 ** 20:.1f} MiB")
    return 0
