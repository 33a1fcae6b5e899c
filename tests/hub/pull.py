#!/usr/bin/env python3
"""pull.py PROGRAM: `moeflux pull` against a hub that does everything that hubs do wrong.  Each case ends
in the right files, or in one sentence."""
import ctypes
import errno
import fcntl
import json
import os
import platform
import pty
import re
import shutil
import signal
import ssl
import struct
import subprocess
import threading
import time

from cases import (MIB, MODEL, NAME, PROGRAM, SAFETENSORS, fresh, pulled, read_all, refused,
                   run_all)
from hub import COMMIT, Fault, File, silent, status
from support import check, random_bytes

hub = None  # of the process that runs a test

# ------------------------------------------------------------------- as it should be


def check_pull():
    place = fresh()
    done = place.run("pull", NAME + ":q4_k_m")
    pulled("a single GGUF", place, done)
    check("its path is on stdout", done.stdout == f"{place.snapshot(NAME)}/some-Q4_K_M.gguf\n",
          done.stdout)
    check("refs/main is the commit alone",
          (place.folder(NAME) / "refs/main").read_text() == COMMIT)
    ranges = [r for r in hub.requests if r.server == "cdn"]
    check("it came in ranges", len(ranges) >= 4 and all(r.ranged for r in ranges), len(ranges))
    hub.reset()
    pulled("once more", place, place.run("pull", NAME + ":Q4_K_M"))
    check("brings nothing", not [r for r in hub.requests if r.path[:5] != "/api/"])
    done = place.run("pull", NAME + ":BF16")
    pulled("a split GGUF beside it", place, done, paths=[
        "some-Q4_K_M.gguf", "some-BF16-00001-of-00002.gguf", "some-BF16-00002-of-00002.gguf"])
    check("ends with its first part", done.stdout.endswith("00001-of-00002.gguf\n"), done.stdout)
    done = place.run("pull", NAME, "--memory", "1G")
    check("without QUANT the best is said and taken",
          "Q8_0 (the best that fits into memory)" in done.stderr
          and done.stdout.endswith("Q8_0.gguf\n"), done.stderr)
    done = fresh().run("pull", NAME, "--memory", "1M")
    check("in a small memory the smallest of 4 bits", done.stdout.endswith("BF16-00001-of-00002.gguf\n"),
          done.stderr)
    hub.add("org/name", SAFETENSORS)
    place = fresh()
    hub.page = 2
    paths = [p for p in SAFETENSORS if p not in ("pytorch_model.bin", "onnx/model.onnx")]
    done = place.run("pull", "https://huggingface.co/org/name")
    pulled("a safetensors repository, listed in pages", place, done, "org/name", paths)
    check("ends with its directory", done.stdout == f"{place.snapshot('org/name')}\n", done.stdout)


def check_same_files():
    """Two files with the same bytes have one blob, which comes once."""
    hub.add("org/same", {"config.json": b"{}", "model.safetensors": random_bytes(21, 2 * MIB),
                         "a.json": random_bytes(22, 5000), "b.json": random_bytes(22, 5000)})
    place = fresh()
    done = place.run("pull", "org/same")
    pulled("two files with the same bytes", place, done, "org/same", hub.repositories["org/same"].files)
    check("without waiting for another process", "another process" not in done.stderr, done.stderr)
    check("come once", sum(r.sent for r in hub.requests if r.server == "cdn") == 2 * MIB + 5000)


def check_home():
    place = fresh()
    pulled("HF_HOME in the user's home", place,
           place.run("pull", NAME + ":Q4_K_M", HF_HOME="~/home", HOME=str(place.scratch)))


