#!/usr/bin/env python3
"""Holds `holdfast bench` against tools that nobody of this project wrote, and prints tables in Markdown.

  mix    dbench (Debian package dbench) on a local folder, beside `bench replay` and `bench netbench` over SMB: the
         operations of each hundred must be the same
  copy   smbclient copies a file to and from Holdfast and Samba, beside `bench file-copy`: both must see the same ratio of
         the servers, within the ranges of their rounds, and the file must come back as it went
  mount  fio on a FUSE mount of a share (Debian packages fio and smbnetfs), beside `bench file-copy`: the rate of the
         mount must be a credible part of the workbench's

As root, in five minutes (fifteen where the machine is slow): tests/crosscheck/run.py [mix|copy|mount]... HOLDFAST_BIN
names the program, which should be an optimised build. The exit status is 1 if something differs or did not run.
"""
import filecmp
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "harness"), str(HERE.parent / "interop")]

from holdfast import PASSWORD, USER, Holdfast, binary  # noqa: E402
from samba_folder import SAMBA_USER, Samba  # noqa: E402
from verdict import mount_agrees, parts_agree, ratios_agree  # noqa: E402

SECONDS = 10
CLIENTS = 2
ROUNDS = 3
MIB = 256
# The names of dbench's table, and ours.
KINDS = {
    "ReadX": "read", "NTCreateX": "create", "Qpathinfo": "path-info", "Close": "close", "WriteX": "write",
    "Find": "find", "Unlink": "unlink", "Qfsinfo": "fs-info", "Qfileinfo": "file-info", "Sfileinfo": "set-info",
    "Flush": "flush", "Rename": "rename", "LockX": "lock", "UnlockX": "unlock",
}
# Operations of each client from which on a part of the load file has the mix of the whole: it repeats 3,550, and after
# so many no kind is further from its part than half of PARTS_MAX.
OPERATIONS_MIN = 14_000
# A server or disk that is too slow for that in SECONDS is given these, which are within the time limit of `output`.
SECONDS_MORE = (40, 200)


class Missing(Exception):
    """A program that is not here."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(program)


def output(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def bench(workload, folder, port, user, *options):
    """Runs a step of `holdfast bench` and returns its measurements."""
    secret, results = folder / "secret", folder / "results.jsonl"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    results.unlink(missing_ok=True)
    output(binary(), "bench", workload, f"//127.0.0.1:{port}/data/bench", "--user", user,
           "--password-file", secret, "--output", results, *options)
    return json.loads(results.read_text().splitlines()[-1])["outcome"]["measured"]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def said(agreement, good):
    """Prints the agreement, or that there is none."""
    print(f"\n{agreement}" if good else f"\nNOT SO: {agreement}")
    return good


def parts(counts):
    whole = sum(counts.values())
    return {kind: 100 * count / whole for kind, count in counts.items()}


def of_dbench(text):
    """Its counts and mean latencies in milliseconds, by our names."""
    table = re.findall(r"^ (\w+) +(\d+) +([\d.]+) +[\d.]+$", text, re.M)
    kept = [(KINDS[kind], int(count), float(mean)) for kind, count, mean in table if kind in KINDS]
    return {kind: count for kind, count, _ in kept}, {kind: mean for kind, _, mean in kept}


def long_enough(counted):
    """Calls `counted` with seconds, until the counts that it returns first are enough to be compared."""
    for seconds in (SECONDS, *SECONDS_MORE):
        counts, more = counted(seconds)
        if sum(counts.values()) >= CLIENTS * OPERATIONS_MIN:
            return counts, more
    raise RuntimeError(f"only {sum(counts.values())} operations in {seconds} s: too few to compare")


def mix(folder):
    need("dbench")
    local = folder / "local"
    local.mkdir()
    counts, means = long_enough(lambda seconds: of_dbench(output("dbench", "-D", local, "-t", seconds, CLIENTS)))
    counts_of, measured = {}, {}
    with Holdfast(["data"]) as server:
        for workload in ("replay", "netbench"):
            def counted(seconds, workload=workload):
                outcome = bench(workload, folder, server.port, USER, "--clients", CLIENTS, "--seconds", seconds)
                return {kind: of["count"] for kind, of in outcome["latencies"].items()}, outcome["latencies"]

            counts_of[workload], measured[workload] = long_enough(counted)
    ours = {name: parts(of) for name, of in counts_of.items()}
    theirs = parts(counts)
    row("operation", "dbench, %", "replay, %", "netbench, %", "dbench, mean ms", "replay, mean ms", "netbench, mean ms")
    row("---", *["--:"] * 6)
    tables = (theirs, ours["replay"], ours["netbench"])
    for kind in KINDS.values():
        shares = [of.get(kind, 0.0) for of in tables]
        latencies = [measured[name].get(kind, {"mean": 0})["mean"] / 1000 for name in ("replay", "netbench")]
        row(kind, *(f"{share:.2f}" for share in shares), f"{means.get(kind, 0):.3f}",
            *(f"{latency:.3f}" for latency in latencies))
    return said("The mixes are the same.", parts_agree(tables, KINDS.values()))


def by_smbclient(folder, port, user):
    """MiB a second to the server and from it, by a client that is Samba's."""
    big, back = folder / "big", folder / "back"
    if not big.exists():
        big.write_bytes(os.urandom(MIB << 20))
    done = subprocess.run(
        ["smbclient", "//127.0.0.1/data", "-p", str(port), "-U", f"{user}%{PASSWORD}", "-m", "SMB3",
         "-c", f"put {big} big; get big {back}"], capture_output=True, text=True, timeout=120)
    answer = done.stdout + done.stderr
    rates = [float(rate) for rate in re.findall(r"\(([\d.]+) (?:kb/s|KiloBytes/sec)\)", answer)]
    if done.returncode != 0 or len(rates) != 2:
        raise RuntimeError(f"smbclient: {answer}")
    if not filecmp.cmp(big, back, shallow=False):
        raise RuntimeError("smbclient: the file came back with other data")
    return [rate / 1024 for rate in rates]


