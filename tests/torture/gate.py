#!/usr/bin/env python3
"""smbtorture against Holdfast, held to the table in expected.toml.

    gate.py                      all suites of the table; a surprise, good or bad, is a failure
    gate.py smb2.lock            one suite
    gate.py --write              run, and write what came out into the table (reasons are kept)

The table says for each test "pass", or { fail = "reason" } / { skip = "reason" }. A test that
passes though the table says it fails is a failure too: the table must be true. A test that fails
is run once more by itself; passing then, it is a pass, and is named as flaky. Some tests cannot
be relied on either way: { either = "reason" }.

The server runs with `signing = "desired"`, as Samba's does in the baseline: several tests send
unsigned requests on purpose; the suites of SIGNED have one with `signing = "required"`. Needs the
Debian package samba-testsuite.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))
from holdfast import PASSWORD, USER, Failure, Holdfast  # noqa: E402
from report import Report, arguments  # noqa: E402

TABLE = HERE / "expected.toml"
WORKERS = 4
LIMIT_S = 120  # smb2.maxfid took 37 s alone; four at a time on two cores take longer
SECOND_USER = "user1"
SIGNED = {"smb2.session-require-signing"}


def load():
    """suite -> test -> (wanted, reason)."""
    table = {}
    for suite, tests in tomllib.loads(TABLE.read_text()).items():
        rows = table[suite] = {}
        for test, said in tests.items():
            rows[test] = (said, "") if isinstance(said, str) else next(iter(said.items()))
    return table


def came_out(status):
    return {"success": "pass", "skip": "skip"}.get(status, "fail")


def run(suites, folder):
    """The results of all suites, each on the server it needs."""
    results = {}
    for signing, some in (("desired", [s for s in suites if s not in SIGNED]),
                          ("required", [s for s in suites if s in SIGNED])):
        if some:
            results |= run_on(signing, some, folder)
    return {suite: results[suite] for suite in suites if suite in results}


def run_on(signing, suites, folder):
    shares = {f"data{n}": {} for n in range(1, WORKERS + 1)}
    shares |= {f"enc{n}": {"encryption": "required"} for n in range(1, WORKERS + 1)}
    shares |= {f"ca{n}": {"continuous_availability": True} for n in range(1, WORKERS + 1)}
    shares["hideunread"] = {"access_based_enumeration": True}  # by this name in smb2.acls.ACCESSBASED
    results = folder / f"results-{signing}.json"
    with Holdfast(shares, {"signing": signing}, (USER, SECOND_USER)) as server:
        command = [sys.executable, HERE / "run.py", "--port", server.port, "--user", USER,
                   "--password", PASSWORD, "--user2", SECOND_USER, "--share", "data%w",
                   "--map", "enc=enc%w", "--map", "ca=ca%w", "--workers", WORKERS, "--chunk", "20",
                   "--baseline", HERE / "baseline-samba-4.17.json", "--limit", LIMIT_S, "--retry", "1",
                   "--json", results, *suites]
        said = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if not results.exists():
            raise Failure("run.py: " + said.stdout[-2000:])
    return json.loads(results.read_text())["suites"]


def judge(report, table, results):
    for suite, tests in results.items():
        for test, result in tests.items():
            name = test if test.startswith(suite) else f"{suite}: {test}"
            got = came_out(result["status"])
            wanted, reason = table.get(suite, {}).get(test, ("nothing", ""))
            if got == wanted or wanted == "either":
                flaky = f" (flaky: {result['flaky']})" if "flaky" in result else ""
                report.ok(f"{name}: {got}{', expected: ' + reason if reason else ''}{flaky}")
            else:
                report.fail(name, f"{got}, but the table says {wanted}. {result['why']}")
        for test in table.get(suite, {}).keys() - tests.keys():
            report.fail(f"{suite}: {test}", "is in the table, but was not run")


def write(table, results):
    for suite, tests in results.items():
        rows = table.setdefault(suite, {})
        for test, result in tests.items():
            got = came_out(result["status"])
            wanted, reason = rows.get(test, ("", ""))
            if wanted == "either":
                continue
            rows[test] = (got, "" if got == "pass" else reason if got == wanted else result["why"])
    head = [line for line in TABLE.read_text().splitlines() if line.startswith("#")] if TABLE.exists() else []
    lines = list(head)
    for suite, rows in table.items():
        lines += ["", f"[{json.dumps(suite)}]"]
        for test, (said, reason) in rows.items():
            value = json.dumps(said) if not reason else "{ %s = %s }" % (said, json.dumps(reason))
            lines.append(f"{json.dumps(test)} = {value}")
    TABLE.write_text("\n".join(lines) + "\n")


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the outcome into the table")
    asked = parser.parse_args()
    report = Report("torture", asked.allow_missing)
    if not shutil.which("smbtorture"):
        report.missing("smb2", "smbtorture (Debian package samba-testsuite)")
        return report.end()
    table = load() if TABLE.exists() else {}
    suites = asked.only or list(table)
    import tempfile
    with tempfile.TemporaryDirectory(prefix="holdfast-torture-") as folder:
        try:
            results = run(suites, pathlib.Path(folder))
        except Failure as why:
            report.fail("server", why)
            return report.end()
    if asked.write:
        write(table, results)
    judge(report, load(), results)
    report.end()


if __name__ == "__main__":
    main()
