#!/usr/bin/env python3
"""POST /v1/responses over plain sockets: every record of a stream goes through a state machine that
knows the order of events, their numbers and ids, and what each may follow.

    responses.py PROGRAM"""
import json
import os
import sys
import tempfile
import time

from served import Server, check, main

PATH = "/v1/responses"
WEATHER = {
    "type": "function", "name": "get_weather", "description": "Get the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}
QUESTION = "What is the weather in Lisbon?"
RESULT = '{"weather": "sunny", "temperature": 24}'
SAID = "It is sunny in Lisbon, and the temperature is 24 degrees."
SUM = "What is 27 + 45?"  # the model thinks before it answers 72
FIELDS = {
    "id", "object", "created_at", "completed_at", "model", "status", "error", "output",
    "incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
    "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "temperature", "tool_choice",
    "tools", "top_logprobs", "top_p", "user", "reasoning", "text", "background",
    "previous_response_id", "service_tier", "store", "truncation", "usage"}
ENDS = {"response.completed": "completed", "response.incomplete": "incomplete",
        "response.failed": "failed"}
PREFIX = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_",
          "custom_tool_call": "ctc_"}


class Machine:
    """The rules of a stream; `response` is the object at its end."""

    def __init__(self):
        self.count = 0       # events
        self.id = None       # of the response
        self.items = []      # as output_item.done gave them
        self.ids = set()     # of items and calls
        self.item = None     # the one that is open, as it was added
        self.part = None     # "open", "text" (its text is done) or None
        self.text = ""       # of its deltas
        self.logprobs = []
        self.done = False    # its text or arguments are
        self.response = None

    def take(self, name, data):
        where = f"event {self.count}, {name}"
        check(self.response is None, f"{where}: the stream had ended")
        check(data.get("type") == name, f"{where}: its data is of type {data.get('type')}")
        check(data.get("sequence_number") == self.count,
              f"{where}: sequence_number {data.get('sequence_number')}")
        if self.count < 2:
            check(name == ["response.created", "response.in_progress"][self.count],
                  f"{where}: stands at the beginning")
        self.count += 1
        handler = getattr(self, "on_" + name.removeprefix("response.").replace(".", "_"), None)
        check(handler or name in ENDS, f"{where}: is not known")
        try:
            handler(data) if handler else self.end(name, data)
        except (AssertionError, KeyError) as error:
            check(False, f"{where}: {error!r} in {json.dumps(data)[:400]}")

    def lifecycle(self, data, status):
        response = data["response"]
        assert FIELDS <= set(response), FIELDS - set(response)
        assert response["status"] == status and response["object"] == "response"
        assert self.id in (None, response["id"]) and response["id"].startswith("resp_")
        self.id = response["id"]
        return response

    def on_created(self, data):
        response = self.lifecycle(data, "in_progress")
        assert response["output"] == [] and response["usage"] is None

    on_in_progress = on_created

    def end(self, name, data):
        response = self.lifecycle(data, ENDS[name])
        assert self.item is None, "an item is open"
        assert response["output"] == self.items
        self.response = response

    def on_output_item_added(self, data):
        item = data["item"]
        assert self.item is None, "an item is open"
        assert data["output_index"] == len(self.items)
        assert item["id"].startswith(PREFIX[item["type"]]) and item["status"] == "in_progress"
        for key in ("id", "call_id"):
            assert key not in item or (item[key] and item[key] not in self.ids)
            self.ids.add(item.get(key))
        for key, empty in (("content", []), ("arguments", ""), ("input", "")):
            assert item.get(key, empty) == empty
        self.item, self.text, self.logprobs, self.done = item, "", [], False

    def of_item(self, data, *kinds):
        assert self.item and self.item["type"] in kinds, "no item of this kind is open"
        assert data["item_id"] == self.item["id"]
        assert data["output_index"] == len(self.items)
        assert data.get("content_index", 0) == 0
        assert ("content_index" in data) == (self.item["type"] in ("message", "reasoning"))

    def on_content_part_added(self, data):
        self.of_item(data, "message", "reasoning")
        assert self.part is None and not self.done
        kind = {"message": "output_text", "reasoning": "reasoning_text"}[self.item["type"]]
        assert data["part"]["type"] == kind and data["part"]["text"] == ""
        self.part = "open"

    def on_content_part_done(self, data):
        self.of_item(data, "message", "reasoning")
        assert self.part == "text" and data["part"]["text"] == self.text
        self.part, self.done = None, data["part"]

    def delta(self, data, *kinds):
        self.of_item(data, *kinds)
        assert not self.done and data["delta"], "there is nothing in it"
        assert self.part == "open" or self.item["type"] not in ("message", "reasoning")
        self.text += data["delta"]
        self.logprobs += data.get("logprobs", [])

    def on_output_text_delta(self, data):
        assert "logprobs" in data
        self.delta(data, "message")

    def on_reasoning_text_delta(self, data):
        self.delta(data, "reasoning")

    def on_function_call_arguments_delta(self, data):
        self.delta(data, "function_call")

    def on_custom_tool_call_input_delta(self, data):
        self.delta(data, "custom_tool_call")

    def text_done(self, data, kind):
        self.of_item(data, kind)
        assert self.part == "open" and data["text"] == self.text
        self.part = "text"

    def on_output_text_done(self, data):
        assert data["logprobs"] == self.logprobs
        self.text_done(data, "message")

    def on_reasoning_text_done(self, data):
        self.text_done(data, "reasoning")

    def on_function_call_arguments_done(self, data):
        self.of_item(data, "function_call")
        assert not self.done and data["arguments"] == self.text
        self.done = True

    def on_custom_tool_call_input_done(self, data):
        self.of_item(data, "custom_tool_call")
        assert not self.done and data["input"] == self.text
        self.done = True

    def on_output_item_done(self, data):
        item = data["item"]
        assert self.item and self.done, "it is not open, or its text is not done"
        assert data["output_index"] == len(self.items)
        for key in ("id", "type", "call_id", "name", "namespace"):
            assert item.get(key) == self.item.get(key), key
        assert item["status"] in ("completed", "incomplete")
        if "content" in item:
            assert item["content"] == [self.done]
        else:
            assert item.get("arguments", item.get("input")) == self.text
        self.items.append(item)
        self.item = None


