"""`holdfast bench` against Holdfast and Debian's smbd: every workload measures, and a server that ends is an error.

Each workload must be carried out without a refusal, with the records and the exit status that it should have; how fast
a server is is not judged here. Samba needs root.
"""
import json
import os
import shutil
import struct
import subprocess
import threading
import time

from holdfast import PASSWORD, USER, Holdfast, binary
from report import expect
from tap import Tap

# Workload, its options, and the kinds of operations that it must have measured.
WORKLOADS = (
    ("netbench", ["--clients", "1,6"], {"read", "write", "create", "close", "find", "path-info", "flush"}),
    ("netbench", ["--clients", "2", "--caching"], {"read", "write", "create", "close", "find", "path-info"}),
    ("replay", ["--clients", "2"], {"write", "create", "close", "file-info"}),
    ("jetstress", ["--clients", "2", "--pages", "8192"], {"database-read", "database-write", "log-write"}),
    ("jetstress", ["--clients", "2", "--pages", "8192", "--preset", "sql-server"],
     {"database-read", "database-write", "log-write"}),
    ("jetstress", ["--clients", "2", "--pages", "8192", "--preset", "hyper-v"],
     {"database-read", "database-write", "guest-flush"}),
    ("jetstress", ["--clients", "2", "--pages", "8192", "--flush", "--mailboxes", "10"],
     {"database-read", "log-write"}),
    ("flush-ladder", ["--clients", "1,4"], {"write", "flush"}),
    ("flush-ladder", ["--clients", "4", "--one-file"], {"write", "flush"}),
    ("flush-ladder", ["--clients", "2", "--bytes", "65537"], {"write", "flush"}),
    ("file-copy", ["--clients", "2", "--mebibytes", "4"], {"create", "read", "write", "close"}),
    ("small-files", ["--clients", "2"], {"create", "write", "read", "close", "delete"}),
    ("metadata", ["--clients", "2"], {"create", "query", "rename", "list", "delete"}),
)
# Workloads with options, the file that is damaged once it has so many bytes, and words of the error.
DAMAGED = [
    ("jetstress", ["--clients", "2", "--pages", "8192", "--seconds", "20"], "group-00.edb", 8192 * 8192, "checksum"),
    ("jetstress", ["--clients", "2", "--pages", "8192", "--seconds", "2"], "group-00-0.log", 65_536, "group-00-0.log"),
    ("flush-ladder", ["--clients", "1", "--seconds", "2"], "flush-0000", 64 * 4096, "not what was written"),
    ("netbench", ["--clients", "1", "--seconds", "20"], "mix-000/doc-000.dat", 65_536, "not what was written"),
]
LOAD_FILE = "/usr/share/dbench/client.txt"
WRITE = 9  # the command


class Bench:
    """The command against one server, with results in a file."""

    def __init__(self, port, user, folder):
        self.place = f"//127.0.0.1:{port}/data/bench"
        self.results = folder / f"results-{time.monotonic_ns()}.jsonl"
        self.secret = folder / "bench-secret"
        self.secret.write_text(PASSWORD + "\n")
        self.secret.chmod(0o600)
        self.user = user

    def command(self, workload, *more):
        return [str(part) for part in (
            binary(), "bench", workload, self.place, "--user", self.user, "--password-file", self.secret,
            "--output", self.results, "--label", "tested", *more)]

    def run(self, workload, *more, timeout=120):
        """Returns the exit status, the output of both kinds, and the records."""
        done = subprocess.run(self.command(workload, *more), capture_output=True, text=True, timeout=timeout)
        return done.returncode, done.stdout + done.stderr, self.records()

    def forget(self):
        """Forgets the records of earlier runs."""
        self.results.unlink(missing_ok=True)

    def records(self):
        if not self.results.exists():
            return []
        return [json.loads(line) for line in self.results.read_text().splitlines()]


