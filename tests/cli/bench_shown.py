"""What `moeflux bench` shows on a terminal while it measures, and the plot that it draws."""
import os
import pty
import subprocess
import sys
import tempfile
import xml.dom.minidom

program = os.path.abspath(sys.argv[1])


def expect(condition, what, shown):
    if not condition:
        sys.exit(f"{what}\n--- shown:\n{shown}")


def run_on_terminal(*arguments):
    """Standard output and what a terminal at stderr received."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=its_end,
                               env={**os.environ, "TERM": "xterm"})
    os.close(its_end)
    seen = b""
    try:
        while piece := os.read(terminal, 4096):
            seen += piece
    except OSError:  # the other end is closed
        pass
    out = process.stdout.read().decode()
    expect(process.wait() == 0, f"exit status {process.returncode}", seen)
    return out, seen.decode()


def progress_is_shown_and_erased():
    table, line = run_on_terminal("bench", "-p", "16", "-n", "2", "-d", "0,40", "-r", "2",
                                  "--no-ceilings")
    for part in ("filling the context: 0 of 40", "decode 2, warm-up",
                 "prefill 16 at 40, round 2 of 2", " left"):
        expect(part in line, f"no {part!r} on the terminal", line)
    expect(line.endswith("\r\033[K"), "the progress line is still there at the end", line)
    expect("round" not in table, "progress among the data", table)
    tests = table.split("\n\n")[1]  # a table of reads may follow
    expect(tests.count("prefill") == 2, "one line for each prefill test", table)


def run(directory, *arguments):
    return subprocess.run([program, *arguments], cwd=directory, capture_output=True, text=True)


def plot_is_complete_xml():
    with tempfile.TemporaryDirectory() as directory:
        done = run(directory, "bench", "-p", "8,16", "-n", "2", "-d", "0,32", "-r", "2",
                   "--no-ceilings", "--plot", "p.svg")
        expect(done.returncode == 0, "bench --plot fails", done.stderr)
        root = xml.dom.minidom.parse(os.path.join(directory, "p.svg")).documentElement
        texts = [node.firstChild.data for node in root.getElementsByTagName("text")]
        counts = {name: len(root.getElementsByTagName(name)) for name in ("circle", "polyline")}
        expect(root.tagName == "svg" and texts[0] == "pebble", "wrong head", texts)
        # six medians and three keys; three curves
        expect(counts == {"circle": 9, "polyline": 3}, "other marks", counts)
        expect(texts.count("tokens/s") == 2 and texts.count("tokens in the context") == 2,
               "other axes", texts)


def failure_leaves_no_plot():
    with tempfile.TemporaryDirectory() as directory:
        done = run(directory, "bench", "--plot", "no/p.svg")
        expect(done.returncode == 1 and "no/p.svg cannot be written: No such file" in done.stderr,
               "a wrong path is accepted", done.stderr)
        done = run(directory, "bench", "-m", "none", "--plot", "q.svg")
        expect(done.returncode == 1, "a missing model is accepted", done.stderr)
        expect(os.listdir(directory) == [], "files are left", os.listdir(directory))


progress_is_shown_and_erased()
plot_is_complete_xml()
failure_leaves_no_plot()
