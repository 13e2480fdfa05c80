# tests/contracts/test_reading.py — that machine code is read right, on what cuobjdump printed of
# fixtures/product.cu and on small texts: also where no CUDA is.
import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import kokkos_headers
import machine_code
import measures
import row_kernels
import sass
import table
import toolkit
from listing import instructions
from occupancy import blocks_per_multiprocessor, static_shared_bytes

FIXTURES = Path(__file__).parent / "fixtures"


def fixture(suffix):
    return (FIXTURES / f"product.{suffix}").read_text("utf-8")


class Reading(unittest.TestCase):
    def setUp(self):
        self.code = sass.read_functions(fixture("sass"))
        self.product, self.indexed = self.code
        self.assertIn("product", self.product)
        self.resources = sass.read_resources(fixture("res-usage"))

    def measured(self, name, launch):
        return measures.measure("sm_90a", self.code[name], self.resources[name], launch)

    def test_instructions_have_addresses_suffixes_and_guards(self):
        code = self.code[self.product]
        self.assertEqual([one.address for one in code], [16 * at for at in range(len(code))])
        branch = [one for one in code if one.base == "BRA"][1]
        self.assertEqual((branch.opcode, branch.target, branch.is_guarded), ("BRA", 0x140, True))
        self.assertEqual(sum(one.opcode == "HMMA.16816.F32.BF16" for one in code), 1)

    def test_resources_and_launch_bounds(self):
        self.assertEqual(self.resources[self.product], sass.Resources(28, 0, 2048))
        self.assertEqual(self.resources[self.indexed], sass.Resources(13, 32, 0))
        self.assertEqual(sass.read_launch_bounds(fixture("elf")), {self.product: 64})

    def test_a_kernel_as_they_should_be(self):
        row = self.measured(self.product, toolkit.Launch("", "", "", 64, 512))
        self.assertEqual(row, {
            "threads": 64, "shared": 1536, "blocks": 32, "warps": 64, "registers": 28, "stack": 0,
            "spills": 0, "loop_spills": 0, "tensor": "HMMA.bf16", "ldmatrix": "yes",
            "wide_loads": "LDG.128", "narrow_loads": 1, "loop_narrow_loads": 1,
            "wide_stores": "STG.128", "narrow_stores": 0, "loop_narrow_shared": 0,
            "loop_barriers": 2})

    def test_a_kernel_that_keeps_values_in_local_memory(self):
        row = self.measured(self.indexed, toolkit.Launch("", "", "", 256, 0))
        self.assertEqual((row["stack"], row["spills"], row["loop_spills"]), (32, 3, 2))
        self.assertEqual((row["tensor"], row["wide_loads"], row["wide_stores"]), ("-", "-", "-"))
        self.assertEqual((row["narrow_loads"], row["loop_narrow_loads"]), (3, 2))
        self.assertEqual((row["narrow_stores"], row["ldmatrix"]), (1, "no"))

    def test_details_count_in_all_and_in_the_loop(self):
        self.assertIn("LDL.32 2(1) ", measures.details(self.code[self.indexed]))

    def test_every_column_is_measured(self):
        row = self.measured(self.product, toolkit.Launch("", "", "", 64, 0))
        self.assertEqual(set(row), {column.name for column in table.COLUMNS})


