#!/usr/bin/env python3
"""Fields of requests that become variables of the chat template, seen through a model whose template
writes them out.

    template.py PROGRAM SOURCE"""
import json
import os
import sys
import tempfile

import served
from served import check

TEMPLATE = ("{{ messages[0].content }}|effort={{ reasoning_effort | default('none given') }}"
            "|think={{ enable_thinking | default('none given') }}")


def make_model(source, directory):
    """Pebble with the template above."""
    pebble = os.path.join(source, "models", "pebble")
    for name in os.listdir(pebble):
        if name != "tokenizer_config.json":
            os.symlink(os.path.join(pebble, name), os.path.join(directory, name))
    with open(os.path.join(pebble, "tokenizer_config.json")) as file:
        config = json.load(file)
    config["chat_template"] = TEMPLATE
    with open(os.path.join(directory, "tokenizer_config.json"), "w") as file:
        json.dump(config, file)


def expect(server, variables, effort, think):
    prompt = server.json("POST", "/apply-template", {
        "messages": [{"role": "user", "content": "hello"}], **variables})["prompt"]
    expected = f"hello|effort={effort}|think={think}"
    check(prompt == expected, f"{variables}: {prompt!r}, expected {expected!r}")


def expect_logged(server, path, body, effort, think):
    """The prompt of a request, from the log."""
    server.json("POST", path, {"model": "pebble",
                               "messages": [{"role": "user", "content": "hello"}], **body})
    prompt = json.loads(server.messages().splitlines()[-1].partition(" prompt ")[2])
    expected = f"hello|effort={effort}|think={think}"
    check(prompt == expected, f"{path} {body}: {prompt!r}, expected {expected!r}")


def tests():
    program, source = sys.argv[1], os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        make_model(source, directory)
        with served.Server(program, "-m", directory, "--log-prompts") as server:
            expect(server, {}, "none given", "none given")
            for effort, known, think in (("none", "low", False), ("minimal", "low", True),
                                         ("medium", "medium", True), ("max", "high", True)):
                expect(server, {"reasoning_effort": effort}, known, think)
            expect(server, {"reasoning_effort": "high",
                            "chat_template_kwargs": {"reasoning_effort": "own"}}, "own", True)
            status, _, data = server.ask("POST", "/apply-template", {
                "messages": [{"role": "user", "content": "hello"}], "reasoning_effort": "much"})
            check(status == 400 and b"reasoning_effort" in data, f"{status}: {data!r}")
            for level, known in (("low", "low"), ("medium", "medium"), ("high", "high"),
                                 ("max", "high")):
                expect_logged(server, "/api/chat", {"think": level, "stream": False,
                                                    "options": {"num_predict": 1}}, known, True)
                expect_logged(server, "/v1/messages", {"max_tokens": 1, "output_config": {
                    "effort": level}}, known, "none given")
            expect_logged(server, "/v1/messages", {"max_tokens": 1, "output_config": {
                "effort": "low"}, "thinking": {"type": "disabled"}}, "low", False)
            expect_logged(server, "/api/chat", {"think": False, "stream": False, "options": {
                "num_predict": 1}}, "none given", False)


served.main(tests)
