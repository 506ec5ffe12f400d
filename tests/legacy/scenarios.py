"""What a driver of 2018 and its callers can rely on. Each function is one scenario."""

import contextlib
import queue
import threading
from collections import Counter
from concurrent import futures

import grpc
import infra_pb2
import infra_pb2_grpc
from machinebroker.v1 import registry_pb2

import world as w
from driver import Driver
from world import CLASS_PATH, GROUP, KIND, OTHER_CLASS_PATH, OTHER_KIND, VERSION, wait_until


def a_driver_registers_under_either_historic_name(world):
    for service in ("infra.Infragrpc", "service.Servicegrpc"):
        process = world.start_driver(service)
        (driver,) = world.wait_for_drivers(KIND)
        assert driver.protocol == 0, driver
        assert driver.capacity == 1, driver
        assert driver.name == "externalDriver", driver
        assert driver.kinds[0].api_version == f"{GROUP}/{VERSION}", driver
        assert KIND in str(world.brokerctl("drivers")), "brokerctl shows it as well"

        # It does its work under this name, and leaves.
        created = world.create(f"by-{service.lower()}")
        assert world.list() == {created.provider_id: f"by-{service.lower()}"}
        world.delete(f"by-{service.lower()}", created.provider_id)
        process.terminate()
        assert process.wait(20) == 0
        world.wait_for_drivers()


def a_hundred_machines_are_created_listed_and_deleted(world):
    world.start_driver()
    world.wait_for_drivers(KIND)
    names = [f"machine-{number:03}" for number in range(100)]

    # The first ones by turns, the rest all at once.
    answers = {name: world.create(name) for name in names[:20]}
    pending = {name: world.create_later(name) for name in names[20:]}
    answers |= {name: future.result() for name, future in pending.items()}
    for name, answer in answers.items():
        assert answer.provider_id and answer.node_name == f"node-{name}", answer

    # Each machine exists once, made with the class and the secret that its driver fetched.
    machines = world.cloud.machines()
    assert Counter(vm["name"] for vm in machines) == Counter(names)
    for vm in machines:
        assert vm["class"] == CLASS_PATH, vm
        assert vm["machineType"] == "small", vm
        assert vm["userData"] == "user data of test-secret", vm

    expected = {answer.provider_id: name for name, answer in answers.items()}
    assert world.list() == expected
    first, provider_id = names[0], answers[names[0]].provider_id
    assert world.list(provider_id) == {provider_id: first}

    world.delete(first, provider_id)
    world.delete(first, provider_id)
    del expected[provider_id]
    assert world.list() == expected

    # The name is free again, and the create of before is not taken for this one.
    again = world.create(first)
    assert again.provider_id not in (provider_id, ""), again
    for name, answer in answers.items():
        world.delete(name, again.provider_id if name == first else answer.provider_id)
    assert world.list() == {}
    assert world.cloud.machines() == []


def brokerctl_drives_a_legacy_driver(world):
    world.start_driver()
    world.wait_for_drivers(KIND)
    of_class = ["--kind", KIND, "--class", "test-aws"]
    world.brokerctl("machines", "create", "typed", *of_class)
    (vm,) = world.cloud.machines()
    assert vm["name"] == "typed", vm
    assert vm["id"] in str(world.brokerctl("machines", "list", *of_class))
    world.brokerctl("machines", "delete", "typed", "--provider-id", vm["id"], *of_class)
    assert world.cloud.machines() == []


def an_edited_class_comes_with_another_revision(world):
    world.start_driver()
    world.wait_for_drivers(KIND)
    world.create("before")
    (before,) = world.cloud.machines()
    world.write_class("test-aws", KIND, secret="test-secret", machine_type="large")

    # A create on its way while the broker reads the edit may come with the old revision and find
    # the new class: that is as good. In the end both are new.
    def made_with_the_edit():
        world.create(f"after-{len(world.cloud.machines())}")
        return any(
            vm["machineType"] == "large" and vm["revision"] != before["revision"]
            for vm in world.cloud.machines()
        )

    wait_until("a machine is made with the edited class", made_with_the_edit)


