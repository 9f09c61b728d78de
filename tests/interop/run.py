#!/usr/bin/env python3
"""Real clients against Holdfast: smbclient, rpcclient, Python smbprotocol and impacket, and libraries in
other languages (libraries.py), each with a typical working day.

    run.py                  everything
    run.py smbclient        tests whose name contains the word
    run.py --allow-missing  clients that are not installed are reported, but are no failure

Each carries out typical actions: log in (and be refused), list shares, create, list 3,000 entries
with wildcards and Unicode names, write 64 MiB and read it back by hash, rename, overwrite, delete,
set times and attributes, query space, flush, run into another client's lock. A tap between client and server
checks dialect, signing and encryption on the wire. Run it with .venv/bin/python (tests/install).
"""
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))
import libraries  # noqa: E402
from holdfast import PASSWORD, USER, Failure, Holdfast, run  # noqa: E402
from material import large_directory  # noqa: E402
from report import Report, arguments, expect  # noqa: E402


def rpc(server):
    """The queries of rpcclient: server, workstation, names of users."""
    ask = ["rpcclient", "-p", str(server.port), "-U", f"{USER}%{PASSWORD}", "127.0.0.1", "-c"]
    expect("netname: data" in run(ask + ["netshareenum 1"]), "netshareenum")
    expect("netname: data" in run(ask + ["netsharegetinfo data 1"]), "netsharegetinfo")
    said = run(ask + ["srvinfo"])
    expect("platform_id" in said, "srvinfo: " + said)
    said = run(ask + [f"lookupnames {USER}"])
    sid = said.split()[1]
    expect(sid.startswith("S-1-5-21-"), "lookupnames: " + said)
    expect(USER in run(ask + [f"lookupsids {sid}"]), "lookupsids " + sid)


def signed_by_default(server):
    """A server with the default configuration makes a client sign that would not do so by itself."""
    import debian_smbclient
    from tap import Tap
    with Tap(server.port) as tap:
        debian_smbclient.Client(tap.port, "SMB3_11", "plain")("ls")
        expect(tap.signed > 0 and tap.plain == 0, f"plain {tap.plain_commands}, signed {tap.signed}")


def encryption_required(server):
    """A share that requires encryption refuses clients that do not encrypt; smbclient encrypts by itself."""
    import debian_smbclient
    from tap import Tap
    with Tap(server.port) as tap:
        debian_smbclient.Client(tap.port, "SMB3_11", "plain")("ls", share="secret")
        expect(tap.sealed > 0, "nothing was sealed")
        said = debian_smbclient.Client(tap.port, "SMB2_10", "plain")("ls", share="secret", check=False)
        expect("NT_STATUS_ACCESS_DENIED" in said, "2.1 on an encrypted share: " + said)


def without_a_name(server):
    """An anonymous client can list the shares that every user may use, and cannot open any."""
    listed = nameless(server, "-L", "127.0.0.1")
    expect("data" in listed and "IPC$" in listed, "listed: " + listed)
    said = nameless(server, "//127.0.0.1/data", "-c", "ls")
    expect("NT_STATUS_ACCESS_DENIED" in said, "a share without guests: " + said)
    expect("malformed" not in server.log, "the log: " + server.log)


def without_a_name_as_guest(server):
    """A share that allows guests treats an anonymous client as a guest, so a listed share can be opened."""
    server.share_path("open").chmod(0o777)
    expect("open" in nameless(server, "-L", "127.0.0.1"), "not listed")
    for user in ([], ["-U", "%"]):
        said = nameless(server, "//127.0.0.1/open", "-c", "put /etc/hostname h; ls; del h", *user)
        expect("blocks available" in said and "NT_STATUS" not in said, f"{user}: {said}")
    said = nameless(server, "//127.0.0.1/data", "-c", "ls")
    expect("NT_STATUS_ACCESS_DENIED" in said, "a share without guests: " + said)


def nameless(server, *arguments):
    return run(["smbclient", "-N", "-p", str(server.port), *arguments], check=False)


def main():
    asked = arguments(__doc__.splitlines()[0]).parse_args()
    report = Report("interop", asked.allow_missing, asked.only)
    with tempfile.TemporaryDirectory(prefix="holdfast-interop-") as folder:
        folder = pathlib.Path(folder)
        try:
            with Holdfast(["data"], {"signing": "desired"}) as server:
                large_directory(server.share_path("data"))
                clients(report, server, folder)
            with Holdfast({"data": {}, "secret": {"encryption": "required"}}) as server:
                if shutil.which("smbclient"):
                    report.check("signed by default", signed_by_default, server)
                    report.check("encryption required", encryption_required, server)
                    report.check("without a name", without_a_name, server)
                shares = {"data": {}, "open": {"guest": True}, "secret": {"encryption": "required"}}
                with Holdfast(shares, {"signing": "desired"}) as lenient:
                    if shutil.which("smbclient"):
                        report.check("without a name, as guest", without_a_name_as_guest, lenient)
                    libraries.check(report, server, lenient, folder)
            if shutil.which("smbclient"):
                import debian_smbcacls
                import samba_folder
                debian_smbcacls.check(report, folder)
                samba_folder.check(report, folder)
            import verify_flush
            verify_flush.check(report, folder)
            import workloads
            workloads.check(report, folder)
            import matrix
            matrix.check(report, folder)
            report.ok("servers ended in order")
        except Failure as why:
            report.fail("server", why)
    report.end()


def clients(report, server, folder):
    if shutil.which("smbclient"):
        import debian_smbclient
        debian_smbclient.check(report, server, folder)
    else:
        report.missing("smbclient", "Debian package smbclient")
    if shutil.which("rpcclient"):
        report.check("rpcclient", rpc, server)
    else:
        report.missing("rpcclient", "Debian package smbclient")
    try:
        import impacket  # noqa: F401
        import smbprotocol  # noqa: F401
    except ImportError as missing:
        report.missing("smbprotocol and impacket", f"{missing} (tests/install makes .venv)")
        return
    import python_impacket
    import python_smbprotocol
    python_smbprotocol.check(report, server, folder)
    python_impacket.check(report, server, folder)
    import administration
    administration.check(report)


if __name__ == "__main__":
    main()
