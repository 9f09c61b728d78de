#!/usr/bin/env python3
"""smbtorture against Holdfast, held to the table in expected.toml.

    gate.py                      all suites of the table; any unexpected result, good or bad, is a failure
    gate.py smb2.lock            one suite
    gate.py --write              run, and write the results into the table (reasons are preserved)

suites.txt names every test that smbtorture has for SMB 2 and 3, in Debian's version and in the newer one of
tests/torture/newer; a test that the installed one lacks is not run. The table names every suite of suites.txt, and has
for each test "pass", or { fail = "reason" } / { skip = "reason" }. A test that passes though the table says it fails is
a failure too: the table must be true. A test that fails though the table says it passes is run up to twice more by
itself; if it passes then, it counts as passed and is reported as flaky. Some tests are unreliable, or come out
differently with the two versions: { either = "reason" }. A suite that does not end by itself, or needs a feature of Samba, is not run: { unrun = "reason" }.

The server runs with `signing = "desired"`, as Samba's does in the baseline: several tests send
unsigned requests on purpose; the suites of SIGNED have one with `signing = "required"`. It has port
445 of a network namespace, since some tests always connect to that port, and others block a
connection by iptables. Tests that clone blocks (smb2.ioctl) get a share on XFS. Needs
root and what tests/install installs.
"""
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))
sys.path.insert(0, str(HERE))
from holdfast import PASSWORD, USER, Failure, Holdfast, run as run_program  # noqa: E402
from report import Report, arguments  # noqa: E402
from run import load_suites  # noqa: E402

TABLE = HERE / "expected.toml"
WORKERS = 16  # most tests wait: for time-outs of leases and oplocks, 35 s, or for a delayed write
# smb2.maxfid took 37 s alone; many at a time on two cores take longer.
LIMIT_S = int(os.environ.get("SMBTORTURE_LIMIT", 120))
SECOND_USER = "user1"
SIGNED = {"smb2.session-require-signing"}
SUITES = HERE / "suites.txt"
# The others are tests of SMB 1, of Samba's own programs, and of pipes, of which suites.txt has those that are offered.
GROUPS = ("smb2.", "vfs.")
PORT = 445
# The program, perhaps with what runs it; run.py reads the same variable.
SMBTORTURE = shlex.split(os.environ.get("SMBTORTURE", "smbtorture"))


def load():
    """suite -> test -> (wanted, reason)."""
    table = {}
    for suite, tests in tomllib.loads(TABLE.read_text()).items():
        rows = table[suite] = {}
        for test, said in tests.items():
            rows[test] = (said, "") if isinstance(said, str) else next(iter(said.items()))
    return table


def came_out(status):
    return {"success": "pass", "skip": "skip", "notrun": "not run"}.get(status, "fail")


def run(table, suites, folder, has):
    """Runs all suites, each on the server that it needs, and returns the results."""
    write_suites(folder / "suites.txt", has)
    results = {}
    for signing, some in (("desired", [s for s in suites if s not in SIGNED]),
                          ("required", [s for s in suites if s in SIGNED])):
        if some:
            results |= run_on(table, signing, some, folder)
    return {suite: results[suite] for suite in suites if suite in results}


def shares_of(folder):
    """Every worker has shares of its own; some tests use `tmp` and `hideunread`, which share one folder."""
    workers = range(1, WORKERS + 1)
    shares = {f"data{n}": {} for n in workers}
    shares |= {f"enc{n}": {"encryption": "required"} for n in workers}
    shares |= {f"ca{n}": {"continuous_availability": True} for n in workers}
    # The name for which smbtorture 4.25 expects all leases.
    shares["ca_fo_max_rwh"] = {"continuous_availability": True}
    shares["tmp"] = {"path": folder / "tmp"}
    shares["hideunread"] = {"path": folder / "tmp", "access_based_enumeration": True}
    shares["noperm"] = {}
    shares |= {f"reflink{n}": {"path": folder / "reflink" / str(n)} for n in workers}
    (folder / "tmp").mkdir(exist_ok=True)
    # smb2.zero-data-ioctl opens what it changes.
    (folder / "tmp" / "sparse_file").write_bytes(b"data" * 4096)
    return shares


@contextlib.contextmanager
def sharing_blocks(mount_point, image):
    """Mounts a file system that clones blocks, invisible to other processes. False if it cannot be mounted."""
    mount_point.mkdir()
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    try:
        run_program(["mkfs.xfs", "-q", image])
        run_program(["mount", "-o", "loop", image, mount_point])
    except (Failure, OSError):
        yield False
        return
    try:
        yield True
    finally:
        run_program(["umount", mount_point])


def run_on(table, signing, suites, folder):
    results = folder / f"results-{signing}.json"
    failing = folder / "failing.json"
    failing.write_text(json.dumps({suite: [test for test, (wanted, _) in tests.items() if wanted != "pass"]
                                   for suite, tests in table.items()}))
    users = (USER, SECOND_USER)
    with Holdfast(shares_of(folder), {"signing": signing}, users, port=PORT) as server:
        command = [sys.executable, HERE / "run.py", "--port", server.port, "--user", USER,
                   "--password", PASSWORD, "--user2", SECOND_USER, "--share", "data%w",
                   "--map", "enc=enc%w", "--map", "ca=ca%w", "--map", "fixed=tmp",
                   "--map", "reflink=reflink%w", "--map", "ca_rwh=ca_fo_max_rwh",
                   "--localdir", server.folder / "data%w",
                   "--opt=--option=torture:use_iptables=yes",
                   f"--opt=--option=torture:iptables_command={HERE}/iptables %w",
                   "--workers", WORKERS, "--chunk", "20",
                   "--baseline", HERE / "baseline-samba-4.17.json", "--limit", LIMIT_S, "--retry", "2",
                   "--failing", failing, "--suites", folder / "suites.txt",
                   "--json", results, *suites]
        said = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if not results.exists():
            raise Failure("run.py: " + said.stdout[-2000:])
    return json.loads(results.read_text())["suites"]


