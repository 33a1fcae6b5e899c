#!/usr/bin/env python3
"""POST /v1/messages and /v1/messages/count_tokens of `moeflux serve`, through plain sockets: the order
of a stream's events, blocks, tools, reasoning that comes back, what the cache says, refusals.

    anthropic.py PROGRAM SOURCE
"""
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time

import served
from served import Failed, check

program, source = (os.path.realpath(path) for path in sys.argv[1:])

WEATHER = {"name": "get_weather", "description": "Get the weather in a city.",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                            "required": ["city"]}}
SUM = "What is 27 + 45?"  # Pebble thinks before it answers
MARK = {"type": "ephemeral"}


def body(content, **fields):
    messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
    return {"model": "pebble", "max_tokens": 64, "temperature": 0, "messages": messages, **fields}


def without(given, *names):
    return {name: value for name, value in given.items() if name not in names}


def text_block(text, **fields):
    return {"type": "text", "text": text, **fields}


def records(data):
    """[(event, data)] of a stream; every record has both lines, and they name the same type."""
    text = data.decode()
    check(text.endswith("\n\n"), f"a stream does not end with a blank line: {text[-80:]!r}")
    found = []
    for record in text[:-2].split("\n\n"):
        lines = record.split("\n")
        check(len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "),
              f"a record is not an event and its data: {record!r}")
        event, parsed = lines[0][7:], json.loads(lines[1][6:])
        check(parsed["type"] == event, f"event {event} has data of type {parsed['type']}")
        found.append((event, parsed))
    return found


DELTAS = {"thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
          "text": {"text_delta": "text"}, "tool_use": {"input_json_delta": "partial_json"}}


def assembled(found):
    """The message that a stream's events make, as the official client puts it together; the partial
    JSON of a call stays text, in "json"."""
    found = [record for record in found if record[0] != "ping"]
    check(found[0][0] == "message_start", f"the first event is {found[0][0]}")
    message = json.loads(json.dumps(found[0][1]["message"]))
    check(message["content"] == [] and message["stop_reason"] is None, "message_start is not empty")
    is_open, ended = False, False
    for event, data in found[1:-1]:
        check(not ended, f"{event} comes after message_delta")
        if event == "content_block_start":
            check(not is_open, "a block begins before the one before it has ended")
            check(data["index"] == len(message["content"]), f"a block has index {data['index']}")
            block = data["content_block"]
            empty = {"thinking": "", "text": "", "tool_use": {}}[block["type"]]
            member = "input" if block["type"] == "tool_use" else block["type"]
            check(block[member] == empty, f"a block begins with content: {block}")
            if block["type"] == "tool_use":
                block["json"] = ""
            message["content"].append(block)
            is_open = True
        elif event == "content_block_delta":
            check(is_open and data["index"] == len(message["content"]) - 1,
                  "a delta is not of the open block")
            block, delta = message["content"][-1], data["delta"]
            check(delta["type"] in DELTAS[block["type"]],
                  f"a block of type {block['type']} has a {delta['type']}")
            piece = delta[DELTAS[block["type"]][delta["type"]]]
            member = {"text_delta": "text", "thinking_delta": "thinking",
                      "signature_delta": "signature", "input_json_delta": "json"}[delta["type"]]
            block[member] += piece
        elif event == "content_block_stop":
            check(is_open and data["index"] == len(message["content"]) - 1,
                  "a stop is not of the open block")
            is_open = False
        else:
            check(event == "message_delta", f"there is an event {event}")
            check(not is_open, "message_delta comes before the last block's end")
            message.update(data["delta"])
            message["usage"].update(data["usage"])
            ended = True
    check(ended and found[-1][0] == "message_stop", f"the last event is {found[-1][0]}")
    return message


class Api:
    def __init__(self, server):
        self.server = server

    def whole(self, given):
        return self.server.json("POST", "/v1/messages", given)

    def stream(self, given):
        status, headers, data = self.server.ask("POST", "/v1/messages?beta=true",
                                                {**given, "stream": True})
        check(status == 200, f"status {status}: {data!r}")
        check(headers["Content-Type"].startswith("text/event-stream"), "a stream's type is wrong")
        return assembled(records(data))

    def count(self, given):
        counted = self.server.json("POST", "/v1/messages/count_tokens",
                                   without(given, "max_tokens", "stream"))
        check(list(counted) == ["input_tokens"], f"count_tokens says {counted}")
        return counted["input_tokens"]

    def refused(self, given, *words, path="/v1/messages", status=400):
        got, headers, data = self.server.ask("POST", path, given,
                                             {"anthropic-version": "2023-06-01"})
        check(got == status, f"status {got}, expected {status}: {data[:300]!r}")
        reply = json.loads(data)
        check(reply["type"] == "error" and reply["request_id"] == headers["request-id"],
              f"an error has another shape: {reply}")
        for word in words:
            check(word in reply["error"]["message"],
                  f"{reply['error']['message']!r} does not say {word!r}")
        return reply["error"]


