"""Names, pages and programs that want to do something by the page of a server, for .ci/web."""

import http.client
import http.server
import threading
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

from browser import Browser
from web_page import HOSTILE_CHAT, HOSTILE_NAME, Page


def hostile(scene):
    """Names, chat and texts that would be parts of a page."""
    with scene.serve() as server, scene.player(server, HOSTILE_NAME) as trap, Browser() as browser:
        page = Page(browser, server, scene.checks)
        trap.says(HOSTILE_CHAT)
        trap.hears(HOSTILE_CHAT)
        page.log_in(name=HOSTILE_CHAT)
        page.does("hostile words can be said", "", "say", text=HOSTILE_CHAT)
        port = server.ports[0]
        page.visit("/bans")
        page.send("ban-address", target="192.0.2.7")
        page.does("and be why somebody is banned", "", "ban", reason=HOSTILE_CHAT)
        page.until_ranked(trap)
        paths = {"/": HOSTILE_NAME, "/standings": HOSTILE_NAME, f"/session/{port}": HOSTILE_CHAT, f"/player/{port}/{trap.peer}": HOSTILE_NAME,
                 f"/ban/{port}/{trap.peer}": HOSTILE_NAME, "/ban?target=127.0.0.0/8": HOSTILE_NAME,
                 "/log": HOSTILE_CHAT, "/bans": HOSTILE_CHAT, "/settings": "<i>Two</i>"}
        for path, words in paths.items():
            page.visit(path)
            harmless(page, path, words)
            page.browser.run("window.before = document.querySelector('[data-live]')?.firstElementChild")
            if page.count("[data-live]"):
                page.sees(f"{path}: renewed", lambda: browser.run("return !window.before.isConnected || performance.getEntriesByType('resource').length > 1"))
                harmless(page, f"{path}, renewed", words)
        page.quiet("hostile words")
        policy(page)


def harmless(page, path, words):
    text, title = page.text(), page.browser.run("return document.title")
    page.check(f"{path}: hostile words are text", words in text, text[:500])
    page.check(f"{path}: nothing of it runs", title != "owned" and title.endswith("bcnet"), title)
    page.check(f"{path}: nor is it markup", page.count("img, main script, main i") == 0 and page.count("script") == 1)


def policy(page):
    """If words became markup all the same, the policy would stop them."""
    page.browser.run("document.body.insertAdjacentHTML('beforeend', arguments[0])", HOSTILE_CHAT)
    page.sees("the policy stops what is not the page's", lambda: any("Content Security Policy" in line for line in page.browser.console()))
    page.check("and it does not run", page.browser.run("return document.title") != "owned")


def others(scene):
    """Pages and programs of others."""
    with scene.serve() as server, scene.player(server, "Alice") as alice, Browser() as browser:
        page = Page(browser, server, scene.checks)
        place = urlsplit(server.url).netloc
        for what, method, headers, status in (
            ("by a name of others", "GET", {"Host": "evil.example"}, 421),
            ("by a name of others that looks like ours", "GET", {"Host": f"localhost.evil.example:{urlsplit(server.url).port}"}, 421),
            ("by its own name", "GET", {"Host": place}, 303),
            ("with a form of others", "POST", {"Host": place, "Origin": "http://evil.example"}, 403),
            ("with a form of nobody", "POST", {"Host": place}, 403),
            ("with its own form", "POST", {"Host": place, "Origin": server.url}, 303),
        ):
            path, body = ("/log", None) if method == "GET" else ("/login", urlencode({"token": server.token}))
            seen, cookie = ask(server, method, path, headers, body)
            page.check(f"asked {what}: {status}", seen == status, seen)
            page.check(f"asked {what}: a cookie only for its own form", bool(cookie) == (method == "POST" and status == 303), cookie)
        page.log_in()
        form = {"action": "say", "text": "owned", "csrf": browser.run("return document.querySelector('[name=csrf]').value")}
        with foreign(server, form) as url:
            # To the browser a page on another port is of the same site, so it sends the cookie along, even if it is strict.
            browser.open(url)
            page.check("a page of others cannot read this one", browser.wait_for("return document.title") == "closed", page.text())
            page.check("nor show it", browser.run("try { return frames[0].document.body.innerText } catch { return '' }") == "")
            page.send("send")
            page.check("nor send a form to it", "sent by another page" in page.text(), page.text())
        browser.console()
        page.visit("/")
        page.does("the page itself can", "said", "say", text="the last word")
        alice.hears("the last word")
        page.check("nothing of theirs was done", not alice.has_heard("owned"))


def ask(server, method, path, headers, body):
    """Asks without a browser. Returns the status and the cookie."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    try:
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        connection.request(method, path, body, {**headers, **form})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Set-Cookie")
    finally:
        connection.close()


@contextmanager
def foreign(server, form):
    """A page of somebody else, which tries to use ours."""
    fields = "".join(f"<input name='{name}' value='{value}'>" for name, value in form.items())
    html = (f"<iframe src='{server.url}/'></iframe><form id=send method=post action='{server.url}/act'>{fields}<button>Win</button></form>"
            f"<script>fetch('{server.url}/log', {{credentials: 'include'}}).then(() => document.title = 'open', () => document.title = 'closed')</script>")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{other.server_port}/"
        finally:
            other.shutdown()
