#!/usr/bin/env python3
"""moeflux connect: what clients are told of a running server, and how it joins their own files.

    connect.py PROGRAM"""
import json
import os
import pty
import re
import stat
import subprocess
import sys
import tempfile

program = os.path.realpath(sys.argv[1])
home = tempfile.mkdtemp()
key_file = os.path.join(home, "key")
PATHS = {"claude": ".claude/settings.json", "codex": ".codex/moeflux.config.toml",
         "opencode": ".config/opencode/opencode.json", "qwen": ".qwen/.env"}


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def environment():
    own = {name: value for name, value in os.environ.items()
           if name not in ("CODEX_HOME", "CLAUDE_CONFIG_DIR")}
    return {**own, "HOME": home}


def connect(*words, **more):
    return subprocess.run([program, "connect", *words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env={**environment(), **more})


def done(*words, **more):
    run = connect(*words, **more)
    check(run.returncode == 0, f"{words}: {run.returncode} {run.stderr}")
    return run


def refused(status, sentence, *words):
    run = connect(*words)
    check(run.returncode == status and sentence in run.stderr and run.stdout == "",
          f"{words}: {run.returncode} {run.stderr}{run.stdout}")


def path_of(client):
    return os.path.join(home, PATHS[client])


def content(client):
    with open(path_of(client)) as file:
        return file.read()


def put(client, text):
    os.makedirs(os.path.dirname(path_of(client)), exist_ok=True)
    with open(path_of(client), "w") as file:
        file.write(text)


def start(*options):
    server = subprocess.Popen([program, "serve", "--port", "0", *options], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = re.search(r"http://[0-9.:]+", server.stdout.readline())
    check(found, "serve has no address")
    return server, found[0]


def clients_are_told_what_the_server_is(url):
    for client in PATHS:
        run = done(client, "--url", url + "/v1/")
        check(not os.path.exists(path_of(client)), f"{client}: a file was written")
        check(url in run.stdout and "pebble" in run.stdout, run.stdout)
        check(path_of(client) in run.stderr and "4096 positions" in run.stderr, run.stderr)
    check('model_context_window = 4096\n' in done("codex", "--url", url).stdout, "codex")
    told = json.loads(done("claude", "--url", url).stdout)["env"]
    check(told["ANTHROPIC_BASE_URL"] == url and
          told["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "4096", str(told))
    model = json.loads(done("opencode", "--url", url).stdout)["provider"]["moeflux"]
    check(model["models"]["pebble"]["limit"]["context"] == 4096 and
          model["options"]["baseURL"] == url + "/v1", str(model))


def files_are_written_for_their_owner(url):
    for client in PATHS:
        run = done(client, "--url", url, "--write", "--yes")
        check(stat.S_IMODE(os.stat(path_of(client)).st_mode) == 0o600, f"mode of {client}")
        check(run.stdout in content(client), content(client))
        once = content(client)
        done(client, "--url", url, "--write", "--yes")
        check(content(client) == once, f"{client}: the second run changes the file")
        left = os.listdir(os.path.dirname(path_of(client)))
        check(left == [os.path.basename(path_of(client))], f"left beside it: {left}")


def what_else_is_there_stays(url):
    put("claude", '{"theme": "dark", "env": {"A": "1", "ANTHROPIC_MODEL": "old"}}')
    os.chmod(path_of("claude"), 0o640)
    done("claude", "--url", url, "--write", "--yes")
    held = json.loads(content("claude"))
    check(held["theme"] == "dark" and held["env"]["A"] == "1" and
          held["env"]["ANTHROPIC_MODEL"] == "pebble", str(held))
    check(stat.S_IMODE(os.stat(path_of("claude")).st_mode) == 0o640, "the mode has changed")
    before, after = "# mine\n", "\n# and this\n"
    block = content("codex")
    put("codex", before + block.replace(url, "http://old") + after)
    done("codex", "--url", url, "--write", "--yes")
    check(content("codex").startswith(before + after) and block in content("codex") and
          content("codex").count("[model_providers.moeflux]") == 1, content("codex"))
    # A link stays one.
    target = os.path.join(home, "dotfiles")
    os.rename(path_of("qwen"), target)
    os.symlink(target, path_of("qwen"))
    os.truncate(target, 0)
    done("qwen", "--url", url, "--write", "--yes")
    check(os.path.islink(path_of("qwen")) and url in content("qwen"), "the link is gone")
    # The client's own variable moves its directory.
    other = os.path.join(home, "other")
    done("codex", "--url", url, "--write", "--yes", CODEX_HOME=other)
    check(os.path.exists(os.path.join(other, "moeflux.config.toml")), "CODEX_HOME is not used")


def damaged_and_contradicting_files_are_left_alone(url):
    for client, text, sentence in [
            ("claude", '{"a": ', "settings.json"), ("claude", "[1]", "expected an object"),
            ("codex", "[model_providers.moeflux]\n", "has [model_providers.moeflux] already"),
            ("codex", "# moeflux connect: begin\n", "without one that ends it"),
            ("qwen", "OPENAI_API_KEY=x\n", "has OPENAI_API_KEY= already")]:
        put(client, text)
        run = connect(client, "--url", url, "--write", "--yes")
        check(run.returncode == 1 and sentence in run.stderr, f"{text}: {run.stderr}")
        check(content(client) == text, f"{client} was changed")
    os.unlink(path_of("codex"))


def a_question_comes_first(url):
    refused(2, "give --yes", "codex", "--url", url, "--write")
    for answer, written in ((b"n\n", False), (b"\n", False), (b"y\n", True)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([program, "connect", "codex", "--url", url, "--write"],
                                   stdin=theirs, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, env=environment())
        os.write(ours, answer)
        _, said = process.communicate()
        os.close(ours)
        os.close(theirs)
        check(process.returncode == 0 and b"[y/N]" in said, f"{answer}: {said}")
        check(os.path.exists(path_of("codex")) == written, f"{answer}: written {not written}")


def a_key_is_passed_on():
    with open(key_file, "w") as file:
        file.write("secret-7\n")
    server, url = start("--api-key-file", key_file)
    try:
        refused(1, "status 401", "codex", "--url", url)
        run = done("codex", "--url", url, "--api-key-file", key_file)
        check("secret-7" not in run.stdout and 'env_key = "MOEFLUX_API_KEY"' in run.stdout and
              key_file in run.stderr, run.stdout + run.stderr)
        told = json.loads(done("claude", "--url", url, "--api-key-file", key_file).stdout)
        check(told["env"]["ANTHROPIC_AUTH_TOKEN"] == "secret-7", str(told))
    finally:
        server.terminate()
        server.wait()


def wrong_words_are_refused(url):
    refused(2, "none of claude, codex, opencode and qwen", "emacs")
    refused(2, "none of claude, codex, opencode and qwen")
    refused(2, "--yes is for --write", "codex", "--yes")
    refused(1, "not the address of a server", "codex", "--url", "ftp://127.0.0.1")
    refused(1, "no server answers", "codex", "--url", "http://127.0.0.1:1")
    refused(1, "cannot be opened", "codex", "--url", url, "--api-key-file", home + "/absent")


server, url = start()
try:
    clients_are_told_what_the_server_is(url)
    files_are_written_for_their_owner(url)
    what_else_is_there_stays(url)
    damaged_and_contradicting_files_are_left_alone(url)
    a_question_comes_first(url)
    wrong_words_are_refused(url)
finally:
    server.terminate()
    server.wait()
a_key_is_passed_on()
