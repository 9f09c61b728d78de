"""Client libraries from package registries: a typical working day with each.

A driver in the library's own language (libraries/) executes one command per line and answers with a
line: `ok`, `error` and the library's message, or `absent` if the library lacks the function. The
commands and the expected results are here, once for all libraries; data are passed in local files.
The share is also checked on the server, and a tap checks whether requests were signed.

FACTS lists the functions that a library lacks for reasons of its own. A check listed there has to
fail: when a newer version passes it, the row is removed.
"""
import os
import pathlib
import re
import select
import subprocess
import sys

from holdfast import PASSWORD, REPO, USER, Failure
from material import NAMES
from report import expect
from tap import Tap

HERE = pathlib.Path(__file__).resolve().parent / "libraries"
BUILT = REPO / "target" / "interop"
PATIENCE = 60
ECHO = 13
MANY = [f"file{number:03}.txt" for number in range(300)]
LARGE = bytes(range(251)) * 20_000 + b"end"

PYTHON = [sys.executable]
JAVA = ["java", "-cp", f"{BUILT}/java/classes:{BUILT}/java/jars/*", "Driver"]
LIBRARIES = {
    "pysmb 1.2.15": PYTHON + [HERE / "python/driver_pysmb.py"],
    # Debian's python3-smbc belongs to Debian's Python.
    "libsmbclient": ["/usr/bin/python3", HERE / "python/driver_libsmbclient.py"],
    "go-smb2": [BUILT / "go/driver"],
    "smbj 0.14.0": JAVA + ["smbj"],
    "jcifs-ng 2.1.10": JAVA + ["jcifs"],
    "Rust smb 0.12.1": [BUILT / "rust/debug/interop-rust"],
    # It hashes passwords with MD4, which OpenSSL 3 provides only as a legacy algorithm.
    "v9u-smb2 1.0.6": ["node", "--openssl-legacy-provider", HERE / "node/main.js"],
}

FACTS = {
    "pysmb 1.2.15": {
        "truncate": "not in its interface",
        "set_time": "not in its interface",
        "encryption": "it speaks SMB 2 at most, which has no encryption",
    },
    "libsmbclient": {
        "truncate": "Debian's binding for Python does not have it",
        "set_time": "Debian's binding for Python does not have it",
        "security": "its RPC goes to port 445, whatever port it was given",
    },
    "go-smb2": {"security": "not in this version's interface"},
    "smbj 0.14.0": {"shares": "its RPC is a library of its own"},
    "jcifs-ng 2.1.10": {
        "shares": "its RPC goes to port 445, whatever port it was given",
        "remove_folder": "it removes a folder with all that is in it",
        "full_folder": "it removes a folder with all that is in it",
        "encryption": "it has none",
    },
    "Rust smb 0.12.1": {"shares": "it offers NDR64 as transfer syntax and no other; neither we nor Samba have that"},
    "v9u-smb2 1.0.6": {
        "shares": "not in its interface",
        "set_time": "not in its interface",
        "wildcards": "not in its interface",
        "security": "not in its interface",
        "signed": "it never signs; it gets a server that does not require it",
        "encryption": "it speaks SMB 2 at most, which has no encryption",
    },
}

# The messages of libraries for these: the status by number or name, or a text of their own.
MISSING = r"(?i)c0000034|c000003a|c000000f|not.?found|no such file|cannot find|does not exist"
EXISTS = r"(?i)c0000035|collision|exists"
REFUSED = r"(?i)c000006d|logon.?failure|attempted logon is invalid|access.?denied|bad user ?name or password|unknown user|permission"
NO_SHARE = r"(?i)c00000cc|bad.?network.?name|no such|not.?found|cannot be found"
NOT_EMPTY = r"(?i)c0000101|not.?empty"


class Absent(Exception):
    """The library lacks the function."""


class Gone(Exception):
    """The driver has ended, or does not answer: that is no fact about its library."""


