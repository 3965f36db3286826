"""QEMU's live migration by RDMA."""
import json
import os
import pathlib
import shutil
import socket
import time

import programs as stock
from harness import Failed, Skipped, tail

QEMU = "qemu-system-x86_64"
OCTETS = 24 << 20  # that no page of which is all zeros
AT = 8 << 20       # where they are in the guest, and its firmware is not
PORT = 4444


class Monitor:
    """QEMU's, by QMP."""

    def __init__(self, process, path):
        self.process = process
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        process.until(lambda: self.socket.connect_ex(str(path)) == 0, "has a monitor", 60)
        self.lines = self.socket.makefile("r")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            said = json.loads(self.lines.readline())
            if "error" in said:
                raise Failed(f"{command}: {said['error']}\n{tail(self.process.text())}")
            if "return" in said:
                return said["return"]

    def until(self, command, there, limit_s):
        deadline = time.monotonic() + limit_s
        while True:
            said = self.ask(command)
            if there(said):
                return said
            if time.monotonic() > deadline or said.get("status") == "failed":
                raise Failed(f"{command}: {said}\n{tail(self.process.text())}")
            time.sleep(0.05)


def migrate(wire, pinned):
    """A guest without a system, in whose memory there is a pattern. It runs on at the other end, with its memory. With
    `pinned` all of it is registered at once, and sent, whatever is in it."""
    if not shutil.which(QEMU):
        raise Skipped("needs the package qemu-system-x86")
    scratch = pathlib.Path(wire.world.directory)
    pattern, arrived = scratch / "pattern", scratch / "arrived"
    pattern.write_bytes(os.urandom(OCTETS))

    def start(side, name, *options):
        path = scratch / f"{name}.qmp"
        path.unlink(missing_ok=True)
        process = wire.world.start([*side, QEMU, "-machine", "pc", "-accel", "tcg", "-m", "64", "-display", "none",
                                    "-nodefaults", "-qmp", f"unix:{path},server=on,wait=off", *options])
        ends.append(process)
        return Monitor(process, path)

    ends = []
    before, known = stock.octets_out(wire), wire.listeners()
    try:
        source = start(wire.client, "source", "-device", f"loader,file={pattern},addr={AT:#x},force-raw=on")
        target = start(wire.server, "target", "-incoming", "defer")
        for each in (source, target):
            each.ask("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": pinned}])
        where = f"rdma:{wire.address}:{PORT}"
        target.ask("migrate-incoming", uri=where)
        ends[1].until(lambda: wire.listeners() - known, "listens")
        source.ask("migrate", uri=where)
        said = source.until("query-migrate", lambda words: words.get("status") == "completed", 120)
        target.until("query-status", lambda words: words["status"] == "running", 30)
        target.ask("pmemsave", val=AT, size=OCTETS, filename=str(arrived))
        if arrived.read_bytes() != pattern.read_bytes():
            raise Failed("the memory that arrived is another")
        carried = stock.octets_out(wire) - before
        if carried < (64 << 20 if pinned else OCTETS):
            raise Failed(f"the devices have sent {carried} octets")
        return f"{carried >> 20} MiB by the devices, down for {said['downtime']} ms"
    finally:
        for each in ends:
            each.end()
