#!/usr/bin/env python3
"""Why names on btrfs need a commit (vfs/src/linux/removed.rs), without any server.

Replays log_tree.calls by plain system calls on a new btrfs on a loop device, takes the device's
contents as a power cut after the last call leaves them, mounts them and looks for /c1/r2000012.
That name was replaced, then renamed away; its file and both directories were synced afterwards.

Prints what is found when nothing but fsync is called, and when directories are synced as the
server does. Fails if the second finds the name. On a kernel where the first does not find it
either, the remedy may not be needed any more. Root, /dev/loop and mkfs.btrfs; a second or two.
"""

import fcntl
import os
import subprocess
import sys
import tempfile

BTRFS_IOC_SYNC = 0x9408
NAME = "/c1/r2000012"


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


class Mounted:
    """A btrfs image on a loop device."""

    def __init__(self, image, at):
        self.at = at
        self.loop = run("losetup", "--show", "-f", image)
        try:
            run("mount", "-o", "commit=300", self.loop, at)
        except subprocess.CalledProcessError:
            run("losetup", "-d", self.loop)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        run("umount", self.at)
        run("losetup", "-d", self.loop)
        # The kernel remembers btrfs devices by their file system's id.
        subprocess.run(["btrfs", "device", "scan", "--forget", self.loop], capture_output=True)


def replay(calls, root, commits):
    """Makes the calls; files are held open, and follow their names."""
    fds, every = {}, []

    def opened(name):
        if name not in fds:
            flags = os.O_RDWR if os.path.isfile(root + name) else os.O_RDONLY
            fds[name] = os.open(root + name, flags)
            every.append(fds[name])
        return fds[name]

    for call, name, *more in calls:
        if call == "create":
            fds.pop(name, None)
            fds[name] = os.open(root + name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            every.append(fds[name])
        elif call == "mkdir":
            os.mkdir(root + name)
        elif call == "fsync":
            fd = opened(name)
            if commits and os.path.isdir(root + name):
                fcntl.ioctl(fd, BTRFS_IOC_SYNC)
            os.fsync(fd)
        elif call == "fdatasync":
            os.fdatasync(opened(name))
        elif call == "syncfs":
            run("sync", "-f", root)
        elif call == "write":
            size, at, durable = int(more[0]), int(more[1]), more[2] == "True"
            os.pwritev(opened(name), [b"x" * size], at, os.RWF_DSYNC if durable else 0)
        elif call == "truncate":
            os.ftruncate(opened(name), int(more[0]))
        elif call == "setxattr":
            os.setxattr(opened(name), more[0], b"v" * int(more[1]))
        elif call == "rename":
            os.rename(root + name, root + more[0])
            fds.pop(more[0], None)
            if name in fds:
                fds[more[0]] = fds.pop(name)
        elif call == "unlink":
            os.unlink(root + name)
            fds.pop(name, None)
        else:
            raise ValueError(call)
    return every


def comes_back(calls, commits):
    """Whether the name is there after a cut."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        image, cut, at = f"{top}/image", f"{top}/cut", f"{top}/at"
        os.mkdir(at)
        run("truncate", "-s", "256M", image)
        run("mkfs.btrfs", "-q", "-f", "-K", image)
        with Mounted(image, at):
            every = replay(calls, at, commits)
            assert not os.path.exists(at + NAME)
            run("cp", "--sparse=always", image, cut)
            for fd in every:
                os.close(fd)
        with Mounted(cut, at):
            return os.path.exists(at + NAME)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{here}/log_tree.calls", encoding="utf8") as file:
        lines = [line.split(" ") for line in file.read().splitlines() if not line.startswith("#")]
    plain, committed = comes_back(lines, False), comes_back(lines, True)
    print(f"fsync alone: the replaced file {'CAME BACK' if plain else 'stayed away'}")
    print(f"commit before a directory's fsync: it {'CAME BACK' if committed else 'stayed away'}")
    return int(committed)


if __name__ == "__main__":
    sys.exit(main())
