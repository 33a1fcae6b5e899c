#!/usr/bin/env python3
"""cache.py PROGRAM: `list`, `show` and `rm`, caches that other tools have filled, and the question before a
download."""
import json
import os
import pathlib
import re
import time

from cases import FILES, MIB, MODEL, NAME, fresh, on_terminal, pulled, refused, run_all
from hub import COMMIT, Fault
from support import check, random_bytes

hub = None  # of the process that runs a test


def check_commands():
    place = fresh()
    for quantisation in ("Q4_K_M", "BF16"):
        place.run("pull", f"{NAME}:{quantisation}")
    done = place.run("list")
    check("list", NAME in done.stdout and "Q4_K_M" in done.stdout and "BF16" in done.stdout,
          done.stdout)
    listed = json.loads(place.run("list", "--json").stdout)
    check("list --json", [m["quantisation"] for m in listed[0]["models"]] == ["BF16", "Q4_K_M"]
          and listed[0]["models"][1]["bytes"] == len(MODEL), listed)
    done = place.run("show", NAME)
    check("show", "some-Q4_K_M.gguf" in done.stdout and COMMIT in done.stdout, done.stdout)
    shown = json.loads(place.run("show", NAME, "--json").stdout)
    check("show --json", len(shown["files"]) == 3 and shown["commit"] == COMMIT, shown)
    done = place.run("show", NAME, "--hub")
    check("show --hub", "Q8_0" in done.stdout and done.stdout.count(", here") == 2, done.stdout)
    done = place.run("inspect", NAME)
    check("a name that means several", "as in " + NAME + ":BF16" in done.stderr, done.stderr)
    done = place.run("inspect", NAME + ":Q4_K_M")
    check("one of them is found", "some-Q4_K_M.gguf" in done.stderr, done.stderr)

    everything = place.everything()
    done = place.run("rm", NAME)
    check("rm without a yes", done.returncode == 1 and f"`moeflux rm --yes {NAME}`" in done.stderr
          and place.everything() == everything, done.stderr)
    # A second version shares the blob of Q4_K_M.
    hub.add(NAME, FILES, commit="b" * 40)
    place.run("pull", NAME + ":Q4_K_M")
    blob = hub.repositories[NAME].files["some-Q4_K_M.gguf"].hash
    old = place.folder(NAME) / "snapshots" / COMMIT / "some-Q4_K_M.gguf"
    check("two versions have one blob", old.samefile(place.snapshot(NAME) / "some-Q4_K_M.gguf"))
    done = place.run("rm", NAME + ":BF16", "--yes")
    check("rm of one quantisation", done.returncode == 0 and "2.0 MiB are free" in done.stderr
          and [p.name for p in (place.folder(NAME) / "blobs").iterdir()] == [blob], done.stderr)
    old.unlink()
    (old.parent / "kept-Q4_0.gguf").symlink_to("../../blobs/" + blob)
    done = place.run("rm", NAME + ":Q4_K_M", "--yes")
    check("a blob with another link stays", done.returncode == 0 and "0 bytes" in done.stderr
          and (old.parent / "kept-Q4_0.gguf").read_bytes() == MODEL, done.stderr)
    outside = place.scratch / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (old.parent / "link").symlink_to(outside)
    done = place.run("rm", NAME, "--yes")
    check("rm of all", done.returncode == 0 and not place.folder(NAME).exists(), done.stderr)
    check("follows no link", (outside / "file").exists())
    done = place.run("rm", NAME, "--yes")
    check("rm of nothing", done.returncode == 1 and "is not in the cache" in done.stderr)
    for words in (["show", NAME], ["rm", NAME, "--yes"]):
        done = place.run(*words, HF_HOME="", HOME="")
        check(f"{words[0]} where no cache is known", done.returncode == 1
              and "set HF_HOME" in done.stderr, done.stderr)
    hub.add(NAME, FILES)


