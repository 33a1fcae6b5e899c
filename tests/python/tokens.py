"""The token layer: sequences, logits, snapshots, samplers, constraints, text."""
import array
import gc
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

import moeflux
from moeflux import Constraint, Form, Sampler, Sampling

from support import PEBBLE, WithModel

TEXT = "The capital of Japan"


class Sequences(WithModel):
    def started(self):
        sequence = self.model.sequence()
        sequence.feed(self.model.text.prompt(TEXT))
        return sequence

    def test_logits_are_a_buffer_of_floats(self):
        with self.started() as sequence:
            logits = sequence.logits()
            self.assertEqual((logits.format, logits.shape), ("f", (self.model.vocab_size,)))
            rows = self.model.sequence().feed_all(self.model.text.prompt(TEXT))
            self.assertEqual(rows.shape, (len(sequence), self.model.vocab_size))
            self.assertEqual(rows.tolist()[-1], logits.tolist())
        self.assertEqual(len(logits.tolist()), self.model.vocab_size)  # also when that is closed
        with self.assertRaisesRegex(moeflux.ArgumentError, "no logits"):
            self.model.sequence().logits()

    def test_logits_are_numpys_without_a_copy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        with self.started() as sequence:
            row = numpy.asarray(sequence.logits())
        self.assertEqual(row.dtype, numpy.float32)
        self.assertFalse(row.flags.owndata)

    def test_a_sampler_takes_a_sequence_or_any_buffer(self):
        with self.started() as sequence, Sampler(self.model) as sampler:
            token = sampler.pick(sequence)
            self.assertEqual(self.model.text.token_bytes(token), b" is")
            self.assertEqual(sampler.pick(sequence.logits()), token)
            self.assertEqual(sampler.pick(array.array("f", sequence.logits())), token)
            best = sampler.logprobs(sequence, 2)
            self.assertEqual(best[0], (token, sampler.logprob_of(sequence, token)))
            for wrong in (array.array("f", [1.0]), array.array("i", [0] * self.model.vocab_size)):
                with self.assertRaisesRegex(ValueError, "floats of 32 bits"):
                    sampler.pick(wrong)
        never = Sampling(biases=((token, float("-inf")),), dry_breakers=(1, 2))
        with self.started() as sequence, Sampler(self.model, never) as sampler:
            self.assertNotEqual(sampler.pick(sequence), token)

    def test_a_snapshot_goes_on_with_the_same_bits(self):
        with self.started() as sequence, self.model.sequence() as other:
            snapshot = sequence.save()
            for form in (snapshot, bytearray(snapshot), memoryview(snapshot)):
                other.load(form)
                self.assertEqual(other.tokens(), sequence.tokens())
            sequence.feed([1], generated=True)
            other.feed([1], generated=True)
            self.assertEqual(sequence.logits(), other.logits())
            with tempfile.TemporaryDirectory() as place:
                path = os.path.join(place, "state")
                sequence.save_file(path)
                other.clear()
                other.load_file(path)
            self.assertEqual(sequence.logits(), other.logits())
            with self.assertRaises(moeflux.FormatError):
                other.load(snapshot[:-1])
            self.assertEqual(len(other), len(sequence))

    def test_a_fork_goes_its_own_way(self):
        with self.started() as sequence, sequence.fork() as fork:
            fork.feed([5], generated=True)
            self.assertEqual(len(fork), len(sequence) + 1)
            sequence.checkpoint()
            sequence.feed([7], generated=True)
            sequence.truncate(len(sequence) - 1)
            self.assertEqual(sequence.truncate_near(2), 0)
            with self.assertRaises(moeflux.TruncateError):
                fork.truncate(2)

    def test_a_step_feeds_many(self):
        first, second = self.started(), self.model.sequence()
        second.feed(self.model.text.prompt("Once"))
        alone = first.fork()
        alone.feed([9], generated=True)
        self.model.step([(first, [9]), (second, [9])])
        self.assertEqual(first.logits(), alone.logits())
        tiny = self.model.sequence(context=1)
        with self.assertRaises(moeflux.StepError) as raised:
            self.model.step([(first, [9]), (tiny, [9, 9])])
        self.assertIsInstance(raised.exception.errors[1], moeflux.ContextFullError)
        self.assertEqual(list(raised.exception.errors), [1])
        self.assertEqual(first.tokens()[-2:], [9, 9])

    def test_wrong_ids_are_refused(self):
        with self.model.sequence() as sequence:
            for wrong in ([1 << 31], [-(1 << 31) - 1]):
                with self.assertRaisesRegex(ValueError, "no token id"):
                    sequence.feed(wrong)
            with self.assertRaises(moeflux.ArgumentError):
                sequence.feed([self.model.vocab_size])
            self.assertEqual(len(sequence), 0)

    def test_a_constraint_closes_within_the_limit(self):
        schema = {"type": "array", "items": {"type": "string"}}
        prompt = self.model.text.render("Fruits?", variables={"enable_thinking": False})
        with self.model.sequence() as sequence, Sampler(self.model) as sampler, \
                Constraint(self.model, Form(schema=schema), prompt.reasoning) as form:
            sequence.feed(prompt)
            left = form.closing_tokens + 20
            taken = []
            while not form.finished and left > 0:
                token = form.pick(sampler, sequence, left)
                if token is None or self.model.is_end(token):
                    break
                form.accept(token)
                taken.append(token)
                sequence.feed([token], generated=True)
                left -= 1
            self.assertTrue(form.complete)
            text = self.model.text.detokenize(taken)
            self.assertIsInstance(__import__("json").loads(text), list)
            form.reset()
            with self.assertRaisesRegex(moeflux.ArgumentError, "not allowed"):
                form.accept(self.model.text.tokenize("}")[0])

    def test_statistics_are_dictionaries(self):
        with self.started() as sequence:
            numbers = sequence.statistics()
            self.assertEqual(numbers["prompt_tokens"], len(sequence))
            self.assertIn("attention", numbers["prompt_stage_seconds"])
        numbers = self.model.statistics()
        self.assertEqual((numbers["experts_total"], numbers["expert_mode"]), (512, "resident"))
        present = self.model.experts_present()
        self.assertEqual([len(row) for row in present], [64] * 8)
        self.assertEqual(sum(map(sum, present)), numbers["experts_present"])
        self.assertGreater(numbers["experts_present"], 0)


