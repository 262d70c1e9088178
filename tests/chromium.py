"""A headless Chromium, driven through its pipe: pages at any width, in light or dark."""

import base64
import json
import os
import shutil
import subprocess

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --remote-debugging-pipe --hide-scrollbars"
).split()


def find():
    """The path of a Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Chromium:
    """One browser with one page. It reads commands from its file 3 and answers into its file 4, each ended by a 0 byte.

    Args:
        profile: a new empty folder.
    """

    def __init__(self, profile):
        theirs_in, self._commands = os.pipe()
        self._answers, theirs_out = os.pipe()
        command = [find(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._count, self._session, self._unread = 0, None, b""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def show(self, file, width, scheme, media="screen"):
        """Opens a page.

        Args:
            file: of the page.
            width: in CSS pixels.
            scheme: "light" or "dark".
            media: "screen" or "print".
        """
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", media=media, features=[feature])
        self._call("Page.enable")
        self._call("Page.navigate", url=file.as_uri())
        while self.value("document.readyState") != "complete":
            pass

    def value(self, expression):
        """The JSON value of a JavaScript expression on the page."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    def screenshot(self):
        """The whole page as PNG bytes."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return base64.b64decode(self._call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])

    def close(self):
        os.close(self._commands)  # which ends it
        self._process.wait(30)
        os.close(self._answers)

    def _call(self, method, **parameters):
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:  # events come in between
            answer = self._read()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self):
        while b"\0" not in self._unread:
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended")
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)
