# What `cmake --preset cuda` says of a machine on which something is missing or does not fit, and
# what it makes of one on which all is there. Kokkos, its nvcc_wrapper and, where one is not at
# hand, the toolkit are stand-ins: a configuration asks them for their names and versions only.
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


class CudaConfigure(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.place = Path(self.scratch.name)

    def kokkos(self, devices="SERIAL;CUDA", architecture="90"):
        """A Kokkos package with these devices, and an nvcc_wrapper beside it."""
        root = self.place / "kokkos"
        cuda = "ON" if "CUDA" in devices else "OFF"
        write(root / "lib/cmake/Kokkos/KokkosConfig.cmake",
              f'set(Kokkos_DEVICES "{devices}")\nset(Kokkos_ENABLE_CUDA {cuda})\n'
              f"set(Kokkos_CUDA_ARCHITECTURES {architecture})\n"
              "add_library(Kokkos::kokkos INTERFACE IMPORTED)\n")
        write(root / "lib/cmake/Kokkos/KokkosConfigVersion.cmake",
              "set(PACKAGE_VERSION 4.7.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
        write(root / "bin/nvcc_wrapper", '#!/bin/sh\nexec g++ "$@"\n', 0o755)
        return root

    def toolkit(self, version):
        """A toolkit of this version whose nvcc compiles nothing."""
        root = self.place / "toolkit"
        write(root / "bin/nvcc", f'#!/bin/sh\necho "Cuda compilation tools, V{version}.0"\n', 0o755)
        write(root / "include/cuda_runtime.h", "")
        write(root / "lib64/libcudart.so", "")
        return root

    def configure(self, kokkos, *options):
        """The status, and what was said, in one line: CMake breaks its lines anywhere."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("CXX", "CMAKE_", "Kokkos", "CUDA"))}
        environment["Kokkos_ROOT"] = str(kokkos)
        done = subprocess.run(
            ["cmake", "--preset", "cuda", "-B", str(self.place / "build"),
             "-DTRIREME_ENABLE_TESTS=OFF", *options],
            cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def refusal(self, *arguments):
        status, said = self.configure(*arguments)
        self.assertNotEqual(status, 0)
        return said

    def test_a_kokkos_without_cuda(self):
        said = self.refusal(self.kokkos(devices="SERIAL;OPENMP", architecture=""))
        self.assertIn("needs a Kokkos built with CUDA; found", said)
        self.assertIn("which has SERIAL;OPENMP. Set Kokkos_ROOT", said)

    def test_a_kokkos_for_gpus_that_are_too_old(self):
        said = self.refusal(self.kokkos(architecture="70"))
        self.assertIn("architecture '70'; Trireme needs 80 (A100), 90", said)

    def test_a_compiler_that_is_not_kokkos_wrapper(self):
        said = self.refusal(self.kokkos(), "-DCMAKE_CXX_COMPILER=g++")
        self.assertIn("-DCMAKE_CXX_COMPILER=<its prefix>/bin/nvcc_wrapper", said)

    def test_no_toolkit(self):
        said = self.refusal(self.kokkos(), "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON")
        self.assertIn("has CUDA, and there is no nvcc: load the module", said)

    def test_a_toolkit_that_is_too_old(self):
        said = self.refusal(self.kokkos(), f"-DCUDAToolkit_ROOT={self.toolkit('11.8')}")
        self.assertIn("is 11.8.0, whose nvcc knows no C++20: take CUDA 12 or 13", said)

    def test_a_machine_that_has_all(self):
        if shutil.which("nvcc") is None:
            return  # the cases above need none
        for architecture, code in (("80", "80"), ("90", "90a")):
            with self.subTest(architecture=architecture):
                shutil.rmtree(self.place / "build", ignore_errors=True)
                kokkos = self.kokkos(architecture=architecture)
                status, said = self.configure(kokkos)
                self.assertEqual(status, 0, said)
                self.assertIn(f", for sm_{code} ", said)
                for library in ("dnnl", "KokkosKernels", "BLAS"):
                    self.assertNotIn(f"Found {library}", said)
                rules = (self.place / "build/build.ninja").read_text(encoding="utf-8")
                kernels = set(re.findall(r"--generate-code=(\S+)", rules))
                self.assertEqual(kernels, {f"arch=compute_{code},code=[compute_{code},sm_{code}]"})
                cache = (self.place / "build/CMakeCache.txt").read_text(encoding="utf-8")
                self.assertIn(f"{kokkos}/bin/nvcc_wrapper", cache)
                library = re.search(r"CUDA_cublasLt_LIBRARY:FILEPATH=(.*)/", cache).group(1)
                self.assertRegex(rules, f"-Wl,-rpath,[^ ]*{re.escape(library)}[: ]")

    def test_no_nccl_where_it_is_wanted(self):
        if shutil.which("nvcc") is None:
            return  # a compiler is asked for before NCCL is
        said = self.refusal(self.kokkos(), "-DTRIREME_ENABLE_NCCL=ON",
                            "-DTRIREME_NCCL_LIBRARY=")  # which is then not looked for
        self.assertIn("No NCCL was found", said)
        self.assertIn("or build without it by -DTRIREME_ENABLE_NCCL=OFF", said)


if __name__ == "__main__":
    unittest.main()
