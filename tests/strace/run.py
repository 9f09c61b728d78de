#!/usr/bin/env python3
"""Runs the server under strace and checks its system calls before each answer.

    run.py                  everything
    run.py honor            tests whose name contains the word
    run.py --allow-missing  missing strace or root is reported, but is no failure

Under each policy, every event of the table (events.py) executes exactly the system calls that the
policy promises, in order, before its answer is written to the socket. Under `bounded`, data are synced
within the bound; a FLUSH waits for outstanding WRITEs; a slow fsync delays no other request of the same
connection. The server runs with `file_io = "threads"`, since strace does not show operations of a ring;
syncs never use the ring anyway.
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
from holdfast import Failure, Holdfast, run  # noqa: E402
from report import Report, arguments, expect  # noqa: E402
from tap import Tap  # noqa: E402

# A request that waits for the slow fsync takes this long; others may take half of it, under strace.
SLOW_S = 6.0
MEDIA_WRITE_PROTECTED = 0xC00000A2
POLICIES = {
    "honor": {"durability": "honor"},
    "strict-sync": {"durability": "strict-sync"},
    "bounded": {"durability": "bounded:60s,1GiB"},
    "treat-host-as-stable-storage": {"durability": "treat-host-as-stable-storage", "accept_loss": True},
}
def main():
    asked = arguments(__doc__.splitlines()[0]).parse_args()
    report = Report("strace", asked.allow_missing, asked.only)
    why = cannot()
    if why:
        report.missing("all", why)
        return report.end()
    for policy in POLICIES:
        report.check(policy, before_the_answer, report, policy)
    clones(report)
    overlay(report)
    report.check("flush_times = false", cheap, report)
    report.check("bounded: paid within the delay", paid_in_time)
    for own in True, False:
        whose = "its own" if own else "another"
        report.check(f"flush waits for a write of {whose} connection", flush_after_write, own)
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
    """A server under strace, a tap, and one connection through it. `only`: the file of the share to which strace is
    restricted, so that it delays nothing else, as at the start."""

    def __init__(self, share, *options, only=None):
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-strace-")
        self.output = pathlib.Path(self.folder.name) / "trace"
        prefix = ["strace", "-f", "-y", "-ttt", "-s", "0", "-e", f"trace={lines.TRACED}", "-o", str(self.output),
                  *options]
        if only:
            prefix += ["-P", f"{self.folder.name}/data/{only}"]
        # The same folder is shared twice: large streams are created through the share that stores them in the depot.
        depot = dict(share, path=str(pathlib.Path(self.folder.name) / "data"), streams="depot")
        # Nothing is synced for its age before the answers of a slow run.
        self.server = Holdfast({"data": share, "depot": depot}, {"file_io": "threads"}, prefix=prefix,
                               folder=self.folder.name, durability={"dirty_age_max": "1h"})

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
        self.share = str(self.server.share_path("data"))
        self.folder.cleanup()


def run_each(traced, steps, all_events):
    """Runs the events, and returns each with what was received before it and after it."""
    marks = []
    for event in all_events:
        prepare = "before_" + event[0].replace(" ", "_").replace("-", "_")
        if hasattr(steps, prepare):
            getattr(steps, prepare)()
        begun = traced.tap.received
        steps.run(event[0])
        marks.append((event, begun, traced.tap.received))
    return marks


def before_the_answer(report, policy):
    """Runs all events against one server; each is reported as a test of its own."""
    import events
    with Traced(dict(POLICIES[policy])) as traced:
        atomic = events.renames_are_atomic(traced.folder.name)
        steps = events.Steps(traced.peer, traced.server.share_path("data"))
        marks = run_each(traced, steps, events.EVENTS)
    written, rest = lines.answers(traced.text)
    for event, begun, ended in marks:
        calls = events.shown(lines.before(written, begun, ended), traced.share)
        if verbose():
            print(f"  {policy}: {event[0]}: {calls}")
        wanted = events.wanted(event, policy, atomic)
        # Some only prepare what comes after them.
        if wanted is not None:
            report.check(f"{policy}: {event[0]}", judge, calls, wanted, event[0])
    report.check(f"{policy}: the stop syncs what is owed", stopped, policy, events.shown(rest, traced.share))
    report.check(f"{policy}: only fsync, fdatasync and RWF_DSYNC", lawful, traced.text)


def cheap(report):
    import events
    marks = []
    with Traced({"durability": "honor", "flush_times": False}) as traced:
        steps = events.Cheap(traced.peer, traced.server.share_path("data"))
        for name, due in steps.EVENTS:
            steps.prepare(name)
            begun = traced.tap.received
            steps.run(name)
            marks.append((name, due, begun, traced.tap.received))
    written, _ = lines.answers(traced.text)
    for name, due, begun, ended in marks:
        calls = events.shown(lines.before(written, begun, ended), traced.share)
        report.check(f"flush_times = false: {name}", judge, calls, due, name)


def verbose():
    return "HOLDFAST_TEST_VERBOSE" in os.environ


def mounted_new(report, what, kind, size, image, folder, options):
    """Mounts a new file system in a file, or reports that what needs it is missing."""
    try:
        with open(image, "wb") as file:
            file.truncate(size)
        run([f"mkfs.{kind}", "-q", image])
        run(["mount", "-o", options, image, folder])
    except Exception as error:
        report.missing(what, f"{kind} on a loop device: {error}")
        return False
    return True


def clones(report):
    """Needs a file system that shares extents: XFS in a file."""
    with tempfile.TemporaryDirectory(prefix="holdfast-strace-xfs-") as folder:
        image, mounted = pathlib.Path(folder) / "image", pathlib.Path(folder) / "xfs"
        mounted.mkdir()
        if not mounted_new(report, "duplicate extents", "xfs", 320 << 20, image, mounted, "loop"):
            return
        try:
            for policy in "honor", "strict-sync":
                report.check(f"{policy}: duplicate extents", cloned, report, policy, mounted / policy)
                report.check(f"{policy}: flush of a volume that became read-only", read_only, policy, mounted)
        finally:
            run(["umount", mounted])


def overlay(report):
    """Needs overlayfs over ext4 in a file, whose image is what a power cut would leave."""
    with tempfile.TemporaryDirectory(prefix="holdfast-strace-overlay-") as folder:
        folder = pathlib.Path(folder)
        image, below, mounted = folder / "image", folder / "below", folder / "mounted"
        below.mkdir()
        mounted.mkdir()
        if not mounted_new(report, "overlayfs", "ext4", 64 << 20, image, below, "loop,commit=600"):
            return
        try:
            for layer in "lower", "upper", "work":
                (below / layer).mkdir()
            (below / "lower" / "file").write_bytes(b"from the lower layer")
            (below / "lower" / "file").chmod(0o666)
            os.sync()
            layers = f"lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work"
            run(["mount", "-t", "overlay", "overlay", "-o", layers, mounted])
        except Exception as error:
            run(["umount", below])
            report.missing("overlayfs", f"overlayfs: {error}")
            return
        try:
            report.check("overlayfs: a flushed file of the lower layer is copied up and stable", copied_up, folder)
        finally:
            run(["umount", mounted])
            run(["umount", below])


def copied_up(folder):
    """The first write copies the file to the upper layer, which its FLUSH has to make stable with its name.
    The image before the FLUSH lacks the write: else the test would prove nothing."""
    import events
    with Traced({"durability": "honor", "path": str(folder / "mounted")}) as traced:
        file = events.Steps(traced.peer).open("file", events.OPEN)
        file.write(b"from a client", 0)
        shutil.copy(folder / "image", folder / "before")
        begun = traced.tap.received
        file.flush()
        ended = traced.tap.received
        # The image at the moment of the answer, without what the kernel has not written to the device.
        shutil.copy(folder / "image", folder / "after")
    written, _ = lines.answers(traced.text)
    calls = events.shown(lines.before(written, begun, ended), str(folder / "mounted"))
    expect({"F file", "F ."} <= set(calls), f"before the answer: {calls}")
    expect(not is_left(folder, "before"), "the write was stable before its FLUSH: the test proves nothing")
    expect(is_left(folder, "after"), "the flushed write is lost")


def is_left(folder, image):
    """Whether the upper layer of an image has the file as the client wrote it."""
    left = folder / f"left-{image}"
    left.mkdir()
    run(["mount", "-o", "loop", folder / image, left])
    try:
        file = left / "upper" / "file"
        return file.exists() and file.read_bytes().startswith(b"from a client")
    finally:
        run(["umount", left])


def read_only(policy, mounted):
    """[MS-FSA] 2.1.5.7. A directory does not keep its file system from being made read-only."""
    with Holdfast({"data": dict(POLICIES[policy], path=str(mounted / policy))}) as server:
        from python_smbprotocol import Peer
        from smbprotocol.exceptions import SMBResponseException
        import events
        with Peer(server.port) as peer:
            steps = events.Steps(peer)
            folder = steps.open("folder", events.CREATE, events.DIRECTORY)
            steps.flush(folder)
            run(["mount", "-o", "remount,ro", mounted])
            try:
                for reserved in 0, events.FULL_SYNC:
                    try:
                        steps.flush(folder, reserved)
                    except SMBResponseException as error:
                        expect(error.status == MEDIA_WRITE_PROTECTED, f"status {error.status:#x}")
                    else:
                        raise Failure("the flush succeeded")
            finally:
                run(["mount", "-o", "remount,rw", mounted])
            steps.flush(folder)


def cloned(report, policy, folder):
    import events
    with Traced(dict(POLICIES[policy], path=str(folder))) as traced:
        steps = events.Clones(traced.peer)
        marks = run_each(traced, steps, steps.EVENTS)
    written, _ = lines.answers(traced.text)
    for event, begun, ended in marks:
        calls = events.shown(lines.before(written, begun, ended), traced.share)
        report.check(f"{policy}: XFS: {event[0]}", judge, calls, events.wanted(event, policy, True), event[0])


def judge(calls, wanted, name):
    import events
    if wanted == "all":
        # fsync does what fdatasync does.
        enough = set(calls) | {"D " + call[2:] for call in calls if call.startswith("F ")}
        missing = events.EVERYTHING[name] - enough
        expect(not missing, f"{missing} not reached: {calls}")
        return
    said = ", ".join(calls) or "-"
    expect(said == wanted, f"before the answer: {said}; due: {wanted}")


def stopped(policy, calls):
    """Data that no client flushed are synced when the server stops."""
    owed = policy != "strict-sync"
    expect(not owed or {"D f", "F f"} & set(calls), f"the last write was not synced: {calls}")


def lawful(text):
    """sync_file_range flushes no device and syncfs is no barrier on XFS; O_SYNC would outlive a
    change of the policy; strace does not show operations of a ring. Before a depot is created, and before
    the streams of a removed file are deleted, there is one syncfs of the share's root: it orders the names,
    and the fsyncs that follow are the barrier."""
    depots = 0
    served = text[text.index("/data/a/f>"):]
    for line in served.splitlines():
        expect("sync_file_range(" not in line, f"a call that is no barrier: {line}")
        if "syncfs(" in line:
            depots += 1
            root = line.endswith("/data> <unfinished ...>") or "/data>)" in line
            expect(root and depots <= 2, f"a call that is no barrier: {line}")
        expect("io_uring_enter(" not in line, f"a ring: {line}")
        opened = "openat(" in line or "openat2(" in line or "open(" in line
        expect(not (opened and ("O_SYNC" in line or "O_DSYNC" in line)), f"opened synchronously: {line}")


def paid_in_time():
    """Data of an answered FLUSH are on disk within the bound."""
    delay = 4.0
    with Traced({"durability": f"bounded:{int(delay * 1000)}ms,4MiB"}) as traced:
        from smbprotocol.open import CreateDisposition
        file = traced.peer.open("file", CreateDisposition.FILE_CREATE)
        file.write(b"owed", 0)
        file.flush()
        received = traced.tap.received
        time.sleep(delay + 0.5)
        file.write(b"later", 0)
        ended = traced.tap.received
    written, _ = lines.answers(traced.text)
    at, told, paid = 0, None, []
    for answer in written:
        paid += [sync for sync in answer.syncs if at >= received]
        at += answer.bytes
        if at <= received:
            told = answer.at
        if at >= ended:
            break
    names = [(sync.name, sync.path) for sync in paid]
    expect({path.rsplit("/", 1)[-1] for _, path in names} >= {"file", "data"}, f"paid: {names}")
    late = max(sync.at for sync in paid) - told
    expect(late <= delay, f"paid {late:.2f} s after the answer")


def flush_after_write(own):
    """A slow write that was received before a FLUSH ends before the sync begins."""
    slow = 5.0
    delay = f"inject=pwrite64,pwritev,pwritev2:delay_enter={int(slow * 1_000_000)}"
    with Traced({"durability": "honor"}, "-e", delay, only="file") as traced:
        from python_smbprotocol import Peer
        from smbprotocol.open import CreateDisposition
        peer = traced.peer
        with Peer(traced.server.port) as other:
            file = peer.open("file", CreateDisposition.FILE_CREATE)
            same = other.open("file", CreateDisposition.FILE_OPEN)
            message, unpack = file.write(b"under way", 0, send=False)
            request = peer.connection.send(message, sid=peer.session.session_id, tid=peer.tree.tree_connect_id)
            time.sleep(slow / 5)
            (file if own else same).flush()
            unpack(request)
    ended = begun = None
    for line in traced.text.splitlines():
        if "/data/file>" in line and "fsync(" in line and begun is None:
            begun = lines.time_of(line)
        if "pwrite" in line and ("resumed" in line or "= 9" in line):
            ended = lines.time_of(line)
    expect(ended and begun, "no write or no sync was seen")
    expect(ended <= begun, f"the sync began {ended - begun:.3f} s before the write had ended")


def slow_fsync():
    delay = f"inject=fsync,fdatasync:delay_enter={int(SLOW_S * 1_000_000)}"
    with Traced({"durability": "honor"}, "-e", delay, only="slow") as traced:
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
