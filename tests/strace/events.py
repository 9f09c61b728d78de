"""Runs every event of the table once; lists the system calls that must have ended before its answer.

A line of EVENTS is a name, the calls under `honor` and those under `strict-sync`, in order. Under the
other two policies there are none before the answer, except for a full sync, which is as under `honor`.

    F path   fsync         W path   pwritev2 with RWF_DSYNC
    D path   fdatasync     -        nothing

With `flush_times = false`, which Cheap is about, FLUSH makes data and size alone stable.

Paths are those in the share ("." is the share); "depot" is a folder of the depot, "depot file" what
it keeps of a stream. A call that is repeated at once stands once.
"""
import os
import struct
import subprocess

from smbprotocol.file_info import FileInformationClass as Class
from smbprotocol.ioctl import IOCTLFlags, SMB2IOCTLRequest, SMB2IOCTLResponse
from smbprotocol.open import CreateDisposition, CreateOptions, SMB2FlushRequest, SMB2SetInfoRequest

CREATE, OPEN, OVERWRITE = CreateDisposition.FILE_CREATE, CreateDisposition.FILE_OPEN, CreateDisposition.FILE_OVERWRITE
PLAIN, DIRECTORY = CreateOptions.FILE_NON_DIRECTORY_FILE, CreateOptions.FILE_DIRECTORY_FILE
THROUGH, DELETE = CreateOptions.FILE_WRITE_THROUGH, CreateOptions.FILE_DELETE_ON_CLOSE
RESUME_KEY, COPYCHUNK, SET_ZERO_DATA, SET_SPARSE = 0x00140078, 0x001440F2, 0x000980C8, 0x000900C4
DUPLICATE_EXTENTS = 0x00098344
INFO_FILE, INFO_SECURITY, DACL = 1, 3, 4
FULL_SYNC = 0xFFFF
FULL = "full sync"
HOST = "treat-host-as-stable-storage"
DEPOT = "F depot file, F depot, F f"

EVENTS = [
    # Names of a new file and of the directories above it.
    ("mkdir", "-", "F a, F ."),
    ("create", "-", "F a/f, F a"),
    ("write", "-", "F a/f"),
    ("flush of a new file", "F a/f, F a, F .", "F a/f"),
    ("flush of a clean file", "F a/f", "F a/f"),
    # Data.
    ("overwrite", "-", "F a/f"),
    ("flush after an overwrite", "F a/f", "F a/f"),
    ("write-through", "W a/f", "F a/f"),
    ("flush after a write-through", "F a/f", "F a/f"),
    ("unbuffered write", "W a/f", "F a/f"),
    ("write of a write-through open", "W a/f", "F a/f"),
    ("end of file of a write-through open", "F a/f", "F a/f"),
    ("times of a write-through open", "F a/f", "F a/f"),
    ("end of file", "-", "F a/f"),
    ("flush after end of file", "F a/f", "F a/f"),
    ("allocation", "-", "F a/f"),
    ("zero data", "-", "F a/f"),
    ("copychunk of 16 pieces", "-", "F a/f"),
    ("flush after copychunk", "F a/f", "F a/f"),
    ("copychunk to a write-through open", "F a/f", "F a/f"),
    ("overwriting create", "-", "F a/f"),
    # Metadata.
    ("attributes", "-", "F a/f"),
    ("times", "-", "F a/f"),
    ("extended attributes", "-", "F a/f"),
    ("security descriptor", "-", "F a/f"),
    ("sparse", "-", "F a/f"),
    ("write under frozen times", "-", "F a/f"),
    ("flush after frozen times", "F a/f", "F a/f"),
    ("write and attributes", "-", "F a/f"),
    ("flush after data and attributes", "F a/f", "F a/f"),
    ("full sync", "F a/f", "F a/f"),
    # Names that move: the new directory before the old one.
    ("rename in the directory", "-", "F a/g, F a"),
    ("flush after it", "F a/g, F a", "F a/g"),
    ("rename to another directory", "-", "F g, F ., F a"),
    ("full sync after it", "F g, F ., F a", "F g"),
    ("rename over another", "-", "F f, F ."),
    ("flush after a replacing rename", "F f, F .", "F f"),
    ("link", "-", "F f, F a"),
    ("flush after a link", "F f, F a", "F f"),
    ("rename to a link of its own in another case", "-", "F here, F a, F ."),
    ("rename of a write-through open", "F a/f, F a, F .", "F a/f, F a, F ."),
    ("close", "-", "-"),
    # Directories.
    ("mkdir again", "-", "F b, F ."),
    ("flush of a new directory", "F b, F .", "F b"),
    ("delete", "-", "F a"),
    ("flush of the directory", "F a, F .", "F a, F ."),
    ("rmdir", "-", "F ."),
    ("delete of a write-through open", "F .", "F ."),
    # Streams: in an attribute of the file, and in the depot. The file was opened anew.
    ("create a stream", "-", "F f, F ."),
    ("write a stream", "-", "F f"),
    ("flush a stream", "F f, F .", "F f"),
    ("write-through to a stream", "F f", "F f"),
    ("end of file of a stream", "-", "F f"),
    ("delete a stream", "-", "F f"),
    ("flush after the stream is deleted", "F f", "F f"),
    ("write a large stream", None, None),
    ("flush a large stream", DEPOT, DEPOT),
    ("write-through to a large stream", DEPOT, DEPOT),
    ("flush of its file", DEPOT, DEPOT),
    # Names that somebody else on the host made or moved.
    ("flush of what the host made", "F made, F .", "F made"),
    ("flush of it again", "F made", "F made"),
    ("flush of what the host moved", "F moved, F .", "F moved"),
    ("flush of what the host moved while it was open", "F there, F .", "F there"),
    # The share.
    ("changes here and there", None, None),
    ("flush of the root", "all", "F ."),
    ("full sync of the root", "all", "F ."),
    ("write before the stop", "-", DEPOT),
]


