#!/usr/bin/env python3
"""The live view of experts: frames against /metrics and against a trace of routes; slow viewers;
several owners; nothing without a viewer.

    experts.py PROGRAM"""
import base64
import collections
import os
import struct
import subprocess
import sys
import tempfile
import threading

import served
from served import check
from viewer import ASKED, KINDS, Viewer, events

PROGRAM = os.path.realpath(sys.argv[1])
STREAMED = ("--memory", "20M", "--read-ahead", "always", "--cache", "off", "-c", "512")
QUESTIONS = ("Count from one to twenty.", "Tell me about a fox and a river.", "Name ten animals.")


def answer_all(server, count=60, key=None):
    """All questions at the same time; their ids."""
    ids, problems = {}, []

    def ask(question):
        try:
            reply = server.json("POST", "/v1/chat/completions", {
                "messages": [{"role": "user", "content": question}], "max_tokens": count,
                "temperature": 0, "ignore_eos": True}, timeout=280,
                headers={"Authorization": f"Bearer {key}"} if key else {})
            ids[reply["id"]] = reply["usage"]["completion_tokens"]
        except Exception as problem:  # told by the main thread
            problems.append(problem)

    threads = [threading.Thread(target=ask, args=(question,)) for question in QUESTIONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not problems, f"a question got no answer: {problems}")
    return ids


def counters(server):
    now = server.metrics()
    found = {kind: now[f'moeflux_expert_requests_total{{source="{source}"}}'] for kind, source in
             zip(KINDS, ("cache", "ahead", "late", "demand"))}
    found["evicted"] = now["moeflux_expert_evictions_total"]
    found["wasted"] = now["moeflux_expert_ahead_wasted_total"]
    bytes_read = {why: now[f'moeflux_expert_bytes_total{{device="cpu",why="{why}"}}']
                  for why in ("demand", "ahead", "wasted")}
    return found, bytes_read, now


def check_sums(viewer, before, after):
    """The frames have all that the counters have grown by, and their events add up to it."""
    check(viewer.sums() == after[0], f"frames: {viewer.sums()}, /metrics: {after[0]}")
    for why, value in after[1].items():
        found = sum(frame["bytes"][why] for frame in viewer.frames)
        check(found == value - before[1][why],
              f"bytes of {why}: {found} in frames, {value - before[1][why]} in /metrics")
    for frame in viewer.frames:
        check(all(value >= 0 for value in frame["bytes"].values()), f"bytes {frame['bytes']}")
        if frame.get("dropped"):
            check("events" not in frame, "a frame without events has some")
            continue
        found = collections.Counter()
        for _, _, kind, count in events(frame):
            check(0 < count < 255, f"an event that occurs {count} times")
            found[KINDS[kind]] += count
        check(all(found[kind] == frame["sums"][kind] for kind in KINDS),
              f"frame {frame['seq']}: events {dict(found)}, sums {frame['sums']}")
    check(viewer.frames[-1]["present"] == after[2]["moeflux_experts_present"],
          "the last frame and /metrics differ in what is in memory")


def check_order(viewer):
    numbers = [frame["seq"] for frame in viewer.frames]
    check(numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"frames {numbers}")


def test_streamed():
    """Read-ahead and evictions, several requests, two viewers of which one comes later."""
    with served.Server(PROGRAM, *STREAMED) as server:
        answer_all(server, 5)
        start = counters(server)
        check(start[2]["moeflux_map_frames_total"] == 0, "frames are made without a viewer")
        check(server.ask("GET", "/v1/moeflux/whatif")[0] == 409, "whatif without any routes")
        with Viewer(server) as first:
            ids = answer_all(server)
            middle = counters(server)
            with Viewer(server) as second:
                more = answer_all(server, 30)
                first.wait_idle()
                second.wait_idle()
                end = counters(server)
                check_sums(first, start, end)
                check(second.sums() == end[0], f"a later viewer: {second.sums()}, {end[0]}")
                check(second.map["totals"] != first.map["totals"], "the later map has old totals")
                check_order(first)
                check_order(second)
                common = {frame["seq"]: frame for frame in first.frames}
                check(all(common.get(frame["seq"], frame) == frame for frame in second.frames),
                      "two viewers got different frames")
            check(all(end[0][kind] > start[0][kind] for kind in KINDS if kind != "late"),
                  f"a kind of event is missing: {end[0]}")
            check(middle[0]["hit"] < end[0]["hit"], "the second round had no hits")
            check_rows(first, {**ids, **more})
            check_whatif(server, first)
        server.wait_idle()
        check_silence(server)


