#!/usr/bin/env python3
"""bind_python.py HEADER OUT: the declarations of moeflux.h as ctypes, for python/moeflux/_abi.py.

    tools/bind_python.py include/moeflux.h python/moeflux/_abi.py

Reads what `cc -E` leaves of the header: enums, structs, function pointers, functions.  A declaration
that it does not know ends it with a message.  tests/python compares its output with the file and
the layouts with those of the compiler."""
from __future__ import annotations

import os
import re
import subprocess
import sys

SCALARS = {
    "void": ("None", "None"), "_Bool": ("c.c_bool", "bool"), "bool": ("c.c_bool", "bool"),
    "char": ("c.c_char", "bytes"), "int": ("c.c_int", "int"), "float": ("c.c_float", "float"),
    "double": ("c.c_double", "float"), "size_t": ("c.c_size_t", "int"),
    "uint8_t": ("c.c_uint8", "int"), "uint16_t": ("c.c_uint16", "int"),
    "uint32_t": ("c.c_uint32", "int"), "uint64_t": ("c.c_uint64", "int"),
    "int32_t": ("c.c_int32", "int"), "int64_t": ("c.c_int64", "int"),
}
HEAD = '''"""The declarations of moeflux.h, written by tools/bind_python.py; not to be edited."""
# ruff: noqa
from __future__ import annotations

import ctypes as c
from typing import Any, Dict, List, Tuple
'''


def preprocessed(path: str) -> str:
    """The header's own lines, without those of the headers that it includes."""
    command = [os.environ.get("CC", "cc"), "-E", "-x", "c", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    own, lines = False, []
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = os.path.basename(marker[1]) == os.path.basename(path)
        elif own:
            lines.append(line)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)", "",
                  "\n".join(lines))
    return re.sub(r"\s+", " ", text)


def split_at(text: str, separator: str) -> list[str]:
    """At separators that are in no bracket."""
    parts, depth, last = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "({[") - (letter in ")}]")
        if letter == separator and depth == 0:
            parts.append(text[last:at].strip())
            last = at + 1
    parts.append(text[last:].strip())
    return [part for part in parts if part]


