"""A driver that behaves as the Go client library of 2018 does, in another language.

It is here to be as old as it can be, not to be copied: it waits for the broker to speak first,
serves one operation at a time and reads nothing meanwhile, has no heartbeat, and after the end of a
stream dials again for ever. Its cloud is a folder, so that machines outlive it. Like the AWS driver
of that time it makes a machine each time it is asked: an operation sent twice shows as two machines
of one name. With --idempotent it looks first, as others did.

Needs the stubs `infra_pb2` and `service_pb2` on its path; see `stubs.py`.
"""

import argparse
import base64
import contextlib
import importlib
import json
import logging
import os
import pathlib
import queue
import signal
import threading
import time
import uuid

import grpc

CALL_TIMEOUT = 1.0  # seconds, for a class or a secret
STOP_GRACE = 10  # seconds for the broker to end the stream after our "unregister"

log = logging.getLogger("driver").info


class Cloud:
    """Machines as files in a folder. Lets two of them carry one name, as clouds do."""

    def __init__(self, folder, *, delay=0.0, journal=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.delay = delay
        self.journal = journal or Journal(None)
        # While this file exists, creates are slow: they started and do not end.
        self.hold = self.folder / "hold"
        # While this file exists, creates fail with its text.
        self.fault = self.folder / "fault"

    def started(self, name):
        """Exists from the moment on that a create of `name` has begun."""
        return self.folder / f"{name}.started"

    def create(self, name, record):
        self.started(name).touch()
        while self.hold.exists():
            time.sleep(0.02)
        if self.fault.exists():
            raise RuntimeError(self.fault.read_text().strip())
        # Half of the time before the machine is there and half after, for those who are killed.
        time.sleep(self.delay / 2)
        provider_id = f"legacy:///{uuid.uuid4()}"
        path = self._path(provider_id)
        # In one step, so that a reader never meets half a machine.
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"id": provider_id, "name": name, **record}))
        self.journal.write("making", id=provider_id, machine=name)
        part.rename(path)
        time.sleep(self.delay / 2)
        return provider_id

    def named(self, name):
        """The id of a machine of this name, or None."""
        return next((vm["id"] for vm in self.machines() if vm["name"] == name), None)

    def delete(self, provider_id):
        self._path(provider_id).unlink(missing_ok=True)

    def machines(self):
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("vm-*.json"))]

    def _path(self, provider_id):
        return self.folder / f"vm-{provider_id.rpartition('/')[2]}.json"


class Journal:
    """Tells tests what was done, in the lines of the sim driver's journal."""

    def __init__(self, path):
        self.file = None if path is None else os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.number = 0

    def write(self, what, **facts):
        if self.file is not None:
            line = {"at": time.monotonic_ns(), "process": os.getpid(), "what": what, **facts}
            # One write, so that a line is whole or not there.
            os.write(self.file, json.dumps(line).encode() + b"\n")

    @contextlib.contextmanager
    def executing(self, verb, machine):
        self.number += 1
        self.write("began", number=self.number, verb=verb, machine=machine, traceparent=None)
        try:
            yield
        finally:
            self.write("ended", number=self.number)


