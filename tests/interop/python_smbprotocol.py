"""smbprotocol (Python): every dialect, encryption, each cipher and signing algorithm; locks between
two connections, flush, times, attributes, space."""
import hashlib
import struct
import uuid

from smbprotocol.connection import Ciphers, Connection, Dialects, SigningAlgorithms
from smbprotocol.exceptions import LogonFailure, SMBResponseException
from smbprotocol.file_info import FileInformationClass
from smbprotocol.open import (CreateDisposition, CreateOptions, FileAttributes, FilePipePrinterAccessMask,
                              ImpersonationLevel, LockFlags, Open, QueryDirectoryFlags, ShareAccess,
                              SMB2LockElement, SMB2LockRequest, SMB2QueryInfoRequest, SMB2QueryInfoResponse,
                              SMB2SetInfoRequest)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from holdfast import PASSWORD, USER
from material import ENTRIES, LARGE, NAMES, large_file
from report import expect
from srvsvc import shares_over
from tap import Tap

DIALECTS = {Dialects.SMB_2_0_2: "2.0.2", Dialects.SMB_2_1_0: "2.1", Dialects.SMB_3_0_0: "3.0",
            Dialects.SMB_3_0_2: "3.0.2", Dialects.SMB_3_1_1: "3.1.1"}
FULL = 0x001F01FF
SHARE_ALL = ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE
INFO_FILE, INFO_FILESYSTEM = 1, 2
PIPE_TRANSCEIVE = 0x0011C017
FILE_LOCK_CONFLICT, LOCK_NOT_GRANTED = 0xC0000054, 0xC0000055


class Peer:
    """A connection, a session and a tree."""

    def __init__(self, port, dialect=None, encrypt=False, password=PASSWORD, share="data", user=USER, **algorithms):
        self.connection = Connection(uuid.uuid4(), "127.0.0.1", port, require_signing=True)
        self.connection.connect(dialect, timeout=30, **algorithms)
        try:
            self.session = Session(self.connection, user, password, require_encryption=encrypt, auth_protocol="ntlm")
            self.session.connect()
            self.tree = TreeConnect(self.session, rf"\\127.0.0.1\{share}")
            self.tree.connect(require_secure_negotiate=True)
        except BaseException:
            self.connection.disconnect()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.disconnect()

    def open(self, name, disposition=CreateDisposition.FILE_OPEN_IF, options=CreateOptions.FILE_NON_DIRECTORY_FILE,
             access=FULL):
        handle = Open(self.tree, name)
        handle.create(ImpersonationLevel.Impersonation, access, FileAttributes.FILE_ATTRIBUTE_NORMAL, SHARE_ALL,
                      disposition, options)
        return handle

    def ask(self, message):
        request = self.connection.send(message, sid=self.session.session_id, tid=self.tree.tree_connect_id)
        return self.connection.receive(request)

    def query(self, handle, kind, level, size=4096):
        message = SMB2QueryInfoRequest()
        message["info_type"], message["file_info_class"] = kind, level
        message["output_buffer_length"], message["file_id"] = size, handle.file_id
        response = SMB2QueryInfoResponse()
        response.unpack(self.ask(message)["data"].get_value())
        return response["buffer"].get_value()

    def set(self, handle, level, data):
        message = SMB2SetInfoRequest()
        message["info_type"], message["file_info_class"] = INFO_FILE, level
        message["file_id"], message["buffer"] = handle.file_id, data
        self.ask(message)

    def lock(self, handle, offset, length, flags):
        element = SMB2LockElement()
        element["offset"], element["length"], element["flags"] = offset, length, flags
        message = SMB2LockRequest()
        message["file_id"], message["locks"] = handle.file_id, [element]
        self.ask(message)


def check(report, server, folder):
    for dialect, spoken in DIALECTS.items():
        report.check(f"smbprotocol {spoken} signed", everything, server, folder, dialect, False)
        if not spoken.startswith("2"):
            report.check(f"smbprotocol {spoken} encrypted", everything, server, folder, dialect, True)
    for name in ("AES_128_CCM", "AES_128_GCM", "AES_256_CCM", "AES_256_GCM"):
        report.check(f"smbprotocol cipher {name}", forced, server, True,
                     {"preferred_encryption_algos": [getattr(Ciphers, name)]}, name.replace("_", "-"))
    for name, said in (("HMAC_SHA256", "HMAC-SHA256"), ("AES_CMAC", "AES-128-CMAC"), ("AES_GMAC", "AES-128-GMAC")):
        report.check(f"smbprotocol signing {name}", forced, server, False,
                     {"preferred_signing_algos": [getattr(SigningAlgorithms, name)]}, said)


