#!/usr/bin/env python3
"""Coding agents from npm, unmodified, against `moeflux serve`, with the configuration that
`moeflux connect` writes: each runs one command in an empty directory and ends; its second request
finds the first one's prompt in the cache.

    agents.py PROGRAM [AGENT…]      codex, opencode, qwen

The embedded model cannot follow such prompts, so its answers are forced: between agent and server
stands a relay that gives the agent's own shell tool a schema with one possible call, asks for that
call first, and then for a short text.  What it relays is otherwise what both have sent.
Exit status 77: Node, npm or its registry is not to be had here."""
import http.client
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

import clients
import served
from served import check

CONTEXT = 65536
PROOF = "forty-two"
COMMAND = f"echo {PROOF} > proof.txt && cat proof.txt"
# What an agent's tool for commands is called, and the arguments that are forced.
SHELLS = {
    "bash": {"command": COMMAND, "description": "Writes a file"},
    "run_shell_command": {"command": COMMAND, "description": "Writes a file",
                          "is_background": False},
    "exec_command": {"cmd": COMMAND},
    "shell": {"command": ["bash", "-lc", COMMAND]},
    "shell_command": {"command": COMMAND},
}


def only(value):
    """The schema of one value."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: only(each) for key, each in value.items()},
                "required": list(value), "additionalProperties": False}
    return {"const": value}


def force_tools(tools):
    """Narrows the agent's shell tool; its name, or None."""
    for tool in tools:
        function = tool.get("function", tool)
        if function.get("name") in SHELLS:
            function["parameters"] = only(SHELLS[function["name"]])
            function.pop("strict", None)
            return function["name"]
    return None


def force_chat(body):
    """What is said of a request: "call", "answer", or "helper"."""
    name = force_tools(body.get("tools") or [])
    if not name:
        body["max_tokens"] = 8
        return "helper"
    if any(message["role"] == "tool" for message in body["messages"]):
        check(PROOF in json.dumps(body["messages"]), "the tool's output did not come back")
        body.update(tool_choice="none", max_tokens=12)
        return "answer"
    body.update(tool_choice={"type": "function", "function": {"name": name}},
                parallel_tool_calls=False)
    return "call"


def force_responses(body):
    name = force_tools(body.get("tools") or [])
    if not name:
        body["max_output_tokens"] = 8
        return "helper"
    if any(item.get("type") == "function_call_output" for item in body["input"]):
        check(PROOF in json.dumps(body["input"]), "the tool's output did not come back")
        body.update(tool_choice="none", max_output_tokens=2000,
                    text={"format": {"type": "json_schema", "name": "end",
                                     "schema": {"const": "It is done."}}})
        return "answer"
    body.update(tool_choice={"type": "function", "name": name}, parallel_tool_calls=False)
    return "call"


FORCES = {"chat/completions": force_chat, "responses": force_responses}


def usage_of(data):
    """(tokens of the prompt, of them cached) of a stream or a whole reply."""
    found = None
    for line in data.decode().splitlines():
        text = line[6:] if line.startswith("data: ") else line
        if text.startswith("{"):
            value = json.loads(text)
            found = value.get("usage") or value.get("response", {}).get("usage") or found
    check(found, f"no usage in {data[-500:]!r}")
    details = found.get("prompt_tokens_details") or found.get("input_tokens_details")
    return found.get("prompt_tokens") or found.get("input_tokens"), details["cached_tokens"]


