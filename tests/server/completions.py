#!/usr/bin/env python3
"""POST /v1/completions over sockets: prompts of every form, echo with probabilities, refusals.

    completions.py PROGRAM"""
import json
import sys

import served
from served import check

PATH = "/v1/completions"
server = None


def complete(prompt, **fields):
    body = {"model": "pebble", "prompt": prompt, "temperature": 0, "max_tokens": 6, **fields}
    return server.json("POST", PATH, body)


def texts(reply):
    check([choice["index"] for choice in reply["choices"]] == list(range(len(reply["choices"]))),
          "choices are not in order")
    return [choice["text"] for choice in reply["choices"]]


def same(got, expected, what):
    check(got == expected, f"{what}: {got!r}, expected {expected!r}")


def ids_of(text):
    return server.json("POST", "/tokenize", {"content": text})["tokens"]


def streamed(prompt, **fields):
    """The chunks of a stream, which ends with [DONE]."""
    status, headers, data = server.ask("POST", PATH, {
        "prompt": prompt, "temperature": 0, "max_tokens": 6, "stream": True, **fields})
    same(status, 200, "status of a stream")
    same(headers["Content-Type"], "text/event-stream", "type of a stream")
    records = data.decode().split("\n\n")
    same(records[-2:], ["data: [DONE]", ""], "end of a stream")
    return [json.loads(record.removeprefix("data: ")) for record in records[:-2]]


def joined(chunks, count, name="text"):
    out = [""] * count
    for chunk in chunks:
        for choice in chunk["choices"]:
            out[choice["index"]] += choice[name]
    return out


# ------------------------------------------------------------------------------ prompts


def prompts_of_every_form():
    one = complete("Once upon a time")
    same(one["object"], "text_completion", "object")
    check(one["id"].startswith("cmpl-"), f"the id is {one['id']}")
    other = texts(complete("The old king"))
    ids = [ids_of("Once upon a time"), ids_of("The old king")]
    same(texts(complete(ids[0])), texts(one), "ids of a text")
    both = complete(["Once upon a time", "The old king"])
    same(texts(both), texts(one) + other, "two texts")
    same(texts(complete(ids)), texts(both), "two lists of ids")
    same(both["usage"]["prompt_tokens"], len(ids[0]) + len(ids[1]), "prompt tokens")
    same(both["usage"]["completion_tokens"], 12, "tokens of both answers")


def answers_in_order():
    fields = {"n": 3, "temperature": 1.2, "seed": 11}
    whole = texts(complete(["Once upon a time", "The old king"], **fields))
    same(len(set(whole)), 6, "different answers")
    same(whole[3:], texts(complete("The old king", **fields)), "answers alone and in a list")
    same(joined(streamed(["Once upon a time", "The old king"], **fields), 6), whole, "streamed")
    unseeded = texts(complete(["The", "The"], temperature=1.5, max_tokens=30))
    check(unseeded[0] != unseeded[1], "equal prompts without a seed have one answer")


def limits():
    bare = complete("The", max_tokens=None, ignore_eos=True)
    same(bare["usage"]["completion_tokens"], 16, "default of max_tokens")
    same(len(complete(["The"] * 16, max_tokens=1)["choices"]), 16, "answers")
    none = complete(["The", "A"], max_tokens=0, logprobs=1)
    same(texts(none), ["", ""], "texts of max_tokens 0")
    same(none["choices"][0]["finish_reason"], "length", "finish_reason of max_tokens 0")
    same(none["usage"]["completion_tokens"], 0, "tokens of max_tokens 0")
    same(joined(streamed("The", max_tokens=0), 1), [""], "stream of max_tokens 0")


def usage_in_streams():
    chunks = streamed("The", stream_options={"include_usage": True})
    same(chunks[-1]["choices"], [], "choices of the last chunk")
    same(chunks[-1]["usage"]["completion_tokens"], 6, "tokens in the last chunk")
    check(all(chunk["usage"] is None for chunk in chunks[:-1]), "usage before the last chunk")
    check("usage" not in streamed("The")[0], "usage that was not asked for")


def stops():
    whole = texts(complete("Once upon a time", max_tokens=12))[0]
    word = whole.split(" ")[3]
    cut = complete("Once upon a time", max_tokens=12, stop=" " + word)["choices"][0]
    same(cut["text"], whole.split(" " + word)[0], "text before a stop")
    same(cut["finish_reason"], "stop", "finish_reason")


# -------------------------------------------------------------------------------- echo


def echo():
    same(texts(complete("A fox", echo=True))[0], "A fox" + texts(complete("A fox"))[0], "echo")
    same(texts(complete(ids_of("A fox"), echo=True, max_tokens=0)), ["A fox"], "echo of ids")
    same(joined(streamed(["A fox", "The"], echo=True), 2),
         texts(complete(["A fox", "The"], echo=True)), "streamed echo")


