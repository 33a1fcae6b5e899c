#!/usr/bin/env python3
"""`moeflux serve` under load, by clients that stream, stay away, go away, or find it killed.

    serve_load.py PROGRAM CASE [--long] [--seconds N] [--serve="OPTIONS"]

    clients  64 streams at a time: none fails or has a part of another; times to the first token and
             gaps by the server's own histograms, resident memory
    limit    200 requests at once against 64: the rest get 429 with Retry-After
    aborts   500 clients that go away at random moments: every page comes back
    kill     kill -9 under load, and again with the same --cache-dir: it opens, serves, reuses
    soak     a few clients of many kinds for --seconds (3600): none fails, and resident memory, told each
             minute, grows by 5% at most after the first quarter (of ten minutes or more); a measurement,
             in no test
    together tokens/s of 8 streams, in turns with `moeflux bench --sequences 8`, whose model and
             threads are those of --serve="-m MODEL -t N"; a measurement, in no test

Without --long each takes seconds and checks everything but times: tests/server runs it so."""
import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/server"))
import served
from served import check

SMALL = ["--memory", "128M"]  # the prefix cache is full when memory is first looked at
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


def has_token(choice):
    """A part of the answer, and not the chunk with the role, which is sent before the prompt is read."""
    return choice["delta"].get("content") or choice["delta"].get("reasoning_content")


async def stream_text(server, body, unanswered=None):
    """The text of a stream whose chunks are all of one answer; until its first token the request's
    seed is in `unanswered`."""
    text, ids, finish = "", set(), None
    unanswered = set() if unanswered is None else unanswered
    unanswered.add(body["seed"])
    async with Reply(server, body) as reply:
        await reply.begin()
        check(reply.status == 200, f"status {reply.status} under load")
        async for chunk in reply.chunks():
            check("error" not in chunk, f"an error within a stream: {chunk}")
            ids.add(chunk["id"])
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
                if has_token(choice) or finish:
                    unanswered.discard(body["seed"])
    check(len(ids) == 1, f"a stream has chunks of the answers {sorted(ids)}")
    check(finish is not None, "a stream without a finish reason")
    return text


# ---------------------------------------------------------------------- figures of the server


def histogram(before, after, name):
    """[(upper end, count)] of what came in between."""
    rows = []
    last = 0
    for key, value in after.items():
        if key.startswith(f"moeflux_{name}_bucket") and 'class="background"' not in key:
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


async def client(server, number, until, samples, unanswered):
    random_of = random.Random(number)
    count = 0
    while time.monotonic() < until:
        count += 1
        seed = number * 100_000 + count
        if (number + count) % 4 == 0:
            nonce = f"n{seed:x}-" + "".join(random_of.choices("abcdefghij", k=8))
            text = await stream_text(server, with_nonce(seed, nonce), unanswered)
            check(json.loads(text) == [nonce] * 6, f"the stream of {nonce} has {text[:200]!r}")
        else:
            head = FILLER * random_of.choice([0, 1, 2, 8, 20])
            body = told(seed, random_of.randint(10, 80), f"{head}Tell me a story about {number}.")
            text = await stream_text(server, body, unanswered)
            samples.append((body, text))
    return count


async def many(server, clients, seconds, figures):
    """Figures are taken at their moments; those of the first one when all requests that began before it
    have their first token, so that what histograms gain afterwards is of later requests."""
    samples, unanswered = [], set()
    began = time.monotonic()
    tasks = [asyncio.create_task(client(server, number, began + seconds, samples, unanswered))
             for number in range(clients)]

    async def observe():
        for moment in sorted(figures):
            await asyncio.sleep(max(0, began + moment - time.monotonic()))
            earlier = set(unanswered) if moment == min(figures) else set()
            while earlier & unanswered:
                await asyncio.sleep(0.01)
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
    limit = SMALL if options.long and not options.serve else []
    with served.Server(program, *limit, *options.serve) as server:
        count, samples = asyncio.run(many(server, clients, seconds, figures))
        last = server.metrics()
        check(last['moeflux_requests_total{finish="failed"}'] == 0, "requests have failed")
        # A mixed stream would not be what the same request gives alone.
        for body, text in random.Random(1).sample(samples, min(len(samples), 24)):
            reply = server.json("POST", "/v1/chat/completions", {**body, "stream": False})
            alone = reply["choices"][0]["message"]["content"] or ""  # null: there is none
            check(alone == text, f"alone {alone!r}, beside others {text!r}")
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