def check_directories():
    hub.add("org/deep", {"Q4_K_M/deep-Q4_K_M-00001-of-00002.gguf": random_bytes(9, 9000),
                         "Q4_K_M/deep-Q4_K_M-00002-of-00002.gguf": random_bytes(10, 9000),
                         "UD-Q2_K_XL/d e+e%p#?.gguf": random_bytes(11, 9000),
                         "Q3_K_S/last-word-imat.gguf": random_bytes(12, 9000),
                         "parts/x-Q6_K-00001-of-00003.gguf": b"one"})
    place = fresh()
    done = place.run("pull", "org/deep:Q4_K_M")
    pulled("files in directories", place, done, "org/deep",
           [p for p in hub.repositories["org/deep"].files if "Q4_K_M" in p])
    pulled("a name that must be escaped", place, place.run("pull", "org/deep:UD-Q2_K_XL"),
           "org/deep", [p for p in hub.repositories["org/deep"].files if p[:2] in ("Q4", "UD")])
    labels = [line.split()[0] for line in place.run("pull", "org/deep", "-n").stdout.splitlines()]
    check("quantisations by the last word that is one",
          sorted(labels) == ["Q3_K_S", "Q4_K_M", "Q6_K", "UD-Q2_K_XL"], labels)
    refused("parts that are missing", fresh(), place.run("pull", "org/deep:Q6_K"),
            "has 3 parts, and the repository holds 1")


def check_formats():
    """What moeflux does not read is not chosen, and what is no model is not offered."""
    names = ["m-Q8_0.gguf", "m-Q4_0_4_4.gguf", "m-Q4_0_8_8.gguf", "m-NVFP4.gguf", "m-MXFP4_MOE.gguf",
             "m-TQ1_0.gguf", "m-mmproj-F16.gguf", "m-lora-F16.gguf", "lora/x-Q8_0.gguf",
             "m-draft-Q8_0.gguf", "ggml-vocab-m.gguf", "m-merged-lora-Q6_K.gguf"]
    hub.add("org/formats", {name: random_bytes(len(name), 5000 + i) for i, name in enumerate(names)})
    place = fresh()
    lines = place.run("pull", "-n", "org/formats").stdout.splitlines()
    runs = {line.split()[0]: "does not run it" not in line for line in lines}
    check("formats", runs == {"Q8_0": True, "Q4_0_4_4": False, "Q4_0_8_8": False, "NVFP4": False,
                              "MXFP4_MOE": True, "TQ1_0": False, "Q6_K": True}, lines)
    hub.add("org/draft", {"m-draft-Q8_0.gguf": random_bytes(20, 5000)})
    check("a repository of a draft model", "Q8_0" in place.run("pull", "-n", "org/draft").stdout)

    weights = {"model.safetensors": 1, "model.fp16.safetensors": 2, "consolidated.safetensors": 3,
               "adapter_model.safetensors": 4}
    parts = {"model-1-of-2.safetensors": 5, "model-2-of-2.safetensors": 6, "mtp.safetensors": 7}
    index = {"model.safetensors.index.json": json.dumps(
        {"weight_map": {name: name for name in parts}}).encode()}
    for what, files, wanted in (
            ("one file", weights, {"model.safetensors"}),
            ("an index", weights | parts | index, set(parts)),
            ("parts without an index", parts, set(parts) - {"mtp.safetensors"}),
            ("one file beside parts without an index", weights | parts, {"model.safetensors"})):
        hub.add("org/weights", {"config.json": b"{}"} | {
            name: data if isinstance(data, bytes) else random_bytes(data, 5000)
            for name, data in files.items()})
        place = fresh()
        place.run("pull", "org/weights")
        found = {p.name for p in place.snapshot("org/weights").glob("*.safetensors")}
        check("weights: " + what, found == wanted, found)

    hub.add("org/weights", {"config.json": b"{}", **index} | {
        name: random_bytes(seed, 5000) for name, seed in parts.items()})
    place = fresh()
    place.run("pull", "org/weights")

    def complete():
        listed = json.loads(place.run("list", "--json").stdout)
        return [m["complete"] for m in listed[0]["models"]]
    check("a snapshot is complete", complete() == [True])
    for name in ("mtp.safetensors", "model-2-of-2.safetensors"):
        (place.snapshot("org/weights") / name).unlink()
        check(f"without {name} it is not", complete() == [False])
    done = place.run("inspect", "org/weights")
    check("and is not opened", "`moeflux pull org/weights`" in done.stderr, done.stderr)
    (place.snapshot("org/weights") / "model.safetensors.index.json").unlink()
    check("nor without its index", complete() == [False])
    pulled("pull completes it", place, place.run("pull", "org/weights"), "org/weights",
           hub.repositories["org/weights"].files)