class Loops(unittest.TestCase):
    def main_loop(self, *lines):
        return sorted(measures.main_loop(instructions(*lines)))

    def test_the_smallest_loop_with_most_of_the_products(self):
        # 1 to 9 is a loop, in it 2 to 6, in that 3 to 4 with one of three products.
        product = "HMMA.16816.F32 R4, R8, R10, R4"
        lines = ["MOV R1, R2", "LDG.E R2, [R4.64]", product, product, "@P1 BRA 0x30", product,
                 "@P0 BRA 0x20", "STG.E [R2.64], R3", "@!P2 BRA 0xa0", "BRA 0x10", "EXIT",
                 "BRA 0xb0"]
        self.assertEqual(sorted(sorted(loop) for loop in sass.find_loops(instructions(*lines))),
                         [list(range(1, 10)), list(range(2, 7)), [3, 4]])
        self.assertEqual(self.main_loop(*lines), list(range(2, 7)))

    def test_all_loops_where_none_has_most_of_the_products(self):
        product = "HMMA.16816.F32 R4, R8, R10, R4"
        self.assertEqual(self.main_loop("MOV R1, R2", product, "@P0 BRA 0x10", "MOV R1, R2",
                                        product, "@P0 BRA 0x40", "EXIT"), [1, 2, 4, 5])

    def test_all_loops_without_tensor_cores_and_all_without_loops(self):
        self.assertEqual(self.main_loop("MOV R1, R2", "FADD R1, R1, R3", "@P0 BRA 0x10", "EXIT"),
                         [1, 2])
        self.assertEqual(self.main_loop("MOV R1, R2", "EXIT"), [0, 1])

    def test_a_call_may_be_how_a_loop_is_left(self):
        # As the compiler ends loops around which threads part: the outer loop goes on at 4.
        lines = ["MOV R1, R2", "HMMA.16816.F32 R4, R8, R10, R4", "@P0 CALL.REL.NOINC 0x40",
                 "BRA 0x10", "LDL R1, [R2]", "@P1 BRA 0x0", "EXIT"]
        self.assertEqual(sorted(len(loop) for loop in sass.find_loops(instructions(*lines))),
                         [3, 6])
        self.assertEqual(self.main_loop(*lines), [1, 2, 3])

    def test_a_subroutine_is_no_part_of_the_loop_that_calls_it(self):
        self.assertEqual(self.main_loop("MOV R1, R2", "CALL.REL.NOINC 0x40", "@P0 BRA 0x10", "EXIT",
                                        "LDL R1, [R2]", "RET.REL.NODEC R6 0x0"), [1, 2])

    def test_a_branch_with_its_predicate_among_the_operands(self):
        lines = ["MOV R1, R2", "@!P0 BRA P1, 0x0", "BRA P2, 0x0", "EXIT"]
        self.assertEqual([sorted(loop) for loop in sass.find_loops(instructions(*lines))],
                         [[0, 1, 2]])

    def test_two_ways_that_meet_again(self):
        lines = ["MOV R1, R2", "@P0 BRA 0x40", "FADD R1, R1, R3", "BRA 0x60", "FMUL R1, R1, R3",
                 "@P1 BRA 0x40", "STG.E [R2.64], R1", "EXIT"]
        self.assertEqual([sorted(map(sorted, choice)) for choice in
                          sass.find_choices(instructions(*lines)) if all(choice)],
                         [[[2, 3], [4, 5]]])
        # Where nothing but to be skipped is the other way, that leads to nothing alone.
        lines = ["MOV R1, R2", "@P0 BRA 0x30", "FADD R1, R1, R3", "STG.E [R2.64], R1", "EXIT"]
        self.assertEqual(sass.find_choices(instructions(*lines)), [(set(), {2})])
        self.assertEqual(sass.find_choices([]), [])

    def test_code_that_nothing_leads_to(self):
        self.assertEqual(sass.find_loops(instructions("EXIT", "BRA 0x10")), [])
        self.assertEqual(sass.find_loops([]), [])


