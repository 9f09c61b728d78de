#!/usr/bin/env python3
"""The server under strace: what it does before it answers.

    run.py                  everything
    run.py honor            tests whose name contains the word
    run.py --allow-missing  without strace or root: named, and no failure

Under each policy: FLUSH, write-through, and every change of data or names have done the system calls
that the policy promises (and no others) before the answer is written to the socket. And one slow
fsync delays no other request of the same connection. The server runs with `file_io = "threads"`,
since strace does not see what a ring does; syncs never go through the ring anyway.
Run it with .venv/bin/python (tests/install).
"""
import os
import pathlib
import shutil
import struct
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "harness"), str(HERE.parent / "interop")]
import lines  # noqa: E402
from holdfast import Holdfast, run  # noqa: E402
from report import Report, arguments, expect  # noqa: E402
from tap import Tap  # noqa: E402

SLOW_S = 1.0
POLICIES = {
    "honor": {"durability": "honor"},
    "strict-sync": {"durability": "strict-sync"},
    "bounded": {"durability": "bounded:200ms,4MiB"},
    "treat-host-as-stable-storage": {"durability": "treat-host-as-stable-storage", "accept_loss": True},
}
# What must be stable before the answer: "data" (the file itself), "name" (its directory), both, or
# nothing. A FLUSH syncs the file even where nothing is owed: somebody else on the host may have written.
WANTED = {
    #                     honor            strict-sync      bounded  host
    "create":            (set(),           {"name"},        set(),   set()),
    "write":             (set(),           {"data"},        set(),   set()),
    "flush":             ({"data", "name"}, {"data"},      set(),   set()),
    "write-through":     ({"data"},        {"data"},        set(),   set()),
    "write-through open": ({"data"},       {"data"},        set(),   set()),
    "overwrite, flush":  ({"data"},        {"data"},        set(),   set()),
    "set times":         (set(),           {"data"},        set(),   set()),
    "rename":            (set(),           {"name"},        set(),   set()),
    "close":             (set(),           set(),           set(),   set()),
    "delete":            (set(),           {"name"},        set(),   set()),
}


def main():
    asked = arguments(__doc__.splitlines()[0]).parse_args()
    report = Report("strace", asked.allow_missing, asked.only)
    why = cannot()
    if why:
        report.missing("all", why)
        return report.end()
    for column, policy in enumerate(POLICIES):
        report.check(policy, before_the_answer, policy, column)
    report.check("slow fsync delays nobody else", slow_fsync)
    report.end()


def cannot():
    if not shutil.which("strace"):
        return "strace (Debian package strace)"
    try:
        run(["strace", "-f", "true"])
    except Exception as error:
        return f"strace is not allowed here: {error}"
    try:
        import smbprotocol  # noqa: F401
    except ImportError:
        return "smbprotocol (tests/install makes .venv)"
    return None


class Traced:
    """A server under strace, a tap, and one connection through it."""

    def __init__(self, share, *options):
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-strace-")
        self.output = pathlib.Path(self.folder.name) / "trace"
        prefix = ["strace", "-f", "-y", "-s", "0", "-e", f"trace={lines.TRACED}", "-o", str(self.output), *options]
        self.server = Holdfast({"data": share}, {"file_io": "threads"}, prefix=prefix, folder=self.folder.name)

    def __enter__(self):
        from python_smbprotocol import Peer
        self.server.__enter__()
        self.tap = Tap(self.server.port).__enter__()
        self.peer = Peer(self.tap.port)
        return self

    def __exit__(self, *failure):
        self.peer.__exit__()
        self.tap.__exit__()
        self.server.__exit__(*failure)
        # Only now has strace written everything.
        self.text = self.output.read_text(errors="replace")
        self.folder.cleanup()


def before_the_answer(policy, column):
    marks = []
    with Traced(dict(POLICIES[policy])) as traced:
        for name, step in steps(traced.peer):
            begun = traced.tap.received
            step()
            marks.append((name, begun, traced.tap.received))
        # Long past the bound; later, the end of the server would sync what is owed.
        time.sleep(1.0 if policy == "bounded" else 0)
        alive = traced.output.read_text(errors="replace")
    written, _ = lines.answers(traced.text)
    for name, begun, ended in marks:
        syncs = lines.before(written, begun, ended)
        if verbose():
            print(f"  {policy}: {name}: {syncs}")
        judge(name, syncs, WANTED[name][column])
    if policy == "bounded":
        early, rest = lines.answers(alive)
        paid = [sync for answer in early for sync in answer.syncs] + rest
        expect(any(sync.name.startswith("f") for sync in paid), "nothing was synced in the background")


