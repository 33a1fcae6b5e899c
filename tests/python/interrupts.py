"""Signals, cancelling and exceptions in callbacks: each is raised to the caller, and everything stays
usable."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import moeflux

from support import PEBBLE, PLAIN, WithModel, wait_until

LONG = [1 + at % 500 for at in range(900)]


class Interrupted(Exception):
    """Of a signal's handler."""


class Refused(Exception):
    """Of a callback."""


def interrupt_after(seconds, number=signal.SIGINT):
    thread = threading.Timer(seconds, os.kill, (os.getpid(), number))
    thread.start()
    return thread


class Signals(WithModel):
    """Each in the main thread, which is told of signals, while the library computes."""

    def assertInterrupted(self, call, seconds=0.1):
        started = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            interrupt_after(seconds)
            call()
            time.sleep(20)  # it came between two calls: still in this test
        self.assertLess(time.monotonic() - started, 10)

    def test_of_a_feed(self):
        with self.model.sequence() as sequence:
            sequence.feed([1, 2, 3])

            def call():
                while True:
                    fork = sequence.fork()
                    fork.feed(LONG)
            self.assertInterrupted(call)
            self.assertEqual(sequence.tokens(), [1, 2, 3])
            sequence.feed([4])
            self.assertEqual(len(sequence), 4)
        self.assertUsable()

    def test_ends_the_feed_and_not_only_the_waiting(self):
        def once(done, total):
            if not sent:
                sent.append(done)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)  # the main thread takes it meanwhile
        with self.model.sequence() as sequence:
            for call in (lambda: sequence.feed(LONG), lambda: sequence.feed_all(LONG),
                         lambda: self.model.step([(sequence, LONG)], generated=False)):
                sent = []
                sequence.clear()
                sequence.watch_progress(None)
                sequence.feed([1, 2, 3])
                sequence.watch_progress(once)
                with self.assertRaises(KeyboardInterrupt):
                    call()
                self.assertEqual(sequence.tokens(), [1, 2, 3])
                sequence.feed([4])
                self.assertEqual(len(sequence), 4)

    def test_of_the_same_sequence_again_and_again(self):
        with self.model.sequence() as sequence:
            for at in range(12):
                def call():
                    while True:
                        sequence.clear()
                        sequence.feed(LONG)
                self.assertInterrupted(call, 0.01 + 0.007 * at)
                sequence.clear()
                sequence.feed([1, 2])  # no cancel is left over
                self.assertEqual(len(sequence), 2)

    def test_of_all_logits_and_of_steps(self):
        sequence, other = self.model.sequence(), self.model.sequence()

        def rows():
            while True:
                sequence.clear()
                sequence.feed_all(LONG)

        def steps():
            while True:
                sequence.clear()
                other.clear()
                self.model.step([(sequence, LONG), (other, LONG)], generated=False)
        self.assertInterrupted(rows)
        self.assertInterrupted(steps)
        for one in (sequence, other):
            one.clear()
            one.feed([1])
            one.close()
        self.assertUsable()

    def test_of_chats(self):
        self.assertInterrupted(lambda: self.model.chat("Hello", ignore_end=True))

        def iterate():
            for _ in self.model.stream("Hello", ignore_end=True):
                pass
        self.assertInterrupted(iterate)
        self.assertInterrupted(lambda: self.model.batch(["Hello"] * 12, ignore_end=True))
        kept = self.model.stream("Hello", ignore_end=True)
        self.assertInterrupted(lambda: [None for _ in kept])
        self.assertEqual(kept.answer().finish, "cancelled")
        wait_until(lambda: self.model.request_statistics()["running"] == 0)
        self.assertUsable()

    def test_of_an_opening_that_goes_on_behind_it(self):
        def call():
            while True:
                moeflux.Model(PEBBLE, context=256).close()
        self.assertInterrupted(call)
        self.assertUsable()

    def test_a_handler_that_raises_nothing_ends_nothing(self):
        seen = []
        before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        try:
            timer = interrupt_after(0.02, signal.SIGUSR1)
            with self.model.sequence() as sequence:
                while not seen:
                    sequence.clear()
                    sequence.feed(LONG)
                    self.assertEqual(len(sequence), len(LONG))
            timer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)

    def test_a_handlers_own_exception_is_raised(self):
        def handler(*_):
            raise Interrupted("timeout")
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(Interrupted):
                self.model.chat("Hello", ignore_end=True)
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertUsable()


