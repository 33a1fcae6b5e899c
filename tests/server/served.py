"""A running `moeflux serve`, for tests and measurements: started on a port that the kernel chooses,
asked through plain sockets, ended with SIGTERM, and judged: exit status 0, one line on stdout, no
page of the pool left with a request."""
import http.client
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

LINE = re.compile(r"moeflux: \S+ at http://([0-9.]+):([0-9]+)  \(curl http://\S+/v1/models"
                  r"(?: -H 'Authorization: Bearer KEY')?\)\n")


class Failed(Exception):
    """What a test of the server found wrong."""


def check(condition, what):
    if not condition:
        raise Failed(what)


class Server:
    """options: of `moeflux serve`; key: what --api-key was given, for requests of this class; files:
    as many as the process may have open."""

    def __init__(self, program, *options, key=None, start_seconds=60, files=None):
        self.key = key
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", *options], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self.log, text=True,
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
            if files else None)
        line = self._first_line(start_seconds)
        match = LINE.fullmatch(line)
        if not match:
            self.kill()
            raise Failed(f"the first line of serve is {line!r}, not its address\n{self.messages()}")
        self.host, self.port = match.group(1), int(match.group(2))
        self.url = f"http://{self.host}:{self.port}"

    def _first_line(self, seconds):
        import select
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else ""

    def messages(self):
        """What it wrote to stderr so far."""
        self.log.seek(0)
        return self.log.read()

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, bytes); `body` is bytes, or an object that becomes JSON."""
        sent = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, **more):
        status, _, data = self.ask(method, path, body, **more)
        check(status == 200, f"{method} {path}: status {status}, expected 200: {data[:500]!r}")
        return json.loads(data)

    def chat(self, text, **fields):
        return self.json("POST", "/v1/chat/completions", {
            "model": "pebble", "messages": [{"role": "user", "content": text}], **fields})

    def metrics(self):
        """{"name{labels}": number} of /metrics."""
        status, _, data = self.ask("GET", "/metrics")
        check(status == 200, f"GET /metrics: status {status}, expected 200")
        rows = (line.rsplit(" ", 1) for line in data.decode().splitlines()
                if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def leaked(self):
        """What requests still hold, as a sentence; "" if nothing."""
        now = self.metrics()
        requests = now["moeflux_requests_active"]
        pages = now["moeflux_pool_pages"] - now["moeflux_cache_pages"]
        return f"{requests:.0f} requests, {pages:.0f} pages of theirs" if requests or pages else ""

    def wait_idle(self, seconds=10):
        """Until no request is left; then every page must be free or the prefix cache's."""
        deadline = time.monotonic() + seconds
        while (left := self.leaked()) and time.monotonic() < deadline:
            time.sleep(0.05)
        check(not left, f"after {seconds} s without a client: {left}")

    def stop(self, seconds=60):
        """SIGTERM: exit status 0, and stdout had that one line."""
        check(self.process.poll() is None,
              f"serve ended with {self.process.poll()} before it was asked to\n{self.messages()}")
        try:
            self.wait_idle()
            self.process.send_signal(signal.SIGTERM)
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"serve still runs {seconds} s after SIGTERM") from None
        finally:
            self.kill()
        rest = self.process.stdout.read()
        check(status == 0, f"serve ended with {status}, expected 0\n{self.messages()}")
        check(rest == "", f"stdout has more than the address: {rest[:200]!r}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            self.kill()
            sys.stderr.write("".join(self.messages().splitlines(True)[-40:]))


def main(tests):
    """Ends the program with 1 and one sentence where a check failed."""
    try:
        tests()
    except Failed as error:
        sys.exit(f"FAILED: {error}")
