"""A running server with its page, and players at terminals, for tests."""

import json
import re
import subprocess
import threading
import time
from pathlib import Path

# The time limit for anything that a test waits for. It is long, because the machine may be busy.
PATIENCE = 60


class Failed(Exception):
    """An expectation failed, so the rest of the part cannot run."""


def until(what, ask, seen=lambda: ""):
    """Waits until a value is true, and returns it."""
    end = time.monotonic() + PATIENCE
    while not (answer := ask()):
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {PATIENCE} s; seen: {seen()}")
        time.sleep(0.02)
    return answer


class Process:
    """A process whose output lines are collected. It ends with the `with` block."""

    def __init__(self, command, directory):
        self.lines = []
        self.process = subprocess.Popen(command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(10)

    def line(self, what, is_meant):
        """Waits for a line, and returns it."""
        return until(what, lambda: next(filter(is_meant, list(self.lines)), None), lambda: self.lines[-5:])


class Server(Process):
    """`bcnet serve` with a page, in a new directory."""

    def __init__(self, program, directory, sessions, web=""):
        self.program, self.directory = program, Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        tables = "".join(f'[[session]]\nname = "{name}"\n{more}\n' for name, more in sessions.items())
        self.config = self.directory / "bcnet.toml"
        self.config.write_text('[server]\nbind = "127.0.0.1"\ncontrol = "./bcnet.sock"\n[log]\nformat = "json"\n'
                               f'[web]\nenabled = true\nbind = "127.0.0.1:0"\n{web}\n{tables}')
        super().__init__([program, "serve", "--config", self.config], self.directory)

    def __enter__(self):
        try:
            started = self.line("the server starts", lambda line: '"event":"started"' in line)
            until("all sessions are ready", lambda: len(self._ready()) == json.loads(started)["sessions"], lambda: self.lines)
        except BaseException:
            self.__exit__()
            raise
        self.url = json.loads(started)["web"].rstrip("/")
        self.ports = [int(port) for port in self._ready()]
        self.token = (self.directory / "web-token").read_text().strip()
        return self

    def _ready(self):
        return re.findall(r"^server ready port=(\d+)", "\n".join(self.lines), re.MULTILINE)

    def ctl(self, *words):
        """Returns the answer of the control channel."""
        done = subprocess.run([self.program, "ctl", "--config", self.config, *words, "--json"], capture_output=True, text=True,
                              timeout=PATIENCE)
        if done.returncode != 0:
            raise Failed(f"ctl {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)


class Player(Process):
    """`bcnet join`: a player who is in the game when the block begins."""

    def __init__(self, program, directory, port, name):
        self.name = name
        super().__init__([program, "join", f"127.0.0.1:{port}", "--name", name, "--json", "--timeout", f"{PATIENCE}s"], directory)

    def __enter__(self):
        try:
            self.peer = self.event("connected")["peer"]
            self.event("entered")
        except BaseException:
            self.__exit__()
            raise
        return self

    def events(self, name):
        events = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in events if event["event"] == name]

    def event(self, name, is_meant=lambda event: True):
        """Waits for an event of the player, and returns it."""
        found = lambda: next(filter(is_meant, self.events(name)), None)
        return until(f"{self.name}: {name}", found, lambda: self.lines[-5:])

    def hears(self, text):
        """Waits for a chat line that contains this text."""
        return self.event("chat", lambda chat: text in chat["text"])["text"]

    def has_heard(self, text):
        return any(text in chat["text"] for chat in self.events("chat"))

    def says(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def leaves(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)

    def is_thrown_out(self):
        """Waits until the player has left the game, and returns the reason."""
        reason = self.event("gone")["reason"]
        self.process.wait(PATIENCE)
        return reason
