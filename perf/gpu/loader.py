"""Which shared libraries a program needs, and which of them are whose."""
import pathlib
import re
import subprocess

# The C library, which is the machine's own.
OF_GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0",
            "libresolv.so.2", "libutil.so.1", "libanl.so.1", "libmvec.so.1",
            "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
# NVIDIA's: of its Python packages or the toolkit, and of the driver.
OF_NVIDIA = ("libcublas", "libcudart", "libnccl", "libcudnn", "libnvrtc", "libnvJitLink")
OF_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")

LINE = re.compile(r"^\s*(\S+) => (?:(/\S+)|not found)(?: \(0x[0-9a-f]+\))?\s*$")


def is_of_nvidia(name):
    return name.startswith(OF_NVIDIA)


def read_ldd(text):
    """Name of each library that a loader looked for -> where it is, or None."""
    found = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            found[match.group(1)] = match.group(2)
    return found


def libraries_of(program, environment=None):
    """All that a program or a library needs, and what these need."""
    done = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", env=environment)
    if done.returncode != 0 and "not a dynamic executable" not in done.stdout:
        raise RuntimeError(f"ldd {program}: {done.stdout.strip()}")
    return read_ldd(done.stdout)


def sort_out(needed):
    """What ldd found -> (files to take along by name, names of NVIDIA's, names missing)."""
    ours, nvidia, missing = {}, [], []
    for name, path in needed.items():
        base = pathlib.Path(name).name
        if base in OF_GLIBC or base in OF_DRIVER:
            continue
        if is_of_nvidia(base):
            nvidia.append(base)
        elif path is None:
            missing.append(base)
        else:
            ours[base] = path
    return ours, nvidia, missing