# Under a policy that has not synced anything before, a full sync needs more calls.
FULL_LATE = {"full sync": "F a/f, F a, F ."}
# Between two directories, where the file system may keep half of a rename: on disk before the answer.
HALVED = {"rename to another directory", "rename to a link of its own in another case",
          "rename of a write-through open", "full sync after it"}
# There, too: the rename before is on disk before the next, and the other names before one of several goes.
BEFORE = {("bounded", "rename to a link of its own in another case"): "F here, F ., F a, F here, F a, F .",
          (HOST, "rename to a link of its own in another case"): "F here, F ., F a",
          (HOST, "rename of a write-through open"): "F f, F ., F a",
          (HOST, "delete"): "F f, F ., F a"}


def renames_are_atomic(path):
    """Whether the file system keeps a rename whole over a power cut, as the server judges it."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip()
    if kind != "ext2/ext3":
        return kind in ("xfs", "btrfs")
    device = os.stat(path).st_dev
    link = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    return os.path.exists(f"/proc/fs/jbd2/{os.path.basename(os.path.realpath(link))}-8")


def wanted(event, policy, atomic):
    """The calls due before the answer; None: not said; "all": every inode that was changed."""
    name, honor, strict = event
    if policy == "strict-sync":
        return strict
    if not atomic and (policy, name) in BEFORE:
        return BEFORE[policy, name]
    if not atomic and name in HALVED and policy in ("honor", "bounded"):
        return strict
    if policy == "honor":
        return honor
    if name.startswith(FULL):
        return FULL_LATE.get(name, honor)
    return None if honor is None else "-"


def shown(syncs, share):
    """Formats calls as in EVENTS."""
    letters = {"fsync": "F", "fdatasync": "D", "pwritev2": "W"}
    said = [f"{letters.get(sync.name, sync.name)} {place(sync.path, share)}" for sync in syncs]
    return [call for at, call in enumerate(said) if not at or said[at - 1] != call]


def place(path, share):
    inside = path.removesuffix(" (deleted)").removeprefix(share).strip("/")
    if inside.startswith(".streams"):
        return "depot file" if "/:" in inside else "depot"
    return inside or "."


class Steps:
    """Executes the events in order, each on the result of the ones before."""

    def __init__(self, peer, root=None):
        self.peer = peer
        self.root = root
        self.handle = {}

    def run(self, name):
        getattr(self, name.replace(" ", "_").replace("-", "_").replace(",", ""))()

    # -- tools

    def open(self, name, disposition=OPEN, options=PLAIN):
        return self.peer.open(name, disposition, options)

    def flush(self, handle, reserved=0):
        message = SMB2FlushRequest()
        message["file_id"], message["reserved1"] = handle.file_id, reserved
        self.peer.ask(message)

    def ioctl(self, handle, code, data, size=64):
        message, response = SMB2IOCTLRequest(), SMB2IOCTLResponse()
        for structure in message, response:
            # smbprotocol does not know every code there is.
            structure.fields["ctl_code"].enum_strict = False
        message["ctl_code"], message["file_id"], message["buffer"] = code, handle.file_id, data
        message["max_output_response"], message["flags"] = size, IOCTLFlags.SMB2_0_IOCTL_IS_FSCTL
        response.unpack(self.peer.ask(message)["data"].get_value())
        return response["buffer"].get_value()

    def basic(self, handle, when=0, attributes=0):
        self.peer.set(handle, Class.FILE_BASIC_INFORMATION,
                      struct.pack("<QQQQII", when, when, when, when, attributes, 0))

    def end(self, handle, size):
        self.peer.set(handle, Class.FILE_END_OF_FILE_INFORMATION, struct.pack("<Q", size))

    def target(self, handle, to, replace=False, level=Class.FILE_RENAME_INFORMATION):
        name = to.encode("utf-16-le")
        self.peer.set(handle, level, (struct.pack("<B7xQI", replace, 0, len(name)) + name).ljust(24, b"\0"))

    def copy(self, target):
        key = self.ioctl(self.handle["source"], RESUME_KEY, b"")[:24]
        chunks = b"".join(struct.pack("<QQII", at * 4096, (15 - at) * 8192, 4096, 0) for at in range(16))
        self.ioctl(target, COPYCHUNK, key + struct.pack("<II", 16, 0) + chunks)

    # -- names of a new file

    def mkdir(self):
        self.open("a", CREATE, DIRECTORY).close()

    def create(self):
        self.handle["f"] = self.open(r"a\f", CREATE)

    def write(self):
        self.handle["f"].write(bytes(65536), 0)

    def flush_of_a_new_file(self):
        self.flush(self.handle["f"])

    flush_of_a_clean_file = flush_after_an_overwrite = flush_after_end_of_file = flush_of_a_new_file
    flush_after_a_write_through = flush_of_a_new_file
    flush_after_copychunk = flush_after_data_and_attributes = flush_after_it = flush_of_a_new_file
    flush_after_a_replacing_rename = flush_after_a_link = flush_after_frozen_times = flush_of_a_new_file

    # -- data

    def overwrite(self):
        self.handle["f"].write(b"again", 100)

    def write_through(self):
        self.handle["f"].write(b"through", 100, write_through=True)

    def unbuffered_write(self):
        self.handle["f"].write(b"unbuffered", 100, unbuffered=True)

    def before_write_of_a_write_through_open(self):
        self.handle["through"] = self.open(r"a\f", OPEN, PLAIN | THROUGH)

    def write_of_a_write_through_open(self):
        self.handle["through"].write(b"through", 0)

    def end_of_file_of_a_write_through_open(self):
        self.end(self.handle["through"], 40000)

    def times_of_a_write_through_open(self):
        self.basic(self.handle["through"], 125_000_000_000_000_000)

    def end_of_file(self):
        self.end(self.handle["f"], 50000)

    def allocation(self):
        self.peer.set(self.handle["f"], Class.FILE_ALLOCATION_INFORMATION, struct.pack("<Q", 8192))

    def zero_data(self):
        self.ioctl(self.handle["f"], SET_ZERO_DATA, struct.pack("<QQ", 100, 5000))

    def before_copychunk_of_16_pieces(self):
        # This one has frozen times, which every change through it puts back.
        self.handle["through"].close()
        self.handle["through"] = self.open(r"a\f", OPEN, PLAIN | THROUGH)
        self.handle["source"] = self.open("source", CREATE)
        self.handle["source"].write(bytes(range(256)) * 256, 0)
        self.flush(self.handle["f"])

    def copychunk_of_16_pieces(self):
        self.copy(self.handle["f"])

    def copychunk_to_a_write_through_open(self):
        self.copy(self.handle["through"])

    def overwriting_create(self):
        self.open(r"a\f", OVERWRITE).close()

    # -- metadata

    def attributes(self):
        self.basic(self.handle["f"], 0, 0x22)

    def times(self):
        self.basic(self.handle["f"], 125_000_000_000_000_000)

    def extended_attributes(self):
        self.peer.set(self.handle["f"], Class.FILE_FULL_EA_INFORMATION, struct.pack("<IBBH", 0, 0, 3, 5) + b"ONE\0value")

    def security_descriptor(self):
        everybody = struct.pack("<BBHIII", 1, 0, 0x8004, 0, 0, 0) + struct.pack("<I", 20) \
            + struct.pack("<BBHHHBBHI", 2, 0, 28, 1, 0, 0, 0, 20, 0x001F01FF) + b"\1\1\0\0\0\0\0\1\0\0\0\0"
        message = SMB2SetInfoRequest()
        message["info_type"], message["additional_information"] = INFO_SECURITY, DACL
        message["file_id"], message["buffer"] = self.handle["f"].file_id, everybody
        self.peer.ask(message)

    def sparse(self):
        self.ioctl(self.handle["f"], SET_SPARSE, b"\1")

    def before_write_under_frozen_times(self):
        self.flush(self.handle["f"])

    def write_under_frozen_times(self):
        # The handle has set its times: the write puts them back, which is metadata.
        self.handle["f"].write(b"frozen", 0)

    def write_and_attributes(self):
        self.handle["f"].write(b"both", 0)
        self.basic(self.handle["f"], 0, 0x26)

    def full_sync(self):
        self.flush(self.handle["f"], FULL_SYNC)

    full_sync_after_it = full_sync

    # -- names that move

    def rename_in_the_directory(self):
        self.target(self.handle["f"], r"a\g")

    def rename_to_another_directory(self):
        self.target(self.handle["f"], "g")

    def before_rename_over_another(self):
        self.open("f", CREATE).close()

    def rename_over_another(self):
        self.target(self.handle["f"], "f", True)

    def link(self):
        self.target(self.handle["f"], r"a\link", level=Class.FILE_LINK_INFORMATION)

    def before_rename_to_a_link_of_its_own_in_another_case(self):
        for name in "here", r"a\there":
            self.target(self.handle["f"], name, level=Class.FILE_LINK_INFORMATION)
        self.handle["here"] = self.open("here")
        self.flush(self.handle["here"])

    def rename_to_a_link_of_its_own_in_another_case(self):
        # The old name goes, and the other one is another name.
        self.target(self.handle["here"], r"a\THERE", True)

    def before_rename_of_a_write_through_open(self):
        self.handle["here"].close()
        self.open(r"a\THERE", OPEN, PLAIN | DELETE).close()
        self.target(self.handle["f"], r"a\f")
        self.flush(self.handle["f"])
        self.target(self.handle["f"], "f")
        self.target(self.handle["f"], r"a\f")
        self.target(self.handle["f"], "f")
        self.flush(self.handle["f"])

    def rename_of_a_write_through_open(self):
        self.target(self.handle["through"], r"a\f")

    def close(self):
        self.handle["through"].close()

    # -- directories

    def mkdir_again(self):
        self.handle["b"] = self.open("b", CREATE, DIRECTORY)

    def flush_of_a_new_directory(self):
        self.flush(self.handle["b"])

    def before_delete(self):
        self.target(self.handle["f"], "f")
        self.flush(self.handle["f"])
        self.handle["a"] = self.open("a", OPEN, DIRECTORY)
        self.handle["doomed"] = self.open(r"a\link", OPEN, PLAIN | DELETE)

    def delete(self):
        self.handle["doomed"].close()

    def flush_of_the_directory(self):
        self.flush(self.handle["a"])

    def before_rmdir(self):
        self.handle["b"].close()
        self.handle["b"] = self.open("b", OPEN, DIRECTORY | DELETE)

    def rmdir(self):
        self.handle["b"].close()

    def before_delete_of_a_write_through_open(self):
        self.handle["doomed"] = self.open("gone", CREATE, PLAIN)
        self.handle["doomed"].close()
        self.handle["doomed"] = self.open("gone", OPEN, PLAIN | DELETE | THROUGH)

    delete_of_a_write_through_open = delete

    # -- streams

    def before_create_a_stream(self):
        self.handle["f"].close()
        self.handle["f"] = self.open("f", OPEN)

    def create_a_stream(self):
        self.handle["s"] = self.open("f:small", CREATE)

    def write_a_stream(self):
        self.handle["s"].write(b"in an attribute", 0)

    def flush_a_stream(self):
        self.flush(self.handle["s"])

    def write_through_to_a_stream(self):
        self.handle["s"].write(b"through", 0, write_through=True)

    def end_of_file_of_a_stream(self):
        self.end(self.handle["s"], 3)

    def before_delete_a_stream(self):
        self.handle["s"].close()
        self.handle["s"] = self.open("f:small", OPEN, PLAIN | DELETE)

    def delete_a_stream(self):
        self.handle["s"].close()

    flush_after_the_stream_is_deleted = flush_of_a_new_file

    def write_a_large_stream(self):
        from smbprotocol.tree import TreeConnect
        self.data, self.peer.tree = self.peer.tree, TreeConnect(self.peer.session, r"\\127.0.0.1\depot")
        self.peer.tree.connect(require_secure_negotiate=False)
        self.handle["s"] = self.open("f:large", CREATE)
        self.handle["s"].write(bytes(5000), 0)

    flush_a_large_stream, write_through_to_a_large_stream = flush_a_stream, write_through_to_a_stream

    def before_flush_of_its_file(self):
        self.peer.tree = self.data

    flush_of_its_file = flush_of_a_new_file

    # -- what the host did

    def before_flush_of_what_the_host_made(self):
        (self.root / "made").write_bytes(b"by the host")
        (self.root / "made").chmod(0o666)
        self.handle["made"] = self.open("made", OPEN)
        self.handle["made"].write(b"by a client", 0)

    def flush_of_what_the_host_made(self):
        self.flush(self.handle["made"])

    flush_of_it_again = flush_of_what_the_host_made
    flush_of_what_the_host_moved = flush_of_what_the_host_moved_while_it_was_open = flush_of_what_the_host_made

    def before_flush_of_what_the_host_moved(self):
        self.handle["made"].close()
        (self.root / "made").rename(self.root / "moved")
        self.handle["made"] = self.open("moved", OPEN)
        self.handle["made"].write(b"again", 0)

    def before_flush_of_what_the_host_moved_while_it_was_open(self):
        (self.root / "moved").rename(self.root / "there")
        self.handle["made"].write(b"once more", 0)

    # -- the share

    def changes_here_and_there(self):
        self.handle["f"].write(b"changed", 0)
        for name in "one", "two":
            self.open(name, CREATE, DIRECTORY).close()
            self.open(rf"{name}\new", CREATE).close()
        self.handle["root"] = self.open("", OPEN, DIRECTORY)

    def flush_of_the_root(self):
        self.flush(self.handle["root"])

    def before_full_sync_of_the_root(self):
        for name in "one", "two":
            self.target(self.open(rf"{name}\new", OPEN), rf"{name}\moved")
        self.handle["f"].write(b"changed", 0)

    def full_sync_of_the_root(self):
        self.flush(self.handle["root"], FULL_SYNC)

    def write_before_the_stop(self):
        self.handle["f"].write(b"left", 0)


class Cheap:
    """A share with flush_times = false."""

    EVENTS = [
        ("flush of a new file", "F f, F ."),
        ("flush after an overwrite", "D f"),
        ("flush after end of file", "D f"),
        ("write-through", "W f"),
        ("flush after write-through", "D f"),
        ("flush after attributes", "F f"),
        ("flush after a rename", "F g, F ."),
        ("write-through end of file", "F g"),
        ("flush after the host moved it", "F h, F ."),
        ("flush after that and an overwrite", "D h"),
    ]

    def __init__(self, peer, root):
        self.steps = Steps(peer, root)
        self.file = self.steps.open("f", CREATE)
        self.through = None

    def prepare(self, name):
        if name == "flush after attributes":
            self.steps.basic(self.file, 0, 0x22)
        elif name == "flush after end of file":
            self.steps.end(self.file, 5000)
        elif name == "flush after a rename":
            self.steps.target(self.file, "g")
        elif name == "write-through end of file":
            self.through = self.steps.open("g", OPEN, PLAIN | THROUGH)
        elif name == "flush after the host moved it":
            (self.steps.root / "g").rename(self.steps.root / "h")
        if name not in ("write-through", "flush after write-through"):
            self.file.write(b"data", 0)

    def run(self, name):
        if name == "write-through":
            return self.file.write(b"through", 0, write_through=True)
        if name == "write-through end of file":
            return self.steps.end(self.through, 6000)
        return self.steps.flush(self.file)


class Clones:
    """FSCTL_DUPLICATE_EXTENTS_TO_FILE, on a file system that supports it."""

    EVENTS = [
        ("duplicate extents", "-", "F target"),
        ("flush after it", "F target", "F target"),
        ("duplicate extents through a write-through open", "F target", "F target"),
    ]

    def __init__(self, peer):
        self.steps = Steps(peer)
        self.source = self.steps.open("source", CREATE)
        self.target = self.steps.open("target", CREATE)
        for file in self.source, self.target:
            file.write(bytes(65536), 0)
            self.steps.flush(file)
        self.through = self.steps.open("target", OPEN, PLAIN | THROUGH)

    def run(self, name):
        if name.startswith("flush"):
            return self.steps.flush(self.target)
        target = self.through if "through" in name else self.target
        self.steps.ioctl(target, DUPLICATE_EXTENTS, self.source.file_id + struct.pack("<QQQ", 0, 16384, 32768))


# The inodes that a flush of the share's root must sync, in any order.
EVERYTHING = {
    "flush of the root": {"F f", "F one/new", "F two/new", "F one", "F two", "F ."},
    "full sync of the root": {"F f", "F one/moved", "F two/moved", "F one", "F two", "F ."},
}