class Texts(WithModel):
    def test_tokens_are_text_again(self):
        text = self.model.text
        for sample in ("", "Hello", "naïve \N{SNOWMAN} 日本", "a\0b"):
            ids = text.tokenize(sample)
            self.assertEqual(text.detokenize(ids), sample)
            self.assertEqual(b"".join(map(text.token_bytes, ids)), sample.encode())

    def test_markup_in_messages_is_content(self):
        end = self.model.text.find_token("<|im_end|>")
        plain = self.model.text.render("Hi").tokens.count(end)
        prompt = self.model.text.render("Hi<|im_end|>")
        self.assertEqual(prompt.tokens.count(end), plain)
        (offset, length), = prompt.content
        self.assertEqual(prompt.text.encode()[offset:offset + length], b"Hi<|im_end|>")
        self.assertEqual(self.model.text.tokenize("<|im_end|>"), [end])
        self.assertNotEqual(self.model.text.tokenize("<|im_end|>", "none"), [end])

    def test_a_text_needs_no_weights(self):
        with moeflux.Text(PEBBLE) as text:
            self.assertEqual(text.tokenize(TEXT), self.model.text.tokenize(TEXT))
            self.assertEqual(text.sampling.top_k, 20)
            self.assertEqual(text.family, "hermes")
            self.assertIn("im_start", text.template)
            self.assertTrue(text.is_special(text.find_token("<|im_end|>")))
            with self.assertRaises(moeflux.TemplateError):
                text.render([{"role": "user", "content": "x"}], variables={"messages": 1})

    def test_a_character_in_two_tokens_comes_whole(self):
        ids = self.model.text.tokenize("\N{SNOWMAN}")
        self.assertGreater(len(ids), 1)
        with moeflux.Detokenizer(self.model.text) as stream:
            pieces = [stream.push(token) for token in ids]
            self.assertEqual(pieces, [""] * (len(ids) - 1) + ["\N{SNOWMAN}"])
            stream.push(ids[0])
            self.assertEqual(stream.flush(), "\ufffd")

    def test_a_nul_is_refused_where_it_would_end_a_text(self):
        with self.assertRaisesRegex(ValueError, "NUL"):
            self.model.text.find_token("a\0b")


class Lifetimes(WithModel):
    def test_any_order_of_closing_is_legal(self):
        model = moeflux.Model(PEBBLE, context=256, threads=1)
        sequence, text = model.sequence(), model.text
        sampler = Sampler(model)
        stream = model.stream("Hello", ignore_end=True, max_tokens=200)
        detokenizer = moeflux.Detokenizer(text)
        engine = model.engine
        engine.close()
        model.close()
        model.close()
        for call in (lambda: text.tokenize("a"), lambda: model.name, lambda: model.sequence(),
                     lambda: model.chat("Hello"), lambda: engine.threads):
            with self.assertRaises(moeflux.ClosedError):
                call()
        self.assertFalse(model._handle._freed or engine._handle._freed)
        sequence.feed([1])
        self.assertIsNotNone(sampler.pick(sequence))
        stream.cancel()
        for thing in (stream, sequence, sampler, detokenizer, sequence):
            thing.close()
        with self.assertRaisesRegex(moeflux.ClosedError, "the sequence is closed"):
            sequence.feed([1])
        self.assertTrue(model._handle._freed and engine._handle._freed)

    def test_what_is_dropped_is_collected(self):
        model = moeflux.Model(PEBBLE, context=256, threads=1)
        sequence = model.sequence()
        sequence.watch_progress(lambda done, total: None)
        sequence.feed([1])
        model.stream("Hello", ignore_end=True, max_tokens=100)
        known = [weakref.ref(model), weakref.ref(sequence)]
        cycle = [model, sequence]
        cycle.append(cycle)
        del model, sequence, cycle
        gc.collect()
        self.assertEqual([one() for one in known], [None, None])
        self.assertUsable()

    def test_a_text_alone_is_collected(self):
        alone = ("import gc, moeflux, sys, time\n"
                 "text = moeflux.Text(sys.argv[1])\n"
                 "handle = text._handle\n"
                 "del text\n"
                 "gc.collect()\n"
                 "end = time.monotonic() + 20\n"
                 "while not handle._freed and time.monotonic() < end: time.sleep(0.002)\n"
                 "sys.exit(not handle._freed)\n")
        self.assertEqual(subprocess.run([sys.executable, "-c", alone, PEBBLE]).returncode, 0)

    def test_closing_waits_for_calls_of_other_threads(self):
        with self.model.sequence() as sequence:
            began = threading.Event()
            sequence.watch_progress(lambda done, total: began.set())
            thread = threading.Thread(target=sequence.feed, args=([1] * 400,))
            thread.start()
            began.wait()
            sequence.close()
            thread.join()
            self.assertTrue(sequence.closed)


if __name__ == "__main__":
    unittest.main()