def records(data):
    """(event, data) of each record; comments are left out."""
    text = data.decode()
    check(text.endswith("\n\n"), "the last record has no blank line")
    for record in text[:-2].split("\n\n"):
        lines = record.split("\n")
        if all(line.startswith(":") for line in lines):
            continue
        check(len(lines) == 2 and lines[0].startswith("event: ") and
              lines[1].startswith("data: "), f"a record is {record[:200]!r}")
        yield lines[0][7:], json.loads(lines[1][6:])


def whole(server, body):
    response = server.json("POST", PATH, body)
    check(FIELDS <= set(response), f"fields are missing: {FIELDS - set(response)}")
    return response


def streamed(server, body):
    status, headers, data = server.ask("POST", PATH, {**body, "stream": True})
    check(status == 200 and headers["Content-Type"].startswith("text/event-stream"),
          f"{status} {headers}: {data[:300]!r}")
    check(b"[DONE]" not in data, "the stream has a [DONE]")
    machine = Machine()
    for name, record in records(data):
        machine.take(name, record)
    check(machine.response, f"the stream has no end after {machine.count} events")
    return machine.response


CHANGING = {"id", "call_id", "created_at", "completed_at", "cached_tokens", "cache_write_tokens",
            "moeflux"}


def lasting(value):
    """A response without what differs from one request to the next."""
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if key not in CHANGING}
    return [lasting(one) for one in value] if isinstance(value, list) else value


def both(server, **body):
    """The response of a body, which is the same whole and streamed."""
    body = {"model": "pebble", "temperature": 0, **body}
    one, other = whole(server, body), streamed(server, body)
    check(lasting(one) == lasting(other), f"whole: {lasting(one)}\nstreamed: {lasting(other)}")
    check_usage(one)
    return one


def check_usage(response):
    usage = response["usage"]
    given, taken = usage["input_tokens"], usage["output_tokens"]
    check(given > 0 and usage["total_tokens"] == given + taken and
          usage["output_tokens_details"]["reasoning_tokens"] <= taken and
          usage["input_tokens_details"]["cached_tokens"] < given, str(usage))


def kinds(response):
    return [item["type"] for item in response["output"]]


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message"
                   for part in item["content"])