def prompt_tokens(message):
    usage = message["usage"]
    return (usage["input_tokens"] + usage["cache_read_input_tokens"] +
            usage["cache_creation_input_tokens"])


def same(streamed, whole):
    """Whether a stream's message is the whole one, but for ids and times."""
    def plain(message):
        blocks = []
        for block in message["content"]:
            block = without(block, "id", "json", "signature")
            blocks.append(block)
        return {"content": blocks, "stop_reason": message["stop_reason"],
                "stop_sequence": message["stop_sequence"], "role": message["role"],
                "output_tokens": message["usage"]["output_tokens"],
                "details": message["usage"]["output_tokens_details"]}

    for block in streamed["content"]:
        if block["type"] == "tool_use" and streamed["stop_reason"] == "tool_use":
            block["input"] = json.loads(block["json"] or "{}")
    check(plain(streamed) == plain(whole),
          f"a stream and a whole reply differ:\n{plain(streamed)}\n{plain(whole)}")


# ------------------------------------------------------------------------------- answers

def answers(api):
    given = body("What is the capital of France?")
    message = api.whole(given)
    for name, value in {"type": "message", "role": "assistant", "model": "pebble",
                        "stop_reason": "end_turn", "stop_sequence": None, "stop_details": None,
                        "container": None, "diagnostics": None}.items():
        check(message[name] == value, f"{name} is {message[name]!r}")
    check(message["id"].startswith("msg_"), f"the id is {message['id']}")
    check(message["content"] == [{"type": "text", "text": "The capital of France is Paris.",
                                  "citations": None}], f"the content is {message['content']}")
    check(message["usage"]["output_tokens"] == 7, f"the usage is {message['usage']}")
    same(api.stream(given), message)

    stopped = {**given, "stop_sequences": ["xyz", " Paris"]}
    message = api.whole(stopped)
    check((message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", " Paris"),
          f"stop_reason and stop_sequence are {message['stop_reason']}, {message['stop_sequence']}")
    check(message["content"][0]["text"] == "The capital of France is", "the stop string is shown")
    same(api.stream(stopped), message)

    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "schema": schema}
    for fields in ({"output_config": {"format": form, "effort": "low"}}, {"output_format": form}):
        message = api.whole(body("A number, please.", **fields))
        value = json.loads(message["content"][-1]["text"])
        check(list(value) == ["n"] and 1 <= value["n"] <= 9, f"by schema: {value}")


def cut(api):
    """Wherever an answer is cut off, its blocks are whole events, and no markup shows."""
    for limit in (1, 4, 7, 8):
        given = body("What is the capital of France?", max_tokens=limit)
        message = api.whole(given)
        same(api.stream(given), message)
        expected = "end_turn" if limit == 8 else "max_tokens"
        check(message["stop_reason"] == expected, f"{limit} tokens: {message['stop_reason']}")
        check(message["usage"]["output_tokens"] == min(limit, 7), "tokens are counted wrong")
    full = None
    for limit in range(1, 60, 3):
        given = body("What is the weather in Lisbon?", tools=[WEATHER], max_tokens=limit,
                     tool_choice={"type": "any"})
        streamed, whole = api.stream(given), api.whole(given)
        for message in (streamed, whole):
            # Before its name is told, what is cut off is left out.
            check(all(block["type"] == "tool_use" for block in message["content"]),
                  f"cut at {limit}: {message['content']}")
        if streamed["content"] and streamed["content"][0]["type"] == "tool_use":
            piece = streamed["content"][0]["json"]
            city = whole["content"][0]["input"].get("city", "")
            check("Lisbon".startswith(city), f"cut at {limit}: the input is {city!r}")
            check(len(piece) < 12 or city or '"L' not in piece,
                  f"cut at {limit}: {piece!r} was told, and the input is empty")
        if whole["stop_reason"] == "tool_use":
            full = whole
            break
        check(whole["stop_reason"] == "max_tokens", f"cut at {limit}: {whole['stop_reason']}")
    check(full and full["content"][0]["input"] == {"city": "Lisbon"}, "the call never came whole")