def everything(server, folder, dialect, encrypt):
    with Tap(server.port) as tap:
        try:
            Peer(tap.port, dialect, encrypt, password="wrong").__exit__()
            raise AssertionError("a wrong password was let in")
        except LogonFailure:
            pass
        with Peer(tap.port, dialect, encrypt, share="IPC$") as peer:
            pipe = peer.open("srvsvc", CreateDisposition.FILE_OPEN, 0, 0x12019F)
            names = shares_over(lambda data: transceive(pipe, data))
            expect("data" in names, f"shares: {names}")
        with Peer(tap.port, dialect, encrypt) as peer:
            name = f"protocol-{DIALECTS[dialect]}-{encrypt}"
            peer.open(name, CreateDisposition.FILE_CREATE, CreateOptions.FILE_DIRECTORY_FILE).close()
            transfer(server, folder, peer, name)
            listings(peer)
            odd_names(server, peer, name)
            facts(peer, name)
            with Peer(tap.port, dialect, encrypt) as other:
                locks(peer, other, name)
            remove(peer, name)
            expect(not (server.share_path("data") / name).exists(), "the directory is still there")
        expect(tap.dialects == {DIALECTS[dialect]}, f"dialects on the wire: {tap.dialects}")
        expect(tap.plain == 0, f"requests neither signed nor sealed: {tap.plain_commands}")
        expect((tap.sealed > 50) == encrypt, f"sealed {tap.sealed}, signed {tap.signed}")


def transceive(pipe, data):
    from smbprotocol.ioctl import IOCTLFlags, SMB2IOCTLRequest, SMB2IOCTLResponse
    message = SMB2IOCTLRequest()
    message["ctl_code"], message["file_id"] = PIPE_TRANSCEIVE, pipe.file_id
    message["max_output_response"], message["buffer"] = 65536, data
    message["flags"] = IOCTLFlags.SMB2_0_IOCTL_IS_FSCTL
    connection, tree = pipe.connection, pipe.tree_connect
    request = connection.send(message, sid=tree.session.session_id, tid=tree.tree_connect_id)
    response = SMB2IOCTLResponse()
    response.unpack(connection.receive(request)["data"].get_value())
    return response["buffer"].get_value()


def transfer(server, folder, peer, name):
    path, hash = large_file(folder)
    data = path.read_bytes()
    file = peer.open(rf"{name}\large.bin")
    step = min(peer.connection.max_write_size, peer.connection.max_read_size, 1 << 20)
    for at in range(0, LARGE, step):
        file.write(data[at:at + step], at)
    file.flush()
    back = hashlib.sha256()
    for at in range(0, LARGE, step):
        back.update(file.read(at, step))
    expect(back.hexdigest() == hash, "64 MiB came back different")
    target = rf"{name}\renamed.bin".encode("utf-16-le")
    peer.set(file, FileInformationClass.FILE_RENAME_INFORMATION,
             struct.pack("<B7xQI", 0, 0, len(target)) + target)
    file.close()
    on_disk = server.share_path("data") / name / "renamed.bin"
    expect(hashlib.sha256(on_disk.read_bytes()).hexdigest() == hash, "the disk has something else")
    again = peer.open(rf"{name}\renamed.bin", CreateDisposition.FILE_OVERWRITE)
    again.write(b"overwritten", 0)
    again.close()
    expect(on_disk.read_bytes() == b"overwritten", "overwrite left something else")


def listing(peer, folder, pattern):
    handle = peer.open(folder, CreateDisposition.FILE_OPEN, CreateOptions.FILE_DIRECTORY_FILE, 0x00100081)
    names, flags = [], QueryDirectoryFlags.SMB2_RESTART_SCANS
    while True:
        try:
            entries = handle.query_directory(pattern, FileInformationClass.FILE_ID_BOTH_DIRECTORY_INFORMATION,
                                             flags, max_output=65536)
        except SMBResponseException as end:
            expect(end.status in (0x80000006, 0xC000000F), f"listing ended with {end.status:#x}")
            break
        names += [entry["file_name"].get_value().decode("utf-16-le") for entry in entries]
        flags = 0
    handle.close()
    return [name for name in names if name not in (".", "..")]


