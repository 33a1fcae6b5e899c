#!/usr/bin/env python3
"""What viewers of GET /v1/moeflux/experts cost: CPU time of the server for each token of answers,
without viewers and with them, in rounds that alternate.

    bench/viewers.py PROGRAM [VIEWERS [ROUNDS [options of serve…]]]

Prints CSV: round, microseconds for each token without and with viewers, and their ratio; then the
median ratio with its quartiles.  The embedded model is the worst case: its tokens are cheap, and a
frame costs the same."""
import os
import select
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/server"))
import served  # noqa: E402

REQUESTS, TOKENS = 4, 250


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answer(server):
    """Tokens of a few answers at the same time."""
    counts = []

    def ask(number):
        reply = server.chat(f"Tell story number {number}.", max_tokens=TOKENS, temperature=0,
                            ignore_eos=True)
        counts.append(reply["usage"]["completion_tokens"])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(REQUESTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


class Viewers:
    """Connections that read and forget, all in one thread."""

    def __init__(self, server, count):
        self.sockets = [socket.create_connection((server.host, server.port)) for _ in range(count)]
        for each in self.sockets:
            each.sendall(b"GET /v1/moeflux/experts HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        self.bytes, self.ends = 0, False
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        while not self.ends:
            for each in select.select(self.sockets, [], [], 0.2)[0]:
                self.bytes += len(each.recv(1 << 20))

    def close(self):
        self.ends = True
        self.thread.join()
        for each in self.sockets:
            each.close()


def measure(server, viewers):
    """CPU microseconds for each token."""
    watching = Viewers(server, viewers) if viewers else None
    before = cpu_seconds(server.process.pid)
    tokens = answer(server)
    after = cpu_seconds(server.process.pid)
    if watching:
        served.check(watching.bytes > 0, "the viewers have seen nothing")
        watching.close()
        while server.metrics()["moeflux_connections"] > 1:  # the server notices it
            time.sleep(0.05)
    return (after - before) / tokens * 1e6


def main():
    program = os.path.realpath(sys.argv[1])
    viewers = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    ratios = []
    with served.Server(program, "--cache", "off", *sys.argv[4:]) as server:
        measure(server, viewers)
        print("round,without_us,with_us,ratio")
        for i in range(rounds):
            # Which of the two comes first alternates, too: clocks drift.
            pair = {count: measure(server, count)
                    for count in ((0, viewers) if i % 2 else (viewers, 0))}
            ratios.append(pair[viewers] / pair[0])
            print(f"{i},{pair[0]:.1f},{pair[viewers]:.1f},{ratios[-1]:.4f}", flush=True)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"# {viewers} viewers: CPU time for each token x {middle:.4f} (median; quartiles "
          f"{low:.4f} to {high:.4f}), {rounds} pairs of rounds")


served.main(main)