def check_rm():
    """Exactly what the name says, and what the question has shown."""
    repository = hub.add("org/rm", {"rm-Q4_K_M.gguf": random_bytes(17, 9000),
                                    "rm-Q4_K_S.gguf": random_bytes(18, 8000)})
    place = fresh()
    place.run("pull", "org/rm:Q4_K_M")
    repository.commit = "c" * 40
    place.run("pull", "org/rm:Q4_K_S")
    before = place.everything()
    for name in ("Q4", "Q4_K", "rm", "Q8_0"):
        done = place.run("rm", "org/rm:" + name, "--yes")
        check(f"rm of {name}, which is no quantisation of it", done.returncode == 1
              and done.stderr.count("\n") == 1 and place.everything() == before, done.stderr)
    done = place.run("rm", "org/rm:Q4_K_M")
    check("rm names the files", "this removes rm-Q4_K_M.gguf\n" in done.stderr, done.stderr)
    done = place.run("rm", "org/rm:q4_k_s", "--yes")
    check("rm of a label, whatever its case", done.returncode == 0
          and [p.name for p in place.folder("org/rm").glob("snapshots/*/*")] == ["rm-Q4_K_M.gguf"],
          done.stderr)
    place.run("rm", "org/rm:Q4_K_M", "--yes")
    done, listed = place.run("list"), json.loads(place.run("list", "--json").stdout)
    check("after the last quantisation nothing is listed", not done.stdout and not listed
          and "there is no model" in done.stderr, (done, listed))

    place = fresh()
    place.run("pull", "org/rm:Q4_K_M")
    for name in ("org/rm", "org/rm:Q4_K_M"):
        link = place.snapshot("org/rm") / ("other-Q8_0" + name.replace("/", "-") + ".gguf")

        def change(asked):
            link.symlink_to(os.readlink(place.snapshot("org/rm") / "rm-Q4_K_M.gguf"))
            os.write(asked, b"y\n")
        code, shown = on_terminal(place, ["rm", name], change)
        check(f"rm of {name}, changed since the question", code == 1 and "has changed" in shown
              and link.exists() and (link.parent / "rm-Q4_K_M.gguf").exists(), shown)


def check_left():
    """A split model of which one part is verified and the other one did not come."""
    parts = [f"left-Q4_0-0000{i}-of-00002.gguf" for i in (1, 2)]
    hub.add("org/left", {part: random_bytes(30 + i, 2 * MIB) for i, part in enumerate(parts)})
    place = fresh()
    first, second = (hub.repositories["org/left"].files[part].hash for part in parts)

    def never(handler, request):
        """Once the other part has its name."""
        while not (place.folder("org/left") / "blobs" / first).exists():
            time.sleep(0.01)
        handler.answer(404, b"")
    hub.faults = [Fault(second, never, -1, "cdn")]
    done = place.run("pull", "org/left")
    check("a part did not come", done.returncode == 1 and "status 404" in done.stderr, done.stderr)
    for words in (["list"], ["show", "org/left"]):
        done = place.run(*words)
        check(f"{words[0]} counts the other one", "2.0 MiB" in done.stdout, done.stdout)
    listed = json.loads(place.run("list", "--json").stdout)[0]["incomplete_bytes"]
    check("list --json, too", listed == 2 * MIB, listed)
    done = place.run("rm", "org/left:Q4_0", "--yes")
    check("rm of a quantisation says how all of it is removed", done.returncode == 1
          and "without a quantisation" in done.stderr, done.stderr)
    (place.folder("org/left") / "blobs" / (second + ".moeflux.incomplete")).unlink()
    done = place.run("list")
    check("list of the part alone", "2.0 MiB  `moeflux pull` goes on" in done.stdout, done.stdout)
    done = place.run("rm", "org/left")
    check("the question of rm counts it", "(2.0 MiB)" in done.stderr, done.stderr)
    done = place.run("rm", "org/left", "--yes")
    check("and so does its end", "2.0 MiB are free" in done.stderr
          and not place.folder("org/left").exists(), done.stderr)