def check_rows(viewer, ids):
    """Every token of an answer but its last, which is not computed, is there once; so is every row."""
    shown = collections.defaultdict(list)
    for frame in viewer.frames:
        for token in frame["tokens"]:
            shown[token["request"]].append(token["index"])
    for request, count in ids.items():
        check(shown.pop(request) == list(range(count - 1)), f"tokens of {request}")
    check(not shown, f"tokens of requests that are none: {list(shown)}")
    check(viewer.added("decode_rows") == sum(ids.values()) - len(ids), "rows of answers")
    check(viewer.added("prompt_rows") > 0 and viewer.added("steps") > 0, "rows of prompts")
    stages = collections.Counter()
    for frame in viewer.frames:
        stages.update(frame["stages"])
    check({"attention", "router", "experts", "head"} <= stages.keys(), f"stages {dict(stages)}")


def check_whatif(server, viewer):
    found = server.json("GET", "/v1/moeflux/whatif")
    sizes = len(found["memory"])
    check(sizes >= 8 and len(found["hit"]) == len(found["belady"]) == sizes, f"whatif: {found}")
    check(found["memory"] == sorted(found["memory"]) and found["hit"] == sorted(found["hit"]),
          "more memory gives fewer hits")
    check(all(0 <= ours <= best + 1e-9 <= 1 + 1e-9 for ours, best in
              zip(found["hit"], found["belady"])), f"Belady's bound: {found}")
    rows = viewer.added("decode_rows") + viewer.added("prompt_rows")
    check(found["tokens"] == min(rows, 4096), f"{found['tokens']} tokens, {rows} were computed")
    check(found["now"] > 0, "whatif does not know the memory of now")


def check_silence(server):
    """The last viewer has gone: nothing is counted any more, and another one begins exactly."""
    frames = server.metrics()["moeflux_map_frames_total"]
    check(frames > 0, "no frame was counted")
    deadline = 20
    while True:  # the server notices the end of a connection on its own
        answer_all(server, 5)
        now = server.metrics()["moeflux_map_frames_total"]
        if now == frames:
            break
        frames, deadline = now, deadline - 1
        check(deadline > 0, "frames are made after the last viewer has gone")
    start = counters(server)
    with Viewer(server) as viewer:
        check(viewer.map["totals"] == start[0], "the map's totals are not those of /metrics")
        answer_all(server, 10)
        viewer.wait_idle()
        check_sums(viewer, start, counters(server))


def read_trace(data):
    """Rows of a trace (src/experts/route_trace.h): for each the experts by layer."""
    layers, experts, chosen, size = struct.unpack_from("<4I", data, 16)
    (begin,) = struct.unpack_from("<I", data, 12)
    with_experts = [i for i in range(layers) if struct.unpack_from("<Q", data, 112 + 16 * i)[0]]
    rows, at = [], begin
    while count := struct.unpack_from("<I", data, at)[0]:
        at += 4 + 4 * count
        step = [[] for _ in range(count)]
        for _ in with_experts:
            for row in range(count):
                step[row].append(list(struct.unpack_from(f"<{chosen}{'BH'[size - 1]}", data,
                                                         at + row * chosen * size)))
            at += count * chosen * (size + 2)
        rows += step
    return rows


