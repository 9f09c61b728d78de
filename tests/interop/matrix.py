"""`holdfast bench matrix` and `report`: one that is interrupted goes on, and a server that ends has no number."""
import csv
import json
import os
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


def command(plan, results):
    return [str(part) for part in (binary(), "bench", "matrix", plan, "--to", results)]


def runs(results):
    return {path.name: json.loads(path.read_text()) for path in sorted((results / "runs").glob("*.json"))}


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        expect(time.monotonic() < end, "nothing happens")
        time.sleep(0.05)


def interrupted(folder):
    plan, results = folder / "plan.toml", folder / "results"
    plan.write_text(PLAN)
    # A shell has its background jobs ignore SIGINT, and programs inherit that.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command(plan, results), **quiet) as first:
        signal.signal(signal.SIGINT, previous)
        until(lambda: (results / "runs").exists() and len(runs(results)) >= 3)
        first.send_signal(signal.SIGINT)
    expect(first.returncode != 0, "it was not interrupted")
    before = runs(results)
    expect(3 <= len(before) < 8, f"{len(before)} results")
    # Its servers end with it.
    scratch = str(results / "scratch")
    until(lambda: not any(scratch in read(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()))
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
    other = folder / "other.toml"
    other.write_text(PLAN.replace("seconds = 1", "seconds = 2"))
    done = subprocess.run(command(other, results), capture_output=True, text=True, timeout=120)
    expect(done.returncode == 2 and "another plan" in done.stderr, f"exit {done.returncode}: {done.stderr}")


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
    server = Holdfast(["data"])
    server.__enter__()
    try:
        report.check("bench matrix: server killed", killed, server, place)
    finally:
        server.kill()