class Soak:
    """Clients of many kinds.  A client's random numbers are its own, so that a failure can be had
    again."""

    def __init__(self, server):
        self.server = server
        self.counts, self.errors, self.over = {}, [], False

    async def ask(self, path, body):
        status, _, data = await asyncio.to_thread(self.server.ask, "POST", path, body, timeout=300)
        check(status == 200, f"{path}: status {status}: {data[:200]!r}")
        return data

    async def chat(self, random_of, seed):
        head = FILLER * random_of.choice([0, 1, 4, 20, 60])
        await stream_text(self.server, told(seed, random_of.randint(5, 120), f"{head}Go on."))

    async def form(self, random_of, seed):
        nonce = f"n{seed:x}-{random_of.randint(0, 10**9)}"
        text = await stream_text(self.server, with_nonce(seed, nonce))
        check(json.loads(text) == [nonce] * 6, f"the stream of {nonce} has {text[:200]!r}")

    async def messages(self, random_of, seed):
        data = await self.ask("/v1/messages", {
            "model": "pebble", "max_tokens": random_of.randint(5, 60), "seed": seed,
            "messages": [{"role": "user", "content": "Tell me a story."}]})
        check(json.loads(data)["role"] == "assistant", f"a message is {data[:200]!r}")

    async def responses(self, random_of, seed):
        data = await self.ask("/v1/responses", {
            "model": "pebble", "max_output_tokens": random_of.randint(5, 60), "seed": seed,
            "input": FILLER * random_of.choice([0, 3]) + "Tell me a story."})
        check(json.loads(data)["object"] == "response", f"a response is {data[:200]!r}")

    async def ollama(self, random_of, seed):
        data = await self.ask("/api/chat", {
            "model": "pebble", "options": {"num_predict": random_of.randint(5, 60), "seed": seed},
            "messages": [{"role": "user", "content": "Tell me a story."}]})
        check(json.loads(data.splitlines()[-1])["done"], f"Ollama's end is {data[-200:]!r}")

    async def scores(self, random_of, _):
        data = await self.ask("/v1/completions", {
            "model": "pebble", "prompt": FILLER * random_of.choice([1, 4, 12]), "echo": True,
            "logprobs": 1, "max_tokens": 0})
        lists = json.loads(data)["choices"][0]["logprobs"]
        check(None not in lists["token_logprobs"][1:], "a token of an echo has no probability")

    async def leaves(self, random_of, seed):
        async with Reply(self.server, told(seed, 400, "Tell me a story.")) as reply:
            try:
                await asyncio.wait_for(reply.text(), random_of.expovariate(4))
            except asyncio.TimeoutError:
                pass

    async def refused(self, _, __):
        status, _, _ = await asyncio.to_thread(self.server.ask, "POST", "/v1/chat/completions",
                                               b'{"messages":', timeout=60)
        check(status == 400, f"half a body has status {status}")

    def failed(self, what, error):
        self.errors.append(f"{what}: {error!r}")
        print(self.errors[-1], flush=True)
        self.over = self.over or len(self.errors) == 20

    async def client(self, number, until):
        random_of = random.Random(number)
        kinds = [self.chat] * 6 + [self.form, self.form, self.messages, self.responses, self.ollama,
                                   self.scores, self.leaves, self.refused]
        seed = number * 1_000_000
        while time.monotonic() < until and not self.over:
            kind = random_of.choice(kinds)
            seed += 1
            try:
                await kind(random_of, seed)
                self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
            except Exception as error:
                self.failed(f"{kind.__name__} {seed}", error)
            await asyncio.sleep(random_of.uniform(0, 1.5))

    async def watch(self, began, seconds, samples):
        """Without it the run says nothing of memory: it ends where this fails."""
        try:
            while time.monotonic() < began + seconds:
                await asyncio.sleep(min(60, seconds / 20))
                metrics = await asyncio.to_thread(self.server.metrics)
                samples.append(self.server.resident_bytes())
                print(f"{(time.monotonic() - began) / 60:.1f} min: {samples[-1] >> 20} MiB, pool "
                      f"{int(metrics['moeflux_pool_used_bytes']) >> 20} MiB, "
                      f"{sum(self.counts.values())} requests, {len(self.errors)} errors", flush=True)
        except Exception as error:
            self.failed("watch", error)
            self.over = True

    async def run(self, clients, seconds):
        """(resident bytes, now and then; seconds that it really took)"""
        began, samples = time.monotonic(), []
        watcher = asyncio.create_task(self.watch(began, seconds, samples))
        await asyncio.gather(*(self.client(n, began + seconds) for n in range(clients)))
        watcher.cancel()
        return samples, time.monotonic() - began


