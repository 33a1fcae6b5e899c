"""Man pages and completions know every command and every option of the help, man renders the pages
without a warning, and the shells complete with them.

manual.py PROGRAM DIRECTORY-OF-PAGES BASH ZSH FISH"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

program, directory, bash_file, zsh_file, fish_file = map(os.path.abspath, sys.argv[1:6])
failed = 0


def expect(condition, what):
    global failed
    if not condition:
        print(f"FAILED: {what}")
        failed += 1


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def printed(*words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def page_of(command):
    path = os.path.join(directory, f"moeflux-{command}.1")
    return text_of(path).replace("\\-", "-") if os.path.exists(path) else ""


commands = re.findall(r"^  ([a-z]+) ", printed("--help").split("commands:")[1], re.M)
options_of = {command: re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", printed(command, "--help"), re.M)
              for command in commands}


def choice_of():
    """A command with an option that has a list of values, and the list, out of the help's text."""
    return "run", "--backend", ["cpu", "reference"]


# ------------------------------------------------------------------------- pages

def check_pages():
    overview = text_of(os.path.join(directory, "moeflux.1")).replace("\\-", "-")
    for command in commands:
        expect(f"moeflux-{command} (1)" in overview, f"moeflux(1) names {command}")
        page = page_of(command)
        expect(page, f"{command} has a page")
        for option in options_of[command]:
            expect(re.search(rf"\\fB{option}\\fR", page), f"{option} of {command} is in its page")
        known = re.findall(r"\\fB(--[a-z-]+)\\fR", page)
        expect(sorted(known) == sorted(options_of[command]), f"{command}: only those of the help")
        expect("\n.SH EXAMPLES\n" in page, f"the page of {command} has examples")
    pages = {name for name in os.listdir(directory) if name.endswith(".1")}
    expect(pages == {"moeflux.1", *(f"moeflux-{command}.1" for command in commands)},
           f"a page for each command and no others: {sorted(pages)}")
    render(sorted(pages))


def render(pages):
    man = shutil.which("man")
    tool = [man, "--warnings", "--encoding=UTF-8", "--local-file"] if man else \
        ["groff", "-ww", "-man", "-Tutf8"]
    if not shutil.which(tool[0]):
        print("SKIPPED: neither man nor groff is here, so the pages are not formatted")
        return
    for name in pages:
        done = subprocess.run([*tool, os.path.join(directory, name)], capture_output=True,
                              text=True, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80",
                                              "MANPAGER": "cat"})
        expect(done.returncode == 0 and done.stderr == "", f"{name}: {tool[0]}: {done.stderr}")
        if name != "moeflux.1":
            expect(f"moeflux {name[8:-2]}" in re.sub(r".\b", "", done.stdout)
                   or f"moeflux {name[8:-2]}" in done.stdout, f"{name} can be shown")


# ----------------------------------------------------------------------- shells

