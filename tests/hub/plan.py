#!/usr/bin/env python3
"""plan.py PROGRAM SOURCE: `moeflux plan NAME` of models that lie on a hub: only headers are read, a plan
is that of the files themselves, and every failure is one sentence that leaves nothing behind."""
import json
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import time

from hub import Fault, File, Hub, status
from support import Place, check, finish

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "tools"))
import make_random_gguf as maker  # noqa: E402

hub = Hub()
place = Place(PROGRAM, hub)
work, scratch = place.scratch / "files", place.scratch / "tmp"
work.mkdir()
scratch.mkdir()


class Sparse(File):
    """A head, and zeros up to the size, which take no disk and are never read."""
    count = 0

    def __init__(self, head, size):
        path = work / f"sparse-{Sparse.count}"
        Sparse.count += 1
        with open(path, "wb") as file:
            file.write(head)
            file.truncate(size)
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        self.lfs, self.hash = True, f"{Sparse.count:064x}"


def sparse_gguf(preset, quant="q4_k_m"):
    m = maker.PRESETS[preset]
    todo = maker.plan(m, quant)
    head, data = maker.head_of(maker.metadata(m, quant, preset, 32), todo, 32)
    return head, len(head) + data


def plan(*words, **more):
    more.setdefault("TMPDIR", str(scratch))
    return place.run("plan", "--json", *words, XDG_CACHE_HOME=str(place.scratch / "cache"), **more)


