"""The common parts of .ci/bars and .ci/delay: servers, an echo and simulated players on this machine."""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GAME_PORT, ECHO_PORT, PAGE_PORT, METRICS_PORT = 23000, 26000, 27000, 27001
PLAYERS = 8
# The report's fields that must be zero.
WRONG = ("lost", "doubled", "reordered", "changed", "echoed", "dropped", "absent")
# The size of the IPv4 and UDP headers.
HEADERS = 28


def build(root=ROOT, target=None):
    """Builds the program from this source; for the players' program, also the echo."""
    target = Path(target or os.environ.get("CARGO_TARGET_DIR", root / "target"))
    what = ["--bins", "--example", "echo"] if root == ROOT else ["--bins"]
    command = ["cargo", "build", "--release", "--locked", "-p", "bcnet", *what, "--target-dir", target]
    subprocess.run(command, cwd=root, check=True)
    return target / "release" / "bcnet"


def prepare():
    """Raises the limit of open files, as every player has a socket, and makes SIGTERM clean up."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))


def swarm(program, game, sessions, seconds, *more):
    """Returns the report of simulated players on a server with the process id `game`."""
    command = [program, "swarm", f"127.0.0.1:{GAME_PORT}", "--sessions", str(sessions), "--players", str(PLAYERS),
               "--seconds", str(seconds), "--watch", str(game), "--json", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode == 2:
        sys.exit("the simulated players failed")
    return json.loads(done.stdout)


def wrong(report):
    return sum(report[kind] for kind in WRONG)


def late(report):
    """Returns the share of the players' frames that came late by a frame. Above 0.01 the machine is too busy for a judgement."""
    return report["frames"]["late"] / max(report["frames"]["all"], 1)


def lateness(report):
    """Returns the 99th percentile of the lateness of the players' frames, in ms. If it is large, the players are the limit."""
    return report["frames"]["lateness_us"]["p99"] / 1e3


def per_player(report):
    """Returns datagrams and bytes per second to each player, with headers."""
    datagrams = report["datagrams"]
    time = report["seconds"] * report["sessions"] * report["players"]
    return datagrams["received"] / time, (datagrams["bytes_received"] + HEADERS * datagrams["received"]) / time


@contextmanager
def server(program, directory, sessions, control="none", capture="none", token=None):
    """Runs a server. With `token`, a file, it has a page and metrics."""
    config = directory / "bcnet.toml"
    metrics = f'metrics = "127.0.0.1:{METRICS_PORT}"\n' if token else ""
    page = f'[web]\nenabled = true\nbind = "127.0.0.1:{PAGE_PORT}"\ntoken_file = "{token}"\n' if token else ""
    text = [f'[server]\nbind = "127.0.0.1"\ncontrol = "{control}"\n{metrics}', page, '[log]\nlevel = "error"\n',
            f'[capture]\nfile = "{capture}"\n']
    text += [f'[[session]]\nname = "session {n}"\nport = {GAME_PORT + n}\n' for n in range(sessions)]
    config.write_text("\n".join(text))
    with running([program, "serve", "--config", config], sessions, directory) as process:
        yield process


@contextmanager
def echo(mirror, sessions):
    """Runs an echo and yields the options of `swarm` for it."""
    with running([mirror, str(ECHO_PORT), str(sessions)], 1, None) as process:
        yield ["--echo", f"127.0.0.1:{ECHO_PORT}", "--watch-echo", str(process)]


@contextmanager
def running(command, lines, directory):
    """Runs a process until it has printed this many lines, and yields its process id."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=directory)
    try:
        for _ in range(lines):
            if not process.stdout.readline():
                sys.exit(f"{command[0]} did not start")
        yield process.pid
    finally:
        process.kill()
        process.wait()
