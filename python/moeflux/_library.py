"""Finds libmoeflux, declares its functions and turns statuses into exceptions."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import threading
from typing import Any, List, Optional

from . import _abi
from .errors import BY_STATUS, Error, LibraryError

SONAME = "libmoeflux.so.1"

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None


def _candidates() -> List[str]:
    """MOEFLUX_LIBRARY alone if it is set; else what the system's loader finds, and the usual
    places of `make install`, which a loader may not have been told of."""
    chosen = os.environ.get("MOEFLUX_LIBRARY")
    if chosen:
        return [chosen]
    found = [SONAME]
    for directory in ("/usr/local/lib", "/usr/local/lib64"):
        found.append(os.path.join(directory, SONAME))
    machine = os.uname().machine
    found.append(f"/usr/local/lib/{machine}-linux-gnu/{SONAME}")
    return found


def _declare(library: ctypes.CDLL) -> None:
    for name, (returns, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibraryError(f"{library._name} has no {name}: it is older than this "
                               "package") from None
        function.restype = returns
        function.argtypes = arguments


def load() -> Any:
    """The library; found once."""
    global _library
    if _library is not None:
        return _library
    with _lock:
        if _library is not None:
            return _library
        reasons = []
        for candidate in _candidates():
            try:
                library = ctypes.CDLL(candidate)
            except OSError as error:
                reasons.append(str(error))
                continue
            _declare(library)
            _library = library
            return library
    raise LibraryError("libmoeflux was not found; install it or set MOEFLUX_LIBRARY to its path: "
                       + "; ".join(reasons))


def exception(status: int, why: Optional[_abi.mf_error] = None) -> Error:
    """The exception for a status, with the sentence of `why` where that has one."""
    text = why.text.decode("utf-8", "replace") if why is not None else ""
    origin = why.origin.decode("utf-8", "replace") if why is not None else ""
    if not text:
        text = str(load().mf_status_text(status).decode())
    return BY_STATUS.get(status, Error)(text, origin, status)


def check(status: int, why: Optional[_abi.mf_error] = None) -> None:
    """Raises unless the status is MF_OK."""
    if status != _abi.MF_OK:
        raise exception(status, why)


def sized(kind: Any) -> Any:
    """A zeroed struct of options or statistics with its struct_size."""
    return kind(struct_size=ctypes.sizeof(kind))


def encoded(text: Optional[str]) -> Optional[bytes]:
    """For a `const char *`; a NUL inside would end the text early and is refused."""
    if text is None:
        return None
    data = text.encode("utf-8")
    if b"\0" in data:
        raise ValueError("a text for the library has a NUL character in it")
    return data


def decoded(text: Optional[bytes]) -> Optional[str]:
    return None if text is None else text.decode("utf-8", "replace")


def int_array(kind: Any, values: Any) -> Any:
    """A ctypes array of a sequence of numbers, refusing those that do not fit."""
    numbers = list(values)
    bits = ctypes.sizeof(kind) * 8
    low, high = (-(1 << bits - 1), 1 << bits - 1) if kind(-1).value < 0 else (0, 1 << bits)
    for number in numbers:
        if not low <= number < high:
            raise ValueError(f"{number} is no token id")
    return (kind * len(numbers))(*numbers)


def version() -> str:
    """Of the library: "0.2.0"."""
    return str(load().mf_version().decode())
