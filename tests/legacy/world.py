"""Actors with verbs for the scenarios: a broker, the drivers that dial in, and a controller."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import grpc
from google.rpc import error_details_pb2, status_pb2
from machinebroker.v1 import machines_pb2, machines_pb2_grpc, registry_pb2, registry_pb2_grpc

from driver import Cloud

GROUP, VERSION = "machine.sapcloud.io", "v1alpha1"
KIND, OTHER_KIND = "AWSMachineClass", "OtherMachineClass"
NAMESPACE_PATH = f"/apis/{GROUP}/{VERSION}/namespaces/default"
CLASS_PATH = f"{NAMESPACE_PATH}/awsmachineclasses/test-aws"
OTHER_CLASS_PATH = f"{NAMESPACE_PATH}/othermachineclasses/test-other"

CLASS = """\
apiVersion: machine.sapcloud.io/v1alpha1
kind: {kind}
metadata:
  name: {name}
  namespace: default
spec:
  machineType: {machine_type}
  secretRef:
    name: {secret}
    namespace: default
"""
SECRET = """\
apiVersion: v1
kind: Secret
metadata:
  name: {name}
  namespace: default
stringData:
  userData: user data of {name}
"""


def wait_until(what, condition, timeout=20.0):
    """Returns the condition's first true value, or fails with what was waited for."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what}")
        time.sleep(0.02)
    return value


def delivery(error):
    """How far the broker says that a failed operation got."""
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return info.metadata.get("delivery")
    raise AssertionError(f"no ErrorInfo comes with {error.code().name}: {error.details()}")


class Process:
    """A program whose output goes to a file."""

    def __init__(self, log, command, **env):
        self.log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **env},
            )

    def output(self):
        return self.log.read_text(errors="replace")

    def terminate(self):
        self.popen.terminate()

    def freeze(self):
        """Still there for the operating system, and dead to all others."""
        self.popen.send_signal(signal.SIGSTOP)

    def kill(self):
        self.popen.kill()
        self.popen.wait()

    def wait(self, timeout):
        """The exit code."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.log.stem} still runs after {timeout} s") from None


class World:
    """One broker with its catalog, and whoever dials in."""

    def __init__(self, machine_broker, brokerctl, stubs):
        self._machine_broker, self._brokerctl, self._stubs = machine_broker, brokerctl, stubs
        self._stack = contextlib.ExitStack()
        self._processes = []
        self.address = "127.0.0.1:0"

    def __enter__(self):
        temporary = tempfile.TemporaryDirectory(prefix="legacy-world-")
        self._folder = pathlib.Path(self._stack.enter_context(temporary))
        self._catalog = self._folder / "catalog"
        self._catalog.mkdir()
        self.cloud = Cloud(self._folder / "cloud")
        self.write_class("test-aws", KIND, secret="test-secret")
        self.write_class("test-other", OTHER_KIND, secret="other-secret")
        for name in ("test-secret", "other-secret", "nobodys-secret"):
            (self._catalog / f"{name}.yaml").write_text(SECRET.format(name=name))
        try:
            self.start_broker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
        self._stack.close()

    def write_class(self, name, kind, *, secret, machine_type="small"):
        text = CLASS.format(kind=kind, name=name, secret=secret, machine_type=machine_type)
        # In one step, since the broker watches this folder.
        part = self._folder / "part"
        part.write_text(text)
        part.rename(self._catalog / f"class-{name}.yaml")

    def show_logs(self):
        for process in self._processes:
            tail = process.output().splitlines()[-40:]
            print(f"---- {process.log.stem}", *tail, sep="\n")

    # ---- processes ----

    def start_broker(self, *flags):
        """Starts the broker; again, if it ran before, on the address that it had."""
        command = [self._machine_broker, "serve", "--listen", self.address]
        command += ["--admin", "127.0.0.1:0", "--catalog", f"dir:{self._catalog}", *flags]
        self.broker = self._start("broker", command)
        self.address = wait_until("the broker logs its addresses", self._addresses)["drivers"]
        # A connection of its own for each broker: one that saw the last broker die backs off first.
        channel = grpc.insecure_channel(
            self.address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._stack.enter_context(channel)
        self.machines = machines_pb2_grpc.MachinesStub(channel)
        self.registry = registry_pb2_grpc.RegistryStub(channel)

    def _addresses(self):
        """What the broker says it listens on, by the name of the port."""
        assert self.broker.popen.poll() is None, f"no broker:\n{self.broker.output()}"
        lines = [line for line in self.broker.output().splitlines() if "listening" in line]
        found = dict(re.findall(r"\b(drivers|admin)=(127\.0\.0\.1:\d+)", "\n".join(lines)))
        return found if len(found) == 2 else None

    def start_driver(self, service="infra.Infragrpc", kind=KIND):
        command = [sys.executable, pathlib.Path(__file__).with_name("driver.py")]
        command += ["--broker", self.address, "--cloud", self.cloud.folder]
        command += ["--service", service, "--kind", kind]
        # In the field it is 5 s, which would prove no more.
        command += ["--retry", "0.2"]
        return self._start("driver", command, PYTHONPATH=self._stubs)

    def _start(self, name, command, **env):
        process = Process(self._folder / f"{name}-{len(self._processes)}.log", command, **env)
        self._processes.append(process)
        return process

    # ---- operators ----

    def brokerctl(self, *args):
        command = [self._brokerctl, "--broker", self.address, *args, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"brokerctl {args}: {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)

    def drivers(self):
        return self.registry.ListDrivers(registry_pb2.ListDriversRequest(), timeout=5).drivers

    def wait_for_drivers(self, *kinds):
        """Waits until drivers of just these kinds are registered."""

        def registered():
            drivers = self.drivers()
            served = sorted(kind.kind for driver in drivers for kind in driver.kinds)
            return served == sorted(kinds) and [True, drivers]

        return wait_until(f"drivers registered: {kinds or 'none'}", registered)[1]

    def running_operations(self):
        answer = self.registry.ListOperations(registry_pb2.ListOperationsRequest(), timeout=5)
        return [operation for operation in answer.operations if not operation.finished]

    # ---- controllers ----

    def create(self, name, class_name="test-aws", kind=KIND, timeout=30):
        return self.machines.CreateMachine(machine(name, "", class_name, kind), timeout=timeout)

    def create_later(self, name):
        """Submits a create and returns its future."""
        return self.machines.CreateMachine.future(machine(name), timeout=120)

    def delete(self, name, provider_id):
        self.machines.DeleteMachine(machine(name, provider_id), timeout=30)

    def list(self, provider_id=""):
        """Names of the machines by provider id."""
        request = machines_pb2.ListMachinesRequest(
            **{"class": class_ref()}, provider_id=provider_id
        )
        answer = self.machines.ListMachines(request, timeout=30)
        return {listed.provider_id: listed.machine_name for listed in answer.machines}


def machine(name, provider_id="", class_name="test-aws", kind=KIND):
    return machines_pb2.MachineRequest(
        **{"class": class_ref(class_name, kind)}, machine_name=name, provider_id=provider_id
    )


def class_ref(name="test-aws", kind=KIND):
    return machines_pb2.ClassRef(
        api_version=f"{GROUP}/{VERSION}", kind=kind, namespace="default", name=name
    )
