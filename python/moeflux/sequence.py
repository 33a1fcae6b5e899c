"""Sequence: the state of one text, fed token by token."""
from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Sequence as Many,
                    Tuple, Union)

from . import _abi
from ._calls import interruptible
from ._handle import Closing, inside_callback, opened
from ._library import check, exception, load, sized
from .text import Prompt, token_array

if TYPE_CHECKING:
    from .engine import Model

Tokens = Union[Prompt, Iterable[int]]

PLACES = ("none", "head", "breakpoint", "prompt_end", "junction", "last_user", "answer_end", "net")
"""Places at which the prefix cache may keep a state (Sequence.keep)."""

_RESUME_REASONS = ("empty", "ends", "differs", "generated", "whole", "off")


@dataclass(frozen=True)
class Routes:
    """What a layer's router chose for the rows of a step."""

    layer: int
    position: int  #: of the first row in its sequence
    tokens: Tuple[int, ...]
    experts: Tuple[Tuple[int, ...], ...]  #: of each row, in ascending order
    weights: Tuple[Tuple[float, ...], ...]


@dataclass(frozen=True)
class Resumed:
    """What the prefix cache knew of a prompt."""

    matched: int  #: tokens that the cache knows
    resumed: int  #: tokens that the sequence holds now
    replayed: int  #: the others of `matched`
    junction: int  #: feed up to here first, then keep("junction"); 0: no such position
    reason: str  #: why not more: empty, ends, differs, generated, whole, off
    text: str  #: the same as a sentence


def routes_of(struct: _abi.mf_routes) -> Routes:
    rows, each = struct.row_count, struct.per_row
    experts, weights = struct.experts[:rows * each], struct.weights[:rows * each]
    return Routes(struct.layer, struct.position, tuple(struct.tokens[:rows]),
                  tuple(tuple(experts[row * each:(row + 1) * each]) for row in range(rows)),
                  tuple(tuple(weights[row * each:(row + 1) * each]) for row in range(rows)))


def resumed_of(struct: _abi.mf_resumed) -> Resumed:
    text = ctypes.create_string_buffer(256)
    load().mf_resumed_explain(text, len(text), struct)
    return Resumed(struct.matched, struct.resumed, struct.replayed, struct.junction,
                   _RESUME_REASONS[struct.reason], text.value.decode())


def statistics_of(struct: Any) -> Dict[str, Any]:
    """A struct of statistics as a dictionary; arrays by stage have the stages' names."""
    out: Dict[str, Any] = {}
    for name, _ in struct._fields_:
        value = getattr(struct, name)
        if name == "struct_size":
            continue
        if isinstance(value, bytes):
            value = value.decode()
        elif name.endswith("_stage_seconds"):
            value = {load().mf_stage_name(at).decode(): value[at]
                     for at in range(_abi.MF_STAGE_COUNT)}
        elif isinstance(value, ctypes.Array):
            value = list(value)
        out[name] = value
    return out


