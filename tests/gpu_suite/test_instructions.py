"""How perf/gpu/instructions.py counts a main loop whose rounds have two ways."""
import unittest

import gpu_modules  # noqa: F401  (finds perf/gpu)
import instructions  # finds tests/contracts, too
from listing import instructions as code

ROW = {"threads": 256, "blocks": 1}


def rounds(plain, masked):
    """A loop that begins at 0x10, each round of which goes one of two ways."""
    jump, behind = 3 + len(plain), 3 + len(plain) + len(masked)
    return code("MOV R1, R2", f"@P0 BRA {16 * jump:#x}", *plain, f"BRA {16 * behind:#x}", *masked,
                "FADD R1, R1, R3", "@P1 BRA 0x10", "STG.E [R2.64], R1", "EXIT")


PRODUCT = "HMMA.16816.F32.BF16 R4, R4, R6, R4"


class Ways(unittest.TestCase):
    def test_the_shorter_way_is_counted_and_what_the_other_has_more(self):
        few, many = [PRODUCT, "FMUL R1, R1, R2"], [PRODUCT, *3 * ["ISETP.LT R1, R2"]]
        # The first way also has the jump behind the second one.
        for ways, all_of_loop, masks in (((few, many), 3 + 3, 4 - 3), ((many, few), 3 + 2, 5 - 2)):
            found = instructions.entry(rounds(*ways), ROW, True)
            self.assertEqual(found["loop"]["all"], all_of_loop)
            self.assertEqual(found["loop"]["tensor"], 1)
            self.assertEqual((found["masks"]["all"], found["masks"]["tensor"]), (masks, 0))
            self.assertEqual(found["outside"]["all"], 3)

    def test_a_branch_that_the_compiler_took_away_is_an_error(self):
        straight = code("MOV R1, R2", PRODUCT, "FADD R1, R1, R3", "@P1 BRA 0x10", "EXIT")
        with self.assertRaisesRegex(ValueError, "two were expected"):
            instructions.entry(straight, ROW, True)
        self.assertEqual(instructions.entry(straight, ROW, False)["masks"]["all"], 0)
        with self.assertRaisesRegex(ValueError, "none were expected"):
            instructions.entry(rounds([PRODUCT], [PRODUCT, "FMUL R1, R1, R2"]), ROW, False)

    def test_ways_that_multiply_differently_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "'tensor': -?1"):
            instructions.entry(rounds([PRODUCT], [PRODUCT, PRODUCT]), ROW, True)


if __name__ == "__main__":
    unittest.main()