class Kinds(unittest.TestCase):
    def kind(self, opcode):
        return measures.tensor_kind(sass.Instruction(0, opcode, ""))

    def test_what_tensor_cores_multiply(self):
        self.assertEqual(self.kind("HMMA.16816.F32.BF16"), "HMMA.bf16")
        self.assertEqual(self.kind("HMMA.16816.F32"), "HMMA.fp16")
        self.assertEqual(self.kind("HMMA.16816.F16"), "HMMA.fp16(sums-fp16)")
        self.assertEqual(self.kind("HMMA.1688.F32.TF32"), "HMMA.tf32")
        self.assertEqual(self.kind("HGMMA.64x128x16.F32.BF16"), "HGMMA.bf16")
        self.assertEqual(self.kind("HGMMA.64x128x16.F32"), "HGMMA.fp16")
        self.assertEqual(self.kind("QGMMA.64x64x32.F32.E4M3.E4M3"), "QGMMA.fp8")

    def test_widths(self):
        for opcode, bits in (("LDG.E", 32), ("LDG.E.128", 128), ("LDGSTS.E.BYPASS.128", 128),
                             ("LDGSTS.E.LTC128B.64", 64), ("LDG.E.LTC128B.CONSTANT", 32),
                             ("LDG.E.U16.CONSTANT", 16), ("STS.U8", 8), ("STS.64", 64),
                             ("LDG.E.128.STRONG.GPU", 128), ("LDG.E.ENL2.256", 256)):
            self.assertEqual(measures.width(sass.Instruction(0, opcode, "")), bits, opcode)

    def test_what_never_runs_does_not_count(self):
        code = instructions("@!PT LDS RZ, [RZ]", "@!UPT UIADD3 URZ, URZ, URZ, URZ",
                            "@P0 LDS R1, [R2]", "EXIT")
        self.assertEqual([one.base for one in code], ["NOP", "NOP", "LDS", "EXIT"])

    def test_copies_of_hopper_are_wide(self):
        code = instructions("UTMALDG.2D [UR8], [UR4]", "UBLKCP.S.G [UR4], [UR6], UR8",
                            "UTMASTG.2D [UR8], [UR4]", "UBLKCP.G.S [UR4], [UR6], UR8", "EXIT")
        row = measures.measure("sm_90a", code, sass.Resources(32, 0, 1024),
                               toolkit.Launch("", "", "", 128, 0))
        self.assertEqual((row["wide_loads"], row["wide_stores"]),
                         ("UBLKCP+UTMALDG", "UBLKCP+UTMASTG"))

    def test_names(self):
        space = "trireme::cuda::"
        self.assertEqual(toolkit.short_name(
            f"void {space}(anonymous namespace)::forward_kernel<({space}Element)1, 64, true>"
            f"({space}AttentionForwardTask)"), "forward_kernel<1, 64, true>")
        self.assertEqual(toolkit.short_name(f"{space}clear(float*, int)"), "clear")
        self.assertEqual(toolkit.short_name(
            f"void {space}run<{space}Product<({space}Element)0, 128>, -1>(int (*)(int))"),
            "run<Product<0, 128>, -1>")

    def test_a_file_may_name_its_architecture(self):
        self.assertEqual(toolkit.architectures(Path("a/gemm.sm90a.cu")), ["sm_90a"])
        self.assertEqual(toolkit.architectures(Path("a/gemm.cu")), ["sm_80", "sm_90a"])