class Sequence(Closing):
    """One text: its tokens, keys and values, and recurrent state.  One call at a time: calls from
    several threads wait for each other.  A failed call leaves it as it was."""

    def __init__(self, model: "Model", *, context: int = 0, chunk_rows: int = 0,
                 _pointer: Optional[Callable[[Any], int]] = None) -> None:
        self.model = model
        self._lock = threading.RLock()
        self._stale_cancel = False  # ours, and perhaps left over: it means no later feed
        self._cancel_asked = False  # by the caller
        self._problem: Optional[BaseException] = None  # that a callback raised
        self._watchers: Dict[str, Any] = {}  # callbacks, as long as the library may call them
        options = sized(_abi.mf_sequence_options)
        options.context_length = context
        options.chunk_rows = chunk_rows

        def open_it(above: Any) -> int:
            out, why = ctypes.c_void_p(), _abi.mf_error()
            check(load().mf_sequence_open(out, above, options, why), why)
            return out.value or 0

        self._own(opened("sequence", model._handle, _pointer or open_it,
                         load().mf_sequence_close))

    # ------------------------------------------------------------------- uses

    def _begin(self) -> Any:
        self._lock.acquire()
        try:
            return self._handle.acquire()
        except BaseException:
            self._lock.release()
            raise

    def _end(self) -> None:
        self._handle.release()
        self._lock.release()

    def _call(self, function: str, *arguments: Any) -> None:
        """A call that ends with `why`."""
        why = _abi.mf_error()
        pointer = self._begin()
        try:
            check(getattr(load(), function)(pointer, *arguments, why), why)
        finally:
            self._end()

    def _ask(self, function: str, *arguments: Any) -> Any:
        pointer = self._begin()
        try:
            return getattr(load(), function)(pointer, *arguments)
        finally:
            self._end()

    def _compute(self, call: Callable[[Any, Any], int]) -> None:
        """A call that takes long: call(pointer, why) returns a status."""
        pointer = self._begin()
        try:
            self._problem = None
            self._attempt(call, pointer)
        finally:
            self._end()

    def _attempt(self, call: Callable[[Any, Any], int], pointer: int) -> None:
        library, stale = load(), self._stale_cancel

        def work() -> Tuple[int, Any]:
            why = _abi.mf_error()
            status = call(pointer, why)
            if status == _abi.MF_ERR_CANCELLED:
                self._stale_cancel = False
            return status, why

        def cancel() -> None:
            self._stale_cancel = True
            library.mf_sequence_cancel(pointer)

        self._stale_cancel = self._cancel_asked = False
        status, why = interruptible(work, cancel)
        problem, self._problem = self._problem, None
        if (status == _abi.MF_ERR_CANCELLED and problem is None and stale
                and not self._cancel_asked):
            status, why = interruptible(work, cancel)  # that cancel was meant for an earlier call
            problem, self._problem = self._problem, None
        if problem is not None:
            self._stale_cancel = status != _abi.MF_ERR_CANCELLED
            raise problem
        check(status, why)

    # ---------------------------------------------------------------- feeding

    def feed(self, tokens: Tokens, *, generated: bool = False) -> None:
        """Evaluates tokens; the last one's logits become readable.  `generated`: the model has made
        them (docs/numerics.md says what that changes)."""
        ids = token_array(tokens)
        phase = _abi.MF_PHASE_GENERATED if generated else _abi.MF_PHASE_PROMPT
        self._compute(lambda pointer, why:
                      int(load().mf_sequence_feed(pointer, phase, ids, len(ids), why)))

    def feed_all(self, tokens: Tokens, *, generated: bool = False) -> memoryview:
        """As feed; returns the logits of every position, floats of shape (tokens, vocab_size)."""
        ids = token_array(tokens)
        phase = _abi.MF_PHASE_GENERATED if generated else _abi.MF_PHASE_PROMPT
        width = self.model.vocab_size
        rows = bytearray(len(ids) * width * 4)
        target = (ctypes.c_char * len(rows)).from_buffer(rows)
        base = ctypes.addressof(target)

        def each(_: Any, index: int, logits: Any) -> None:
            ctypes.memmove(base + index * width * 4, logits, width * 4)

        function = _abi.mf_logits_function(each)
        self._compute(lambda pointer, why: int(load().mf_sequence_feed_each(
            pointer, phase, ids, len(ids), function, None, why)))
        del target
        if not ids:
            return memoryview(rows).cast("f")
        return memoryview(rows).cast("f", (len(ids), width))

    def cancel(self) -> None:
        """Ends the feed that is under way before its next layer with CancelledError, or the next
        one before it begins.  From any thread, and from callbacks."""
        pointer = self._handle.acquire(anywhere=True)
        try:
            self._stale_cancel, self._cancel_asked = False, True
            load().mf_sequence_cancel(pointer)
        finally:
            self._handle.release()

    def logits(self) -> memoryview:
        """vocab_size floats after the last token: a copy, which numpy.asarray takes as it is."""
        width = self.model.vocab_size
        pointer = self._begin()
        try:
            row = load().mf_sequence_logits(pointer)
            if not row:
                raise exception(_abi.MF_ERR_ARGUMENT, _abi.mf_error(
                    text=b"the sequence has no logits: nothing was fed"))
            return memoryview(ctypes.string_at(row, width * 4)).cast("f")
        finally:
            self._end()

    def watch_progress(self, each: Optional[Callable[[int, int], Any]]) -> None:
        """each(done, total) while tokens are fed, between layers; it may call cancel() only.  What
        it raises ends the feed, which raises it."""
        if each is None:
            self._watch("progress", None)
            return
        call = each
        self._watch("progress", _abi.mf_progress_function(
            lambda _, done, total: self._guarded(lambda: call(done, total))))

    def watch_routes(self, each: Optional[Callable[[Routes], Any]]) -> None:
        """each(routes) for every layer that has experts, while the sequence computes.  What it
        raises ends the feed, which raises it."""
        if each is None:
            self._watch("routes", None)
            return
        call = each
        self._watch("routes", _abi.mf_routes_function(
            lambda _, routes: self._guarded(lambda: call(routes_of(routes.contents)))))

    def _watch(self, what: str, function: Any) -> None:
        with self._lock:
            kind = _abi.mf_routes_function if what == "routes" else _abi.mf_progress_function
            null: Any = kind  # a type without arguments makes a NULL function
            self._ask(f"mf_sequence_watch_{what}", null() if function is None else function, None)
            self._watchers[what] = function

    def _guarded(self, call: Callable[[], Any]) -> None:
        """Runs a callback of the caller: an exception cancels the feed, which raises it."""
        if self._problem is not None:
            return
        try:
            with inside_callback():
                call()
        except BaseException as error:
            self._problem = error
            load().mf_sequence_cancel(self._handle._pointer)  # its use is held by the feed

    # ------------------------------------------------------------------ state

    @property
    def position(self) -> int:
        """How many tokens it holds."""
        return int(self._ask("mf_sequence_position"))

    def __len__(self) -> int:
        return self.position

    @property
    def context(self) -> int:
        """How many it can hold."""
        return int(self._ask("mf_sequence_context_length"))

    def tokens(self, first: int = 0, count: Optional[int] = None) -> List[int]:
        with self._lock:
            length = self.position - first if count is None else count
            if first < 0 or length < 0:
                raise ValueError(f"{length} tokens from {first} on")
            ids = (ctypes.c_int32 * length)()
            self._call("mf_sequence_tokens", first, length, ids, None)
        return ids[:]

    def clear(self) -> None:
        self._ask("mf_sequence_clear")

    def fork(self) -> "Sequence":
        """Another one with the same tokens and state; memory is shared until one of them goes on."""
        pointer = self._begin()
        try:
            def open_it(_: Any) -> int:
                out, why = ctypes.c_void_p(), _abi.mf_error()
                check(load().mf_sequence_fork(out, pointer, why), why)
                return out.value or 0
            return Sequence(self.model, _pointer=open_it)
        finally:
            self._end()

    def checkpoint(self) -> None:
        """Makes the present position reachable for truncate, on models with recurrent layers."""
        self._call("mf_sequence_checkpoint")

    def forget(self, position: int) -> None:
        """Gives up the checkpoint there."""
        self._ask("mf_sequence_forget", position)

    def truncate(self, position: int) -> None:
        """Keeps the first `position` tokens; TruncateError where the state cannot be cut there."""
        self._call("mf_sequence_truncate", position, None)

    def truncate_near(self, position: int) -> int:
        """As truncate, to the nearest position before that can be reached; returns it, and the
        caller feeds the tokens from there on again."""
        reached = ctypes.c_uint32()
        self._call("mf_sequence_truncate", position, reached)
        return reached.value

    # -------------------------------------------------------------- snapshots

    def save(self) -> bytes:
        """A snapshot: tokens, state and last logits, for the same model in any process."""
        written, why = ctypes.c_size_t(), _abi.mf_error()
        pointer = self._begin()
        try:
            size = load().mf_sequence_snapshot_bytes(pointer)
            out = bytearray(size)
            target = (ctypes.c_char * size).from_buffer(out)
            check(load().mf_sequence_save(pointer, target, size, written, why), why)
        finally:
            self._end()
        del target
        return bytes(memoryview(out)[:written.value])

    def load(self, snapshot: Any) -> None:
        """In place of what the sequence holds; any object with a buffer of bytes."""
        view = memoryview(snapshot).cast("B")
        if view.readonly:
            source: Any = view.tobytes()
        else:
            source = (ctypes.c_char * len(view)).from_buffer(view)
        self._call("mf_sequence_load", source, len(view))

    def save_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """The file is replaced as a whole or not at all."""
        self._call("mf_sequence_save_file", os.fsencode(path))

    def load_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self._call("mf_sequence_load_file", os.fsencode(path))

    # ----------------------------------------------------------- prefix cache

    def resume(self, tokens: Tokens) -> Resumed:
        """Makes it hold the longest beginning of a prompt that the model's prefix cache has."""
        ids = token_array(tokens)
        out = sized(_abi.mf_resumed)
        self._call("mf_sequence_resume", ids, len(ids), out)
        return resumed_of(out)

    def keep(self, place: str = "none") -> None:
        """Keeps what it holds for others, with a checkpoint if the place says so (PLACES)."""
        self._call("mf_sequence_keep", PLACES.index(place))

    # ------------------------------------------------------------- statistics

    def statistics(self) -> Dict[str, Any]:
        """The fields of mf_sequence_statistics."""
        out = sized(_abi.mf_sequence_statistics)
        self._call("mf_sequence_stats", out)
        return statistics_of(out)

    def reset_statistics(self) -> None:
        self._ask("mf_sequence_reset_stats")