class Cancelling(WithModel):
    def test_from_another_thread(self):
        with self.model.sequence() as sequence:
            sequence.watch_progress(lambda done, total: sequence.cancel() if done else None)
            for _ in range(3):
                with self.assertRaises(moeflux.CancelledError):
                    sequence.feed(LONG)
                self.assertEqual(len(sequence), 0)
            sequence.watch_progress(None)
            sequence.cancel()  # none is under way: the next one ends before it begins
            with self.assertRaises(moeflux.CancelledError):
                sequence.feed([1])
            sequence.feed([1])
            self.assertEqual(len(sequence), 1)

    def test_a_cancelled_answer_keeps_what_it_had(self):
        stream = self.model.stream("Tell me a story.", ignore_end=True, variables=PLAIN)
        for event in stream:
            if isinstance(event, moeflux.Content):
                threading.Thread(target=stream.cancel).start()
                break
        answer = stream.answer()
        self.assertEqual(answer.finish, "cancelled")
        self.assertTrue(answer.content)
        self.assertEqual(list(stream), [])
        self.assertUsable()

    def test_leaving_a_stream_cancels_it(self):
        with self.model.stream("Hello", ignore_end=True) as stream:
            next(stream)
        with self.assertRaises(moeflux.ClosedError):
            next(stream)
        self.model.stream("Hello", ignore_end=True)  # dropped at once
        wait_until(lambda: self.model.request_statistics()["running"] == 0)
        self.assertUsable()


class Callbacks(WithModel):
    def test_exceptions_are_raised_by_the_call(self):
        def refuse(*_):
            raise Refused("no")
        with self.model.sequence() as sequence:
            for watch in (sequence.watch_progress, sequence.watch_routes):
                watch(refuse)
                for tokens in ([1], LONG):
                    sequence.clear()
                    with self.assertRaises(Refused):
                        sequence.feed(tokens)
                watch(None)
                sequence.clear()
                sequence.feed([1])
                self.assertEqual(len(sequence), 1)
        self.assertUsable()

    def test_one_after_the_last_layer_cancels_no_later_feed(self):
        def refuse(done, total):
            if done == total:
                raise Refused("no")
        with self.model.sequence() as sequence:
            sequence.watch_progress(refuse)
            with self.assertRaises(Refused):
                sequence.feed([1, 2])
            sequence.watch_progress(None)
            length = len(sequence)
            sequence.feed([3])
            self.assertEqual(len(sequence), length + 1)
            sequence.watch_progress(refuse)
            with self.assertRaises(Refused):
                sequence.feed([1, 2])
            sequence.watch_progress(None)
            sequence.cancel()  # this one is meant
            with self.assertRaises(moeflux.CancelledError):
                sequence.feed([3])

    def test_in_other_threads_as_well(self):
        def refuse(*_):
            raise Refused("no")
        caught = []

        def work():
            with self.model.sequence() as sequence:
                sequence.watch_progress(refuse)
                try:
                    sequence.feed(LONG)
                except Refused as error:
                    caught.append(error)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(caught), 4)

    def test_of_a_request(self):
        def refuse(routes):
            raise Refused("no")
        for call in (self.model.chat, lambda *a, **k: list(self.model.stream(*a, **k))):
            with self.assertRaises(Refused):
                call("Hello", on_routes=refuse)
        answers = self.model.batch(["Hello", moeflux.Request("Hello", {"on_routes": refuse})],
                                   return_errors=True, max_tokens=2)
        self.assertIsInstance(answers[1], Refused)
        self.assertEqual(answers[0].finish, "length")
        self.assertUsable()

    def test_the_library_is_not_called_inside_of_one(self):
        with self.model.sequence() as sequence:
            sequence.watch_progress(lambda *_: self.model.name)
            with self.assertRaisesRegex(moeflux.Error, "a callback must not use the model"):
                sequence.feed([1])
            sequence.watch_progress(lambda *_: self.model.chat("Hello"))
            with self.assertRaisesRegex(moeflux.Error, "a callback must not"):
                sequence.feed([1])
        self.assertUsable()


LEAVES = """
import moeflux, os, sys, threading
model = moeflux.Model(sys.argv[1], context=512, threads=2)
sequence = model.sequence()
stream = model.stream("Hello", ignore_end=True)
next(stream)
threading.Thread(target=lambda: [sequence.feed([1]) for _ in range(400)], daemon=True).start()
keep = [model, sequence, stream]
keep.append(keep)
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        del keep[:], model, sequence, stream
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
if sys.argv[2] == "raise":
    raise SystemExit(7)
print("left")
"""


class Leaving(WithModel):
    def leave(self, how):
        # Later versions warn of any fork beside threads.
        return subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", LEAVES,
                               PEBBLE, how], capture_output=True, text=True, timeout=60,
                              env=os.environ)

    def test_a_process_ends_with_everything_open(self):
        for how in ("plain", "fork"):
            done = self.leave(how)
            self.assertEqual((done.returncode, done.stdout), (0, "left\n"), done.stderr)
            self.assertEqual(done.stderr, "")
        self.assertEqual(self.leave("raise").returncode, 7)

    def test_ctrl_c_ends_a_program(self):
        program = ("import moeflux, sys\nmodel = moeflux.Model(sys.argv[1], context=4096)\n"
                   "print('begins', flush=True)\n"
                   "model.chat('Hello', ignore_end=True, sampling=moeflux.Sampling())")
        with subprocess.Popen([sys.executable, "-c", program, PEBBLE], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            self.assertEqual(child.stdout.readline(), "begins\n")
            time.sleep(0.1)
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=30)
        self.assertEqual(child.returncode, -signal.SIGINT)
        self.assertTrue(said.rstrip().endswith("KeyboardInterrupt"), said)


if __name__ == "__main__":
    unittest.main()
