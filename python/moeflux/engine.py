"""Engine and Model: threads and kernels, and one checkpoint."""
from __future__ import annotations

import ctypes
import logging
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence as Many, Tuple, Union

from . import _abi
from ._calls import interruptible
from ._handle import Closing, Handle, inside_callback, opened
from ._library import check, decoded, encoded, load, sized
from .requests import Answering
from .sampling import Sampling
from .sequence import Sequence, Tokens, statistics_of, step
from .text import Text

Size = Union[int, str]
"""Bytes, or a text with a binary unit: "8G", "512M"."""

logger = logging.getLogger("moeflux")
"""Notes of the library."""

_LEVELS = {_abi.MF_LOG_DEBUG: logging.DEBUG, _abi.MF_LOG_INFO: logging.INFO,
           _abi.MF_LOG_WARNING: logging.WARNING}


def size(value: Optional[Size]) -> int:
    """Bytes of a Size."""
    if value is None:
        return 0
    if isinstance(value, str):
        text = value.strip().upper()
        for power, unit in enumerate("KMGT", 1):
            if text.endswith(unit):
                return int(float(text[:-1]) * 1024 ** power)
        return int(text)
    return value


def find(name: Union[str, "os.PathLike[str]"], cache: Optional[str] = None) -> str:
    """The path of the model that `name` means: itself where there is such a file or directory, else
    org/name in the Hugging Face cache (None: as HF_HUB_CACHE and HF_HOME say)."""
    if cache is None:
        home = os.environ.get("HF_HOME") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
        cache = os.path.expanduser(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    out, why = ctypes.create_string_buffer(4096), _abi.mf_error()
    check(load().mf_model_find(out, len(out), os.fsencode(name), os.fsencode(cache), None, why),
          why)
    return os.fsdecode(out.value)


def _write_log(_: Any, level: int, text: bytes) -> None:
    try:
        with inside_callback():
            logger.log(_LEVELS.get(level, logging.INFO), "%s", text.decode("utf-8", "replace"))
    except Exception:  # a handler's own: logging has reported it
        pass


_log_function = _abi.mf_log_function(_write_log)  # lives as long as the module


class Engine(Closing):
    """Threads and kernels; one for each process is usual, and a Model makes one if it is given
    none.  Notes of the library go to the logger "moeflux"."""

    def __init__(self, *, threads: int = 0, backend: Optional[str] = None,
                 kernels: Optional[str] = None, profile: bool = False) -> None:
        """`threads` 0: one for every CPU that this process may use."""
        options = sized(_abi.mf_engine_options)
        options.thread_count = threads
        options.backend = encoded(backend)
        options.kernels = encoded(kernels)
        options.profile = profile
        options.log = _log_function

        def open_it(_: Any) -> int:
            out, why = ctypes.c_void_p(), _abi.mf_error()
            check(load().mf_engine_open(out, options, why), why)
            return out.value or 0

        self._own(opened("engine", None, open_it, load().mf_engine_close))

    @property
    def threads(self) -> int:
        with self._handle as pointer:
            return int(load().mf_engine_thread_count(pointer))

    @property
    def kernels(self) -> str:
        """The kernel set in use, as in "avx512"."""
        with self._handle as pointer:
            return decoded(load().mf_engine_kernels(pointer)) or ""


@dataclass(frozen=True)
class Experts:
    """The shape of the map of a model's experts."""

    layer_count: int
    rows: Tuple[int, ...]  #: numbers of the layers that have experts
    expert_count: int  #: of each of those
    experts_per_token: int
    expert_bytes: int  #: of an expert in the files, on average


class Model(Answering, Closing):
    """A checkpoint: a directory (Hugging Face, MLX, packed), a GGUF file, or org/name in the local
    Hugging Face cache.  Any number of threads may use it."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], *, engine: Optional[Engine] = None,
                 memory: Optional[Size] = None, context: int = 0, sequences: int = 0,
                 parallel: int = 0, waiting: int = 0, cache: Optional[str] = None,
                 cache_bytes: Optional[Size] = None,
                 cache_directory: Union[str, "os.PathLike[str]", None] = None,
                 cache_disk_bytes: Optional[Size] = None, expert_mode: Optional[str] = None,
                 read_ahead: Optional[str] = None, reader: Optional[str] = None,
                 kv_type: Optional[str] = None, chunk_rows: int = 0, experts_per_token: int = 0,
                 skip_checksums: bool = False, stretch_context: bool = False,
                 threads: int = 0) -> None:
        """`memory`: weights, state and experts stay below it ("8G"; None: what is free now).
        `sequences`: as long as `context` that there is memory for; `parallel`: requests that are
        answered at a time (0: as many as `sequences`), `waiting`: that may wait for that, further
        ones are a BusyError (0: any number).  The others are the fields of mf_model_options."""
        own_engine = None if engine is not None else Engine(threads=threads)
        self.engine: Engine = engine or own_engine  # type: ignore[assignment]
        options = sized(_abi.mf_model_options)
        options.memory_bytes = size(memory)
        options.context_length = context
        options.sequences = sequences
        options.cache = encoded(cache)
        options.cache_bytes = size(cache_bytes)
        options.cache_directory = None if cache_directory is None else os.fsencode(cache_directory)
        options.cache_disk_bytes = size(cache_disk_bytes)
        options.expert_mode = encoded(expert_mode)
        options.read_ahead = encoded(read_ahead)
        options.reader = encoded(reader)
        options.kv_type = encoded(kv_type)
        options.chunk_rows = chunk_rows
        options.experts_per_token = experts_per_token
        options.skip_checksums = skip_checksums
        options.stretch_context = stretch_context
        place = os.fsencode(find(path))
        try:
            # A Ctrl-C ends the waiting for it; the library goes on and the model is closed then.
            self._own(interruptible(lambda: self._open(place, options), None, Handle.close))
        except BaseException:
            if own_engine is not None:
                own_engine.close()
            raise
        self._own_engine = own_engine
        self._start_answering(parallel, waiting, cache not in (None, "off"))
        with self._handle as pointer:
            self._text = Text("", _handle=self._handle, _pointer=load().mf_model_text(pointer))
            self._vocab_size = int(load().mf_model_vocab_size(pointer))

    def _open(self, place: bytes, options: Any) -> Handle:
        def open_it(above: Any) -> int:
            out, why = ctypes.c_void_p(), _abi.mf_error()
            check(load().mf_model_open(out, above, place, options, why), why)
            return out.value or 0

        return opened("model", self.engine._handle, open_it, load().mf_model_close)

    def close(self) -> None:
        self._stop_answering()
        super().close()
        if self._own_engine is not None:
            self._own_engine.close()

    @property
    def text(self) -> Text:
        """Tokenizer and chat template."""
        return self._text

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def context_length(self) -> int:
        """The model's own limit."""
        with self._handle as pointer:
            return int(load().mf_model_context_length(pointer))

    @property
    def name(self) -> str:
        with self._handle as pointer:
            return decoded(load().mf_model_name(pointer)) or ""

    @property
    def family(self) -> str:
        with self._handle as pointer:
            return decoded(load().mf_model_family(pointer)) or ""

    @property
    def sampling(self) -> Sampling:
        """How the checkpoint wants tokens to be drawn."""
        return self._text.sampling

    def is_end(self, token: int) -> bool:
        """The token ends an answer."""
        with self._handle as pointer:
            return bool(load().mf_model_is_end(pointer, token))

    def sequence(self, *, context: int = 0, chunk_rows: int = 0) -> Sequence:
        """An empty sequence."""
        return Sequence(self, context=context, chunk_rows=chunk_rows)

    def step(self, parts: Many[Tuple[Sequence, Tokens]], *, generated: bool = True) -> None:
        """Feeds several sequences in steps that they share: an expert that several of them need is
        read once.  StepError: some parts failed, the others have advanced."""
        step(self, parts, generated)

    # ---------------------------------------------------------------- experts

    def statistics(self) -> Dict[str, Any]:
        """The fields of mf_model_statistics: experts, memory, disk, prefix cache."""
        out, why = sized(_abi.mf_model_statistics), _abi.mf_error()
        with self._handle as pointer:
            check(load().mf_model_stats(pointer, out, why), why)
            return statistics_of(out)

    def reset_statistics(self) -> None:
        with self._handle as pointer:
            load().mf_model_reset_stats(pointer)

    def experts(self) -> Experts:
        with self._handle as pointer:
            out = self._experts(pointer)
            return Experts(out.layer_count, tuple(out.rows[:out.row_count]), out.expert_count,
                           out.experts_per_token, out.expert_bytes)

    @staticmethod
    def _experts(pointer: Any) -> _abi.mf_experts:
        out, why = sized(_abi.mf_experts), _abi.mf_error()
        check(load().mf_model_experts(pointer, out, why), why)
        return out  # type: ignore[no-any-return]

    def experts_present(self) -> List[List[bool]]:
        """Which experts are in memory now: a list for each row of Experts.rows."""
        why = _abi.mf_error()
        with self._handle as pointer:
            shape = self._experts(pointer)
            bits = (ctypes.c_uint8 * shape.map_bytes)()
            check(load().mf_model_experts_present(pointer, bits, len(bits), why), why)
        width = shape.expert_count
        return [[bool(bits[at >> 3] >> (at & 7) & 1) for at in range(row * width, (row + 1) * width)]
                for row in range(shape.row_count)]

    def __repr__(self) -> str:
        return f"<moeflux.Model {'closed' if self.closed else self.name!r}>"
