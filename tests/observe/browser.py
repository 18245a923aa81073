"""A headless Chromium, driven by its DevTools protocol over a pair of pipes."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

ARGUMENTS = [
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync", "--hide-scrollbars",
]


class Browser:
    """One page in a browser of its own. Console messages and blocked loads are in `complaints`, the page's requests in `requests`."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="netvale-browser-")
        (theirs_in, self.to), (self.source, theirs_out) = os.pipe(), os.pipe()

        def pipes():
            # Chromium reads from descriptor 3 and writes to 4; the ends may already have these numbers.
            ends = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.log = open(os.path.join(self.folder, "log"), "wb")
        self.process = subprocess.Popen(
            ["chromium", *ARGUMENTS, f"--user-data-dir={self.folder}/profile", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, close_fds=False, preexec_fn=pipes)
        os.close(theirs_in)
        os.close(theirs_out)
        self.pending, self.number, self.session = b"", 0, None
        self.complaints, self.requests = [], []
        self._open()

    def _open(self):
        pages = self.call("Target.getTargets", wait=120)["targetInfos"]
        page = next(one["targetId"] for one in pages if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, wait=60, **params):
        """Sends a command and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + wait
        while True:
            answer = self._message(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._event(answer)

    def _message(self, end):
        while b"\0" not in self.pending:
            if not select.select([self.source], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser does not answer: {self._words()}")
            more = os.read(self.source, 1 << 20)
            if not more:
                raise RuntimeError(f"the browser has ended: {self._words()}")
            self.pending += more
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def _words(self):
        with open(self.log.name, errors="replace") as log:
            return log.read()[-2000:]

    def _event(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append((params["request"]["url"], params["request"]["headers"]))

    def run(self, expression):
        """The value of a JavaScript expression, awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, what, expression, seconds=60):
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + seconds
        while not (value := self.run(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {seconds} s: {expression}")
            time.sleep(0.05)
        return value

    def size(self, width, height, is_phone=False):
        scale = 2 if is_phone else 1
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=is_phone)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address):
        self.call("Page.navigate", url="about:blank")
        answer = self.call("Page.navigate", url=address)
        if "errorText" in answer:
            raise RuntimeError(f"{address}: {answer['errorText']}")
        self.until("the page is loaded", "document.readyState === 'complete' && location.href !== 'about:blank'")

    def picture(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close", wait=5)
        except (RuntimeError, TimeoutError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
