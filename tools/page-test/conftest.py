"""A server with a small model, a browser, and a page that is watched: it must ask nobody but the server, and its console must stay silent."""

import contextlib
import json
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).parents[2]


def pytest_addoption(parser):
    parser.addoption("--selfspec", default=str(ROOT / "target/debug/selfspec"), help="the program")
    parser.addoption("--model", default="smollm2-135m", help="the model to serve")
    parser.addoption("--chromium", default=shutil.which("chromium"), help="the browser; default: chromium, else Playwright's own")
    parser.addoption("--screenshots", help="folder for pictures of the page")


class Server:
    """`selfspec serve` on a free port."""

    def __init__(self, config, *arguments):
        command = [config.getoption("--selfspec"), "serve", config.getoption("--model"), "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if found := re.search(r"(http://[\d.]+:\d+)/v1", line):
                self.url = found[1]
                return
        raise RuntimeError(f"{command} ended: {''.join(lines)}")

    def ask(self, **body):
        """The API's own answer."""
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    def kill(self):
        """Ends at once, whatever is under way."""
        self.process.kill()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="session")
def start(request):
    """Starts servers, and ends them with the session."""
    with contextlib.ExitStack() as stack:
        def start(*arguments):
            server = Server(request.config, *arguments)
            stack.callback(server.end)
            return server
        yield start


@pytest.fixture(scope="session")
def server(start):
    return start()


@pytest.fixture(scope="session")
def browser(request):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=request.config.getoption("--chromium"))
        yield browser
        browser.close()


class Tab:
    """A tab with the page in it."""

    def __init__(self, context, url):
        self.page = context.new_page()
        self.url = url
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url)

    def set(self, **values):
        for name, value in values.items():
            self.page.fill("#" + name.replace("_", "-"), str(value))

    def send(self, text):
        self.page.fill("#input", text)
        self.page.press("#input", "Enter")

    def finished(self):
        """The latest answer, once it has ended."""
        self.page.wait_for_selector(".answer:last-child .facts:not(:empty)", timeout=120_000)
        return self.page.locator(".answer").last

    def drafted(self, text):
        """The answer of a new conversation that begins with `text`, with drafts in it.

        What is drafted depends on what the server has measured, so a busy machine may need another try.
        """
        for _ in range(6):
            self.page.click("#new")
            self.send(text)
            answer = self.finished()
            if answer.locator(".draft").count() > 0:
                break
        return answer

    def until(self, expression):
        """Waits until an expression holds. (Playwright's own way evaluates text in the page, which the page's policy forbids.)"""
        deadline = time.monotonic() + 30
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"it never came true: {expression}"
            self.page.wait_for_timeout(50)

    def text(self):
        """The latest answer as the model wrote it."""
        self.page.uncheck("#formatted")
        text = self.page.locator(".answer .text").last.evaluate("node => node.textContent")
        self.page.check("#formatted")
        return text


@pytest.fixture
def open_tab(browser):
    """Opens the page; afterwards it must have asked nobody else and complained of nothing but `expected`."""
    tabs, contexts = [], []

    def open_tab(url, expected=(), **options):
        context = browser.new_context(**options)
        contexts.append(context)
        tab = Tab(context, url)
        tab.expected = expected
        tabs.append(tab)
        return tab

    yield open_tab
    for tab in tabs:
        foreign = [url for url in tab.requests if not url.startswith(tab.url + "/")]
        assert not foreign, "requests leave the server"
        unexpected = [text for text in tab.complaints if not any(word in text for word in tab.expected)]
        assert not unexpected, "the console is silent"
    for context in contexts:
        context.close()
