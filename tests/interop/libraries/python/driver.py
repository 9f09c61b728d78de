"""The common part of the drivers in Python: a line asks, a line answers (libraries.py)."""
import sys


def serve(acts):
    for line in sys.stdin.buffer:
        what, *part = line.decode().rstrip("\n").split("\t")
        if what not in acts:
            said = "absent"
        else:
            try:
                said = "ok\t" + (acts[what](*part) or "")
            except Exception as why:
                said = f"error\t{type(why).__name__} {why}".replace("\n", " ")
        sys.stdout.buffer.write(said.encode() + b"\n")
        sys.stdout.buffer.flush()
