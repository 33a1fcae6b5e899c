#!/usr/bin/env python3
"""convert.py PROGRAM SOURCE: `moeflux convert` as a person runs it, and as a power cut ends it."""
import filecmp
import json
import os
import pathlib
import pty
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
PEBBLE = SOURCE / "models/pebble"
TEXT = SOURCE / "tests/fixtures/pebble/heldout.txt"
failed = 0


def check(what, good, shown=""):
    global failed
    failed += not good
    print(f"{what}: {'ok' if good else 'WRONG ' + str(shown)[:600]}", flush=True)


def run(*arguments, text=None):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          input=text)


def refused(what, code, sentence, *arguments):
    done = run(*arguments)
    lines = done.stderr.strip().split("\n")
    check(what, done.returncode == code and sentence in lines[0] and done.stdout == "",
          (done.returncode, done.stderr))


def same(a, b):
    names = sorted(p.name for p in a.iterdir())
    if names != sorted(p.name for p in b.iterdir()):
        return False
    return filecmp.cmpfiles(a, b, names, shallow=False) == (names, [], [])


def peak_kib(*arguments):
    """The largest resident set of a run that must succeed.  (getrusage would count ours, from
    which the child was forked.)"""
    child = subprocess.Popen([PROGRAM, *map(str, arguments)])
    peak = 0
    while child.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
        except OSError:
            break
        found = re.search(r"VmHWM:\s+(\d+)", status)
        peak = int(found[1]) if found else peak
        time.sleep(0.003)
    if child.wait() != 0:
        sys.exit(f"{arguments}: status {child.returncode}")
    return peak


def random_gguf(path, *options):
    subprocess.run([sys.executable, SOURCE / "tools/make_random_gguf.py", "--preset",
                    "qwen3-30b-a3b", "--vocab", "1024", "--pool-mib", "1", "--out", path,
                    *map(str, options)], check=True, stdout=subprocess.DEVNULL)
    return path


# -------------------------------------------------------------------- usage


def check_usage(scratch):
    out = scratch / "usage"
    refused("no arguments", 2, "from what to where?", "convert")
    refused("one argument", 2, "where to?", "convert", PEBBLE)
    refused("three arguments", 2, "one argument too many", "convert", PEBBLE, out, "x")
    refused("-m", 2, "the source is an argument", "convert", "-m", PEBBLE, out)
    refused("--experts q5", 2, "--experts", "convert", PEBBLE, out, "--experts", "q5")
    refused("no source", 1, "does not exist", "convert", scratch / "none", out)
    refused("no parent", 1, "usage/a/b.partial cannot be made: No such file", "convert", PEBBLE,
            out / "a/b")
    refused("a text as source", 1, "neither a checkpoint directory nor a GGUF", "convert", TEXT,
            out)
    refused("rows that fill no groups", 1, "the experts of layer 0 have rows of 24 numbers, for q4 "
            "they must be a multiple of 32", "convert",
            SOURCE / "tests/fixtures/golden/qwen3_next_sharded", out, "--experts", "q4")
    check("nothing is there", not out.exists() and not pathlib.Path(f"{out}.partial").exists())
    out.mkdir()
    (out / "mine").touch()
    refused("a directory of mine", 1, "exists already", "convert", PEBBLE, out)
    check("it is left alone", [p.name for p in out.iterdir()] == ["mine"])
    check("and nothing is beside it", not pathlib.Path(f"{out}.partial").exists())
    done = run("convert", "--help")
    check("help", done.returncode == 0 and "moeflux convert model.gguf packed" in done.stdout,
          done.stdout)


