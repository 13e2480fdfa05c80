"""The GPU of this machine, and NVIDIA's libraries, which its Python packages bring."""
import ctypes
import functools
import glob
import os
import pathlib
import shutil
import subprocess
import sys

LIBRARY_GLOBS = ("nvidia/*/lib", "nvidia/*/*/lib")
SYSTEM_DIRECTORIES = ("/usr/local/cuda/lib64", "/usr/local/cuda/lib",
                      "/usr/local/cuda/targets/x86_64-linux/lib",
                      "/usr/lib/x86_64-linux-gnu", "/usr/lib64")


def run(command, timeout=30, environment=None):
    """What a command printed, or None where it could not."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=timeout, encoding="utf-8",
                              errors="replace", env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def smi(*fields):
    """Of the first GPU, by nvidia-smi, as text; None where there is none."""
    text = run(["nvidia-smi", f"--query-gpu={','.join(fields)}",
                "--format=csv,noheader,nounits"])
    if not text or not text.strip():
        return None
    values = [value.strip() for value in text.splitlines()[0].split(",")]
    return dict(zip(fields, values)) if len(values) == len(fields) else None


def count_by_driver():
    """GPUs that the driver's library sees; 0 where there is no such library."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def number(text):
    """What nvidia-smi says as a number; 0 where it says "[N/A]", as of a slice of a GPU."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return 0.0


def slice_of_gpu():
    """The profile ("1g.10gb") of the slice that programs find here where the GPU is divided
    (MIG), or None."""
    lines = (run(["nvidia-smi", "-L"]) or "").splitlines()
    return next((line.split()[1] for line in lines if line.split()[:1] == ["MIG"]), None)


def find_gpu():
    """{"name", "driver", "memory_mib"} of the GPU, or None. A machine whose driver's library is
    there and whose nvidia-smi is not has one, too. The name of a slice ends in it: what is
    predicted of the whole GPU is nothing to measure that by."""
    found = smi("name", "driver_version", "memory.total")
    if found:
        profile = slice_of_gpu()
        return {"name": f"{found['name']} MIG {profile}" if profile else found["name"],
                "driver": found["driver_version"],
                "memory_mib": number(found["memory.total"])}
    if count_by_driver() > 0:
        return {"name": "unknown", "driver": "unknown", "memory_mib": 0.0}
    return None


@functools.lru_cache(maxsize=None)
def package_directories(python=sys.executable):
    """Where packages of that Python lie."""
    text = run([python, "-c", "import site, sys; print('\\n'.join([*site.getsitepackages(), "
                "site.getusersitepackages(), *filter(None, sys.path)]))"])
    directories = (text or "").splitlines()
    return tuple(dict.fromkeys(one for one in directories if os.path.isdir(one)))


def library_directories(pythons=()):
    """Where NVIDIA's libraries may lie: in packages first."""
    found = []
    for python in dict.fromkeys([sys.executable, *pythons]):
        for directory in package_directories(python):
            for pattern in LIBRARY_GLOBS:
                found += sorted(glob.glob(os.path.join(directory, pattern)))
    found += [one for one in SYSTEM_DIRECTORIES if os.path.isdir(one)]
    return list(dict.fromkeys(found))


def find_libraries(names, pythons=()):
    """Names of libraries ("libcublasLt.so.13") -> files; those that are nowhere are left out."""
    directories = library_directories(pythons)
    found = {}
    for name in names:
        for directory in directories:
            if (pathlib.Path(directory) / name).exists():
                found[name] = str(pathlib.Path(directory) / name)
                break
    return found


def library_path(libraries):
    """LD_LIBRARY_PATH with the directories of these files. Not those of the system, which the
    loader knows and where more lies than is meant."""
    directories = dict.fromkeys(os.path.dirname(path) for path in libraries.values())
    wanted = [one for one in directories if one not in ("/usr/lib/x86_64-linux-gnu",
                                                        "/usr/lib64")]
    return ":".join([*wanted, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


def has_package(python, name):
    """Whether that Python finds the package; it is not loaded."""
    return run([python, "-c", "import importlib.util, sys; "
                f"sys.exit(importlib.util.find_spec({name!r}) is None)"]) is not None


def python_with_torch(candidates=()):
    """The first Python that has PyTorch with CUDA's part, or None."""
    for python in dict.fromkeys([*candidates, sys.executable, shutil.which("python3"),
                                 shutil.which("python")]):
        if python and run([python, "-c", "import torch, sys; "
                           "sys.exit(torch.version.cuda is None)"], 120) is not None:
            return python
    return None
