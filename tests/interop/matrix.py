"""`holdfast bench matrix`, `scale` and `report`: an interrupted matrix goes on, and a server that ends has no number."""
import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

from holdfast import PASSWORD, USER, Holdfast, binary
from report import expect

PLAN = """
seconds = 1
warm_up = 0
rounds = 2
clients = [1, 3]
[[server]]
name = "honor"
kind = "holdfast"
policy = "honor"
[[server]]
name = "lazy"
kind = "holdfast"
policy = "treat-host-as-stable-storage"
[[workload]]
kind = "metadata"
"""

# Everything that only a plan has, also on the process without a protocol, and a program that fails.
PIECES = """
seconds = 0.3
warm_up = 0.1
rounds = 1
clients = [1]
server = [
    {{ name = "honor", kind = "holdfast", policy = "honor", file_io = "threads" }},
    {{ name = "limit", kind = "limit" }},
    {{ name = "sendfile", kind = "limit", way = "sendfile" }},
    {samba}
]
workload = [
    {{ name = "read", kind = "read", bytes = 65536, depth = 4 }},
    {{ name = "crowd", kind = "read", bytes = 4096, connections = 20, clients = [2] }},
    {{ name = "sealed", kind = "write", bytes = 65536, depth = 2, protection = "gcm" }},
    {{ name = "signed", kind = "read", bytes = 4096, protection = "cmac" }},
    {{ kind = "echo" }},
    {{ kind = "open-close" }},
    {{ name = "at once", kind = "open-close", depth = 8, clients = [2] }},
    {{ kind = "create-remove" }},
    {{ kind = "metadata" }},
    {{ kind = "small-files" }},
    {{ kind = "flush-ladder", clients = [3] }},
    {{ kind = "connection", clients = [2] }},
    {{ kind = "session" }},
    {{ name = "stream", kind = "read-beside" }},
    {{ name = "flood", kind = "read-beside", noise = "flush" }},
    {{ kind = "idle", clients = [30] }},
    {{ kind = "program", prepare = "touch made", command = "test -e made; test -n \\"$PORT\\"; echo operations 7", after = "rm made" }},
    {{ name = "fails", kind = "program", command = "false", servers = ["honor"] }},
]
"""
LIMITED = {"read", "crowd", "echo", "open-close", "create-remove", "metadata", "small-files", "flush-ladder"}

AWAY = """
seconds = 4
warm_up = 0
rounds = 1
clients = [2]
[[server]]
name = "away"
kind = "address"
place = "//127.0.0.1:{port}/data/matrix"
user = "{user}"
password_file = "{secret}"
[[workload]]
kind = "metadata"
[[workload]]
kind = "small-files"
"""

# A disk that is made for the matrix, whose cache takes 1 ms at least for each flush.
DISK = """
seconds = 1
warm_up = 0
rounds = 1
clients = [1]
[[server]]
name = "honor"
kind = "holdfast"
policy = "honor"
[[workload]]
kind = "flush-ladder"
[[disk]]
name = "slow"
class = "ssd"
mount = "noatime"
"""

# Settings of the kernel while it runs, one of them of a pair of which only one is in force.
TUNED = """
seconds = 2
warm_up = 0
rounds = 1
clients = [1]
server = [{ name = "honor", kind = "holdfast", policy = "honor" }]
workload = [{ kind = "metadata" }]
disk = [{ name = "tuned", class = "folder", vm = { dirty_expire_centisecs = EXPIRE, dirty_bytes = 104857600 } }]
"""
VM = pathlib.Path("/proc/sys/vm")


def command(plan, results):
    return [str(part) for part in (binary(), "bench", "matrix", plan, "--to", results)]


def runs(results):
    return {path.name: json.loads(path.read_text()) for path in sorted((results / "runs").glob("*.json"))}


def until(state, condition):
    end = time.monotonic() + 60
    while not condition():
        expect(time.monotonic() < end, f"after 60 s not yet: {state}")
        time.sleep(0.05)


