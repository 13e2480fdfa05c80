# src/data/unicode_tables.cpp is what tools/make_unicode_tables.py makes. Python's Unicode is
# that of the machine: where it is another version than the tables', there is nothing to compare.
import sys
import unicodedata
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))
import make_unicode_tables as maker  # noqa: E402


class UnicodeTables(unittest.TestCase):
    @unittest.skipUnless(unicodedata.unidata_version == maker.UNICODE, "another Unicode")
    def test_the_file_is_what_the_program_makes(self):
        made = maker.contents()
        self.assertTrue(made == maker.OUTPUT.read_text(encoding="utf-8"),
                        "run python3 tools/make_unicode_tables.py")

    def test_ranges_are_joined_by_value(self):
        self.assertEqual(maker.joined({1: 0, 2: 0, 3: 9, 5: 9}),
                         [[1, 2, 0], [3, 3, 9], [5, 5, 9]])
        self.assertEqual(maker.codes("A C-E"), {10, 12, 13, 14})


if __name__ == "__main__":
    unittest.main()