class Driver:
    """The client library's part and the provider's, as one class."""

    def __init__(
        self, broker, cloud, *, service, kind, group, version, retry=5.0, idempotent=False
    ):
        package, _, self.service = service.partition(".")
        self.pb = importlib.import_module(f"{package}_pb2")
        self.pb_grpc = importlib.import_module(f"{package}_pb2_grpc")
        self.broker, self.cloud, self.retry = broker, cloud, retry
        self.idempotent = idempotent
        self.kind, self.group, self.version = kind, group, version
        self.stub = None
        self.answers = None
        self.stopping = threading.Event()
        self.abandoned = []

    def start(self):
        """Serves until it is stopped, dialling again and again."""
        while not self.stopping.is_set():
            try:
                self._serve()
            except grpc.RpcError as error:
                log(f"stream broke: {error.code().name}: {error.details()}")
            else:
                log("stream ended")
            if self.stopping.is_set():
                return
            log(f"dialling again in {self.retry} s")
            self.stopping.wait(self.retry)

    def stop(self):
        """Takes leave. An operation still running goes on, but its answer is lost."""
        self.stopping.set()
        if self.answers is not None:
            self.answers.put(self.pb.DriverSide(operationType="unregister"))
            self.answers.put(None)  # half-close

    def _serve(self):
        # Python's channels to one address share a connection unless told otherwise. Each dial of
        # the Go client is a connection of its own, and the broker knows its drivers by them.
        channel = grpc.insecure_channel(
            self.broker, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        # The Go client never closes a connection, and one of its time comes back by itself.
        channel.subscribe(lambda _: None, try_to_connect=True)
        self.abandoned.append(channel)
        self.stub = getattr(self.pb_grpc, f"{self.service}Stub")(channel)
        answers = queue.SimpleQueue()
        self.answers = answers
        frames = self.stub.Register(iter(answers.get, None))
        try:
            for frame in frames:
                with self._executing(frame):
                    answers.put(self._answer(frame))
        finally:
            # Ends the thread in which grpc waits for our next answer.
            answers.put(None)

    def _executing(self, frame):
        if frame.operationType == "register":
            return contextlib.nullcontext()
        return self.cloud.journal.executing(frame.operationType, frame.params.machineName)

    def _answer(self, frame):
        log(f"operation {frame.operationID} {frame.operationType} {frame.params.machineName}")
        answer = self.pb.DriverSide(
            operationID=frame.operationID, operationType=frame.operationType
        )
        params = frame.params
        match frame.operationType:
            case "register":
                answer.registration.name = "externalDriver"
                answer.registration.group = self.group
                answer.registration.kind = self.kind
                answer.registration.version = self.version
            case "create":
                self._must_be_set(frame)
                answer.create.SetInParent()
                try:
                    provider_id = self._create(params.machineClass, params.machineName)
                    answer.create.providerID = provider_id
                    answer.create.nodename = f"node-{params.machineName}"
                except Exception as error:
                    answer.create.error = str(error)
            case "delete":
                self._must_be_set(frame)
                answer.delete.SetInParent()
                if params.machineID:
                    self.cloud.delete(params.machineID)
                else:
                    answer.delete.error = "cannot delete a machine without its id"
            case "list":
                self._must_be_set(frame)
                answer.list.SetInParent()
                for machine in self.cloud.machines():
                    wanted = params.machineID in ("", machine["id"])
                    if wanted and machine["class"] == params.machineClass.name:
                        answer.list.machines.add(
                            machineID=machine["id"], machineName=machine["name"]
                        )
        return answer

    @staticmethod
    def _must_be_set(frame):
        # Where the Go client would follow a nil pointer, we die as well.
        if not frame.HasField("params") or not frame.params.HasField("machineClass"):
            log("CRASH: an operation without params or class")
            os._exit(2)

    def _create(self, meta, machine_name):
        machine_class = json.loads(self.get_machine_class(meta.name, meta.revision))
        reference = machine_class["spec"]["secretRef"]
        secret = json.loads(self.get_secret(reference["name"], reference["namespace"]))
        user_data = base64.b64decode(secret["data"]["userData"], validate=True).decode()
        record = {"class": meta.name, "revision": meta.revision, "userData": user_data}
        record["machineType"] = machine_class["spec"]["machineType"]
        if self.idempotent and (there := self.cloud.named(machine_name)):
            return there
        return self.cloud.create(machine_name, record)

    def get_machine_class(self, name, revision):
        meta = self.pb.MachineClassMeta(name=name, revision=revision)
        return self._data(self.stub.GetMachineClass(meta, timeout=CALL_TIMEOUT))

    def get_secret(self, name, namespace):
        meta = self.pb.SecretMeta(secretName=name, nameSpace=namespace, revision=1)
        return self._data(self.stub.GetSecret(meta, timeout=CALL_TIMEOUT))

    @staticmethod
    def _data(reply):
        if reply.error:
            raise RuntimeError(reply.error)
        return reply.data


def main():
    parser = argparse.ArgumentParser(description="a driver as of 2018")
    parser.add_argument("--broker", required=True, help="HOST:PORT")
    parser.add_argument("--cloud", required=True, help="folder that holds the machines")
    parser.add_argument("--service", default="infra.Infragrpc", help="or service.Servicegrpc")
    parser.add_argument("--kind", default="AWSMachineClass")
    parser.add_argument("--group", default="machine.sapcloud.io")
    parser.add_argument("--version", default="v1alpha1")
    parser.add_argument("--retry", type=float, default=5.0, help="seconds between two dials")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that a create takes")
    parser.add_argument("--idempotent", action="store_true", help="look before making")
    parser.add_argument("--journal", help="file to append what is done to, for tests")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    driver = Driver(
        args.broker,
        Cloud(args.cloud, delay=args.delay, journal=Journal(args.journal)),
        service=args.service,
        kind=args.kind,
        group=args.group,
        version=args.version,
        retry=args.retry,
        idempotent=args.idempotent,
    )

    def terminate(*_):
        driver.stop()
        # We leave when the broker ends the stream. One that does not is shown by our death.
        signal.alarm(STOP_GRACE)

    signal.signal(signal.SIGTERM, terminate)
    driver.start()
    for channel in driver.abandoned:
        channel.close()
    log("left")


if __name__ == "__main__":
    main()
