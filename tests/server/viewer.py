"""A viewer of GET /v1/moeflux/experts, and the bytes of its frames as numbers."""
import base64
import collections
import http.client
import json
import socket
import struct
import threading

from served import check

KINDS = ("hit", "ahead", "late", "demand", "evicted", "wasted")
ASKED = range(4)  # the kinds of an expert that a step has asked for


def bits(text, count):
    data = base64.b64decode(text)
    return [data[i // 8] >> i % 8 & 1 for i in range(count)]


def events(frame):
    """[(row, expert, kind, count)]"""
    return list(struct.iter_unpack("<HHBB", base64.b64decode(frame["events"])))


class Viewer:
    """Reads in a thread of its own: `map`, then `frames`.  receive_bytes: how much the kernel keeps for
    it while it does not read; paused: it does not until `read_on`."""

    def __init__(self, server, key=None, receive_bytes=None, paused=False):
        self.map, self.frames, self.error = None, [], None
        self.changed = threading.Condition()
        self.reading = threading.Event()
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        self.connection.sock = socket.socket()
        if receive_bytes:
            self.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.connection.sock.settimeout(60)
        self.connection.sock.connect((server.host, server.port))
        key = key or server.key
        self.connection.request("GET", "/v1/moeflux/experts",
                                headers={"Authorization": f"Bearer {key}"} if key else {})
        self.reply = self.connection.getresponse()
        check(self.reply.status == 200, f"GET experts: status {self.reply.status}, expected 200")
        kind = self.reply.getheader("Content-Type")
        check(kind.startswith("text/event-stream"), f"GET experts: the type is {kind}")
        if not paused:
            self.reading.set()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        if not paused:
            self.wait(lambda: self.map)

    def _read(self):
        event = None
        try:
            while line := self.reply.readline():
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: "):
                    self._take(event, json.loads(line[6:]))
                    self.reading.wait()
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
            self.error = error
        with self.changed:
            self.error = self.error or "the stream has ended"
            self.changed.notify_all()

    def _take(self, event, data):
        with self.changed:
            if event == "map":
                self.map = data
            else:
                self.frames.append(data)
            self.changed.notify_all()

    def read_on(self):
        self.reading.set()

    def wait(self, condition, seconds=60):
        with self.changed:
            check(self.changed.wait_for(lambda: condition() or self.error, seconds) and
                  condition(), f"a viewer waited {seconds} s in vain: {self.error}")

    def wait_idle(self):
        """Until a frame of a second without anything: all that was before has been told."""
        count = len(self.frames)
        self.wait(lambda: any(frame["steps"] == 0 and not any(frame["sums"].values())
                              for frame in self.frames[count:]))

    def sums(self):
        """Totals of the map and all frames, by kind."""
        found = collections.Counter(self.map["totals"])
        for frame in self.frames:
            found.update(frame["sums"])
        return {kind: found[kind] for kind in KINDS}

    def added(self, name):
        return sum(frame[name] for frame in self.frames)

    def present(self):
        """{(row, expert)} of the map."""
        columns = self.map["columns"]
        found = bits(self.map["present"], columns * len(self.map["rows"]))
        return {divmod(i, columns) for i, bit in enumerate(found) if bit}

    def close(self):
        self.read_on()
        try:
            self.reply.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(30)
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
