"""Exceptions: one for each status of the library, with the library's sentence as their text."""
from __future__ import annotations

from typing import Dict, Type

from . import _abi


class Error(Exception):
    """A call of the library failed.  `str(error)` is its sentence."""

    status: int = 0
    """The number of the status, as in `MF_ERR_IO`."""

    def __init__(self, text: str, origin: str = "", status: int = 0) -> None:
        super().__init__(text)
        self.origin = origin
        """Source file and line of the library that found it."""
        if status:
            self.status = status


class LibraryError(Error):
    """libmoeflux was not found, or is another version than this package."""


class ClosedError(Error, ValueError):
    """The object was closed."""


class ArgumentError(Error, ValueError):
    status = _abi.MF_ERR_ARGUMENT


class OutOfMemoryError(Error, MemoryError):
    status = _abi.MF_ERR_MEMORY


class FileError(Error):
    """A file could not be read or written."""

    status = _abi.MF_ERR_IO


class FormatError(Error):
    """A malformed file, snapshot or JSON text."""

    status = _abi.MF_ERR_FORMAT


class UnsupportedError(Error):
    status = _abi.MF_ERR_UNSUPPORTED


class MismatchError(Error):
    """Files, or a snapshot and a model, do not fit together."""

    status = _abi.MF_ERR_MISMATCH


class ContextFullError(Error):
    status = _abi.MF_ERR_CONTEXT_FULL


class BufferSizeError(Error, ValueError):
    status = _abi.MF_ERR_BUFFER_SIZE


class TruncateError(Error):
    """The state cannot be cut back to this position."""

    status = _abi.MF_ERR_CANNOT_TRUNCATE


class TemplateError(Error):
    """The chat template failed."""

    status = _abi.MF_ERR_TEMPLATE


class GrammarError(Error, ValueError):
    """A malformed grammar or schema, or one that cannot be kept."""

    status = _abi.MF_ERR_GRAMMAR


class CancelledError(Error):
    status = _abi.MF_ERR_CANCELLED


class NotFiniteError(Error, ArithmeticError):
    """A weight or a result is not a number."""

    status = _abi.MF_ERR_NOT_FINITE


class PoolFullError(Error):
    """The memory for sequences is full."""

    status = _abi.MF_ERR_POOL_FULL


class CheckpointError(Error):
    """There is no checkpoint at this position."""

    status = _abi.MF_ERR_NO_CHECKPOINT


class BusyError(Error):
    """Too many requests wait."""

    status = _abi.MF_ERR_BUSY


class DeviceError(Error):
    """A device, as a GPU, is missing or has failed."""

    status = _abi.MF_ERR_DEVICE


BY_STATUS: Dict[int, Type[Error]] = {
    kind.status: kind for kind in (
        ArgumentError, OutOfMemoryError, FileError, FormatError, UnsupportedError, MismatchError,
        ContextFullError, BufferSizeError, TruncateError, TemplateError, GrammarError,
        CancelledError, NotFiniteError, PoolFullError, CheckpointError, BusyError, DeviceError)
}
