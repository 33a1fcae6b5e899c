"""moeflux doctor on the machine that runs the test: every check says something, and each finding has
its cost and its fix.

doctor.py PROGRAM"""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

program = sys.argv[1]
failed = 0


def expect(condition, what):
    global failed
    if not condition:
        print(f"FAILED: {what}")
        failed += 1


def doctor(*words, before=None):
    return subprocess.run([program, "doctor", *words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, preexec_fn=before)


def shown(*words, before=None):
    done = doctor("--json", *words, before=before)
    expect(done.returncode == 0 and done.stderr == "", f"{words}: {done.stderr}")
    return {f["check"]: f for f in json.loads(done.stdout)["findings"]}


findings = shown()
for check in ("kernel sets", "threads", "memory", "huge pages", "locked memory", "io_uring",
              "direct I/O", "disk", "GPU"):
    expect(check in findings, f"{check} is checked")
for check, finding in findings.items():
    expect(finding["level"] in ("ok", "note", "warning") and finding["found"], check)
    whole = bool(finding.get("cost")) and bool(finding.get("fix"))
    expect(whole == (finding["level"] != "ok"), f"{check}: what is not ok has a cost and a fix")
expect("generic" in findings["kernel sets"]["found"], "kernel sets are listed")
expect("GB/s" in findings["disk"]["found"], "the disk is measured")
expect("disk" not in shown("--no-speed"), "or not")

# Limits of this process: a real cause and its finding.
cores = os.sched_getaffinity(0)
if len(cores) > 1:
    one = shown("--no-speed", before=lambda: os.sched_setaffinity(0, {min(cores)}))
    expect("1" in one["threads"]["found"].split(), f"affinity: {one['threads']}")
    expect(one["threads"]["level"] != "ok", "fewer CPUs than there are")
with open(program, "rb") as file:
    image = file.read()
if b"__asan_init" in image or b"__tsan_init" in image:
    print("SKIPPED: a sanitizer cannot start within a limit of addresses")
else:
    limited = shown("--no-speed",
                    before=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)))
    expect("8.0 GiB" in limited["address space"]["found"], "a limit of addresses")

# Where no model is the rest is looked at.
with tempfile.TemporaryDirectory() as away:
    alone = subprocess.run([shutil.copy(program, away), "doctor", "--json"], capture_output=True,
                           text=True, stdin=subprocess.DEVNULL)
    checks = [f["check"] for f in json.loads(alone.stdout or '{"findings": []}')["findings"]]
    expect(alone.returncode == 0 and "memory" in checks and "disk" not in checks,
           f"without the embedded model: {alone.stderr}")
    expect("no disk is looked at" in alone.stderr, "which is said")
    expect(doctor(away + "/none.gguf").returncode == 1, "a model that is named must be there")

table = doctor("--no-speed").stdout
for check in ("kernel sets", "io_uring", "GPU"):
    expect(f" {check} " in table, f"{check} in the table")
expect("\033" not in table, "no colours in a pipe")
for words, code, part in ((("/nonexistent/model",), 1, "/nonexistent/model"),
                          (("a", "b"), 2, "what is"), (("--jsn",), 2, "--json")):
    done = doctor(*words)
    expect(done.returncode == code and part in done.stderr and done.stdout == "", f"{words}")
sys.exit(failed > 0)
