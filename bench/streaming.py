#!/usr/bin/env python3
"""streaming.py: how close a model bigger than memory comes to what the disk allows.

    bench/streaming.py -m MODEL [options] [PEER [PEER'S OPTIONS]]

    -m MODEL          a file bigger than the memory that is allowed
    --memory SIZE     for both engines, as in 8G (the default; 1024s, not 1000s)
    -p N              tokens of the cold prompt; default 512, 0: none
    -n N              tokens to generate, after as many to fill the cache; default 32, 0: none
    -t N              threads of both; default: one for every core
    -r N              rounds; default 3
    --block BYTES     of fio's reads; default: what moeflux reads of an expert at a time
    --moeflux FILE    the program; default: build/moeflux
    --peer-count N    tokens that the peer generates; default: as -n (it may take minutes for one)
    --read-ahead KIB  read-ahead of the disk while the peer runs, in KiB (restored afterwards)
    --json            JSON instead of the table

A round measures, one after the other: moeflux's cold prompt, moeflux's generation, and the peer's,
a llama-bench, while the memory above the limit is locked.  Before each, memory is touched and let
go, and the file's pages are dropped from the page cache.  Before and after each of moeflux's, fio
reads (random reads of that block size, past the page cache, as many at a time and into such buffers
as were fastest at the start): a disk that others use has the speed of the moment.  Shown are
medians, and ratios of neighbours within a round.

    disk bound    1 / max(missed bytes / fio's rate, time to compute a token); bytes that were read
                  ahead in vain are not missed
                  for a prompt: tokens / max(bytes of all experts / fio's rate, time to compute)
    disk          bytes / time in which at least one read was under way, against fio
    memory        peak of the resident set, and of the file's pages in the page cache

Needs fio, fincore (util-linux), and where there is a PEER the right to lock memory and, for
--read-ahead, to write to /sys/block."""
import argparse
import ctypes
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import typing

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
HERE = pathlib.Path(__file__).resolve().parent


def stop(sentence):
    sys.exit(f"streaming: {sentence}")


