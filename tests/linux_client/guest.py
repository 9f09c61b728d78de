"""Runs in the guest of run.py: mounts shares with cifs.ko and uses them as programs do.

Each test is a function whose name is that of the test. It gets a folder that is empty, and says by an exception what
is wrong. The report goes to a folder that the guest shares with run.py.
"""
import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import pathlib
import shutil
import sqlite3
import stat
import subprocess
import threading
import time
import traceback

EXCHANGE = pathlib.Path("/mnt/exchange")
ASKED = json.loads((EXCHANGE / "asked").read_text())
NAMES = ["a:b", "a*b", "a?b", 'a"b', "a<b>c", "a|b", "trailing.", "trailing ", " leading", "CON", "ümlaut", "日本語", "😀",
         "n" * 255]


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def mounted(options="", share="data", at="a"):
    """A mount, with an empty folder in it that belongs to the test."""
    place = pathlib.Path("/mnt") / at
    place.mkdir(exist_ok=True)
    login = f"username={ASKED['user']},password={ASKED['password']},port={ASKED['port']},noperm"
    run("mount", "-t", "cifs", f"//10.0.2.2/{share}", place, "-o", f"{login},{options}".rstrip(","))
    try:
        yield place
    finally:
        run("umount", place)


@contextlib.contextmanager
def folder(options="", share="data"):
    with mounted(options, share) as place:
        # One that a test left behind after a failure disturbs no other.
        own = place / f"test-{time.monotonic_ns()}"
        own.mkdir()
        try:
            yield own
        finally:
            shutil.rmtree(own)


@contextlib.contextmanager
def two_clients():
    """The same empty folder by two mounts that share neither connection nor cache."""
    with folder() as one, mounted("nosharesock", at="b") as other:
        yield one, other / one.name


