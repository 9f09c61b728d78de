"""One line per check, and a count at the end: `ok NAME`, `FAIL NAME: why`, `missing NAME: what`.

The last line is "N passed, N failed". Something missing counts as a failure unless the run has
the option `--allow-missing`; then it is named and not counted.
"""
import sys
import time
import traceback

from holdfast import Failure


class Report:
    def __init__(self, title, allow_missing=False, only=()):
        self.title, self.allow_missing, self.only = title, allow_missing, only
        self.passed = self.failed = 0
        self.wanted = False

    def wants(self, name):
        wanted = not self.only or any(part in name for part in self.only)
        self.wanted |= wanted
        return wanted

    def ok(self, name):
        self.passed += 1
        print(f"ok {self.title} {name}", flush=True)

    def fail(self, name, why):
        self.failed += 1
        print(f"FAIL {self.title} {name}: {why}", flush=True)

    def missing(self, name, what):
        print(f"missing {self.title} {name}: {what}", flush=True)
        if not self.allow_missing:
            self.failed += 1

    def check(self, name, test, *arguments):
        """Runs one test; whatever it raises is its failure."""
        if not self.wants(name):
            return
        begun = time.monotonic()
        try:
            test(*arguments)
        except Failure as why:
            self.fail(name, str(why).strip())
        except Exception:
            self.fail(name, traceback.format_exc().strip())
        else:
            self.ok(f"{name} ({time.monotonic() - begun:.1f} s)")

    def end(self):
        if not self.wanted and self.only:
            self.fail(" ".join(self.only), "no test has such a name")
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)


def arguments(description):
    """Options every part of the suite knows."""
    import argparse
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--allow-missing", action="store_true",
                        help="tests whose tools are missing are named, but are no failure")
    parser.add_argument("only", nargs="*", help="run the tests whose name contains one of these")
    return parser


def expect(condition, what):
    if not condition:
        raise Failure(what)
