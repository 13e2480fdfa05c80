"""Where everything is: in the archive that `perf/gpu_suite pack` makes, whose directory has a
manifest.json, and which alone has programs for a GPU."""
import functools
import hashlib
import json
import os
import pathlib
import shutil

import device
import parts

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
MANIFEST = ROOT / "manifest.json"
TOOLS = ("compute-sanitizer", "nvcc", "ncu")
KERNEL_LIBRARY = "libtrireme_kernels_on_cuda.so"


class NotPacked(Exception):
    """What was asked for runs from an unpacked archive only."""


@functools.lru_cache(maxsize=None)
def manifest():
    try:
        return json.loads(MANIFEST.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotPacked(f"'{ROOT}' is no unpacked archive of the suite: make one with "
                        "'perf/gpu_suite pack', and run the gpu_suite that is in it") from None


def digest_of_kernels(root):
    """Of the one library of an archive that can be made anew beside the GPU."""
    library = root / "lib" / KERNEL_LIBRARY
    return hashlib.sha256(library.read_bytes()).hexdigest() if library.exists() else None


def commit():
    """What results are of: the commit that was packed, and whether its kernels are still those."""
    packed = manifest().get("commit", "unknown")
    kernels = manifest().get("kernels")
    is_another = kernels is not None and kernels != digest_of_kernels(ROOT)
    return f"{packed} with kernels made anew" if is_another else packed


def program(name):
    return ROOT / "bin" / name


def deck(name):
    return ROOT / "decks" / f"{name}.yaml"


def corpus(name):
    return ROOT / "corpora" / f"{name}.h5"


def corpus_of(deck_name):
    """That of the smallest GPT is its own; other models of a kind have one."""
    kind = parts.kind_of(deck_name)
    return corpus("tiny" if deck_name == "tiny" else "gpt2" if kind == "gpt" else kind)


def expected(name):
    return ROOT / "expected" / name


def python_candidates():
    """Pythons that may have NVIDIA's libraries and PyTorch."""
    named = os.environ.get("TRIREME_SUITE_PYTHON")
    return [one for one in (named, shutil.which("python3"), shutil.which("python")) if one]


def find_tool(name):
    """A program of the CUDA toolkit, on PATH or where it is usually installed."""
    found = shutil.which(name)
    usual = pathlib.Path("/usr/local/cuda/bin") / name
    return found or (str(usual) if usual.exists() else None)


class Surroundings:
    """What this machine has beside the archive, looked up once."""

    def __init__(self):
        names = manifest()["nvidia_libraries"]
        optional = manifest().get("optional_libraries", [])
        self.libraries = device.find_libraries([*names, *optional], python_candidates())
        self.lacking_libraries = [name for name in names if name not in self.libraries]
        self.lacking_optional = [name for name in optional if name not in self.libraries]
        self.python = device.python_with_torch(python_candidates())
        self.tools = {name: find_tool(name) for name in TOOLS}

    def missing(self):
        """What steps may need and is not here -> why."""
        found = {}
        if self.lacking_libraries:
            found["libraries"] = ("no " + ", ".join(self.lacking_libraries) + " in any package "
                                  "nvidia-* nor in /usr/local/cuda")
        for name in self.lacking_optional:
            # By the library's own name, "cudnn" of "libcudnn.so.9".
            found[name.removeprefix("lib").partition(".")[0]] = (
                f"no {name} in any package nvidia-* nor in /usr/local/cuda")
        if not self.python:
            found["torch"] = "no Python here has PyTorch with CUDA (TRIREME_SUITE_PYTHON)"
        elif not device.has_package(self.python, "transformers"):
            found["transformers"] = f"{self.python} has no package transformers"
        for name, path in self.tools.items():
            if not path:
                found[name] = f"no {name}"
        return found

    def environment(self):
        """Of every step: libraries by path, one thread, and a host's MPI that needs no network."""
        path = device.library_path(self.libraries)
        # Each program loads its modules as it does for its users, whatever a container says.
        inherited = {name: value for name, value in os.environ.items()
                     if name != "CUDA_MODULE_LOADING"}
        return {**inherited, "LD_LIBRARY_PATH": path, "OMP_NUM_THREADS": "8",
                "OMP_PROC_BIND": "false", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
                "TRIREME_SUITE_PYTHON": self.python or "",
                "TRIREME_SUITE_SANITIZER": self.tools["compute-sanitizer"] or "",
                "TRIREME_SUITE_NCU": self.tools["ncu"] or "",
                # What torch.compile made in an earlier step is not made again.
                "TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}