def fails(with_errno, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == with_errno, error
    else:
        raise AssertionError(f"{call.__name__}{arguments} succeeded")


def files_of_every_dialect():
    for options in ("vers=3.1.1", "vers=3.1.1,seal", "vers=3.0,sign", "vers=2.1", "vers=2.0", "cache=none"):
        with folder(options) as own:
            use_files(own, sparse="vers=2" not in options)


def use_files(own, sparse):
    data = os.urandom(3 << 20)
    big = own / "big"
    big.write_bytes(data)
    shutil.copy(big, own / "copy")
    assert hashlib.sha256((own / "copy").read_bytes()).digest() == hashlib.sha256(data).digest()
    os.truncate(big, 100)
    assert big.read_bytes() == data[:100]
    os.link(big, own / "link")
    assert os.stat(own / "link").st_nlink == 2
    os.utime(big, ns=(10**18, 10**18 + 123_456_700))
    assert os.stat(big).st_mtime_ns == 10**18 + 123_456_700, os.stat(big)
    os.setxattr(big, "user.colour", b"red")
    assert os.getxattr(big, "user.colour") == b"red" and "user.colour" in os.listxattr(big)
    (own / "copy").rename(big)
    assert big.read_bytes() == data and (own / "link").read_bytes() == data[:100]
    if sparse:
        run("fallocate", "--punch-hole", "--offset", "65536", "--length", "1048576", big)
        hole = big.read_bytes()
        assert hole[65536:65536 + (1 << 20)] == bytes(1 << 20) and hole[:65536] == data[:65536]
    space = os.statvfs(own)
    assert space.f_blocks > space.f_bavail > 0


def names():
    with folder() as own:
        for name in NAMES:
            (own / name).write_text(name)
        assert sorted(os.listdir(own)) == sorted(NAMES), os.listdir(own)
        assert all((own / name).read_text() == name for name in NAMES)
        fails(errno.ENAMETOOLONG, (own / ("n" * 256)).touch)


def many_names():
    with folder() as own:
        for number in range(300):
            (own / f"file {number}").write_text(str(number))
        assert len(os.listdir(own)) == 300
        assert all((own / f"file {number}").read_text() == str(number) for number in range(0, 300, 30))


def an_open_file_that_loses_its_name():
    with two_clients() as (one, other):
        (one / "removed").write_text("kept")
        with open(other / "removed") as removed:
            os.unlink(one / "removed")
            assert not (one / "removed").exists() and removed.read() == "kept"
        time.sleep(1.5)
        assert not (other / "removed").exists()


def mapped_memory():
    with folder() as own:
        with open(own / "mapped", "w+b") as file:
            file.truncate(1 << 16)
            with mmap.mmap(file.fileno(), 1 << 16) as memory:
                memory[40_000:40_005] = b"hello"
                memory.flush()
            os.fsync(file.fileno())
        assert (own / "mapped").read_bytes()[40_000:40_005] == b"hello"


def locks():
    with two_clients() as (one, other):
        (one / "locked").write_bytes(bytes(100))
        with open(one / "locked", "r+b") as mine, open(other / "locked", "r+b") as theirs:
            now = fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.lockf(mine, now, 10, 0)
            fails(errno.EACCES, fcntl.lockf, theirs, now, 10, 5)
            fcntl.lockf(theirs, now, 10, 50)
            begun = time.monotonic()
            releasing = threading.Timer(1, fcntl.lockf, (mine, fcntl.LOCK_UN, 10, 0))
            releasing.start()
            fcntl.lockf(theirs, fcntl.LOCK_EX, 10, 5)
            assert time.monotonic() - begun > 0.9, "the lock was granted beside another"
            releasing.join()


def changes_of_another_client():
    with two_clients() as (one, other):
        assert os.listdir(other) == []
        (one / "a").write_text("a")
        time.sleep(1.5)
        assert os.listdir(other) == ["a"]
        os.rename(other / "a", other / "b")
        time.sleep(1.5)
        assert os.listdir(one) == ["b"] and (one / "b").read_text() == "a"
        (one / "b").write_text("longer")
        time.sleep(1.5)
        assert (other / "b").read_text() == "longer"
        made = []

        def make(place):
            for number in range(20):
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(place / f"{number}", os.O_CREAT | os.O_EXCL))
                    made.append(number)

        makers = [threading.Thread(target=make, args=(place,)) for place in (one, other)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        assert sorted(made) == list(range(20)), made


def folders_whose_files_were_just_closed():
    """The client keeps a handle for a second after close(2), and gives it up when its lease is broken."""
    with two_clients() as (one, other):
        for place in (one, other):
            os.makedirs(one / "d" / "e")
            (one / "d" / "e" / "f").write_text("x")
            assert (other / "d" / "e" / "f").read_text() == "x"
            os.rename(place / "d", place / "moved")
            shutil.rmtree(place / "moved")


def special_files():
    """Symbolic links, pipes and devices, which the client stores in files."""
    with folder("mfsymlinks") as own:
        (own / "target").write_text("there")
        (own / "link").symlink_to("target")
        assert os.readlink(own / "link") == "target" and (own / "link").read_text() == "there"
    with folder("sfu") as own:
        os.mkfifo(own / "pipe")
        os.mknod(own / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        assert stat.S_ISFIFO(os.stat(own / "pipe").st_mode)
        assert os.stat(own / "null").st_rdev == os.makedev(1, 3)


def modes_and_descriptors():
    with folder("modefromsid") as own:
        file = own / "file"
        file.touch()
        for mode in (0o640, 0o755, 0o400, 0o666):
            file.chmod(mode)
            assert stat.S_IMODE(file.stat().st_mode) == mode, oct(file.stat().st_mode)
    with folder("cifsacl") as own:
        (own / "file").touch()
        assert os.getxattr(own / "file", "system.cifs_acl")[0] == 1


def programs():
    """A version control system, an archiver, and a database that locks ranges which it also reads."""
    with folder() as own:
        git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "safe.directory=*", "-c", "gc.auto=0"]
        repository = own / "repository"
        run(*git, "init", "-q", repository)
        for number in range(3):
            (repository / "file").write_text("x" * number)
            run(*git, "add", ".", cwd=repository)
            run(*git, "commit", "-qm", str(number), cwd=repository)
        run(*git, "clone", "-q", repository, own / "clone")
        assert (own / "clone" / "file").read_text() == "xx"
        run(*git, "fsck", "--strict", cwd=own / "clone")
    with folder("nobrl") as own:
        for mode in ("delete", "wal"):
            with contextlib.closing(sqlite3.connect(own / mode)) as base:
                assert base.execute(f"pragma journal_mode={mode}").fetchone() == (mode,)
                base.execute("create table t (n)")
                for number in range(5):
                    base.execute("insert into t values (?)", (number,))
                    base.commit()
                assert base.execute("select sum(n) from t").fetchone() == (10,)
                assert base.execute("pragma integrity_check").fetchone() == ("ok",)


def a_server_that_is_killed():
    kill_beside_writers("data", "hard,echo_interval=3")


def a_server_that_is_killed_with_persistent_handles():
    kill_beside_writers("steady", "hard,echo_interval=3,persistenthandles")


def have_the_server_killed():
    """Asks run.py for it by a new file, and waits for the file that says that the server runs again."""
    number = len(list(EXCHANGE.glob("kill-*")))
    os.close(os.open(EXCHANGE / f"kill-{number}", os.O_CREAT))
    end = time.monotonic() + 60
    while not (EXCHANGE / f"killed-{number}").exists():
        assert time.monotonic() < end, "the server was not started again"
        time.sleep(0.2)


def kill_beside_writers(share, options):
    """Nothing that fsync(2) reported as stored may be lost, and the open files can be written after the restart."""
    with folder(options, share) as own:
        stop, stored = threading.Event(), {}

        def write(name):
            with open(own / name, "wb", buffering=0) as file:
                while not stop.is_set():
                    number = stored.get(name, -1) + 1
                    # The client fails calls that its new connection interrupts (EAGAIN, EBADF).
                    with contextlib.suppress(OSError):
                        os.pwrite(file.fileno(), b"%08d" % number, 8 * number)
                        os.fsync(file.fileno())
                        stored[name] = number

        writers = [threading.Thread(target=write, args=(name,)) for name in ("one", "two")]
        for writer in writers:
            writer.start()
        for _ in range(2):
            time.sleep(2)
            have_the_server_killed()
        before = dict(stored)
        end = time.monotonic() + 60
        while any(stored[name] <= before[name] for name in before) and time.monotonic() < end:
            time.sleep(0.2)
        stop.set()
        for writer in writers:
            writer.join()
        assert len(before) == 2 and all(stored[name] > before[name] for name in before), (before, stored)
        for name, last in stored.items():
            wanted = b"".join(b"%08d" % number for number in range(last + 1))
            assert (own / name).read_bytes().startswith(wanted), f"{name}: not all of {last} records"


TESTS = [files_of_every_dialect, names, many_names, an_open_file_that_loses_its_name, mapped_memory, locks,
         changes_of_another_client, folders_whose_files_were_just_closed, special_files, modes_and_descriptors,
         programs, a_server_that_is_killed, a_server_that_is_killed_with_persistent_handles]


def main():
    os.environ.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/tmp")
    run("modprobe", "cifs")
    with open(EXCHANGE / "report", "w") as report:
        for test in TESTS:
            name = test.__name__.replace("_", " ")
            if ASKED["only"] and not any(word in name for word in ASKED["only"]):
                continue
            begun, why = time.monotonic(), ""
            try:
                test()
            except Exception:
                why = traceback.format_exc() + run("dmesg")[-1000:]
                subprocess.run(["umount", "-l", "/mnt/a", "/mnt/b"], capture_output=True)
            report.write(json.dumps([f"{name} ({time.monotonic() - begun:.1f} s)", why]) + "\n")
            report.flush()
    (EXCHANGE / "ended").touch()


try:
    main()
except Exception:
    traceback.print_exc()
finally:
    os.sync()
    pathlib.Path("/proc/sysrq-trigger").write_text("o")
    time.sleep(60)
