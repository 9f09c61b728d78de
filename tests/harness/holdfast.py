"""Starts Holdfast for a test, and ends it in order.

Every server has a folder, a port and users of its own; nothing outside that folder is written.
A server that panics, does not end by SIGTERM within 20 s or ends with an error fails the test that
used it. Traffic stays on 127.0.0.1.
"""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
USER, PASSWORD = "torture", "Torture-pw1"


def binary():
    """The program under test: HOLDFAST_BIN, or the debug build."""
    named = os.environ.get("HOLDFAST_BIN")
    if named:
        return pathlib.Path(named)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPO / "target"))
    return target / "debug" / "holdfast"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Failure(Exception):
    """A fault that a test found."""


class Holdfast:
    """`shares`: name -> keys of its table (`path` is made where it is not given).
    `server`: further keys of [server]; `durability`: keys of [durability]. `port`: a free one if it is not given.
    `groups`: name -> its members among `users`."""

    def __init__(self, shares=("data",), server=None, users=(USER,), prefix=(), folder=None,
                 port=None, durability=None, groups=None):
        self._owned = None if folder else tempfile.TemporaryDirectory(prefix="holdfast-test-")
        self.folder = pathlib.Path(folder or self._owned.name)
        self.fixed_port = port
        self.port = port or free_port()
        self.shares = dict(shares) if isinstance(shares, dict) else {name: {} for name in shares}
        self.server = dict(server or {})
        self.durability = dict(durability or {})
        self.users = users
        self.groups = dict(groups or {})
        self.prefix = list(prefix)
        self.process = None

    def share_path(self, name):
        return pathlib.Path(self.shares[name]["path"])

    @property
    def log(self):
        return (self.folder / "server.log").read_text(errors="replace")

    def write_config(self):
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        lines = ["[server]", f'state_dir = "{state}"', f'users_file = "{state}/users"']
        for key, value in self.server.items():
            lines.append(f"{key} = {toml(value)}")
        lines.append("[durability]")
        lines += [f"{key} = {toml(value)}" for key, value in self.durability.items()]
        lines += ["[[listener]]", f'address = "127.0.0.1:{self.port}"']
        for name, keys in self.shares.items():
            keys.setdefault("path", str(self.folder / name))
            pathlib.Path(keys["path"]).mkdir(exist_ok=True)
            lines += ["[[share]]", f'name = "{name}"']
            lines += [f"{key} = {toml(value)}" for key, value in keys.items()]
        config = self.folder / "holdfast.toml"
        config.write_text("\n".join(lines) + "\n")
        return config

    def __enter__(self):
        config = self.write_config()
        secret = self.folder / "password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o600)
        for user in self.users:
            run([binary(), "user", "add", user, "--config", config, "--password-file", secret,
                 "--owner", f"{os.geteuid()}:{os.getegid()}"])
        for group, members in self.groups.items():
            run([binary(), "group", "add", group, "--config", config])
            for member in members:
                run([binary(), "group", "join", group, member, "--config", config])
        for attempt in range(3):
            try:
                self._start(config)
                return self
            except Failure:
                self.kill()
                # Somebody may have taken the port since it was free.
                if self.fixed_port or attempt == 2 or "Address already in use" not in self.log:
                    raise
                self.port = free_port()
                config = self.write_config()

    def _start(self, config):
        with open(self.folder / "server.log", "wb") as log:
            self.process = subprocess.Popen(
                self.prefix + [str(binary()), "serve", "--config", str(config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=dict(os.environ, HOLDFAST_LOG="info"))
        self._await_port()

    def kill_and_start_again(self):
        """With the same folders and port; the log begins anew."""
        self.kill()
        if "panicked at" in self.log:
            raise Failure("a thread of the server panicked:\n" + self.log[-4000:])
        self._start(self.folder / "holdfast.toml")

    def _await_port(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            if " listening " in self.log:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.05)
        raise Failure("the server did not start:\n" + self.log)

    def pid(self):
        """The server's own process id, also behind a prefix such as strace."""
        if not self.prefix:
            return self.process.pid
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])

    def kill(self):
        if self.process and self.process.poll() is None:
            # Another thread may have killed it, and received its status, in between.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def __exit__(self, kind, *_):
        try:
            if self.process.poll() is None:
                os.kill(self.pid(), signal.SIGTERM)
            try:
                code = self.process.wait(20)
            except subprocess.TimeoutExpired:
                raise Failure("the server did not end within 20 s of SIGTERM:\n" + self.log[-2000:])
            if kind is None:
                if code != 0:
                    raise Failure(f"the server ended with {code}:\n{self.log[-2000:]}")
                if "the sandbox refused" in self.log:
                    raise Failure("the sandbox refused a system call:\n" + self.log[-4000:])
                if "panicked at" in self.log:
                    raise Failure("a thread of the server panicked:\n" + self.log[-4000:])
        finally:
            self.kill()
            if self._owned:
                self._owned.cleanup()


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return str(value) if isinstance(value, int) else '"%s"' % value


def run(command, timeout=120, check=True, **more):
    """Runs a program; what it says comes back, a failure is raised with it."""
    command = [str(part) for part in command]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout, **more)
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        raise Failure(f"no end within {timeout} s: {' '.join(command)}\n{said[-2000:]}")
    said = done.stdout.decode(errors="replace")
    if check and done.returncode != 0:
        raise Failure(f"exit {done.returncode}: {' '.join(command)}\n{said[-2000:]}")
    return said
