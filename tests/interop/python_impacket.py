"""impacket (Python): every dialect that it supports (not 3.0.2), and the calls that its users make."""
import hashlib
import io
import os
import struct

from impacket import smb3structs as smb
from impacket.smb3 import SessionError as Smb3Error
from impacket.smbconnection import SMBConnection, SessionError

from holdfast import PASSWORD, USER
from material import ENTRIES, NAMES, digest, large_file
from report import expect
from tap import Tap

DIALECTS = {smb.SMB2_DIALECT_002: "2.0.2", smb.SMB2_DIALECT_21: "2.1", smb.SMB2_DIALECT_30: "3.0",
            smb.SMB2_DIALECT_311: "3.1.1"}
SHARE_ALL = smb.FILE_SHARE_READ | smb.FILE_SHARE_WRITE | smb.FILE_SHARE_DELETE
LOCK_NOT_GRANTED, FILE_LOCK_CONFLICT, LOGON_FAILURE = 0xC0000055, 0xC0000054, 0xC000006D


def connect(port, dialect, password=PASSWORD):
    peer = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=port, preferredDialect=dialect, timeout=30)
    peer.login(USER, password)
    return peer


def check(report, server, folder):
    for dialect, spoken in DIALECTS.items():
        report.check(f"impacket {spoken}", everything, server, folder, dialect)


def everything(server, folder, dialect):
    share = server.share_path("data")
    with Tap(server.port) as tap:
        try:
            connect(tap.port, dialect, "wrong")
            raise AssertionError("a wrong password was let in")
        except SessionError as refused:
            expect(refused.getErrorCode() == LOGON_FAILURE, f"refused with {refused}")
        peer = connect(tap.port, dialect)
        names = [entry["shi1_netname"][:-1] for entry in peer.listShares()]
        expect("data" in names and "IPC$" in names, f"shares: {names}")
        name = f"impacket-{DIALECTS[dialect]}"
        peer.createDirectory("data", name)
        transfer(peer, folder, share, name, dialect)
        for pattern, wanted in (("*", ENTRIES), ("entry00*", 100), ("ENTRY?0?9.*", 30)):
            found = [e.get_longname() for e in peer.listPath("data", rf"many\{pattern}")]
            found = [n for n in found if n not in (".", "..")]
            expect(len(set(found)) == len(found) == wanted, f"{pattern}: {len(found)} names")
        for text in NAMES:
            peer.putFile("data", rf"{name}\{text}", io.BytesIO(b"u").read)
            expect((share / name / text).read_bytes() == b"u", f"{text!r} is not on the disk")
        found = {e.get_longname() for e in peer.listPath("data", rf"{name}\*")}
        expect(set(NAMES) <= found, f"missing in the listing: {set(NAMES) - found}")
        facts(peer, name)
        other = connect(tap.port, dialect)
        locks(peer, other, name)
        other.close()
        for entry in peer.listPath("data", rf"{name}\*"):
            if entry.get_longname() not in (".", ".."):
                peer.deleteFile("data", rf"{name}\{entry.get_longname()}")
        peer.deleteDirectory("data", name)
        expect(not (share / name).exists(), "the directory is still there")
        peer.close()
        expect(tap.dialects == {DIALECTS[dialect]}, f"dialects on the wire: {tap.dialects}")


def transfer(peer, folder, share, name, dialect):
    path, hash = large_file(folder)
    if dialect == smb.SMB2_DIALECT_311:
        # impacket signs 3.1.1 always, and in Python: more than a second for each MiB.
        path = folder / "small.bin"
        path.write_bytes(os.urandom(2 << 20))
        hash = digest(path)
    with open(path, "rb") as file:
        peer.putFile("data", rf"{name}\large.bin", file.read)
    back = hashlib.sha256()
    peer.getFile("data", rf"{name}\large.bin", back.update)
    expect(back.hexdigest() == hash, "the file came back different")
    peer.rename("data", rf"{name}\large.bin", rf"{name}\renamed.bin")
    expect(hashlib.sha256((share / name / "renamed.bin").read_bytes()).hexdigest() == hash, "the disk differs")
    peer.putFile("data", rf"{name}\renamed.bin", io.BytesIO(b"overwritten").read)
    expect((share / name / "renamed.bin").read_bytes() == b"overwritten", "overwrite left something else")


def facts(peer, name):
    low, tree = peer.getSMBServer(), peer.connectTree("data")
    file = low.create(tree, rf"{name}\renamed.bin", 0x001F01FF, SHARE_ALL, smb.FILE_NON_DIRECTORY_FILE, smb.FILE_OPEN, 0)
    written = 125_000_000_000_000_000
    low.setInfo(tree, file, struct.pack("<QQQQII", 0, 0, written, 0, 0x22, 0), smb.SMB2_0_INFO_FILE, 4)
    basic = struct.unpack_from("<QQQQI", low.queryInfo(tree, file, fileInfoClass=4, infoType=smb.SMB2_0_INFO_FILE))
    expect(basic[2] == written and basic[4] == 0x22, f"times and attributes: {basic}")
    space = low.queryInfo(tree, file, fileInfoClass=3, infoType=smb.SMB2_0_INFO_FILESYSTEM)
    total, free = struct.unpack_from("<QQ", space)
    expect(0 < free <= total, f"space: {free} of {total}")
    low.flush(tree, file)
    low.close(tree, file)
    peer.disconnectTree(tree)


def locks(one, two, name):
    first, second = Locked(one, name, smb.FILE_CREATE), Locked(two, name, smb.FILE_OPEN)
    first.low.write(first.tree, first.file, bytes(200), 0, 200)
    first.lock(0, 100, 2 | 0x10)
    refused(LOCK_NOT_GRANTED, second.lock, 50, 100, 2 | 0x10)
    refused(FILE_LOCK_CONFLICT, second.low.write, second.tree, second.file, b"x", 99, 1)
    first.lock(0, 100, 4)
    second.lock(50, 100, 2 | 0x10)
    second.done()
    first.done()


class Locked:
    def __init__(self, peer, name, disposition):
        self.peer, self.low, self.tree = peer, peer.getSMBServer(), peer.connectTree("data")
        self.file = self.low.create(self.tree, rf"{name}\locked", 0x001F01FF, SHARE_ALL,
                                    smb.FILE_NON_DIRECTORY_FILE, disposition, 0)

    def lock(self, offset, length, flags):
        # SMB3.lock() of impacket 0.13 puts str() of an element on the wire: the packet is made here.
        packet = self.low.SMB_PACKET()
        packet["Command"], packet["TreeID"] = smb.SMB2_LOCK, self.tree
        body = smb.SMB2Lock()
        body["FileID"], body["LockCount"] = self.file, 1
        body["Locks"] = struct.pack("<QQII", offset, length, flags, 0)
        packet["Data"] = body
        self.low.recvSMB(self.low.sendSMB(packet)).isValidAnswer(0)

    def done(self):
        self.low.close(self.tree, self.file)
        self.peer.disconnectTree(self.tree)


def refused(status, call, *arguments):
    try:
        call(*arguments)
    except (Smb3Error, SessionError) as error:
        code = error.get_error_code() if hasattr(error, "get_error_code") else error.getErrorCode()
        expect(code == status, f"refused with {code:#x}, not {status:#x}")
        return
    raise AssertionError(f"status {status:#x} was due")
