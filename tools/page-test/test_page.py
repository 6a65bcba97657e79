"""The page at `/` in a real browser, on a real server and model."""

import json
import pathlib
import re

import pytest
from axe_playwright_python.sync_playwright import Axe

LIST = "Repeat this list twice: red apple, green pear, yellow lemon, blue plum."
STORY = "Write a long story about a lighthouse, with many chapters."


def events(*chunks, done=True):
    """A stream as the server sends it."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def said(text, source="plain"):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, "tokens": [{"id": 1, "text": text, "source": source}]}
    return {"choices": [choice]}


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def fake(tab, **response):
    """Has the next requests for an answer answered so."""
    tab.page.route("**/v1/chat/completions", lambda route: route.fulfill(**response))


def test_the_streamed_text_is_the_apis_and_says_where_its_tokens_come_from(server, open_tab):
    tab = open_tab(server.url)
    tab.set(temperature=0, max_tokens=60, seed=7, system="You are brief.")
    answer = tab.drafted(LIST)
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": LIST}]
    expected = server.ask(messages=messages, temperature=0, max_tokens=60, seed=7, speculation="off")
    assert tab.text() == expected["choices"][0]["message"]["content"]
    sources = set(answer.locator(".token").evaluate_all("nodes => nodes.map(node => node.dataset.source)"))
    assert sources <= {"draft", "correction", "bonus", "plain"} and "draft" in sources and len(sources) > 1, sources
    for source in sources:
        token = answer.locator(f".token.{source}").first
        assert source == "plain" or source in token.get_attribute("title")
    assert re.search(r"\d+ tokens · [\d.]+ tok/s · [\d.]+ tokens a pass · \d+% of drafts accepted \([a-z-]+ \d+.*\) · speculation auto · seed 7", answer.locator(".facts").inner_text())
    for gauge in ("speed", "acceptance", "pass", "k"):
        assert re.match(r"\d", tab.page.inner_text(f"#gauge-{gauge}")), gauge
    assert tab.page.inner_text("#total-auto-tokens") == str(expected["usage"]["completion_tokens"])


def test_the_second_message_goes_with_the_first_and_sampling_follows_the_seed(server, open_tab):
    tab = open_tab(server.url)
    tab.set(temperature=0.9, max_tokens=24, seed=5)
    tab.page.check("input[value=off]")
    tab.send("Name a colour.")
    tab.finished()
    first = tab.text()
    tab.page.check("input[value=auto]")
    tab.send("And another one?")
    tab.finished()
    roles = ["user", "assistant", "user"]
    messages = [{"role": role, "content": text} for role, text in zip(roles, ["Name a colour.", first, "And another one?"])]
    expected = server.ask(messages=messages, temperature=0.9, max_tokens=24, seed=5, speculation="off")
    assert tab.text() == expected["choices"][0]["message"]["content"]
    assert tab.page.inner_text("#total-off-tokens") != "0"
    tab.set(max_tokens=1500)
    tab.send(STORY)
    tab.page.wait_for_selector(".answer:last-child .token")
    tab.page.click("#new")
    tab.page.wait_for_selector("#send:visible")
    assert tab.page.locator(".answer").count() == 0 and tab.page.is_visible("#welcome")
    assert [tab.page.inner_text(f"#total-{kind}-tokens") for kind in ("auto", "off")] == ["0", "0"], "those of the stopped run as well"


def test_an_answer_can_be_compared_with_speculation_off(server, open_tab):
    tab = open_tab(server.url)
    tab.set(temperature=0.6, max_tokens=40)
    tab.send(LIST)
    tab.finished().get_by_role("button", name="Compare with speculation off").click()
    tab.page.wait_for_selector(".verdict:has-text('Same text, character for character.')", timeout=120_000)
    rows = tab.page.locator(".compare tbody tr")
    assert rows.count() == 2 and re.match(r"Off\s+[\d.]+\s+–\s+1\.00", rows.nth(1).inner_text())


@pytest.mark.parametrize("how", ["button", "escape"])
def test_an_answer_can_be_stopped(server, open_tab, how):
    tab = open_tab(server.url)
    tab.set(max_tokens=1500)
    tab.send(STORY)
    tab.page.wait_for_selector(".answer .token")
    if how == "button":
        tab.page.click("#stop")
    else:
        tab.page.keyboard.press("Escape")
    assert "stopped by you" in tab.finished().locator(".facts").inner_text()
    stopped = tab.text()
    assert stopped and tab.page.is_visible("#send") and not tab.page.is_visible("#stop")
    tab.set(max_tokens=4)
    tab.send("Thanks.")
    tab.finished()
    assert tab.page.locator(".answer .text").first.evaluate("node => node.textContent") == stopped, "it grew after the stop"


def test_everything_works_with_the_keyboard_alone(server, open_tab):
    tab = open_tab(server.url)
    page = tab.page
    tab.set(max_tokens=12, temperature=0)
    page.focus("#input")
    page.keyboard.type("Say yes")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("or no.")
    assert page.input_value("#input") == "Say yes\nor no."
    page.keyboard.press("Enter")
    tab.finished()
    assert page.input_value("#input") == ""
    assert page.locator(".question .text").evaluate("node => node.textContent") == "Say yes\nor no."

    wanted = page.evaluate(
        """() => [...document.querySelectorAll('a[href], button, input, textarea')]
            .filter((node) => node.checkVisibility() && !(node.type === 'radio' && !node.checked)).length"""
    )
    page.evaluate("document.activeElement.blur()")
    seen = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
                const node = document.activeElement;
                if (node === document.body) return null;
                const shown = [node, node.nextElementSibling, node.closest('.compose')].some(
                    (each) => each && getComputedStyle(each).outlineStyle === 'solid');
                const box = node.getBoundingClientRect();
                const inside = box.bottom > 0 && box.top < innerHeight;
                return [node.id || node.textContent || node.value, shown, inside];
            }"""
        )
        if focused:
            name, shown, inside = focused
            assert shown, f"the focus on {name!r} cannot be seen"
            assert inside, f"{name!r} is out of sight"
            seen.add(name)
    assert len(seen) == wanted, seen
    page.get_by_role("button", name="Copy").focus()
    page.keyboard.press("Enter")
    tab.until("/Copied|Could not copy/.test(document.getElementById('status').textContent)")