def check_pebble(scratch):
    packed = scratch / "pebble"
    done = run("convert", PEBBLE, packed, "--verify")
    check("only the verdict on a pipe", (done.returncode, done.stdout) == (0, "") and
          done.stderr.count("\n") == 1 and "verified: " in done.stderr, done)
    done = run("convert", PEBBLE, f"{packed}/")
    check("again: it is there", (done.returncode, done.stdout, done.stderr) == (0, "", ""), done)
    refused("with other options it is in the way", 1, "is not this model with these options",
            "convert", PEBBLE, packed, "--experts", "q2")
    shown = run("inspect", packed)
    check("inspect", re.search(r"^packed +layout rows, from pebble \(safetensors\); experts as "
                               r"they were, the rest as they were$", shown.stdout, re.M), shown)
    shown = json.loads(run("inspect", packed, "--json").stdout)
    check("inspect --json", shown["layout"] == "packed" and shown["packed"]["layout"] == "rows"
          and shown["parameters"]["total"] == 30321440, shown)
    empty = scratch / "empty"
    empty.mkdir()
    check("an empty directory will do", run("convert", packed, empty).returncode == 0)
    check("it holds the same", filecmp.cmp(empty / "layer-003.bin", packed / "layer-003.bin",
                                           shallow=False))


def check_damage(scratch):
    packed, hurt = scratch / "pebble", scratch / "hurt"

    def damage(what, sentence, name, change):
        shutil.rmtree(hurt, ignore_errors=True)
        shutil.copytree(packed, hurt)
        path = hurt / name
        path.write_bytes(change(path.read_bytes()))
        refused(what, 1, sentence, "logits", "-m", hurt, "--tokens", "1,2,3")

    damage("cut off", "layer-002.bin has 1000000 bytes, 1835008 were expected: it was cut off",
           "layer-002.bin", lambda b: b[:1000000])
    damage("a changed bit", "the checksum differs", "resident.bin",
           lambda b: b[:1000] + bytes([b[1000] ^ 1]) + b[1001:])
    damage("another version", "has version 9 of the packed layout, this program reads version 1",
           "moeflux.json", lambda b: b.replace(b'"version": 1', b'"version": 9'))
    damage("another layout", 'the layout "panels16" is not known, this program reads "rows"',
           "moeflux.json", lambda b: b.replace(b'"rows"', b'"panels16"', 1))
    damage("half a manifest", "is not valid JSON", "moeflux.json", lambda b: b[:30000])


def check_checksums(scratch):
    """A changed bit of every expert of layer 3: found when one is read, unless none of them is read."""
    hurt = scratch / "hurt"
    shutil.rmtree(hurt)
    shutil.copytree(scratch / "pebble", hurt)
    data = bytearray((hurt / "layer-003.bin").read_bytes())
    stride = len(data) // 64
    for expert in range(64):
        data[expert * stride + 5000] ^= 2
    (hurt / "layer-003.bin").write_bytes(data)
    for reader in "threads", "io_uring":
        options = ["logits", "-m", hurt, "--tokens", "1,2,3", "--reader", reader]
        if run("logits", "--tokens", "1", "--reader", reader).returncode:
            print(f"    {reader}: not here")
            continue
        done = run(*options)
        check(f"a changed bit of an expert, {reader}", done.returncode == 1 and re.fullmatch(
            r"moeflux: layer 3, expert \d+: .*/layer-003.bin is damaged at byte \d+: the "
            r"checksum does not match\n", done.stderr), done)
        check(f"without checksums, {reader}", run(*options, "--no-checksums").returncode == 0)


def check_report(scratch):
    """Perplexity before and after: the same without requantising, worse with fewer bits."""
    text = scratch / "text"
    text.write_bytes(TEXT.read_bytes()[:3000])
    values = []
    for options in [], ["--rest", "q8"], ["--experts", "q3"], ["--experts", "q2"]:
        out = scratch / "report"
        shutil.rmtree(out, ignore_errors=True)
        done = run("convert", PEBBLE, out, "--report", text, "--verify", *options)
        lines = dict((line.split()[0], line.split()[1:]) for line in done.stdout.splitlines()[1:])
        if set(lines) != {"bytes", "tokens", "nll", "perplexity"}:
            return check("report", False, done)
        values.append([float(v) for v in lines["perplexity"]])
        print("    " + " ".join(options), lines["perplexity"], lines["bytes"])
    check("exact", values[0][0] == values[0][1], values)
    check("nothing to do for q8: all is 4 or 8 bits already", values[1][0] == values[1][1], values)
    check("3 bits cost less than 2", values[0][1] < values[2][1] < values[3][1], values)


