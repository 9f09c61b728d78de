"""smbclient (Debian): every dialect, plain, signed and sealed; each cipher and signing algorithm."""
import os
import re
import tempfile
import pathlib

from holdfast import PASSWORD, USER, Failure, run
from material import ENTRIES, LARGE, NAMES, digest, large_file
from report import expect
from tap import Tap

DIALECTS = {"SMB2_02": "2.0.2", "SMB2_10": "2.1", "SMB3_00": "3.0", "SMB3_02": "3.0.2", "SMB3_11": "3.1.1"}
CIPHERS = ["AES-128-CCM", "AES-128-GCM", "AES-256-CCM", "AES-256-GCM"]
SIGNERS = ["HMAC-SHA256", "AES-128-CMAC", "AES-128-GMAC"]


class Client:
    def __init__(self, port, dialect, protection, options=()):
        self.base = ["smbclient", "-p", str(port), "-m", dialect, f"--option=client min protocol={dialect}"]
        if protection != "plain":
            self.base.append(f"--client-protection={protection}")
        self.base += [f"--option={option}" for option in options]

    def __call__(self, *commands, share="data", user=f"{USER}%{PASSWORD}", check=True, folder=None):
        script = "; ".join(commands)
        said = run(self.base + ["-U", user, f"//127.0.0.1/{share}", "-c", script], check=check, cwd=folder)
        if check and "NT_STATUS_" in said:
            raise Failure(f"smbclient: {script}\n{said}")
        return said

    def shares(self):
        return run(self.base + ["-U", f"{USER}%{PASSWORD}", "-g", "-L", "127.0.0.1"])


def check(report, server, folder):
    for dialect, spoken in DIALECTS.items():
        for protection in ("plain", "sign", "encrypt"):
            if protection == "encrypt" and spoken.startswith("2"):
                continue
            report.check(f"smbclient {dialect} {protection}", everything, server, folder, dialect, protection)
    report.check("smbclient names", names, server, folder)
    for cipher in CIPHERS:
        report.check(f"smbclient cipher {cipher}", forced_cipher, server, folder, cipher)
    for signer in SIGNERS:
        report.check(f"smbclient signing {signer}", forced_signer, server, folder, signer)


def names(server, folder):
    """Names that Windows would not send, links, short names, and special files."""
    share = server.share_path("data")
    client = Client(server.port, "SMB3_11", "sign")
    with tempfile.TemporaryDirectory(dir=folder) as own:
        own = pathlib.Path(own)
        (own / "text").write_text("text")
        for name in ("Notes v1.", "blank "):
            client(f'put text "{name}"', f'get "{name}" back', folder=own)
            expect((share / name).read_text() == (own / "back").read_text() == "text", name)
            client(f'rename "{name}" "2 {name}"', f'ls "2 {name}"', f'del "2 {name}"')
            expect(not (share / f"2 {name}").exists(), f"{name} is still there")
        client("put text linked", "hardlink linked link", "del linked", folder=own)
        expect((share / "link").read_text() == "text", "the link leads elsewhere")
        client("del link", 'put text "a long name.txt"', folder=own)
        short = client('altname "a long name.txt"').strip()
        expect(short != "a long name.txt" and len(short) <= 12, f"short name {short}")
        for pattern in (short, short.lower(), short[:5] + "*"):
            expect("a long name.txt" in client(f"ls {pattern}"), f"{pattern} finds nothing")
        client(f"get {short} back", f'rename {short} "another long.txt"', folder=own)
        client("del " + client('altname "another long.txt"').strip())
        expect(not (share / "another long.txt").exists(), "it was not deleted by its short name")
        os.mkfifo(share / "fifo")
        client("rename fifo pipe", "del pipe")
        expect(not (share / "pipe").exists(), "the FIFO is still there")


def everything(server, folder, dialect, protection):
    share = server.share_path("data")
    with Tap(server.port) as tap, tempfile.TemporaryDirectory(dir=folder) as own:
        own = pathlib.Path(own)
        client = Client(tap.port, dialect, protection)
        refused(client)
        expect("Disk|data|" in client.shares(), "-L does not list the share:\n" + client.shares())
        name = f"dir-{dialect}-{protection}"
        client(f"mkdir {name}")
        expect((share / name).is_dir(), "mkdir made no directory")
        large(client, share, own, folder, name)
        attributes(client, name)
        unicode_names(client, share, own, name)
        listings(client)
        client(f"cd {name}", "del *", "cd ..", f"rmdir {name}")
        expect(not (share / name).exists(), "rmdir left the directory")
        wire(tap, DIALECTS[dialect], protection)