def check_lists(choice, count):
    lists = choice["logprobs"]
    same([len(lists[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")],
         [count] * 4, "lengths of the lists")
    place = 0
    for token, offset in zip(lists["tokens"], lists["text_offset"]):
        same(offset, place, f"text_offset of {token!r}")
        same(choice["text"][offset:offset + len(token)], token, "the token at its offset")
        place += len(token)
    same(place, len(choice["text"]), "characters of all tokens")


def probabilities():
    """What generation says of its tokens, and an echo of the same text, agree."""
    prompt = "Once upon a time"
    bare = complete(prompt, logprobs=3, max_tokens=20)["choices"][0]
    check_lists(bare, 20)
    ids = ids_of(prompt + bare["text"])
    reply = complete([ids], echo=True, logprobs=3, max_tokens=1)["choices"][0]
    check_lists(reply, len(ids) + 1)
    values, best = reply["logprobs"]["token_logprobs"], reply["logprobs"]["top_logprobs"]
    same((values[0], best[0]), (None, None), "the first token")
    same(reply["logprobs"]["tokens"][len(ids) - 20:len(ids)], bare["logprobs"]["tokens"], "tokens")
    for told, scored in zip(bare["logprobs"]["token_logprobs"], values[len(ids) - 20:len(ids)]):
        check(abs(told - scored) < 1e-4, f"a token had {told:.6f} and is scored {scored:.6f}")
    for value, entry in zip(values[1:], best[1:]):
        check(3 <= len(entry) <= 4 and value in entry.values(), f"{value} is not in {entry}")
    # As lm-eval asks whether a continuation is the greedy one.
    greedy = [value == max(entry.values()) for value, entry in zip(values[1:], best[1:])]
    check(sum(greedy[-21:]) >= 20, f"{sum(greedy[-21:])} of 21 greedy tokens are the most probable")
    check(not all(greedy), "every token of the prompt is the most probable one")


def scores_in_pieces():
    """A prompt longer than a piece has the scores of its beginning, also beside other requests."""
    ids = (ids_of("The old king had three sons and a daughter. ") * 40)[:400]
    short, long = (complete([part], echo=True, logprobs=0, max_tokens=0)["choices"][0]["logprobs"]
                   for part in (ids[:20], ids))
    same(long["token_logprobs"][:20], short["token_logprobs"], "scores of the beginning")
    same(len(long["tokens"]), 400, "scores")
    check(all(len(entry) == 1 for entry in long["top_logprobs"][1:]), "more than was asked for")


def wide_characters():
    """Tokens that are parts of a character are told as bytes, and counted as that character."""
    text = "🙂 é"
    choice = complete(text, echo=True, logprobs=1, max_tokens=0)["choices"][0]
    same(choice["text"], text, "echo")
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    check(any(token.startswith("bytes:\\x") for token in tokens), f"the tokens are {tokens}")
    check(all(0 <= b - a <= 2 for a, b in zip(offsets, offsets[1:])) and offsets[-1] < len(text),
          f"the offsets are {offsets}")


# ----------------------------------------------------------------------------- refusals


def refuse(status, part, **fields):
    code, _, data = server.ask("POST", PATH, {"prompt": "x", **fields})
    error = json.loads(data).get("error", {})
    check(code == status and part in error.get("message", ""),
          f"{fields}: {code} {error.get('message')!r}, expected {status} with {part!r}")
    return error


def refusals():
    for prompt in ([], [[]], "", {}, 7, ["a", 1], [1, "a"], [[1], "a", 2], [["a"]], [[1.5]]):
        same(refuse(400, "prompt", prompt=prompt)["param"], "prompt", f"param for {prompt!r}")
    refuse(400, "no token id", prompt=[[1, -1]])
    refuse(400, "no token id", prompt=[1 << 40])
    same(refuse(400, "prompt is too long", prompt="fox " * 9000)["code"], "context_length_exceeded",
         "code of a long prompt")
    same(refuse(400, "suffix", suffix="y")["code"], "unsupported_parameter", "code of suffix")
    refuse(400, "best_of", best_of=2)
    refuse(400, "logprobs", logprobs=6)
    refuse(400, "at most 64", prompt=["a"] * 33, n=2)
    same(refuse(400, "no_such", no_such=1)["code"], "unknown_parameter", "code")
    complete("x", best_of=1)


def scores_in_streams():
    """Each choice of a stream has its own echo with scores, before its answer."""
    fields = {"echo": True, "logprobs": 2, "n": 2, "temperature": 1.0, "seed": 3, "max_tokens": 5}
    prompts = ["The fox ran over", "Once upon"]
    lists = {}
    for chunk in streamed(prompts, **fields):
        for choice in chunk["choices"]:
            for name, values in (choice["logprobs"] or {}).items():
                lists.setdefault(choice["index"], {}).setdefault(name, []).extend(values)
    whole = complete(prompts, **fields)["choices"]
    same([lists[choice["index"]] for choice in whole], [choice["logprobs"] for choice in whole],
         "scores of a stream")


def scores_once():
    """Answers to one prompt share its scores: it is computed once, also for a stream."""
    ids = (ids_of("The old king had three sons and a daughter. ") * 40)[:400]
    for ask in (complete, streamed):
        before = server.metrics()['moeflux_step_rows_total{phase="prompt"}']
        ask([ids, ids[:200]], echo=True, logprobs=1, n=8, temperature=1.0, max_tokens=3)
        rows = server.metrics()['moeflux_step_rows_total{phase="prompt"}'] - before
        check(rows < 2 * 600, f"{ask.__name__}: {rows:.0f} rows for 8 answers to 600 tokens")


def main():
    global server
    with served.Server(sys.argv[1], "--cache", "exact") as server:
        for test in (prompts_of_every_form, answers_in_order, limits, usage_in_streams, stops, echo,
                     scores_in_pieces, scores_in_streams, scores_once, wide_characters,
                     refusals):
            test()
            print(f"{test.__name__}: ok")
    # The reference computes prompts and generated tokens in the same arithmetic, which tuned ones do
    # not (docs/numerics.md): there a single token may differ as much as its rounding.
    with served.Server(sys.argv[1], "--backend", "reference") as server:
        probabilities()
    with served.Server(sys.argv[1], "--parallel", "2", "--queue", "2") as server:
        refuse(400, "at most 2", n=3)
        same(len(complete("x", n=2)["choices"]), 2, "answers")


served.main(main)
