#!/usr/bin/env python3
"""`moeflux serve` under load, by clients that stream, stay away, go away, or find it killed.

    serve_load.py PROGRAM CASE [--long] [--seconds N] [--serve="OPTIONS"]

    clients  64 streams at a time: none fails or has a part of another; times to the first token and
             gaps by the server's own histograms, resident memory
    limit    200 requests at once against 64: the rest get 429 with Retry-After
    aborts   500 clients that go away at random moments: every page comes back
    kill     kill -9 under load, and again with the same --cache-dir: it opens, serves, reuses

Without --long each takes seconds and checks everything but times: tests/server runs it so."""
import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/server"))
import served
from served import check

FILLER = "The fox ran over the hill and into the wood, and the bird sang. "


class Reply:
    """A reply that is read as it comes."""

    def __init__(self, server, body):
        self.server, self.body = server, body
        self.status, self.headers, self.reader, self.writer = 0, {}, None, None

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(self.server.host, self.server.port)
        data = json.dumps(self.body).encode()
        self.writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self.server.host}:{self.server.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            "Connection: close\r\n\r\n".encode() + data)
        await self.writer.drain()
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    async def begin(self):
        line = await self.reader.readline()
        check(line.startswith(b"HTTP/1.1 "), f"a reply begins with {line[:60]!r}")
        self.status = int(line.split()[1])
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            self.headers[name.strip().lower()] = value.strip()

    async def blocks(self):
        """Pieces of the body, as they come."""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int((await self.reader.readline()) or b"0", 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
        else:
            while part := await self.reader.read(65536):
                yield part

    async def chunks(self):
        """Objects of the stream's records, which must end with [DONE]."""
        rest, done = b"", False
        async for block in self.blocks():
            *records, rest = (rest + block).split(b"\n\n")
            for record in records:
                if record == b"data: [DONE]":
                    done = True
                elif record.startswith(b"data: "):
                    yield json.loads(record[6:])
                else:
                    check(record.startswith(b":"), f"a record of the stream is {record[:80]!r}")
        check(done and not rest, "a stream ended without [DONE]")

    async def text(self):
        return b"".join([block async for block in self.blocks()]).decode()


def told(seed, limit, text, **more):
    return {"model": "pebble", "messages": [{"role": "user", "content": text}], "seed": seed,
            "max_tokens": limit, "temperature": 1.0, "stream": True, **more}


def with_nonce(seed, nonce):
    """An answer whose every part has the nonce."""
    schema = {"type": "array", "items": {"const": nonce}, "minItems": 6, "maxItems": 6}
    return told(seed, 600, "List it.", response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


async def stream_text(server, body):
    """(text, finish reason) of a stream whose chunks are all of one answer."""
    text, ids, finish = "", set(), None
    async with Reply(server, body) as reply:
        await reply.begin()
        check(reply.status == 200, f"status {reply.status} under load")
        async for chunk in reply.chunks():
            check("error" not in chunk, f"an error within a stream: {chunk}")
            ids.add(chunk["id"])
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
    check(len(ids) == 1, f"a stream has chunks of the answers {sorted(ids)}")
    check(finish is not None, "a stream without a finish reason")
    return text


# ---------------------------------------------------------------------- figures of the server


def histogram(before, after, name):
    """[(upper end, count)] of what came in between."""
    rows = []
    last = 0
    for key, value in after.items():
        if key.startswith(f"moeflux_{name}_bucket"):
            below = value - before.get(key, 0)
            rows.append((float(key.split('"')[1]), below - last))
            last = below
    return rows


def quantile(rows, share):
    """By interpolation within a bucket (their ends are a factor of 1.8 apart)."""
    left = share * sum(count for _, count in rows)
    start = 0.0
    for end, count in rows:
        if count >= left and count:
            return start + (min(end, 1e4) - start) * left / count
        left -= count
        start = end
    return float("nan")


def shown(name, rows):
    values = " ".join(f"p{round(100 * share)} {1000 * quantile(rows, share):.0f} ms"
                      for share in (0.5, 0.9, 0.99))
    print(f"{name}: {values} of {sum(count for _, count in rows):.0f}")


# ------------------------------------------------------------------------------- the cases


async def client(server, number, until, samples, nonces):
    random_of = random.Random(number)
    count = 0
    while time.monotonic() < until:
        count += 1
        seed = number * 100_000 + count
        if nonces and number % 4 == 0:
            nonce = f"n{seed:x}-" + "".join(random_of.choices("abcdefghij", k=8))
            text = await stream_text(server, with_nonce(seed, nonce))
            check(json.loads(text) == [nonce] * 6, f"the stream of {nonce} has {text[:200]!r}")
        else:
            head = FILLER * random_of.choice([0, 1, 2, 8, 20])
            body = told(seed, random_of.randint(10, 80), f"{head}Tell me a story about {number}.")
            text = await stream_text(server, body)
            samples.append((body, text))
    return count


async def many(server, clients, seconds, figures, nonces):
    samples = []
    began = time.monotonic()
    tasks = [asyncio.create_task(client(server, number, began + seconds, samples, nonces))
             for number in range(clients)]

    async def observe():
        for moment in sorted(figures):
            await asyncio.sleep(max(0, began + moment - time.monotonic()))
            figures[moment] = (await asyncio.to_thread(server.metrics), server.resident_bytes())

    observer = asyncio.create_task(observe())
    counts = await asyncio.gather(*tasks)
    await observer
    return sum(counts), samples


def case_clients(program, options):
    seconds = options.seconds or (60 if options.long else 6)
    clients = 64 if options.long else 32
    warm, middle = (10, 15) if options.long else (seconds * 0.2, seconds * 0.5)
    figures = {warm: None, middle: None, seconds: None}
    # An answer with a schema takes memory of its own, which would hide what the others leave; and
    # the prefix cache is to be full when measuring begins.
    limit = ["--memory", "128M"] if options.long else []
    with served.Server(program, *limit, *options.serve) as server:
        count, samples = asyncio.run(many(server, clients, seconds, figures, not options.long))
        last = server.metrics()
        check(last['moeflux_requests_total{finish="failed"}'] == 0, "requests have failed")
        # A mixed stream would not be what the same request gives alone.
        for body, text in random.Random(1).sample(samples, min(len(samples), 24)):
            alone = server.json("POST", "/v1/chat/completions", {**body, "stream": False})
            check(alone["choices"][0]["message"]["content"] == text,
                  f"alone {alone['choices'][0]['message']['content']!r}, beside others {text!r}")
    tokens = last["moeflux_generation_tokens_total"]
    print(f"{clients} clients for {seconds:.0f} s: {count} answers, {tokens / seconds:.0f} "
          "tokens/s")
    first = histogram(figures[warm][0], last, "time_to_first_token_seconds")
    shown(f"time to the first token after {warm:.0f} s", first)
    shown("time in the queue", histogram(figures[warm][0], last, "queue_seconds"))
    shown("between two tokens", histogram(figures[warm][0], last, "inter_token_seconds"))
    resident = [figures[moment][1] for moment in (middle, seconds)]
    pool = [figures[moment][0]["moeflux_pool_used_bytes"] for moment in (middle, seconds)]
    print(f"resident: {resident[0] >> 20} MiB at {middle:.0f} s, {resident[1] >> 20} MiB at "
          f"{seconds:.0f} s ({100 * (resident[1] / resident[0] - 1):+.1f}%); of them prompts and "
          f"the prefix cache {int(pool[0]) >> 20} and {int(pool[1]) >> 20} MiB, limit "
          f"{int(last['moeflux_pool_bytes']) >> 20} MiB")
    if options.long:
        ratio = quantile(first, 0.99) / quantile(first, 0.5)
        print(f"p99 of the first token is {ratio:.1f} times the median (limit 5)")
        check(ratio <= 5, "p99 of the time to the first token is more than 5 times its median")
        check(resident[1] <= 1.05 * resident[0], "resident memory grew by more than 5%")


async def crowd(server, count):
    async def one(number):
        async with Reply(server, told(number, 150, "Tell me a story.")) as reply:
            await reply.begin()
            if reply.status != 200:
                return reply.status, reply.headers, json.loads(await reply.text())
            tokens = [chunk async for chunk in reply.chunks()]
            check(tokens[-1]["choices"][0]["finish_reason"] is not None, "an answer has no end")
            return 200, reply.headers, None

    return await asyncio.gather(*(one(number) for number in range(count)))


def case_limit(program, options):
    with served.Server(program, "--parallel", "16", "--queue", "48") as server:
        replies = asyncio.run(crowd(server, 200))
        done = [reply for reply in replies if reply[0] == 200]
        refused = [reply for reply in replies if reply[0] == 429]
        print(f"200 at once against 64: {len(done)} answered, {len(refused)} refused")
        check(len(done) + len(refused) == 200, f"statuses {sorted({r[0] for r in replies})}")
        check(64 <= len(done) < 200, f"{len(done)} were answered")
        for _, headers, body in refused:
            check(1 <= int(headers.get("retry-after", 0)) <= 60, f"429 has the headers {headers}")
            check(body["error"]["type"] == "rate_limit_error", f"429 has {body}")
        count = server.metrics()['moeflux_refused_total{why="busy"}']
        check(count == len(refused), f"/metrics counts {count:.0f} refused, not {len(refused)}")


async def leave(server, count):
    """Connections that end at random moments: before the reply, or within a stream."""
    gate = asyncio.Semaphore(24)

    async def one(number):
        random_of = random.Random(number)
        body = told(number, 400, FILLER * random_of.choice([0, 4, 40]) + "Tell me a story.",
                    stream=random_of.random() < 0.8)
        async with gate:
            async with Reply(server, body) as reply:
                try:
                    await asyncio.wait_for(reply.text(), random_of.expovariate(4))
                except asyncio.TimeoutError:
                    pass

    await asyncio.gather(*(one(number) for number in range(count)))


def case_aborts(program, options):
    count = 500 if options.long else 100
    with served.Server(program, *options.serve) as server:
        server.chat("Hello.", max_tokens=2)
        server.wait_idle()
        asyncio.run(leave(server, count))
        began = time.monotonic()
        server.wait_idle()
        cancelled = server.metrics()['moeflux_requests_total{finish="cancelled"}']
        print(f"{count} clients went away, {cancelled:.0f} requests were cancelled; all pages back "
              f"after {time.monotonic() - began:.2f} s")
        check(cancelled >= count / 4, f"only {cancelled:.0f} of {count} requests were cancelled")
        check(server.chat("Hello.", max_tokens=2)["usage"]["completion_tokens"] > 0, "no answer")


def case_kill(program, options):
    rounds = 6 if options.long else 2
    head = "".join(f"Rule {i}: answer question {i % 9} in a short sentence. " for i in range(60))

    conversation = [{"role": "system", "content": head},
                    {"role": "user", "content": "What is 2 + 3?"}]

    def ask(server):
        reply = server.json("POST", "/v1/chat/completions", {
            "model": "pebble", "temperature": 0, "max_tokens": 12,
            "messages": conversation})
        return (reply["choices"][0]["message"]["content"], reply["usage"]["prompt_tokens"],
                reply["usage"]["prompt_tokens_details"]["cached_tokens"])

    async def load(server):
        try:
            await leave(server, 60)
        except (OSError, served.Failed, asyncio.IncompleteReadError):
            pass  # it was killed

    with tempfile.TemporaryDirectory() as cache:
        expected = None
        for number in range(rounds):
            server = served.Server(program, "--cache-dir", cache)
            try:
                text, prompt, cached = ask(server)
                expected = expected or text
                check(text == expected, f"{text!r} after a kill, {expected!r} before")
                print(f"start {number}: {cached} of {prompt} tokens from the directory")
                check(number == 0 or cached > prompt / 2,
                      f"{cached} of {prompt} tokens were reused after a kill")

                async def killed():
                    task = asyncio.create_task(load(server))
                    await asyncio.sleep(random.Random(number).uniform(1, 2))
                    server.kill()
                    await task

                asyncio.run(killed())
            finally:
                server.kill()
        with served.Server(program, "--cache-dir", cache) as server:
            check(ask(server)[0] == expected, "another answer after the last kill")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=os.path.realpath)
    parser.add_argument("case", choices=["clients", "limit", "aborts", "kill"])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--serve", default="", type=str.split, help="further options of serve")
    options = parser.parse_args()
    globals()["case_" + options.case](options.program, options)


served.main(main)