def a_driver_comes_back_by_itself_after_the_broker_was_killed(world):
    driver = world.start_driver()
    world.wait_for_drivers(KIND)
    before = world.create("before")

    for _ in range(2):
        world.broker.kill()
        world.start_broker()
        world.wait_for_drivers(KIND)

    assert world.list() == {before.provider_id: "before"}
    after = world.create("after")
    assert world.list() == {before.provider_id: "before", after.provider_id: "after"}
    world.delete("before", before.provider_id)
    assert Counter(vm["name"] for vm in world.cloud.machines()) == {"after": 1}
    assert driver.popen.poll() is None, "the driver never died"


def a_create_that_outlives_the_broker_is_found_and_not_repeated(world):
    world.start_driver()
    world.wait_for_drivers(KIND)
    world.cloud.hold.touch()
    create = world.create_later("survivor")
    wait_until("the create has begun", world.cloud.started("survivor").exists)

    world.broker.kill()
    assert _error_of(create).code() == grpc.StatusCode.UNAVAILABLE
    world.start_broker()
    world.cloud.hold.unlink()

    # The driver finishes, finds its stream broken and dials again.
    world.wait_for_drivers(KIND)
    assert list(world.list().values()) == ["survivor"]
    assert len(world.cloud.machines()) == 1


def callers_of_a_dead_driver_learn_how_far_they_got(world):
    driver = world.start_driver()
    world.wait_for_drivers(KIND)
    world.cloud.hold.touch()
    first = world.create_later("sent")
    wait_until("the create has begun", world.cloud.started("sent").exists)
    queued = [world.create_later(f"queued-{number}") for number in range(5)]
    wait_until("all are known to the broker", lambda: len(world.running_operations()) == 6)

    # It takes one at a time, so the broker keeps what it could not serve yet.
    sent = [
        operation.machine_name
        for operation in world.running_operations()
        if operation.delivery != registry_pb2.DELIVERY_NOT_SENT
    ]
    assert sent == ["sent"], sent

    driver.kill()
    error = _error_of(first)
    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN), error
    assert w.delivery(error) == "ACCEPTED", error
    for future in queued:
        error = _error_of(future)
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        assert w.delivery(error) == "NOT_SENT", error
    world.wait_for_drivers()


def callers_of_a_frozen_driver_do_not_wait_for_ever(world):
    driver = world.start_driver()
    world.wait_for_drivers(KIND)
    world.cloud.hold.touch()
    create = world.create_later("frozen")
    wait_until("the create has begun", world.cloud.started("frozen").exists)
    driver.freeze()

    # Only its transport can tell, which takes the broker two keepalives.
    error = _error_of(create)
    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN), error
    assert w.delivery(error) == "ACCEPTED", error
    world.wait_for_drivers()


def silence_is_no_fault_of_a_driver_without_heartbeats(world):
    world.broker.kill()
    world.start_broker("--ping-every=50ms", "--suspect-after=100ms", "--dead-after=200ms")
    world.start_driver()
    (driver,) = world.wait_for_drivers(KIND)

    # Idle for much longer than the life of a native driver that falls silent.
    wait_until("two silent seconds", lambda: world.drivers()[0].last_heard.ToMilliseconds() > 2000)
    # And at work.
    world.cloud.hold.touch()
    create = world.create_later("slow")

    def worked_for_two_seconds():
        return any(operation.age.seconds >= 2 for operation in world.running_operations())

    wait_until("the create takes its time", worked_for_two_seconds)
    world.cloud.hold.unlink()
    assert create.result().provider_id

    (same,) = world.drivers()
    assert same.session_id == driver.session_id, same
    assert same.state == registry_pb2.DRIVER_STATE_READY, same


def sigterm_unregisters_a_driver_at_once(world):
    driver = world.start_driver()
    world.wait_for_drivers(KIND)
    driver.terminate()
    # It goes only when the broker has answered its "unregister" with the end of the stream.
    assert driver.wait(20) == 0
    assert not world.drivers()

    error = _error_of(world.create_later("too-late"))
    assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    assert w.delivery(error) == "NOT_SENT", error
    assert KIND in error.details(), error


