"""A browser for tests: Chromium without a window, driven over WebDriver with the standard library only.

    with Browser() as browser:
        browser.open("file:///page.html")
        browser.run("return document.title")

It needs the Debian packages chromium and chromium-driver.
"""

import base64
import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

TIMEOUT = 60
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Right": "\ue014", "Tab": "\ue004"}
# The name of an element in the JSON of WebDriver.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Checks:
    """Counts the checks that failed, and prints each."""

    failed = 0

    def check(self, what, is_so, seen=""):
        self.failed += not is_so
        print(f"{what}: {'ok' if is_so else f'FAILED, {seen!r}'}", flush=True)


class Browser:
    def __init__(self, width=1280, height=900, mobile=False):
        self.size, self.mobile = (width, height), mobile

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        log = open(f"{self.directory.name}/driver.log", "w")
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True)
        try:
            # The driver prints the port that it has chosen.
            line = next(line for line in self.driver.stdout if "started successfully on port" in line)
            self.url = f"http://127.0.0.1:{line.split()[-1].rstrip('.')}"
            self.session = self._new_session()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if hasattr(self, "session"):
            try:
                self._call("DELETE", "")
            except OSError:
                pass
        self.driver.terminate()
        self.driver.wait(TIMEOUT)
        self.directory.cleanup()

    def _new_session(self):
        width, height = self.size
        # In containers and for root there is no sandbox and little shared memory. The browser itself sends no
        # requests to the network.
        arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", f"--window-size={width},{height}",
                     f"--user-data-dir={self.directory.name}/profile"]
        options = {"args": arguments, "binary": shutil.which("chromium")}
        if self.mobile:
            options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 2, "touch": True}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        request = {"capabilities": {"alwaysMatch": wanted}}
        return _http("POST", f"{self.url}/session", request)["sessionId"]

    def _call(self, method, path, body=None):
        return _http(method, f"{self.url}/session/{self.session}{path}", body)

    def open(self, url):
        """Opens a page and waits until it is loaded."""
        self._call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """Runs a script as the body of a function. Returns its result."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, *arguments):
        """Waits until a script returns a true value, and returns it."""
        waiting = f"""
            const done = arguments[arguments.length - 1], ask = () => {{ {script} }};
            const step = () => {{ const answer = ask(...arguments); answer ? done(answer) : requestAnimationFrame(step); }};
            step();"""
        self._call("POST", "/timeouts", {"script": TIMEOUT * 1000})
        return self._call("POST", "/execute/async", {"script": waiting, "args": list(arguments)})

    def click(self, selector):
        """Clicks the middle of an element, which nothing may cover."""
        while True:
            element = self._element(selector)
            try:
                self.run("arguments[0].scrollIntoView({block: 'center'})", {ELEMENT: element})
                return self._call("POST", f"/element/{element}/click", {})
            except RuntimeError as error:
                # A page that refreshes itself may have replaced the element.
                if "stale element" not in str(error):
                    raise

    def clear(self, selector):
        """Clears a field."""
        self._call("POST", f"/element/{self._element(selector)}/clear", {})

    def type(self, selector, text):
        """Types into an element. Special keys are given by name."""
        self._call("POST", f"/element/{self._element(selector)}/value", {"text": KEYS.get(text, text)})

    def mouse(self, selector, *steps):
        """Moves the mouse to shares of the element's width and height from its middle; `down` and `up` press and release."""
        element = {ELEMENT: self._element(selector)}
        box = self.run("arguments[0].scrollIntoView({block: 'center'});"
                       "const box = arguments[0].getBoundingClientRect(); return [box.width, box.height]", element)
        actions = []
        for step in steps:
            if step in ("down", "up"):
                actions.append({"type": f"pointer{step.capitalize()}", "button": 0})
            else:
                x, y = (round(share * size) for share, size in zip(step, box))
                actions.append({"type": "pointerMove", "duration": 0, "origin": element, "x": x, "y": y})
        source = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self._call("POST", "/actions", {"actions": [source]})

    def press(self, *keys):
        """Presses keys one after the other, wherever the focus is. Special keys are given by name; other text is typed."""
        letters = [letter for key in keys for letter in KEYS.get(key, key)]
        actions = [{"type": way, "value": letter} for letter in letters for way in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def _element(self, selector):
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return next(iter(found.values()))

    def console(self):
        """Returns the errors and warnings of the console since the last call."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self):
        """Returns the URLs that pages requested since the last call, answered or not."""
        entries = [json.loads(entry["message"])["message"] for entry in self._call("POST", "/se/log", {"type": "performance"})]
        sent = [entry["params"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        # The browser starts with an internal page.
        return [each["request"]["url"] for each in sent if not each["documentURL"].startswith("chrome:")]

    def devtools(self, command, **parameters):
        """Sends a command of the developer tools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path, whole=True):
        """Saves the page as a PNG file, all of it or what fits the window."""
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def pdf(self, path):
        """Prints the page to a PDF file."""
        printed = self._call("POST", "/print", {"background": True})
        with open(path, "wb") as file:
            file.write(base64.b64decode(printed))


def _http(method, url, body=None):
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method,
                                     headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT + 10) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        value = json.load(error)["value"]
        raise RuntimeError(f"{method} {url}: {value['error']}: {value['message']}") from None
