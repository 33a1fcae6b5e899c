"""The man page and the bash completion know every command and every option of the help.

manual.py PROGRAM PAGE COMPLETION"""
import re
import shutil
import subprocess
import sys

program, page_path, completion_path = sys.argv[1:4]
page, completion = open(page_path).read(), open(completion_path).read()
failed = 0


def expect(condition, what):
    global failed
    if not condition:
        print(f"FAILED: {what}")
        failed += 1


def printed(*words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def plain(roff):
    return roff.replace("\\-", "-")


def section(command):
    """Of the man page, without the options that all commands share."""
    found = re.search(rf'^\.SS "moeflux {command} .*?(?=^\.S[SH] )', plain(page), re.M | re.S)
    return found[0] if found else ""


def completed(*words):
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    script = (f"source '{completion_path}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1};"
              '_moeflux 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "--norc", "-c", script], capture_output=True,
                          text=True).stdout.split()


commands = re.findall(r"^  ([a-z]+) ", printed("--help").split("commands:")[1], re.M)
expect(len(commands) >= 13, f"13 commands at least in the help: {commands}")
common = re.search(r"^\.SH COMMON OPTIONS.*?(?=^\.SH )", plain(page), re.M | re.S)[0]
offered = completed("moeflux", "")
for command in commands:
    expect(command in offered, f"{command} is completed")
    expect(section(command), f"{command} is in the man page")
    options = re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", printed(command, "--help"), re.M)
    expect("--help" in options and "--version" in options, f"options of {command}: {options}")
    known = completed("moeflux", command, "--")
    expect(sorted(known) == sorted(options), f"{command}: completed {known}, in the help {options}")
    for option in options:
        expect(re.search(rf"\\fB{option}\\fR", section(command) + common),
               f"{option} of {command} is in the man page")

expect(completed("moeflux", "ru") == ["run"], "a command is completed")
expect(completed("moeflux", "convert", "--experts", "") == ["q8", "q4", "q3", "q2"],
       "values of a choice are offered")
expect(completed("moeflux", "run", "--backend", "r") == ["reference"], "and completed")
expect(completed("moeflux", "bench", "-t", "") == [], "a number is not completed")

if shutil.which("groff"):
    done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", page_path], capture_output=True,
                          text=True)
    expect(done.returncode == 0 and done.stderr == "", f"groff is content: {done.stderr}")
    expect("moeflux run" in done.stdout.replace("\b", ""), "the page can be shown")
else:
    print("SKIPPED: groff is not here, so the page is not formatted")
sys.exit(failed > 0)