# ---------------------------------------------------------------- endurance


def check_progress(source, out):
    """On a terminal there is a bar, and it is gone afterwards."""
    master, slave = pty.openpty()
    child = subprocess.Popen([PROGRAM, "convert", source, out, "--experts", "q3", "-t", "1"],
                             stderr=slave, stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 4096):
            seen += piece
    except OSError:
        pass
    out_text = child.communicate()[0]
    check("a bar on the terminal", re.search(rb"converting \d+/\d+ ", seen) and
          b"MiB/s" in seen and b"note: " in seen and out_text == b"", seen[-600:])


def check_kills(source, whole, out):
    """kill -9 at random moments; the last run makes the same bytes."""
    random.seed(7)
    kills = 0
    started = time.monotonic()
    subprocess.run([PROGRAM, "convert", source, whole], check=True)
    seconds = time.monotonic() - started
    for attempt in range(60):
        child = subprocess.Popen([PROGRAM, "convert", source, out], stderr=subprocess.DEVNULL)
        try:
            child.wait(timeout=random.uniform(0.05, 0.4) * seconds)
        except subprocess.TimeoutExpired:
            child.kill()
        if child.wait() == 0:
            break
        kills += 1
        if out.exists():
            check("nothing under the final name before it is whole", same(out, whole))
    check(f"{kills} kills, then the same bytes", kills >= 2 and out.exists() and same(out, whole),
          (kills, out.exists()))


def check_memory(scratch, small, large):
    peaks = {}
    for name, source in ("small", small), ("large", large):
        for options in (), ("--experts", "q2", "--rest", "q8", "-t", "2"):
            out = scratch / "memory"
            shutil.rmtree(out, ignore_errors=True)
            peaks[name, bool(options)] = peak_kib("convert", source, out, *options)
            shutil.rmtree(out)
    sizes = [path.stat().st_size >> 20 for path in (small, large)]
    print(f"    peak of the resident set in KiB, for files of {sizes} MiB: {peaks}")
    for requantised in False, True:
        growth = peaks["large", requantised] - peaks["small", requantised]
        check(f"memory does not grow with the model (requantising: {requantised})",
              growth < 8 << 10 and peaks["large", requantised] < 64 << 10, peaks)


def check_full_disk(scratch):
    """A small file system of our own, where the kernel lets us have one."""
    place = scratch / "disk"
    place.mkdir()
    script = (f"mount -t tmpfs -o size=8m none {place} || exit 77; "
              f"'{PROGRAM}' convert '{PEBBLE}' {place}/p; echo code $?; ls {place}; "
              f"mount -o remount,size=64m {place} && '{PROGRAM}' convert '{PEBBLE}' {place}/p && "
              f"cmp {place}/p/moeflux.json {scratch}/pebble/moeflux.json && echo same")
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
                          capture_output=True, text=True)
    if done.returncode == 77 or "unshare" in done.stderr:
        return print("a full disk: SKIPPED, no file system of our own can be mounted here")
    check("a full disk is noticed before anything is written, and then gone on with",
          done.stdout == "code 1\np.partial\nsame\n" and "make room and run it again" in done.stderr,
          (done.stdout, done.stderr))


def main():
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as scratch:
        scratch = pathlib.Path(scratch)
        check_usage(scratch)
        check_pebble(scratch)
        check_damage(scratch)
        check_checksums(scratch)
        check_report(scratch)
        check_full_disk(scratch)
        small = random_gguf(scratch / "small.gguf", "--layers", 2, "--experts", 8)
        large = random_gguf(scratch / "large.gguf", "--layers", 4, "--experts", 16)
        check_memory(scratch, small, large)
        check_progress(large, scratch / "shown")
        shutil.rmtree(scratch / "shown")
    # Kills where syncing takes its time.
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        source = random_gguf(scratch / "source.gguf", "--layers", 4, "--experts", 8)
        check_kills(source, scratch / "whole", scratch / "killed")
    sys.exit(1 if failed else 0)


main()
