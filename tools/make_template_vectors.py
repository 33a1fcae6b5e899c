#!/usr/bin/env python3
"""Vectors for the test of the Jinja interpreter, computed by Jinja itself.

    tools/make_template_vectors.py tests/fixtures/templates

reads templates.txt (templates with a line "@@@" between them) and context.json from that
directory and writes jinja.jsonl, a line per template:

    {"template": …, "expected": …}       or, where it fails,
    {"template": …, "error": kind, "message": …}

Needs the Python package jinja2 (3.1.6 wrote the committed file), which is set up as Hugging Face
transformers does, with `do`, `from_json` and mutable lists besides.  What Jinja prints with the
address of an object has no place among the templates.
"""

import datetime
import json
import sys
import warnings

import jinja2
from jinja2.sandbox import SandboxedEnvironment


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


KINDS = [
    (Raised, "raise_exception"),
    (jinja2.TemplateSyntaxError, "syntax_error"),
    (jinja2.UndefinedError, "undefined_error"),
    (TypeError, "type_error"),
    (ZeroDivisionError, "ZeroDivisionError"),
    (Exception, "other"),
]


def render(environment, template, context):
    try:
        return {"expected": environment.from_string(template).render(**context)}
    except Exception as problem:  # every kind of failure is a result here
        kind = next(name for type_, name in KINDS if isinstance(problem, type_))
        return {"error": kind, "message": str(problem)}


def main(directory):
    warnings.simplefilter("ignore", SyntaxWarning)
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"])
    moment = datetime.datetime(2025, 7, 4, 13, 5)
    environment.filters.update(tojson=to_json, from_json=json.loads)
    environment.globals.update(raise_exception=raise_exception, strftime_now=moment.strftime)
    with open(f"{directory}/context.json", encoding="utf-8") as file:
        context = file.read()
    with open(f"{directory}/templates.txt", encoding="utf-8", newline="") as file:
        templates = file.read().removesuffix("\n").split("\n@@@\n")
    with open(f"{directory}/jinja.jsonl", "w", encoding="utf-8", newline="") as file:
        for template in templates:
            line = {"template": template, **render(environment, template, json.loads(context))}
            assert " at 0x" not in line.get("expected", ""), template
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
