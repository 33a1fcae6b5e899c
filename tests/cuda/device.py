#!/usr/bin/env python3
"""What needs an NVIDIA device: goldens, batches, phases, drift and budgets with --backend cuda.

    device.py BUILD [LOG]

BUILD has the program, its plugin and the test programs.  Every check is a process of its own; the last
line is `N passed, N failed, N skipped`, the same goes to LOG.  Without a device nothing is checked:
status 77.  COMMIT names the commit where git does not know it."""
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

build = Path(sys.argv[1]).resolve()
log = open(sys.argv[2], "w") if len(sys.argv) > 2 else None
source = Path(os.environ.get("MOEFLUX_SOURCE", Path(__file__).resolve().parents[2]))
environment = {**os.environ, "MOEFLUX_SOURCE": str(source)}
program = str(build / "moeflux")
own_cases = source / "tests/fixtures/golden"


def say(text):
    print(text, flush=True)
    if log:
        print(text, file=log, flush=True)


def run(*words, seconds=300):
    return subprocess.run([str(word) for word in words], capture_output=True, env=environment,
                          stdin=subprocess.DEVNULL, timeout=seconds)


def tests(name):
    return build / "tests/golden" / name


def cases():
    fixtures = environment.get("MOEFLUX_FIXTURES")
    places = [own_cases] + [Path(fixtures, part) for part in ("golden", "golden2") if fixtures]
    return sorted({case.name for place in places if place.is_dir() for case in place.iterdir()
                   if (case / "golden.json").exists()})


def passes(*words):
    """The end of what a failing program printed, or None."""
    done = run(*words)
    if done.returncode == 0:
        return None
    return (done.stdout + done.stderr).decode(errors="replace")[-1500:] + f"status {done.returncode}"


def logits(*options):
    done = run(program, "logits", "--all", "--tokens", ",".join(str(1 + 7 * i % 200) for i in range(70)),
               "-o", "/dev/stdout", *options)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    return hashlib.sha256(done.stdout).hexdigest()


def same_bits(model, *ways):
    """Logits of a prompt are the same in all ways."""
    found = {way: logits("-m", model, "--backend", "cuda", *way.split()) for way in ways}
    if len(set(found.values())) == 1:
        return None
    return "\n".join(f"{digest[:12]} {way or '(plain)'}" for way, digest in found.items())


def commit():
    if "COMMIT" in environment:
        return environment["COMMIT"]
    try:
        done = run("git", "-C", source, "rev-parse", "--short", "HEAD")
        found = done.stdout.decode().strip()
    except OSError:
        found = ""
    return found or "unknown"


def describe():
    """The device with its driver, as doctor names it."""
    done = run(program, "doctor", "--json", "--no-speed", source / "models/pebble")
    try:
        findings = json.loads(done.stdout)["findings"]
        return next(finding["found"] for finding in findings if finding["check"] == "GPU")
    except (ValueError, StopIteration):
        return f"doctor failed: {done.stderr.decode(errors='replace').strip()} (status {done.returncode})"


def checks():
    yield "products and experts of every format", lambda: passes(build / "tests/cuda/products")
    yield "attention of every cache format", lambda: passes(build / "tests/cuda/attention")
    yield "latent attention", lambda: passes(build / "tests/cuda/latent")
    yield "the delta rule", lambda: passes(build / "tests/cuda/delta")
    yield "routes, buckets and sums", lambda: passes(build / "tests/cuda/routes")
    yield "GGUF of every family and format", lambda: passes(
        sys.executable, source / "tests/cuda/gguf.py", program, source)
    for case in cases():
        yield f"golden {case}", lambda case=case: passes(tests("golden"), case, "cuda")
    own = sorted(case.name for case in own_cases.iterdir() if (case / "golden.json").exists())
    for case in own:
        path = f"tests/fixtures/golden/{case}"
        for kv in ("f16", "q8"):
            yield f"batched {case} {kv}", lambda path=path, kv=kv: passes(
                tests("batched"), path, 24, kv, "cuda")
        yield f"phases {case}", lambda path=path: passes(tests("phases"), path, "f16", "cuda")
        yield f"budgets {case}", lambda path=path: same_bits(
            source / path, "", "--prompt-chunk 16", "--memory 64M", "--vram 700M --prompt-chunk 3")
    for phase in ("prompt", "decode"):
        yield f"drift {phase}", lambda phase=phase: passes(tests("drift"), phase, 1, "f16", "cuda")


def main():
    done = run(program, "generate", "-m", source / "models/pebble", "--backend", "cuda",
               "--tokens", "1,2,3", "-n", "2", "--ids")
    if done.returncode != 0:
        say(f"SKIPPED: {done.stderr.decode().strip()}")
        return 77
    passed, failed, skipped = 0, 0, 0
    say(f"commit {commit()}, {describe()}")
    if not environment.get("MOEFLUX_FIXTURES"):
        say("SKIPPED: further golden cases, since MOEFLUX_FIXTURES names no directory")
        skipped += 1
    for name, check in checks():
        begin = time.monotonic()
        try:
            problem = check()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        passed, failed = passed + (problem is None), failed + (problem is not None)
        say(f"{'ok    ' if problem is None else 'FAILED'} {time.monotonic() - begin:6.1f} s  {name}")
        if problem:
            say("    " + problem.replace("\n", "\n    "))
    say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


sys.exit(main())