class Shell:
    """An interactive shell in a terminal."""

    def __init__(self, words, setup):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.environ.update(TERM="dumb", PS1="", INPUTRC="/dev/null", HISTFILE="",
                              LC_ALL="C.UTF-8", HOME=os.path.dirname(bash_file))
            os.execvp(words[0], words)
        self.send(setup + "\necho rea''dy\n")
        self.read_until("ready")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, mark, seconds=20):
        seen, end = "", time.monotonic() + seconds
        while mark not in seen and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.2)[0]:
                try:
                    seen += os.read(self.terminal, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        return seen

    def completed(self, line):
        """The line after a tab: it is printed by an echo that is put before it."""
        self.send(line + "\t\x01echo '<'\x05'>'\r")
        seen = self.read_until("\n<")
        seen += self.read_until(">\r\n", 2) if ">\r\n" not in seen.rpartition("\n<")[2] else ""
        found = re.findall(r"^<(.*?)>\r?$", seen.replace("\r\n", "\n"), re.M)
        return found[-1].strip() if found else seen

    def close(self):
        self.send("\x03\nexit\n")
        os.close(self.terminal)
        os.waitpid(self.child, 0)


def check_lines(name, shell):
    command, option, values = choice_of()
    for line, wanted in (
            ("moeflux conv", "moeflux convert"),
            ("moeflux help conv", "moeflux help convert"),
            (f"moeflux {command} {option} {values[1][:2]}", f"moeflux {command} {option} {values[1]}"),
            ("moeflux run --no-check", "moeflux run --no-checksums"),
            ("moeflux tokenize --expert-m", "moeflux tokenize --expert-m"
             if "--expert-mode" not in options_of["tokenize"]
             else "moeflux tokenize --expert-mode")):
        got = shell.completed(line)
        expect(got == wanted, f"{name}: {line!r} becomes {wanted!r}, not {got!r}")


def offered_by_bash(*words):
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    script = (f"source '{bash_file}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1};"
              '_moeflux 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "--norc", "-c", script], capture_output=True,
                          text=True).stdout.split()


def check_bash():
    offered = offered_by_bash("moeflux", "")
    for command in commands:
        expect(command in offered, f"bash: {command} is completed")
        known = offered_by_bash("moeflux", command, "--")
        expect(sorted(known) == sorted(options_of[command]),
               f"bash: {command}: completed {known}, in the help {options_of[command]}")
    expect(offered_by_bash("moeflux", "convert", "--experts", "") == ["q8", "q4", "q3", "q2"],
           "bash: values of a choice are offered")
    expect(offered_by_bash("moeflux", "bench", "-t", "") == [], "bash: a number is not completed")
    shell = Shell(["bash", "--norc", "--noprofile", "-i"],
                  f"bind 'set bell-style none'; source '{bash_file}'")
    check_lines("bash", shell)
    shell.close()


def check_zsh():
    if not shutil.which("zsh"):
        print("SKIPPED: zsh is not here")
        return
    done = subprocess.run(["zsh", "-n", zsh_file], capture_output=True, text=True)
    expect(done.returncode == 0 and not done.stderr, f"zsh reads it: {done.stderr}")
    shell = Shell(["zsh", "-f", "-i"], "PS1=; unsetopt beep zle_bracketed_paste prompt_sp; bindkey -e;"
                  f"fpath=('{os.path.dirname(zsh_file)}' $fpath);"
                  "autoload -U compinit && compinit -u -D; setopt no_list_beep")
    check_lines("zsh", shell)
    shell.close()
    for command in commands:
        text = text_of(zsh_file)
        part = re.search(rf"^    {command}\)\n(.*?)^        ;;$", text, re.M | re.S)
        known = re.findall(r"(?:^ +'\*?|,)(--[a-z-]+)", part[1] if part else "", re.M)
        expect(sorted(known) == sorted(options_of[command]),
               f"zsh: {command}: completed {known}, in the help {options_of[command]}")


def check_fish():
    if not shutil.which("fish"):
        print("SKIPPED: fish is not here")
        return
    done = subprocess.run(["fish", "--no-execute", fish_file], capture_output=True, text=True)
    expect(done.returncode == 0 and not done.stderr, f"fish reads it: {done.stderr}")
    lines = ["moeflux ", "moeflux help ", "moeflux run --backend ", "moeflux bench -t "]
    lines += [f"moeflux {command} --" for command in commands]
    script = f"source '{fish_file}'\n" + "\n".join(
        f"echo '= {line}'; complete -C '{line}'" for line in lines)
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True,
                          env={**os.environ, "HOME": os.path.dirname(fish_file)}, cwd="/")
    expect(not done.stderr, f"fish: {done.stderr}")
    offers = {part.split("\n", 1)[0]: [line.split("\t")[0] for line in part.split("\n")[1:] if line]
              for part in done.stdout.split("= ")[1:]}
    expect(set(offers["moeflux "]) == {*commands, "help"}, f"fish: commands: {offers['moeflux ']}")
    expect(sorted(offers["moeflux help "]) == sorted(commands), "fish: commands after help")
    expect(sorted(offers["moeflux run --backend "]) == choice_of()[2],
           f"fish: values: {offers['moeflux run --backend ']}")
    expect(offers["moeflux bench -t "] == [], "fish: a number is not completed")
    for command in commands:
        known = offers[f"moeflux {command} --"]
        expect(sorted(known) == sorted(options_of[command]),
               f"fish: {command}: completed {known}, in the help {options_of[command]}")


expect(len(commands) >= 13, f"13 commands at least in the help: {commands}")
for command in commands:
    expect({"--help", "--version"} <= set(options_of[command]), f"options of {command}")
check_pages()
check_bash()
check_zsh()
check_fish()
sys.exit(failed > 0)