def measured(bench, workload, options, kinds):
    """Measures for 1 s, or for 5 s where that is too short for every kind of operation."""
    for seconds in 1, 5:
        bench.forget()
        status, text, records = bench.run(workload, "--seconds", seconds, "--warm-up", "0", *options)
        said = [record["outcome"]["measured"] for record in records if "error" not in record]
        if all(one["operations"] > 10 and kinds <= set(one["latencies"]) for one in said):
            break
    expect(status == 0, f"exit {status}: {text}")
    steps = options[options.index("--clients") + 1].split(",")
    expect([record["clients"] for record in records] == [int(step) for step in steps], f"{records}")
    for record in records:
        said = record["outcome"]["measured"]
        expect(record["workload"] == workload and record["server"] == "tested", f"{record}")
        expect("error" not in record and said["operations"] > 10, f"{record}")
        expect(kinds <= set(said["latencies"]), f"{set(said['latencies'])} of {kinds}")
        counted = sum(kind["count"] for kind in said["latencies"].values())
        expect(counted == said["operations"], f"{counted} of {said['operations']}")
        for kind in said["latencies"].values():
            # Percentiles that the count does not support are missing.
            latencies = [kind[name] for name in ("p50", "p90", "p95", "p99", "p999", "max") if name in kind]
            expect(latencies == sorted(latencies), f"{kind}")
            expect(("p99" in kind) == (kind["count"] >= 100), f"{kind}")
        mbps = (said["read"] + said["written"]) * 8 / 1e6 / said["seconds"]
        expect(abs(mbps - said["mbps"]) < 0.01, f"{mbps} {said['mbps']}")
        expect(workload != "jetstress" or record["outcome"]["verified_pages"] == 8192, f"{record['outcome']}")


def two_seconds_after(path, act):
    """Acts, in a thread of its own, two seconds after a path appears: a busy machine may begin a step late."""
    def wait():
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(2)
        act()

    threading.Thread(target=wait).start()


def killed(server, folder):
    """The server is killed in the middle of a step: exit status 1, and a record that says why, without a number."""
    bench = Bench(server.port, USER, folder)
    two_seconds_after(server.share_path("data") / "bench", server.kill)
    status, text, records = bench.run("netbench", "--clients", "4", "--seconds", "30", "--warm-up", "0")
    expect(status == 1 and len(records) == 1, f"exit {status}: {text}")
    expect("error" in records[0] and "outcome" not in records[0], f"{records[0]}")


def refused_within(server, folder):
    """The server refuses in the middle of a step what it must carry out: the same as if it ended."""
    bench = Bench(server.port, USER, folder)
    share = server.share_path("data")
    shutil.rmtree(share / "bench", ignore_errors=True)
    two_seconds_after(share / "bench", lambda: (share / "bench").rename(share / "moved"))
    status, text, records = bench.run("small-files", "--clients", "2", "--seconds", "30", "--warm-up", "0")
    expect(status == 1 and len(records) == 1, f"exit {status}: {text}")
    expect("outcome" not in records[0], f"{records[0]}")
    expect("the server answered OBJECT_" in records[0]["error"], f"{records[0]}")


class Slow(Tap):
    """Passes on the answer to a WRITE the later, the more connections there are."""

    def __init__(self, port):
        super().__init__(port)
        self.connections = 0

    def _pass_on(self, source, sink, look):
        counts = int(look == self._response)
        with self.lock:
            self.connections += counts
        try:
            super()._pass_on(source, sink, look)
        finally:
            with self.lock:
                self.connections -= counts

    def _response(self, frame, size):
        super()._response(frame, size)
        if frame[:4] == b"\xfeSMB" and struct.unpack_from("<H", frame, 12)[0] == WRITE:
            time.sleep(0.002 * self.connections)


