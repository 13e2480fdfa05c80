"""Every tiny BERT and T5 of the suite is the CPU's: test_work.py has one of each, every day."""
import unittest

import gpu_modules  # noqa: F401  (it says where the suite's modules are)
import parts
import test_work


def setUpModule():
    test_work.make_bundle(parts.TINY_KINDS)


class EveryKind(test_work.Bundle):
    def test_is_the_cpus(self):
        for deck in parts.TINY_KINDS:
            self.assert_kind_is_the_cpus(deck)


if __name__ == "__main__":
    unittest.main()
