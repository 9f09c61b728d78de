"""SPNEGO and NTLM of smb-auth against pyspnego, in both directions; a part of tests/run:

    cargo build -p smb-auth --example auth_pipe
    .venv/bin/python crates/smb-auth/tests/interop.py target/debug/examples/auth_pipe

pyspnego is an independent pure-Python implementation, and its session keys must equal those of smb-auth.
The last line is "N passed, N failed".
"""
import os, subprocess, sys, tempfile

try:
    import spnego
    from spnego._context import ContextReq
except ImportError:
    missing_is_failure = "--allow-missing" not in sys.argv
    print(f"missing pyspnego\n0 passed, {int(missing_is_failure)} failed")
    sys.exit(missing_is_failure)

PIPE = sys.argv[1]


class Peer:
    def __init__(self, *args):
        self.p = subprocess.Popen([PIPE, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, token):
        self.p.stdin.write((token or b"").hex() + "\n")
        self.p.stdin.flush()

    def recv(self):
        word, _, rest = self.p.stdout.readline().strip().partition(" ")
        return word, rest

    def end(self):
        self.p.stdin.close()
        self.p.wait()


def accept(protocol, user, password, ours=("anna", "geheim"), options=None, raw=False):
    peer = Peer("accept", *ours)
    _, hint = peer.recv()
    kw = {"options": options} if options is not None else {}
    client = spnego.client(user, password, hostname="server", service="cifs", protocol=protocol,
                           context_req=ContextReq.default, **kw)
    token = client.step(None if raw else bytes.fromhex(hint))
    result = None
    while result is None:
        peer.send(token)
        word, rest = peer.recv()
        if word != "token":
            result = word
            break
        reply = bytes.fromhex(rest)
        if not client.complete or reply:
            token = client.step(reply)
        if client.complete and not (raw and token):
            # A raw client is complete before the server has said its last word.
            result = done(peer, client)
        elif raw and client.complete:
            peer.send(token)
            word, _ = peer.recv()
            result = done(peer, client) if word == "token" else word
    peer.end()
    return result


def done(peer, client):
    name, key = peer.recv()[1].split(" ")
    assert bytes.fromhex(key) == client.session_key, (key, client.session_key.hex())
    return name


def initiate(user, password, server_password):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(f"WORKGROUP:anna:{server_password}\n")
        f.flush()
        os.environ["NTLM_USER_FILE"] = f.name
        server = spnego.server(hostname="server", service="cifs", protocol="negotiate",
                               options=spnego.NegotiateOptions.use_negotiate | spnego.NegotiateOptions.use_ntlm)
        peer = Peer("initiate", user, password)
        peer.send(b"")
        try:
            while True:
                word, rest = peer.recv()
                if word != "token":
                    break
                out = server.step(bytes.fromhex(rest))
                peer.send(out)
                if server.complete:
                    word, rest = peer.recv()
                    assert bytes.fromhex(rest.split(" ")[1]) == server.session_key
                    return "done"
            return word + " " + rest
        except spnego.exceptions.SpnegoError as e:
            return type(e).__name__
        finally:
            peer.end()


N = spnego.NegotiateOptions
cases = [
    ("spnego client, right", lambda: accept("negotiate", "WORKGROUP\\anna", "geheim", options=N.use_negotiate | N.use_ntlm), "anna"),
    ("spnego client, other case", lambda: accept("negotiate", "WORKGROUP\\ANNA", "geheim", options=N.use_negotiate | N.use_ntlm), "anna"),
    ("spnego client, wrong", lambda: accept("negotiate", "WORKGROUP\\anna", "falsch", options=N.use_negotiate | N.use_ntlm), "error"),
    ("ntlm client, right", lambda: accept("ntlm", "anna", "geheim", raw=True), "anna"),
    ("ntlm client, wrong", lambda: accept("ntlm", "anna", "falsch", raw=True), "error"),
    ("spnego server, right", lambda: initiate("anna", "geheim", "geheim"), "done"),
    ("spnego server, wrong", lambda: initiate("anna", "falsch", "geheim"), None),
]
failed = 0
for name, run, expected in cases:
    got = run()
    ok = got == expected if expected else got != "done"
    failed += not ok
    print("ok  " if ok else "FAIL", name, "->", got)
print(f"{len(cases) - failed} passed, {failed} failed")
sys.exit(failed != 0)