class RowKernels(unittest.TestCase):
    VIEW = ("Kokkos::View<trireme::{} const**, Kokkos::LayoutRight, Kokkos::CudaSpace, "
            "Kokkos::MemoryTraits<1u> >")

    def test_names(self):
        space = "trireme::kernels::"
        view = self.VIEW.format("bf16")
        closure = (f"{space}(anonymous namespace)::launch_norm<({space}NormKind)1, trireme::bf16>("
                   f"trireme::Exec const&, {view}, void (*)(int))::{{lambda({space}TeamRow const&, "
                   "long)#1}")
        kokkos = "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::"
        policy = "Kokkos::TeamPolicy<Kokkos::Cuda>, Kokkos::Cuda> >"
        for functor, name in (
                (f"{space}detail::TeamRows<{closure}, 2>", "TeamRows<launch_norm<1, bf16> #1, 2>"),
                (closure, "launch_norm<1, bf16> #1"),
                (f"{space}Fill<{view}, 16ul>", "Fill<View<bf16**>, 16>"),
                (f"trireme::optim::step()::{{lambda(int)#2}}::operator()(int) const::"
                 "{lambda(long)#1}", "step #2::operator #1")):
            launch = f"ParallelFor<{functor}, {policy}(Kokkos::Impl::ParallelFor<{functor}>)"
            self.assertEqual(row_kernels.functor_of(kokkos + launch), name)
        self.assertEqual(row_kernels.functor_of(
            f"{kokkos}ParallelReduce<Kokkos::Impl::CombinedFunctorReducer<{closure}, void>, "
            f"{policy}()"), "launch_norm<1, bf16> #1")
        for other in (f"{kokkos}ParallelFor<Kokkos::Impl::ViewValueFunctor<int>, {policy}()",
                      "trireme::cuda::clear(float*, int)"):
            self.assertIsNone(row_kernels.functor_of(other))

    def test_types_that_the_table_has(self):
        names = {"sum<bf16>", "sum<fp16>", "sum<float>", "sum<double>", "add<bf16, float>",
                 "add<float, float>", "norm<float>", "draw"}
        self.assertEqual({name for name in names if row_kernels.is_hot(name, names)},
                         {"sum<bf16>", "add<bf16, float>", "norm<float>", "draw"})

    def measured(self, *lines):
        return measures.measure_rows(instructions(*lines), sass.Resources(32, 0, 0))

    def test_what_is_done_in_loops(self):
        row = self.measured("LDG.E R1, [R2.64]", "LDG.E.128 R4, [R2.64]", "LDL R3, [R1]",
                            "STG.E.U16 [R2.64], R1", "@P0 BRA 0x10", "STL [R1], R3",
                            "STG.E [R2.64], R1", "EXIT")
        self.assertEqual(row, {"registers": 32, "stack": 0, "loop_spills": 1, "loop_divisions": 0,
                               "wide_loads": "LDG.128", "loop_narrow_loads": 0,
                               "wide_stores": "-", "loop_narrow_stores": 1,
                               "split_loads": 0, "split_stores": 0, "loop_waits": 0})
        self.assertEqual(set(row), {column.name for column in row_kernels.COLUMNS})

    def test_pieces_that_are_moved_word_by_word(self):
        def split(*lines):
            row = self.measured(*lines, "EXIT")
            return row["split_loads"], row["split_stores"]
        words = [f"STG.E desc[UR4][R2.64+{place}], R9" for place in ("0x8", "0x4", "0xc")]
        first = "STG.E desc[UR4][R2.64], R9"
        self.assertEqual(split(*words, "FADD R1, R1, R2", first), (0, 1))
        self.assertEqual(split(*words), (0, 0))  # of three
        self.assertEqual(split(*words, "STG.E desc[UR4][R2.64+0x10], R9"), (0, 1))
        self.assertEqual(split(*words, "STG.E desc[UR4][R4.64], R9"), (0, 0))
        self.assertEqual(split(*words, "STG.E.U16 desc[UR4][R2.64], R9"), (0, 0))
        # Each by itself where a row may end: no piece.
        self.assertEqual(split(*words, "@P0 BRA 0x0", first), (0, 0))
        self.assertEqual(split(*[f"LDG.E R9, [R2{place}]" for place in (
            "", "+0x4", "+0x8", "+0xc", "+0x10", "+0x14", "+0x18", "+0x1c")]), (2, 0))
        self.assertEqual(split(*[f"LDG.E R9, [R2+{place}]" for place in (
            "-0x8", "-0x4", "0x0", "0x4")]), (1, 0))

    def test_numbers_that_are_waited_for_in_loops(self):
        def waits(*lines):
            # In a loop inside a loop.
            return self.measured("FADD R1, R1, R2", *lines, "@P0 BRA 0x10", "@P1 BRA 0x0",
                                 "EXIT")["loop_waits"]
        load, wide, move = "LDG.E R8, [R2.64]", "LDG.E.64 R8, [R2.64]", "R2UR UR4, R8"
        self.assertEqual(waits(load, "FADD R1, R1, R2", move), 1)
        self.assertEqual(waits(wide, "R2UR UR5, R9", move), 2)
        self.assertEqual(waits(load, "FADD R8, R1, R2", move), 0)  # another number
        self.assertEqual(waits(load, "R2UR UR4, R9"), 0)
        self.assertEqual(waits(load, "STG.E [R2.64], R8", move), 1)
        self.assertEqual(self.measured(load, move, "@P0 BRA 0x0", "EXIT")["loop_waits"], 0)

    def test_divisions_are_calls_of_what_takes_a_reciprocal_of_64_bits(self):
        def divisions(call, *subroutine):
            return self.measured("FADD R1, R1, R2", call, "@P0 BRA 0x0", "EXIT", *subroutine,
                                 "RET.REL.NODEC R4")["loop_divisions"]
        division = ("IADD3 R1, R1, R2", "I2F.U64.RP R6, R8", "MUFU.RCP R6, R6")
        self.assertEqual(divisions("CALL.REL.NOINC 0x40", *division), 1)
        self.assertEqual(divisions("CALL.REL.NOINC 0x40", "MUFU.RCP R6, R6"), 0)
        self.assertEqual(divisions("CALL.REL.NOINC 0x30", *division), 0)  # a jump to the end
        self.assertEqual(divisions("FMUL R1, R1, R2", *division), 0)
        # Before the loop it is done once.
        self.assertEqual(self.measured("CALL.REL.NOINC 0x40", "FADD R1, R1, R2", "@P0 BRA 0x10",
                                       "EXIT", *division, "RET.REL.NODEC R4")["loop_divisions"], 0)

    def test_headers_say_which_backends_there_are(self):
        text = ("#define KOKKOS_ENABLE_OPENMP\n/* #undef KOKKOS_ENABLE_CUDA */\n"
                "/* #undef KOKKOS_ENABLE_CUDA_LAMBDA */\n")
        switch = kokkos_headers.switched
        found = switch(text, on=("KOKKOS_ENABLE_CUDA",), off=("KOKKOS_ENABLE_OPENMP",))
        self.assertEqual(found, "/* #undef KOKKOS_ENABLE_OPENMP */\n#define KOKKOS_ENABLE_CUDA\n"
                                "/* #undef KOKKOS_ENABLE_CUDA_LAMBDA */\n")
        self.assertEqual(switch(found, on=("KOKKOS_ENABLE_CUDA",)), found)
        arch = "#define KOKKOS_ARCH_HOPPER90\n/* #undef KOKKOS_ARCH_AMPERE80 */\n"
        self.assertEqual(switch(arch, on=("KOKKOS_ARCH_AMPERE80",), off=(kokkos_headers.GPUS,)),
                         "/* #undef KOKKOS_ARCH_HOPPER90 */\n#define KOKKOS_ARCH_AMPERE80\n")
        with self.assertRaisesRegex(kokkos_headers.Unusable, "no switch KOKKOS_ENABLE_NEW"):
            switch(text, on=("KOKKOS_ENABLE_NEW",))
        with tempfile.TemporaryDirectory() as empty, \
                self.assertRaisesRegex(kokkos_headers.Unusable, "no KokkosCore_config.h"):
            kokkos_headers.write_headers(empty, Path(empty) / "out", "sm_80")