def unrun(tests):
    return any(wanted == "unrun" for wanted, _ in tests.values())


def name_of(listed):
    """smbtorture lists the test C of the suite A.B as A.B.C.C."""
    name, _, last = listed.rpartition(".")
    return name if name.endswith(f".{last}") else listed


def listed():
    """The tests of this smbtorture."""
    return {name_of(line.strip()) for line in run_program([*SMBTORTURE, "--list"]).splitlines()}


def lacks(has, test):
    """Whether this smbtorture lacks a test. It does not list the tests of pipes one by one."""
    return test.startswith(GROUPS) and test not in has


def write_suites(path, has):
    """Writes suites.txt without the tests that this smbtorture lacks."""
    lines = SUITES.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not lacks(has, line.partition("\t")[0].strip())))


def check_suites(has):
    """Every test of GROUPS that this smbtorture has is in suites.txt."""
    named = {test for suite in load_suites(SUITES).values() for test in suite["tests"]}
    unnamed = sorted(test for test in has - named if test.startswith(GROUPS))
    if unnamed:
        raise Failure(f"suites.txt does not name {', '.join(unnamed)}")


def judge_table(report, table):
    """Every suite of smbtorture listed in suites.txt is in the table."""
    for suite, tests in load_suites(SUITES).items():
        missing = tests["tests"].keys() - table.get(suite, {}).keys()
        if missing:
            report.fail(suite, f"not in the table: {', '.join(sorted(missing))}")
        elif unrun(table[suite]):
            print(f"not run {suite}: {next(iter(table[suite].values()))[1]}", flush=True)


def judge(report, table, suites, results, has):
    for suite in suites:
        if suite not in results:
            report.fail(suite, "suites.txt does not name it, so it was not run")
    for suite, tests in results.items():
        for test, result in tests.items():
            name = test if test.startswith(suite) else f"{suite}: {test}"
            got = came_out(result["status"])
            wanted, reason = table.get(suite, {}).get(test, ("nothing", ""))
            # A test that was not run has come out in neither way.
            if got == wanted or wanted == "either" and got != "not run":
                flaky = f" (flaky: {result['flaky']})" if "flaky" in result else ""
                report.ok(f"{name}: {got}{', expected: ' + reason if reason else ''}{flaky}")
            else:
                report.fail(name, f"{got}, but the table says {wanted}. {result['why']}")
        for test in table.get(suite, {}).keys() - tests.keys():
            if lacks(has, test):
                continue
            report.fail(f"{suite}: {test}", "is in the table, but was not run")


def write(table, results):
    for suite, tests in results.items():
        rows = table.setdefault(suite, {})
        for test, result in tests.items():
            got = came_out(result["status"])
            wanted, reason = rows.get(test, ("", ""))
            if wanted == "either" or got == "not run":
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


def enter_namespace(report):
    """Continues in namespaces of its own, where port 445 is free and mounts are private."""
    if "HOLDFAST_TORTURE_NAMESPACE" in os.environ:
        return
    enter = ["unshare", "--net", "--mount", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if subprocess.run([*enter, "true"], stderr=subprocess.DEVNULL).returncode:
        report.missing("smb2", "root, and unshare and ip for a namespace of its own")
        sys.exit(report.end())
    os.environ["HOLDFAST_TORTURE_NAMESPACE"] = "1"
    os.execvp(enter[0], [*enter, sys.executable, __file__, *sys.argv[1:]])


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the outcome into the table")
    asked = parser.parse_args()
    report = Report("torture", asked.allow_missing)
    if not shutil.which(SMBTORTURE[0]):
        report.missing("smb2", "smbtorture (Debian package samba-testsuite)")
        return report.end()
    enter_namespace(report)
    table = load() if TABLE.exists() else {}
    has = listed()
    if not asked.only:
        report.check("every test of smbtorture is named", lambda: check_suites(has))
        judge_table(report, table)
    suites = asked.only or [suite for suite, tests in table.items()
                            if not unrun(tests) and not all(lacks(has, test) for test in tests)]
    with tempfile.TemporaryDirectory(prefix="holdfast-torture-") as folder:
        folder = pathlib.Path(folder)
        try:
            with sharing_blocks(folder / "reflink", folder / "reflink.xfs") as shares:
                if not shares:
                    roles = {name: suite["role"] for name, suite in load_suites(SUITES).items()}
                    report.missing("smb2.ioctl", "mkfs.xfs and a loop device")
                    suites = [suite for suite in suites if roles.get(suite) != "reflink"]
                results = run(table, suites, folder, has)
        except Failure as why:
            report.fail("server", why)
            return report.end()
    if asked.write:
        write(table, results)
    judge(report, load(), suites, results, has)
    report.end()


if __name__ == "__main__":
    main()