def by_bench(folder, port, user):
    """The same by `bench file-copy`: a piece of 1 MiB at a time."""
    outcome = bench("file-copy", folder, port, user, "--clients", 1, "--mebibytes", MIB, "--seconds", 4)
    return [1e6 / outcome["latencies"][kind]["mean"] for kind in ("write", "read")]


def copy(folder):
    need("smbclient", "smbd")
    share = folder / "samba-share"
    share.mkdir()
    rates = {}
    # As Samba's default: neither server demands signatures of a client that wants none.
    with Holdfast(["data"], {"signing": "desired"}) as ours, Samba(folder / "samba", share) as theirs:
        for _ in range(ROUNDS):
            for name, port, user in (("Holdfast", ours.port, USER), ("Samba", theirs.port, SAMBA_USER)):
                for client, of in (("smbclient", by_smbclient), ("holdfast bench", by_bench)):
                    rates.setdefault((client, name), []).append(of(folder, port, user))
    row("client", "to Holdfast", "to Samba", "ratio", "from Holdfast", "from Samba", "ratio")
    row("---", *["--:"] * 6)
    seen = {}
    for client in ("smbclient", "holdfast bench"):
        cells = []
        for way in (0, 1):
            pairs = [[rate[way] for rate in rates[client, name]] for name in ("Holdfast", "Samba")]
            ratios = [one / other for one, other in zip(*pairs)]
            seen[client, way] = ratios
            cells += [f"{statistics.median(of):.0f} MiB/s" for of in pairs]
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        row(client, *cells)
    return said("Both clients see the same ratio of the servers.",
                all(ratios_agree(seen["smbclient", way], seen["holdfast bench", way]) for way in (0, 1)))


def mount(folder):
    need("fio", "smbnetfs", "umount")
    place = folder / "mount"
    place.mkdir()
    (folder / "smbnetfs.conf").write_text(
        f"auth \"localhost\" \"{USER}\" \"{PASSWORD}\"\nhost localhost visible=true\nlink data localhost/data\n")
    (folder / "smbnetfs.conf").chmod(0o600)
    # The library below it knows no other port.
    with Holdfast(["data"], port=445) as server:
        subprocess.run(["smbnetfs", place, "-o", f"config={folder}/smbnetfs.conf,big_writes"], check=True, timeout=20)
        try:
            figures = output("fio", "--name=copy", f"--directory={place}/localhost/data", "--rw=write", "--bs=1M",
                          f"--size={MIB}M", "--ioengine=psync", "--output-format=json")
            write = json.loads(figures)["jobs"][0]["write"]["bw_bytes"] / (1 << 20)
            figures = output("fio", "--name=copy", f"--directory={place}/localhost/data", "--rw=read", "--bs=1M",
                          f"--size={MIB}M", "--ioengine=psync", "--output-format=json")
            read = json.loads(figures)["jobs"][0]["read"]["bw_bytes"] / (1 << 20)
        finally:
            subprocess.run(["umount", place], check=True, timeout=20)
        ours = by_bench(folder, server.port, USER)
    row("client", "to Holdfast", "from Holdfast")
    row("---", "--:", "--:")
    row("fio over smbnetfs", f"{write:.0f} MiB/s", f"{read:.0f} MiB/s")
    row("holdfast bench", *(f"{rate:.0f} MiB/s" for rate in ours))
    return said("The mount has a credible part of the workbench's rate.",
                all(mount_agrees(*pair) for pair in zip((write, read), ours)))


def main():
    checks = {"mix": mix, "copy": copy, "mount": mount}
    wanted = sys.argv[1:] or list(checks)
    good = True
    for name in wanted:
        print(f"\n## {name}\n")
        with tempfile.TemporaryDirectory(prefix="holdfast-crosscheck-") as folder:
            try:
                good &= checks[name](pathlib.Path(folder))
            except Missing as program:
                print(f"missing: {program}")
                good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
