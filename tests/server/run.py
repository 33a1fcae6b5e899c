#!/usr/bin/env python3
"""Runs a file of tests in Node against `moeflux serve`.

    run.py PROGRAM FILE.mjs [NAME=VALUE…] [-- options of serve…]

The file gets MOEFLUX_URL, MOEFLUX_PROGRAM and NAME=VALUE in its environment.  Exit status 77: Node,
npm or its registry is not to be had here."""
import os
import shutil
import subprocess
import sys
import tempfile

import clients
import served


def main():
    program, file = os.path.realpath(sys.argv[1]), sys.argv[2]
    rest = sys.argv[3:]
    split = rest.index("--") if "--" in rest else len(rest)
    node, installed = clients.install()
    environment = dict(os.environ, MOEFLUX_PROGRAM=program, NO_COLOR="1")
    environment.update(pair.split("=", 1) for pair in rest[:split])
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
                 "ANTHROPIC_AUTH_TOKEN", "OLLAMA_HOST", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy",
                 "https_proxy", "ALL_PROXY", "all_proxy"):
        environment.pop(name, None)
    with tempfile.TemporaryDirectory() as place:
        # Packages are found from where a file is.
        for name in os.listdir(clients.HERE):
            if name.endswith(".mjs"):
                shutil.copy(os.path.join(clients.HERE, name), place)
        os.symlink(os.path.join(installed, "node_modules"), os.path.join(place, "node_modules"))
        with served.Server(program, *rest[split + 1:]) as server:
            environment["MOEFLUX_URL"] = server.url
            run = subprocess.run([node, "--test-reporter=spec", os.path.basename(file)], cwd=place,
                                 env=environment)
            if run.returncode == 77:
                sys.exit(77)
            served.check(run.returncode == 0, f"{os.path.basename(file)} has failed tests")


served.main(main)
