"""Parses the output of strace and determines which syncs completed between two answers.

Works for one connection. Answers are located by their position in the byte stream: one write may contain
two frames, and a frame may need several writes. A call that strace shows as unfinished counts where it
resumes.
"""
import re

LINE = re.compile(r"^(?P<thread>\d+) +(?P<at>\d+\.\d+) (?P<rest>.*)$")
CALL = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
CUT = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*) <unfinished \.\.\.>$")
RESUMED = re.compile(r"^<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)\) += (?P<result>-?\d+)")
SYNCS = ("fsync", "fdatasync", "syncfs", "sync_file_range")
WRITES = ("pwritev2", "pwrite64", "pwritev")
SENDS = ("sendto", "sendmsg", "write", "writev")
OPENS = ("open", "openat", "openat2")
TRACED = ",".join(SYNCS + WRITES + SENDS + OPENS + ("io_uring_enter",))


class Sync:
    """A completed call that makes data stable: its name, its path, and the time when it ended."""

    def __init__(self, name, path, at):
        self.name, self.path, self.at = name, path, at

    def __repr__(self):
        return f"{self.name}({self.path})"


class Answer:
    """A write to the socket: the syncs completed since the previous one, the time when it began, and the
    number of bytes written."""

    def __init__(self, syncs, at):
        self.syncs, self.at, self.bytes = syncs, at, 0


def time_of(line):
    return float(line.split()[1])


def answers(text):
    """The writes to the socket in order, and the syncs after the last of them. A write counts from
    its beginning, a sync from its end."""
    written, current, cut = [], [], {}
    for line in text.splitlines():
        split = LINE.match(line)
        if not split:
            continue
        thread, at, rest = split["thread"], float(split["at"]), split["rest"]
        if unfinished := CUT.match(rest):
            answer = None
            if is_answer(unfinished["name"], unfinished["arguments"]):
                answer, current = Answer(current, at), []
                written.append(answer)
            cut[thread] = unfinished["arguments"], answer
            continue
        answer = None
        if resumed := RESUMED.match(rest):
            begun, answer = cut.pop(thread, ("", None))
            name, arguments, result = resumed["name"], begun + resumed["rest"], int(resumed["result"])
        elif call := CALL.match(rest):
            name, arguments, result = call["name"], call["arguments"], int(call["result"])
            if is_answer(name, arguments):
                answer, current = Answer(current, at), []
                written.append(answer)
        else:
            continue
        if answer:
            answer.bytes = max(result, 0)
        elif result >= 0 and makes_stable(name, arguments):
            current.append(Sync(name, path(arguments), at))
    return written, current


def before(written, first, last):
    """The syncs that had completed when byte `last` of the stream began to be written, but not yet
    when byte `first` did; both count what had been received by then."""
    at, syncs = 0, []
    for answer in written:
        if at >= first:
            syncs += answer.syncs
        at += answer.bytes
        if at >= last:
            return syncs
    raise ValueError(f"{at} bytes were written, {last} were received")


def is_answer(name, arguments):
    return name in SENDS and "<socket:" in arguments.split(",")[0] or \
        name in SENDS and "<TCP" in arguments.split(",")[0]


def makes_stable(name, arguments):
    return name in SYNCS or name in WRITES and "RWF_DSYNC" in arguments or \
        name in WRITES and "RWF_SYNC" in arguments


def path(arguments):
    named = re.match(r"\d+<([^>]*)>", arguments)
    return named[1] if named else "?"
