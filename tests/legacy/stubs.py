"""Compiles every protocol that the drivers and controllers of these tests speak: `stubs.py FOLDER`."""

import pathlib
import sys

import grpc_tools
from grpc_tools import protoc

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "proto" / "proto"


def generate_stubs(folder):
    """Compiles every protocol that is spoken here into `folder`, never into the checkout."""
    infra = (HERE / "infra.proto").read_text()
    # The second generation of drivers: other names, the same messages.
    service = infra.replace("package infra;", "package service;")
    service = service.replace("service Infragrpc", "service Servicegrpc")
    (folder / "infra.proto").write_text(infra)
    (folder / "service.proto").write_text(service)

    bundled = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    ours = [f"machinebroker/v1/{name}.proto" for name in ("driver", "machines", "registry")]
    failed = protoc.main(
        ["protoc", f"-I{folder}", f"-I{PROTO}", f"-I{bundled}"]
        + [f"--python_out={folder}", f"--grpc_python_out={folder}"]
        + ["infra.proto", "service.proto", *ours]
    )
    if failed:
        sys.exit("cannot compile the protocols")


if __name__ == "__main__":
    generate_stubs(pathlib.Path(sys.argv[1]))