def planned(what, *words, **more):
    done = plan(*words, **more)
    check(f"{what}: a plan", done.returncode == 0 and done.stderr == "", done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def nothing_left(what):
    check(f"{what}: nothing is left", not list(scratch.iterdir()) and not list(place.cache.glob("*")),
          place.everything())


def refused(what, part, *words, code=1, **more):
    done = plan(*words, **more)
    good = done.returncode == code and part in done.stderr and not done.stdout
    check(what, good and done.stderr.count("\n") == 1, (done.returncode, done.stderr))
    nothing_left(what)


# ----------------------------------------------------------- a checkpoint of 400 GB

head, size = sparse_gguf("deepseek-v3")
check("the checkpoint has 400 GB", size > 400e9, size)
hub.add("org/large-GGUF", {
    "large-Q4_K_M.gguf": Sparse(head, size), "large-Q8_0.gguf": Sparse(b"", int(size * 1.76)),
    "large-Q2_K.gguf": Sparse(b"", int(size * 0.6)), "large-IQ1_S.gguf": Sparse(b"", size // 3)})
LARGE = ("org/large-GGUF:Q4_K_M", "--memory", "64G,500G", "-t", "2")
first = planned("400 GB", *LARGE)
taken = []
while len(taken) < 3 or (min(taken) >= 3 and len(taken) < 20):  # the rest: other work on the machine
    hub.reset()
    begin = time.time()
    again = planned("400 GB, again", *LARGE)
    taken.append(time.time() - begin)
    sent = sum(r.sent for r in hub.requests)
    check("less than 16 MB were transferred", 0 < sent < 16e6, sent)
check("it takes less than 3 s with figures that were measured before", min(taken) < 3, taken)
print("seconds:", " ".join(f"{one:.2f}" for one in taken))
check("the same plan", again == first)
streamed, resident = first["plans"]
check("64G stream", streamed["expert_mode"] == "streamed" and streamed["fits"], streamed)
check("500G hold all", resident["expert_mode"] != "streamed" and resident["fits"], resident)
check("its name", first["name"] == "org/large-GGUF:Q4_K_M" and first["family"] == "deepseek_v3", first)
rows = {row["label"]: row for row in first["quantisations"]}
check("all quantisations", list(rows) == ["IQ1_S", "Q2_K", "Q4_K_M", "Q8_0"], list(rows))
check("IQ1_S is not run", not rows["IQ1_S"]["runs"])
known = streamed["generate"]["least"]["tokens_per_second"]
check("the planned one is estimated as it is planned",
      abs(rows["Q4_K_M"]["generate"]["least_tokens_per_second"] / known - 1) < 0.05,
      (known, rows["Q4_K_M"]))
check("smaller ones are faster",
      rows["Q2_K"]["generate"]["least_tokens_per_second"] > known >
      rows["Q8_0"]["generate"]["least_tokens_per_second"])
check("and have more experts in memory",
      rows["Q2_K"]["experts_in_memory"] > rows["Q4_K_M"]["experts_in_memory"])
table = place.run("plan", *LARGE, TMPDIR=str(scratch), XDG_CACHE_HOME=str(place.scratch / "cache"))
check("as a table", "<- the one above" in table.stdout and "of headers" in table.stdout, table.stdout)
nothing_left("400 GB")

# --------------------------------------------------- the same as of the files themselves

pebble = SOURCE / "models" / "pebble"
FILES = {p.name: p.read_bytes() for p in pebble.iterdir() if not p.name.endswith((".md", ".tsv"))}
hub.add("org/pebble", FILES)
ONE = ("--memory", "1G", "-t", "1")


def same(what, name, path):
    there, here = planned(what, name, *ONE), planned(what, str(path), *ONE)
    check(f"{what}: as of the files",
          there.get("plans") and there["plans"][0]["memory"] == here["plans"][0]["memory"] and
          there["disk_bytes"] == here["disk_bytes"], (there, here))
    nothing_left(what)


same("safetensors", "org/pebble", pebble)
subprocess.run([sys.executable, SOURCE / "tools" / "make_random_gguf.py", "--preset", "tiny-qwen3moe",
                "--split", "3", "--out", work / "tiny.gguf"], check=True, stderr=subprocess.DEVNULL)
hub.add("org/split-GGUF", {f"Q4_K_M/{p.name.replace('tiny', 'tiny-Q4_K_M')}": p.read_bytes()
                           for p in sorted(work.glob("tiny-*.gguf"))})
same("a split model in a directory", "org/split-GGUF", next(iter(sorted(work.glob("tiny-*.gguf")))))
hub.add("org/choice-GGUF", {f"tiny-{quant.upper()}.gguf": Sparse(*sparse_gguf("tiny-qwen3moe", quant))
                            for quant in ("q2_k", "q4_k_m", "q8_0", "f16")})
for memory in ((), ("--memory", "1G"), ("--memory", "100K")):
    listed = place.run("pull", "-n", "org/choice-GGUF", *memory).stdout.splitlines()
    pulled = [line.split()[0] for line in listed if "<- would be pulled" in line]
    one = planned(f"without a quantisation {memory}", "org/choice-GGUF", "-t", "1", *memory)
    check("the one that would be pulled", [one.get("name")] == ["org/choice-GGUF:" + pulled[0]],
          (one.get("name"), listed))
for what, more in (("experts", ("--memory", "8M")), ("weights", ("--memory", "100K")),
                   ("the context", ("--memory", "1G", "-c", "16000000"))):
    refusal = planned(f"no room for {what}", "org/choice-GGUF:Q4_K_M", "-t", "1", *more)
    fits = {row["label"]: row["fits"] for row in refusal["quantisations"]}
    check(f"no room for {what}: in the table, too", not refusal["plans"][0]["fits"]
          and not fits["Q4_K_M"] and (what != "the context" or not any(fits.values())), refusal)
nothing_left("a choice")
text = "head of a text that is no model" * 100000
hub.add("org/noise-GGUF", {"noise-Q4_K_M.gguf": os.urandom(3 << 20),
                           "noise-Q8_0.gguf": b"GGUF" + text.encode()})

# ------------------------------------------------------------------------- what goes wrong

for part, count in (("/api/", 1), ("/resolve/", 2), ("", 3)):
    hub.reset()
    hub.faults.append(Fault(part, status(503), times=count))
    planned(f"503 of \"{part}\"", "org/pebble", *ONE)
hub.reset()
hub.cut = 0.2
planned("cut connections", "org/pebble", *ONE)
hub.reset()
hub.ranges = False
refused("a server without ranges", "range that was asked for", "org/pebble", *ONE)
hub.reset()
hub.faults.append(Fault("/resolve/", status(503), times=1000))
refused("503 that stays", "503", "org/pebble", *ONE)
hub.reset()
refused("a name that is not there", "no public model org/none", "org/none")
refused("a quantisation that is not there", "Q3_K", "org/large-GGUF:Q3_K_M")
refused("noise", "noise", "org/noise-GGUF:Q4_K_M")
refused("noise that begins as a GGUF", "noise", "org/noise-GGUF:Q8_0")
refused("offline", "HF_HUB_OFFLINE", "org/pebble", HF_HUB_OFFLINE="1")
done = plan("org/pebble", *ONE, TMPDIR="/nonexistent/place")
check("no temporary directory", done.returncode == 1 and "/nonexistent/place" in done.stderr,
      done.stderr)
broken = dict(FILES)
shard = "model-00001-of-00002.safetensors"
broken[shard] = (1 << 60).to_bytes(8, "little") + broken[shard][8:]
hub.add("org/broken", broken)
refused("a header of 2^60 bytes", "no safetensors file", "org/broken", *ONE)
wide = (40 << 20).to_bytes(8, "little")
hub.add("org/wide", {**FILES, shard: Sparse(wide, 64 << 20)})
refused("a header of 40 MiB", "15 MB", "org/wide", *ONE)
hub.reset()
hub.pace = 2000
child = place.start("plan", "org/pebble", *ONE, TMPDIR=str(scratch))
while not list(scratch.iterdir()):
    time.sleep(0.01)
child.send_signal(signal.SIGINT)
child.communicate(timeout=30)
check("Ctrl-C", child.returncode == 130, child.returncode)
nothing_left("Ctrl-C")
hub.reset()
child = subprocess.Popen([PROGRAM, "plan", "org/pebble", *ONE], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=place.environment(TMPDIR=str(scratch),
                                               XDG_CACHE_HOME=str(place.scratch / "unmeasured")))
while len([r for r in hub.requests if "/resolve/" in r.path]) < 3:
    time.sleep(0.01)
time.sleep(0.5)
child.send_signal(signal.SIGINT)
said = child.communicate(timeout=30)
check("Ctrl-C while the machine is measured", child.returncode == 130 and not said[0],
      (child.returncode, said))
nothing_left("Ctrl-C while the machine is measured")
hub.close()
finish()
