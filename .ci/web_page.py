"""The page of a server in a browser, for the parts of .ci/web."""

from contextlib import contextmanager
from urllib.parse import urlsplit

from game import Failed, Player, Server, until

OWNED = "document.title='owned'"
HOSTILE_NAME = f"\"><script>{OWNED}</script>"
HOSTILE_CHAT = f"<img src=x onerror={OWNED}>"
# In the form of a configuration.
HOSTILE_SESSION = "<i>Two</i> & \\\"more\\\""


class Scene:
    """The base of every part of the test."""

    def __init__(self, program, directory, checks, screenshots):
        self.program, self.directory, self.checks, self.screenshots = program, directory, checks, screenshots

    @contextmanager
    def serve(self, web="", name="server"):
        """Runs a server with two sessions and a page. After a failure its last log lines are printed."""
        sessions = {"One": "players_per_address = 16\nplayers_per_network = 16", HOSTILE_SESSION: "trusted = []"}
        scores = 'standings = true\n[scores]\nfile = "scores.db"\nshortest = "1ms"'
        with Server(self.program, self.directory / name, sessions, f"{web}\n{scores}") as server:
            failed = self.checks.failed
            try:
                yield server
            except BaseException:
                failed = -1
                raise
            finally:
                if failed != self.checks.failed:
                    print("the server's last lines:", *server.lines[-10:], sep="\n    ", flush=True)

    def player(self, server, name, session=0):
        return Player(self.program, server.directory, server.ports[session], name)

    def draw(self, page, name):
        if self.screenshots:
            self.screenshots.mkdir(parents=True, exist_ok=True)
            page.browser.screenshot(self.screenshots / f"{name}.png")


class Page:
    """A browser at the page of a server."""

    def __init__(self, browser, server, checks):
        self.browser, self.server, self.check = browser, server, checks.check

    def visit(self, path):
        self.browser.open(self.server.url + path)

    def path(self):
        return urlsplit(self.browser.run("return location.href")).path

    def text(self, selector="body"):
        """Returns the text of an element, or nothing if it does not exist."""
        return self.browser.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def count(self, selector):
        return self.browser.run("return document.querySelectorAll(arguments[0]).length", selector)

    def sees(self, what, ask):
        """Waits until a condition holds on the page, which may be reloaded meanwhile."""
        self._until(what, ask)
        self.check(what, True)

    def _until(self, what, ask):
        def asked():
            try:
                return ask()
            except RuntimeError:
                # Between two pages there is no document.
                return False
        until(what, asked, lambda: f"{self.path()}: {self.text()[:1500]!r}")

    def send(self, form, **fields):
        """Fills in a form, sends it and waits for the answer."""
        for name, text in fields.items():
            field = f"#{form} [name={name}]"
            self.browser.clear(field)
            self.browser.type(field, text)
        folded = f"details:not([open]):has(#{form}) summary"
        if self.count(folded):
            self.browser.click(folded)
        self.browser.run("window.isOld = true")
        self.browser.click(f"#{form} button")
        self._until(f"an answer to the form {form}", lambda: self.browser.run("return !window.isOld && document.readyState === 'complete'"))

    def does(self, what, told, form, **fields):
        """Does an action that the page then confirms."""
        self.send(form, **fields)
        note = self.text("#note")
        self.check(what, note.startswith("✔") and told in note, note or self.text()[:300])

    def log_in(self, name="Ann"):
        self.visit("/login")
        self.send("login", name=name, token=self.server.token)
        if self.path() != "/":
            raise Failed(f"the login failed: {self.text('main')}")

    def go_to_player(self, player, session=0):
        """Opens the page of a player. Pages may be one second old."""
        def is_there():
            self.visit(f"/player/{self.server.ports[session]}/{player.peer}")
            return self.text("h1") == player.name
        self._until(f"a page of {player.name}", is_there)

    def until_ranked(self, player):
        """Ends a round with a player, and waits until the standings contain it."""
        self.server.ctl("--session", str(self.server.ports[0]), "restart")
        def is_ranked():
            self.visit("/standings")
            return player.name in self.text("#standings")
        self._until(f"{player.name} in the standings", is_ranked)

    def row(self, player, session=0):
        """Returns the row of a player in the table, or nothing if it does not exist."""
        return self.text(f"#player-{self.server.ports[session]}-{player.peer}")

    def tile(self, name):
        """Returns a metric by its name."""
        return self.browser.run("return [...document.querySelectorAll('dt')].find(term => term.textContent === arguments[0])"
                                "?.nextSibling.textContent ?? ''", name)

    def quiet(self, what, *expected):
        """Checks that the console has no errors except expected ones: no failed script, nothing stopped by the policy."""
        faults = [line for line in self.browser.console() if not any(one in line for one in expected)]
        self.check(f"{what}: no errors in the console", faults == [], faults)