def tools(api):
    question = {"role": "user", "content": "What is the weather in Lisbon?"}
    first = body([question], tools=[WEATHER])
    message = api.whole(first)
    same(api.stream(first), message)
    check(message["stop_reason"] == "tool_use", f"no tool is called: {message['content']}")
    call = message["content"][-1]
    check(call["id"].startswith("toolu_") and call["name"] == "get_weather" and
          call["input"] == {"city": "Lisbon"}, f"the call is {call}")

    def result(content, **fields):
        return body([question, {"role": "assistant", "content": message["content"]},
                     {"role": "user", "content": [
                         {"type": "tool_result", "tool_use_id": call["id"], "content": content,
                          **fields}]}], tools=[WEATHER])

    text = '{"weather": "sunny", "temperature": 24}'
    answer = api.whole(result(text))
    check(answer["stop_reason"] == "end_turn" and "24" in answer["content"][0]["text"],
          f"the tool's result is not used: {answer['content']}")
    known = prompt_tokens(message) # the call itself is written with other spaces than it was made
    check(answer["usage"]["cache_read_input_tokens"] >= known - 4,
          f"{known} tokens are known, and {answer['usage']} are cached")
    check(api.count(result(text)) == api.count(result([text_block(text)])) == prompt_tokens(answer),
          "a result as string and as block are not the same")
    check(api.count(result(text, is_error=True)) > api.count(result(text)), "is_error is lost")
    check(api.count(result(None)) < api.count(result(text)), "a result without content has some")

    none = api.whole({**first, "tool_choice": {"type": "none"}})
    check(all(block["type"] == "text" for block in none["content"]), "a tool is called despite none")
    other = {**WEATHER, "name": "get_time"}
    for choice, name in (({"type": "tool", "name": "get_time"}, "get_time"),
                         ({"type": "any", "disable_parallel_tool_use": True}, "get_weather")):
        forced = api.whole({**first, "tools": [other, WEATHER], "tool_choice": choice})
        calls = [block["name"] for block in forced["content"] if block["type"] == "tool_use"]
        check(calls and calls[0] == name or "any" in choice["type"] and len(calls) == 1,
              f"{choice} leads to {calls}")


def continued(api):
    """A last message of the assistant is the beginning of the answer: the text that /v1/completions
    gives behind the same prompt."""
    history = [{"role": "user", "content": "Tell me a story about a fox."},
               {"role": "assistant", "content": "Once there was a fox <|im_end|> that"}]
    given = body(history, max_tokens=24)
    message = api.whole(given)
    same(api.stream(given), message)
    check(api.count(given) == prompt_tokens(message), "count_tokens leaves the beginning out")
    plain = body([history[0], {**history[1], "content": "Once there was a fox that"}], max_tokens=24)
    text = api.server.json("POST", "/apply-template", {"messages": plain["messages"]})["prompt"]
    head, found, _ = text.partition(history[1]["content"][:20])
    whole = api.server.json("POST", "/v1/completions", {
        "model": "pebble", "max_tokens": 24, "temperature": 0,
        "prompt": head + "Once there was a fox that"})
    check(found, f"the template's text is {text!r}")
    answer = api.whole(plain)["content"][0]["text"]
    check(answer == whole["choices"][0]["text"],
          f"continued {answer!r}, completed {whole['choices'][0]['text']!r}")


