#!/usr/bin/env python3
"""Holds the verdicts of the cross-check against figures that agree and figures that do not, without a server, and the programs
that it needs against those that are installed."""
import pathlib
import re
import unittest

from verdict import mount_agrees, parts_agree, ratios_agree

HERE = pathlib.Path(__file__).resolve().parent


class Verdicts(unittest.TestCase):
    def test_a_kind_that_is_missing_or_too_frequent_is_no_agreement(self):
        dbench = {"read": 27.15, "flush": 1.21}
        self.assertTrue(parts_agree([dbench, {"read": 27.9, "flush": 1.1}], ["read", "flush"]))
        self.assertFalse(parts_agree([dbench, {"read": 28.2, "flush": 1.2}], ["read", "flush"]))
        self.assertFalse(parts_agree([dbench, {"read": 27.15}], ["read", "flush"]))

    def test_ranges_that_do_not_meet_are_no_agreement(self):
        # As measured on 2026-11-26: the medians differ, the rounds do not.
        self.assertTrue(ratios_agree([0.77, 0.88, 1.12], [0.71, 1.06, 1.94]))
        self.assertTrue(ratios_agree([0.25, 0.90, 0.95], [0.69, 1.27, 1.33]))
        self.assertTrue(ratios_agree([0.8, 0.9, 1.0], [1.1, 1.2, 1.3]))
        self.assertFalse(ratios_agree([0.5, 0.6, 0.7], [1.0, 1.1, 1.2]))
        self.assertFalse(ratios_agree([1.0, 1.1, 1.2], [0.5, 0.6, 0.7]))

    def test_a_mount_is_neither_far_slower_nor_faster(self):
        self.assertTrue(mount_agrees(172, 328))
        # Pages of 4 KiB, without the option big_writes.
        self.assertFalse(mount_agrees(5, 328))
        self.assertFalse(mount_agrees(600, 328))
        self.assertFalse(mount_agrees(0, 328))


class Programs(unittest.TestCase):
    def test_what_a_check_needs_is_installed_and_demanded(self):
        calls = re.findall(r"^    need\((.*)\)$", (HERE / "run.py").read_text(), re.M)
        programs = set(re.findall(r'"(\w+)"', " ".join(calls)))
        self.assertLess({"dbench", "smbnetfs"}, programs)
        install, tiers = ((HERE.parent / name).read_text() for name in ("install", "run"))
        demanded = re.search(r'part_with "(.*)" "cross-check"', tiers).group(1).split()
        for program in programs:
            self.assertRegex(install, rf"\[{program}\]=|rare\+=\({program}\)")
            self.assertIn(program, demanded)


if __name__ == "__main__":
    unittest.main()