def test_finished_answers_are_announced_and_not_each_token(server, open_tab):
    tab = open_tab(server.url)
    tab.page.evaluate(
        """() => {
            window.heard = [];
            new MutationObserver(() => window.heard.push(document.getElementById('status').textContent))
                .observe(document.getElementById('status'), { childList: true, characterData: true, subtree: true });
        }"""
    )
    tab.set(max_tokens=20, temperature=0)
    tab.send("Say something.")
    tab.finished()
    tab.until("window.heard.length > 0")
    assert tab.page.evaluate("window.heard") == [f"Answer: {tab.text()}"]
    assert tab.page.locator("[aria-live]").count() == 1


def test_markup_in_an_answer_is_text(server, open_tab):
    tab = open_tab(server.url)
    evil = "<img src=x onerror=\"window.hit = 1\"><script>window.hit = 1</script>\n  <b>bold</b>"
    fake(tab, content_type="text/event-stream", body=events(said(evil[:7]), said(evil[7:], "draft"), END))
    tab.send(evil)
    tab.finished()
    assert tab.text() == evil
    assert tab.page.locator(".question .text").evaluate("node => node.textContent") == evil
    assert tab.page.locator("#turns img, #turns script, #turns b").count() == 0
    assert tab.page.evaluate("window.hit") is None
    tab.page.uncheck("#formatted")
    assert tab.page.locator(".answer .text").evaluate("node => getComputedStyle(node).whiteSpace").startswith("pre-wrap")
    assert tab.page.locator("#turns img, #turns script, #turns b").count() == 0


MARKDOWN = """# A title

Some *words*, **more**, `code` and ~~none~~; a [link](https://example.org/a?b=c), a [trap](javascript:alert(1)), ![a picture](https://example.org/p.png).

- one
- two
  1. inner
- [x] done

> quoted
> twice

| left | right |
|:--|--:|
| a | 1 |

```python
if x < 1:
    print("<b>&amp;")
```
<script>window.hit = 1</script>
"""


