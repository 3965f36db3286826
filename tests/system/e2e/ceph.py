"""Ceph's messenger: a monitor of its own on one device, and who asks it on the other."""
import os
import pathlib
import re
import shutil

import programs as stock
from harness import Failed, Skipped, tail

FSID = "7f2c1d9a-5b3e-4c68-9a41-0d2e6f8b7c15"
PORTS = (3300, 6789)
OCTETS = 60000  # that it is told to keep


def settings(wire, directory, side):
    """A file of them, for the programs of one side: they take their device by its name."""
    device = stock.device_of(side)
    path = directory / f"{device}.conf"
    path.write_text(f"""[global]
fsid = {FSID}
mon_host = {wire.address}
public_addr = {wire.address}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_type = async+rdma
ms_async_rdma_cm = true
ms_async_rdma_type = iwarp
ms_async_rdma_device_name = {device}
mon_data = {directory}/data
mon_data_avail_warn = 0
run_dir = {directory}
admin_socket = {directory}/$name.$pid.asok
log_file = {directory}/$name.log
""")
    return ["-c", str(path)]


def monitor(wire):
    """It says that it is the quorum, and keeps what it is told, each time by a call of its own."""
    if not shutil.which("ceph-mon") or not shutil.which("ceph"):
        raise Skipped("needs the packages ceph-mon and ceph-common")
    directory = pathlib.Path(wire.world.directory, "ceph")
    directory.mkdir(exist_ok=True)
    run = wire.world.run
    addresses = ",".join(f"v{version}:{wire.address}:{port}" for version, port in zip((2, 1), PORTS))
    run(["monmaptool", "--create", "--clobber", "--fsid", FSID, "--addv", "a", f"[{addresses}]", directory / "monmap"])
    of_server, of_client = (settings(wire, directory, side) for side in (wire.server, wire.client))
    run([*wire.server, "ceph-mon", *of_server, "--mkfs", "-i", "a", "--monmap", directory / "monmap"], 120)
    server = wire.start_server(["ceph-mon", *of_server, "-f", "-i", "a"])

    def ask(*words):
        text = run([*wire.client, "ceph", *of_client, "--connect-timeout", "60", *words], 120)
        if not server.running():
            raise Failed(f"the monitor has ended:\n{tail(server.text())}")
        return text

    try:
        before = stock.octets_out(wire)
        text = ask("-s")
        if not re.search(r"mon: 1 daemons, quorum a\b", text):
            raise Failed(f"no quorum:\n{tail(text)}\n--- monitor\n{tail(server.text())}")
        told, kept = directory / "told", directory / "kept"
        told.write_bytes(os.urandom(OCTETS))
        ask("config-key", "set", "rnic", "-i", told)
        ask("config-key", "get", "rnic", "-o", kept)
        if kept.read_bytes() != told.read_bytes():
            raise Failed("what it keeps is not what it was told")
        if stock.octets_out(wire) - before < 2 * OCTETS:
            raise Failed(f"the devices have sent {stock.octets_out(wire) - before} octets")
    finally:
        server.end()
