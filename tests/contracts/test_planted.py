# tests/contracts/test_planted.py — the contract on a small tree of one kernel, compiled: that it
# holds there, and that each violation planted is found and named. Status 77, and so skipped,
# where nvcc or a disassembler is missing.
import contextlib
import io
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import machine_code
from toolkit import Toolkit

FIXTURE = Path(__file__).parent / "fixtures" / "product.cu"
# Its kernel that keeps nothing in local memory.
PRODUCT = FIXTURE.read_text("utf-8").partition("__global__ void indexed")[0]
LAUNCHES = """\
#include <cstdio>
int main() {
  std::puts("%s");
  return 0;
}
"""
LINE = r"product.cu\tproduct<0, 64, true>\tproduct bf16\t64\t0"


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("product.cu", PRODUCT)
        self.launch(LINE)

    def write(self, name, text):
        path = self.root / "src" / "kernels" / "cuda" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def launch(self, *lines):
        path = self.root / "tests" / "contracts" / "launches.cpp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(LAUNCHES % r"\n".join(lines), "utf-8")

    def said(self, *arguments):
        with io.StringIO() as said, contextlib.redirect_stdout(said):
            status = machine_code.main(["--root", str(self.root), *arguments])
            return status, said.getvalue()

    def update(self):
        status, said = self.said("--update")
        self.assertEqual(status, 0, said)

    def plant(self, before, after):
        self.assertIn(before, PRODUCT)
        self.write("product.cu", PRODUCT.replace(before, after))

    def expect(self, *findings):
        """These beginnings of findings, for each architecture, and status 1."""
        status, said = self.said()
        self.assertEqual(status, 1, said)
        for finding in findings:
            self.assertIn(finding, said)
        self.assertIn("machine_code.py --update", said)
        return said

    def test_a_clean_tree(self):
        status, said = self.said()
        self.assertEqual(status, 1)
        self.assertIn("machine_code.txt: there is no table", said)
        self.update()
        status, said = self.said()
        self.assertEqual(status, 0, said)
        self.assertIn("machine_code: 0 finding(s) in 2 kernels", said)
        status, said = self.said("--show")
        self.assertEqual(status, 0)
        self.assertIn("HMMA.bf16 1(1)", said)

    def test_scalar_loads(self):
        self.update()
        self.plant("tile[threadIdx.x] = rows[step * 64 + threadIdx.x];", """
    const auto* const words = reinterpret_cast<const std::uint32_t*>(rows + step * 64);
    auto* const to = reinterpret_cast<std::uint32_t*>(tile);
#pragma unroll
    for (int i = 0; i < 16; ++i) to[i * 64 + threadIdx.x] = words[i * 64 + threadIdx.x];""")
        said = self.expect(
            "product bf16 (sm_80): wide_loads: loads of 128 bits and more from memory: found -, "
            "wanted = LDG.128; threads should move 16 bytes at a time",
            "product bf16 (sm_80): loop_narrow_loads: ", "product bf16 (sm_80): loop_narrow_shared")
        self.assertIn("product bf16 (sm_90a): loop_narrow_loads: loads of fewer than 128 bits from "
                      "memory in the main loop: found 17, wanted <= 8", said)

    def test_products_without_tensor_cores(self):
        self.update()
        head, rest = PRODUCT.split('    asm("mma', 1)
        self.write("product.cu", head + "    for (int i = 0; i < 4; ++i) sums[i] += x[i];\n" +
                   rest.split('"r"(x[2]));\n', 1)[1])
        for arch in ("sm_80", "sm_90a"):
            self.expect(f"product bf16 ({arch}): tensor: instructions of tensor cores: found -, "
                        "wanted = HMMA.bf16; ")

    def test_products_of_another_type(self):
        self.update()
        self.plant("f32.bf16.bf16.f32", "f32.f16.f16.f32")
        self.expect("product bf16 (sm_80): tensor: instructions of tensor cores: found HMMA.fp16, "
                    "wanted = HMMA.bf16")

    def test_spills(self):
        self.update()
        self.plant("    sums[0] *= factors[step];", """
    float many[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) many[i] = factors[step * 96 + i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 96; ++i) sums[0] = sums[0] * many[95 - i] + many[i];""")
        source = self.root / "src" / "kernels" / "cuda" / "product.cu"
        text = source.read_text("utf-8")
        source.write_text(text.replace("__launch_bounds__(64)", "__launch_bounds__(64, 32)"))
        self.expect("product bf16 (sm_80): loop_spills: loads from and stores to local memory in "
                    "the main loop: found ", "product bf16 (sm_90a): stack: bytes of local memory ")

    def test_fewer_blocks(self):
        self.update()
        self.launch(LINE.replace(r"\t64\t0", r"\t64\t98304"))
        self.expect("product bf16 (sm_80): blocks: blocks on a multiprocessor at a time: found 1, "
                    "wanted >= ", "product bf16 (sm_90a): shared: bytes of shared memory, static "
                    "and dynamic: found 99328, wanted = 1024")

    def test_a_warning(self):
        self.plant("float sums[4] = {};", "float sums[4] = {};\n  int forgotten;")
        place = "src/kernels/cuda/product.cu"
        self.expect(f"{place} (sm_80): does not compile alone without warnings: ",
                    f"{place} (sm_90a): does not compile alone without warnings: ", "forgotten")

    def test_a_header_of_kokkos(self):
        (self.root / "src" / "Kokkos_Macros.hpp").write_text("")
        self.plant("#include <cstdint>", '#include <cstdint>\n#include "Kokkos_Macros.hpp"')
        self.expect("src/kernels/cuda/product.cu (sm_80): includes Kokkos_Macros.hpp: ")

    def test_launches_that_do_not_fit_the_kernels(self):
        self.launch(LINE.replace(r"\t64\t", r"\t128\t"), r"product.cu\tother<1>\tother\t32\t0",
                    r"gone.cu\tgone\tgone\t32\t0")
        self.expect("product bf16 (sm_80): __launch_bounds__ says 64 threads, and the launch has "
                    "128",
                    "product.cu (sm_80): launches.cpp names other<1>, which is not among its "
                    "kernels: product<0, 64, true>",
                    "launches.cpp names gone.cu, which is not in src/kernels/cuda")
        self.launch(r"product.cu\tother<1>\tother\t32\t0")
        self.expect("product.cu (sm_90a): tests/contracts/launches.cpp does not say what the "
                    "launch of product<0, 64, true> asks for")

    def test_a_file_for_one_architecture(self):
        (self.root / "src" / "kernels" / "cuda" / "product.cu").unlink()
        fence = '    asm volatile("wgmma.fence.sync.aligned;");\n'
        fenced = PRODUCT.replace("    sums[0] *=", fence + "    sums[0] *=")
        self.write("product.sm90a.cu", fenced)
        self.launch(LINE.replace("product.cu", "product.sm90a.cu"))
        self.update()
        status, said = self.said()
        self.assertEqual(status, 0, said)
        self.assertIn("0 finding(s) in 1 kernels", said)
        self.write("product.sm70.cu", PRODUCT)
        self.expect("src/kernels/cuda/product.sm70.cu (sm_70): a file's architecture is one of ")


if __name__ == "__main__":
    if Toolkit.find()[0] is None:
        print(f"SKIPPED: no violations are planted: {Toolkit.find()[1]}")
        sys.exit(machine_code.CANNOT_RUN)
    unittest.main()
