#!/usr/bin/env python3
"""kill.py PROGRAM KILLS [SEED]: `moeflux pull` ended with kill -9 at random moments.  After each, no file
has its final name but with its bytes; the next run asks again for little of what had been written;
and in the end everything is as the hub has it."""
import random
import signal
import sys
import time

from hub import Hub
from support import Place, check, finish, random_bytes

PROGRAM, KILLS = sys.argv[1], int(sys.argv[2])
NAME, MIB, BLOCK, CONNECTIONS = "org/two", 1 << 20, 4096, 3
# What a run may ask for again: what had not been recorded (4 MiB of each file), and what was on its
# way.  That is below 8 MiB for each connection.
AGAIN = 2 * 4 * MIB + CONNECTIONS * (1 << 18)
FILES = {"two-Q4_0-00001-of-00002.gguf": random_bytes(1, 20 * MIB + 77),
         "two-Q4_0-00002-of-00002.gguf": random_bytes(2, 9 * MIB)}
hub = Hub()
hub.add(NAME, FILES)
seed = int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time())
print(f"seed {seed}", flush=True)
dice = random.Random(seed)
worst, shared = 0, 0


def written(place):
    """Of each file the blocks that are on disk as they should be."""
    found = {}
    for path, file in hub.repositories[NAME].files.items():
        for name in (file.hash, file.hash + ".moeflux.incomplete"):
            disk = place.folder(NAME) / "blobs" / name
            if disk.exists():
                data = disk.read_bytes()
                found[file.hash] = {at for at in range(0, len(data), BLOCK)
                                    if data[at:at + BLOCK] == file.data[at:at + BLOCK]}
    return found


def asked_again(before):
    """Bytes that were on disk and were requested since then: each once, as a connection that is cut
    lets what it had not brought be requested another time."""
    blocks = set()
    for request in hub.requests:
        if request.server == "cdn":
            end = request.end if request.end else 1 << 60
            blocks |= {(request.path, at) for at in before.get(request.path[1:], ())
                       if request.first <= at < end}
    return BLOCK * len(blocks)


def start(place):
    return place.start("pull", NAME, "--connections", str(CONNECTIONS))


def judge(place, before):
    global worst
    again = asked_again(before)
    worst = max(worst, again)
    if again > AGAIN:
        seen = [(r.path[1:9], r.first, r.end, r.sent) for r in hub.requests if r.server == "cdn"]
        there = {name[:8]: BLOCK * len(blocks) for name, blocks in before.items()}
        check("what was written is not requested again", False, (again, there, hub.cut, seen))
    if place.unverified():
        check("only verified files have their names", False, place.unverified())


kills, rounds = 0, 0
while kills < KILLS:
    place, before, rounds = Place(PROGRAM, hub), {}, rounds + 1
    hub.pace = dice.choice([3, 6, 20, 100]) * MIB
    hub.cut = dice.choice([0, 0.02])
    while kills < KILLS:
        hub.requests = []
        processes = [start(place)]
        if dice.random() < 0.2:  # the other one goes on with what this one leaves
            processes.append(start(place))
            shared += 1
        try:
            processes[0].wait(dice.uniform(0.02, 0.9))
        except Exception:
            pass
        if processes[0].poll() is not None:
            break
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        kills += 1
        judge(place, before)
        before = written(place)
    for process in processes:
        if process.poll() is None:
            process.communicate()
    hub.cut = hub.pace = 0
    hub.requests = []
    done = place.run("pull", NAME)
    judge(place, before if processes[0].returncode != 0 else {})
    wrong = place.wrong(NAME, list(FILES)) if done.returncode == 0 else done.stderr
    if wrong:
        check(f"round {rounds}: the files of the hub", False, wrong)
check(f"{kills} kills in {rounds} downloads ({shared} runs beside another): identical bytes; at most "
      f"{worst / MIB:.1f} MiB were requested again", kills == KILLS)
hub.close()
finish()
