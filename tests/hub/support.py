"""What the tests of `moeflux pull` share: a scratch cache, the program in it, judgements."""
import hashlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import traceback

failed = 0


def check(what, good, shown=""):
    global failed
    failed += not good
    print(f"{what}: {'ok' if good else 'WRONG ' + str(shown)[:1500]}", flush=True)


def finish():
    sys.exit(failed > 0)


def finish_all(run, tests, at_a_time=6):
    """Each test in a process of its own, some at a time; ends with their failures."""
    running, codes = set(), []
    for test in tests:
        if len(running) == at_a_time:
            running.discard(wait_for_one(codes))
        child = os.fork()
        if child == 0:
            try:
                run(test)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(failed > 0)
        running.add(child)
    for _ in list(running):
        wait_for_one(codes)
    sys.exit(any(codes))


def wait_for_one(codes):
    child, code = os.wait()
    codes.append(code)
    return child


def random_bytes(seed, count):
    """Without a block of zeros, so that a hole in a file is seen."""
    return random.Random(seed).randbytes(count)


class Place:
    """HF_HOME in a directory of its own, for one test."""

    def __init__(self, program, hub):
        self.program, self.hub = program, hub
        self.keep = tempfile.TemporaryDirectory()
        self.scratch = pathlib.Path(self.keep.name)
        self.home = self.scratch / "home"
        self.cache = self.home / "hub"

    def environment(self, **more):
        plain = {k: v for k, v in os.environ.items()
                 if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
        plain.pop("XDG_CACHE_HOME", None)
        return plain | {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.home)} | more

    def run(self, *words, timeout=120, **more):
        return subprocess.run([self.program, *words], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=self.environment(**more),
                              timeout=timeout)

    def start(self, *words, **more):
        return subprocess.Popen([self.program, *words], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**more))

    def folder(self, name):
        return self.cache / ("models--" + name.replace("/", "--"))

    def snapshot(self, name):
        folder = self.folder(name)
        return folder / "snapshots" / (folder / "refs/main").read_text()

    def everything(self):
        """Paths of all that is there, but for the lock files, which stay."""
        return sorted(str(p.relative_to(self.scratch)) for p in self.scratch.rglob("*")
                      if ".locks" not in p.parts)

    def wrong(self, name, paths):
        """What is not as the hub has it, a sentence; "" all is well."""
        repository = self.hub.repositories[name]
        folder = self.folder(name)
        for path in paths:
            file, link = repository.files[path], self.snapshot(name) / path
            if not link.is_symlink() or not link.is_file():
                return f"{path} is no link to a file"
            if os.readlink(link) != "../" * (2 + path.count("/")) + "blobs/" + file.hash:
                return f"{path} is a link to {os.readlink(link)}"
            if link.read_bytes() != file.data:
                return f"{path} has other bytes"
        found = sorted(str(p.relative_to(self.snapshot(name)))
                       for p in self.snapshot(name).rglob("*") if not p.is_dir())
        if found != sorted(paths):
            return f"the snapshot has {found}"
        left = [p.name for p in (folder / "blobs").iterdir() if "moeflux" in p.name]
        return f"{left} are left" if left else ""

    def unverified(self):
        """Blobs whose name is not the hash of their bytes."""
        bad = []
        for path in self.cache.glob("models--*/blobs/*"):
            if "." in path.name:
                continue
            data = path.read_bytes()
            good = (hashlib.sha256(data).hexdigest() if len(path.name) == 64 else
                    hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())
            if good != path.name:
                bad.append(path.name)
        return bad
