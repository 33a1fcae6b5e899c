"""Chat, streaming, forms, tools, batches, and the same from many threads."""
import json
import threading
import typing
import unittest

import moeflux
from moeflux import (CallArguments, CallBegin, CallEnd, Content, Ended, Progress, Request, Sampling,
                     Token, Tool)

from support import PLAIN, WithModel, model

GREEDY = Sampling()
QUESTIONS = [f"What is the capital of {country}?" for country in
             ("France", "Japan", "Italy", "Spain", "England", "Germany", "Russia", "China")]
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "age": {"type": "integer", "maximum": 99, "minimum": 0}},
          "required": ["name", "age"], "additionalProperties": False}


def ask(question, **options):
    return model().chat(question, sampling=GREEDY, variables=PLAIN, **options)


class Chat(WithModel):
    def test_an_answer_says_how_it_ended(self):
        answer = ask("What is the capital of France?")
        self.assertEqual(answer.content, "The capital of France is Paris.")
        self.assertEqual((answer.finish, answer.reasoning, answer.tool_calls), ("end", "", ()))
        self.assertGreater(answer.prompt_tokens, 10)
        self.assertEqual(ask("Name a colour.", max_tokens=2).finish, "length")
        stopped = ask("What is the capital of France?", stop=["is", "never"])
        self.assertEqual((stopped.content, stopped.finish, stopped.stop),
                         ("The capital of France ", "stop", "is"))

    def test_a_conversation_goes_on(self):
        first = ask("What is the capital of France?")
        talk = [{"role": "user", "content": "What is the capital of France?"}, first.message,
                {"role": "user", "content": "And what is the capital of Japan?"}]
        self.assertIn("Tokyo", ask(talk).content)

    def test_a_stream_has_typed_events(self):
        events = list(self.model.stream("Tell me a story.", sampling=GREEDY, variables=PLAIN,
                                        max_tokens=24, progress=True, logprobs=3,
                                        ignore_end=True))
        read = [event for event in events if isinstance(event, Progress)]
        self.assertEqual(read[-1].done, read[-1].total)
        tokens = [event for event in events if isinstance(event, Token)]
        self.assertEqual(len(tokens), 24)
        for token in tokens:
            self.assertEqual(token.best[0], (token.id, token.logprob))
            self.assertEqual(len(token.best), 3)
        self.assertIsInstance(events[-1], Ended)
        text = "".join(event.text for event in events if isinstance(event, Content))
        self.assertEqual(text, events[-1].answer.content)
        self.assertEqual(text, ask("Tell me a story.", max_tokens=24, ignore_end=True).content)

    def test_pieces_of_text_alone(self):
        stream = self.model.stream(QUESTIONS[1], sampling=GREEDY, variables=PLAIN)
        self.assertIn("Tokyo", "".join(stream.text))
        self.assertEqual(stream.answer().finish, "end")

    def test_the_same_seed_gives_the_same_text(self):
        drawn = [ask_warm(seed) for seed in (1, 1, 2, 3)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertGreater(len(set(drawn)), 1)

    def test_a_completion_has_no_template(self):
        text = self.model.complete("Once upon a time", sampling=GREEDY, max_tokens=8)
        ids = self.model.complete(self.model.text.tokenize("Once upon a time"), sampling=GREEDY,
                                  max_tokens=8)
        self.assertEqual((text.prompt_tokens, text.content), (ids.prompt_tokens, ids.content))

    def test_the_librarys_sentence_is_the_exceptions(self):
        with self.assertRaisesRegex(moeflux.ArgumentError, "the prompt is empty"):
            self.model.complete([])
        with self.assertRaises(moeflux.ContextFullError):
            self.model.complete([1] * 2000)
        with self.assertRaises(moeflux.GrammarError) as raised:
            ask("Hello", grammar="root ::= (")
        self.assertIsInstance(raised.exception, ValueError)
        with self.assertRaisesRegex(TypeError, "colour"):
            ask("Hello", colour=1)
        with self.assertRaises(moeflux.Error):
            moeflux.Model("/nonexistent/model")
        self.assertUsable()


def ask_warm(seed):
    return model().chat("Tell me a story.", sampling=Sampling(temperature=1.5, seed=seed),
                        variables=PLAIN, max_tokens=16).content


class Forms(WithModel):
    def test_a_schema_holds_the_answer(self):
        person = ask("Invent a person.", schema=PERSON, max_tokens=200).json()
        self.assertEqual(set(person), {"name", "age"})
        self.assertIsInstance(person["age"], int)

    def test_a_grammar_holds_the_answer(self):
        answer = ask("Yes or no?", grammar='root ::= "maybe" | "perhaps"')
        self.assertIn(answer.content, ("maybe", "perhaps"))

    def test_a_tool_is_called_as_its_hints_say(self):
        def get_weather(unit: typing.Literal["C", "F"], days: int = 1) -> str:
            """The weather.

            Not this."""
            return "warm"

        tool = Tool.of(get_weather)
        self.assertEqual(tool.description, "The weather.")
        self.assertEqual(tool.parameters["required"], ["unit"])
        self.assertEqual(tool.parameters["properties"]["days"], {"type": "integer"})
        answer = ask("Is it warm?", tools=[get_weather], tool_choice="required", one_call=True)
        self.assertEqual([call.name for call in answer.tool_calls], ["get_weather"])
        self.assertIn(answer.tool_calls[0].arguments["unit"], "CF")

    def test_calls_are_streamed(self):
        tool = {"name": "add", "parameters": {"type": "object", "required": ["a"],
                                              "properties": {"a": {"enum": [7]}},
                                              "additionalProperties": False}}
        events = list(self.model.stream("Add 7.", sampling=GREEDY, tools=[tool],
                                        tool_choice="add", one_call=True, variables=PLAIN))
        kinds = [type(event) for event in events]
        self.assertLess(kinds.index(CallBegin), kinds.index(CallArguments))
        self.assertLess(kinds.index(CallArguments), kinds.index(CallEnd))
        text = "".join(event.text for event in events if isinstance(event, CallArguments))
        self.assertEqual(json.loads(text), {"a": 7})

    def test_tools_are_run_until_there_is_an_answer(self):
        called = []

        def get_time(zone: typing.Literal["CET"]) -> str:
            """The time."""
            called.append(zone)
            if len(called) == 1:
                raise RuntimeError("the clock stands still")
            return "noon"

        told = moeflux.run_tools(self.model, "What time is it?", [get_time], rounds=2,
                                 sampling=GREEDY, variables=PLAIN, tool_choice="required",
                                 one_call=True)
        self.assertEqual(called, ["CET", "CET"])
        self.assertEqual([message["role"] for message in told],
                         ["assistant", "tool", "assistant", "tool"])
        self.assertIn("the clock stands still", told[1]["content"])
        self.assertEqual(told[3]["content"], "noon")


class Many(WithModel):
    def test_a_batch_gives_what_each_gives_alone(self):
        alone = [ask(question).content for question in QUESTIONS]
        together = self.model.batch(QUESTIONS, sampling=GREEDY, variables=PLAIN)
        self.assertEqual([answer.content for answer in together], alone)

    def test_requests_of_a_batch_have_options_of_their_own(self):
        short, plain = self.model.batch(
            [Request(QUESTIONS[0], {"max_tokens": 2}), QUESTIONS[0]], sampling=GREEDY,
            variables=PLAIN)
        self.assertEqual((short.finish, plain.finish), ("length", "end"))

    def test_one_failure_is_one_request(self):
        wrong = Request("Hello", {"grammar": "root ::= ("})
        answers = self.model.batch([QUESTIONS[0], wrong, QUESTIONS[1]], return_errors=True,
                                   sampling=GREEDY, variables=PLAIN)
        self.assertIsInstance(answers[1], moeflux.GrammarError)
        self.assertIn("Paris", answers[0].content)
        self.assertIn("Tokyo", answers[2].content)
        with self.assertRaises(moeflux.GrammarError):
            self.model.batch([QUESTIONS[0], wrong], variables=PLAIN)
        self.assertUsable()

    def test_a_batch_is_larger_than_its_window(self):
        seen = dict(self.model.batch_iter((QUESTIONS[at % 8] for at in range(20)), window=3,
                                          sampling=GREEDY, variables=PLAIN, max_tokens=3))
        self.assertEqual(sorted(seen), list(range(20)))
        for at in range(8, 20):
            self.assertEqual(seen[at].content, seen[at - 8].content)

    def test_a_batch_that_is_left_ends_its_requests(self):
        for _ in self.model.batch_iter(QUESTIONS * 4, sampling=GREEDY, ignore_end=True,
                                       max_tokens=30):
            break
        self.assertEqual(self.model.request_statistics()["running"], 0)
        self.assertUsable()

    def test_eight_threads_chat_at_once(self):
        alone = [ask(question).content for question in QUESTIONS]
        got, failures = {}, []

        def talk(at):
            try:
                for turn in range(3):
                    which = (at + turn) % 8
                    if turn == 1:
                        text = "".join(self.model.stream(QUESTIONS[which], sampling=GREEDY,
                                                         variables=PLAIN).text)
                    else:
                        text = ask(QUESTIONS[which]).content
                    got[at, turn] = (which, text)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=talk, args=(at,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(len(got), 24)
        for which, text in got.values():
            self.assertEqual(text, alone[which])

    def test_routes_are_told_for_every_token(self):
        seen = []
        answer = ask(QUESTIONS[0], on_routes=seen.append)
        rows = [(routes.layer, routes.position + row) for routes in seen
                for row in range(len(routes.tokens))]
        self.assertEqual(len(rows), len(set(rows)))
        fed = answer.prompt_tokens + answer.answer_tokens
        self.assertEqual({layer for layer, _ in rows}, set(self.model.experts().rows))
        self.assertIn(len({position for _, position in rows}), (fed - 1, fed))
        for routes in seen:
            for experts, weights in zip(routes.experts, routes.weights):
                self.assertEqual(list(experts), sorted(experts))
                self.assertEqual(len(weights), self.model.experts().experts_per_token)


if __name__ == "__main__":
    unittest.main()
