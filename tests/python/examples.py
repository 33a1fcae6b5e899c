"""The programs of python/examples, run as their first lines say."""
import ast
import os
import re
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

from support import PEBBLE, SOURCE

EXAMPLES = os.path.join(SOURCE, "python", "examples")


def run(name, *arguments, text=None, path=""):
    before = {**os.environ, "PYTHONPATH": path + os.pathsep + os.environ.get("PYTHONPATH", "")}
    return subprocess.run([sys.executable, os.path.join(EXAMPLES, name), *arguments], check=True,
                          capture_output=True, text=True, input=text, timeout=120, env=before)


class Examples(unittest.TestCase):
    def test_chat(self):
        done = run("chat.py", PEBBLE, "What is the capital of France?")
        self.assertIn("Paris", done.stdout)
        self.assertIn("tokens read", done.stderr)
        talk = run("chat.py", PEBBLE, text="What is the capital of Japan?\nAnd of Italy?\n")
        self.assertEqual(talk.stderr.count("tokens read"), 2)

    def test_forms(self):
        lines = run("forms.py", PEBBLE).stdout.splitlines()
        self.assertEqual(set(ast.literal_eval(lines[0].split(" ", 1)[1])), {"name", "age"})
        self.assertTrue(lines[1].startswith("call: get_weather"), lines)
        self.assertTrue(lines[2].startswith("result: It is sunny in"), lines)

    def test_batch(self):
        questions = ["What is the capital of France?", "Name a colour.", "Hello"]
        done = run("batch.py", PEBBLE, text="\n".join(questions) + "\n")
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        self.assertEqual({int(line[0]): line[1] for line in lines}, dict(enumerate(questions)))

    def test_expert_use(self):
        """With matplotlib, if it is there, and without."""
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "matplotlib.py"), "w", encoding="utf-8") as file:
                file.write("raise ImportError('not here')\n")
            picture = os.path.join(place, "experts.svg")
            for path in (place, ""):
                done = run("expert_use.py", PEBBLE, picture, path=path)
                self.assertEqual(done.stdout.count("layer "), 8)
                shapes = list(ElementTree.parse(picture).getroot().iter())
                self.assertEqual(shapes[0].tag, "{http://www.w3.org/2000/svg}svg")
                self.assertGreater(len(shapes), 40)
                if path:  # a cell for each expert of each layer
                    self.assertEqual(sum(shape.tag.endswith("rect") for shape in shapes), 8 * 64 + 1)
                os.remove(picture)

    def test_the_readmes_programs_run_in_its_order(self):
        with open(os.path.join(SOURCE, "python", "README.md"), encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        self.assertGreater(len(blocks), 6)
        done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=SOURCE, text=True,
                              capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Paris", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_every_example_is_run_here(self):
        with open(__file__, encoding="utf-8") as file:
            here = file.read()
        for name in os.listdir(EXAMPLES):
            if name.endswith(".py"):
                self.assertIn(f'run("{name}"', here)


if __name__ == "__main__":
    unittest.main()
