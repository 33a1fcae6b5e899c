"""A Hugging Face hub on loopback, for tests: repositories of random files, and every way in which a
hub or what lies between goes wrong.

    hub = Hub(); hub.add("org/name", {"model.gguf": bytes, ...}); hub.faults.append(...)

Large files (LFS) are answered with a redirection to a second server ("the CDN": another port, which
is another origin) and a signed address.  Everything that was requested is kept in `hub.requests`."""
import hashlib
import http.server
import json
import random
import re
import socket
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LFS_BYTES = 4096  # files of this size and above are large


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class File:
    def __init__(self, data, lfs=None):
        self.data = data
        self.lfs = len(data) >= LFS_BYTES if lfs is None else lfs
        self.hash = hashlib.sha256(data).hexdigest() if self.lfs else git_hash(data)

    def entry(self, path):
        entry = {"type": "file", "path": path, "size": len(self.data), "oid": git_hash(b"pointer")}
        if self.lfs:
            entry["lfs"] = {"oid": self.hash, "size": len(self.data), "pointerSize": 134}
        else:
            entry["oid"] = self.hash
        return entry


class Request:
    """What a server saw: `first` and `end` of the range, and how many bytes of it were sent."""

    def __init__(self, server, path, headers, first, end):
        self.server, self.path, self.first, self.end = server, path, first, end
        self.token = headers.get("Authorization")
        self.ranged = headers.get("Range") is not None
        self.sent = 0


class Repository:
    def __init__(self, files, commit=COMMIT):
        self.files = {path: f if isinstance(f, File) else File(f) for path, f in files.items()}
        self.commit = commit
        self.tree = None  # JSON of the listing instead of the true one, an object or bytes
        self.gated = self.private = self.forbidden = False
        self.listed = False  # to clients that may not have its files


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, socket.timeout):
            pass

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub, name = self.server.hub, self.server.name
        where = urllib.parse.urlsplit(self.path)
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        first, end = (int(found[1]), int(found[2]) + 1) if found else (0, None)
        request = Request(name, where.path, self.headers, first, end)
        with hub.lock:
            hub.requests.append(request)
            fault = next((f for f in hub.faults if f.takes(request)), None)
        if fault and fault.answer(self, request):
            return
        if name == "cdn":
            self.do_cdn(hub, where, request)
        elif where.path.startswith("/api/models/"):
            self.do_api(hub, where)
        else:
            self.do_resolve(hub, where, request)

    # ------------------------------------------------------------------ the hub

    def refuse(self, repository):
        """True: answered with what a hub says to those who may not have it."""
        token = self.headers.get("Authorization")
        if repository and repository.forbidden:
            self.answer(403, b"blocked by a firewall")
        elif not repository or repository.private and token != "Bearer secret":
            self.answer(401 if not token or repository else 404, b"{}",
                        X_Error_Code="RepoNotFound")
        elif repository.gated and token != "Bearer secret":
            self.answer(401 if not token else 403, b"{}", X_Error_Code="GatedRepo")
        else:
            return False
        return True

    def do_api(self, hub, where):
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", where.path)
        repository = hub.repositories.get(found[1]) if found else None
        if not (repository and repository.listed) and self.refuse(repository):
            return
        if found[2] == "revision":
            self.answer(200, json.dumps({"id": found[1], "sha": repository.commit}).encode())
            return
        entries = repository.tree
        if entries is None:
            entries = [{"type": "directory", "path": "sub", "oid": COMMIT, "size": 0}]
            entries += [f.entry(path) for path, f in repository.files.items()]
        if isinstance(entries, bytes):
            self.answer(200, entries)
            return
        at = int(urllib.parse.parse_qs(where.query).get("cursor", ["0"])[0])
        page, fields = entries[at:at + hub.page], {}
        if at + hub.page < len(entries):
            fields["Link"] = (f'<{hub.url}{where.path}?recursive=true&cursor={at + hub.page}>; '
                              'rel="next"')
        self.answer(200, json.dumps(page).encode(), **fields)

    def do_resolve(self, hub, where, request):
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([0-9a-f]+)/(.+)", where.path)
        repository = hub.repositories.get(found[1]) if found else None
        if self.refuse(repository):
            return
        path = urllib.parse.unquote(found[3])
        file = repository.files.get(path)
        if not file or found[2] != repository.commit:
            self.answer(404, b"", X_Error_Code="EntryNotFound")
        elif file.lfs:
            signed = f"{hub.cdn_url}/{file.hash}?signature={hub.sign(file)}"
            self.answer(302, b"", Location=signed, X_Repo_Commit=repository.commit,
                        X_Linked_Etag=f'"{file.hash}"', X_Linked_Size=str(len(file.data)))
        else:
            self.send_file(hub, file.data, request, ETag=f'"{file.hash}"')

    # ------------------------------------------------------------------ the CDN

    def do_cdn(self, hub, where, request):
        signature = urllib.parse.parse_qs(where.query).get("signature", [""])[0]
        file = hub.use(signature)
        if not file:
            self.answer(403, b"expired")
        else:
            self.send_file(hub, file.data, request)

    def send_file(self, hub, data, request, **fields):
        first, end = request.first, request.end
        if request.ranged and hub.ranges:
            end = min(end, len(data))
            fields["Content-Range"] = f"bytes {first}-{end - 1}/{len(data)}"
            self.send_response(206)
        else:
            first, end = 0, len(data)
            self.send_response(200)
        self.send_header("Content-Length", str(end - first))
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.send_bytes(hub, memoryview(data)[first:end], request)

    def send_bytes(self, hub, data, request):
        """In pieces, at the hub's pace, cut where `hub.cut` says."""
        step = 1 << 16
        for at in range(0, len(data), step):
            piece = data[at:at + step]
            if hub.cut and hub.random.random() < hub.cut:
                self.wfile.write(piece[:hub.random.randrange(len(piece))])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.wfile.write(piece)
            request.sent += len(piece)
            if hub.pace:
                time.sleep(len(piece) / hub.pace)


