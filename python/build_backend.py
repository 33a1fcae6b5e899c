"""Builds the wheel: the package is a few files of Python, so that the standard library suffices, and
`pip install --no-build-isolation ./python` needs nothing in the environment but pip.  The hooks are
those of PEP 517; the same sources give the same bytes."""
from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import tarfile
import zipfile
from typing import IO, Any, Dict, List, Optional, cast

HERE = os.path.dirname(os.path.abspath(__file__))
EPOCH = max(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), 315532800)  # zip begins in 1980


def _read(*path: str) -> bytes:
    with open(os.path.join(HERE, *path), "rb") as file:
        return file.read()


def _version() -> str:
    found = re.search(rb'^__version__ = "(.*)"', _read("moeflux", "__init__.py"), re.M)
    assert found
    return found[1].decode()


def _package() -> Dict[str, bytes]:
    return {f"moeflux/{name}": _read("moeflux", name)
            for name in sorted(os.listdir(os.path.join(HERE, "moeflux")))
            if name.endswith(".py") or name == "py.typed"}


def _metadata() -> bytes:
    head = f"""Metadata-Version: 2.1
Name: moeflux
Version: {_version()}
Summary: Run mixture-of-experts language models that are bigger than memory, with libmoeflux
License: MIT
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.9
Description-Content-Type: text/markdown

"""
    return head.encode() + _read("README.md")


def _information() -> Dict[str, bytes]:
    wheel = b"Wheel-Version: 1.0\nGenerator: moeflux\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return {"METADATA": _metadata(), "WHEEL": wheel}


def _write_wheel(directory: str, files: Dict[str, bytes]) -> str:
    name = f"moeflux-{_version()}"
    for key, data in _information().items():
        files[f"{name}.dist-info/{key}"] = data
    record: List[str] = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    record.append(f"{name}.dist-info/RECORD,,")
    files[f"{name}.dist-info/RECORD"] = ("\n".join(record) + "\n").encode()
    wheel = f"{name}-py3-none-any.whl"
    stamp = _stamp()
    with zipfile.ZipFile(os.path.join(directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, stamp)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    return wheel


def _stamp() -> Any:
    import time
    return time.gmtime(EPOCH)[:6]


def build_wheel(wheel_directory: str, config_settings: Any = None,
                metadata_directory: Optional[str] = None) -> str:
    return _write_wheel(wheel_directory, _package())


def build_editable(wheel_directory: str, config_settings: Any = None,
                   metadata_directory: Optional[str] = None) -> str:
    return _write_wheel(wheel_directory, {"moeflux.pth": HERE.encode() + b"\n"})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    name = f"moeflux-{_version()}"
    files = _package()
    for path in ("build_backend.py", "pyproject.toml", "README.md"):
        files[path] = _read(path)
    files["PKG-INFO"] = _metadata()
    # The head of gzip has a time and a file name of its own.
    with open(os.path.join(sdist_directory, f"{name}.tar.gz"), "wb") as file, \
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=EPOCH) as packed, \
            tarfile.open(fileobj=cast(IO[bytes], packed), mode="w") as out:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime = len(data), EPOCH
            out.addfile(entry, io.BytesIO(data))
    return f"{name}.tar.gz"
