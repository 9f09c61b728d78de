"""`holdfast verify-flush` against Holdfast and Debian's smbd, and against disks with damaged data.

Intact data must be found intact; data that were damaged, truncated, replaced by an older version, moved or
deleted behind the server's back must be reported as such, and nothing else. (No power is cut here:
tests/blockcut does that.) Samba needs root.
"""
import json
import os
import pathlib
import shutil
import subprocess
import time

from holdfast import PASSWORD, USER, Failure, Holdfast, binary, run
from report import expect

SIZE = 4096


class Verify:
    """The command for one run in a folder `runs` of the share `data`."""

    def __init__(self, port, user, share, folder):
        self.place = f"//127.0.0.1:{port}/data/runs"
        self.local = share / "runs"
        self.ledger = folder / f"ledger-{time.monotonic_ns()}"
        secret = folder / "secret"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o600)
        self.login = ["--user", user, "--password-file", secret]

    def command(self, verb, *more):
        return [binary(), "verify-flush", verb, self.place, *self.login,
                "--ledger", self.ledger, *more]

    def write(self, *more):
        return run(self.command("write", "--rename", "--streams", *more))

    def begin(self, *more):
        """Starts the same command in the background."""
        return subprocess.Popen([str(part) for part in self.command("write", *more)],
                                stdout=subprocess.PIPE, text=True)

    def await_lines(self, count, writer):
        """Waits until the ledger has a number of lines."""
        end = time.monotonic() + 60
        while not self.ledger.exists() or self.ledger.read_bytes().count(b"\n") < count:
            if writer.poll() is not None or time.monotonic() > end:
                writer.kill()
                raise Failure(f"no {count} lines in the ledger: {writer.communicate()[0]}")
            time.sleep(0.02)

    def check(self, *more):
        """Returns the exit status, and the losses in words such as "torn append 3"."""
        done = subprocess.run([str(part) for part in self.command("check", "--json", *more)],
                              capture_output=True, text=True, timeout=60)
        return self._outcome(done)

    def check_local(self):
        done = subprocess.run([str(binary()), "verify-flush", "check", "--local", str(self.local),
                               "--ledger", str(self.ledger), "--json"],
                              capture_output=True, text=True, timeout=60)
        return self._outcome(done)

    @staticmethod
    def _outcome(done):
        if done.returncode not in (0, 1, 3):
            raise Failure(f"exit {done.returncode}: {done.stderr}")
        said = json.loads(done.stdout)
        lost = [f"{item['loss']} {item['name'].split('-', 3)[3]} {item['sequence']}"
                for item in said["items"]]
        tested = said["ended_by_cut"] is not False
        verdict, status = ("lost", 1) if lost else ("all-there", 0) if tested else ("untested", 3)
        expect(done.returncode == status, f"exit {done.returncode} with {lost}")
        expect(said["verdict"] == verdict, f"{said['verdict']}, not {verdict}")
        expect(said["lost"] == len(lost), f"{said['lost']} lost, {len(lost)} listed")
        return sorted(lost), said

    def file(self, end):
        """Returns the path of the only file of the run whose name ends with a suffix."""
        found = [path for path in self.local.iterdir() if path.name.endswith(end)]
        expect(len(found) == 1, f"{end}: {found}")
        return found[0]

    def nothing_lost(self):
        lost, said = self.check()
        expect(not lost, f"reported as lost: {lost}")
        expect(said["checked"] > 0, "nothing was looked at")
        lost, _ = self.check_local()
        expect(not lost, f"reported as lost locally: {lost}")
        return said


def kept(verify):
    """All kinds of files, both ways to request stability: nothing is lost."""
    for mode in ("flush", "write-through"):
        verify.ledger = verify.ledger.with_name(f"ledger-{mode}")
        said = verify.write("--mode", mode, "--records", "150", "--connections", "3",
                            "--files", "10", "--batch", "2")
        expect("acknowledged; ended as asked" in said, said)
        found = verify.nothing_lost()
        expect(found["acknowledged"] == 150, f"{found['acknowledged']} acknowledged")
        # No cut ended the run.
        expect(found["verdict"] == "untested", found["verdict"])
        expect(found["times_checked"] > 10, f"{found['times_checked']} times")