class Fault:
    """Answers instead of the server: requests whose path contains `part`, at most `times`."""

    def __init__(self, part, act, times=1, server=None):
        self.part, self.act, self.times, self.server = part, act, times, server

    def takes(self, request):
        if self.times == 0 or self.part not in request.path:
            return False
        if self.server and self.server != request.server:
            return False
        self.times -= 1
        return True

    def answer(self, handler, request):
        return self.act(handler, request) is not False


def status(code, **fields):
    return lambda handler, request: handler.answer(code, b"no", **fields)


def silent(seconds):
    """Takes the request and says nothing."""
    def act(handler, request):
        time.sleep(seconds)
        handler.close_connection = True
    return act


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    connections = 0

    def get_request(self):
        accepted = super().get_request()
        self.connections += 1
        return accepted

    def handle_error(self, *_):
        pass


class Hub:
    def __init__(self):
        self.repositories, self.requests, self.faults = {}, [], []
        self.lock, self.random = threading.Lock(), random.Random(1)
        self.page, self.cut, self.pace, self.ranges = 1000, 0, 0, True
        self.uses = None  # of a signed address; None: any number
        self.signatures = {}
        self.servers = []
        self.url, self.cdn_url = self.serve("hub"), self.serve("cdn")

    def serve(self, name, tls=None):
        server = Server(("127.0.0.1", 0), Handler)
        if tls:
            # The handshake is left to the first read: a connection counts before it.
            server.socket = tls.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
        server.hub, server.name = self, name
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.servers.append(server)
        return f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add(self, name, files, **how):
        self.repositories[name] = Repository(files, **how)
        return self.repositories[name]

    def sign(self, file):
        with self.lock:
            signature = str(len(self.signatures))
            self.signatures[signature] = [file, self.uses]
            return signature

    def use(self, signature):
        with self.lock:
            entry = self.signatures.get(signature)
            if not entry or entry[1] == 0:
                return None
            if entry[1]:
                entry[1] -= 1
            return entry[0]

    def reset(self):
        """As it was at first, with the same repositories."""
        with self.lock:
            self.requests, self.faults = [], []
            self.page, self.cut, self.pace, self.ranges, self.uses = 1000, 0, 0, True, None