def listings(peer):
    for pattern, wanted in (("*", ENTRIES), ("entry00*", 100), ("ENTRY?0?9.*", 30), ("*.none", 0)):
        names = listing(peer, "many", pattern)
        expect(len(names) == len(set(names)) == wanted, f"{pattern}: {len(names)} names, not {wanted}")


def odd_names(server, peer, name):
    for text in NAMES:
        handle = peer.open(rf"{name}\{text}", CreateDisposition.FILE_CREATE)
        handle.close()
        expect((server.share_path("data") / name / text).exists(), f"{text!r} is not on the disk")
    got = set(listing(peer, name, "*"))
    expect(set(NAMES) <= got, f"missing in the listing: {set(NAMES) - got}")


def facts(peer, name):
    file = peer.open(rf"{name}\renamed.bin", CreateDisposition.FILE_OPEN)
    created, accessed, written, changed = (125_000_000_000_000_000 + n * 10_000_000 for n in range(4))
    peer.set(file, FileInformationClass.FILE_BASIC_INFORMATION,
             struct.pack("<QQQQII", created, accessed, written, changed, 0x23, 0))
    basic = struct.unpack_from("<QQQQI", peer.query(file, INFO_FILE, FileInformationClass.FILE_BASIC_INFORMATION))
    expect(basic[0] == created and basic[2] == written, f"times: {basic}, set {created} {written}")
    expect(basic[4] == 0x23, f"attributes: {basic[4]:#x}")
    peer.set(file, FileInformationClass.FILE_BASIC_INFORMATION, struct.pack("<QQQQII", 0, 0, 0, 0, 0x80, 0))
    peer.set(file, FileInformationClass.FILE_END_OF_FILE_INFORMATION, struct.pack("<Q", 4))
    _, size = struct.unpack_from("<QQ", peer.query(file, INFO_FILE, FileInformationClass.FILE_STANDARD_INFORMATION))
    expect(size == 4, f"end of file: {size}")
    total, free = struct.unpack_from("<QQ", peer.query(file, INFO_FILESYSTEM, 3))
    expect(0 < free <= total, f"space: {free} of {total}")
    file.flush()
    file.close()


def locks(one, two, name):
    exclusive = LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK | LockFlags.SMB2_LOCKFLAG_FAIL_IMMEDIATELY
    mine = one.open(rf"{name}\locked", CreateDisposition.FILE_CREATE)
    theirs = two.open(rf"{name}\locked", CreateDisposition.FILE_OPEN)
    mine.write(bytes(200), 0)
    one.lock(mine, 0, 100, exclusive)
    fails(LOCK_NOT_GRANTED, two.lock, theirs, 50, 100, exclusive)
    fails(FILE_LOCK_CONFLICT, theirs.write, b"x", 99)
    fails(FILE_LOCK_CONFLICT, theirs.read, 0, 10)
    theirs.write(b"x", 100)
    one.lock(mine, 0, 100, LockFlags.SMB2_LOCKFLAG_UNLOCK)
    two.lock(theirs, 50, 100, exclusive)
    fails(FILE_LOCK_CONFLICT, mine.write, b"x", 60)
    theirs.close()
    mine.write(b"x", 60)
    mine.close()


def fails(status, call, *arguments):
    try:
        call(*arguments)
    except SMBResponseException as error:
        expect(error.status == status, f"status {error.status:#x}, {status:#x} was due")
        return
    raise AssertionError(f"status {status:#x} was due")


def remove(peer, name):
    for entry in listing(peer, name, "*"):
        peer.open(rf"{name}\{entry}", CreateDisposition.FILE_OPEN,
                  CreateOptions.FILE_NON_DIRECTORY_FILE | CreateOptions.FILE_DELETE_ON_CLOSE).close()
    peer.open(name, CreateDisposition.FILE_OPEN,
              CreateOptions.FILE_DIRECTORY_FILE | CreateOptions.FILE_DELETE_ON_CLOSE).close()


def forced(server, encrypt, algorithms, name):
    with Tap(server.port) as tap:
        with Peer(tap.port, Dialects.SMB_3_1_1, encrypt, **algorithms) as peer:
            file = peer.open("forced.bin")
            data = bytes(range(256)) * 4096
            file.write(data, 0)
            expect(file.read(0, len(data)) == data, "came back different")
            file.close()
        seen = tap.ciphers if encrypt else tap.signers
        expect(seen == {name}, f"on the wire: {seen}")
