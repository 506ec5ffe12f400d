"""A headless Chromium, driven over its DevTools protocol."""

import base64
import http.client
import json
import pathlib
import subprocess
import tempfile
import time

import websocket

# Without these it looks for its makers' hosts at every start.
QUIET = (
    "--disable-background-networking --disable-component-update --disable-sync --disable-quic "
    "--no-first-run --no-default-browser-check --disable-gpu --hide-scrollbars --disable-extensions"
).split()
START_WITHIN = 60


class Browser:
    def __init__(self, program):
        self._folder = tempfile.TemporaryDirectory(prefix="web-chromium-", ignore_cleanup_errors=True)
        folder = pathlib.Path(self._folder.name)
        # As root there is no sandbox; all that is opened are pages of ours.
        command = [program, "--headless=new", "--no-sandbox", "--remote-debugging-port=0"]
        command += [*QUIET, f"--user-data-dir={folder}", "about:blank"]
        self._log = (folder / "log.txt").open("wb")
        self._popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        port = folder / "DevToolsActivePort"
        deadline = time.monotonic() + START_WITHIN
        while not port.exists() or not port.read_text().strip():
            if self._popen.poll() is not None or time.monotonic() > deadline:
                log = (folder / "log.txt").read_text(errors="replace")
                self.close()
                raise RuntimeError(f"Chromium does not start:\n{log}")
            time.sleep(0.05)
        self._port = int(port.read_text().split()[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._popen.kill()
        self._popen.wait()
        self._log.close()
        self._folder.cleanup()

    def open(self, address):
        return Tab(self._ask("PUT", "/json/new?about:blank"), address, self._ask)

    def _ask(self, method, path):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        connection.request(method, path)
        text = connection.getresponse().read()
        connection.close()
        return json.loads(text) if text.startswith(b"{") else text


class Tab:
    """A page, and everything in it that went wrong."""

    def __init__(self, target, address, ask):
        self._id, self._ask = target["id"], ask
        self._socket = websocket.create_connection(
            target["webSocketDebuggerUrl"], timeout=30, suppress_origin=True
        )
        self._last = 0
        self.problems = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.size(1400, 900)
        self.go(address)

    def close(self):
        self._socket.close()
        self._ask("GET", f"/json/close/{self._id}")

    def go(self, address):
        self.send("Page.navigate", url=address)

    def send(self, method, **params):
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._last:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self._hear(message)

    def _hear(self, event):
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(("script", json.dumps(details.get("exception", details))))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(("console", json.dumps(params["args"])))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                entry = params["entry"]
                self.problems.append((entry["source"], f"{entry['text']} {entry.get('url', '')}"))

    def value(self, script):
        """What an expression is in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def text(self, selector):
        """What a reader sees there; empty when it is hidden or not there."""
        return self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def until(self, what, script, within=20.0):
        """Waits for an expression to become true, and returns its value."""
        deadline = time.monotonic() + within
        while not (value := self.value(script)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within:.0f} s: {what}; the page:\n{self.text('body')}")
            time.sleep(0.1)
        return value

    def until_row(self, table, *words, within=20.0):
        """Waits for a row of a table that has all these words, and returns its text."""
        wanted = json.dumps(words)
        rows = f"[...document.querySelectorAll('#{table} tbody tr')].map(row => row.innerText)"
        script = f"{rows}.find(row => {wanted}.every(word => row.includes(word)))"
        return self.until(f"{table}: a row with {words}", script, within)

    def press(self, key, code):
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
        if key == "Enter":
            self.send("Input.dispatchKeyEvent", type="char", key=key, text="\r")

    def type(self, text):
        """Into whatever has the focus."""
        self.send("Input.insertText", text=text)

    def click(self, selector):
        """Where a pointer would."""
        script = f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])" \
                 f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        x, y = self.value(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width, height, phone=False):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )

    def colours(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def picture(self, file):
        time.sleep(0.3)  # Fresh rows glow for a moment; the layout settles.
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        file.write_bytes(base64.b64decode(shot["data"]))
