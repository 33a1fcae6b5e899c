"""python/moeflux/_abi.py says what moeflux.h and the library say: layouts as the C compiler sees
them, values, every function, and the text that tools/bind_python.py writes."""
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import unittest

from moeflux import _abi, _library, errors

from support import SOURCE

HEADER = os.path.join(SOURCE, "include", "moeflux.h")


def header():
    with open(HEADER, encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)


def compiled(lines):
    """What a C program with this body prints, as words."""
    with tempfile.TemporaryDirectory() as place:
        source, program = os.path.join(place, "layouts.c"), os.path.join(place, "layouts")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <moeflux.h>\n#include <stdio.h>\nint main(void)\n{\n"
                       + "\n".join(lines) + "\nreturn 0;\n}\n")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-I", os.path.dirname(HEADER), "-o", program, source],
                       check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()


class Layouts(unittest.TestCase):
    def test_every_struct_of_the_header_is_known(self):
        named = set(re.findall(r"typedef struct (\w+) \{", header()))
        self.assertGreater(len(named), 25)
        self.assertEqual(named, {kind.__name__ for kind in _abi.STRUCTS
                                 if not kind.__name__.endswith("_union")})

    def test_layouts_are_those_of_the_compiler(self):
        lines, own = [], []
        for kind in _abi.STRUCTS:
            if kind.__name__.endswith("_union"):
                continue
            lines.append(f'printf("%zu\\n", sizeof({kind.__name__}));')
            own.append((kind.__name__, ctypes.sizeof(kind)))
            names = [name for name, _ in kind._fields_]
            if hasattr(kind, "_anonymous_"):
                names[names.index("_union"):names.index("_union") + 1] = ["end_ns", "value"]
            for name in names:
                place = getattr(kind, name)
                lines.append(f'printf("%zu %zu\\n", __builtin_offsetof({kind.__name__}, {name}),'
                             f' sizeof((({kind.__name__} *)0)->{name}));')
                own += [(f"{kind.__name__}.{name} offset", place.offset),
                        (f"{kind.__name__}.{name} size", place.size)]
        theirs = [int(word) for word in compiled(lines)]
        self.assertEqual(len(theirs), len(own))
        for (what, mine), other in zip(own, theirs):
            self.assertEqual(mine, other, what)

    def test_values_are_those_of_the_compiler(self):
        names = [name for name in vars(_abi) if name.startswith("MF_")]
        self.assertGreater(len(names), 70)
        for name, value in zip(names, compiled([f'printf("%d\\n", (int){name});'
                                                for name in names])):
            self.assertEqual(getattr(_abi, name), int(value), name)

    def test_every_function_is_declared_and_exported(self):
        named = set(re.findall(r"MF_API[^;(]*?(mf_\w+)\s*\(", header()))
        self.assertGreater(len(named), 100)
        self.assertEqual(named, set(_abi.FUNCTIONS))
        library = ctypes.CDLL(_library.load()._name)
        for name in named:
            self.assertTrue(hasattr(library, name), name)

    def test_the_file_is_what_the_generator_writes(self):
        tool = os.path.join(SOURCE, "tools", "bind_python.py")
        written = subprocess.run([sys.executable, tool, HEADER, "-"], check=True,
                                 capture_output=True, text=True).stdout
        with open(_abi.__file__, encoding="utf-8") as file:
            self.assertTrue(file.read() == written, "moeflux.h has changed: run tools/bind_python.py "
                            "include/moeflux.h python/moeflux/_abi.py")

    def test_every_status_has_an_exception(self):
        statuses = {value for name, value in vars(_abi).items() if re.match("MF_ERR_", name)}
        self.assertEqual(statuses, set(errors.BY_STATUS))

    def test_the_version_is_the_librarys(self):
        import moeflux
        with open(os.path.join(SOURCE, "python", "pyproject.toml"), encoding="utf-8") as file:
            packaged = re.search(r'^version = "(.*)"', file.read(), re.M)[1]
        self.assertEqual(moeflux.__version__, moeflux.library_version())
        self.assertEqual(packaged, moeflux.__version__)

    def test_a_library_without_a_function_is_refused(self):
        with self.assertRaisesRegex(errors.LibraryError, "has no mf_status_name"):
            _library._declare(ctypes.CDLL(None))


if __name__ == "__main__":
    unittest.main()
