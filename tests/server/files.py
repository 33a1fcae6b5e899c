#!/usr/bin/env python3
"""Files and batches of `moeflux serve`: kept in --state-dir, also through kill -9.

    files.py PROGRAM
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
state = os.path.join(home, "state")


def check(condition, what):
    if not condition:
        sys.exit("FAILED: %s" % (what,))


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen([program, "serve", "--port", "0", "-c", "512", *options],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        check(" at http://" in line, "the line of the address: " + line)
        self.port = int(line.split(" at http://127.0.0.1:")[1].split()[0])

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, dict):
            body = json.dumps(body)
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, data

    def json(self, method, path, body=None, status=200, **headers):
        found, data = self.ask(method, path, body, **headers)
        check(found == status, (method, path, found, data))
        return json.loads(data)

    def upload(self, lines, filename="in.jsonl", purpose="batch", **headers):
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        body = (b'--XyZ\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n'
                + purpose.encode() + b'\r\n--XyZ\r\nContent-Disposition: form-data; name="file"; '
                b'filename="' + filename.encode() + b'"\r\nContent-Type: application/jsonl\r\n\r\n'
                + content + b"\r\n--XyZ--\r\n")
        found, data = self.ask("POST", "/v1/files", body,
                               Content_Type="multipart/form-data; boundary=XyZ", **headers)
        return found, json.loads(data), content

    def wait(self, batch, wanted="completed", seconds=120):
        end = time.time() + seconds
        while time.time() < end:
            record = self.json("GET", "/v1/batches/" + batch)
            if record["status"] == wanted:
                return record
            check(record["status"] not in ("completed", "failed", "cancelled", "expired"), record)
            time.sleep(0.05)
        check(False, "a batch does not end")

    def end(self, sign=signal.SIGTERM):
        self.process.send_signal(sign)
        status = self.process.wait(60)
        check(status == (0 if sign == signal.SIGTERM else -sign), "exit status %d" % status)
        self.process.stdout.close()


def chat(name, question, **body):
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": question}], "temperature": 0,
                     "max_tokens": 20, "chat_template_kwargs": {"enable_thinking": False}, **body}}


def results(server, file):
    _, data = server.ask("GET", "/v1/files/%s/content" % file)
    lines = [json.loads(line) for line in data.splitlines()]
    check(len({line["custom_id"] for line in lines}) == len(lines), "a result is there twice")
    return {line["custom_id"]: line["response"] for line in lines}


lines = [chat("good %d" % i, "What is the capital of %s?" % country) for i, country in
         enumerate(["France", "Japan", "Italy"])] + [chat("hot", "hi", temperature=9)]

# Without a directory there are none, and that is said.
server = Server()
reply = server.json("GET", "/v1/files", status=501)
check("--state-dir" in reply["error"]["message"], reply)
server.json("POST", "/v1/batches", {"input_file_id": "x", "endpoint": "/v1/chat/completions"}, 501)
check(server.upload(lines)[0] == 501, "an upload without --state-dir")
server.end()

# Upload, list, read, delete.
server = Server("--state-dir", state, "--state-limit", "1M")
status, file, content = server.upload(lines, filename="../../etc/passwd")
check(status == 200 and file["bytes"] == len(content) and file["object"] == "file", file)
check(file["filename"] == "../../etc/passwd" and "owner" not in file, file)
check(server.ask("GET", "/v1/files/%s/content" % file["id"])[1] == content, "the bytes differ")
check([f["id"] for f in server.json("GET", "/v1/files")["data"]] == [file["id"]], "the list")
check(server.json("GET", "/v1/files/" + file["id"])["id"] == file["id"], "one file")
for name in ("file-none", "../lock", "%2e%2e%2flock", "reasoning.key", "lock", ""):
    server.json("GET", "/v1/files/" + name, status=404)
    server.json("GET", "/v1/files/%s/content" % name, status=404)
status, other, _ = server.upload(lines, purpose="fine-tune")
check(status == 400 and other["error"]["param"] == "purpose", other)
status, other, _ = server.upload([chat("big", "word " * 300000)])
check(status == 413, (status, other))

# A line that only begins like the boundary belongs to the file.
content = b"first\r\n--XyZ2\r\nlast"
head = b'--XyZ\r\nContent-Disposition: form-data; name='
found, data = server.ask("POST", "/v1/files", head + b'"purpose"\r\n\r\nbatch\r\n' + head
                         + b'"file"; filename="a"\r\n\r\n' + content + b"\r\n--XyZ--\r\n",
                         Content_Type="multipart/form-data; boundary=XyZ")
check(found == 200, (found, data))
part = json.loads(data)["id"]
check(server.ask("GET", "/v1/files/%s/content" % part)[1] == content, "a file is cut off")
server.json("DELETE", "/v1/files/" + part)

# A batch: results in one file, failures in the other.
batch = server.json("POST", "/v1/batches", {"input_file_id": file["id"], "completion_window": "24h",
                                            "endpoint": "/v1/chat/completions",
                                            "metadata": {"what": "capitals"}})
check(batch["status"] == "validating" and batch["metadata"] == {"what": "capitals"}, batch)
batch = server.wait(batch["id"])
check(batch["request_counts"] == {"total": 4, "completed": 3, "failed": 1}, batch)
good, bad = results(server, batch["output_file_id"]), results(server, batch["error_file_id"])
check(set(good) == {"good 0", "good 1", "good 2"} and set(bad) == {"hot"}, (good, bad))
check(good["good 1"]["body"]["choices"][0]["message"]["content"]
      == "The capital of Japan is Tokyo.", good)
check(bad["hot"]["status_code"] == 400, bad)
for body, param in [({"input_file_id": "file-none"}, "input_file_id"),
                    ({"input_file_id": file["id"], "endpoint": "/v1/embeddings"}, "endpoint"),
                    ({"input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                      "nonsense": 1}, "nonsense")]:
    reply = server.json("POST", "/v1/batches",
                        {"endpoint": "/v1/chat/completions", **body}, 400)
    check(reply["error"]["param"] == param, reply)
_, wrong, _ = server.upload([{"no": "request"}])
batch = server.json("POST", "/v1/batches", {"input_file_id": wrong["id"],
                                            "endpoint": "/v1/chat/completions"})
batch = server.wait(batch["id"], "failed")
check("custom_id" in batch["errors"]["data"][0]["message"], batch)

# Cancelled: what was answered is there; a file in use is kept.
many = [chat("n%d" % i, "Tell me a story about number %d." % i, max_tokens=120, ignore_eos=True)
        for i in range(40)]
_, long, _ = server.upload(many)
batch = server.json("POST", "/v1/batches", {"input_file_id": long["id"],
                                            "endpoint": "/v1/chat/completions"})
server.json("DELETE", "/v1/files/" + long["id"], status=409)
while server.json("GET", "/v1/batches/" + batch["id"])["request_counts"]["completed"] == 0:
    time.sleep(0.02)
for _ in range(2):
    batch = server.json("POST", "/v1/batches/%s/cancel" % batch["id"])
    check(batch["status"] in ("cancelling", "cancelled") and batch["cancelling_at"], batch)
batch = server.wait(batch["id"], "cancelled")
again = server.json("POST", "/v1/batches/%s/cancel" % batch["id"])
check(again == batch and batch["cancelling_at"], (again, batch))
count = batch["request_counts"]["completed"]
check(0 < count < 40 and len(results(server, batch["output_file_id"])) == count, batch)
check(server.json("DELETE", "/v1/files/" + file["id"])["deleted"], "deleting")
server.json("GET", "/v1/files/" + file["id"], status=404)

# kill -9 in the middle; the next server goes on, nothing is lost or there twice.
batch = server.json("POST", "/v1/batches", {"input_file_id": long["id"],
                                            "endpoint": "/v1/chat/completions"})
while server.json("GET", "/v1/batches/" + batch["id"])["request_counts"]["completed"] < 4:
    time.sleep(0.02)
server.end(signal.SIGKILL)
with open(os.path.join(state, "file-torn.new"), "w") as torn:
    torn.write("{")
with open(os.path.join(state, "notes.new"), "w") as foreign:
    foreign.write("of somebody else")
server = Server("--state-dir", state)
check(not os.path.exists(os.path.join(state, "file-torn.new")), "an unfinished file is left")
check(os.path.exists(os.path.join(state, "notes.new")), "a file of somebody else is gone")
batch = server.wait(batch["id"])
check(len(results(server, batch["output_file_id"])) == 40, batch)
second = subprocess.run([program, "serve", "--port", "0", "--state-dir", state],
                        capture_output=True, text=True)
check(second.returncode == 1 and "another server" in second.stderr, second.stderr)

# Stopped in the middle: what is left is not a failure, the next server answers it.
batch = server.json("POST", "/v1/batches", {"input_file_id": long["id"],
                                            "endpoint": "/v1/chat/completions"})
while server.json("GET", "/v1/batches/" + batch["id"])["request_counts"]["completed"] < 4:
    time.sleep(0.02)
server.end()
server = Server("--state-dir", state)
batch = server.wait(batch["id"])
check(batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}, batch)
check(len(results(server, batch["output_file_id"])) == 40, batch)
_, written = server.ask("GET", "/v1/files/%s/content" % batch["output_file_id"])
server.end()

# Killed after the results had become a file, before the batch said so: they are not made again.
path = os.path.join(state, batch["id"] + ".json")
with open(path) as file:
    record = json.load(file)
with open(path, "w") as file:
    json.dump({**record, "status": "in_progress"}, file)
server = Server("--state-dir", state)
batch = server.wait(batch["id"])
check(server.ask("GET", "/v1/files/%s/content" % batch["output_file_id"])[1] == written,
      "results were made again")
check(os.stat(os.path.join(state, batch["output_file_id"] + ".data")).st_mode & 0o77 == 0,
      "other users may read results")
server.end()

# A directory that others may change is refused, and so is a key that is none.
shared = os.path.join(home, "shared")
os.mkdir(shared)
os.chmod(shared, 0o777)
for options, word in (("--state-dir", shared), "chmod 700"), (("--api-key", ""), "empty"):
    ended = subprocess.run([program, "serve", "--port", "0", *options], capture_output=True,
                           text=True)
    check(ended.returncode in (1, 2) and word in ended.stderr, (options, ended))
check(os.listdir(shared) == [], "a file in a directory that was refused")

# Files of one key are not there for another.
keys = os.path.join(home, "keys")
with open(keys, "w") as out:
    out.write("first\nsecond\n")
server = Server("--state-dir", os.path.join(home, "two"), "--api-key-file", keys)
_, file, _ = server.upload(lines, Authorization="Bearer first")
server.json("GET", "/v1/files/" + file["id"], Authorization="Bearer first")
server.json("GET", "/v1/files/" + file["id"], status=404, Authorization="Bearer second")
check(server.json("GET", "/v1/files", Authorization="Bearer second")["data"] == [], "a foreign file")
server.json("GET", "/v1/files", status=401)
server.end()
print("files: all right")
