#!/usr/bin/env python3
"""Ollama's API over sockets: chat and generate as lines and whole, models, refusals.

    ollama.py PROGRAM"""
import json
import sys

import served
from served import check

server = None
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}
QUESTION = {"role": "user", "content": "What is the weather in Lisbon?"}
RESULT = '{"weather": "sunny", "temperature": 24}'
ANSWER = "It is sunny in Lisbon, and the temperature is 24 degrees."


def same(got, expected, what):
    check(got == expected, f"{what}: {got!r}, expected {expected!r}")


def user(text):
    return [{"role": "user", "content": text}]


def whole(path, **body):
    body = {"model": "pebble", "stream": False, **body}
    return server.json("POST", path, body)


def lines(path, **body):
    """A stream, which is what comes unless a request says otherwise."""
    status, headers, data = server.ask("POST", path, {"model": "pebble", **body})
    same(status, 200, f"status of {path}: {data[:300]!r}")
    same(headers["Content-Type"], "application/x-ndjson", "type of a stream")
    check(data.endswith(b"\n"), "the last line is not ended")
    parts = [json.loads(line) for line in data.decode().split("\n")[:-1]]
    same([part["done"] for part in parts], [False] * (len(parts) - 1) + [True], "done")
    return parts


def joined(parts, name):
    return "".join(part["message"].get(name, "") for part in parts)


def chat():
    options = {"temperature": 0.9, "seed": 3, "num_predict": 24}
    one = whole("/api/chat", messages=user("Tell me a story about a fox."), options=options)
    same((one["message"]["role"], one["done"], one["done_reason"]), ("assistant", True, "length"),
         "the end")
    same(one["eval_count"], 24, "tokens")
    check(one["total_duration"] >= one["eval_duration"] + one["prompt_eval_duration"] > 10**6,
          "durations are no nanoseconds")
    parts = lines("/api/chat", messages=user("Tell me a story about a fox."), options=options)
    same(joined(parts, "content"), one["message"]["content"], "streamed text")
    check(len(parts) > 10 and parts[-1]["eval_count"] == 24, f"{len(parts)} lines")
    check(all(part["created_at"].endswith("Z") and part["model"] == "pebble" for part in parts),
          "model or created_at")
    stopped = whole("/api/chat", messages=user("What is the capital of France?"),
                    options={"temperature": 0, "stop": [" Paris"]})
    same((stopped["message"]["content"], stopped["done_reason"]),
         ("The capital of France is", "stop"), "a stop")


def thinking():
    body = {"messages": user("What is 27 + 45?"), "options": {"temperature": 0}}
    one = whole("/api/chat", think=True, **body)["message"]
    check("7 + 5 = 12" in one["thinking"], f"the reasoning is {one.get('thinking')!r}")
    same(one["content"], "27 + 45 = 72", "answer")
    parts = lines("/api/chat", think="high", **body)
    same((joined(parts, "thinking"), joined(parts, "content")), (one["thinking"], one["content"]),
         "streamed")
    check("thinking" not in whole("/api/chat", think=False, **body)["message"], "it thinks")
    # Reasoning that is sent back is read.
    again = [*body["messages"], one, *user("And 1 + 1?")]
    check(whole("/api/chat", messages=again, options={"num_predict": 1})["prompt_eval_count"] >
          whole("/api/chat", messages=body["messages"], options={"num_predict": 1})
          ["prompt_eval_count"], "the conversation is not in the prompt")


def tools():
    body = {"messages": [QUESTION], "tools": [TOOL], "options": {"temperature": 0}}
    one = whole("/api/chat", **body)
    call = one["message"]["tool_calls"][0]["function"]
    same((call["name"], call["arguments"]), ("get_weather", {"city": "Lisbon"}), "the call")
    same(one["done_reason"], "stop", "done_reason")
    parts = lines("/api/chat", **body)
    calls = [call["function"]["arguments"] for part in parts
             for call in part["message"].get("tool_calls", [])]
    same(calls, [{"city": "Lisbon"}], "streamed calls")
    # As clients send it that know no ids, and as those that do.
    bare = {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
    for said, result in ((bare, {"tool_name": "get_weather"}), (bare, {}),
                         (one["message"], {"tool_call_id": one["message"]["tool_calls"][0]["id"]})):
        messages = [QUESTION, said, {"role": "tool", "content": RESULT, **result}]
        last = whole("/api/chat", **{**body, "messages": messages})
        same(last["message"]["content"], ANSWER, "the answer from the result")


def generate():
    options = {"temperature": 0.9, "seed": 3, "num_predict": 20}
    one = whole("/api/generate", prompt="Tell me a story about a fox.", options=options)
    same((one["done_reason"], one["eval_count"]), ("length", 20), "the end")
    parts = lines("/api/generate", prompt="Tell me a story about a fox.", options=options)
    same("".join(part["response"] for part in parts), one["response"], "streamed text")
    templated = whole("/api/chat", messages=user("Tell me a story about a fox."), options=options)
    same(one["response"], templated["message"]["content"], "the prompt as a message")
    spoken = whole("/api/generate", prompt="Tell me a story about a fox.", system="Be kind.", options=options)
    check(spoken["prompt_eval_count"] > one["prompt_eval_count"], "system is not in the prompt")
    raw = whole("/api/generate", prompt="Once upon a time", raw=True, options=options)
    text = server.json("POST", "/v1/completions", {
        "prompt": "Once upon a time", "temperature": 0.9, "seed": 3, "max_tokens": 20})
    same(raw["response"], text["choices"][0]["text"], "raw")
    reasoned = whole("/api/generate", prompt="What is 27 + 45?", options={"temperature": 0})
    check(reasoned["thinking"] and "72" in reasoned["response"], f"{reasoned}")


def formats():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 5}},
              "required": ["n"], "additionalProperties": False}
    text = whole("/api/generate", prompt="A number.", format=schema, think=False)["response"]
    check(json.loads(text)["n"] in (3, 4, 5), f"the answer is {text!r}")
    text = whole("/api/chat", messages=user("JSON."), format="json", think=False,
                 options={"num_predict": 400, "temperature": 0})
    if text["done_reason"] == "stop":
        check(isinstance(json.loads(text["message"]["content"]), dict), f"the answer is {text}")
    else:
        check(text["message"]["content"].lstrip().startswith("{"), f"the answer is {text}")