class Occupancy(unittest.TestCase):
    def test_each_limit(self):
        blocks = blocks_per_multiprocessor
        for arch in ("sm_80", "sm_90a"):
            self.assertEqual(blocks(arch, 32, 16, 0), 32)     # blocks
            self.assertEqual(blocks(arch, 1024, 32, 0), 2)    # warps
            self.assertEqual(blocks(arch, 128, 255, 0), 2)    # registers
            self.assertEqual(blocks(arch, 256, 255, 0), 1)
            self.assertEqual(blocks(arch, 288, 255, 0), 0)
            self.assertEqual(blocks(arch, 128, 33, 0), 12)    # given out by eight a thread
            self.assertEqual(blocks(arch, 96, 168, 0), 4)     # and by quarters of the registers
            self.assertEqual(blocks(arch, 33, 32, 0), 32)
        self.assertEqual(blocks("sm_80", 128, 32, 81 << 10), 2)  # shared memory, and 1 KiB more
        self.assertEqual(blocks("sm_80", 128, 32, (81 << 10) + 1), 1)
        self.assertEqual(blocks("sm_80", 128, 32, 163 << 10), 1)
        self.assertEqual(blocks("sm_80", 128, 32, (163 << 10) + 1), 0)
        self.assertEqual(blocks("sm_90a", 128, 32, 113 << 10), 2)
        self.assertEqual(blocks("sm_90a", 128, 32, 227 << 10), 1)
        self.assertEqual(blocks("sm_90a", 128, 32, (227 << 10) + 1), 0)

    def test_what_is_listed_of_shared_memory(self):
        self.assertEqual(static_shared_bytes("sm_80", 2048), 2048)
        self.assertEqual(static_shared_bytes("sm_90a", 2048), 1024)
        self.assertEqual(static_shared_bytes("sm_90a", 0), 0)