def test_answers_are_formatted_as_markdown_with_their_marks(server, open_tab):
    tab = open_tab(server.url)
    parts = re.findall(r"\S+\s*", MARKDOWN)
    sources = ["draft", "plain", "bonus"]
    fake(tab, content_type="text/event-stream", body=events(*(said(part, sources[i % 3]) for i, part in enumerate(parts)), END))
    tab.send("Hello")
    answer = tab.finished().locator(".text")
    words = {"h4": "A title", "em": "words", "strong": "more", "del": "none", "blockquote": "quoted twice", "ol li": "inner", "td": "a"}
    for selector, text in words.items():
        assert answer.locator(selector).first.inner_text() == text, selector
    assert answer.locator(".code pre").evaluate("node => node.textContent") == 'if x < 1:\n    print("<b>&amp;")'
    assert answer.locator(".code-bar span").inner_text() == "python"
    links = answer.locator("a").evaluate_all("nodes => nodes.map(node => [node.textContent, node.href, node.rel, node.target])")
    assert links == [["link", "https://example.org/a?b=c", "noopener noreferrer", "_blank"], ["a picture", "https://example.org/p.png", "noopener noreferrer", "_blank"]]
    assert "trap" in answer.inner_text() and "☑" in answer.inner_text() and "<script>window.hit = 1</script>" in answer.inner_text()
    assert answer.locator("img, script, b").count() == 0 and tab.page.evaluate("window.hit") is None
    for word in ("title", "Some", "quoted", "inner"):
        source = sources[next(i for i, part in enumerate(parts) if part.strip() == word) % 3]
        assert answer.locator(f".token.{source}", has_text=word).count() > 0, f"{word} keeps the mark of its token"
    answer.get_by_role("button", name="Copy").click()
    tab.until("/Copied|Could not copy/.test(document.getElementById('status').textContent)")
    assert tab.text() == MARKDOWN


def test_a_conversation_outlives_a_reload_and_says_which_drafters_drafted(server, open_tab):
    tab = open_tab(server.url)
    tab.set(max_tokens=60, temperature=0, seed=3, system="You are brief.")
    answer = tab.drafted(LIST)
    facts = answer.locator(".facts").inner_text()
    assert re.search(r"of drafts accepted \((layer-skip|prompt-lookup|exit-head) \d+", facts), facts
    before = [tab.text(), facts, answer.locator(".text").inner_html()]
    tab.page.reload()
    assert [tab.text(), tab.finished().locator(".facts").inner_text(), tab.page.locator(".answer .text").inner_html()] == before
    assert tab.page.input_value("#system") == "You are brief." and tab.page.input_value("#seed") == "3"
    assert tab.page.locator(".question .text").inner_text() == LIST and not tab.page.is_visible("#welcome")
    tab.set(max_tokens=4)
    tab.send("And?")
    tab.page.wait_for_selector(".answer:nth-of-type(4) .facts:not(:empty)")
    tab.page.click("#new")
    tab.page.reload()
    assert tab.page.locator(".answer").count() == 0 and tab.page.is_visible("#welcome")


@pytest.mark.parametrize("status, headers, message, words", [
    (429, {"Retry-After": "3"}, "128 requests are queued or running; the limit is 128", r"busy: 128 requests are queued or running; the limit is 128\. Try again in 3 seconds\."),
    (400, {}, "messages: too long", r"refused this request: messages: too long"),
    (503, {}, "the server is stopping", r"takes no more messages: the server is stopping\."),
    (500, {}, "a panic", r"error \(500\): a panic"),
])
def test_refusals_are_told_in_words(server, open_tab, status, headers, message, words):
    tab = open_tab(server.url, expected=["Failed to load resource"])
    fake(tab, status=status, headers=headers, content_type="application/json", body=json.dumps({"error": {"message": message}}))
    tab.send("Hello")
    tab.page.wait_for_selector("[role=alert]")
    assert re.search(words, tab.page.inner_text("[role=alert]"))
    tab.page.unroute("**/v1/chat/completions")
    tab.set(max_tokens=4)
    tab.page.get_by_role("button", name="Try again").click()
    tab.page.wait_for_selector(".answer .token")
    tab.finished()
    assert tab.page.locator("[role=alert]").count() == 0 and tab.page.locator(".question").count() == 1


@pytest.mark.parametrize("body, words", [
    (events(said("Half a"), done=False), "The answer ended early"),
    (events(said("Half a"), {"error": {"message": "a step panicked"}}), "gave up on this answer: a step panicked"),
])
def test_an_answer_that_breaks_off_says_so(server, open_tab, body, words):
    tab = open_tab(server.url)
    fake(tab, content_type="text/event-stream", body=body)
    tab.send("Hello")
    tab.page.wait_for_selector("[role=alert]")
    assert words in tab.page.inner_text("[role=alert]") and tab.text() == "Half a"


