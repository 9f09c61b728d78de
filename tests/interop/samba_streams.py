"""Named streams of a folder that moves from Samba to Holdfast and back, in both kinds of storage.

`streams = "xattr"` is Samba's `streams_xattr`, `streams = "depot"` its `streams_depot`. Each
server reads, changes, renames and removes streams that the other wrote, on files and folders, from
empty to 10 MiB, with unusual names; and neither shows an extended attribute that no client has set.
In between, `holdfast convert-streams` converts the folder from one kind of storage to the other. Needs root, smbprotocol and
the Debian package samba-vfs-modules.
"""
import pathlib
import random
import struct
import subprocess

from holdfast import USER, Holdfast, binary
from report import expect
from samba_folder import SAMBA_USER, Samba

VFS = pathlib.Path("/usr/lib")
NAMES = ["plain", "UPPER", "two words", " blank before", "dots.in.it", ".dot", "it's", "per%41cent", "semi;colon,",
         "(brackets) [and] {braces}", "plus+equals=at@tilde~", "$DATA", "grün", "日本語", "smile 😀", "n" * 200]
STREAM_INFORMATION, FULL_EA_INFORMATION, RENAME_INFORMATION = 22, 15, 10
# ext4 has about 4,000 bytes for all attributes of a file.
SIZES = {"xattr": [0, 1, 255, 2500],
         "depot": [0, 1, 255, 4096, 65535, 65536, 65537, 1 << 20, 10 << 20]}
MODULE = {"xattr": "streams_xattr", "depot": "streams_depot"}
CHUNK = 1 << 20


def content(seed, size):
    return random.Random(seed).randbytes(size)


class Streams:
    """The operations of a client on the streams of a folder, on either server."""

    def __init__(self, server):
        from python_smbprotocol import Peer
        user = SAMBA_USER if isinstance(server, Samba) else USER
        self.peer = Peer(server.port, user=user)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.peer.connection.disconnect()

    def folder(self, name):
        from smbprotocol.open import CreateDisposition, CreateOptions
        self.peer.open(name, CreateDisposition.FILE_OPEN_IF, CreateOptions.FILE_DIRECTORY_FILE).close()

    def write(self, name, data, at=0):
        handle = self.peer.open(name)
        for start in range(0, len(data), CHUNK):
            handle.write(data[start:start + CHUNK], at + start)
        handle.close()

    def read(self, name):
        from smbprotocol.open import CreateDisposition
        handle = self.peer.open(name, CreateDisposition.FILE_OPEN)
        data = b""
        while len(data) < handle.end_of_file:
            data += handle.read(len(data), min(CHUNK, handle.end_of_file - len(data)))
        handle.close()
        return data

    def remove(self, name):
        from smbprotocol.open import CreateDisposition, CreateOptions
        options = CreateOptions.FILE_NON_DIRECTORY_FILE | CreateOptions.FILE_DELETE_ON_CLOSE
        self.peer.open(name, CreateDisposition.FILE_OPEN, options).close()

    def rename(self, name, to):
        handle = self.peer.open(name)
        target = f":{to}".encode("utf-16-le")
        self.peer.set(handle, RENAME_INFORMATION, struct.pack("<B15xI", 0, len(target)) + target)
        handle.close()

    def list(self, name):
        """Stream name -> size, without the unnamed one."""
        handle = self.anything(name)
        data = self.peer.query(handle, 1, STREAM_INFORMATION, 1 << 16)
        handle.close()
        found, at = {}, 0
        while at < len(data):
            following, length, size, _ = struct.unpack_from("<IIQQ", data, at)
            full = data[at + 24:at + 24 + length].decode("utf-16-le")
            if full != "::$DATA":
                found[full.removeprefix(":").removesuffix(":$DATA")] = size
            if not following:
                break
            at += following
        return found

    def eas(self, name):
        from smbprotocol.exceptions import SMBResponseException
        handle = self.anything(name)
        try:
            return bytes(self.peer.query(handle, 1, FULL_EA_INFORMATION, 1 << 16))
        except SMBResponseException as none:
            expect(none.status in (0xC0000052, 0x80000012), f"extended attributes of {name}: {none}")
            return b""
        finally:
            handle.close()

    def anything(self, name):
        from smbprotocol.open import CreateDisposition
        return self.peer.open(name, CreateDisposition.FILE_OPEN, 0)


class Expected:
    """The expected streams: (file or folder, stream) -> bytes."""

    def __init__(self):
        self.streams = {}

    def write(self, client, base, stream, data, at=0):
        client.write(f"{base}:{stream}", data, at)
        was = self.streams.get((base, stream), b"")
        self.streams[base, stream] = was[:at] + data + was[at + len(data):]

    def remove(self, client, base, stream):
        client.remove(f"{base}:{stream}")
        del self.streams[base, stream]

    def rename(self, client, base, stream, to):
        client.rename(f"{base}:{stream}", to)
        self.streams[base, to] = self.streams.pop((base, stream))

    def hold(self, client, who):
        for base in sorted({base for base, _ in self.streams}):
            wanted = {stream: len(data) for (of, stream), data in self.streams.items() if of == base}
            shown = client.list(base)
            expect(shown == wanted, f"{who} lists {shown} for {base}, not {wanted}")
            eas = client.eas(base)
            expect(not eas.strip(b"\0"), f"{who} shows extended attributes of {base}: {eas}")
        for (base, stream), data in self.streams.items():
            found = client.read(f"{base}:{stream}")
            expect(found == data, f"{who}: {base}:{stream} has {len(found)} bytes, not these {len(data)}")