class Driver:
    def __init__(self, command):
        environment = dict(os.environ, NODE_PATH=str(BUILT / "node/node_modules"), NODE_NO_WARNINGS="1")
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ask(self, *parts):
        """Returns the value of an `ok`; raises an `error`."""
        try:
            self.process.stdin.write("\t".join(map(str, parts)).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Gone(parts[0])
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            raise Gone(f"no answer within {PATIENCE} s to {parts}")
        line = self.process.stdout.readline().decode().rstrip("\n")
        if not line:
            raise Gone(parts[0])
        kind, _, value = line.partition("\t")
        if kind == "absent":
            raise Absent
        if kind != "ok":
            raise Failure(f"{parts[0]}: {value}")
        return value

    def refused(self, words, *parts):
        try:
            self.ask(*parts)
        except Failure as why:
            expect(re.search(words, str(why)), f"refused with other words: {why}")
            return
        raise Failure(f"not refused: {parts}")


class Work:
    """The actions of one library in a folder of its own."""

    def __init__(self, driver, tap, server, folder, name):
        self.driver, self.ask, self.tap = driver, driver.ask, tap
        self.local, self.back = folder / "sent", folder / "received"
        self.base = "day-" + re.sub(r"\W", "", name)
        self.disk = server.share_path("data") / self.base
        self.secret = server.share_path("secret")

    def path(self, *names):
        return "\\".join([self.base, *names])

    def put(self, what, data, *names):
        self.local.write_bytes(data)
        self.ask(what, self.path(*names), self.local)

    def get(self, *names):
        self.back.unlink(missing_ok=True)
        self.ask("get", self.path(*names), self.back)
        return self.back.read_bytes()

    def names(self, folder, pattern="*"):
        said = self.ask("list", self.path(folder), pattern)
        return sorted(said.split("\t")) if said else []

    def connect(self, share="data", user=USER, password=PASSWORD):
        self.ask("connect", self.tap.port, share, user, password)

    def wrong_password(self):
        self.driver.refused(REFUSED, "connect", self.tap.port, "data", USER, "wrong")

    def unknown_user(self):
        self.driver.refused(REFUSED, "connect", self.tap.port, "data", "nobody-here", PASSWORD)

    def unknown_share(self):
        self.driver.refused(NO_SHARE, "connect", self.tap.port, "nothing", USER, PASSWORD)

    def shares(self):
        said = self.ask("shares")
        expect("data" in said and "secret" in said, said)

    def folders(self):
        for name in ((), ("many",), ("odd",), ("empty",)):
            self.ask("mkdir", self.path(*name))
        expect((self.disk / "many").is_dir(), "it is not there")
        self.driver.refused(EXISTS, "mkdir", self.path("many"))

    def small_file(self):
        self.put("put", b"small\n", "small.txt")
        expect(self.get("small.txt") == b"small\n", "it came back different")
        expect((self.disk / "small.txt").read_bytes() == b"small\n", "the disk differs")

    def empty_file(self):
        self.put("put", b"", "none.txt")
        expect(self.get("none.txt") == b"", "it came back different")

    def large_file(self):
        self.put("put", LARGE, "large.bin")
        expect((self.disk / "large.bin").read_bytes() == LARGE, "the disk differs")
        expect(self.get("large.bin") == LARGE, "it came back different")

    def append(self):
        self.put("append", b"and more\n", "small.txt")
        expect((self.disk / "small.txt").read_bytes() == b"small\nand more\n", "the disk differs")

    def overwrite(self):
        self.put("put", b"x" * 5000, "over.txt")
        self.put("put", b"short", "over.txt")
        expect((self.disk / "over.txt").read_bytes() == b"short", "something of the longer file is left")

    def truncate(self):
        self.ask("truncate", self.path("over.txt"), 3)
        expect((self.disk / "over.txt").stat().st_size == 3, "the size differs")

    def rename(self):
        self.ask("rename", self.path("over.txt"), self.path("empty", "moved.txt"))
        expect((self.disk / "empty/moved.txt").exists() and not (self.disk / "over.txt").exists(), "not moved")
        self.ask("delete", self.path("empty", "moved.txt"))

    def stat(self):
        size, seconds = self.ask("stat", self.path("small.txt")).split("\t")
        found = (self.disk / "small.txt").stat()
        expect(int(size) == found.st_size and abs(int(seconds) - found.st_mtime) < 2, f"{size} {seconds}: {found}")

    def set_time(self):
        self.ask("settime", self.path("small.txt"), 1_000_000_000)
        found = (self.disk / "small.txt").stat().st_mtime
        expect(int(found) == 1_000_000_000, f"{found}")

    def list_300(self):
        for name in MANY:
            (self.disk / "many" / name).touch()
        expect(self.names("many") == MANY, "not the 300 names")

    def wildcards(self):
        expect(self.names("many", "*.txt") == MANY, "not the 300 names")
        expect(self.names("many", "file00?.txt") == MANY[:10], f"not 10 names: {self.names('many', 'file00?.txt')}")

    def make_and_remove(self):
        made = [f"made{number}" for number in range(20)]
        for name in made:
            self.put("put", name.encode(), "many", name)
        for name in made + MANY[:80]:
            self.ask("delete", self.path("many", name))
        expect(sorted(os.listdir(self.disk / "many")) == MANY[80:], "something is left")

    def unicode_names(self):
        for name in NAMES:
            self.put("put", name.encode(), "odd", name)
        expect(sorted(os.listdir(self.disk / "odd")) == sorted(NAMES), f"on disk: {os.listdir(self.disk / 'odd')}")
        expect(self.names("odd") == sorted(NAMES), "listed otherwise")
        for name in NAMES:
            expect(self.get("odd", name) == name.encode(), f"{name} came back different")

    def missing(self):
        self.driver.refused(MISSING, "get", self.path("absent"), self.back)
        self.driver.refused(MISSING, "get", self.path("absent", "file"), self.back)

    def delete(self):
        self.ask("delete", self.path("none.txt"))
        expect(not (self.disk / "none.txt").exists(), "it is still there")

    def remove_folder(self):
        self.ask("rmdir", self.path("empty"))
        expect(not (self.disk / "empty").exists(), "it is still there")

    def full_folder(self):
        self.driver.refused(NOT_EMPTY, "rmdir", self.path("many"))
        expect(len(os.listdir(self.disk / "many")) == 220, "what was in it is gone")

    def streams(self):
        self.put("put", b"in a stream", "small.txt:notes")
        expect(self.get("small.txt:notes") == b"in a stream", "it came back different")
        expect((self.disk / "small.txt").read_bytes() == b"small\nand more\n", "the file changed")

    def security(self):
        owner = self.ask("security", self.path("small.txt"))
        expect(re.search(r"S-1-|\\|\w", owner), f"owner {owner!r}")

    def signed(self):
        # Samba's library checks whether the server is alive without naming a session.
        plain = self.tap.plain_commands - {ECHO}
        expect(self.tap.signed > 100 and not plain,
               f"signed {self.tap.signed}, neither signed nor sealed: {plain}")

    def encryption(self):
        name = self.base + ".txt"
        before = self.tap.sealed
        self.connect("secret")
        self.local.write_bytes(b"sealed")
        self.ask("put", name, self.local)
        expect((self.secret / name).read_bytes() == b"sealed", "the disk differs")
        expect(self.tap.sealed > before, "nothing was sealed")


# The order matters: each check uses the results of those before it.
CHECKS = ["wrong_password", "unknown_user", "unknown_share", "connect", "shares", "folders", "small_file", "empty_file",
          "large_file", "append", "overwrite", "truncate", "rename", "stat", "set_time", "list_300", "wildcards",
          "make_and_remove", "unicode_names", "missing", "delete", "remove_folder", "full_folder", "streams",
          "security", "signed", "encryption"]


def check(report, server, plain, folder):
    """`server` requires signing; `plain` does not, for libraries that cannot sign."""
    for name, command in LIBRARIES.items():
        if not report.wants(name):
            continue
        if why := missing(name, command):
            report.missing(name, f"{why} (tests/install)")
            continue
        day(report, plain if "signed" in FACTS.get(name, {}) else server, folder, name, command)


def missing(name, command):
    """Returns what is missing here to run a library."""
    if name == "libsmbclient":
        found = subprocess.run(["/usr/bin/python3", "-c", "import smbc"], stderr=subprocess.DEVNULL)
        return "Debian package python3-smbc" if found.returncode else ""
    needed = {"node": BUILT / "node/node_modules/v9u-smb2", "java": BUILT / "java/classes/Driver.class"}
    path = needed.get(command[0], command[0])
    if command[0] == sys.executable:
        found = subprocess.run([sys.executable, "-c", "import smb"], stderr=subprocess.DEVNULL)
        return "pysmb" if found.returncode else ""
    return "" if pathlib.Path(path).exists() else str(path)


def day(report, server, folder, name, command):
    facts = FACTS.get(name, {})
    with Tap(server.port) as tap, Driver(command) as driver:
        work = Work(driver, tap, server, folder, name)
        for what in CHECKS:
            report.check(f"{name}: {what.replace('_', ' ')}", one, getattr(work, what), facts.get(what))


def one(test, fact):
    try:
        test()
    except (Absent, Failure) as why:
        if fact is None:
            raise Failure("the library has no such thing" if isinstance(why, Absent) else str(why))
    else:
        expect(fact is None, f"passes, though {fact!r} was known of it")