def test_the_loss_of_the_server_is_told_in_words(start, open_tab):
    server = start()
    tab = open_tab(server.url, expected=["Failed to load resource", "ERR_"])
    tab.set(max_tokens=1500)
    tab.send(STORY)
    tab.page.wait_for_selector(".answer .token")
    server.kill()
    tab.page.wait_for_selector("[role=alert]")
    assert re.search("connection was lost|closed the connection", tab.page.inner_text("[role=alert]"))
    tab.page.get_by_role("button", name="Try again").click()
    tab.page.wait_for_selector("[role=alert]:has-text('cannot be reached')")


def test_a_key_is_asked_for_and_stays_in_the_tab(start, open_tab):
    server = start("--api-key", "open sesame")
    tab = open_tab(server.url, expected=["401"])
    tab.page.wait_for_selector("#key-form:visible")
    for key in ("wrong", "open sesame"):
        tab.page.fill("#key", key)
        tab.page.press("#key", "Enter")
        tab.page.wait_for_selector("#key-form", state="hidden" if key != "wrong" else "visible")
        if key == "wrong":
            tab.page.wait_for_selector("#key:focus")
    tab.until("document.getElementById('model').textContent")
    tab.set(max_tokens=4)
    tab.send("Hello")
    tab.finished()
    assert tab.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert tab.page.evaluate("sessionStorage.getItem('selfspec-api-key')") == "open sesame"
    assert "sesame" not in tab.page.content()
    tab.page.click("#forget-key")
    tab.page.wait_for_selector("#key-form:visible")
    assert "sesame" not in tab.page.evaluate("JSON.stringify(sessionStorage)")


def test_settings_out_of_range_are_not_sent(server, open_tab):
    tab = open_tab(server.url)
    tab.set(temperature=3)
    tab.send("Hello")
    assert tab.page.locator(".question").count() == 0 and tab.page.input_value("#input") == "Hello"
    assert not any("completions" in url for url in tab.requests)


def test_marks_can_be_turned_off_and_differ_by_more_than_colour(server, open_tab):
    tab = open_tab(server.url)
    sources = ["draft", "correction", "bonus", "plain"]
    fake(tab, content_type="text/event-stream", body=events(*(said(f" {source}", source) for source in sources), END))
    tab.send("Hello")
    tab.finished()
    look = "node => { const s = getComputedStyle(node); return [s.backgroundColor, s.textDecorationLine + ' ' + s.textDecorationStyle]; }"
    looks = [tab.page.locator(f".token.{source}").evaluate(look) for source in sources]
    assert len({colour for colour, _ in looks}) == 4 and len({line for _, line in looks}) == 4, looks
    tab.page.uncheck("#marks")
    assert len({tuple(tab.page.locator(f".token.{source}").evaluate(look)) for source in sources}) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width, height", [(360, 740), (1280, 860), (1920, 1000)])
def test_the_page_is_sound_at_each_size_and_in_both_schemes(server, open_tab, request, scheme, width, height):
    tab = open_tab(server.url, color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion="reduce")
    page = tab.page
    folder = request.config.getoption("--screenshots")

    def check(moment):
        if folder:
            page.screenshot(path=pathlib.Path(folder) / f"{scheme}-{width}-{moment}.png")
        violations = Axe().run(page).response["violations"]
        assert not violations, [(v["id"], [n["html"] for n in v["nodes"]]) for v in violations]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing to scroll sideways"

    check("empty")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in re.findall(r"\d+", ground)[:3]) / 3
    assert (light > 128) == (scheme == "light"), ground
    if width < 900:
        assert not page.is_visible("#panel")
        page.click("#panel-toggle")
        assert page.is_visible("#panel") and page.get_attribute("#panel-toggle", "aria-expanded") == "true"
        check("settings")
    tab.set(max_tokens=40, temperature=0)
    if width < 900:
        page.click("#panel-toggle")
    tab.send(LIST)
    page.wait_for_selector(".answer .token")
    assert page.locator(".answer .text").evaluate("node => getComputedStyle(node, '::after').animationName") == "none"
    tab.finished().get_by_role("button", name="Compare").click()
    page.wait_for_selector(".verdict:has-text('Same text')", timeout=120_000)
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    check("compared")
    fake(tab, content_type="text/event-stream", body=events(said("Half a"), done=False))
    tab.send("Hello")
    page.wait_for_selector("[role=alert]")
    check("failed")