def make(client, expected, mark, sizes):
    """Files and folders with streams of each size and name."""
    for size in sizes:
        client.write(f"{mark}-{size}", b"data")
        expected.write(client, f"{mark}-{size}", "stream", content(size, size))
    for number, name in enumerate(NAMES):
        # Only a few for each file, because names need space as well.
        base = f"{mark}-names-{number // 4}"
        client.write(base, b"data")
        expected.write(client, base, name, name.encode())
    client.folder(f"{mark}-folder")
    expected.write(client, f"{mark}-folder", "of a folder", b"folder")
    client.write(f"{mark}-folder\\inside", b"data")
    expected.write(client, f"{mark}-folder\\inside", "stream", content(mark, sizes[-1]))


def change(client, expected, mark, sizes):
    """Writes to, renames and removes streams that the other server created, and adds one."""
    expected.write(client, f"{mark}-{sizes[1]}", "stream", b"!" * 50, 1)
    expected.write(client, f"{mark}-{sizes[-1]}", "stream", b"?" * 10, sizes[-1] // 2)
    expected.write(client, f"{mark}-{sizes[1]}", "beside", b"from the other")
    expected.rename(client, f"{mark}-names-0", "plain", "renamed")
    expected.remove(client, f"{mark}-names-0", "UPPER")
    expected.write(client, f"{mark}-folder", "of a folder", b"changed")


def round_trip(folder, place):
    share, state = folder / f"streams-{place}", folder / f"samba-{place}"
    share.mkdir()
    expected, sizes = Expected(), SIZES[place]
    keys = {"data": {"path": str(share), "streams": place}}
    with Samba(state, share, MODULE[place]) as samba, Streams(samba) as client:
        make(client, expected, "samba", sizes)
        expected.hold(client, "Samba, which wrote it,")
    with Holdfast(keys) as server, Streams(server) as client:
        expected.hold(client, "Holdfast")
        change(client, expected, "samba", sizes)
        make(client, expected, "holdfast", sizes)
        expected.hold(client, "Holdfast, which changed it,")
    with Samba(state, share, MODULE[place]) as samba, Streams(samba) as client:
        expected.hold(client, "Samba")
        change(client, expected, "holdfast", sizes)
    with Holdfast(keys) as server, Streams(server) as client:
        expected.hold(client, "Holdfast, at the end,")
    hosts_view(share, place)


def hosts_view(share, place):
    """All streams are in one kind of storage, and no attribute of ours has a name that Samba would show."""
    import os
    for path in [share, *share.rglob("*")]:
        if ".streams" in path.relative_to(share).parts:
            expect(place == "depot", f"there is {path}")
            continue
        for name in os.listxattr(path):
            expect("holdfast" not in name, f"{path} has {name}")
            in_attribute = name.startswith("user.DosStream.") and name.endswith(":$DATA")
            expect(not in_attribute or place == "xattr", f"{path} has {name}")


def convert(keys, folder):
    """Runs the command as an administrator does, with a configuration that has the share."""
    server = Holdfast(keys, folder=folder)
    done = subprocess.run([binary(), "convert-streams", "data", "--config", server.write_config()], text=True,
                          capture_output=True)
    expect(done.returncode == 0, f"convert-streams: {done.stdout}{done.stderr}")
    return done.stdout


def converted(folder, place):
    """A folder of Samba in one kind of storage, converted to the other, works with Samba again."""
    other = {"xattr": "depot", "depot": "xattr"}[place]
    share, state = folder / f"converted-{place}", folder / f"samba-converted-{place}"
    home = folder / f"home-{place}"
    share.mkdir()
    home.mkdir()
    expected = Expected()
    with Samba(state, share, MODULE[place]) as samba, Streams(samba) as client:
        make(client, expected, "samba", SIZES["xattr"])
    keys = {"data": {"path": str(share), "streams": other}}
    said = convert(keys, home)
    expect("samba-2500: 1 stream, 2500 bytes" in said, said)
    expect("nothing to move" in convert(keys, home), "the second time something was moved")
    hosts_view(share, other)
    with Samba(state, share, MODULE[other]) as samba, Streams(samba) as client:
        expected.hold(client, f"Samba with {MODULE[other]}")
        change(client, expected, "samba", SIZES["xattr"])
    with Holdfast(keys) as server, Streams(server) as client:
        expected.hold(client, "Holdfast, after the conversion,")


def check(report, folder):
    tests = [(f"streams from Samba and back, {place}", round_trip, place) for place in MODULE]
    tests += [(f"streams from Samba converted, {place}", converted, place) for place in MODULE]
    for name, test, place in tests:
        if not any(VFS.rglob(f"samba/vfs/{module}.so") for module in MODULE.values()):
            report.missing(name, "Debian package samba-vfs-modules")
        else:
            report.check(name, test, folder, place)
