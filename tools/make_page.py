#!/usr/bin/env python3
"""The page of `moeflux serve` as a C file:
tools/make_page.py WEB TREE OUT.c LICENCES DEPFILE auto|enabled|disabled
tools/make_page.py types WEB TREE: checks the types only

WEB is the directory web/; its files are copied to TREE (in the build directory), where npm installs
what the lock file names and vite builds.  Without Node, npm or a registry that answers, OUT.c has
WEB/fallback.html instead: the build never fails or hangs for lack of a network, unless the option
web=enabled wants the page.  Nothing runs when the contents of WEB are those of the last time.
"""

import gzip
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

OLDEST_NODE = (20, 19)  # what vite needs
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Browsers take gzip; what a person may fetch with another program stays as it is.
COMPRESSED = {".js", ".css"}
NOT_COPIED = {"node_modules", "dist"}


class NoPage(Exception):
    """Why the page cannot be built here."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(what, seconds, directory, *command):
    """Runs a command with a time limit, its children included."""
    with subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise NoPage(f"{what} did not end within {seconds} s") from None
    if process.returncode != 0:
        tail = "\n".join("    " + line for line in output.strip().splitlines()[-8:])
        raise NoPage(f"{what} failed with status {process.returncode}:\n{tail}")
    return output


def inputs(web):
    """The files that the page is made of, and the directories whose contents matter."""
    files, directories = [], []
    for where, subdirectories, names in os.walk(web):
        subdirectories[:] = sorted(set(subdirectories) - NOT_COPIED)
        directories.append(Path(where))
        files += [Path(where) / name for name in sorted(names) if not name.startswith(".")]
    return files, directories


def fingerprint(web, files, extra):
    digest = hashlib.sha256(extra.encode())
    for file in [*files, Path(__file__)]:
        digest.update(f"{os.path.relpath(file, web)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def copy(web, tree, files):
    """Makes TREE have the contents of WEB, and keeps what npm installed."""
    wanted = {file.relative_to(web) for file in files}
    for where, subdirectories, names in os.walk(tree):
        subdirectories[:] = [name for name in subdirectories if name not in NOT_COPIED]
        for name in names:
            if (Path(where) / name).relative_to(tree) not in wanted:
                (Path(where) / name).unlink()
    for file in wanted:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(web / file, tree / file)


def find_node(tree):
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise NoPage(f"there is no {'npm' if node else 'node'} in PATH")
    version = run("node --version", 60, tree, node, "--version").strip()
    numbers = tuple(int(part) for part in version.lstrip("v").split(".")[:2])
    if numbers < OLDEST_NODE:
        raise NoPage(f"node is {version}; vite needs {'.'.join(map(str, OLDEST_NODE))} or newer")
    return node, npm


def install(tree, npm, *what):
    """npm ci, unless it was done for this lock file."""
    lock = hashlib.sha256((tree / "package-lock.json").read_bytes()).hexdigest() + " ".join(what)
    stamp = tree / "node_modules" / ".installed"
    if stamp.is_file() and stamp.read_text() == lock:
        return
    # Without a network npm gives up after two attempts of 15 s; the limit is for slow machines.
    run("npm ci", 400, tree, npm, "ci", *what, "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund",
        "--fetch-timeout=15000", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
    stamp.write_text(lock)


def built_page(web, tree, files):
    """{path: file} of a page that vite built."""
    tree.mkdir(parents=True, exist_ok=True)
    copy(web, tree, files)
    node, npm = find_node(tree)
    install(tree, npm, "--omit=dev")
    run("vite build", 400, tree, node, "node_modules/vite/bin/vite.js", "build", "--logLevel", "warn")
    dist = tree / "dist"
    found = {"/" + file.relative_to(dist).as_posix(): file for file in sorted(dist.rglob("*")) if file.is_file()}
    found["/"] = found.pop("/index.html")
    return found


def write_c(out, page):
    parts, rows = [], []
    for number, (path, file) in enumerate(sorted(page.items())):
        content = file.read_bytes()
        etag = hashlib.sha256(content).hexdigest()[:32]
        packed = file.suffix in COMPRESSED
        if packed:
            content = gzip.compress(content, 9, mtime=0)
        lines = [", ".join(map(str, content[at : at + 24])) for at in range(0, len(content), 24)]
        parts.append(f"static const unsigned char file_{number}[] = {{\n    " + ",\n    ".join(lines) + ",\n};\n")
        rows.append(
            f'    {{"{path}", "{TYPES[file.suffix]}", file_{number}, sizeof file_{number}, '
            f'{"true" if packed else "false"}, "\\"{etag}\\""}},\n'
        )
    text = (
        "/* Generated by tools/make_page.py. */\n"
        '#include "view/page.h"\n\n' + "\n".join(parts) + "\nconst struct page_file page_files[] = {\n" + "".join(rows)
        + "};\nconst size_t page_file_count = sizeof page_files / sizeof *page_files;\n"
    )
    out.write_text(text)


def write_depfile(depfile, out, files, directories):
    names = [str(name).replace(" ", "\\ ") for name in [*files, *directories]]
    depfile.write_text(f"{out}: " + " \\\n  ".join(names) + "\n")


def check_types(web, tree):
    """0: the types of web/src fit, or there is no compiler to be had here."""
    try:
        tree.mkdir(parents=True, exist_ok=True)
        copy(web, tree, inputs(web)[0])
        node, npm = find_node(tree)
        install(tree, npm)
    except NoPage as reason:
        say(f"SKIPPED: the types of web/ are not checked: {reason}")
        return 0
    return subprocess.run([node, "node_modules/typescript/bin/tsc", "--noEmit"], cwd=tree, check=False).returncode


def main():
    if sys.argv[1] == "types":
        return check_types(Path(sys.argv[2]), Path(sys.argv[3]))
    web, tree, out, licences, depfile = (Path(argument) for argument in sys.argv[1:6])
    option = sys.argv[6]
    files, directories = inputs(web)
    stamp = Path(f"{out}.stamp")
    mark = fingerprint(web, files, option)
    write_depfile(depfile, sys.argv[3], files, directories)
    if all(file.is_file() for file in (out, licences, stamp)) and stamp.read_text() == mark:
        out.touch()
        licences.touch()
        return 0
    try:
        if option == "disabled":
            raise NoPage("the option web is disabled")
        page = built_page(web, tree, files)
        write_c(out, page)
        shutil.copyfile(page["/assets/licenses.txt"], licences)
        stamp.write_text(mark)
    except NoPage as reason:
        if option == "enabled":
            say(f"The page cannot be built: {reason}")
            return 1
        if option == "auto":
            say("=" * 78)
            say(f"moeflux is built WITHOUT its page: {reason}")
            say("`moeflux serve` answers every interface; / says what is missing.")
            say(f"To try again: rm {out}; ninja.  To do without a page: meson configure -Dweb=disabled")
            say("=" * 78)
        write_c(out, {"/": web / "fallback.html"})
        licences.write_text("This build of moeflux has no code of npm packages in it.\n")
        stamp.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