def verbose():
    return "HOLDFAST_TEST_VERBOSE" in os.environ


def judge(name, syncs, wanted):
    got = {"name" if sync.path.endswith(("/data", "/data/sub")) else "data" for sync in syncs}
    missing, more = wanted - got, got - wanted
    expect(not missing, f"{name}: answered before the {' and '.join(sorted(missing))} was stable; seen: {syncs}")
    # Beyond what is promised nothing is synced, so that nobody pays for what was not asked.
    expect(not more or wanted, f"{name}: synced {syncs}, which this policy does not ask for")


def steps(peer):
    from smbprotocol.file_info import FileInformationClass
    from smbprotocol.open import CreateDisposition, CreateOptions
    opened = {}
    plain, through = CreateOptions.FILE_NON_DIRECTORY_FILE, CreateOptions.FILE_WRITE_THROUGH
    peer.open("sub", CreateDisposition.FILE_CREATE, CreateOptions.FILE_DIRECTORY_FILE).close()

    def create():
        opened["file"] = peer.open("file", CreateDisposition.FILE_CREATE)

    def rename():
        target = "sub\\moved".encode("utf-16-le")
        peer.set(opened["file"], FileInformationClass.FILE_RENAME_INFORMATION,
                 struct.pack("<B7xQI", 0, 0, len(target)) + target)

    def write_through_open():
        opened["through"].write(b"through", 0)

    def times():
        when = 125_000_000_000_000_000
        peer.set(opened["file"], FileInformationClass.FILE_BASIC_INFORMATION,
                 struct.pack("<QQQQII", when, when, when, when, 0x20, 0))

    def overwrite_flush():
        opened["file"].write(b"again", 0)
        opened["file"].flush()

    yield "create", create
    yield "write", lambda: opened["file"].write(b"plain", 0)
    yield "flush", lambda: opened["file"].flush()
    yield "write-through", lambda: opened["file"].write(b"through", 0, write_through=True)
    opened["through"] = peer.open("file", CreateDisposition.FILE_OPEN, plain | through)
    yield "write-through open", write_through_open
    opened["through"].close()
    yield "overwrite, flush", overwrite_flush
    yield "set times", times
    yield "rename", rename
    yield "close", lambda: opened["file"].close()
    doomed = peer.open(r"sub\moved", CreateDisposition.FILE_OPEN, plain | CreateOptions.FILE_DELETE_ON_CLOSE)
    yield "delete", doomed.close


def slow_fsync():
    delay = f"inject=fsync,fdatasync:delay_enter={int(SLOW_S * 1_000_000)}"
    with Traced({"durability": "honor"}, "-e", delay) as traced:
        from smbprotocol.open import CreateDisposition, SMB2FlushRequest
        peer = traced.peer
        slow = peer.open("slow", CreateDisposition.FILE_CREATE)
        other = peer.open("other", CreateDisposition.FILE_CREATE)
        other.write(b"other", 0)
        slow.write(b"slow", 0)
        message = SMB2FlushRequest()
        message["file_id"] = slow.file_id
        begun = time.monotonic()
        flush = peer.connection.send(message, sid=peer.session.session_id, tid=peer.tree.tree_connect_id)
        waits = {}
        for name, call in (("echo", peer.connection.echo), ("read", lambda: other.read(0, 5)),
                           ("read of the same file", lambda: slow.read(0, 4)),
                           ("write", lambda: other.write(b"more!", 5)),
                           ("create", lambda: peer.open("third", CreateDisposition.FILE_CREATE).close())):
            at = time.monotonic()
            call()
            waits[name] = time.monotonic() - at
        done = time.monotonic() - begun
        peer.connection.receive(flush)
        flushed = time.monotonic() - begun
        expect(flushed >= SLOW_S, f"the flush was answered after {flushed:.2f} s: nothing was slow")
        late = {name: f"{wait:.2f} s" for name, wait in waits.items() if wait > SLOW_S / 2}
        expect(not late and done < SLOW_S, f"behind a slow fsync: {late}, together {done:.2f} s")


if __name__ == "__main__":
    main()
