"""A wire tap: clients connect to it, it forwards everything to the server and records the unencrypted
fields of the frames, so that a test does not have to trust a client that it signed, encrypted or
used a certain dialect ([MS-SMB2] 2.2.1, 2.2.3, 2.2.4, 2.2.41).
"""
import socket
import struct
import threading

KEPT = 1024  # bytes of each frame that are parsed; all fields of interest are at its beginning
NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT, CANCEL = 0, 1, 2, 3, 12
DIALECTS = {0x0202: "2.0.2", 0x0210: "2.1", 0x0300: "3.0", 0x0302: "3.0.2", 0x0311: "3.1.1"}
CIPHERS = {1: "AES-128-CCM", 2: "AES-128-GCM", 3: "AES-256-CCM", 4: "AES-256-GCM"}
SIGNERS = {0: "HMAC-SHA256", 1: "AES-128-CMAC", 2: "AES-128-GMAC"}


class Tap:
    """The observations: `dialects`, `ciphers`, `signers` (sets of names; empty where 3.1.1 does not
    name them), how many requests after authentication were `plain`, `signed` or `sealed`, and how
    many bytes of whole frames the server sent (`received`)."""

    def __init__(self, port):
        self.server_port = port
        self.dialects, self.ciphers, self.signers = set(), set(), set()
        self.plain = self.signed = self.sealed = 0
        self.received = 0
        self.plain_commands = set()
        self.lock = threading.Lock()
        self.open = []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        for end in [self.listener] + self.open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.server_port))
            self.open += [client, server]
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink, look in ((client, server, self._request), (server, client, self._response)):
                threading.Thread(target=self._pass_on, args=(source, sink, look), daemon=True).start()

    def _pass_on(self, source, sink, look):
        """Records before it forwards, so that everything that a client has received has been counted."""
        head, skip = b"", 0
        try:
            while data := source.recv(1 << 20):
                if len(data) <= 4:
                    # Some clients hold a message back until its length has been acknowledged.
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                head, skip = self._note(data, head, skip, look)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            try:
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    @staticmethod
    def _note(data, head, skip, look):
        """Passes the beginning of each frame to `look`; `skip` bytes of the last one are still missing."""
        while data:
            if skip:
                step = min(skip, len(data))
                skip, data = skip - step, data[step:]
                continue
            head, data = head + data, b""
            if len(head) < 4:
                break
            size = int.from_bytes(head[1:4], "big")
            kept = min(size, KEPT)
            if len(head) < 4 + kept:
                break
            look(head[4:4 + kept], size)
            data, head, skip = head[4 + kept:], b"", size - kept
        return head, skip

    def _request(self, frame, _size):
        with self.lock:
            if frame[:4] == b"\xfdSMB":
                self.sealed += 1
            elif frame[:4] == b"\xfeSMB":
                command, flags = struct.unpack_from("<H", frame, 12)[0], struct.unpack_from("<I", frame, 16)[0]
                # 3.1.1 always signs TREE_CONNECT; CANCEL and LOGOFF prove nothing.
                if command in (NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT, CANCEL):
                    return
                if flags & 8:
                    self.signed += 1
                else:
                    self.plain += 1
                    self.plain_commands.add(command)

    def _response(self, frame, size):
        with self.lock:
            self.received += 4 + size
        if frame[:4] != b"\xfeSMB" or struct.unpack_from("<HI", frame, 12)[0] != NEGOTIATE:
            return
        if struct.unpack_from("<I", frame, 8)[0] != 0:
            return
        dialect, contexts = struct.unpack_from("<HH", frame, 64 + 4)
        if dialect not in DIALECTS:
            return  # 2.FF: the client asks again
        with self.lock:
            self.dialects.add(DIALECTS[dialect])
            if dialect != 0x0311:
                return
            at = struct.unpack_from("<I", frame, 64 + 60)[0]
            for _ in range(contexts):
                kind, size = struct.unpack_from("<HH", frame, at)
                body = frame[at + 8:at + 8 + size]
                if kind == 2 and struct.unpack_from("<H", body, 2)[0]:
                    self.ciphers.add(CIPHERS[struct.unpack_from("<H", body, 2)[0]])
                if kind == 8:
                    self.signers.add(SIGNERS[struct.unpack_from("<H", body, 2)[0]])
                at += (8 + size + 7) // 8 * 8