def counted(server, **body):
    reply = server.json("POST", PATH + "/input_tokens", body)
    check(set(reply) == {"object", "input_tokens"} and
          reply["object"] == "response.input_tokens", str(reply))
    return reply["input_tokens"]


def refused(server, status, param, code, path=PATH, method="POST", words="", **body):
    got, _, data = server.ask(method, path, body if method == "POST" else None)
    error = json.loads(data)["error"]
    check(set(error) == {"message", "type", "param", "code"}, str(error))
    check((got, error["param"], error["code"]) == (status, param, code) and
          words in error["message"], f"{body}: {got} {error}")


# ------------------------------------------------------------------------- tests


def answers_have_reasoning_and_a_message(server):
    response = both(server, input=SUM, metadata={"a": "b"}, user="u", store=True)
    check(kinds(response) == ["reasoning", "message"], str(response["output"]))
    check("72" in text_of(response), text_of(response))
    reasoning = response["output"][0]
    check(reasoning["summary"] == [] and "encrypted_content" not in reasoning, str(reasoning))
    check(response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0, "none counted")
    check((response["store"], response["error"], response["metadata"], response["user"],
           response["truncation"], response["text"], response["tool_choice"]) ==
          (False, None, {"a": "b"}, "u", "disabled", {"format": {"type": "text"}}, "auto"),
          str(response))


def limits_cut_answers(server):
    for limit in (1, 5, 48):
        response = both(server, input=SUM, max_output_tokens=limit)
        check(response["status"] == "incomplete" and response["completed_at"] is None and
              response["incomplete_details"] == {"reason": "max_output_tokens"} and
              response["usage"]["output_tokens"] == limit, str(response))
        for item in response["output"]:
            last = item is response["output"][-1]
            check(item["status"] == ("incomplete" if last else "completed"), str(item))
    asked = {"input": QUESTION, "tools": [WEATHER], "tool_choice": "required"}
    uncut = both(server, **asked)
    limit = uncut["usage"]["output_tokens"] - 4
    response = both(server, **asked, max_output_tokens=limit)
    check(response["status"] == "incomplete" and
          response["output"][-1]["status"] == "incomplete", str(response))


def tools_make_a_round_trip(server):
    tools = [WEATHER]
    response = both(server, input=QUESTION, tools=tools)
    call = response["output"][-1]
    check(call["type"] == "function_call" and call["name"] == "get_weather" and
          json.loads(call["arguments"]) == {"city": "Lisbon"} and "namespace" not in call,
          str(response["output"]))
    turns = [{"role": "user", "content": QUESTION}, *response["output"],
             {"type": "function_call_output", "call_id": call["call_id"], "output": RESULT}]
    answer = both(server, input=turns, tools=tools)
    check(text_of(answer) == SAID, text_of(answer))
    # Parts and a string are the same prompt, and so is a typed message.
    turns[0] = {"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": QUESTION}]}
    turns[-1] = {**turns[-1], "output": [{"type": "input_text", "text": RESULT}]}
    check(counted(server, input=turns, tools=tools) == answer["usage"]["input_tokens"],
          "parts are counted otherwise than a string")


def names_of_namespaces_come_back(server):
    space = {"type": "namespace", "name": "mcp__sky", "description": "The sky.",
             "tools": [WEATHER]}
    hosted = {"type": "web_search"}
    body = {"input": QUESTION, "tools": [space, hosted], "max_output_tokens": 40}
    for choice in ({"type": "function", "name": "get_weather", "namespace": "mcp__sky"},
                   {"type": "function", "name": "get_weather"},
                   {"type": "allowed_tools", "mode": "required",
                    "tools": [{"type": "function", "name": "get_weather"}]}):
        response = whole(server, {**body, "temperature": 0, "tool_choice": choice})
        call = response["output"][-1]
        check((call["type"], call["name"], call["namespace"]) ==
              ("function_call", "get_weather", "mcp__sky"), str(call))
    both(server, **body, tool_choice="required")
    # A call that is replayed renders as the model wrote it, whether its namespace comes or not.
    call = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"}
    counts = {counted(server, input=[{"role": "user", "content": "a"}, one], tools=[space])
              for one in (call, {**call, "namespace": "mcp__sky"},
                          {**call, "name": "mcp__sky__get_weather"})}
    check(len(counts) == 1, str(counts))
    _, headers, _ = server.ask("POST", PATH, {**body, "max_output_tokens": 1})
    check(headers.get("x-moeflux-ignored") == "tools[1]", str(headers))


