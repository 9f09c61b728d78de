#!/usr/bin/env python3
"""smbcacls (Debian): the names of owners and groups, an added entry, protected lists and their restoration.

smbcacls always uses port 445, so the test runs in a network namespace of its own, where that port is
free. It needs root: only then do users have identities of their own on disk.
"""
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))
from holdfast import PASSWORD, USER, Failure, Holdfast, binary, run  # noqa: E402
from report import expect  # noqa: E402

ALONE = "alone"


def check(report, folder):
    if os.geteuid() != 0:
        report.missing("smbcacls", "root (a network namespace)")
        return
    report.check("smbcacls", run, ["unshare", "--net", sys.executable, __file__, folder])


def cacls(name, *arguments, user=USER):
    return run(["smbcacls", "-U", f"{user}%{PASSWORD}", "//127.0.0.1/data", name, *arguments])


def put(name, user=USER):
    run(["smbclient", "-U", f"{user}%{PASSWORD}", "//127.0.0.1/data", "-c", f"put {__file__} {name}"])


def entries(said):
    return [line[4:] for line in said.splitlines() if line.startswith("ACL:")]


def told(server):
    """The owner is the account, whether the descriptor is derived or inherited; accounts are not shown as numbers."""
    put("d/before", ALONE)
    cacls("d", "--add", "ACL:S-1-5-32-545:ALLOWED/OI|CI/READ", user=ALONE)
    put("d/after", ALONE)
    for name in ("d", "d/before", "d/after"):
        said = cacls(name, user=ALONE)
        expect(f"OWNER:HOLD\\{ALONE}" in said, said)
        expect(f"HOLD\\{ALONE}:ALLOWED/0x0/FULL" in entries(said), said)
        expect("Unix User" not in said, said)
    expect("BUILTIN\\Users:ALLOWED/0x0/READ" in entries(cacls("d/after", user=ALONE)), "not inherited")
    put("d/after", ALONE)


def sddl(server):
    """There is no domain SID to report; smbcacls prints an error and continues."""
    said = cacls("d", "--sddl", user=ALONE)
    expect("O:S-1-5-21-" in said and "(A;OICIIO;0x001f01ff;;;CO)" in said, said)


def inheritance(server):
    """Inheritance is disabled and enabled again; smbcacls then sends a list of revision 3."""
    cacls("d", "-I", "remove", user=ALONE)
    said = cacls("d", user=ALONE)
    expect("CONTROL:SR|PD|DP" in said, said)
    cacls("d", "-I", "allow", user=ALONE)
    expect("PD" not in cacls("d", user=ALONE), "still protected")
    cacls("d", "--propagate-inheritance", "--add", "ACL:S-1-5-32-546:ALLOWED/OI|CI/READ", user=ALONE)
    said = cacls("d/before", user=ALONE)
    expect("BUILTIN\\Guests:ALLOWED/I/READ" in entries(said), said)
    put("d/before", ALONE)


def ownership(server):
    """An owner cannot be changed to another user; setting the same owner again succeeds."""
    cacls("d", "-C", ALONE, user=ALONE)
    try:
        cacls("d", "-C", USER, user=ALONE)
    except Failure as why:
        expect("NT_STATUS_INVALID_OWNER" in str(why), str(why))
    else:
        raise Failure("given away")


def main():
    run(["ip", "link", "set", "lo", "up"])
    server = Holdfast(["data"], {"name": "HOLD"}, folder=sys.argv[1])
    server.port = 445
    with server:
        secret = server.folder / "password"
        config = server.folder / "holdfast.toml"
        run([binary(), "user", "add", ALONE, "--config", config, "--password-file", secret,
             "--owner", "12345:12345"])
        run([binary(), "reload", "--config", config])
        for path in (server.folder, server.share_path("data")):
            path.chmod(0o755)
        folder = server.share_path("data") / "d"
        folder.mkdir()
        os.chown(folder, 12345, 12345)
        for test in (told, sddl, inheritance, ownership):
            test(server)


if __name__ == "__main__":
    main()