def case_soak(program, options):
    with served.Server(program, *(options.serve or SMALL)) as server:
        soak = Soak(server)
        samples, seconds = asyncio.run(soak.run(6, options.seconds or 3600))
        server.wait_idle()
        failed = server.metrics()['moeflux_requests_total{finish="failed"}']
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(soak.counts.items()))
    print(f"{sum(soak.counts.values())} requests in {seconds:.0f} s ({kinds}); "
          f"{len(soak.errors)} errors, {failed:.0f} failed in the server")
    check(not soak.errors and failed == 0, f"{len(soak.errors)} errors, {failed:.0f} failed")
    check(len(samples) >= 4, f"resident memory was looked at {len(samples)} times")
    quarter = samples[len(samples) // 4]
    growth = samples[-1] / quarter - 1
    print(f"resident: {quarter >> 20} MiB after a quarter, {samples[len(samples) // 2] >> 20} MiB half "
          f"way, {samples[-1] >> 20} MiB at the end ({100 * growth:+.1f}%, limit 5%), at most "
          f"{max(samples) >> 20} MiB")
    # The prefix cache is full in the first quarter of ten minutes.
    check(growth <= 0.05 or seconds < 600,
          "resident memory grew by more than 5% after the first quarter")


async def rate_of_streams(server, clients, tokens):
    """Tokens/s by the server's counter, from the first token of the last stream to the first end: all
    streams have as many tokens, and no prompt is read in between."""
    begun, moments = set(), {}

    async def mark(moment):
        moments[moment] = None  # the first one counts
        metrics = await asyncio.to_thread(server.metrics)
        moments[moment] = (time.monotonic(), metrics["moeflux_generation_tokens_total"])

    async def one(number):
        async with Reply(server, told(number, tokens, f"Story {number}.",
                                      ignore_eos=True)) as reply:
            await reply.begin()
            async for chunk in reply.chunks():
                ended = chunk["choices"] and chunk["choices"][0]["finish_reason"]
                if any(has_token(choice) for choice in chunk["choices"]):
                    begun.add(number)
                if len(begun) == clients and "begin" not in moments:
                    await mark("begin")
                if ended and "end" not in moments:
                    await mark("end")

    await asyncio.gather(*(one(number) for number in range(clients)))
    (begin, before), (end, after) = moments["begin"], moments["end"]
    return (after - before) / (end - begin)


def case_together(program, options):
    clients, tokens, rounds, ratios = 8, 64, 5, []
    for _ in range(rounds):
        with served.Server(program, *options.serve) as server:
            asyncio.run(rate_of_streams(server, clients, 8))
            streams = asyncio.run(rate_of_streams(server, clients, tokens))
        result = subprocess.run(
            [program, "bench", *options.serve, "--sequences", str(clients), "-n", str(tokens),
             "-r", "1", "--no-ceilings", "--json"], capture_output=True, text=True, check=True)
        steps = json.loads(result.stdout)["tests"][0]["tokens_per_second"]["median"]
        ratios.append(streams / steps)
        print(f"{clients} streams {streams:.1f} tokens/s, bench {steps:.1f}: {ratios[-1]:.3f}")
    ratio = statistics.median(ratios)
    print(f"median {ratio:.3f} (limit 0.9)")
    check(ratio >= 0.9, "streams have less than 90% of the tokens/s of bench")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=os.path.realpath)
    parser.add_argument("case",
                        choices=["clients", "limit", "aborts", "kill", "soak", "together"])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--serve", default="", type=str.split, help="further options of serve")
    options = parser.parse_args()
    globals()["case_" + options.case](options.program, options)


served.main(main)