def probabilities():
    one = whole("/api/generate", prompt="A fox", raw=True, logprobs=True, top_logprobs=2,
                options={"temperature": 0, "num_predict": 5})
    same("".join(entry["token"] for entry in one["logprobs"]), one["response"], "tokens")
    for entry in one["logprobs"]:
        same(entry["logprob"], max(top["logprob"] for top in entry["top_logprobs"]), "the best")
    parts = lines("/api/generate", prompt="A fox", raw=True, logprobs=True, top_logprobs=2,
                  options={"temperature": 0, "num_predict": 5})
    same([entry for part in parts for entry in part.get("logprobs", [])], one["logprobs"],
         "streamed probabilities")


def loading():
    for path, body in (("/api/chat", {}), ("/api/chat", {"messages": []}), ("/api/generate", {}),
                       ("/api/generate", {"prompt": "", "keep_alive": -1})):
        one = server.json("POST", path, {"model": "pebble", **body})
        same((one["done"], one["done_reason"]), (True, "load"), f"{path} {body}")
    same(one["response"], "", "text of a load")


def models():
    model = server.json("GET", "/api/tags")["models"][0]
    same(model["name"], "pebble:latest", "name")
    check(model["size"] > 10**6 and len(model["digest"]) == 64, f"{model}")
    running = server.json("GET", "/api/ps")["models"][0]
    same(running["digest"], model["digest"], "digest")
    for body in ({"model": "pebble"}, {"name": "pebble:latest"}):
        shown = server.json("POST", "/api/show", body)
    same(shown["capabilities"], ["completion", "tools", "thinking"], "capabilities")
    check("im_start" in shown["template"], "the template is not the model's")
    architecture = shown["model_info"]["general.architecture"]
    same(shown["model_info"][f"{architecture}.context_length"], running["context_length"],
         "context_length")
    same(server.json("GET", "/api/version")["moeflux"],
         server.json("GET", "/health")["version"], "version")


def refuse(status, part, method="POST", path="/api/chat", **body):
    if path == "/api/chat":
        body = {"messages": user("x"), **body}
    code, headers, data = server.ask(method, path, body if method == "POST" else None)
    error = json.loads(data).get("error")
    check(code == status and isinstance(error, str) and part in error,
          f"{path} {body}: {code} {error!r}, expected {status} with {part!r}")


def refusals():
    for options, part in (({"temperature": "hot"}, "temperature"), ({"mirostat": 1}, "mirostat"),
                          ({"num_predict": 1.5}, "num_predict"), ({"temprature": 1}, "temprature"),
                          ({"repeat_last_n": -2}, "repeat_last_n"), (7, "options")):
        refuse(400, part, options=options)
    refuse(400, "text only", messages=[{**user("x")[0], "images": ["aGk="]}])
    refuse(400, "role", messages=[{"role": "bot", "content": "x"}])
    refuse(400, "role", messages=[7])
    refuse(400, "messages", messages="x")
    refuse(400, "format", format="xml")
    refuse(400, "think", think="much")
    refuse(400, "no_such", no_such=1)
    refuse(400, "é", **{"é" * 70: 1})
    refuse(400, "prompt is too long", messages=user("fox " * 9000))
    for field in ("suffix", "template"):
        refuse(400, field, path="/api/generate", prompt="x", **{field: "y"})
    refuse(400, "context", path="/api/generate", prompt="x", context=[1, 2])
    refuse(400, "raw", path="/api/generate", prompt="x", raw=True, system="y")
    refuse(400, "images", path="/api/generate", prompt="x", images=["aGk="])
    for path in ("/api/embed", "/api/embeddings", "/api/pull", "/api/push", "/api/create", "/api/copy"):
        refuse(501, "this server", path=path, model="x")
    refuse(501, "this server", method="DELETE", path="/api/delete")
    refuse(404, "nothing", path="/api/nothing")
    refuse(405, "not possible", method="GET", path="/api/generate")


def notes():
    _, headers, _ = server.ask("POST", "/api/chat", {
        "messages": user("Hi"), "keep_alive": "5m", "truncate": True,
        "options": {"num_ctx": 2048, "num_thread": 4, "num_predict": 1, "repeat_last_n": 0}})
    same(set(headers["x-moeflux-ignored"].split(",")),
         {"keep_alive", "truncate", "num_thread", "options.num_ctx"}, "x-moeflux-ignored")


def strict():
    refuse(404, "model 'other' not found", model="other")
    refuse(404, "model 'other' not found", path="/api/show", model="other")
    refuse(400, "keep_alive", keep_alive="5m")
    one = whole("/api/chat", model="pebble:latest", messages=user("Hi"),
                options={"num_predict": 1})
    same(one["model"], "pebble:latest", "name in the reply")


def main():
    global server
    with served.Server(sys.argv[1], "--cache", "exact") as server:
        for test in (chat, thinking, tools, generate, formats, probabilities, loading, models,
                     refusals, notes):
            test()
            print(f"{test.__name__}: ok")
    with served.Server(sys.argv[1], "--strict", "--strict-model") as server:
        strict()


served.main(main)
