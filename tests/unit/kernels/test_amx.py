"""tests/unit/kernels/test_amx.py — what amx.py says of machines that lend no matrix tiles, and of
one that does: by it ./runtests leaves tests out."""
import unittest

import amx

HAS_ALL = "model name\t: x\nflags\t\t: fpu avx512_bf16 amx_bf16 amx_tile amx_int8\nbugs\t\t:\n"
LACKS = HAS_ALL.replace("amx_tile ", "").replace("amx_bf16 ", "")


class Amx(unittest.TestCase):
    def missing(self, machine="x86_64", cpuinfo=HAS_ALL, environment=None, lends=True):
        return amx.missing(machine, cpuinfo, environment or {}, lambda: lends)

    def test_a_machine_that_lends_them(self):
        self.assertIsNone(self.missing())
        for isa in ("ALL", "default", "AVX512_CORE_AMX", "AVX10_1_512_AMX"):
            self.assertIsNone(self.missing(environment={"ONEDNN_MAX_CPU_ISA": isa}))

    def test_what_is_missing_is_said(self):
        self.assertIn("aarch64", self.missing(machine="aarch64"))
        self.assertIn("no amx_bf16, amx_tile in /proc/cpuinfo", self.missing(cpuinfo=LACKS))
        self.assertIn("no amx_bf16, amx_tile, avx512_bf16", self.missing(cpuinfo=""))
        self.assertIn("arch_prctl", self.missing(lends=False))
        for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
            self.assertEqual(self.missing(environment={name: "avx512_core_bf16"}),
                             f"{name}=avx512_core_bf16 denies them")


if __name__ == "__main__":
    unittest.main()