class Binder:
    def __init__(self) -> None:
        self.out: list[str] = []
        self.enums: set[str] = set()
        self.values: dict[str, int] = {}
        self.opaque: set[str] = set()
        self.structs: list[str] = []
        self.callbacks: set[str] = set()
        self.functions: list[str] = []

    def scalar(self, name: str) -> tuple[str, str]:
        if name in SCALARS:
            return SCALARS[name]
        if name in self.enums:
            return "c.c_int", "int"
        if name in self.structs or name in self.callbacks:
            return name, "Any" if name in self.callbacks else name
        sys.exit(f"bind_python.py: the type {name} is not known")

    def type_of(self, words: str, counted: bool) -> tuple[str, str]:
        """The ctypes type and the Python type of a declaration without its name.  `counted`: a
        length beside it says how long a text is, so that it need not be terminated."""
        constant = words.startswith("const ")
        stars = words.count("*")
        base = re.sub(r"\b(?:const|struct|enum)\b|\*", " ", words).strip()
        if stars == 0:
            return self.scalar(base)
        if base in ("void",) or base in self.opaque:
            inner = "c.c_void_p"
        elif base == "char":
            inner = "c.c_char_p" if constant and not (counted and stars == 1) else "c.c_void_p"
        else:
            inner = f"c.POINTER({self.scalar(base)[0]})"
        for _ in range(stars - 1):
            inner = f"c.POINTER({inner})"
        return inner, "Any"

    def declarator(self, text: str, counted: bool = False) -> list[tuple[str, str, str]]:
        """Names with both types of one declaration of a field or a parameter."""
        pointer = re.match(r"(.*?)\(\s*\*\s*(\w*)\s*\)\s*\((.*)\)$", text)
        if pointer:
            return [(pointer[2], self.callback(pointer[1].strip(), pointer[3]), "Any")]
        first, *others = split_at(text, ",")
        found = re.match(r"((?:const )?(?:struct |enum )?\w+(?:[ *]|const\b)*?)(\w+)?"
                         r"((?:\s*\[[^\]]*\])*)$", first)
        if not found:
            sys.exit(f"bind_python.py: the declaration {text!r} is not known")
        words, name, arrays = found[1].strip(), found[2] or "", found[3]
        if not name and words not in SCALARS:  # "mf_sequence *sequence" leaves no doubt
            sys.exit(f"bind_python.py: {text!r} has no name")
        names = [(name, arrays)]
        for other in others:
            match = re.match(r"(\w+)((?:\s*\[[^\]]*\])*)$", other)
            if not match:
                sys.exit(f"bind_python.py: the declaration {text!r} is not known")
            names.append((match[1], match[2]))
        fields = []
        for name, arrays in names:
            native, python = self.type_of(words, counted)
            for size in re.findall(r"\[([^\]]*)\]", arrays):
                count = size.strip() if size.strip().isdigit() else str(self.values[size.strip()])
                native, python = f"{native} * {count}", "bytes" if python == "bytes" else "Any"
            fields.append((name, native, python))
        return fields

    def parameters(self, text: str) -> list[str]:
        parts = [] if text.strip() in ("", "void") else split_at(text, ",")
        result = []
        for at, part in enumerate(parts):
            follower = parts[at + 1] if at + 1 < len(parts) else ""
            for _, native, _ in self.declarator(part, counted=follower == "size_t length"):
                result.append(native)
        return result

    def callback(self, returns: str, parameters: str) -> str:
        native = self.type_of(returns, False)[0]
        return f"c.CFUNCTYPE({', '.join([native, *self.parameters(parameters)])})"

    def enum(self, name: str | None, body: str) -> None:
        value = -1
        self.out.append("")
        for item in split_at(body, ","):
            key, _, text = (part.strip() for part in item.partition("="))
            value = int(text, 0) if text else value + 1
            self.values[key] = value
            self.out.append(f"{key} = {value}")
        if name:
            self.enums.add(name)

    def struct(self, name: str, body: str, base: str = "Structure") -> None:
        fields: list[tuple[str, str, str]] = []
        anonymous = []
        texts = split_at(body, ";")
        lengths = set(re.findall(r"\b(\w*length)\b", body))
        for text in texts:
            union = re.match(r"union \{(.*)\}$", text)
            if union:
                self.struct(f"{name}_union", union[1], "Union")
                anonymous.append("_union")
                fields.append(("_union", f"{name}_union", "Any"))
                continue
            field = re.match(r".*?(\w+)$", text)
            name_of = field[1] if field else ""
            counted = ("length" if name_of == "text" else f"{name_of}_length") in lengths
            fields += self.declarator(text, counted)
        self.out += ["", "", f"class {name}(c.{base}):"]
        self.out += [f"    {field}: {python}" for field, _, python in fields]
        if anonymous:
            self.out.append(f"    _anonymous_ = {tuple(anonymous)!r}")
        self.out.append("    _fields_ = [")
        self.out += [f"        ({field!r}, {native})," for field, native, _ in fields]
        self.out.append("    ]")
        self.structs.append(name)

    def function(self, returns: str, name: str, parameters: str) -> None:
        counted = "size_t *length" in parameters
        native = self.type_of(returns, counted)[0]
        arguments = ", ".join(self.parameters(parameters))
        self.functions.append(f"    {name!r}: ({native}, [{arguments}]),")

    def declaration(self, text: str) -> None:
        if match := re.match(r"typedef struct (\w+) \{(.*)\} \w+$", text):
            self.struct(match[1], match[2])
        elif match := re.match(r"typedef struct (\w+) \w+$", text):
            self.opaque.add(match[1])
        elif match := re.match(r"typedef enum (\w+) \{(.*)\} \w+$", text):
            self.enum(match[1], match[2])
        elif match := re.match(r"enum \{(.*)\}$", text):
            self.enum(None, match[1])
        elif match := re.match(r"typedef (.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", text):
            self.out += ["", f"{match[2]} = {self.callback(match[1].strip(), match[3])}"]
            self.callbacks.add(match[2])
        elif match := re.match(r"(.*?)(mf_\w+)\s*\((.*)\)$", text):
            self.function(match[1].strip(), match[2], match[3])
        else:
            sys.exit(f"bind_python.py: the declaration {text!r} is not known")

    def module(self) -> str:
        table = ["", "", "# name: what it returns, what it takes",
                 "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {", *self.functions, "}"]
        names = ["", "STRUCTS: List[Any] = [", *(f"    {name}," for name in self.structs), "]"]
        return "\n".join([HEAD.rstrip(), *self.out, *table, *names]) + "\n"


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: bind_python.py HEADER OUT", file=sys.stderr)
        return 2
    binder = Binder()
    for text in split_at(preprocessed(sys.argv[1]), ";"):
        binder.declaration(text)
    if sys.argv[2] == "-":
        sys.stdout.write(binder.module())
    else:
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            out.write(binder.module())
    return 0


if __name__ == "__main__":
    sys.exit(main())
