#!/usr/bin/env python3
"""How `moeflux serve` ends: answers under way are finished, or told that they are cut off and found
again by the next server; and how it begins.

    shutdown.py PROGRAM
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

program = sys.argv[1]
home = tempfile.mkdtemp()


def check(condition, what):
    if not condition:
        sys.exit("FAILED: %s" % (what,))


def start(*options):
    process = subprocess.Popen([program, "serve", "--port", "0", *options], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    check(" at http://" in line, "the line of the address: " + line)
    return process, int(line.split(" at http://127.0.0.1:")[1].split()[0])


def begin(port, count):
    """A stream whose first token has come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"messages": [{"role": "user", "content": "Tell me about a fox. " * 60}], "temperature": 0,
            "max_tokens": count, "ignore_eos": True, "stream": True,
            "chat_template_kwargs": {"enable_thinking": False}}
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    reply = connection.getresponse()
    check(reply.status == 200, reply.status)
    while b'"content":"' not in reply.readline():
        pass
    while b'"content":"' not in reply.readline():
        pass
    return reply


def records(reply):
    return [line[6:] for line in reply.read().decode().split("\n") if line.startswith("data: ")]


# Time enough: the answer is complete, and no new connection is accepted meanwhile.
process, port = start("--grace", "60")
reply = begin(port, 600)
process.send_signal(signal.SIGTERM)
time.sleep(0.3)
try:
    http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()
    check(False, "a connection was accepted")
except ConnectionRefusedError:
    pass
found = records(reply)
check(found[-1] == "[DONE]" and json.loads(found[-2])["choices"][0]["finish_reason"] == "length",
      found[-2:])
check(process.wait(30) == 0, "exit status %d" % process.returncode)

# None: the stream says that it is cut off; the next server knows what was read.
cache = os.path.join(home, "cache")
process, port = start("--grace", "0", "--cache-dir", cache)
reply = begin(port, 3000)
process.send_signal(signal.SIGTERM)
found = records(reply)
check("shutting down" in json.loads(found[-1])["error"]["message"], found[-1])
check(process.wait(30) == 0, "exit status %d" % process.returncode)
process, port = start("--cache-dir", cache)
reply = begin(port, 4)
reply.read()
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
connection.request("GET", "/v1/moeflux/requests")
last = json.loads(connection.getresponse().read())["recent"][0]
check(last["cached"]["resumed"] >= 256, last)

# A second signal does not wait.
reply = begin(port, 3000)
process.send_signal(signal.SIGINT)
time.sleep(0.3)
process.send_signal(signal.SIGINT)
check(process.wait(10) == -signal.SIGINT, "exit status %d" % process.returncode)

# A request that takes too long is ended, and says so.
process, port = start("--time-limit", "1")
found = records(begin(port, 3000))
check("--time-limit" in json.loads(found[-1])["error"]["message"], found[-1])
process.terminate()
check(process.wait(30) == 0, "exit status %d" % process.returncode)

# What cannot be is said, with status 2 or 1.
for options, status, sentence in [(["--host", "0.0.0.0"], 2, "--api-key-file"),
                                  (["--host", "192.0.2.1", "--insecure"], 1, "192.0.2.1"),
                                  (["--api-key-file", "/nothing"], 1, "/nothing"),
                                  (["-m", "/nothing"], 1, "/nothing"),
                                  (["--parallel", "0"], 2, "parallel")]:
    run = subprocess.run([program, "serve", "--port", "0", *options], capture_output=True, text=True,
                         timeout=60)
    check(run.returncode == status and sentence in run.stderr and run.stdout == "", run)
process, port = start("--port", "0")
run = subprocess.run([program, "serve", "--port", str(port)], capture_output=True, text=True)
check(run.returncode == 1 and str(port) in run.stderr, run)
process.terminate()
check(process.wait(30) == 0, "exit status %d" % process.returncode)
print("shutdown: all right")
