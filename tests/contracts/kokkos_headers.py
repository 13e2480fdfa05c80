# tests/contracts/kokkos_headers.py — headers of a Kokkos with CUDA, for a compiler that makes code
# for GPUs and links nothing: an installed Kokkos brings the sources of all of its backends, and
# says in a few headers which of them it was built with. Here these say CUDA.
import re
from pathlib import Path

# Calls of CUDA 12 that CUDA 13 gave other parameters, in functions of Kokkos 4.7 that nothing here
# runs: overloads under the same names let it compile.
CALLS_OF_CUDA_12 = """\
#include <cuda_runtime_api.h>
#if CUDART_VERSION >= 13000
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) {
  return cudaErrorNotSupported;
}
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t*,
                                            const cudaGraphNode_t*, size_t) {
  return cudaErrorNotSupported;
}
#endif
"""
SWITCHED_ON = ("KOKKOS_ENABLE_CUDA", "KOKKOS_ENABLE_CUDA_LAMBDA", "KOKKOS_ENABLE_SERIAL",
               "KOKKOS_ENABLE_CXX20")
GPUS = r"KOKKOS_ARCH_(?:KEPLER|MAXWELL|PASCAL|VOLTA|TURING|AMPERE|ADA|HOPPER|BLACKWELL)\d*"
SWITCHED_OFF = ("KOKKOS_ENABLE_OPENMP", "KOKKOS_ENABLE_THREADS", "KOKKOS_ENABLE_CXX17",
                GPUS)
ARCHITECTURES = {"sm_80": ("KOKKOS_ARCH_AMPERE", "KOKKOS_ARCH_AMPERE80"),
                 "sm_90": ("KOKKOS_ARCH_HOPPER", "KOKKOS_ARCH_HOPPER90")}


class Unusable(Exception):
    """The installed Kokkos is not as this module knows it."""


def switched(text, on=(), off=()):
    """A header of CMake's configure_file() with these macros defined, and those not, which may be
    patterns."""
    for name in off:
        text = re.sub(rf"^#define ({name})\b.*$", r"/* #undef \1 */", text, flags=re.M)
    for name in on:
        if not re.search(rf"^#define {name}\b", text, re.M):
            text, count = re.subn(rf"^/\* *#undef {name} *\*/", f"#define {name}", text, flags=re.M)
            if count == 0:
                raise Unusable(f"it has no switch {name}")
    return text


def version_of(installed):
    """4.7.0"""
    text = (Path(installed) / "KokkosCore_config.h").read_text("utf-8")
    found = [re.search(rf"^#define KOKKOS_VERSION_{part} (\d+)", text, re.M)
             for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(match.group(1) if match else "?" for match in found)


def write_headers(installed, output, arch):
    """Into the directory `output`, which a compiler is to search before `installed`; returns the
    header to include before all else."""
    installed, output = Path(installed), Path(output)

    def changed(name, **switches):
        source = installed / name
        if not source.exists():
            raise Unusable(f"it has no {name}")
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(switched(source.read_text("utf-8"), **switches), "utf-8")

    changed("KokkosCore_config.h", on=(*SWITCHED_ON, *ARCHITECTURES[arch]), off=SWITCHED_OFF)
    changed("desul/atomics/Config.hpp", on=("DESUL_ATOMICS_ENABLE_CUDA",),
            off=("DESUL_ATOMICS_ENABLE_OPENMP",))
    for kind, headers in (
            ("Fwd", ("fwd/Kokkos_Fwd_SERIAL.hpp", "fwd/Kokkos_Fwd_CUDA.hpp")),
            ("Setup", ("setup/Kokkos_Setup_Cuda.hpp",)),
            ("Declare", ("decl/Kokkos_Declare_SERIAL.hpp", "decl/Kokkos_Declare_CUDA.hpp"))):
        for header in headers:
            if not (installed / header).exists():
                raise Unusable(f"it has no {header}")
        text = "#pragma once\n" + "".join(f"#include <{header}>\n" for header in headers)
        (output / f"KokkosCore_Config_{kind}Backend.hpp").write_text(text, "utf-8")
    first = output / "calls_of_cuda_12.hpp"
    first.write_text(CALLS_OF_CUDA_12, "utf-8")
    return first
