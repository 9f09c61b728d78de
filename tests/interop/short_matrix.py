#!/usr/bin/env python3
"""`holdfast bench matrix short` as docs/workbench.md promises it: one command, under ten minutes, all servers, a report.

As root, with Debian's smbd: tests/interop/short_matrix.py. HOLDFAST_BIN names the program, which should be an optimised
build. The last line is "N passed, N failed".
"""
import csv
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))
from holdfast import REPO  # noqa: E402
from matrix import command, runs  # noqa: E402
from report import Report, arguments, expect  # noqa: E402

PLAN = REPO / "crates/holdfast-verify/src/bench/short.toml"
SECONDS_MAX = 600
POLICIES = {"strict-sync", "honor", "bounded:50ms,4MiB", "treat-host-as-stable-storage"}


def short(results):
    """Every step of every server has a result, and the page has all of them."""
    plan = tomllib.loads(PLAN.read_text())
    begun = time.monotonic()
    done = subprocess.run(command("short", results), capture_output=True, text=True, timeout=2 * SECONDS_MAX)
    took = time.monotonic() - begun
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    expect(took < SECONDS_MAX, f"it took {took:.0f} s")
    all_runs = list(runs(results).values())
    settings = [run["setting"] for run in all_runs]
    expect(POLICIES == {of["policy"] for of in settings if of["kind"] == "holdfast"}, f"{settings}")
    expect({True, False} == {of["strict_sync"] for of in settings if of["kind"] == "samba"}, f"{settings}")
    names = {server["name"] for server in plan["server"]}
    measured = {(run["record"]["server"], run["record"]["clients"], run["round"]) for run in all_runs}
    wanted = {(name, clients, number)
              for name in names for clients in plan["clients"] for number in range(plan["rounds"])}
    expect(measured == wanted, f"{measured ^ wanted}")
    expect(all(run["record"]["outcome"]["measured"]["operations"] > 0 for run in all_runs), "nothing was measured")
    page = (results / "report.html").read_text()
    lacking = [name for name in names if f"<td>{name}</td>" not in page]
    expect(not lacking, f"the page lacks {lacking}")
    for words in ("medians of 2 rounds", "Throughput by clients", "The price of honouring FLUSH"):
        expect(words in page, f"the page lacks {words!r}")
    for words in ("measurements failed", "are missing", "<script"):
        expect(words not in page, f"the page has {words!r}")
    with open(results / "results.csv", newline="") as sheet:
        expect(len(list(csv.DictReader(sheet))) == len(wanted), "lines are missing")


def main():
    asked = arguments(__doc__.splitlines()[0]).parse_args()
    report = Report("workbench", asked.allow_missing, asked.only)
    with tempfile.TemporaryDirectory(prefix="holdfast-short-") as folder:
        # Samba serves as a user, who passes through.
        pathlib.Path(folder).chmod(0o755)
        report.check("matrix short", short, pathlib.Path(folder) / "results")
    report.end()


if __name__ == "__main__":
    main()