def custom_tools_take_text(server):
    note = {"type": "custom", "name": "note", "description": "Write a note."}
    response = both(server, input="Write a note.", tools=[note], max_output_tokens=40,
                    tool_choice={"type": "custom", "name": "note"})
    call = response["output"][-1]
    check(call["type"] == "custom_tool_call" and call["name"] == "note" and
          isinstance(call["input"], str) and "arguments" not in call, str(call))
    turns = [{"role": "user", "content": "Write a note."},
             {"type": "custom_tool_call", "call_id": "c", "name": "note", "input": 'a "b"\n'},
             {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}]
    as_function = [turns[0],
                   {"type": "function_call", "call_id": "c", "name": "note",
                    "arguments": json.dumps({"input": 'a "b"\n'})},
                   {"type": "function_call_output", "call_id": "c", "output": "done"}]
    check(counted(server, input=turns, tools=[note]) ==
          counted(server, input=as_function, tools=[note]), "custom calls are not functions")


def reasoning_is_replayed(server):
    """`server` has a template that repeats reasoning."""
    first = {"role": "user", "content": SUM}
    response = whole(server, {"temperature": 0, "input": [first],
                              "include": ["reasoning.encrypted_content"]})
    item, message = response["output"]
    token, visible = item["encrypted_content"], item["content"]
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    summary = [{"type": "summary_text", "text": visible[0]["text"]}]

    def count(**reasoning):
        return counted(server, input=[first, {**bare, **reasoning}, message])

    without, shown = count(), count(content=visible)
    check(without == counted(server, input=[first, message]), "no text, but tokens")
    check(shown > without, "reasoning is not in the prompt")
    check(count(encrypted_content=token) == shown, "the token's text differs")
    check(count(encrypted_content=token, content=[]) == shown, "the token's text differs")
    check(count(content=visible, encrypted_content="foreign") == shown,
          "a foreign token hides the text")
    check(count(encrypted_content="foreign") == without, "a foreign token is text")
    check(count(summary=summary) == shown, "the summary is not read")
    check(count(encrypted_content=token[:-2] + "AA") == without, "a damaged token is read")
    # What the model wrote and what comes back are the same tokens: the cache knows all of them,
    # but for the last, which was not computed yet.
    for sent in ({**bare, "encrypted_content": token}, item):
        again = whole(server, {"temperature": 0, "max_output_tokens": 1, "input": [
            first, sent, message, {"role": "user", "content": "And 3 more?"}]})
        matched = again["moeflux"]["cached"]["matched"]
        check(matched >= response["usage"]["total_tokens"] - 1,
              f"{matched} tokens are known, {response['usage']}")


def counts_are_those_of_the_answer(server):
    bodies = [{"input": SUM}, {"input": "a", "instructions": "Answer in one word."},
              {"input": QUESTION, "tools": [WEATHER]},
              {"input": QUESTION, "reasoning": {"effort": "none"}}]
    for body in bodies:
        answer = whole(server, {**body, "max_output_tokens": 1})
        check(counted(server, **body) == answer["usage"]["input_tokens"], str(body))
    check(counted(server, input="a", instructions="b") == counted(server, input=[
        {"role": "developer", "content": "b"}, {"role": "user", "content": "a"}]),
        "instructions are not the first message")


def answers_follow_a_schema(server):
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"],
              "additionalProperties": False}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    response = both(server, input="Seven?", text={"format": form})
    check(json.loads(text_of(response)) == {"n": 7} and response["text"]["format"] == form,
          text_of(response))


def probabilities_come_with_the_text(server):
    response = both(server, input=SUM, top_logprobs=2, include=["message.output_text.logprobs"])
    part = response["output"][-1]["content"][0]
    check("".join(one["token"] for one in part["logprobs"]) == part["text"] and
          all(len(one["top_logprobs"]) == 2 for one in part["logprobs"]), str(part))


def prompts_can_be_read_in_advance(server):
    body = {"input": [{"role": "user", "content": "A long time ago, far away. " * 30}],
            "prompt_cache_options": {"prewarm": True}}
    response = both(server, **body)
    check(response["output"] == [] and response["status"] == "completed" and
          response["usage"]["output_tokens"] == 0, str(response))
    usage = whole(server, {**body, "prompt_cache_options": None,
                           "max_output_tokens": 1})["usage"]
    cached = usage["input_tokens_details"]["cached_tokens"]
    check(cached >= 0.9 * usage["input_tokens"] - 8, str(usage))