class Relay(http.server.ThreadingHTTPServer):
    """Between an agent and the server; `seen` is [(kind, tokens of the prompt, cached)]."""

    daemon_threads = True

    def __init__(self, server):
        super().__init__(("127.0.0.1", 0), Handler)
        self.server, self.seen, self.problems = server, [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def relay(self):
        relay, kind = self.server, None
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        for path, force in FORCES.items():
            if self.path.split("?")[0].endswith(path) and self.command == "POST":
                body = json.loads(data)
                try:
                    kind = force(body)
                except served.Failed as error:
                    relay.problems.append(str(error))
                data = json.dumps(body).encode()
        connection = http.client.HTTPConnection(relay.server.host, relay.server.port, timeout=300)
        headers = {name: value for name, value in self.headers.items()
                   if name.lower() not in ("host", "content-length", "connection")}
        connection.request(self.command, self.path, data or None, headers)
        reply = connection.getresponse()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "date"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        whole = b""
        while part := reply.read1(65536):
            whole += part
            self.wfile.write(part)
            self.wfile.flush()
        connection.close()
        if kind and reply.status == 200:
            relay.seen.append((kind, *usage_of(whole)))
        elif kind:
            relay.problems.append(f"status {reply.status}: {whole[:400]!r}")

    do_GET = do_POST = relay


def native(directory, *path):
    return os.path.join(directory, "node_modules", *path)


def commands(directory, node, url):
    """What starts each agent, in an empty directory, and its environment."""
    ask = "Write a file with a command."
    model = ["-m", "moeflux/pebble"]
    return {
        "codex": ([native(directory, "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin",
                          "codex"), "exec", "-p", "moeflux", "--skip-git-repo-check",
                   "--dangerously-bypass-approvals-and-sandbox", ask], {}),
        "opencode": ([native(directory, "opencode-linux-x64/bin/opencode"), "run", *model, ask],
                     {}),
        "qwen": ([node, native(directory, "@qwen-code/qwen-code/cli-entry.js"), "--auth-type",
                  "openai", "--approval-mode", "yolo", "-p", ask],
                 {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none",
                  "OPENAI_MODEL": "pebble"}),
    }


def judge(name, program, relay, directory, node):
    url = f"http://127.0.0.1:{relay.server_address[1]}"
    command, more = commands(directory, node, url)[name]
    relay.seen.clear()
    relay.problems.clear()
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as place:
        environment = {"HOME": home, "PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8",
                       "TMPDIR": home, **more}
        subprocess.run([program, "connect", name, "--url", url, "--write", "--yes"],
                       env=environment, check=True, capture_output=True)
        run = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=400)
        tail = (run.stdout + run.stderr)[-1500:]
        print(f"{name}: {relay.seen}", flush=True)
        check(not relay.problems, f"{name}: {relay.problems[0] if relay.problems else ''}\n{tail}")
        check(run.returncode == 0, f"{name} ended with {run.returncode}:\n{tail}")
        proof = os.path.join(place, "proof.txt")
        check(os.path.exists(proof), f"{name} did not run the command:\n{tail}")
        with open(proof) as file:
            check(file.read().strip() == PROOF, f"{name}: the file has other contents")
    calls = [row for row in relay.seen if row[0] == "call"]
    answers = [row for row in relay.seen if row[0] == "answer"]
    check(calls and answers, f"{name} made the requests {relay.seen}")
    share = answers[0][2] / calls[-1][1]
    print(f"{name}: the first prompt has {calls[-1][1]} tokens, {answers[0][2]} of them are reused "
          f"by the second request ({100 * share:.1f}%)", flush=True)
    check(share >= 0.95, f"{name}: only {100 * share:.1f}% of the first prompt were reused")


def tests():
    program = os.path.realpath(sys.argv[1])
    names = [name for name in sys.argv[2:] if not name.startswith("-")]
    node, _ = clients.install()
    directory = clients.packages(os.path.join(clients.HERE, "agents"))
    if not shutil.which("bash"):
        clients.skip("bash is needed, which agents run commands with")
    failed = []
    with served.Server(program, "-c", str(CONTEXT), "--memory", "3G") as server:
        relay = Relay(server)
        for name in names or ["codex", "opencode", "qwen"]:
            try:
                judge(name, program, relay, directory, node)
            except (served.Failed, subprocess.SubprocessError) as error:
                failed.append(name)
                print(f"FAILED: {error}", file=sys.stderr)
                if getattr(error, "stderr", None):
                    print(error.stderr, file=sys.stderr)
        relay.shutdown()
    check(not failed, f"agents that did not: {', '.join(failed)}")


served.main(tests)