def the_broker_stops_in_time_with_a_legacy_driver_connected(world):
    driver = world.start_driver()
    world.wait_for_drivers(KIND)
    world.broker.terminate()
    assert world.broker.wait(45) == 0
    assert driver.popen.poll() is None, "it goes on dialling"
    world.start_broker()
    world.wait_for_drivers(KIND)


def errors_are_told_as_the_driver_told_them(world):
    world.start_driver()
    world.wait_for_drivers(KIND)
    world.cloud.fault.write_text("quota of 7 machines exceeded")
    error = _error_of(world.create_later("too-many"))
    assert error.details().count("quota of 7 machines exceeded") == 1, error
    assert w.delivery(error) == "ANSWERED", error
    assert error.code() not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE), error

    # A definite failure is not remembered: the same request executes again.
    world.cloud.fault.unlink()
    assert world.create("too-many").provider_id


def a_verb_of_later_times_is_never_sent(world):
    driver = world.start_driver()
    world.wait_for_drivers(KIND)
    for verb in (world.machines.InitializeMachine, world.machines.GetMachineStatus):
        error = _error_of(verb.future(w.machine("modern"), timeout=30))
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        assert w.delivery(error) == "NOT_SENT", error
    world.create("classic")
    kinds = [line.split()[2] for line in driver.output().splitlines() if "operation" in line]
    assert kinds == ["register", "create"], kinds


def a_class_that_does_not_exist_is_not_found(world):
    driver = world.start_driver()
    world.wait_for_drivers(KIND)
    with _raises(grpc.StatusCode.NOT_FOUND):
        world.create("orphan", class_name="no-such-class")
    # That of another kind neither, though its name is right.
    with _raises(grpc.StatusCode.NOT_FOUND):
        world.create("orphan", class_name="test-other")
    assert "create" not in driver.output()


def a_driver_gets_its_own_classes_and_secrets_and_no_others(world):
    with _driver_in_this_process(world, KIND) as driver:
        world.wait_for_drivers(KIND)
        assert "small" in driver.get_machine_class(CLASS_PATH, 1)
        assert "userData" in driver.get_secret("test-secret", "default")

        for path in (OTHER_CLASS_PATH, f"{CLASS_PATH}-not", "/api/v1/namespaces/default/pods/x", ""):
            _refused(driver.get_machine_class, path, 1)
        for name, namespace in (
            ("other-secret", "default"),
            ("nobodys-secret", "default"),
            ("test-secret", "kube-system"),
            ("", ""),
        ):
            _refused(driver.get_secret, name, namespace)

    # Who has not registered gets nothing at all.
    channel = grpc.insecure_channel(
        world.address, options=[("grpc.use_local_subchannel_pool", 1)]
    )
    with channel:
        stranger = Driver(
            world.address, None, service="infra.Infragrpc", kind="", group="", version=""
        )
        stranger.stub = infra_pb2_grpc.InfragrpcStub(channel)
        _refused(stranger.get_machine_class, CLASS_PATH, 1)
        _refused(stranger.get_secret, "test-secret", "default")


def a_driver_of_another_kind_disturbs_nobody(world):
    world.start_driver()
    world.wait_for_drivers(KIND)
    with _driver_in_this_process(world, OTHER_KIND) as other:
        world.wait_for_drivers(KIND, OTHER_KIND)
        _refused(other.get_machine_class, CLASS_PATH, 1)
        _refused(other.get_secret, "test-secret", "default")
        world.create("ours")
        world.create("theirs", class_name="test-other", kind=OTHER_KIND)
        classes = {vm["name"]: vm["class"] for vm in world.cloud.machines()}
        assert classes == {"ours": CLASS_PATH, "theirs": OTHER_CLASS_PATH}, classes
    world.wait_for_drivers(KIND)
    world.create("ours-still")