class StepError(Exception):
    """Some parts of a step failed; the sequences of the others have advanced."""

    def __init__(self, errors: Dict[int, Exception]) -> None:
        super().__init__("; ".join(f"part {at}: {error}" for at, error in errors.items()))
        self.errors = errors
        """By the number of the part."""


def step(model: "Model", parts: Many[Tuple[Sequence, Tokens]], generated: bool) -> None:
    """Model.step."""
    held: List[Sequence] = []
    structs = (_abi.mf_part * len(parts))()
    whys = [_abi.mf_error() for _ in parts]
    why = _abi.mf_error()
    # Two steps that share sequences would wait for each other if they took them in other orders.
    order = sorted(range(len(parts)), key=lambda at: id(parts[at][0]))
    try:
        for at in order:
            sequence, tokens = parts[at]
            ids = token_array(tokens)
            structs[at].sequence = sequence._begin()
            held.append(sequence)
            structs[at].phase = _abi.MF_PHASE_GENERATED if generated else _abi.MF_PHASE_PROMPT
            structs[at].tokens, structs[at].count = ids, len(ids)
            structs[at].why = ctypes.pointer(whys[at])
            sequence._problem = None
        _run_step(model, structs, [one for one, _ in parts], why)
        problems = [one._problem for one in held if one._problem is not None]
        for one in held:
            one._problem = None
        if problems:
            raise problems[0]
    finally:
        for one in held:
            one._end()
    errors: Dict[int, Exception] = {at: exception(struct.status, whys[at])
                                    for at, struct in enumerate(structs) if struct.status != 0}
    if errors:
        raise StepError(errors)


def _run_step(model: "Model", structs: Any, sequences: List[Sequence], why: Any) -> None:
    stale = [one._stale_cancel for one in sequences]
    for one in sequences:
        one._stale_cancel = one._cancel_asked = False
    _run_parts(model, structs, sequences, why)
    # A cancel that was left over from an earlier call is not meant for this one.
    again = [at for at, one in enumerate(sequences)
             if structs[at].status == _abi.MF_ERR_CANCELLED and stale[at]
             and not one._cancel_asked and one._problem is None]
    if not again:
        return
    rest = (_abi.mf_part * len(again))(*[structs[at] for at in again])
    _run_parts(model, rest, [sequences[at] for at in again], why)
    for at, part in zip(again, rest):
        structs[at].status = part.status


def _run_parts(model: "Model", structs: Any, sequences: List[Sequence], why: Any) -> None:
    def cancel() -> None:
        for one in sequences:
            one._stale_cancel = True
            load().mf_sequence_cancel(one._handle._pointer)

    with model._handle as pointer:
        status = interruptible(lambda: int(load().mf_model_step(pointer, structs, len(structs),
                                                                why)), cancel)
    if status != 0 and why.text:
        raise exception(status, why)