def misses_of_the_cache_are_explained(server):
    """`server` reuses answers, too."""
    def compared(id_, items, **more):
        return whole(server, {"input": items, "max_output_tokens": 4, **more,
                              "prompt_cache_options": {"comparison_response_id": id_}})

    items = [{"role": "user", "content": "Tell me of the sea and the old harbour. " * 8}]
    first = whole(server, {"input": items, "max_output_tokens": 4})
    check("prompt_cache_diagnostics" not in first, str(first))
    later = items + first["output"] + [{"role": "user", "content": "Go on."}]

    def told(*given, **more):
        return compared(*given, **more)["prompt_cache_diagnostics"]

    check(told("resp_other", later) == {"type": "comparison_response_not_found"}, "found")
    check(told(first["id"], later) == {"type": "cache_hit"}, str(told(first["id"], later)))
    changed = [{"role": "user", "content": items[0]["content"][:60] + "No. Tell me of hills."}]
    miss = told(first["id"], changed)
    total = counted(server, input=changed)
    check(miss["type"] == "cache_miss" and miss["reason"] == "input_changed" and
          0 < miss["comparison_reusable_tokens"] and
          miss["cache_missed_tokens"] + miss["comparison_reusable_tokens"] == total, str(miss))
    miss = told(first["id"], later, tools=[WEATHER])
    check((miss["type"], miss["reason"]) == ("cache_miss", "tools_changed"), str(miss))


def batch_lines_are_answered(server):
    lines = [{"custom_id": str(n), "method": "POST", "url": PATH, "body": body}
             for n, body in enumerate([{"input": SUM, "temperature": 0},
                                       {"input": SUM, "previous_response_id": "resp_1"}])]
    data = "".join(json.dumps(line) + "\n" for line in lines)
    form = ('--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            '--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
            f"{data}\r\n--x--\r\n")
    file = server.json("POST", "/v1/files", form.encode(),
                       headers={"Content-Type": "multipart/form-data; boundary=x"})
    batch = server.json("POST", "/v1/batches", {
        "input_file_id": file["id"], "endpoint": PATH, "completion_window": "24h"})
    deadline = time.monotonic() + 60
    while batch["status"] not in ("completed", "failed") and time.monotonic() < deadline:
        time.sleep(0.1)
        batch = server.json("GET", "/v1/batches/" + batch["id"])
    check(batch["status"] == "completed", str(batch))

    def only(name):
        return json.loads(server.ask("GET", f"/v1/files/{batch[name]}/content")[2])["response"]

    given = only("output_file_id")
    check(given["status_code"] == 200 and FIELDS <= set(given["body"]) and
          "72" in text_of(given["body"]), str(given))
    refusal = only("error_file_id")
    check(refusal["status_code"] == 400 and
          refusal["body"]["error"]["param"] == "previous_response_id", str(refusal))


def long_prompts_are_told_where_clients_look(server):
    words = "word " * 9000
    refused(server, 400, None, "context_length_exceeded", input=words,
            words="exceeds the available context size")
    response = streamed(server, {"input": words})
    check(response["status"] == "failed" and response["usage"] is None and
          response["error"]["code"] == "context_length_exceeded", str(response["error"]))


