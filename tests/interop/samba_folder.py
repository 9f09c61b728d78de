"""A folder that moves from Samba to Holdfast and back keeps the metadata that Linux cannot store.

DOS attributes, creation time and named streams are stored in extended attributes in Samba's formats
(`user.DOSATTRIB`, `user.DosStream.*`): each server must show what the other wrote. A private smbd
serves the same folder before and after Holdfast, never at the same time. Needs root.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from holdfast import PASSWORD, USER, Holdfast, free_port, run
from report import expect

# Samba needs a system account.
SAMBA_USER = "daemon"
CONF = """[global]
 server role = standalone server
 netbios name = METADATA
 interfaces = 127.0.0.1/8
 bind interfaces only = yes
 smb ports = {port}
 disable netbios = yes
 private dir = {state}/private
 lock directory = {state}/lock
 state directory = {state}/state
 cache directory = {state}/cache
 pid directory = {state}/pid
 ncalrpc dir = {state}/ncalrpc
 log file = {state}/log
 passdb backend = tdbsam
 load printers = no
 printcap name = /dev/null
 disable spoolss = yes
[data]
 path = {share}
 read only = no
 force user = root
 ea support = yes
 store dos attributes = yes
 map archive = no
 map hidden = no
 map system = no
 map readonly = no
 vfs objects = {modules}
"""


class Samba:
    """A private smbd over a folder."""

    def __init__(self, state, share, modules="streams_xattr"):
        self.state, self.share, self.port = state, share, free_port()
        self.modules = modules

    def __enter__(self):
        for name in ("private", "lock", "state", "cache", "pid", "ncalrpc"):
            (self.state / name).mkdir(parents=True, exist_ok=True)
        conf = self.state / "smb.conf"
        conf.write_text(CONF.format(port=self.port, state=self.state, share=self.share,
                                    modules=self.modules))
        subprocess.run(["smbpasswd", "-c", conf, "-s", "-a", SAMBA_USER], check=True,
                       input=f"{PASSWORD}\n{PASSWORD}\n", text=True, capture_output=True)
        self.process = subprocess.Popen(["smbd", "--foreground", "-s", conf],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.1)
        raise AssertionError("smbd does not listen")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def client(server, user, *commands):
    """Runs smbclient commands and returns the output."""
    return run(["smbclient", "//127.0.0.1/data", "-p", str(server.port), "-U",
                f"{user}%{PASSWORD}", "-c", "; ".join(commands)])


def write(server, user, folder, name):
    """A file with attributes and a stream."""
    text, notes = folder / "text", folder / "notes"
    text.write_text("the data of " + name)
    notes.write_text("the notes of " + name)
    client(server, user, f"put {text} {name}", f"put {notes} {name}:notes",
           f"setmode {name} +h", f"setmode {name} +s", f"setmode {name} -a")


def facts(server, user, folder, name):
    """Returns a file as a server shows it: attributes, creation time, data, stream."""
    info = client(server, user, f"allinfo {name}")
    attributes = re.search(r"attributes: (\w*)", info)
    created = re.search(r"create_time: +(.*)", info)
    expect(attributes and created, info)
    data, notes = folder / "data-back", folder / "notes-back"
    client(server, user, f"get {name} {data}", f"get {name}:notes {notes}")
    return (sorted(attributes.group(1)), created.group(1).strip(), data.read_text(),
            notes.read_text(), ":notes:$DATA" in info)


def both_ways(folder):
    share, state = folder / "both", folder / "samba"
    share.mkdir()
    with Samba(state, share) as samba:
        write(samba, SAMBA_USER, folder, "from-samba")
        first = facts(samba, SAMBA_USER, folder, "from-samba")
    with Holdfast({"data": {"path": str(share)}}) as server:
        shown = facts(server, USER, folder, "from-samba")
        expect(shown == first, f"Samba showed {first}, Holdfast shows {shown}")
        write(server, USER, folder, "from-holdfast")
        second = facts(server, USER, folder, "from-holdfast")
    expect(second[0] == ["H", "S"], f"attributes {second[0]}")
    with Samba(state, share) as samba:
        shown = facts(samba, SAMBA_USER, folder, "from-holdfast")
        expect(shown == second, f"Holdfast showed {second}, Samba shows {shown}")
        again = facts(samba, SAMBA_USER, folder, "from-samba")
        expect(again == first, f"Samba showed {first} before, {again} after")


def check(report, folder):
    if not shutil.which("smbd"):
        report.missing("a folder from Samba and back", "Debian package samba")
    elif os.geteuid() != 0:
        report.missing("a folder from Samba and back", "root (smbd)")
    else:
        report.check("a folder from Samba and back", both_ways, pathlib.Path(folder))
        import samba_streams
        samba_streams.check(report, pathlib.Path(folder))