def check_choice():
    place = fresh()
    done = place.run("pull", NAME, "--dry-run", "--memory", "1G")
    check("a dry run lists", done.returncode == 0 and "IQ1_S" in done.stdout
          and "Q8_0" in done.stdout.split("<- would")[0].split("\n")[-1]
          and "mmproj" not in done.stdout, done)
    check("and writes nothing", place.everything() == [], place.everything())
    refused("a quantisation that is not there", place, place.run("pull", NAME + ":Q5_K"),
            'there is no "Q5_K" in the repository; it has IQ1_S, BF16, Q4_K_M, Q8_0')
    refused("a name that fits several", place, place.run("pull", NAME + ":some"), "4 models")
    refused("no repository", place, place.run("pull", "org/none"), "there is no public model org/none")
    hub.add("org/empty", {"README.md": b"x"})
    refused("no model in it", place, place.run("pull", "org/empty"),
            "neither GGUF files nor model*.safetensors")
    done = place.run("pull", "just-a-name")
    check("no name", done.returncode == 2 and "ORG/NAME" in done.stderr, done)
    refused("offline", place, place.run("pull", NAME, HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE")
    refused("a hub over http elsewhere", place,
            place.run("pull", NAME, HF_ENDPOINT="http://example.com"), "http://example.com is refused")
    repository = hub.add("org/huge", {})
    repository.tree = [{"type": "file", "path": "huge-Q4_0.gguf", "size": 1 << 55, "oid": COMMIT,
                        "lfs": {"oid": "ab" * 32, "size": 1 << 55}}]
    refused("no room on the disk", place, place.run("pull", "org/huge:Q4_0"), "make room")
    check("was found before anything was downloaded", "huge" not in str(place.everything()))
    refused("none that fits", place, place.run("pull", "org/huge"), "fits on the disk")
    for words in (["pull", "-n", "org/huge"], ["show", "--hub", "org/huge"]):
        done = place.run(*words)
        check(f"{' '.join(words)} lists it nevertheless", done.returncode == 0
              and done.stdout.startswith("Q4_0 ") and "fits on the disk" in done.stderr, done)
    done = place.run("pull", "-n", "org/huge:Q8_0")
    check("and a list fails where another one was named", done.returncode == 1
          and done.stdout.startswith("Q4_0 ") and 'there is no "Q8_0"' in done.stderr, done)
    hub.add("org/parts", {"p-Q4_0.gguf": random_bytes(23, 5000),
                          "p-Q8_0-00001-of-00002.gguf": random_bytes(24, 9000)})
    pulled("a better one that lacks parts is not chosen", place, place.run("pull", "org/parts"),
           "org/parts", ["p-Q4_0.gguf"])
    hub.add("org/parts", {"p-Q8_0-00001-of-00002.gguf": random_bytes(24, 9000)})
    refused("where all lack parts", fresh(), place.run("pull", "org/parts"), "has 2 parts")


# ------------------------------------------------------------------- what goes wrong


def check_faults():
    place = fresh()
    hub.faults = [Fault("/api/", status(503), 2), Fault("/resolve/", status(500)),
                  Fault("/", status(502), 3, "cdn")]
    pulled("5xx, some times", place, place.run("pull", NAME + ":Q4_K_M"))

    place = fresh()
    hub.faults = [Fault("/tree/", status(429, Retry_After="1")),
                  Fault("/", status(429, Retry_After="1"), 1, "cdn")]
    begun = time.monotonic()
    pulled("429", place, place.run("pull", NAME + ":Q4_K_M"))
    check("waits as long as it says", time.monotonic() - begun > 1.9)

    place = fresh()
    hub.faults = [Fault("/api/", status(429, Retry_After="5000"), -1)]
    refused("429 for hours", place, place.run("pull", NAME), "wait 5000 s")

    place = fresh()
    hub.cut = 0.1
    pulled("connections that are cut", place, place.run("pull", NAME + ":Q4_K_M"))
    check("often", len(hub.requests) > 12, len(hub.requests))


def half_of(data):
    def act(handler, request):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:len(data) // 2])
        handler.close_connection = True
    return act


def check_addresses():
    place = fresh()
    hub.uses = 2
    pulled("signed addresses that expire", place, place.run("pull", NAME + ":Q4_K_M"))
    place = fresh()
    hub.uses = 0
    refused("and all of them at once", place, place.run("pull", NAME + ":Q4_K_M"),
            "answers with status 403")

    def all_of_it(handler, request):
        request.ranged = False
        handler.send_file(hub, MODEL, request)
    place = fresh()
    hub.faults = [Fault("/", lambda h, r: False, 3, "cdn"), Fault("/", all_of_it, 2, "cdn")]
    pulled("a server that forgets ranges at times", place, place.run("pull", NAME + ":Q4_K_M"))
    whole = [r for r in hub.requests if r.server == "cdn" and r.end is None]
    check("is asked for ranges again", not whole, len(whole))

    place = fresh()
    hub.ranges = False
    pulled("a server without ranges", place, place.run("pull", NAME + ":Q4_K_M"))
    place = fresh()
    hub.ranges = False
    hub.faults = [Fault("/", half_of(MODEL), 2, "cdn")]
    pulled("that is cut, too", place, place.run("pull", NAME + ":Q4_K_M"))

    for what, act, sentence in (
            ("redirects elsewhere", status(302, Location="http://example.com/x"), "is refused"),
            ("fails at length", lambda h, r: h.answer(503, bytes(2 * MIB)), "more than 1 MiB")):
        place = fresh()
        hub.ranges = False
        hub.faults = [Fault("/resolve/", lambda h, r: False), Fault("/resolve/", act, -1)]
        refused(f"that then {what}", place, place.run("pull", NAME + ":Q4_K_M"), sentence)

    place = fresh()
    hub.faults = [Fault("/", lambda h, r: h.answer(404, b""), -1, "cdn")]
    refused("a file that is gone", place, place.run("pull", NAME + ":Q4_K_M"), "status 404")


def check_silence():
    place = fresh()
    hub.faults = [Fault("/resolve/", silent(4)), Fault("/", silent(4), 1, "cdn")]
    pulled("a server that falls silent", place, place.run("pull", NAME + ":Q4_K_M", "--idle", "1"))
    place = fresh()
    refused("no hub there", place, place.run("pull", NAME, HF_ENDPOINT="http://127.0.0.1:1"),
            "could not be read from http://127.0.0.1:1")


def other_bytes(data):
    """The CDN serves other bytes than the hub promises."""
    return lambda handler, request: handler.send_file(hub, data, request)


def check_wrong_bytes():
    flipped = bytearray(MODEL)
    flipped[4000000] ^= 1
    place = fresh()
    hub.faults = [Fault("/", other_bytes(bytes(flipped)), -1, "cdn")]
    done = place.run("pull", NAME + ":Q4_K_M")
    refused("wrong bytes", place, done, "the hub promised")
    check("are not kept", not list(place.folder(NAME).glob("blobs/*")), place.everything())
    hub.reset()
    pulled("and then the right ones", place, place.run("pull", NAME + ":Q4_K_M"))

    for what, data in (("longer", MODEL + b"x"), ("shorter", MODEL[:-1])):
        place = fresh()
        hub.faults = [Fault("/", other_bytes(data), -1, "cdn")]
        refused(what + " than listed", place, place.run("pull", NAME + ":Q4_K_M"), "has changed on")
    small = {"config.json": b"{}", "model.safetensors": random_bytes(12, 5000)}
    hub.add("org/small", small)
    for what, data in (("other", b"[]"), ("longer", b"{} "), ("shorter", b"{")):
        place = fresh()
        hub.faults = [Fault("config.json", other_bytes(data), -1)]
        done = place.run("pull", "org/small")
        refused(f"a small file with {what} bytes", place, done,
                "the hub promised" if what == "other" else "has changed on the hub")

    good = hub.repositories[NAME].files["some-Q4_K_M.gguf"].hash
    for what, sha, size in (("hash", "e" * 64, len(MODEL)), ("size", good, len(MODEL) + 1)):
        def changed(handler, request):
            """The listing was of an earlier commit."""
            handler.answer(302, b"", Location=f"{hub.cdn_url}/{good}?signature={hub.sign(file)}",
                           X_Repo_Commit="f" * 40, X_Linked_Etag=f'"{sha}"',
                           X_Linked_Size=str(size))
        place = fresh()
        file = hub.repositories[NAME].files["some-Q4_K_M.gguf"]
        hub.faults = [Fault("/resolve/", changed, -1)]
        refused(f"the {what} changed while downloading", place,
                place.run("pull", NAME + ":Q4_K_M"), "has changed on the hub")
        check("nothing was kept of it", not list(place.folder(NAME).glob("blobs/*.ranges")))

    def half(handler, request):
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 0-9/{len(MODEL)}")
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(MODEL[:10])
    place = fresh()
    hub.faults = [Fault("/", half, -1, "cdn")]
    refused("another range than requested", place, place.run("pull", NAME + ":Q4_K_M"),
            "other ranges")


def check_damaged():
    """What an interrupted download left is damaged: the hash finds it, and it begins anew."""
    blob = hub.repositories[NAME].files["some-Q4_K_M.gguf"].hash
    for what, record in (("bytes", f"moeflux ranges 1\n{blob} {len(MODEL)}\n0 {4 * MIB}\nend\n"),
                         ("record", "moeflux ranges 1\nnonsense"),
                         ("record of another file", f"moeflux ranges 1\n{'0' * 64} 5\n0 5\nend\n")):
        place = fresh()
        blobs = place.folder(NAME) / "blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{blob}.moeflux.incomplete").write_bytes(b"\0" * 4 * MIB)
        (blobs / f"{blob}.moeflux.ranges").write_text(record)
        pulled("damaged " + what, place, place.run("pull", NAME + ":Q4_K_M"))


# ------------------------------------------------------------------- tokens, redirections


def check_tokens():
    repository = hub.add("org/private", {"p-Q4_0.gguf": random_bytes(13, 2 * MIB)})
    repository.private = True
    place = fresh()
    refused("a token is required", place, place.run("pull", "org/private"), "into HF_TOKEN")
    refused("a wrong token", place, place.run("pull", "org/private", HF_TOKEN="wrong"),
            "does not accept the token")
    pulled("the token opens it", place, place.run("pull", "org/private", HF_TOKEN="secret"),
           "org/private", ["p-Q4_0.gguf"])
    seen = {(r.server, r.token) for r in hub.requests if r.token != "Bearer wrong"}
    check("the token stays with the hub", ("hub", "Bearer secret") in seen
          and {t for s, t in seen if s == "cdn"} == {None}, seen)
    place = fresh()
    place.home.mkdir()
    (place.home / "token").write_text("secret\n")
    pulled("a token from its file", place, place.run("pull", "org/private"), "org/private",
           ["p-Q4_0.gguf"])
    done = fresh().run("pull", NAME, HF_TOKEN="a\nEvil: 1")
    check("a token with a line break", done.returncode == 1 and not hub.requests, done.stderr)
    repository = hub.add("org/gated", {"g-Q4_0.gguf": random_bytes(14, 5000)})
    repository.gated = True
    for token, repository.listed in (("", False), ("wrong", False), ("", True), ("wrong", True)):
        place = fresh()
        refused(f"gated, listed {repository.listed}, with the token {token!r}", place,
                place.run("pull", "org/gated", HF_TOKEN=token),
                f"accept its terms at {hub.url}/org/gated")
    repository.gated, repository.forbidden = False, True
    for token, sentence in (("", "without a token to read"), ("t", "the account of the token to read")):
        place = fresh()
        done = place.run("pull", "org/gated", HF_TOKEN=token)
        refused(f"403 without a word about gates, with the token {token!r}", place, done, sentence)
        check("is not called gated", "is gated" not in done.stderr and "terms" not in done.stderr)
    repository.gated, repository.forbidden = True, False
    pulled("gated, and accepted", place, place.run("pull", "org/gated", HF_TOKEN="secret"),
           "org/gated", ["g-Q4_0.gguf"])


def check_redirections():
    def to(address):
        return lambda h, r: h.answer(302, b"", Location=address)
    for what, address, sentence in (
            ("to http elsewhere", "http://example.com/x", "http://example.com is refused"),
            ("to a name that begins like us", "http://127.0.0.1.example.com/x", "is refused"),
            ("to a file", "file:///etc/passwd", "file:// is refused"),
            ("to ftp", "ftp://127.0.0.1/x", "ftp:// is refused"),
            ("with a user name", "https://a:b@127.0.0.1/x", "user name"),
            ("to nothing", "", "without saying where"),
            ("in a circle", hub.url + "/org/some-GGUF/resolve/x", "more than 5 times")):
        place = fresh()
        hub.faults = [Fault("/resolve/", to(address), -1)]
        refused("redirected " + what, place, place.run("pull", NAME + ":Q4_K_M"), sentence)
    place = fresh()
    hub.faults = [Fault("/revision/", lambda h, r: h.answer(307, b"", Location=h.path + "?moved"))]
    pulled("redirected within the hub", place, place.run("pull", NAME + ":Q4_K_M", HF_TOKEN="t"))
    check("where the token goes along",
          all(r.token == "Bearer t" for r in hub.requests if r.server == "hub"))


def check_pages():
    """The next page of the listing obeys the rules of redirections, and stays with its server."""
    def linked(address):
        def act(handler, request):
            handler.answer(200, b"[]", Link=f'<{address}>; rel="next"')
        return act
    place = fresh()
    hub.add("org/paged", {"p-Q4_0.gguf": random_bytes(16, 5000), "README.md": b"x"})
    path = f"/api/models/org/paged/tree/{COMMIT}"
    hub.faults = [Fault("/tree/", linked(path + "?recursive=true"))]
    pulled("a next page at a relative address", place, place.run("pull", "org/paged", HF_TOKEN="t"),
           "org/paged", ["p-Q4_0.gguf"])
    for what, address, sentence in (
            ("at another server", hub.cdn_url + path, "at another server, http://127.0.0.1"),
            ("by http elsewhere", "http://example.com" + path, "http://example.com is refused"),
            ("by https elsewhere", "https://example.com" + path, "https://example.com, which is"),
            ("in a file", "file:///etc/passwd", "file:// is refused"),
            ("with a user name", hub.url.replace("//", "//a:b@") + path, "user name")):
        place = fresh()
        hub.faults = [Fault("/tree/", linked(address))]
        refused("a next page " + what, place, place.run("pull", "org/paged", HF_TOKEN="t"), sentence)
        check("was not asked for", not [r for r in hub.requests if r.server == "cdn"])


def check_proxy():
    """http is for this machine only: a proxy would see the token."""
    place = fresh()
    proxy = hub.serve("proxy")
    done = place.run("pull", NAME + ":Q4_K_M", http_proxy=proxy, all_proxy=proxy, ALL_PROXY=proxy,
                     HF_TOKEN="secret")
    pulled("with a proxy in the environment", place, done)
    check("the proxy sees nothing", not [r for r in hub.requests if r.server == "proxy"],
          [(r.path, r.token) for r in hub.requests if r.server == "proxy"])


def check_remarks():
    """Bodies of redirections and errors are read to 1 MiB."""
    def endless(code, **fields):
        def act(handler, request):
            handler.send_response(code)
            for name, value in fields.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.close_connection = True
            for _ in range(64):
                handler.wfile.write(bytes(MIB))
                request.sent += MIB
        return act
    for what, act, part in (("a redirection", endless(302, Location="/x"), "/resolve/"),
                            ("an error", endless(404), "/resolve/"),
                            ("an error of a listing", endless(404), "/tree/")):
        place = fresh()
        hub.faults = [Fault(part, act, -1)]
        refused(what + " without end", place, place.run("pull", NAME + ":Q4_K_M"), "more than 1 MiB")
        check("is not read", sum(r.sent for r in hub.requests) < 32 * MIB)


def check_certificates():
    """A server that is not the one that its certificate names."""
    if not shutil.which("openssl"):
        print("SKIPPED: without openssl there is no certificate to refuse")
        return
    place = fresh()
    key, certificate = place.scratch / "key", place.scratch / "certificate"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=example",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    url = hub.serve("hub", tls)
    refused("a certificate that is not trusted", place,
            place.run("pull", NAME, HF_ENDPOINT=url, HF_TOKEN="secret"), "certificate")
    check("at the first connection, and without a request",
          hub.servers[-1].connections == 1 and not hub.requests, hub.servers[-1].connections)


# ------------------------------------------------------------------- hostile listings


def check_hostile_names():
    good = File(random_bytes(15, 5000))
    names = ["../../../../evil-Q4_0.gguf", "/tmp/evil-Q4_0.gguf", "a/../../evil-Q4_0.gguf", "..",
             ".", "", "a//b.gguf", "a/./b.gguf", "a\0b.gguf", "x/" * 600 + "b.gguf",
             "n" * 300 + ".gguf", "a\\..\\b.gguf", "a\nb.gguf", "b.gguf/", "\x7f.gguf"]
    for name in names:
        place = fresh()
        (place.scratch / "evil").mkdir()
        before = place.everything()
        repository = hub.add("org/evil", {})
        repository.tree = [good.entry("ok-Q4_0.gguf"), good.entry(name)]
        refused(f"the name {name[:20]!r}", place, place.run("pull", "org/evil"),
                "cannot be a file of the cache")
        check("and nothing is written", place.everything() == before, place.everything())
    for what, tree, sentence in (
            ("twice the same name", [good.entry("a.gguf"), good.entry("a.gguf")], "twice"),
            ("a file as a directory", [good.entry("a"), good.entry("a/b.gguf")], "inside of a file"),
            ("a hash that is a path", [good.entry("a.gguf") | {"lfs": {"oid": "../" * 21 + "x",
                                                                       "size": 1}}], "without a hash"),
            ("no hash", [{"type": "file", "path": "a.gguf", "size": 5}], "without a hash"),
            ("no size", [{"type": "file", "path": "a.gguf", "oid": COMMIT}], "without its size"),
            ("a negative size", [good.entry("a.gguf") | {"lfs": {"oid": "a" * 64, "size": -1}}],
             "without its size"),
            ("sizes whose sum has 64 bits", [{"type": "file", "path": f"a-Q4_0-{i:05}-of-00017.gguf",
                                              "size": (1 << 60) - 1, "oid": f"{i:040}"}
                                             for i in range(1, 18)], "more bytes than"),
            ("no name", [{"type": "file", "size": 5, "oid": COMMIT}], "without a name"),
            ("no array", b'{"error": 1}', "an array was expected"),
            ("no JSON", b"<html>", "not valid JSON"),
            ("deep JSON", b"[" * 100000, "not valid JSON")):
        place = fresh()
        hub.add("org/evil", {}).tree = tree
        refused(what, place, place.run("pull", "org/evil"), sentence)
    for commit in ("../../x", "", "main", "F" * 40):
        place = fresh()
        hub.add("org/evil", {"a-Q4_0.gguf": good}, commit=commit)
        refused(f"the commit {commit!r}", place, place.run("pull", "org/evil"), "names no commit")
    place = fresh()
    hub.add("org/evil", {"a": good, "x-Q4_0.gguf": good})
    place.run("pull", "org/evil")
    hub.add("org/evil", {"x-Q4_0.gguf/evil-Q4_0.gguf": good})
    done = place.run("pull", "org/evil")
    check("a directory where a link was", done.returncode == 1 and "cannot be" in done.stderr
          and not place.unverified(), done.stderr)


# ------------------------------------------------------------------- several at a time


def check_two_processes():
    place = fresh()
    asked, go_on = threading.Event(), threading.Event()

    def hold(handler, request):
        """Until the second process says that it waits for the first, which holds the lock."""
        asked.set()
        go_on.wait(60)
        return False
    hub.faults = [Fault("/", hold, -1, "cdn")]
    first = place.start("pull", NAME + ":Q4_K_M")
    check("the first one asks for the file", asked.wait(60))
    second = place.start("pull", NAME + ":Q4_K_M")
    said = ""
    while "another process downloads" not in said and (line := second.stderr.readline()):
        said += line
    check("the second one waits", "another process downloads" in said and second.poll() is None, said)
    go_on.set()
    ends = [p.communicate(timeout=60) for p in (first, second)]
    check("two processes end", (first.returncode, second.returncode) == (0, 0), ends)
    check("with the right file", not place.wrong(NAME, ["some-Q4_K_M.gguf"]))
    sent = sum(r.sent for r in hub.requests if r.server == "cdn")
    check("and it came once", sent < len(MODEL) + MIB, sent)

    # Another tool holds its lock on the file.
    place = fresh()
    blob = hub.repositories[NAME].files["some-Q4_K_M.gguf"].hash
    locks = place.cache / ".locks" / place.folder(NAME).name
    locks.mkdir(parents=True)
    with open(locks / (blob + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = place.start("pull", NAME + ":Q4_K_M")
        time.sleep(0.7)
        check("the lock of other tools is respected", waiting.poll() is None
              and not [r for r in hub.requests if r.server == "cdn"])
    waiting.communicate(timeout=60)
    check("until it is free", waiting.returncode == 0
          and not place.wrong(NAME, ["some-Q4_K_M.gguf"]))


def forbid_locks():
    """In a child: flock fails with ENOLCK, as on some network file systems."""
    number = {"x86_64": 73, "aarch64": 32}[platform.machine()]
    steps = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.ENOLCK),
             (0x06, 0, 0, 0x7fff0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(38, 1, 0, 0, 0) != 0 or prctl(22, 2, program) != 0:
        os._exit(77)


def check_no_locks():
    if platform.machine() not in ("x86_64", "aarch64"):
        return
    place = fresh()
    done = subprocess.run([PROGRAM, "pull", NAME + ":Q4_K_M"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=place.environment(),
                          preexec_fn=forbid_locks)
    if done.returncode == 77:
        print("SKIPPED: system calls cannot be filtered here")
        return
    refused("a file system without locks", place, done, "has no file locks")
    check("writes nothing", not list(place.folder(NAME).glob("blobs/*")), place.everything())


def check_interrupt():
    place = fresh()
    hub.pace = MIB
    process = place.start("pull", NAME + ":Q4_K_M")
    while sum(r.sent for r in hub.requests if r.server == "cdn") < 2 * MIB and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    check("Ctrl-C ends with 130", process.returncode == 130 and "is kept" in err, err)
    check("without a snapshot", not list(place.cache.glob("models--*/snapshots/*")))
    done = place.run("list")
    check("list shows what is incomplete", "incomplete" in done.stdout, done.stdout)
    before = sum(r.sent for r in hub.requests if r.server == "cdn")
    blob = hub.repositories[NAME].files["some-Q4_K_M.gguf"].hash
    record = (place.folder(NAME) / "blobs" / (blob + ".moeflux.ranges")).read_text().splitlines()
    written = sum(int(end) - int(first) for first, end in map(str.split, record[2:-1]))
    listed = json.loads(place.run("list", "--json").stdout)[0]["incomplete_bytes"]
    check("of it what is written, not what is reserved", 0 < listed == written < len(MODEL),
          (listed, written))
    hub.reset()
    pulled("and goes on", place, place.run("pull", NAME + ":Q4_K_M"))
    after = sum(r.sent for r in hub.requests if r.server == "cdn")
    check("with what was missing", before > MIB and after < len(MODEL) - before // 2,
          (before, after, len(MODEL)))


def check_bar():
    place = fresh()
    hub.pace = 2 * MIB
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "pull", NAME + ":Q4_K_M", "--connections", "2"], stdin=inner, stdout=inner,
        stderr=inner, close_fds=True, env=place.environment(TERM="xterm", COLUMNS="100"))
    os.close(inner)
    shown = read_all(outer)
    process.wait(60)
    bars = re.findall(r"of 6\.0 MiB [^\r]* [\d.]+ [KM]iB/s, \d+:\d\d left", shown)
    check("a bar with rate and time left", len(bars) > 3, shown)
    check("which is erased before the path", re.search(r"\r\x1b\[K/[^\r\n]*Q4_K_M\.gguf\r\n$", shown),
          repr(shown[-300:]))


TESTS = (check_silence, check_faults, check_addresses, check_formats, check_choice, check_pull,
         check_same_files, check_home, check_directories, check_wrong_bytes, check_damaged,
         check_tokens, check_redirections, check_pages, check_proxy, check_remarks,
         check_certificates, check_hostile_names, check_two_processes, check_no_locks,
         check_interrupt, check_bar)
run_all(TESTS)
