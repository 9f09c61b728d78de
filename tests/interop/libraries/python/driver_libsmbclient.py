"""libsmbclient by Debian's python3-smbc, which carries out one operation for each line (libraries.py)."""
import fnmatch
import os
import urllib.parse

import smbc

import driver

context = None
base = None


def url(name):
    return base + urllib.parse.quote(name.replace("\\", "/"))


def connect(port, share, user, password):
    global context, base
    context = smbc.Context(auth_fn=lambda *_: ("WORKGROUP", user, password))
    context.port = int(port)
    context.optionNoAutoAnonymousLogin = True
    base = f"smb://127.0.0.1/{share}/"
    context.opendir(base)


def shares():
    found = context.opendir("smb://127.0.0.1/").getdents()
    return "\t".join(one.name for one in found if one.smbc_type == smbc.FILE_SHARE)


def write(name, local, flags, at_the_end=False):
    file = context.open(url(name), flags, 0o644)
    if at_the_end:
        file.lseek(0, os.SEEK_END)
    with open(local, "rb") as data:
        while piece := data.read(1 << 16):
            file.write(piece)
    file.close()


def get(name, local):
    file = context.open(url(name), os.O_RDONLY)
    with open(local, "wb") as data:
        while piece := file.read(1 << 16):
            data.write(piece)
    file.close()


def listing(name, pattern):
    names = [one.name for one in context.opendir(url(name)).getdents() if one.name not in (".", "..")]
    return "\t".join(fnmatch.filter(names, pattern))


def stat(name):
    found = context.stat(url(name))
    return f"{found[6]}\t{found[8]}"


def truncate(name, size):
    file = context.open(url(name), os.O_RDWR)
    file.ftruncate(int(size))
    file.close()


driver.serve({
    "connect": connect, "shares": shares, "get": get, "list": listing, "stat": stat, "truncate": truncate,
    "put": lambda name, local: write(name, local, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "append": lambda name, local: write(name, local, os.O_RDWR, True),
    "mkdir": lambda name: context.mkdir(url(name), 0o755),
    "rmdir": lambda name: context.rmdir(url(name)),
    "delete": lambda name: context.unlink(url(name)),
    "rename": lambda old, new: context.rename(url(old), url(new)),
})
