"""More requests than a server takes, and clients that leave. README.md says how to run it."""

import argparse
import asyncio
import collections
import json
import random
import re
import statistics
import sys
import time

import aiohttp

# Memory that a server may have kept after a burst, in MiB: allocators do not give everything back.
SLACK = 48
# How long the server may take to be what it was.
SETTLE = 30.0


def status_of(pid):
    """Resident memory in MiB and the number of threads."""
    text = open(f"/proc/{pid}/status").read()
    number = lambda name: int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))
    return number("VmRSS") / 1024, number("Threads")


class Server:
    def __init__(self, args):
        self.url, self.pid, self.key, self.tokens = args.url, args.pid, args.api_key, args.max_tokens
        self.random = random.Random(args.seed)

    def session(self):
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
        return aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)

    def body(self, stream, tokens):
        words = " ".join(self.random.choice(["sun", "rain", "wind", "stone", "river"]) for _ in range(self.random.randint(1, 60)))
        return {
            "messages": [{"role": "user", "content": f"Say something about {words}."}],
            "max_tokens": tokens, "ignore_eos": True, "stream": stream,
        }

    async def ask(self, session, stream, tokens):
        """One request to its end: the status, and what is wrong with the answer."""
        async with session.post(f"{self.url}/v1/chat/completions", json=self.body(stream, tokens)) as answer:
            text = await answer.text()
            if answer.status == 429:
                return 429, None if "Retry-After" in answer.headers else "429 without Retry-After"
            if answer.status != 200:
                return answer.status, text[:200]
            if stream:
                return 200, None if text.endswith("data: [DONE]\n\n") else f"a stream ends with {text[-80:]!r}"
            used = json.loads(text)["usage"]["completion_tokens"]
            return 200, None if used == tokens else f"{used} tokens instead of {tokens}"

    async def gauges(self, session):
        async with session.get(f"{self.url}/metrics") as answer:
            text = await answer.text()
        names = "requests", "kv_pages_used"
        found = {name: re.search(rf"^selfspec_{name} (\S+)$", text, re.M) for name in names}
        if found["requests"] is None:
            sys.exit("/metrics has no selfspec_requests")
        return {name: float(match.group(1)) for name, match in found.items() if match}

    async def latency(self, session):
        """The median of requests one after another, in seconds."""
        times = []
        for _ in range(7):
            started = time.monotonic()
            status, wrong = await self.ask(session, False, 8)
            if status != 200 or wrong:
                sys.exit(f"one request alone: {status} {wrong}")
            times.append(time.monotonic() - started)
        return statistics.median(times)

    async def idle(self, session):
        while (await self.gauges(session))["requests"] > 0:
            await asyncio.sleep(0.1)


class Verdict:
    def __init__(self):
        self.wrong = []

    def expect(self, fine, what):
        print(f"  {'ok   ' if fine else 'WRONG'} {what}")
        if not fine:
            self.wrong.append(what)


async def burst(server, sizes, verdict):
    async with server.session() as session:
        # The first burst fills what is filled only once.
        await asyncio.gather(*(server.ask(session, i % 2 == 0, server.tokens) for i in range(200)))
        await server.idle(session)
        before, (memory, _) = await server.latency(session), status_of(server.pid)
        print(f"before: latency {before:.3f} s, {memory:.0f} MiB")
        for size in sizes:
            started = time.monotonic()
            asks = (server.ask(session, i % 2 == 0, server.tokens) for i in range(size))
            answers = await asyncio.gather(*asks, return_exceptions=True)
            took = time.monotonic() - started
            failed = [repr(answer) for answer in answers if isinstance(answer, BaseException)]
            answers = [answer for answer in answers if not isinstance(answer, BaseException)]
            statuses = collections.Counter(status for status, _ in answers)
            await server.idle(session)
            after, (now, threads) = await server.latency(session), status_of(server.pid)
            print(f"{size} at once: {dict(statuses)} in {took:.1f} s, {threads} threads")
            verdict.expect(not failed, f"every client got an answer ({len(failed)} did not{', ' + failed[0] if failed else ''})")
            verdict.expect(set(statuses) <= {200, 429} and statuses[200] > 0, f"only 200 and 429: {dict(statuses)}")
            wrong = [what for _, what in answers if what]
            verdict.expect(not wrong, f"answers are whole{': ' + wrong[0] if wrong else ''}")
            verdict.expect(now <= memory + SLACK, f"memory: {memory:.0f} MiB before, {now:.0f} MiB after")
            verdict.expect(after <= 1.5 * before + 0.05, f"latency: {before:.3f} s before, {after:.3f} s after")


async def leave(server, session, counts):
    """One client that goes away at a moment of its own choosing."""
    stream, way = server.random.random() < 0.5, server.random.random()
    patience = server.random.expovariate(server.random.choice([20.0, 2.0, 0.2]))
    try:
        async with asyncio.timeout(patience):
            if way < 0.1:
                # Half a request.
                host, port = re.match(r"http://([^:/]+):(\d+)", server.url).groups()
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{\"mess")
                try:
                    await asyncio.sleep(60)
                finally:
                    writer.transport.abort()
            body = server.body(stream, server.random.randint(1, 400))
            body["n"] = server.random.choice([1, 1, 1, 2, 4])
            async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                counts[answer.status] += 1
                if way < 0.2:
                    await asyncio.sleep(60)  # it does not read
                await answer.read()
                counts["whole"] += 1
    except TimeoutError:
        counts["left"] += 1
    except (aiohttp.ClientError, OSError) as error:
        counts[type(error).__name__] += 1


async def disconnects(server, seconds, clients, verdict):
    async with server.session() as session:
        await server.latency(session)
        await server.idle(session)
        before, (memory, threads) = await server.gauges(session), status_of(server.pid)
        counts, until = collections.Counter(), time.monotonic() + seconds

        async def client():
            while time.monotonic() < until:
                await leave(server, session, counts)

        await asyncio.gather(*(client() for _ in range(clients)))
        print(f"{seconds:.0f} s of {clients} clients: {dict(counts)}")
        statuses = {key for key in counts if isinstance(key, int)}
        verdict.expect(statuses <= {200, 429}, f"only 200 and 429: {statuses}")
        deadline = time.monotonic() + SETTLE
        while True:
            after, (now, running) = await server.gauges(session), status_of(server.pid)
            settled = all(after[name] <= before[name] for name in before) and running <= threads
            if settled or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.5)
        for name in "requests", "kv_pages_used":
            if name in before:
                verdict.expect(after[name] <= before[name], f"{name}: {before[name]:.0f} before, {after[name]:.0f} after")
            else:
                print(f"        {name} is not in /metrics")
        verdict.expect(running <= threads, f"threads: {threads} before, {running} after")
        verdict.expect(now <= memory + SLACK, f"memory: {memory:.0f} MiB before, {now:.0f} MiB after")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--pid", type=int, required=True, help="process of the server, on this machine")
    parser.add_argument("--api-key")
    parser.add_argument("--max-tokens", type=int, default=16, help="tokens of a burst's answers")
    parser.add_argument("--burst", type=int, nargs="+", metavar="N", default=[])
    parser.add_argument("--disconnects", type=float, metavar="SECONDS")
    parser.add_argument("--clients", type=int, default=48, help="clients that leave, at a time")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    server, verdict = Server(args), Verdict()
    if args.burst:
        asyncio.run(burst(server, args.burst, verdict))
    if args.disconnects:
        asyncio.run(disconnects(server, args.disconnects, args.clients, verdict))
    sys.exit(1 if verdict.wrong else 0)


if __name__ == "__main__":
    main()
