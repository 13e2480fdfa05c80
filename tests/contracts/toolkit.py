# tests/contracts/toolkit.py — nvcc and CUDA's disassemblers: where they are, and what is asked
# of them. tools/bootstrap looks in the same places.
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from occupancy import MULTIPROCESSORS
from sass import Resources, read_functions, read_launch_bounds, read_resources

TREE = Path(__file__).resolve().parents[2]
# As docs/developer/cuda.md and src/kernels/cuda/CMakeLists.txt have them.
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Xcompiler=-Wall,-Wextra",
         "-Werror", "all-warnings"]


@dataclass
class Launch:
    """A line of what launches.cpp prints."""
    file: str
    kernel: str
    name: str
    threads: int
    shared_bytes: int


@dataclass
class Kernel:
    """What a compiled object says of one of its kernels."""
    instructions: list
    resources: Resources
    launch_bounds: int  # threads of a block at most; 0 where the source says nothing


class ToolFailed(Exception):
    pass


def _directories():
    """Where CUDA is, if not on the PATH."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    return [Path(home) / "bin" for home in [*homes, "/usr/local/cuda"] if home]


def find_nvcc():
    places = [None, *_directories()]
    return next((path for path in (shutil.which("nvcc", path=place and str(place))
                                   for place in places) if path), None)


def find_disassembler(name, nvcc):
    deps = Path(os.environ.get("TRIREME_DEPS", TREE / ".deps"))
    places = [None, Path(nvcc).resolve().parent, *_directories(), deps / "cuda-tools"]
    return next((path for path in (shutil.which(name, path=place and str(place))
                                   for place in places) if path), None)


def short_name(demangled):
    """forward_kernel<0, 64, true>, without namespaces, types of numbers and parameters."""
    text = re.sub(r"\(anonymous namespace\)::|\((?:\w+::)*\w+\)(?=-?\d)", "", demangled)
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0:
            text = text[:at]
            break
    return re.sub(r"\b(?:\w+::)+", "", text).removeprefix("void ").strip()


class Toolkit:
    def __init__(self, nvcc, cuobjdump, nvdisasm):
        self.nvcc, self.cuobjdump = nvcc, cuobjdump
        # cuobjdump looks for nvdisasm on the PATH.
        path = os.pathsep.join([str(Path(nvdisasm).parent), os.environ.get("PATH", "")])
        self.environment = {**os.environ, "PATH": path}

    @staticmethod
    def find():
        """(a Toolkit, None), or (None, what is missing)."""
        nvcc = find_nvcc()
        if nvcc is None:
            return None, "no nvcc on the PATH, in CUDA_HOME, CUDA_PATH or /usr/local/cuda"
        tools = {name: find_disassembler(name, nvcc) for name in ("cuobjdump", "nvdisasm")}
        missing = [name for name, path in tools.items() if path is None]
        if missing:
            return None, (f"no {' and no '.join(missing)} on the PATH, beside {nvcc} or in "
                          ".deps/cuda-tools: tools/bootstrap --tests installs what is missing")
        if shutil.which("c++filt") is None:
            return None, "no c++filt on the PATH: binutils has it"
        return Toolkit(nvcc, tools["cuobjdump"], tools["nvdisasm"]), None

    def run(self, *command, text=None):
        done = subprocess.run([str(word) for word in command], input=text, text=True,
                              capture_output=True, env=self.environment)
        if done.returncode != 0:
            raise ToolFailed(f"{' '.join(str(word) for word in command)}\n"
                             f"{(done.stderr + done.stdout).strip()}")
        return done.stdout

    def version(self):
        """13.0.88"""
        found = re.search(r"\bV(\d+(?:\.\d+)+)", self.run(self.nvcc, "--version"))
        return found.group(1) if found else "of an unknown version"

    def compile(self, root, source, arch, output):
        """An object of this one file, and the headers that it reached."""
        headers = output.with_suffix(".d")
        # What -arch=sm_90a stands for, without the code for later GPUs: nvcc 13 makes that for
        # compute_90, too, which has no word for what sm_90a alone can do.
        target = f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}"
        self.run(self.nvcc, *FLAGS, target, "-I", root / "src", "-MD", "-MF", headers, "-c", "-o",
                 output, source)
        text = headers.read_text("utf-8").replace("\\\n", " ").partition(" : ")[2]
        return [word.replace("\\ ", " ") for word in re.split(r"(?<!\\)\s+", text) if word]

    def compile_device_code(self, source, arch, output, *options):
        """The machine code alone of what a source has for GPUs."""
        self.run(self.nvcc, *FLAGS, "-x", "cu", "--extended-lambda", f"-arch={arch}", "-cubin",
                 *options, "-o", output, source)

    def launches(self, root, directory):
        """What tests/contracts/launches.cpp of this tree prints."""
        program = directory / "launches"
        self.run(self.nvcc, "-std=c++20", "-cudart", "none", "-I", root / "src", "-o", program,
                 root / "tests" / "contracts" / "launches.cpp")
        lines = [line.split("\t") for line in self.run(program).splitlines()]
        return [Launch(file, kernel, name, int(threads), int(shared))
                for file, kernel, name, threads, shared in lines]

    def kernels(self, output, name_of=short_name):
        """The kernels of an object by their short names; where that is None, they are left out."""
        code = read_functions(self.run(self.cuobjdump, "-sass", output))
        resources = read_resources(self.run(self.cuobjdump, "-res-usage", output))
        bounds = read_launch_bounds(self.run(self.cuobjdump, "-elf", output))
        names = list(code)
        shown = self.run("c++filt", text="\n".join(names)).splitlines()
        named = {name: name_of(text) for name, text in zip(names, shown) if name in resources}
        kernels = {}
        for name, short in named.items():
            if short is None:
                continue
            if short in kernels:
                raise ToolFailed(f"two kernels of {output.name} are {short} for short")
            kernels[short] = Kernel(code[name], resources[name], bounds.get(name, 0))
        return kernels


def architectures(source):
    """Of a file x.sm90a.cu that one, else all that the table has."""
    named = re.search(r"\.sm(\w+)\.cu$", source.name)
    return [f"sm_{named.group(1)}"] if named else list(MULTIPROCESSORS)
