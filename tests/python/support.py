"""What the tests of the Python package share: one model, and waiting."""
import atexit
import os
import time
import unittest

import moeflux

SOURCE = os.environ["MOEFLUX_SOURCE"]
PEBBLE = os.path.join(SOURCE, "models", "pebble")
PLAIN = {"enable_thinking": False}

_model = None


def model():
    """One for all tests of a program, as users have it."""
    global _model
    if _model is None:
        _model = moeflux.Model(PEBBLE, sequences=8, context=1024, threads=1)
        atexit.register(_model.close)
    return _model


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.002)


class WithModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = model()

    def assertUsable(self):
        """The model answers as ever."""
        answer = self.model.chat("What is the capital of France?", sampling=moeflux.Sampling(),
                                 variables=PLAIN)
        self.assertEqual(answer.content, "The capital of France is Paris.")