def no_servers(results):
    scratch = str(results / "scratch")
    return not any(scratch in read(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit())


def interrupted(folder):
    plan, results = folder / "plan.toml", folder / "results"
    plan.write_text(PLAN)
    # A shell has its background jobs ignore SIGINT, and programs inherit that.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command(plan, results), **quiet) as first:
        signal.signal(signal.SIGINT, previous)
        until("three results", lambda: (results / "runs").exists() and len(runs(results)) >= 3)
        first.send_signal(signal.SIGINT)
    expect(first.returncode != 0, "it was not interrupted")
    before = runs(results)
    expect(3 <= len(before) < 8, f"{len(before)} results")
    # Its servers end with it.
    until("all servers ended", lambda: no_servers(results))
    done = subprocess.run(command(plan, results), capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    expect(f"{len(before)} of 8 measurements are there already" in done.stderr, done.stderr)
    after = runs(results)
    expect(len(after) == 8 and all(after[name] == run for name, run in before.items()), "measured anew")
    expect(all(run["exposure"] and "server_cpu" in run for run in after.values()), "nothing was looked at")
    expect(not (results / "scratch").exists(), "the scratch folder is left")
    page = (results / "report.html").read_text()
    expect("medians of 2 rounds" in page and page.count("<figure>") >= 4, "no figures")
    with open(results / "results.csv", newline="") as sheet:
        expect(len(list(csv.DictReader(sheet))) == 8, "lines are missing")
    # A program that was built anew under the same version would be in the medians of the old one.
    rebuilt = folder / "rebuilt"
    shutil.copy2(binary(), rebuilt)
    with open(rebuilt, "ab") as file:
        file.write(b"built anew")
    (results / "runs" / min(after)).unlink()
    done = subprocess.run([str(rebuilt), *command(plan, results)[1:]], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 2 and "was another program" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    done = subprocess.run([str(part) for part in (binary(), "bench", "report", results)],
                          capture_output=True, text=True, timeout=120)
    page = (results / "report.html").read_text()
    expect(done.returncode == 0 and "1 of 8 measurements of the plan are missing" in page, f"{done.stderr}")
    other = folder / "other.toml"
    other.write_text(PLAN.replace("seconds = 1", "seconds = 2"))
    done = subprocess.run(command(other, results), capture_output=True, text=True, timeout=120)
    expect(done.returncode == 2 and "another plan" in done.stderr, f"exit {done.returncode}: {done.stderr}")


def built_anew(folder):
    """The program of a server is replaced while the matrix runs: it ends before the next round, not with both in one."""
    program, newer = folder / "program", folder / "newer"
    plan, results = folder / "built-anew.toml", folder / "built-anew"
    shutil.copy2(binary(), program)
    shutil.copy2(binary(), newer)
    with open(newer, "ab") as file:
        file.write(b"built anew")
    plan.write_text(PLAN.replace('policy = "honor"', f'policy = "honor"\nbinary = "{program}"'))
    with subprocess.Popen(command(plan, results), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        until("a result", lambda: (results / "runs").exists() and runs(results))
        newer.replace(program)
        said = first.communicate(timeout=120)[1]
    expect(first.returncode == 2 and "built anew meanwhile" in said, f"exit {first.returncode}: {said}")
    rounds = [run["round"] for run in runs(results).values()]
    expect(rounds == [0] * 4, f"{rounds}")


def pieces(folder):
    """All workloads of plans, on a Holdfast, on the process without a protocol, and on Samba where it is installed."""
    plan, results = folder / "pieces.toml", folder / "pieces"
    # Samba serves as a user, who passes through.
    for above in folder, folder.parent:
        above.chmod(0o755)
    samba = '{ name = "samba", kind = "samba", strict_sync = true, io = "threads", root = "/" }'
    plan.write_text(PIECES.format(samba=samba if shutil.which("smbd") else ""))
    done = subprocess.run(command(plan, results), capture_output=True, text=True, timeout=300)
    expect(done.returncode == 1, f"exit {done.returncode}: {done.stderr}")
    of = {}
    for run in runs(results).values():
        of.setdefault(run["record"]["server"], {})[run["title"]] = run
    failed = of["honor"].pop("fails")["record"]
    expect("exit status: 1" in failed["error"] and "outcome" not in failed, f"{failed}")
    expect(LIMITED == set(of["limit"]), f"{set(of['limit'])}")
    expect(len(of["honor"]) == 17 and set(of["honor"]) == set(of.get("samba", of["honor"])), f"{set(of['honor'])}")
    for server, titles in of.items():
        for title, run in titles.items():
            expect("error" not in run["record"], f"{title} on {server}: {run['record']}")
            measured = run["record"]["outcome"]["measured"]
            expect(title == "idle" or measured["operations"] > 1, f"{title} on {server}: {measured}")
            expect(title != "program" or measured["operations"] == 7, f"{measured}")
            expect(title not in ("stream", "flood") or measured["latencies"]["read"]["count"] > 1, f"{measured}")
            expect(title != "idle" or run["memory_kib"] > 1, f"{run}")
    expect(of["honor"]["flush-ladder"]["syncs"] > 0, "no syncs were counted")


def disk(folder):
    """A disk of a class, with its mount options: a FLUSH takes as long as the model says, and nothing is left."""
    plan, results = folder / "disk.toml", folder / "disk"
    plan.write_text(DISK)
    done = subprocess.run(command(plan, results), capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    (run,) = runs(results).values()
    expect("noatime" in run["disk"]["facts"]["mount options"], f"{run['disk']}")
    flush = run["record"]["outcome"]["measured"]["latencies"]["flush"]
    expect(flush["p50"] >= 1_000, f"{flush}")
    expect(run["device"]["flushes"] > 0, f"{run['device']}")
    expect(str(results) not in read("/proc/self/mounts"), "it is still mounted")


def tuned(folder):
    """`vm` of a disk: the kernel has these settings while it is measured, and its own afterwards, even after a kill."""
    def settings():
        return {path.name: path.read_text() for path in VM.glob("dirty_*")}

    before = settings()
    expire = int(before["dirty_expire_centisecs"]) + 1
    plan, results = folder / "tuned.toml", folder / "tuned"
    plan.write_text(TUNED.replace("EXPIRE", str(expire)))
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command(plan, results), **quiet) as first:
        try:
            until("vm.* is set", lambda: settings()["dirty_expire_centisecs"] == f"{expire}\n")
        finally:
            first.kill()
    until("all servers ended", lambda: no_servers(results))
    done = subprocess.run(command(plan, results), capture_output=True, text=True, timeout=120)
    after = settings()
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    expect(after == before, f"{after} instead of {before}")
    (run,) = runs(results).values()
    facts = run["disk"]["facts"]
    set_to = facts["vm.dirty_expire_centisecs"], facts["vm.dirty_bytes"]
    expect(set_to == (str(expire), "104857600"), f"{facts}")


def scale(folder):
    """A worker with a network card, pinned and not, in namespaces that end with it."""
    results = folder / "scale"
    options = ["--workers", "1", "--nics", "1", "--clients", "2", "--seconds", "1", "--rounds", "1", "--to", results]
    done = subprocess.run([str(part) for part in (binary(), "bench", "scale", *options)],
                          capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    of = {run["record"]["server"]: run for run in runs(results).values()}
    expect(set(of) == {"1 workers, 1 NICs, pinned", "1 workers, 1 NICs, unpinned"}, f"{set(of)}")
    for run in of.values():
        expect(run["record"]["outcome"]["measured"]["operations"] > 10 and run["server_cpu"] > 0, f"{run}")
    expect("CPU time of the server for each operation" in (results / "report.html").read_text(), "no figure")
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=20).stdout
    expect("holdfast-bench-" not in left, left)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def killed(server, folder):
    """The server ends in the first of two steps: both are errors without a number, and the report begins with them."""
    secret, plan, results = folder / "matrix-secret", folder / "away.toml", folder / "away"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    plan.write_text(AWAY.format(port=server.port, user=USER, secret=secret))
    threading.Timer(2, server.kill).start()
    done = subprocess.run(command(plan, results), capture_output=True, text=True, timeout=120)
    expect(done.returncode == 1 and "FAILED" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    records = [run["record"] for run in runs(results).values()]
    expect(len(records) == 2, f"{records}")
    expect(all("error" in record and "outcome" not in record for record in records), f"{records}")
    expect("2 of 2 measurements failed" in (results / "report.html").read_text(), "the page hides it")


def check(report, folder):
    if os.geteuid() != 0:
        report.missing("bench matrix", "root (the user of its shares)")
        return
    place = folder / "matrix"
    place.mkdir()
    report.check("bench matrix: interrupted", interrupted, place)
    report.check("bench matrix: built anew", built_anew, place)
    report.check("bench matrix: pieces", pieces, place)
    for name, test, programs in (
            ("bench matrix: disk", disk, ("qemu-storage-daemon", "strace", "setpriv", "losetup", "mkfs.ext4")),
            ("bench scale", scale, ("ip", "unshare"))):
        missing = [program for program in programs if not shutil.which(program)]
        if missing:
            report.missing(name, ", ".join(missing))
        else:
            report.check(name, test, place)
    if os.access(VM / "dirty_ratio", os.W_OK):
        report.check("bench matrix: tuned", tuned, place)
    else:
        report.missing("bench matrix: tuned", "a /proc/sys that can be written")
    server = Holdfast(["data"])
    server.__enter__()
    try:
        report.check("bench matrix: server killed", killed, server, place)
    finally:
        server.kill()