def parse_size(text):
    unit = UNITS.get(text[-1:].upper())
    try:
        return int(float(text[:-1]) * unit) if unit else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no size, as in 8G')


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-m", dest="model")
    parser.add_argument("--memory", type=parse_size, default=8 << 30)
    parser.add_argument("-p", dest="prompt", type=int, default=512)
    parser.add_argument("-n", dest="count", type=int, default=32)
    parser.add_argument("-t", dest="threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", dest="rounds", type=int, default=3)
    parser.add_argument("--block", type=int)
    parser.add_argument("--moeflux", default=str(HERE.parent / "build" / "moeflux"))
    parser.add_argument("--peer-count", type=int)
    parser.add_argument("--read-ahead", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("peer", nargs=argparse.REMAINDER)
    settings = parser.parse_args()
    if settings.help:
        print(__doc__)
        sys.exit(0)
    if not settings.model:
        stop("which model? -m MODEL")
    return settings


def run(command, may_fail=False, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0 and not may_fail:
        stop(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}")
    return done


# ------------------------------------------------------------------- the machine


def drop_pages(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def available_bytes():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/meminfo")
                if line.startswith("MemAvailable"))


def touch_memory(limit):
    """Uses half as much memory again as is allowed, and lets it go.  The host of a virtual machine
    takes back what was not used for a while, and gives it out again at a fraction of the disk's
    speed: the first to run would pay for it."""
    populate_write = 23  # Linux 5.14; without it nothing is touched
    size = min(limit * 3 // 2, available_bytes() * 9 // 10)
    # Python's mappings are shared unless told otherwise, and those have no huge pages.
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        try:
            memory.madvise(populate_write)
        except OSError:
            pass


def cached_bytes(path):
    return int(run(["fincore", "-b", "-n", "-o", "RES", path]).stdout or 0)


class Fio(typing.NamedTuple):
    depth: int
    registered: bool  # its buffers are the kernel's from the start, and not anew for every read

    def __str__(self):
        return f"{self.depth} at a time" + (", into registered buffers" if self.registered else "")


def fio_rate(settings, way):
    """Bytes per second; 0 where not so much memory may be registered."""
    done = run(["fio", "--name=streaming", f"--filename={settings.model}", "--readonly",
                "--rw=randread", f"--bs={settings.block}", f"--iodepth={way.depth}",
                "--ioengine=io_uring", f"--fixedbufs={int(way.registered)}", "--direct=1",
                "--runtime=2", "--time_based", "--norandommap", "--output-format=json"],
               may_fail=way.registered)
    if done.returncode != 0:
        return 0
    return json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]


def best_way(settings):
    """A disk's favourite is not ours to know; each is asked twice, in turns."""
    rates = {Fio(depth, registered): 0 for depth in (4, 8, 16, 32) for registered in (False, True)}
    for _ in range(2):
        for way in rates:
            rates[way] += fio_rate(settings, way)
    return max(rates, key=rates.get)


class LockedMemory:
    """Leaves `limit` bytes of the machine's memory to other processes.  If that is not enough,
    the kernel kills this process and the peer first, not the others."""

    def __init__(self, limit):
        self.bytes = max(available_bytes() - limit, 0) // 4096 * 4096
        self.pages = mmap.mmap(-1, self.bytes) if self.bytes else None

    def __enter__(self):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
        if self.pages:
            libc = ctypes.CDLL(None, use_errno=True)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
            if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(self.bytes)) != 0:
                stop(f"{self.bytes >> 20} MiB cannot be locked: {os.strerror(ctypes.get_errno())}")
        return self

    def __exit__(self, *_):
        self.pages = None  # unmapped with the last reference


class ReadAhead:
    """Sets the read-ahead of the disk that holds a file, in KiB; None: unchanged."""

    def __init__(self, path, kib):
        device = os.stat(path).st_dev
        disk = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        if not (disk / "queue").exists():  # a partition
            disk = disk.parent
        self.setting, self.kib = disk / "queue/read_ahead_kb", kib

    def __enter__(self):
        if self.kib is not None:
            self.before = self.setting.read_text()
            self.setting.write_text(str(self.kib))

    def __exit__(self, *_):
        if self.kib is not None:
            self.setting.write_text(self.before)


# ------------------------------------------------------------------- moeflux


class Watch(threading.Thread):
    """Peak of the page cache's share of a file while a process runs, and of its own memory."""

    def __init__(self, process, path):
        super().__init__(daemon=True)
        self.process, self.path = process, path
        self.before = cached_bytes(path)
        self.resident = self.cached = self.both = 0

    def run(self):
        while self.process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
                resident = next(int(line.split()[1]) * 1024 for line in status.splitlines()
                                if line.startswith("VmRSS"))
            except (OSError, StopIteration):
                break
            cached = max(cached_bytes(self.path) - self.before, 0)
            self.resident, self.cached = max(self.resident, resident), max(self.cached, cached)
            self.both = max(self.both, resident + cached)
            time.sleep(0.2)


def moeflux(settings, *options):
    touch_memory(settings.memory)
    drop_pages(settings.model)
    command = [settings.moeflux, "bench", "-m", settings.model, "--memory", str(settings.memory),
               "-t", str(settings.threads), "-r", "1", "--no-ceilings", "--json", "--stats-json",
               *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = Watch(process, settings.model)
    watch.start()
    out, err = process.communicate()
    watch.join()
    if process.returncode != 0:
        stop(f"moeflux failed: {err.strip()[-400:]}")
    lines = [line for line in err.splitlines() if line.startswith("{")]
    return json.loads(out)["tests"][0], json.loads(lines[-1]), watch


def disk_share(stats, rate):
    disk = stats["disk"]
    return disk["bytes"] / disk["seconds"] / rate if disk["seconds"] > 0 else 1.0


def computing_seconds(part):
    """Arithmetic alone: neither waiting, nor predicting, nor what the store does between."""
    return sum(seconds for stage, seconds in part["stages"].items()
               if stage not in ("expert wait", "prediction"))


def between_fio(settings, *options):
    """What moeflux measures, and fio's rate around it."""
    before = fio_rate(settings, settings.way)
    measured = moeflux(settings, *options)
    return (*measured, (before + fio_rate(settings, settings.way)) / 2)


def measure_prompt(settings):
    test, stats, watch, rate = between_fio(settings, "-p", settings.prompt, "-n", 0, "--no-warm-up")
    speed = test["tokens_per_second"]["median"]
    computing = computing_seconds(stats["prompt"])
    bound = settings.prompt / max(stats["experts"]["bytes_read"] / rate, computing)
    disk_bound = settings.prompt / (stats["experts"]["bytes_read"] / rate)
    return {"tokens_per_second": speed, "bound": bound, "share": speed / bound,
            "fio_bytes_per_second": rate, "share_of_disk_bound": speed / disk_bound,
            "computing_seconds": computing,
            "waiting_seconds": stats["seconds"]["expert_wait"],
            "bytes": stats["experts"]["bytes_read"], "disk_share": disk_share(stats, rate),
            "memory_bytes": watch.both, "resident_bytes": watch.resident,
            "cached_bytes": watch.cached}


def measure_decode(settings):
    test, stats, watch, rate = between_fio(settings, "-p", 0, "-n", settings.count)
    speed = test["tokens_per_second"]["median"]
    read = test["expert_bytes_read"] / settings.count
    wasted_share = (stats["experts"]["ahead_wasted_bytes"] /
                    max(stats["experts"]["bytes_read"], 1))
    missed = read * (1 - wasted_share)
    computing = computing_seconds(stats["decode"]) / max(stats["decode"]["tokens"], 1)
    bound = 1 / max(missed / rate, computing)
    hits, misses = test["expert_hits"], test["expert_misses"]
    return {"tokens_per_second": speed, "bound": bound, "share": speed / bound,
            "fio_bytes_per_second": rate, "read_bytes": read, "missed_bytes": missed,
            "hit_rate": hits / max(hits + misses, 1),
            "computing_seconds": computing, "disk_share": disk_share(stats, rate),
            "wasted_share": wasted_share,
            "memory_bytes": watch.both, "resident_bytes": watch.resident,
            "cached_bytes": watch.cached}


# ------------------------------------------------------------------- the peer


def measure_peer(settings):
    touch_memory(settings.memory)
    drop_pages(settings.model)
    command = [*settings.peer, "-m", settings.model, "-t", str(settings.threads), "-r", "1",
               "-o", "json", "-p", str(settings.prompt),
               "-n", str(settings.peer_count or settings.count)]
    with LockedMemory(settings.memory), ReadAhead(settings.model, settings.read_ahead):
        tests = json.loads(run(command).stdout)
    found = {}
    for test in tests:
        kind = "prompt" if test["n_prompt"] > 0 else "decode"
        found[kind] = statistics.median(test.get("samples_ts") or [test["avg_ts"]])
    return found


# ------------------------------------------------------------------- rounds


def block_of(settings):
    """A GGUF or MLX expert comes in about three reads, a packed one in one."""
    placement = json.loads(run([settings.moeflux, "inspect", settings.model, "--json", "--memory",
                                str(settings.memory)]).stdout)
    slots = placement["placement"]
    if slots["experts_in_memory"] in (0, slots["experts"]):
        stop("the experts all fit in that memory: there is nothing to stream")
    expert = slots["expert_slot_bytes"] // slots["experts_in_memory"]
    parts = 1 if placement["layout"] == "packed" else 3
    return (expert // parts + 4095) // 4096 * 4096


def measure_round(settings):
    found = {}
    if settings.prompt:
        found["prompt"] = measure_prompt(settings)
    if settings.count:
        found["decode"] = measure_decode(settings)
    if settings.peer:
        found["peer"] = measure_peer(settings)
    return found


def middle(rounds, *keys):
    values = []
    for found in rounds:
        for key in keys:
            found = found[key]
        values.append(found)
    return statistics.median(values)


def print_table(settings, rounds):
    gib = 1 << 30
    print(f"{settings.model}, {settings.memory / gib:.2f} GiB, {settings.threads} threads, "
          f"{len(rounds)} round{'s' if len(rounds) > 1 else ''}; medians\n")
    print(f"fio's reads    {settings.block:8d} bytes, {settings.way}")
    for kind, what in (("prompt", f"prompt {settings.prompt}"), ("decode", f"decode {settings.count}")):
        if kind not in rounds[0]:
            continue
        print(f"{what:<14} {middle(rounds, kind, 'tokens_per_second'):8.2f} tokens/s, "
              f"{100 * middle(rounds, kind, 'share'):.0f} % of the bound of "
              f"{middle(rounds, kind, 'bound'):.2f}; disk at "
              f"{100 * middle(rounds, kind, 'disk_share'):.0f} % of fio's "
              f"{middle(rounds, kind, 'fio_bytes_per_second') * 1e-9:.2f} GB/s")
        print(f"{'':<14} peak memory {middle(rounds, kind, 'memory_bytes') / gib:.2f} GiB, of which "
              f"page cache {middle(rounds, kind, 'cached_bytes') / gib:.2f}")
        if kind == "decode":
            print(f"{'':<14} {100 * middle(rounds, kind, 'hit_rate'):.1f} % hits, "
                  f"{middle(rounds, kind, 'read_bytes') * 1e-6:.0f} MB read per token, "
                  f"{100 * middle(rounds, kind, 'wasted_share'):.1f} % of it in vain; "
                  f"{1e3 * middle(rounds, kind, 'computing_seconds'):.0f} ms computing")
        else:
            print(f"{'':<14} {middle(rounds, kind, 'bytes') * 1e-9:.1f} GB read, "
                  f"{middle(rounds, kind, 'computing_seconds'):.1f} s computing, "
                  f"{middle(rounds, kind, 'waiting_seconds'):.1f} s waiting; "
                  f"{100 * middle(rounds, kind, 'share_of_disk_bound'):.0f} % of the disk alone")
        if "peer" in rounds[0] and kind in rounds[0]["peer"]:
            ratios = [r[kind]["tokens_per_second"] / r["peer"][kind] for r in rounds]
            print(f"{'':<14} peer {middle(rounds, 'peer', kind):.3f} tokens/s: "
                  f"{statistics.median(ratios):.1f} times as fast ({min(ratios):.1f} … {max(ratios):.1f})")


def main():
    settings = parse_arguments()
    settings.block = settings.block or block_of(settings)
    settings.way = best_way(settings)
    rounds = []
    for number in range(settings.rounds):
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {settings.rounds} ", end="", file=sys.stderr)
        rounds.append(measure_round(settings))
    if settings.json:
        print(json.dumps({"model": settings.model, "memory_bytes": settings.memory,
                          "threads": settings.threads, "block": settings.block,
                          "depth": settings.way.depth, "registered": settings.way.registered,
                          "rounds": rounds}))
    else:
        print_table(settings, rounds)


if __name__ == "__main__":
    main()
