"""A headless Chromium that cannot reach the network, driven by chromedriver (W3C WebDriver)."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",  # root, as in most containers, has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]


class Browser:
    """One tab."""

    def __init__(self, session: str):
        self.session = session

    def open(self, page: Path) -> None:
        _call(f"{self.session}/url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body `script` of a function returns in the page."""
        return _call(f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *arguments: Any, seconds: float = 30) -> Any:
        """What `script` returns, as soon as that is something."""
        end = time.monotonic() + seconds
        while not (found := self.run(script, *arguments)):
            assert time.monotonic() < end, f"the page never had {script} {arguments}"
            time.sleep(0.05)
        return found

    def inside(self, frame: str, script: str) -> Any:
        """What `script` returns in the document of the frame that the selector finds."""
        element = self.wait("return document.querySelector(arguments[0])", frame)
        _call(f"{self.session}/frame", {"id": element})
        try:
            return self.wait(script)
        finally:
            _call(f"{self.session}/frame", {"id": None})

    def be_a_phone(self) -> None:
        """A screen of 375 px."""
        screen = {"width": 375, "height": 812, "deviceScaleFactor": 2, "mobile": True}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": screen}
        _call(f"{self.session}/goog/cdp/execute", command)

    def requests(self) -> list[str]:
        """The address of each request since the last call."""
        events = (json.loads(entry["message"])["message"] for entry in self._log("performance"))
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[str]:
        """What the console called an error since the last call."""
        return [entry["message"] for entry in self._log("browser") if entry["level"] == "SEVERE"]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return _call(f"{self.session}/se/log", {"type": kind})


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, closed at the end."""
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        ports = (re.search(r"started successfully on port (\d+)", line) for line in driver.stdout)
        server = f"http://127.0.0.1:{next(filter(None, ports)).group(1)}/session"
        options = {"args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }
        made = _call(server, {"capabilities": {"alwaysMatch": wanted}})
        session = f"{server}/{made['sessionId']}"
        try:
            browser = Browser(session)
            _call(f"{session}/url", {"url": "about:blank"})
            browser.requests()  # those of the page that a browser starts with
            yield browser
        finally:
            _call(session, method="DELETE")
    finally:
        driver.terminate()
        driver.wait()


def _call(address: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, data, headers, method=method)
    try:
        with _OPEN.open(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(json.load(error)["value"]["message"]) from None


# Without a proxy: the driver is on this machine.
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))
