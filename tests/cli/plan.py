"""moeflux plan: what it says about the embedded model, what it keeps, what it refuses.

plan.py PROGRAM"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

program = sys.argv[1]
routes = os.path.join(os.environ["MOEFLUX_SOURCE"], "tests/fixtures/pebble/heldout.routes")
home = tempfile.TemporaryDirectory()
kept = os.path.join(home.name, "moeflux", "rates.json")
failed = 0


def expect(condition, what):
    global failed
    if not condition:
        print(f"FAILED: {what}")
        failed += 1


def plan(*words, cache=home.name):
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    return subprocess.run([program, "plan", *words], capture_output=True, text=True,
                          env=environment, stdin=subprocess.DEVNULL)


def shown(*words):
    done = plan("--json", *words)
    expect(done.returncode == 0 and done.stderr == "", f"{words}: {done.stderr}")
    return json.loads(done.stdout)


first = shown("--memory", "1G,230M,1M")
rates = open(kept).read()
expect(os.listdir(os.path.dirname(kept)) == ["rates.json"], "nothing temporary is left")
expect(first["family"] == "qwen3_5_moe" and first["name"] == "pebble", "the model")
machine = first["machine"]
for name in ("memory_bytes_per_second", "matrix_flops", "layer_seconds", "disk_bytes_per_second"):
    expect(machine[name] > 0, f"the machine's {name}")
resident, small, none = first["plans"]
expect(resident["fits"] and resident["expert_mode"] == "resident", "1G holds all")
expect(small["fits"] and small["memory"]["experts_in_all"] == 512, "230M")
expect(not none["fits"] and "memory" in none["problem"], "1M is refused with a reason")
for answer in (resident["generate"]["least"], resident["generate"]["most"], resident["prompt"]):
    parts = answer["parts"]
    expect(answer["tokens_per_second"] > 0 and parts["disk_seconds"] == 0, "nothing is read")
    total = sum(parts.values())
    expect(abs(answer["seconds"] - total) < 1e-6 + 1e-6 * total, "the parts add up")
expect(resident["generate"]["least"]["hit_rate"] == 1, "all experts are in memory")

second = shown("--memory", "1G,230M,1M")
expect(second == first, "figures that are kept give the same plan")
expect(open(kept).read() == rates, "and the file stays")
expect(shown("--memory", "1G", "-d", "2000")["plans"][0]["generate"]["least"]["seconds"] >
       resident["generate"]["least"]["seconds"], "a long context takes longer")
expect(shown("--memory", "1G", "-p", "64")["plans"][0]["prompt"]["tokens"] == 64, "the prompt")
text = plan("--memory", "1G").stdout
expect(re.search(r"measured \d{4}-\d\d-\d\d \d\d:\d\d.*; --measure does it again\n", text), text)
busy = json.loads(rates)
for one in busy["machines"].values():
    one.update(measured=86400 * 366, load=1000.0)
with open(kept, "w") as file:
    json.dump(busy, file)
text = plan("--memory", "1G").stdout
expect("measured 1971-01-0" in text and "with other work (load 1000.0)" in text, text)
begun = time.time()
again = shown("--memory", "1G", "--measure")["machine"]
expect(begun - 1 <= again["measured"] <= time.time() and again["load"] < 1000, "the new moment")
expect(open(kept).read() != rates, "--measure measures again")

# As little memory as still fits: experts are streamed.
low, high = 1 << 20, 1 << 30
while high - low > 1 << 20:
    middle = (low + high) // 2
    found = shown("--memory", str(middle))["plans"][0]
    if found["fits"]:
        high = middle
    else:
        low = middle
streamed = shown("--memory", str(high))["plans"][0]
expect(streamed["expert_mode"] == "streamed", "streamed")
share = streamed["memory"]["experts_in_memory"] / 512
least, most = streamed["generate"]["least"], streamed["generate"]["most"]
expect(abs(least["hit_rate"] - share) < 1e-9, "the least hits are the share in memory")
expect(abs(most["hit_rate"] - share ** 0.7) < 1e-9, "a trained router has more")
expect(least["disk_bytes"] > most["disk_bytes"] > 0, "which reads less")
expect(least["parts"]["disk_seconds"] > 0, "from a disk of known speed")
# In the least memory a cache cannot keep an expert until its next use; with some more it must.
roomier = shown("--memory", str(high + (4 << 20)), "--routes", routes)["plans"][0]
replayed = roomier["generate"]
share = roomier["memory"]["experts_in_memory"] / 512
expect(replayed["recorded_routes"] and replayed["least"] == replayed["most"], "no range then")
expect(share <= replayed["least"]["hit_rate"] < 1, f"hits on recorded routes: {replayed} of {share}")

text = plan("--memory", "1G").stdout
for part in ("in memory", "generating", "tokens/s after 0 others; bound by", "a prompt",
             "weights of every token"):
    expect(part in text, f"\"{part}\" in the table")
text = plan("--memory", str(high)).stdout
expect("come from disk" in text and "…" in text, "a range")
expect("not possible" in plan("--memory", "1M").stdout, "a plan that does not fit")

for words, code, part in (
        (("--memory", "8X"), 2, "is not a size"), (("--memory", "0"), 2, "is not a size"),
        (("--memory", ""), 2, "there is no size"), (("--memory", ",".join(["1G"] * 17)), 2, "16"),
        (("/nonexistent/model",), 1, "/nonexistent/model"), (("-p", "0"), 2, "outside"),
        (("--kernels", "abacus"), 1, "abacus"), (("--routes", program), 1, "trace"),
        (("--kv", "f15"), 2, "f16"), (("one", "two"), 2, "what is")):
    done = plan(*words)
    expect(done.returncode == code and part in done.stderr and done.stdout == "" and
           done.stderr.startswith("moeflux"), f"{words}: {done.returncode} {done.stderr}")

with open(kept, "w") as file:
    file.write("no JSON")
expect(shown("--memory", "1G")["plans"][0]["fits"], "a damaged file is measured anew")
done = plan("--memory", "1G", cache="/proc/nowhere")
expect(done.returncode == 0 and "is not kept" in done.stderr, "a place that cannot be written")
home.cleanup()
sys.exit(failed > 0)
