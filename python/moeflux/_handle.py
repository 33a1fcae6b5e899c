"""Objects of the library and their lifetimes.

    Handle   one pointer.  Every call takes it by `with handle as pointer`, which counts as a use; a
             handle that another was opened from has a use for as long as that one lives.  close()
             refuses further uses and frees the object when the last one ends, so no thread and no
             order of closing can reach freed memory.

A handle that the garbage collector finds is freed by a thread of its own: a collection may begin
inside of a callback, where the library must not be called.  After a fork the child frees nothing:
the threads of its parent's engine are not there."""
from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from typing import Any, Callable, Optional, TypeVar

from .errors import ClosedError, Error

_state = threading.local()  # .callback: this thread is inside of a callback of the library
_reaped: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
_reaper_lock = threading.Lock()
_reaper_of = 0  # process that has the thread


class inside_callback:
    """While the library calls Python: no call of the library is allowed."""

    def __enter__(self) -> None:
        _state.callback = True

    def __exit__(self, *_: object) -> None:
        _state.callback = False


def in_callback() -> bool:
    return getattr(_state, "callback", False)


def _reap() -> None:
    while True:
        _reaped.get()()


def start_reaper() -> None:
    """Once in a process, before the first object that may be collected."""
    global _reaper_of
    if _reaper_of == os.getpid():
        return
    with _reaper_lock:
        if _reaper_of != os.getpid():
            threading.Thread(target=_reap, name="moeflux-closer", daemon=True).start()
            _reaper_of = os.getpid()


class Handle:
    __slots__ = ("_pointer", "_free", "_parent", "_uses", "_closed", "_freed", "_lock", "_process",
                 "kind", "kept", "__weakref__")

    def __init__(self, kind: str, pointer: int, free: Callable[[int], None],
                 parent: Optional[Handle] = None) -> None:
        """Takes over `pointer`, and a use of `parent` that the caller has taken with acquire()."""
        self.kind = kind
        self.kept: Any = None  # what must live as long: callbacks
        self._pointer = pointer
        self._free = free
        self._parent = parent
        self._uses = 0
        self._closed = False
        self._freed = False
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def closed(self) -> bool:
        return self._closed

    def acquire(self, anywhere: bool = False) -> int:
        """`anywhere`: for calls that callbacks may make."""
        if in_callback() and not anywhere:
            raise Error(f"a callback must not use the {self.kind}: the library is computing")
        taken = False
        try:
            with self._lock:
                if self._closed:
                    raise ClosedError(f"the {self.kind} is closed")
                self._uses += 1
                taken = True
            return self._pointer
        except BaseException:
            if taken:
                self.release()
            raise

    def release(self) -> None:
        with self._lock:
            self._uses -= 1
        self._free_if_last()

    def __enter__(self) -> int:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if in_callback():
            _reaped.put(self._free_if_last)
        else:
            self._free_if_last()

    def _free_if_last(self) -> None:
        with self._lock:
            if not self._closed or self._uses > 0 or self._freed:
                return
            self._freed = True
        if self._process == os.getpid():
            self._free(self._pointer)
        if self._parent is not None:
            self._parent.release()


def _collected(handle: Handle) -> None:
    if handle.closed:
        return
    if _exiting:
        handle.close()
    else:
        _reaped.put(handle.close)


_exiting = False
_exit_watched = False


def _leave() -> None:
    global _exiting
    _exiting = True


def _watch_exit() -> None:
    """After the first finalizer, so that _leave runs before all of them."""
    global _exit_watched
    if not _exit_watched:
        _exit_watched = True
        atexit.register(_leave)


C = TypeVar("C", bound="Closing")


class Closing:
    """What has a handle: closed by close(), at the end of a `with`, or by the collector."""

    _handle: Handle
    _finalizer: Any

    def _own(self, handle: Handle) -> None:
        self._handle = handle
        start_reaper()
        # At the end of the process these run in the reverse order of their creation.
        self._finalizer = weakref.finalize(self, _collected, handle)
        _watch_exit()

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees it; a call that is under way in another thread, or what was opened from it and is
        still open, delays that.  Closing twice is legal."""
        self._finalizer.detach()
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.closed


def opened(kind: str, parent: Optional[Handle], open_it: Callable[[Any], int],
           free: Callable[[int], None]) -> Handle:
    """`open_it` is called with the parent's pointer (None: no parent) and returns a pointer or
    raises."""
    above = None if parent is None else parent.acquire()
    try:
        return Handle(kind, open_it(above), free, parent)
    except BaseException:
        if parent is not None:
            parent.release()
        raise
