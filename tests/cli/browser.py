# SPDX-License-Identifier: Apache-2.0
"""A real browser without a window: Debian's chromium, driven over the WebDriver protocol by chromedriver."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from urllib.error import HTTPError, URLError

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing():
    """What is not installed, in words; "" where the browser can be used."""
    names = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return "" if not names else f"{' and '.join(names)} not found: apt-get install chromium chromium-driver"


class Browser:
    def __init__(self, folder, width=1200, height=900, dark=False, script=True):
        log = folder / "chromedriver.log"
        self.driver = subprocess.Popen(["chromedriver", "--port=0", f"--log-path={log}"], stdout=subprocess.PIPE, text=True)
        port = next(line.split("port ")[-1].strip(" .\n") for line in self.driver.stdout if "successfully on port" in line)
        self.address = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--window-size={width},{height}", f"--user-data-dir={folder / 'profile'}"]
        if dark:
            arguments.append("--blink-settings=preferredColorScheme=0")
        options = {"args": arguments, "binary": shutil.which("chromium")}
        if not script:
            options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = f"/session/{self.ask('/session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"

    def ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.loads(answer.read())["value"]
        except HTTPError as error:
            raise AssertionError(json.loads(error.read())["value"]["message"]) from None

    def tab(self):
        """A new tab instead of the one that is shown: size, media and focus are those of the beginning."""
        new = self.ask(f"{self.session}/window/new", {"type": "tab"})["handle"]
        self.ask(f"{self.session}/window", method="DELETE")
        self.ask(f"{self.session}/window", {"handle": new})
        self.errors()

    def open(self, address):
        self.ask(f"{self.session}/url", {"url": "about:blank"})  # so that another fragment is another page
        self.ask(f"{self.session}/url", {"url": address})
        # chromedriver comes back sooner now and then: on a busy machine, before the scripts of a large page have run.
        self.wait("return location.href !== 'about:blank' && document.readyState === 'complete'")

    def run(self, script, *arguments):
        """What the body of a function returns in the page."""
        return self.ask(f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def texts(self, selector):
        """Of the elements that can be seen."""
        return self.run("return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility())"
                        ".map((one) => one.innerText)", selector)

    def find(self, selector):
        return self.ask(f"{self.session}/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.ask(f"{self.session}/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.ask(f"{self.session}/element/{self.find(selector)}/value", {"text": text})

    def wait(self, script, seconds=300):
        """Until the script returns something true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"in {seconds} s not true: {script}"
            time.sleep(0.05)

    def size(self, width, height):
        """Of what the page is shown in, in CSS pixels."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def command(self, name, **parameters):
        """Of the DevTools protocol."""
        return self.ask(f"{self.session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def media(self, media="", scheme="light"):
        """`print` or `screen`, and what the reader prefers."""
        self.command("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, *keys):
        """Where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask(f"{self.session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def pdf(self):
        """The page as it is printed."""
        return base64.b64decode(self.command("Page.printToPDF", printBackground=True)["data"])

    def picture(self):
        """What can be seen, as PNG in base64."""
        return self.ask(f"{self.session}/screenshot")

    def errors(self):
        """What the page wrote to the console, requests that failed among it."""
        return [entry["message"] for entry in self.ask(f"{self.session}/se/log", {"type": "browser"})]

    def close(self):
        try:
            self.ask(self.session, method="DELETE")
        except (AssertionError, URLError, OSError):
            pass
        self.driver.terminate()
        self.driver.wait(300)
        self.driver.stdout.close()