def a_driver_without_a_kind_is_turned_away(world):
    world.start_driver()
    world.wait_for_drivers(KIND)
    nameless = world.start_driver(kind="")
    wait_until("it was refused twice", lambda: nameless.output().count("stream ") >= 2)
    assert [kind.kind for driver in world.drivers() for kind in driver.kinds] == [KIND]
    world.create("undisturbed")


def the_driver_itself_behaves_as_the_go_client(world):
    """Holds our peer, not the broker, against what is known of the client library of 2018."""
    script, seen = queue.SimpleQueue(), queue.SimpleQueue()

    class Broker(infra_pb2_grpc.InfragrpcServicer):
        def Register(self, request_iterator, context):
            def read():
                for frame in request_iterator:
                    seen.put(frame)
                seen.put("half-close")

            reader = threading.Thread(target=read)
            reader.start()
            yield from iter(script.get, None)
            reader.join()

        def GetMachineClass(self, request, context):
            seen.put(request)
            return infra_pb2.MachineClass(error="no class today")

    server = grpc.server(futures.ThreadPoolExecutor(4))
    infra_pb2_grpc.add_InfragrpcServicer_to_server(Broker(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    driver = Driver(
        f"127.0.0.1:{port}",
        world.cloud,
        service="infra.Infragrpc",
        kind=KIND,
        group=GROUP,
        version=VERSION,
        retry=0.1,
    )
    thread = threading.Thread(target=driver.start)
    thread.start()
    try:
        # Asked to register, it does, with the question's id.
        script.put(infra_pb2.MCMside(operationID=1, operationType="register"))
        answer = seen.get(timeout=10)
        assert (answer.operationID, answer.operationType) == (1, "register"), answer
        assert answer.registration.kind == KIND, answer

        # A type it does not know comes back bare.
        script.put(infra_pb2.MCMside(operationID=2, operationType="polish"))
        assert seen.get(timeout=10) == infra_pb2.DriverSide(operationID=2, operationType="polish")

        # It sends the class back as it came, and hands an error in the reply on.
        create = infra_pb2.MCMside(operationID=3, operationType="create")
        create.params.machineClass.name = "as/it came"
        create.params.machineClass.revision = 12
        script.put(create)
        assert seen.get(timeout=10) == create.params.machineClass
        assert seen.get(timeout=10).create.error == "no class today"

        # The stream's end makes it dial again.
        script.put(None)
        driver.answers.put(None)
        assert seen.get(timeout=10) == "half-close"
        script.put(infra_pb2.MCMside(operationID=1, operationType="register"))
        assert seen.get(timeout=10).registration.version == VERSION

        driver.stop()
        assert seen.get(timeout=10) == infra_pb2.DriverSide(operationType="unregister")
        assert seen.get(timeout=10) == "half-close"
        script.put(None)
    finally:
        driver.stopping.set()
        server.stop(0).wait()
        thread.join()


# ---- helpers ----


def _error_of(call):
    """The error that a call ends with, long before its deadline."""
    error = call.exception(timeout=60)
    assert error is not None, f"it succeeded: {call.result()}"
    return error


@contextlib.contextmanager
def _raises(code):
    try:
        yield
    except grpc.RpcError as error:
        assert error.code() == code, error
    else:
        raise AssertionError(f"it succeeded instead of {code.name}")


def _refused(ask, *args):
    """Refused by the broker itself: a call that timed out proves nothing."""
    try:
        answer = ask(*args)
    except grpc.RpcError as error:
        late = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
        assert error.code() not in late, error
    except RuntimeError:
        pass  # the reply's `error`
    else:
        raise AssertionError(f"{ask.__name__}{args} was answered: {answer}")


@contextlib.contextmanager
def _driver_in_this_process(world, kind):
    """A driver whose questions the scenario asks itself."""
    driver = Driver(
        world.address,
        world.cloud,
        service="infra.Infragrpc",
        kind=kind,
        group=GROUP,
        version=VERSION,
        retry=0.2,
    )
    thread = threading.Thread(target=driver.start)
    thread.start()
    try:
        yield driver
    finally:
        driver.stop()
        thread.join(20)
        assert not thread.is_alive(), "the broker did not end the stream after unregister"
