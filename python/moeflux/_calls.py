"""Long calls of the library from Python's main thread, which alone is told of signals.

Python runs a signal's handler between two instructions of the main thread, so that a Ctrl-C would
wait for the end of a call.  Therefore the main thread has its long calls done by another one and
waits for it, which a signal interrupts: `cancel` is called, the call ends within a layer, and the
exception of the handler goes on to the caller.  Other threads call the library themselves.

A signal that comes as the main thread is about to sleep, or that the system gives to another thread,
does not end that sleep: therefore it is cut into pieces."""
from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, Generic, List, Optional, TypeVar

T = TypeVar("T")

PIECE_SECONDS = 0.05  # a signal is seen this late at most


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T], dropped: Optional[Callable[[T], None]]) -> None:
        self.work = work
        self.dropped = dropped
        self.lock = threading.Lock()
        self.started = self.ended = self.abandoned = self.over = False
        self.result: Optional[T] = None
        self.error: Optional[BaseException] = None
        self.done = threading.Lock()
        self.done.acquire()

    def run(self) -> None:
        with self.lock:
            if self.abandoned:
                return
            self.started = True
        try:
            self.result = self.work()
        except BaseException as error:  # it is the caller's
            self.error = error
        with self.lock:
            self.ended = True
            abandoned = self.abandoned
        if abandoned and self.error is None and self.dropped is not None:
            self.dropped(self.result)  # type: ignore[arg-type]
        self.over = True
        self.done.release()

    def wait(self) -> None:
        while not self.over:
            self.done.acquire(timeout=PIECE_SECONDS)


class _Worker:
    def __init__(self) -> None:
        self.job: Any = None
        self.wake = threading.Lock()
        self.wake.acquire()
        threading.Thread(target=self._loop, name="moeflux-call", daemon=True).start()

    def give(self, job: Any) -> None:
        self.job = job
        self.wake.release()

    def _loop(self) -> None:
        while True:
            self.wake.acquire()
            job, self.job = self.job, None
            job.run()
            del job
            _idle.append(self)


_idle: List[_Worker] = []


def _forget_workers() -> None:
    _idle.clear()


os.register_at_fork(after_in_child=_forget_workers)  # threads do not survive a fork


def interruptible(work: Callable[[], T], cancel: Optional[Callable[[], None]] = None,
                  dropped: Optional[Callable[[T], None]] = None) -> T:
    """work(), in the main thread so that a signal's exception ends it.

    With `cancel` the exception goes on when the call has ended.  Without it the call cannot be
    ended: the exception goes on at once, and `dropped` gets the result that comes later."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    job: _Job[T] = _Job(work, dropped)
    try:
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
        worker.give(job)
        job.wait()
    except BaseException:
        _end(job, cancel)
        raise
    if job.error is not None:
        raise job.error
    return job.result  # type: ignore[return-value]


def _end(job: Any, cancel: Optional[Callable[[], None]]) -> None:
    """The main thread was interrupted: no job is left running with what the caller owns."""
    with job.lock:
        if not job.started or cancel is None:
            if not job.ended:
                job.abandoned = True
                return
        elif not job.ended:
            cancel()
    if cancel is None:  # it has ended in the meantime
        if job.error is None and job.dropped is not None:
            job.dropped(job.result)
        return
    while True:
        try:
            job.wait()
            return
        except BaseException:  # a second Ctrl-C: the first one is on its way already
            continue


def take(source: "queue.SimpleQueue[T]") -> T:
    """source.get(), which a signal interrupts in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return source.get()
    while True:
        try:
            return source.get(timeout=PIECE_SECONDS)
        except queue.Empty:
            continue
