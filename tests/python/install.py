"""`pip install --no-build-isolation ./python` in a new virtual environment, without a network."""
import os
import subprocess
import sys
import tempfile

source = os.environ["MOEFLUX_SOURCE"]
python = os.path.join(source, "python")
USE = """
import moeflux, os, sys
assert moeflux.__file__.startswith(sys.prefix), moeflux.__file__
assert os.path.exists(os.path.join(os.path.dirname(moeflux.__file__), "py.typed"))
with moeflux.Model(sys.argv[1], context=256, threads=1) as model:
    print(model.chat("What is the capital of France?", sampling=moeflux.Sampling(),
                     variables={"enable_thinking": False}).content)
"""


def main():
    with tempfile.TemporaryDirectory() as place:
        made = subprocess.run([sys.executable, "-m", "venv", place + "/env"], capture_output=True,
                              text=True)
        if made.returncode != 0:
            print("SKIPPED: no virtual environment can be made (Debian: python3-venv): "
                  + (made.stdout + made.stderr).strip().splitlines()[0], file=sys.stderr)
            return 77
        own = place + "/env/bin/python3"
        # No index: whatever pip would fetch fails.
        alone = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                 "PIP_CONFIG_FILE": os.devnull}
        alone.pop("PYTHONPATH", None)
        subprocess.run([own, "-m", "pip", "install", "--quiet", "--no-build-isolation", python],
                       check=True, env=alone, cwd=place)
        left = subprocess.run(["find", python, "-name", "*.egg-info", "-o", "-name", "build"],
                              capture_output=True, text=True).stdout
        assert left == "", f"pip left files in the source: {left}"
        said = subprocess.run([own, "-c", USE, os.path.join(source, "models", "pebble")],
                              check=True, env=alone, cwd=place, capture_output=True,
                              text=True).stdout
        assert said == "The capital of France is Paris.\n", said
        shown = subprocess.run([own, "-m", "pip", "show", "moeflux"], check=True, env=alone,
                               capture_output=True, text=True).stdout
        assert "Version: 0." in shown and "Requires: \n" in shown, shown
        subprocess.run([own, "-m", "pip", "uninstall", "--quiet", "--yes", "moeflux"], check=True,
                       env=alone)
        gone = subprocess.run([own, "-c", "import moeflux"], env=alone, capture_output=True,
                              cwd=place)
        assert gone.returncode != 0, "it is still there"
        for directory in ("one", "two"):
            wheel = (f"import sys; sys.path.insert(0, {python!r}); import build_backend as b; "
                     f"import os; os.makedirs({directory!r}); b.build_wheel({directory!r})")
            subprocess.run([own, "-c", wheel], check=True, env=alone, cwd=place)
        # At other times: the archive of the sources has a time in its head.
        for directory, now in (("one", 1e9), ("two", 2e9)):
            archive = (f"import time; time.time = lambda: {now}; import sys; "
                       f"sys.path.insert(0, {python!r}); import build_backend as b; "
                       f"b.build_sdist({directory!r})")
            subprocess.run([own, "-c", archive], check=True, env=alone, cwd=place)
        compared = subprocess.run(["diff", "-r", "one", "two"], cwd=place)
        assert compared.returncode == 0, "two builds differ"
    return 0


if __name__ == "__main__":
    sys.exit(main())