class Table(unittest.TestCase):
    def setUp(self):
        code, resources = (sass.read_functions(fixture("sass")),
                           sass.read_resources(fixture("res-usage")))
        name = next(iter(code))
        self.row = measures.measure("sm_80", code[name], resources[name],
                                    toolkit.Launch("", "", "", 64, 0))
        self.key = ("product bf16", "sm_80")

    def test_is_read_as_it_was_written(self):
        bounds = {self.key: table.bounds(self.row), ("other", "sm_90a"): table.bounds(self.row)}
        self.assertEqual(table.read(table.write(bounds, "13.0.88")), (bounds, "13.0.88"))
        self.assertEqual(table.compare({self.key: self.row, ("other", "sm_90a"): self.row}, bounds),
                         [])

    def test_bounds_leave_room_for_compilers_but_none_for_the_first_spill(self):
        bounds = table.bounds({**self.row, "registers": 249, "stack": 8, "spills": 9})
        self.assertEqual((bounds["registers"], bounds["stack"], bounds["spills"]), (255, 32, 16))
        self.assertEqual((bounds["loop_spills"], bounds["blocks"], bounds["shared"]),
                         (0, self.row["blocks"], self.row["shared"]))

    def test_each_column_can_fail_and_says_so(self):
        bounds = {self.key: table.bounds(self.row)}
        worse = {"tensor": "-", "ldmatrix": "no", "wide_loads": "-", "wide_stores": "-"}
        for column in table.COLUMNS:
            step = -1 if column.relation == table.AT_LEAST else 1
            value = worse.get(column.name) or bounds[self.key][column.name] + step
            said = table.compare({self.key: {**self.row, column.name: value}}, bounds)
            self.assertEqual(len(said), 1, column.name)
            self.assertIn(f"product bf16 (sm_80): {column.name}: {column.what}: found {value}, "
                          f"wanted {column.relation} {bounds[self.key][column.name]}; ", said[0])

    def test_kernels_that_one_side_alone_has(self):
        bounds = {("gone", "sm_80"): table.bounds(self.row)}
        said = table.compare({self.key: self.row}, bounds)
        self.assertEqual(said, [
            "gone (sm_80): in the table, but no file of src/kernels/cuda/ has it",
            "product bf16 (sm_80): the table has no line for this kernel"])

    def test_bounds_that_have_become_wide_are_named(self):
        bounds = {self.key: {**table.bounds(self.row), "spills": 40, "warps": 1}}
        self.assertEqual(table.loose({self.key: self.row}, bounds), [
            "product bf16 (sm_80): spills: 0, and the table allows 40",
            f"product bf16 (sm_80): warps: {self.row['warps']}, and the table allows 1"])

    def test_malformed(self):
        text = table.write({self.key: table.bounds(self.row)}, "13.0.88")
        for wrong, message in ((text.replace("ldmatrix", "other"), "its columns are not"),
                               (text + "a  b\n", "2 fields in place of"),
                               (text.replace("  64 ", "  x4 "), "product bf16 sm_80: "),
                               ("", "its columns are not")):
            with self.assertRaisesRegex(table.Malformed, message):
                table.read(wrong)

    def test_the_committed_one(self):
        rows, version = table.read(
            (Path(__file__).parent / "machine_code.txt").read_text("utf-8"))
        self.assertRegex(version, r"^\d+\.\d+")
        self.assertEqual(table.read(table.write(rows, version)), (rows, version))
        for (kernel, arch), row in rows.items():
            self.assertGreaterEqual(row["blocks"], 1, f"{kernel} ({arch})")


class WithoutTools(unittest.TestCase):
    def said(self, arguments, **found):
        with mock.patch.multiple(toolkit, **found), io.StringIO() as said, \
                contextlib.redirect_stdout(said):
            return machine_code.main(arguments), said.getvalue()

    def test_skips_itself_and_says_what_is_missing(self):
        for arguments in ([], ["--show"], ["--update"]):
            status, said = self.said(arguments, find_nvcc=lambda: None)
            self.assertEqual(status, 77)
            self.assertIn("SKIPPED: the machine code of src/kernels/cuda/ is not looked at: "
                          "no nvcc on the PATH", said)
        status, said = self.said(["--can-run"], find_nvcc=lambda: None)
        self.assertEqual((status, said.split(",")[0]), (77, "no nvcc on the PATH"))
        status, said = self.said([], find_nvcc=lambda: "/cuda/bin/nvcc",
                                 find_disassembler=lambda name, nvcc: None)
        self.assertEqual(status, 77)
        self.assertIn("no cuobjdump and no nvdisasm", said)
        self.assertIn("tools/bootstrap --tests", said)

    def test_tools_are_found_beside_nvcc_and_in_deps(self):
        with tempfile.TemporaryDirectory() as scratch:
            for place in ("cuda/bin/nvcc", "cuda/bin/cuobjdump", "deps/cuda-tools/nvdisasm"):
                path = Path(scratch) / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("#!/bin/sh\n", "utf-8")
                path.chmod(0o755)
            changes = {"PATH": scratch, "CUDA_HOME": f"{scratch}/cuda",
                       "TRIREME_DEPS": f"{scratch}/deps"}
            with mock.patch.dict("os.environ", changes):
                nvcc = toolkit.find_nvcc()
                self.assertEqual(nvcc, f"{scratch}/cuda/bin/nvcc")
                self.assertEqual(toolkit.find_disassembler("cuobjdump", nvcc),
                                 str(Path(nvcc).resolve().parent / "cuobjdump"))
                self.assertEqual(toolkit.find_disassembler("nvdisasm", nvcc),
                                 f"{scratch}/deps/cuda-tools/nvdisasm")

    def test_a_mistaken_option_ends_with_2(self):
        done = subprocess.run([sys.executable, "-B", machine_code.__file__, "--updat0"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