def check_other_tools():
    """A cache that huggingface_hub has filled: its blobs are not downloaded again."""
    place = fresh()
    file = hub.repositories[NAME].files["some-Q4_K_M.gguf"]
    blobs = place.folder(NAME) / "blobs"
    blobs.mkdir(parents=True)
    (blobs / file.hash).write_bytes(file.data)
    (blobs / (file.hash + ".12345678.incomplete")).write_bytes(b"x" * 10000)
    pulled("blobs of other tools are used", place, place.run("pull", NAME + ":Q4_K_M"))
    check("as they are", not [r for r in hub.requests if r.server == "cdn"])
    check("its incomplete files stay", (blobs / (file.hash + ".12345678.incomplete")).exists())


def check_offers():
    place = fresh()
    for words in (["run", NAME + ":Q4_K_M", "x"], ["run", "-m", NAME, "x"], ["inspect", NAME],
                  ["serve", "-m", NAME]):
        done = place.run(*words)
        check("refused: " + " ".join(words), done.returncode == 1
              and f"`moeflux pull {NAME}" in done.stderr and not hub.requests, done.stderr)
    check("and nothing is there", place.everything() == [])
    done = place.run("inspect", NAME + ":Q4_K_M", "--yes")
    check("--yes pulls", not place.wrong(NAME, ["some-Q4_K_M.gguf"])
          and "some-Q4_K_M.gguf" in done.stderr, done.stderr)

    for answer, wanted in (("n\n", 1), ("y\n", 0), ("\3", 130)):
        place = fresh()
        code, shown = on_terminal(place, ["inspect", NAME + ":Q4_K_M"],
                                  lambda outer: os.write(outer, answer.encode()))
        check(f"on a terminal, answered {answer!r}", place.folder(NAME).exists() == (wanted == 0)
              and "6.0 MiB" in shown and (wanted < 130 or code == 130), (code, shown))
    code, shown = on_terminal(place, ["run", NAME + ":Q4_K_M", "x"],
                              lambda outer: os.write(outer, b"n\n"))
    check("a no is no mistake about the first argument", code == 1
          and "nothing was downloaded" in shown and "taken for a model" not in shown, shown)


def check_speed():
    """The question says how fast the model will run, from what was measured before."""
    folder = pathlib.Path(os.environ["MOEFLUX_SOURCE"]) / "models/pebble"
    hub.add("org/pebble", {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()})
    place = fresh()
    more = {"XDG_CACHE_HOME": str(place.scratch / "rates"), "TMPDIR": str(place.scratch)}
    no = lambda outer: os.write(outer, b"n\n")
    _, shown = on_terminal(place, ["run", "org/pebble", "x"], no, **more)
    check("nothing is measured before the question",
          "`moeflux plan org/pebble:safetensors` tells how fast" in shown
          and not (place.scratch / "rates").exists(), shown)
    place.run("plan", str(folder), **more)
    before = place.everything()
    _, shown = on_terminal(place, ["run", "org/pebble", "x"], no, **more)
    check("the speed is told before the question",
          re.search(r"it will generate about \d.* tokens/s with \d.*Download it now", shown, re.S), shown)
    check("which leaves nothing", place.everything() == before, place.everything())


def check_model():
    """A real one, from the name to an answer."""
    folder = pathlib.Path(os.environ["MOEFLUX_SOURCE"]) / "models/pebble"
    hub.add("org/pebble", {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()})
    place = fresh()
    done = place.run("run", "org/pebble", "--yes", "-q", "--temp", "0",
                     "What is the capital of France?")
    check("a model is pulled and runs", "Paris" in done.stdout, done)
    hub.reset()
    done = place.run("run", "-m", "org/pebble", "-q", "--temp", "0", "What is the capital of France?",
                     HF_HUB_OFFLINE="1")
    check("then offline", "Paris" in done.stdout and not hub.requests, done)


TESTS = (check_commands, check_rm, check_left, check_other_tools, check_offers, check_speed, check_model)
run_all(TESTS)
