"""`gpu_suite pack --check ARCHIVE`: whether it starts where nothing of this machine's is meant
to be: unpacked elsewhere, an empty environment, no library but its own, the C library's and
NVIDIA's. Without a GPU its parts have to end with status 77."""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import device
import loader
import pack
import parts
import steps

CLEAN_PATH = "/usr/local/bin:/usr/bin:/bin"
NEEDED = ("gpu_suite", "gpu/work.py", "gpu/predictions.json", "compare.py", "manifest.json",
          "peers/gpt2_step_gpu.py", "decks/tiny.yaml", "corpora/tiny.h5", "corpora/gpt2.h5",
          "peers/hugging_face_gpu.py", "decks/tiny-bert.yaml", "corpora/bert.h5",
          "corpora/t5.h5", "expected/weights-tiny-t5.json", "expected/losses-tiny-bert.json",
          "expected/samples-bert-base.jsonl",
          "expected/masks.json", "expected/weights.json", "expected/losses.json",
          "expected/checkpoint/manifest.json", "sources/rebuild.sh",
          "sources/src/kernels/cuda/attention_forward.cu",
          *(f"bin/{name}" for name in pack.PROGRAMS))
# What the loader prints where a program cannot start.
LOADERS_ERRORS = ("error while loading shared libraries", "symbol lookup error",
                  "version `", "undefined symbol")


def unpack(archive, directory):
    """The directory that it unpacks to. Nothing may lie outside of it."""
    with tarfile.open(archive) as file:
        for member in file.getmembers():
            if not (member.isfile() or member.isdir()) or \
                    pathlib.PurePath(member.name).parts[0] != pack.NAME or \
                    ".." in pathlib.PurePath(member.name).parts:
                raise pack.Failed(f"'{member.name}' is no file or directory of {pack.NAME}")
        file.extractall(directory)
    return pathlib.Path(directory) / pack.NAME


def stub_of_driver(directory):
    """Where there is no driver: a directory with the toolkit's stub in its place."""
    if device.run(["sh", "-c", "ldconfig -p | grep -q libcuda.so.1"]) is not None:
        return None
    for stub in ("/usr/local/cuda/lib64/stubs/libcuda.so", "/usr/local/cuda/lib/stubs/libcuda.so"):
        if os.path.exists(stub):
            (directory / "libcuda.so.1").symlink_to(stub)
            return str(directory)
    return None


def environment(root, scratch):
    """Of a machine with nothing: NVIDIA's libraries by path, and a driver or its stub."""
    names = json.loads((root / "manifest.json").read_text(encoding="utf-8"))["nvidia_libraries"]
    libraries = device.find_libraries(names)
    lacking = [name for name in names if name not in libraries]
    if lacking:
        raise pack.Failed(f"{', '.join(lacking)} is in no Python package nvidia-* here, nor in "
                          "/usr/local/cuda: install one to check the archive")
    path = [device.library_path(libraries), stub_of_driver(scratch)]
    return {"PATH": CLEAN_PATH, "HOME": str(scratch), "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": ":".join(filter(None, path))}


def findings_of_program(root, name, clean):
    """What keeps a program from starting, and which library is not the archive's own."""
    for library, path in loader.libraries_of(root / "bin" / name, clean).items():
        base = pathlib.Path(library).name
        if base in loader.OF_GLIBC:
            continue
        if path is None:
            yield f"bin/{name}: {base} is not found"
        elif not loader.is_of_nvidia(base) and base not in loader.OF_DRIVER and \
                root.resolve() not in pathlib.Path(path).resolve().parents:
            yield f"bin/{name}: {base} is this machine's ({path})"
    done = subprocess.run([root / "bin" / name, "--help"], env={**clean, "LD_BIND_NOW": "1"},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
                          cwd=root, timeout=120)
    if done.returncode == 127 or any(error in done.stdout for error in LOADERS_ERRORS):
        yield f"bin/{name} does not start: {done.stdout.strip()[-400:]}"


def findings_of_parts(root, clean):
    """Without a GPU each part is over at once, with a status that says so."""
    if device.find_gpu() is not None:
        return
    for part in parts.PARTS:
        done = subprocess.run([sys.executable, root / "gpu_suite", part], env=clean, cwd=root,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              encoding="utf-8", timeout=120)
        if done.returncode != steps.NO_GPU:
            yield (f"gpu_suite {part} ended with status {done.returncode} where there is no "
                   f"GPU: {done.stdout.strip()[-400:]}")


def findings(archive, scratch):
    size = archive.stat().st_size
    if size >= pack.MOST_BYTES:
        yield f"it has {size / 2 ** 20:.1f} MiB; less than {pack.MOST_BYTES >> 20} is wanted"
    root = unpack(archive, scratch)
    lacking = [name for name in NEEDED if not (root / name).exists()]
    if lacking:
        yield f"it lacks {', '.join(lacking)}"
        return
    listed = json.loads((root / "manifest.json").read_text(encoding="utf-8"))["files"]
    for name in listed:
        if not (root / name).exists():
            yield f"it lacks {name}, which manifest.json has"
    clean = environment(root, pathlib.Path(scratch))
    for name in pack.PROGRAMS:
        yield from findings_of_program(root, name, clean)
    yield from findings_of_parts(root, clean)


def check(archive):
    count = 0
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for finding in findings(archive, scratch):
                print(f"gpu_suite pack --check: {finding}")
                count += 1
    except (OSError, pack.Failed, tarfile.TarError, subprocess.TimeoutExpired) as error:
        print(f"gpu_suite pack --check: {error}")
        return 1
    if not count:
        print(f"{archive}: starts, {archive.stat().st_size / 2 ** 20:.1f} MiB")
    return 1 if count else 0
