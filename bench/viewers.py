#!/usr/bin/env python3
"""What viewers of GET /v1/moeflux/experts cost: CPU time of the server for each token of answers,
without viewers and with them, in rounds that alternate.

    bench/viewers.py PROGRAM [VIEWERS [ROUNDS [options of serve…]]]

Prints CSV: round, microseconds for each token of the threads that compute and of all others, without
viewers and with them; then medians.  The time of computing varies with what else the machine does,
by more than a watcher costs, which bench_trace measures; that of the other threads is what viewers
add.  With `-t 1` no thread spins while it waits for another.  The embedded model is the worst case:
its tokens are cheap, and a frame costs the same."""
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


def cpu_ns(pid, threads):
    """Of the `threads` that have computed most, and of all others, those that have ended among them."""
    total = time.clock_gettime(~pid << 3 | 2) * 1e9  # the clock of another process
    each = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                each.append(int(file.read().split()[0]))
        except FileNotFoundError:
            pass  # it has just ended
    compute = sum(sorted(each)[-threads:])
    return compute, total - compute


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


def measure(server, viewers, threads):
    """Microseconds for each token: of threads that compute, of all others."""
    watching = Viewers(server, viewers) if viewers else None
    before = cpu_ns(server.process.pid, threads)
    tokens = answer(server)
    after = cpu_ns(server.process.pid, threads)
    if watching:
        served.check(watching.bytes > 0, "the viewers have seen nothing")
        watching.close()
        while server.metrics()["moeflux_connections"] > 1:  # the server notices it
            time.sleep(0.05)
    return [(late - early) / tokens / 1e3 for early, late in zip(before, after)]


def main():
    program = os.path.realpath(sys.argv[1])
    viewers = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    rows = []
    with served.Server(program, "--cache", "off", *sys.argv[4:]) as server:
        threads = server.json("GET", "/v1/moeflux/info")["threads"]
        measure(server, viewers, threads)
        print("round,compute_without,others_without,compute_with,others_with")
        for i in range(rounds):
            # Which of the two comes first alternates, too: clocks drift.
            pair = {count: measure(server, count, threads)
                    for count in ((0, viewers) if i % 2 else (viewers, 0))}
            rows.append(pair[0] + pair[viewers])
            print(f"{i}," + ",".join(f"{value:.1f}" for value in rows[-1]), flush=True)
    compute, others, watched, more = (statistics.median(column) for column in zip(*rows))
    ratios = statistics.quantiles([row[2] / row[0] for row in rows], n=4)
    print(f"# {viewers} viewers, {rounds} rounds, us for each token: other threads {others:.1f} -> "
          f"{more:.1f}, {100 * (more - others) / compute:.2f}% of computing ({compute:.1f} -> "
          f"{watched:.1f}, ratio {ratios[1]:.4f}, quartiles {ratios[0]:.4f} to {ratios[2]:.4f})")


served.main(main)
