"""What the tests of `moeflux pull` and of the cache share: a hub with one repository for each test, which
runs in a process of its own; judgements; a terminal."""
import fcntl
import os
import pty
import subprocess
import sys
import termios
import threading
import time

from hub import Hub
from support import Place, check, finish_all, random_bytes

PROGRAM = sys.argv[1]
NAME = "org/some-GGUF"
MIB = 1 << 20
MODEL = random_bytes(1, 6 * MIB + 12345)
FILES = {"README.md": b"# A model\n", "some-Q4_K_M.gguf": MODEL, "some-Q8_0.gguf": MODEL + b"8",
         "some-BF16-00001-of-00002.gguf": random_bytes(2, MIB),
         "some-BF16-00002-of-00002.gguf": random_bytes(3, MIB),
         "some-IQ1_S.gguf": random_bytes(4, 5000), "mmproj-F16.gguf": random_bytes(5, 5000)}
SAFETENSORS = {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {}}',
               "model-00001-of-00002.safetensors": random_bytes(6, 2 * MIB),
               "model-00002-of-00002.safetensors": random_bytes(7, 70000),
               "tokenizer.json": random_bytes(8, 5000), "empty.txt": b"",
               "pytorch_model.bin": b"old", "onnx/model.onnx": b"other"}
hub = None  # of the process that runs a test


def pulled(what, place, done, name=NAME, paths=("some-Q4_K_M.gguf",)):
    wrong = "" if done.returncode else place.wrong(name, list(paths))
    check(what, done.returncode == 0 and not wrong, (done.returncode, wrong, done.stderr))


def refused(what, place, done, sentence, code=1):
    """One sentence as the last line, nothing unverified, no snapshot."""
    lines = done.stderr.strip().split("\n")
    good = done.returncode == code and sentence in lines[-1] and not done.stdout
    good = good and not list(place.cache.glob("models--*/snapshots/*")) and not place.unverified()
    check(what, good, (done.returncode, done.stdout, done.stderr, place.everything()))


def fresh():
    hub.reset()
    return Place(PROGRAM, hub)


def on_terminal(place, words, act, **more):
    """Runs it on a terminal and calls act(terminal) at the question; (exit status, what was shown)."""
    outer, inner = pty.openpty()
    asked = subprocess.Popen(
        [PROGRAM, *words], stdin=inner, stdout=inner, stderr=inner, env=place.environment(**more),
        close_fds=True, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(inner)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(outer, 4096)
    act(outer)
    rest = []
    drain = threading.Thread(target=lambda: rest.append(read_all(outer)))
    drain.start()
    asked.wait(60)
    drain.join()
    return asked.returncode, shown.decode() + rest[0]


def read_all(descriptor):
    """What is written to a terminal until its last writer has closed it."""
    shown = b""
    try:
        while piece := os.read(descriptor, 4096):
            shown += piece
    except OSError:
        pass
    return shown.decode(errors="replace")


def run_test(test):
    """In a process of its own: most of the time is waiting."""
    global hub
    hub = test.__globals__["hub"] = Hub()  # the module of the test has that name, too
    hub.add(NAME, FILES)
    begun = time.monotonic()
    test()
    print(f"  {test.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    hub.close()


def run_all(tests):
    """Those that the command line names, or all."""
    finish_all(run_test, [t for t in tests if t.__name__ in sys.argv[2:] or not sys.argv[2:]])