def what_cannot_be_done_is_refused(server):
    no = "unsupported_parameter"
    refused(server, 400, "previous_response_id", no, input="a", previous_response_id="resp_1",
            words="replay the full input instead")
    refused(server, 400, "conversation", no, input="a", conversation="conv_1")
    refused(server, 400, "background", no, input="a", background=True)
    refused(server, 400, "truncation", no, input="a", truncation="auto")
    refused(server, 400, "prompt", no, input="a", prompt={"id": "p"})
    refused(server, 400, "tools", no, input="a", tools=[{"type": "web_search"}])
    refused(server, 400, "tool_choice", no, input="a", tools=[WEATHER],
            tool_choice={"type": "web_search"})
    refused(server, 400, "tool_choice", "invalid_value", input="a", tools=[WEATHER],
            tool_choice={"type": "function", "name": "other"})
    refused(server, 400, "tools", "invalid_value", input="a", tools=[WEATHER, WEATHER])
    refused(server, 400, "input[0]", no, input=[{"type": "item_reference", "id": "msg_1"}])
    refused(server, 400, "input[0]", no, input=[{"id": "msg_1"}])
    refused(server, 400, "input[1]", no,
            input=[{"role": "user", "content": "a"}, {"type": "web_search_call", "id": "ws_1"}])
    refused(server, 400, "input[0]", no, input=[
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}])
    refused(server, 400, "input[0]", "invalid_value", input=[{"type": "function_call"}])
    for wrong in (None, [], 3, {}):
        refused(server, 400, "input", "invalid_value", input=wrong)
    refused(server, 400, "wat", "unknown_parameter", input="a", wat=1)
    refused(server, 400, "text.format", "invalid_value", input="a",
            text={"format": {"type": "xml"}})
    refused(server, 400, "include", "invalid_value", input="a", include="b")
    for field, wrong in (("max_output_tokens", 0), ("temperature", 3), ("top_logprobs", 21),
                         ("metadata", []), ("reasoning", "high"), ("stream", 1)):
        refused(server, 400, field, "invalid_value", **{"input": "a", field: wrong})


def neutral_values_are_accepted(server):
    body = {"input": "a", "previous_response_id": None, "conversation": None,
            "background": False, "truncation": "disabled", "stream_options": {
                "include_obfuscation": False}, "prompt_cache_key": "k", "max_output_tokens": 1}
    status, headers, data = server.ask("POST", PATH, body)
    check(status == 200 and "x-moeflux-ignored" not in headers, f"{status} {headers} {data!r}")
    status, headers, _ = server.ask("POST", PATH, {
        **body, "client_metadata": {"a": "b"}, "include": ["web_search_call.results"],
        "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}})
    check(status == 200 and headers["x-moeflux-ignored"] ==
          "client_metadata,include[0],reasoning.summary,text.verbosity", str(headers))


def nothing_is_stored(server):
    one = PATH + "/resp_1"
    for method, path in (("GET", one), ("DELETE", one), ("GET", one + "/input_items"),
                         ("POST", one + "/cancel"), ("POST", PATH + "/compact")):
        refused(server, 404, None, "not_found", path=path, method=method)
    refused(server, 405, None, "method_not_allowed", method="GET")


TESTS = [
    answers_have_reasoning_and_a_message, limits_cut_answers, tools_make_a_round_trip,
    names_of_namespaces_come_back, custom_tools_take_text, counts_are_those_of_the_answer,
    answers_follow_a_schema, probabilities_come_with_the_text, prompts_can_be_read_in_advance,
    long_prompts_are_told_where_clients_look, what_cannot_be_done_is_refused,
    neutral_values_are_accepted, nothing_is_stored]


def thinking_model(place):
    """The embedded model with a template that repeats reasoning, as those of larger ones do."""
    source = os.path.join(os.environ["MOEFLUX_SOURCE"], "models", "pebble")
    model = os.path.join(place, "pebble")
    os.mkdir(model)
    for name in os.listdir(source):
        os.symlink(os.path.join(source, name), os.path.join(model, name))
    name = os.path.join(model, "tokenizer_config.json")
    with open(name) as file:
        config = json.load(file)
    os.unlink(name)
    before = "{% if message.content %}"
    check(config["chat_template"].count(before) == 1, "the template has changed")
    config["chat_template"] = config["chat_template"].replace(
        before, "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n"
        "</think>\n\n{% endif %}" + before)
    with open(name, "w") as file:
        json.dump(config, file)
    return model


def run_all(tests, server):
    for test in tests:
        try:
            test(server)
        except Exception:
            print(f"in {test.__name__}:", file=sys.stderr)
            raise


def run():
    program = os.path.realpath(sys.argv[1])
    # Cached prompts change no bits in this mode, so that answers can be compared.
    with Server(program, "--cache", "exact") as server:
        run_all(TESTS, server)
    with tempfile.TemporaryDirectory() as place:
        state = os.path.join(place, "state")
        with Server(program, "-m", thinking_model(place), "--state-dir", state) as server:
            run_all([reasoning_is_replayed, misses_of_the_cache_are_explained,
                     batch_lines_are_answered], server)


if __name__ == "__main__":
    main(run)
