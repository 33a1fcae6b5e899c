#!/usr/bin/env python3
"""moeflux cache: what a cache directory holds, what is damaged in it, and making it smaller.

    cache.py PROGRAM CACHE_MAKER
"""
import json
import os
import subprocess
import sys
import tempfile

program, maker = sys.argv[1:3]
home = tempfile.mkdtemp()
directory = os.path.join(home, "cache")


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


def cache(*words):
    return subprocess.run([program, "cache", *words], capture_output=True, text=True)


def printed(*words):
    done = cache(*words)
    check(done.returncode == 0 and done.stderr == "", f"{words}: {done.stderr}")
    return done.stdout


def listed(action="ls"):
    return json.loads(cache(action, directory, "--json").stdout)


def make():
    subprocess.run([maker, directory], check=True)


def files():
    return sorted(name for name in os.listdir(directory) if "." in name)


def flip(name, offset):
    with open(os.path.join(directory, name), "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def wrong_words_are_refused():
    for words, sentence in [((), "ls, verify or gc"), (("ls",), "ls, verify or gc"),
                            (("rm", directory), "none of ls, verify and gc"),
                            (("ls", directory, "--disk", "1G"), "--disk is for gc"),
                            (("gc", directory, "--disk", "0"), "would keep nothing")]:
        done = cache(*words)
        check(done.returncode == 2 and sentence in done.stderr, f"{words}: {done.stderr}")


def other_directories_are_left_alone():
    for action in "ls", "verify", "gc":
        done = cache(action, os.path.join(home, "absent"))
        check(done.returncode == 1 and "no cache directory" in done.stderr, done.stderr)
        check(not os.path.exists(os.path.join(home, "absent")), "a directory was made")
        done = cache(action, "/etc")
        check(done.returncode == 1 and "no cache directory" in done.stderr, done.stderr)


def texts_are_shown_as_trees():
    make()
    lines = printed("ls", directory).splitlines()
    models = [line.split()[0] for line in lines if line.endswith(")")]
    check(sorted(models) == ["first-model", "second-model"], str(models))
    start = next(i for i, line in enumerate(lines) if line.startswith("first-model"))
    check(lines[start + 1].split() ==
          ["positions", "pages", "checkpoints", "size", "hits", "last", "use"], lines[start + 1])
    rows = [line.split() for line in lines[start + 2:start + 5]]
    check(rows[0][:2] == ["0-127", "2"] and "1.0" in rows[0], str(rows))
    branches = sorted(row[:5] for row in rows[1:])
    check(branches == [["128-157", "1", "1", "at", "158"], ["128-191", "1", "1", "at", "168"]],
          str(branches))
    check(lines[start + 3].startswith("    "), "a branch is not further in")
    check(lines[-1] == "5 pages and 2 checkpoints in 120 KiB", lines[-1])

    found = listed()
    check(found["pages"] == 5 and found["checkpoints"] == 2, str(found))
    check(len(found["files"]) == 7 and found["bytes"] == 7 * 16384 + 2 * 4096, str(found))
    check(sorted(f["key"] + (".state" if f["kind"] == "checkpoint" else ".page")
                 for f in found["files"]) == files(), "names")
    check(all(f["problem"] is None and 0 <= f["age_seconds"] < 60 for f in found["files"]),
          "problems")
    check({f["depth"] for f in found["files"] if f["kind"] == "page"} == {0, 1, 2}, "depths")


def verify_finds_what_is_damaged():
    check("all of it is sound" in printed("verify", directory), "it is sound")
    before = files()
    state = next(name for name in before if name.endswith(".state"))
    flip(state, 5000)
    done = cache("verify", directory)
    check(done.returncode == 1 and f"damaged  {state}" in done.stdout, done.stdout)
    check(files() == before, "verify changes nothing")
    page = next(f["key"] + ".page" for f in listed()["files"]
                if f["model"] == "second-model")
    os.rename(os.path.join(directory, page), os.path.join(home, page))
    with open(os.path.join(directory, "00112233445566778899aabbccddeeff.page"), "w") as file:
        file.write("a stranger")
    done = cache("verify", directory)
    check(done.returncode == 1 and f"missing  {page}" in done.stdout and
          "1 files that no record names" in done.stdout, done.stdout)
    found = listed("verify")
    check((found["damaged"], found["missing"], found["strangers"]) == (1, 1, 1), str(found))


def gc_removes_it():
    found = json.loads(printed("gc", directory, "--json"))
    check((found["damaged"], found["missing"], found["strangers"]) == (1, 1, 1), str(found))
    check(found["bytes"] < found["bytes_before"], str(found))
    check("all of it is sound" in printed("verify", directory), "it is sound again")
    check(len(files()) == 5 and len(listed()["files"]) == 5, str(files()))


def gc_keeps_a_limit():
    make()
    text = printed("gc", directory, "--disk", "70K")
    check("for the limit" in text, text)
    found = listed()
    check(0 < len(found["files"]) < 7 and found["bytes"] <= 70 << 10, str(found))
    check(sum(os.path.getsize(os.path.join(directory, name))
              for name in os.listdir(directory)) <= 70 << 10, "bytes of the directory")
    check("all of it is sound" in printed("verify", directory), "it is sound")


def a_held_directory_is_left_alone():
    holder = subprocess.Popen([maker, directory, "hold"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    check(holder.stdout.readline() == b"held\n", "the directory is held")
    for action in "ls", "verify", "gc":
        done = cache(action, directory)
        check(done.returncode == 1 and "in use by another process" in done.stderr, done.stderr)
    holder.communicate()
    check(len(listed()["files"]) > 0, "it is free again")


for test in (wrong_words_are_refused, other_directories_are_left_alone, texts_are_shown_as_trees,
             verify_finds_what_is_damaged, gc_removes_it, gc_keeps_a_limit,
             a_held_directory_is_left_alone):
    test()
    print("ok", test.__name__)