def refused(client):
    for user in (f"{USER}%wrong", f"{USER}%", f"nobody-here%{PASSWORD}"):
        said = client("ls", user=user, check=False)
        expect("NT_STATUS_LOGON_FAILURE" in said, f"{user} was not refused: {said}")


def large(client, share, own, folder, name):
    path, hash = large_file(folder)
    client(f"put {path} {name}\\large.bin", f"get {name}\\large.bin back.bin", folder=own)
    expect(digest(own / "back.bin") == hash, "64 MiB came back different")
    expect(digest(share / name / "large.bin") == hash, "64 MiB stand on the disk different")
    (own / "small").write_text("overwritten")
    client(f"cd {name}", "rename large.bin renamed.bin", "put small renamed.bin", folder=own)
    expect((share / name / "renamed.bin").read_text() == "overwritten", "overwrite left something else")
    expect(not (share / name / "large.bin").exists(), "rename left the old name")


def attributes(client, name):
    client(f"cd {name}", "setmode renamed.bin +rh", "utimes renamed.bin -1 -1 2001:02:03-04:05:06 -1")
    listing = client(f"cd {name}", "ls renamed.bin")
    expect(re.search(r"renamed.bin +A?HA?R +11  \w+ Feb +3 04:05:06 2001", listing), "set, but: " + listing)
    client(f"cd {name}", "setmode renamed.bin -rh")
    listing = client(f"cd {name}", "ls renamed.bin")
    expect(re.search(r"renamed.bin +A? +11 ", listing), "attributes stayed: " + listing)
    expect(re.search(r"\d+ blocks of size \d+\. \d+ blocks available", listing), "no free space: " + listing)


def unicode_names(client, share, own, name):
    for number, text in enumerate(NAMES):
        (own / "u").write_text(str(number))
        client(f"cd {name}", f'put u "{text}"', folder=own)
        expect((share / name / text).read_text() == str(number), f"{text!r} is not on the disk")
    listing = client(f"cd {name}", "ls")
    for text in NAMES:
        expect(text in listing, f"{text!r} is not in the listing:\n{listing}")


def listings(client):
    count = lambda said: len(re.findall(r"^  entry\d{4}\.txt ", said, re.M))
    said = client("cd many", "ls")
    expect(count(said) == ENTRIES, f"{count(said)} entries listed of {ENTRIES}")
    for pattern, wanted in (("entry00*", 100), ("entry?0?9.txt", 30), ("ENTRY0000.TXT", 1), ("*.txt", ENTRIES)):
        said = client("cd many", f"ls {pattern}")
        expect(count(said) == wanted, f"{pattern}: {count(said)} entries, not {wanted}")
    said = client("cd many", "ls *.none", check=False)
    expect("NT_STATUS_NO_SUCH_FILE" in said, "ls *.none: " + said)


def wire(tap, dialect, protection):
    expect(tap.dialects == {dialect}, f"dialects on the wire: {tap.dialects}")
    seen = f"plain {tap.plain} {tap.plain_commands}, signed {tap.signed}, sealed {tap.sealed}"
    if protection == "encrypt":
        expect(tap.sealed > 100 and tap.plain == 0 and tap.signed == 0, "encrypted? " + seen)
    elif protection == "sign":
        expect(tap.signed > 100 and tap.plain == 0 and tap.sealed == 0, "signed? " + seen)
    else:
        expect(tap.plain > 100 and tap.sealed == 0, "plain? " + seen)


def round_trip(client, server, folder):
    path, hash = large_file(folder)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        client(f"put {path} forced.bin", "get forced.bin back.bin", "del forced.bin", folder=own)
        expect(digest(pathlib.Path(own) / "back.bin") == hash, f"{LARGE} bytes came back different")


def forced_cipher(server, folder, cipher):
    with Tap(server.port) as tap:
        client = Client(tap.port, "SMB3_11", "encrypt", [f"client smb3 encryption algorithms={cipher}"])
        round_trip(client, server, folder)
        expect(tap.ciphers == {cipher}, f"ciphers on the wire: {tap.ciphers}")
        wire_sealed = tap.sealed > 10 and tap.plain == tap.signed == 0
        expect(wire_sealed, f"not everything was sealed: plain {tap.plain}, signed {tap.signed}")


def forced_signer(server, folder, signer):
    with Tap(server.port) as tap:
        client = Client(tap.port, "SMB3_11", "sign", [f"client smb3 signing algorithms={signer}"])
        round_trip(client, server, folder)
        expect(tap.signers == {signer}, f"signing algorithms on the wire: {tap.signers}")
        expect(tap.signed > 10 and tap.plain == 0, f"not everything was signed: plain {tap.plain}")