def test_resident():
    """Nothing is read ahead: the map after N tokens has the experts of a trace of the same tokens, and
    each token has those of its row."""
    options = ("--read-ahead", "never", "--cache", "off", "-c", "512", "--kernels", "generic")
    count = 24
    with served.Server(PROGRAM, *options) as server, tempfile.TemporaryDirectory() as place:
        info = server.json("GET", "/v1/moeflux/info")
        check(info["mode"] == "resident" and info["kernels"] == "generic", f"info: {info}")
        messages = [{"role": "user", "content": QUESTIONS[0]}]
        prompt = server.json("POST", "/apply-template", {"messages": messages})["prompt"]
        ids = server.json("POST", "/tokenize", {"content": prompt, "parse_special": True})["tokens"]
        with Viewer(server) as viewer:
            check(not viewer.present(), "experts are in memory before the first token")
            reply = server.json("POST", "/v1/chat/completions", {
                "messages": messages, "max_tokens": count, "temperature": 0, "ignore_eos": True})
            check(reply["usage"]["prompt_tokens"] == len(ids), "another prompt was read")
            viewer.wait_idle()
            with Viewer(server) as later:
                present = later.present()
        trace = os.path.join(place, "routes")
        subprocess.run([PROGRAM, "generate", "--tokens", ",".join(map(str, ids)), "-n", str(count),
                        "--temp", "0", "--ignore-eos", "--ids", "--routes", trace, "--kernels",
                        "generic"], check=True, stdout=subprocess.DEVNULL)
        with open(trace, "rb") as file:
            rows = read_trace(file.read())
        check(len(rows) >= len(ids) + count - 1, f"the trace has {len(rows)} rows")
        rows = rows[:len(ids) + count - 1]  # a last token may be there, too
        used = {(row, expert) for token in rows for row, chosen in enumerate(token)
                for expert in chosen}
        check(present == used, f"map: {len(present)} experts, trace: {len(used)}")
        told = {(row, expert) for frame in viewer.frames if not frame.get("dropped")
                for row, expert, kind, _ in events(frame) if kind in ASKED}
        check(told == used, f"events: {len(told)} experts, trace: {len(used)}")
        tokens = [token for frame in viewer.frames for token in frame["tokens"]]
        check([token["index"] for token in tokens] == list(range(count - 1)), "tokens are missing")
        for token in tokens:
            found = struct.iter_unpack(f"<{info['experts_per_token']}H",
                                       base64.b64decode(token["experts"]))
            check([list(chosen) for chosen in found] == rows[len(ids) + token["index"]],
                  f"token {token['index']} has other experts than in the trace")
        check([info["layers"], info["experts"]] == [8, 64] and info["moe_layers"] ==
              viewer.map["rows"] and info["experts"] == viewer.map["columns"], f"info: {info}")


def test_replay():
    """With memory for all experts, without read-ahead and from an empty cache, what is replayed has the
    hits of the server itself, to the last one, also where requests share steps."""
    options = ("--read-ahead", "never", "--cache", "off", "-c", "512")
    with served.Server(PROGRAM, *options) as server, Viewer(server) as viewer:
        answer_all(server, 20)
        viewer.wait_idle()
        found = counters(server)[0]
        rate = found["hit"] / (found["hit"] + found["demand"])
        replayed = server.json("GET", "/v1/moeflux/whatif")
        check(viewer.added("steps") < viewer.added("decode_rows"), "no step was shared")
        check(abs(replayed["hit"][-1] - rate) < 1e-12 and replayed["hit"][-1] ==
              replayed["belady"][-1], f"hit rate {rate}, replayed {replayed}")


def test_slow():
    """A viewer that does not read gets what it missed as one frame, with exact sums."""
    with served.Server(PROGRAM, *STREAMED) as server:
        start = counters(server)
        with Viewer(server) as fast, Viewer(server, receive_bytes=4096, paused=True) as slow:
            while sum(frame["steps"] > 0 for frame in fast.frames) < 150:
                answer_all(server, 200)
            slow.read_on()
            fast.wait_idle()
            slow.wait(lambda: slow.frames and slow.frames[-1]["seq"] >= fast.frames[-1]["seq"])
            slow.wait_idle()
            fast.wait_idle()
            end = counters(server)
            check_sums(fast, start, end)
            check_sums(slow, start, end)
            check(any(frame.get("dropped") for frame in slow.frames), "no frame was dropped")
            check(len(slow.frames) < len(fast.frames), "the slow viewer got as many frames")
            for name in ("steps", "prompt_rows", "decode_rows"):
                check(slow.added(name) == fast.added(name), f"{name} of the slow viewer")


def test_owners():
    """With several keys a viewer sees the tokens of its own requests alone, and all sums."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "keys")
        with open(path, "w") as file:
            file.write("first-key\nsecond-key\n")
        with served.Server(PROGRAM, "--api-key-file", path, "--cache", "off",
                           key="first-key") as server:
            check(server.ask("GET", "/v1/moeflux/experts",
                             headers={"Authorization": "Bearer wrong"})[0] == 401, "a wrong key")
            with Viewer(server) as own, Viewer(server, key="second-key") as other:
                ids = answer_all(server, 10)
                own.wait_idle()
                other.wait_idle()
                check(own.sums() == other.sums() and any(own.sums().values()), "sums by owner")
                seen = {token["request"] for frame in own.frames for token in frame["tokens"]}
                check(seen == set(ids), "own tokens are missing")
                check(not any(frame["tokens"] for frame in other.frames),
                      "tokens of another owner are shown")


def main():
    for test in (test_streamed, test_resident, test_replay, test_slow, test_owners):
        test()
        print(f"{test.__name__}: as expected", flush=True)


served.main(main)