def counts(api):
    """count_tokens is what generation reports, for every form of a request."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "foreign"}, text_block("A moment."),
        call]}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text_block("sunny")]},
            text_block("And now?")]}]
    bodies = [
        body("Hi"),
        body("Hi", system="You are brief."),
        body("Hi", system=[text_block("You are"), text_block("brief.", cache_control=MARK)]),
        body("Hi", tools=[WEATHER]),
        body("Hi", tools=[WEATHER], system="You are brief.", thinking={"type": "disabled"}),
        body(SUM, thinking={"type": "enabled", "budget_tokens": 1024}),
        body(history, tools=[WEATHER]),
        body([{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}]),
        body([{"role": "user", "content": [{"type": "document", "title": "T", "source": {
            "type": "text", "media_type": "text/plain", "data": "Once upon a time."}}]}]),
    ]
    for given in bodies:
        counted = api.count(given)
        message = api.whole({**given, "max_tokens": 1})
        streamed = api.stream({**given, "max_tokens": 1})
        check(counted == prompt_tokens(message) == prompt_tokens(streamed),
              f"{counted} tokens are counted, {prompt_tokens(message)} are read")
    both = api.count(bodies[2])
    check(both == api.count(body("Hi", system="You are\n\nbrief.")), "system blocks are not joined")
    check(api.count(body([{"role": "user", "content": [text_block("Hi", cache_control=MARK)]}])) ==
          api.count(body("Hi")), "a block and a string are not the same")
    billed = body("Hi", system=[text_block("x-anthropic-billing-header: cch=12345;"),
                                text_block("You are brief.")])
    check(api.count(billed) == api.count(bodies[1]), "the billing line is in the prompt")
    apart = body([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"},
                  {"role": "assistant", "content": "B"}, {"role": "user", "content": "C"}])
    joined = body([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "AB"},
                   {"role": "user", "content": "C"}])
    check(api.count(apart) == api.count(joined), "turns of the assistant are not joined")


# ----------------------------------------------------------------------------- reasoning

def thinking(api):
    given = body(SUM, max_tokens=200, thinking={"type": "adaptive"})
    message = api.whole(given)
    kinds = [block["type"] for block in message["content"]]
    check(kinds == ["thinking", "text"], f"the blocks are {kinds}")
    thought = message["content"][0]
    check(thought["thinking"] and thought["signature"], "a thinking block is empty")
    details = message["usage"]["output_tokens_details"]["thinking_tokens"]
    check(0 < details < message["usage"]["output_tokens"], f"thinking_tokens is {details}")
    streamed = api.stream(given)
    same(streamed, message)
    check(streamed["content"][0]["signature"] == thought["signature"], "the signatures differ")

    hidden = {**given, "thinking": {"type": "adaptive", "display": "omitted"}}
    for told in (api.whole(hidden), api.stream(hidden)):
        check(told["content"][0]["thinking"] == "", "thinking is shown, but was to be omitted")
        check(told["content"][0]["signature"] == thought["signature"], "the signature is lost")
        check(told["content"][1] == message["content"][1], "the text changes with the display")
    off = api.whole({**given, "thinking": {"type": "disabled"}})
    check([block["type"] for block in off["content"]] == ["text"], f"thinking is on: {off}")


def model_that_shows_reasoning(place):
    """Pebble with a template that renders the reasoning of earlier answers."""
    pebble = os.path.join(source, "models", "pebble")
    for name in os.listdir(pebble):
        os.symlink(os.path.join(pebble, name), os.path.join(place, name))
    path = os.path.join(place, "tokenizer_config.json")
    with open(path) as file:
        config = json.load(file)
    old = "<|im_start|>assistant\n{% if message.content %}"
    check(config["chat_template"].count(old) == 1, "Pebble's template has changed")
    config["chat_template"] = config["chat_template"].replace(
        old, "<|im_start|>assistant\n{% if message.reasoning_content %}<think>\n"
        "{{ message.reasoning_content }}\n</think>\n\n{% endif %}{% if message.content %}")
    os.unlink(path)
    with open(path, "w") as file:
        json.dump(config, file)


def reasoning_comes_back(place):
    """By the signature alone, also in the next process; what was changed or is foreign counts as it
    is seen."""
    model, state = os.path.join(place, "model"), os.path.join(place, "state")
    os.mkdir(model)
    model_that_shows_reasoning(model)
    options = ("-m", model, "-c", "1024", "--state-dir", state)
    question = {"role": "user", "content": SUM}
    with served.Server(program, *options) as server:
        api = Api(server)
        first = api.whole(body([question], max_tokens=200, thinking={"type": "adaptive"}))
        check(first["content"][0]["type"] == "thinking", f"no thinking: {first['content']}")

        def replay(*blocks):
            return body([question, {"role": "assistant", "content": [*blocks, first["content"][1]]},
                         {"role": "user", "content": "And 1 more?"}])

        thought = first["content"][0]
        seen = replay(without(thought, "signature"))
        hidden = replay({**thought, "thinking": ""})
        wanted = api.count(seen)
        check(wanted > api.count(replay()) + 3, "the template shows no reasoning")
        check(api.count(hidden) == wanted, "the signature does not hold the reasoning")
        check(api.count(replay({"type": "redacted_thinking", "data": thought["signature"]})) ==
              wanted, "redacted_thinking does not hold the reasoning")
        check(api.count(replay({**thought, "signature": "Zm9yZWlnbg=="})) == wanted,
              "a foreign signature hides the visible text")
        broken = thought["signature"][:-2] + ("AA" if thought["signature"][-2:] != "AA" else "BB")
        check(api.count(replay({**thought, "thinking": "", "signature": broken})) ==
              api.count(replay()), "a broken signature is read")
        # The tokens are the same, too, as those that the model wrote and as those of what is seen.
        message = api.whole(hidden)
        known = prompt_tokens(first) + first["usage"]["output_tokens"]
        cached = message["moeflux"]["cached"]
        check(cached["matched"] >= known, f"{known} tokens are known: {cached}")
        cached = api.whole({**seen, "max_tokens": 1})["moeflux"]["cached"]
        check(cached["matched"] >= wanted - 1, f"{wanted} tokens are known: {cached}")
    check(os.stat(os.path.join(state, "reasoning.key")).st_mode & 0o777 == 0o600,
          "the key is not private")
    with served.Server(program, *options) as server:
        check(Api(server).count(hidden) == wanted, "the next process has another key")
    with served.Server(program, *options[:4]) as server:
        check(Api(server).count(hidden) == Api(server).count(replay()),
              "a process without the key reads the signature")


# --------------------------------------------------------------------------------- cache

STORY = "The fox went into the wood and met a bear. " * 12


def cache(api):
    system = [text_block(STORY + "One.", cache_control=MARK)]
    first = api.whole(body("Hi", system=system))
    usage = first["usage"]
    check(usage["cache_creation_input_tokens"] > 100, f"nothing is written: {usage}")
    check(usage["cache_creation"] == {"ephemeral_5m_input_tokens":
                                      usage["cache_creation_input_tokens"],
                                      "ephemeral_1h_input_tokens": 0}, f"by time: {usage}")
    second = api.whole(body("Good morning", system=system))["usage"]
    check(second["cache_read_input_tokens"] >= usage["cache_creation_input_tokens"] - 2,
          f"what was written is not read: {second} after {usage}")
    check(second["cache_creation_input_tokens"] <= 2, f"it is written twice: {second}")

    hour = {"type": "ephemeral", "ttl": "1h"}
    third = api.whole(body("Hi", system=STORY + "Two.", cache_control=hour))["usage"]
    check(third["cache_creation"]["ephemeral_1h_input_tokens"] > 100, f"by time: {third}")
    plain = api.whole(body("Hi", system=STORY + "Three."))["usage"]
    check(plain["cache_creation_input_tokens"] == 0, f"it is written unasked: {plain}")

    filled = body("Hi", system=STORY + "Four.")
    for tell in (api.whole, api.stream):
        message = tell({**filled, "max_tokens": 0})
        check(message["content"] == [] and message["usage"]["output_tokens"] == 0 and
              message["stop_reason"] == "max_tokens", f"max_tokens 0 gives {message}")
    usage = api.whole(filled)["usage"]
    check(usage["cache_read_input_tokens"] > 100, f"max_tokens 0 fills nothing: {usage}")

    marked = [text_block("a", cache_control=MARK) for _ in range(4)]
    api.whole(body([{"role": "user", "content": marked}], max_tokens=1))
    api.refused(body([{"role": "user", "content": marked}], system=system), "more than 4")
    api.refused(body([{"role": "user", "content": marked}], cache_control=MARK), "more than 4")
    api.refused(body([{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": marked, "cache_control": MARK}]}]),
        "more than 4")


def diagnostics(api):
    """Every reason why a prompt does not go on from the one before it; none where it does."""
    first = body("Hi", system=STORY, tools=[WEATHER], diagnostics={"previous_message_id": None})
    before = api.whole(first)
    check(before["diagnostics"] is None, f"a first message has {before['diagnostics']}")
    more = first["messages"] + [{"role": "assistant", "content": before["content"]},
                                {"role": "user", "content": "And a story?"}]
    told = {"diagnostics": {"previous_message_id": before["id"]}}
    other = [{"role": "user", "content": "Hello"}, *more[1:]]
    rows = [
        ({}, None),
        ({"tools": [WEATHER, {"name": "get_time"}]}, "tools_changed"),
        ({"system": "No " + STORY}, "system_changed"),
        ({"messages": other}, "messages_changed"),
        ({"messages": more[2:]}, "messages_changed"),
        ({"diagnostics": {"previous_message_id": "msg_none"}}, "previous_message_not_found"),
        ({"thinking": {"type": "disabled"}}, "unavailable"),
    ]
    for change, reason in rows:
        for tell in (api.whole, api.stream):
            message = tell({**first, "messages": more, "max_tokens": 1, **told, **change})
            found = message["diagnostics"] and message["diagnostics"]["cache_miss_reason"]
            check((found and found["type"]) == reason, f"{change}: the reason is {found}")
            if reason and reason.endswith("_changed"):
                missed, read = (found["cache_missed_input_tokens"],
                                message["usage"]["cache_read_input_tokens"])
                check(missed == max(prompt_tokens(before) - read, 0), f"missed {missed}, read {read}")
    api.refused({**first, "diagnostics": {"previous_message_id": 1}}, "previous_message_id")


# ------------------------------------------------------------------------------ refusals

def refusals(api):
    hi = body("Hi")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    rows = [
        ({"messages": []}, "at least one message"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"content": "Hi"}]}, "no role"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "robot"),
        ({"messages": [{"role": "user", "content": [image]}]}, "content[0]", "image", "text only"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                                     "content": [text_block("a"), image]}]}]},
         "messages[0].content[0].content[1]", "image"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {
            "type": "base64"}}]}]}, "document", "base64"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "without text"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, "messages[0].content[0]"),
        ({"messages": hi["messages"] + [{"role": "assistant", "content": "The "}]},
         "final assistant content cannot end with trailing whitespace"),
        ({"messages": hi["messages"] + [{"role": "assistant", "content": []}]}, "last message"),
        ({"messages": hi["messages"] + [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]}, "last message"),
        ({"messages": hi["messages"] + [{"role": "assistant", "content": "The"}],
          "thinking": {"type": "adaptive"}}, "last message", "thinking"),
        ({"messages": hi["messages"] + [{"role": "assistant", "content": "{"}],
          "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
         "last message", "format"),
        ({"messages": hi["messages"] + [{"role": "assistant", "content": "{"}],
          "output_format": {"type": "json_schema", "schema": {"type": "object"}}},
         "last message", "format"),
        *(({"messages": hi["messages"] + [{"role": "assistant", "content": "I"}], "tools": [WEATHER],
            "tool_choice": choice}, "last message", "tool_choice")
          for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"})),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "without a name"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f",
                                                          "input": "x"}]}]}, "input"),
        ({"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]},
         "server_tool_use"),
        ({"system": 1}, "system"),
        ({"system": [image]}, "system[0]"),
        ({"max_tokens": None}, "max_tokens", "missing"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": [1]}, "stop_sequences"),
        ({"thinking": {"type": "sometimes"}}, "sometimes"),
        ({"thinking": True}, "thinking"),
        ({"thinking": {"type": "enabled", "display": "loud"}}, "loud"),
        ({"output_config": {"effort": "huge"}}, "huge"),
        ({"output_config": {"format": {"type": "xml"}}}, "xml"),
        ({"tools": {}}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "fly"}}, "fly"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}],
          "tool_choice": {"type": "tool", "name": "web_search"}}, "web_search"),
        ({"tool_choice": {"type": "any"}}, "no tools"),
        ({"cache_control": {"type": "forever"}}, "ephemeral"),
        ({"cache_control": {"type": "ephemeral", "ttl": "1y"}}, "1y"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
         "clear_tool_uses_20250919"),
        ({"mcp_servers": [{"url": "http://127.0.0.1"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"colour": "red"}, "colour"),
    ]
    for change, *words in rows:
        error = api.refused({**hi, **change}, *words)
        check(error["type"] == "invalid_request_error", f"{change}: the type is {error['type']}")
        if not change.keys() & {"max_tokens"}:  # count_tokens needs none
            api.refused(without({**hi, **change}, "max_tokens"), *words,
                        path="/v1/messages/count_tokens")
    error = api.refused({**hi, "thread": {"id": "t"}}, "thread")
    check(error["details"]["error_code"] == "thread_unsupported_request", f"details: {error}")
    api.refused(b"{", "JSON")
    api.refused({**hi, "messages": [{"role": "user", "content": "a " * 3000}]},
                "prompt is too long: ", " tokens > 1024 maximum")
    api.refused(hi, "nothing at", path="/v1/messages/none", status=404)


def noted(api):
    tool = {**WEATHER, "defer_loading": True}
    given = body("Hi", max_tokens=32000, tools=[tool, {"type": "bash_20250124", "name": "bash"}],
                 thinking={"type": "enabled", "budget_tokens": 1024}, output_config={"effort": "low"},
                 context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
                 metadata={"user_id": "someone"}, service_tier="auto",
                 stop_sequences=["."])
    status, headers, data = api.server.ask("POST", "/v1/messages", given)
    check(status == 200, f"status {status}: {data!r}")
    names = set(headers["x-moeflux-ignored"].split(","))
    expected = {"max_tokens", "tools[0].defer_loading", "tools[1]", "thinking.budget_tokens",
                "output_config.effort", "context_management", "service_tier"}
    check(names == expected, f"noted are {sorted(names)}")
    status, headers, _ = api.server.ask("POST", "/v1/messages/count_tokens",
                                        without(given, "max_tokens"))
    check(set(headers["x-moeflux-ignored"].split(",")) == expected - {"max_tokens"},
          f"count_tokens notes {headers['x-moeflux-ignored']}")


def strictly():
    with served.Server(program, "-c", "256", "--strict") as server:
        api = Api(server)
        api.whole(body("Hi", max_tokens=8))
        counted = api.count(body("Hi"))
        api.refused(body("Hi", max_tokens=250), "input length and `max_tokens` exceed context limit: "
                    f"{counted} + 250 > 256")
        api.refused(body("Hi", max_tokens=32000), "max_tokens: 32000 > 256, which is the maximum")
        api.refused(body("Hi", service_tier="auto"), "service_tier")


# ----------------------------------------------------------------------- while one waits

def begin_stream(server, given):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("POST", "/v1/messages", json.dumps({**given, "stream": True}),
                       {"Content-Type": "application/json"})
    return connection, connection.getresponse()


LONG = {"output_config": {"format": {"type": "json_schema", "schema": {
    "type": "array", "items": {"enum": [0]}, "minItems": 3000}}}, "max_tokens": 900}


def silence():
    """A request that waits is told pings; its first event is message_start all the same."""
    with served.Server(program, "-c", "1024", "--parallel", "1") as server:
        running = [begin_stream(server, body("Count.", **LONG)) for _ in range(12)]
        connection, reply = begin_stream(server, body("Hi", max_tokens=2))
        first = reply.readline() + reply.readline() + reply.readline()
        check(first == b'event: ping\ndata: {"type":"ping"}\n\n', f"instead of a ping: {first!r}")
        for other, waiting in running:
            waiting.close()
            other.close()
        assembled(records(reply.read()))
        connection.close()


def shut_down():
    """What cannot be ended is an error event, never a message_stop."""
    server = served.Server(program, "-c", "1024", "--grace", "0")
    try:
        connection, reply = begin_stream(server, body("Count.", **LONG))
        check(reply.readline() == b"event: message_start\n", "the stream does not begin")
        rest = b""
        end = threading.Timer(0.2, server.process.send_signal, (signal.SIGTERM,))
        end.start()
        try:
            rest = reply.read()
        except http.client.IncompleteRead as error:
            rest = error.partial
        check(b"message_stop" not in rest, "a stream that was broken off says message_stop")
        found = records(rest[rest.index(b"\n\n") + 2:])
        check(found[-1][0] == "error" and found[-1][1]["error"]["type"] == "overloaded_error",
              f"the last event is {found[-1]}")
        connection.close()
        check(server.process.wait(30) == 0, "serve does not end with 0")
    finally:
        server.kill()


def tests():
    began = time.monotonic()
    with served.Server(program, "-c", "1024") as server:
        api = Api(server)
        for test in (answers, tools, continued, thinking, counts, cache, diagnostics, refusals, noted, cut):
            test(api)
            print(f"{time.monotonic() - began:6.1f} s  {test.__name__}")
    strictly()
    silence()
    shut_down()
    with tempfile.TemporaryDirectory() as place:
        reasoning_comes_back(place)
    print(f"{time.monotonic() - began:6.1f} s  in all")


served.main(tests)
