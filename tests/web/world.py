"""Actors with verbs for the scenarios: a broker, sim drivers, a controller, and an operator's tab."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

KIND = "SimMachineClass"
CLASS = """\
apiVersion: sim.machinebroker.dev/v1alpha1
kind: SimMachineClass
metadata: {{name: {name}, namespace: default}}
spec: {spec}
"""
CLASSES = {
    "small": "{createDelay: 120ms, deleteDelay: 40ms}",
    "hangs": "{hang: [create]}",
    "fails": "{failures: [{verb: create, code: UNAVAILABLE, rate: 1.0}]}",
}


POLICY = """\
rules:
- who: "token:*"
  driver: {kinds: [SimMachineClass]}
- who: token:reader
  operator: read
- who: token:steerer
  operator: steer
"""
IDENTITIES = ("driver", "reader", "steerer")


class World:
    """One broker with its catalog, and whoever dials in."""

    def __init__(self, programs, browser, pictures):
        self._programs, self._browser, self._pictures = programs, browser, pictures
        self._processes, self._tabs = [], []
        self.listen = self.admin = "127.0.0.1:0"
        self.tokens = {}

    def __enter__(self):
        self._temporary = tempfile.TemporaryDirectory(prefix="web-world-")
        self._folder = pathlib.Path(self._temporary.name)
        (self._folder / "catalog").mkdir()
        for name, spec in CLASSES.items():
            text = CLASS.format(name=name, spec=spec)
            (self._folder / "catalog" / f"{name}.yaml").write_text(text)
        try:
            self.start_broker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for tab in self._tabs:
            tab.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._temporary.cleanup()

    def start_broker(self):
        """Starts the broker; again, if it ran before, on the addresses that it had."""
        command = ["serve", "--listen", self.listen, "--admin", self.admin]
        command += ["--catalog", f"dir:{self._folder / 'catalog'}", "--ping-every", "300ms"]
        command += ["--suspect-after", "2s", "--dead-after", "12s", "--grace", "1s"]
        if self.tokens:
            command += ["--policy", self._folder / "policy.yaml", "--tokens", self._folder / "tokens.yaml"]
        self.broker = self._start("machine-broker", *command)
        deadline = time.monotonic() + 20
        while len(found := self._addresses()) < 2:
            log = self._log(self.broker)
            assert self.broker.poll() is None and time.monotonic() < deadline, f"no broker:\n{log}"
            time.sleep(0.02)
        self.listen, self.admin = found["drivers"], found["admin"]

    def guard(self):
        """Starts the broker again, with a policy and with a token for each identity."""
        entries = ["tokens:\n"]
        for name in IDENTITIES:
            made = self._start("machine-broker", "tokens", "new", name)
            assert made.wait(20) == 0, self._log(made)
            text = self._log(made)
            self.tokens[name] = re.search(r"\bmb_[0-9a-f]{64}\b", text)[0]
            entries.append(re.search(r"- name: .*\n +sha256: [0-9a-f]{64}\n", text)[0])
        (self._folder / "policy.yaml").write_text(POLICY)
        (self._folder / "tokens.yaml").write_text("".join(entries))
        self.broker.kill()
        self.broker.wait()
        self.start_broker()

    def until_log(self, words):
        """Waits until the broker has logged this."""
        deadline = time.monotonic() + 20
        while words not in self._log(self.broker):
            assert time.monotonic() < deadline, f"the broker never said {words!r}"
            time.sleep(0.05)

    def change_policy(self, before, after):
        file = self._folder / "policy.yaml"
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))

    def _addresses(self):
        lines = [line for line in self._log(self.broker).splitlines() if "listening" in line]
        return dict(re.findall(r"\b(drivers|admin)=(127\.0\.0\.1:\d+)", "\n".join(lines)))

    def start_driver(self, name, *flags):
        cloud = self._folder / "cloud"
        flags = ["--broker", self.listen, "--instance-id", name, "--cloud", cloud, *flags]
        token = {"BROKER_TOKEN": self.tokens["driver"]} if self.tokens else {}
        return self._start("sim-driver", *flags, **token)

    def freeze(self, process):
        """Still there for the operating system, and dead to all others."""
        process.send_signal(signal.SIGSTOP)

    def create_later(self, name, class_name="small"):
        return self._start(
            "brokerctl", "--broker", self.listen, "machines", "create", name,
            "--kind", KIND, "--class", class_name,
        )

    def machines(self, verb, *name, class_name="small"):
        """Returns whether it went well."""
        process = self._start(
            "brokerctl", "--broker", self.listen, "machines", verb, *name,
            "--kind", KIND, "--class", class_name,
        )
        return process.wait(60) == 0

    def login_page(self, path="/"):
        """What a browser that is not logged in gets to see."""
        tab = self._browser.open(f"http://{self.admin}{path}")
        self._tabs.append(tab)
        # What is typed before the field has the focus goes nowhere.
        tab.until(
            "there is a form to type in",
            "document.readyState === 'complete' && document.activeElement?.id === 'token'",
        )
        return tab

    def logged_in(self, name):
        tab = self.login_page()
        tab.type(self.tokens[name])
        tab.press("Enter", 13)
        self._until_live(tab)
        return tab

    def page(self, path="/"):
        tab = self._browser.open(f"http://{self.admin}{path}")
        self._tabs.append(tab)
        self._until_live(tab)
        return tab

    def _until_live(self, tab):
        tab.until("the page is live", "document.querySelector('#health')?.textContent.length > 1")

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
            return answer.headers, answer.read().decode()

    def picture(self, tab, name):
        tab.picture(self._pictures / f"{name}.png")

    def _start(self, name, *args, **env):
        file = self._folder / f"{len(self._processes)}.log"
        with file.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in (self._programs / name, *args)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, "NO_COLOR": "1", **env},
            )
        process.log = file
        self._processes.append(process)
        return process

    def _log(self, process):
        return re.sub(r"\x1b\[[0-9;]*m", "", process.log.read_text(errors="replace"))

    def show_logs(self):
        for process in self._processes:
            print(f"---- {process.args[:3]}", *self._log(process).splitlines()[-20:], sep="\n")
