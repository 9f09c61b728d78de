"""Reads what strace wrote and tells, for each answer of the server, which syncs had completed since
the answer before it.

Works for one connection whose requests are sent one after the other, so that the n-th write to the
socket is the n-th answer frame. A call that strace shows as unfinished counts where it resumes.
"""
import re

LINE = re.compile(r"^(?P<thread>\d+) +(?P<rest>.*)$")
CALL = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
CUT = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*) <unfinished \.\.\.>$")
RESUMED = re.compile(r"^<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)\) += (?P<result>-?\d+)")
SYNCS = ("fsync", "fdatasync", "syncfs", "sync_file_range")
WRITES = ("pwritev2", "pwrite64", "pwritev")
SENDS = ("sendto", "sendmsg", "write", "writev")
TRACED = ",".join(SYNCS + WRITES + SENDS)


class Sync:
    """A completed call that makes something stable: its name and the path it was given."""

    def __init__(self, name, path):
        self.name, self.path = name, path

    def __repr__(self):
        return f"{self.name}({self.path})"


def answers(text):
    """For each write to a socket: the syncs completed since the one before. And what came last."""
    windows, current, cut = [], [], {}
    for line in text.splitlines():
        split = LINE.match(line)
        if not split:
            continue
        thread, rest = split["thread"], split["rest"]
        if unfinished := CUT.match(rest):
            cut[thread] = unfinished["arguments"]
            # An answer counts from where its write begins.
            if is_answer(unfinished["name"], unfinished["arguments"]):
                windows.append(current)
                current = []
            continue
        if resumed := RESUMED.match(rest):
            name, arguments, result = resumed["name"], cut.pop(thread, ""), resumed["result"]
            arguments += resumed["rest"]
            begun_before = True
        elif call := CALL.match(rest):
            name, arguments, result = call["name"], call["arguments"], call["result"]
            begun_before = False
        else:
            continue
        if is_answer(name, arguments) and not begun_before:
            windows.append(current)
            current = []
        elif int(result) >= 0 and makes_stable(name, arguments):
            current.append(Sync(name, path(arguments)))
    return windows, current


def is_answer(name, arguments):
    return name in SENDS and "<socket:" in arguments.split(",")[0] or \
        name in SENDS and "<TCP" in arguments.split(",")[0]


def makes_stable(name, arguments):
    return name in SYNCS or name in WRITES and "RWF_DSYNC" in arguments or \
        name in WRITES and "RWF_SYNC" in arguments


def path(arguments):
    named = re.match(r"\d+<([^>]*)>", arguments)
    return named[1] if named else "?"