def overwrite(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def older(path):
    """Its data as they are, and its modification time as before the last write."""
    meta = path.stat()
    os.utime(path, ns=(meta.st_atime_ns, meta.st_mtime_ns - 1_000_000))


def damaged(verify):
    """Each kind of damage is reported as such. Files: append, ring, fresh, save, stream; 40 each."""
    verify.write("--files", "5", "--records", "200")
    verify.nothing_lost()
    append, ring = verify.file("-append"), verify.file("-ring")
    fresh, save, stream = verify.file("-fresh-0009"), verify.file("-save"), verify.file("-stream")
    keep = verify.local.with_name("kept")
    shutil.copytree(verify.local, keep, copy_function=shutil.copy2)
    attribute = "user.DosStream.verify:$DATA"
    notes = os.getxattr(stream, attribute)
    temporary = pathlib.Path(str(fresh).replace("fresh-0009", "tmp-9"))
    flipped = bytearray(notes)
    flipped[1024 + 500] ^= 4
    piece = append.read_bytes()[3 * SIZE:4 * SIZE]
    torn = piece[:512] + append.read_bytes()[4 * SIZE + 512:5 * SIZE]
    cases = {
        "torn append 3": lambda: overwrite(append, 3 * SIZE + 700, b"\1"),
        "torn append 4": lambda: overwrite(append, 3 * SIZE, piece + torn),
        "missing append 5": lambda: overwrite(append, 5 * SIZE, bytes(SIZE)),
        "missing append 39": lambda: os.truncate(append, 39 * SIZE),
        "misplaced append 7": lambda: overwrite(append, 7 * SIZE, piece),
        "misplaced ring 39": lambda: overwrite(ring, 7 * SIZE, ring.read_bytes()[6 * SIZE:7 * SIZE]),
        "absent fresh-0009 9": fresh.unlink,
        "missing fresh-0009 9": lambda: os.truncate(fresh, 0),
        "old-name tmp-9 9": lambda: os.link(fresh, temporary),
        "torn save 39": lambda: os.truncate(save, 1000),
        "torn stream 39": lambda: os.setxattr(stream, attribute, bytes(flipped)),
        "old-time ring 39": lambda: older(ring),
        "old-time fresh-0009 9": lambda: older(fresh),
    }
    for name, spoil in cases.items():
        spoil()
        for lost, _ in (verify.check(), verify.check_local()):
            expect(lost == [name], f"{name}: reported as {lost}")
        shutil.rmtree(verify.local)
        shutil.copytree(keep, verify.local, copy_function=shutil.copy2)
    verify.nothing_lost()
    os.removexattr(stream, attribute)
    lost, _ = verify.check()
    expect(lost == ["absent stream 38", "absent stream 39"], f"no stream: {lost}")


def forgotten(verify):
    """A disk that acknowledges flushes falsely: the folder is restored to a state before the last acknowledgement."""
    writer = verify.begin("--rename", "--files", "4")
    verify.await_lines(200, writer)
    before = verify.local.with_name("before")
    # Files are created and deleted during the copy, as at a power failure.
    try:
        shutil.copytree(verify.local, before)
    except shutil.Error:
        pass
    verify.await_lines(len(verify.ledger.read_bytes().splitlines()) + 200, writer)
    writer.kill()
    writer.communicate(timeout=60)
    verify.nothing_lost()
    shutil.rmtree(verify.local)
    before.rename(verify.local)
    lost, said = verify.check()
    kinds = {item.split()[0] for item in lost}
    expect({"missing", "stale"} <= kinds, f"reported: {sorted(kinds)}")
    expect(said["oldest_lost_us"] > 0, f"oldest: {said['oldest_lost_us']} us")


def unknown(verify):
    """If the data cannot be checked there is no verdict: exit status 2."""
    verify.write("--records", "20")
    whole = verify.ledger.read_bytes()
    spoilt = bytearray(whole)
    spoilt[len(whole) // 2] ^= 1
    verify.ledger.write_bytes(spoilt)
    missing = ["--ledger", verify.ledger.with_name("no ledger")]
    for more, why in (([], "damaged"), (missing, "no ledger")):
        command = verify.command("check")
        if more:
            command[command.index("--ledger"):] = more
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        expect(done.returncode == 2 and why in done.stderr, f"{done.returncode}: {done.stderr}")
    verify.ledger.write_bytes(whole)
    command = verify.command("check")
    command[command.index("--user") + 1] = "nobody-of-this-name"
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    expect(done.returncode == 2, f"a wrong user: exit {done.returncode}")
    # A power failure can leave an incomplete last line in the ledger.
    verify.ledger.write_bytes(whole[:-20])
    lost, said = verify.check()
    expect(not lost and said["ledger_tail_torn"], f"torn tail: {lost}, {said}")


def unread(verify):
    """Nobody reads what `write` prints, as behind `| head -1`: it records all the same."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(part) for part in verify.command("write", "--records", "20")]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    found = verify.nothing_lost()
    expect(found["acknowledged"] == 20, f"{found['acknowledged']} acknowledged")


def killed(server, folder):
    """The server is killed during the run: `write` succeeds, and all that it recorded is present afterwards."""
    verify = Verify(server.port, USER, server.share_path("data"), folder)
    writer = verify.begin("--rename", "--streams", "--connections", "4")
    verify.await_lines(100, writer)
    server.kill()
    said, _ = writer.communicate(timeout=60)
    expect(writer.returncode == 0 and "the connection broke" in said, f"{writer.returncode}: {said}")
    with Holdfast({"data": {"path": str(server.share_path("data"))}}) as again:
        verify.place = f"//127.0.0.1:{again.port}/data/runs"
        found = verify.nothing_lost()
        expect(found["acknowledged"] > 10 and found["verdict"] == "all-there", f"{found}")


def each(report, title, port, user, share, folder):
    for name, test in (("kept", kept), ("damaged", damaged), ("forgotten", forgotten),
                       ("unknown", unknown), ("unread", unread)):
        for old in share.iterdir():
            shutil.rmtree(old)
        place = folder / f"{title}-{name}"
        place.mkdir()
        report.check(f"verify-flush {title}: {name}", test, Verify(port, user, share, place))


def check(report, folder):
    folder = pathlib.Path(folder)
    share = folder / "verify-share"
    share.mkdir()
    with Holdfast({"data": {"path": str(share)}}) as server:
        each(report, "Holdfast", server.port, USER, share, folder)
    with_kill(report, folder)
    if not shutil.which("smbd"):
        report.missing("verify-flush Samba", "Debian package samba")
    elif os.geteuid() != 0:
        report.missing("verify-flush Samba", "root (smbd)")
    else:
        from samba_folder import SAMBA_USER, Samba
        with Samba(folder / "verify-samba", share) as samba:
            each(report, "Samba", samba.port, SAMBA_USER, share, folder)


def with_kill(report, folder):
    place = folder / "Holdfast-killed"
    place.mkdir()
    server = Holdfast(["data"])
    server.__enter__()
    try:
        report.check("verify-flush Holdfast: killed", killed, server, place)
    finally:
        server.kill()
