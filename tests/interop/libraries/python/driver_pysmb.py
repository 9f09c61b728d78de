"""pysmb, which carries out one operation for each line (libraries.py)."""
import driver
from smb.SMBConnection import SMBConnection

peer = None
share = None


def connect(port, name, user, password):
    global peer, share
    peer, share = SMBConnection(user, password, "tests", "127.0.0.1", use_ntlm_v2=True, is_direct_tcp=True), name
    if not peer.connect("127.0.0.1", int(port), timeout=30):
        raise RuntimeError("STATUS_LOGON_FAILURE, says the library")
    peer.listPath(share, "")


def put(name, local):
    with open(local, "rb") as file:
        peer.storeFile(share, name, file)


def append(name, local):
    with open(local, "rb") as file:
        peer.storeFileFromOffset(share, name, file, offset=peer.getAttributes(share, name).file_size)


def get(name, local):
    with open(local, "wb") as file:
        peer.retrieveFile(share, name, file)


def stat(name):
    found = peer.getAttributes(share, name)
    return f"{found.file_size}\t{int(found.last_write_time)}"


def listing(name, pattern):
    return "\t".join(found.filename for found in peer.listPath(share, name, pattern=pattern)
                     if found.filename not in (".", ".."))


driver.serve({
    "connect": connect, "put": put, "append": append, "get": get, "stat": stat, "list": listing,
    "shares": lambda: "\t".join(found.name for found in peer.listShares()),
    "mkdir": lambda name: peer.createDirectory(share, name),
    "rmdir": lambda name: peer.deleteDirectory(share, name),
    "delete": lambda name: peer.deleteFiles(share, name),
    "rename": lambda old, new: peer.rename(share, old, new),
    "security": lambda name: str(peer.getSecurity(share, name).owner),
})