def found(server, folder):
    """The search ends between the threads that pass and those that do not, and every step of it has a record."""
    # On a busy machine even one thread may have to wait too long, which ends the search at once.
    for _ in range(5):
        with Slow(server.port) as tap:
            status, text, records = Bench(tap.port, USER, folder).run(
                "jetstress", "--find", "--pages", "8192", "--seconds", "1", "--warm-up", "0", timeout=300)
        expect(status == 0 and records, f"exit {status}: {text}")
        passed = {record["clients"]: record["outcome"]["verdict"]["passed"] for record in records}
        if passed.get(1):
            break
    expect(len(passed) == len(records) and records[0]["clients"] == 1, f"{passed}")
    highest = max((threads for threads, is_good in passed.items() if is_good), default=0)
    lowest = min((threads for threads, is_good in passed.items() if not is_good), default=0)
    # A write of the log may take 10 ms, and takes 2 ms for each connection: one of each thread, and the first.
    expect(1 <= highest <= 4 and lowest == highest + 1, f"{passed}")
    expect(f"threads of each group that passes: {highest}\n" in text, f"{highest}: {text}")


def refused(bench):
    """A workload that cannot begin ends with exit status 2 and one line; damage is found."""
    for options in (["--clients", "0"], ["--clients", "5000"]):
        status, text, records = bench.run("netbench", *options)
        expect(status == 2 and not records, f"exit {status}: {text}")
    status, text, records = bench.run("jetstress", "--find", "--preset", "sql-server")
    expect(status == 2 and not records and "thresholds of a mail store" in text, f"exit {status}: {text}")
    bench.user = "nobody-of-this-name"
    status, text, records = bench.run("metadata")
    expect(status == 2 and not records and text.startswith("error: "), f"exit {status}: {text}")


def damaged(server, folder, workload, options, name, size, words):
    """Data that somebody changes during a run are reported by their file and make the exit status 1."""
    bench = Bench(server.port, USER, folder)
    path = server.share_path("data") / "bench" / name
    stop = threading.Event()

    def damage():
        while not stop.wait(0.005):
            if path.exists() and path.stat().st_size >= size:
                with open(path, "r+b") as file:
                    for place in range(0, size, max(4096, size // 1024)):
                        file.seek(place + 4000)
                        file.write(b"damaged")

    thread = threading.Thread(target=damage)
    thread.start()
    try:
        status, text, records = bench.run(workload, *options)
    finally:
        stop.set()
        thread.join()
    expect(status == 1 and "page " in text and words in text, f"exit {status}: {text}")
    expect("error" in records[0], f"{records[0]}")


def each(report, title, port, user, folder):
    for number, (workload, options, kinds) in enumerate(WORKLOADS):
        place = folder / f"bench-{title}-{number}"
        place.mkdir()
        name = " ".join([workload, *options])
        if workload == "replay" and not os.path.exists(LOAD_FILE):
            report.missing(f"bench {title}: {name}", "Debian package dbench")
            continue
        report.check(f"bench {title}: {name}", measured, Bench(port, user, place), workload, options, kinds)


def check(report, folder):
    with Holdfast(["data"]) as server:
        each(report, "Holdfast", server.port, USER, folder)
        report.check("bench: refused", refused, Bench(server.port, USER, folder))
        report.check("bench: jetstress --find", found, server, folder)
        for workload, *how in DAMAGED:
            report.check(f"bench: damaged data, {workload}, {how[1]}", damaged, server, folder, workload, *how)
        report.check("bench: refused within a step", refused_within, server, folder)
    server = Holdfast(["data"])
    server.__enter__()
    try:
        report.check("bench: server killed", killed, server, folder)
    finally:
        server.kill()
    if not shutil.which("smbd"):
        report.missing("bench Samba", "Debian package samba")
    elif os.geteuid() != 0:
        report.missing("bench Samba", "root (smbd)")
    else:
        from samba_folder import SAMBA_USER, Samba
        share = folder / "bench-share"
        share.mkdir()
        with Samba(folder / "bench-samba", share) as samba:
            each(report, "Samba", samba.port, SAMBA_USER, folder)
