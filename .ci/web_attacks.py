"""Attacks on the page of a server, for .ci/web: hostile names, pages and programs."""

import http.client
import http.server
import threading
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

from browser import Browser
from web_page import HOSTILE_CHAT, HOSTILE_NAME, Page


def hostile(scene):
    """Names, chat and texts that contain HTML."""
    with scene.serve() as server, scene.player(server, HOSTILE_NAME) as trap, Browser() as browser:
        page = Page(browser, server, scene.checks)
        trap.says(HOSTILE_CHAT)
        trap.hears(HOSTILE_CHAT)
        page.log_in(name=HOSTILE_CHAT)
        page.does("hostile chat can be sent", "", "say", text=HOSTILE_CHAT)
        port = server.ports[0]
        page.visit("/bans")
        page.send("ban-address", target="192.0.2.7")
        page.does("a ban can have a hostile reason", "", "ban", reason=HOSTILE_CHAT)
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
    page.check(f"{path}: hostile text is shown as text", words in text, text[:500])
    page.check(f"{path}: hostile text does not run", title != "owned" and title.endswith("bcnet"), title)
    page.check(f"{path}: hostile text is not markup", page.count("img, main script, main i") == 0 and page.count("script") == 1)


def policy(page):
    """If text became markup, the content security policy would stop it."""
    page.browser.run("document.body.insertAdjacentHTML('beforeend', arguments[0])", HOSTILE_CHAT)
    page.sees("the policy stops foreign scripts", lambda: any("Content Security Policy" in line for line in page.browser.console()))
    page.check("the foreign script does not run", page.browser.run("return document.title") != "owned")


def others(scene):
    """Pages and programs of attackers."""
    with scene.serve() as server, scene.player(server, "Alice") as alice, Browser() as browser:
        page = Page(browser, server, scene.checks)
        place = urlsplit(server.url).netloc
        for what, method, headers, status in (
            ("with a foreign host name", "GET", {"Host": "evil.example"}, 421),
            ("with a foreign host name similar to ours", "GET", {"Host": f"localhost.evil.example:{urlsplit(server.url).port}"}, 421),
            ("with its own host name", "GET", {"Host": place}, 303),
            ("with a foreign form", "POST", {"Host": place, "Origin": "http://evil.example"}, 403),
            ("with a form without origin", "POST", {"Host": place}, 403),
            ("with its own form", "POST", {"Host": place, "Origin": server.url}, 303),
        ):
            path, body = ("/log", None) if method == "GET" else ("/login", urlencode({"token": server.token}))
            seen, cookie = ask(server, method, path, headers, body)
            page.check(f"request {what}: {status}", seen == status, seen)
            page.check(f"request {what}: only its own form gets a cookie", bool(cookie) == (method == "POST" and status == 303), cookie)
        page.log_in()
        form = {"action": "say", "text": "owned", "csrf": browser.run("return document.querySelector('[name=csrf]').value")}
        with foreign(server, form) as url:
            # A page on another port is on the same site, so the browser sends even a strict cookie along.
            browser.open(url)
            page.check("a foreign page cannot read this page", browser.wait_for("return document.title") == "closed", page.text())
            page.check("a foreign page cannot embed this page", browser.run("try { return frames[0].document.body.innerText } catch { return '' }") == "")
            page.send("send")
            page.check("a foreign page cannot send a form to this page", "comes from another site" in page.text(), page.text())
        browser.console()
        page.visit("/")
        page.does("the page itself can send the form", "sent to", "say", text="the last word")
        alice.hears("the last word")
        page.check("no foreign request had an effect", not alice.has_heard("owned"))


def ask(server, method, path, headers, body):
    """Sends a request without a browser. Returns the status and the cookie."""
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
    """A foreign page that tries to use ours."""
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
