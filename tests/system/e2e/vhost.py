"""Two daemons on the ends of virtio's rings, by DPDK's vhost and virtio drivers: what TCP hands to one as a run of
segments is cut by nobody, and comes out as one."""
import concurrent.futures
import os
import time

import programs as stock
from harness import RNIC, Failed, Wire


def vhost_wire(world):
    socket = world.directory + "/vhost.sock"
    ports = {"vh": (f"vdev:net_vhost0,iface={socket},tso=1", "10.77.0.1/24"),
             "vg": (f"vdev:net_virtio_user0,path={socket},queues=1,mac=02:00:00:00:77:02", "10.77.0.2/24")}
    # The host is up when its guest is there, who needs the host's socket.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        starts = []
        for name, (port, address) in ports.items():
            starts.append(threads.submit(world.up, name, ["--port", port, "--address", address]))
            deadline = time.monotonic() + 20
            while not os.path.exists(socket) and time.monotonic() < deadline and not starts[0].done():
                time.sleep(0.05)
    for start in starts:
        start.result()
    return Wire(world, "vhost and virtio", *([RNIC, "run", "--name", name] for name in ports), "10.77.0.1")


def runs_cross(world):
    """Both ways, as runs of the length that a frame of 16-bit lengths can have; nothing is lost, no checksum bad."""
    wire = vhost_wire(world)
    for name in ("vh", "vg"):
        port = world.show(name, "port")["port"][0]
        if port["run_bytes"] < 60000:
            raise Failed(f"it takes no runs: {port}")
    stock.rping(wire, 65000, 50)
    for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        stock.bandwidth(wire, program, "-n", "2000")
    for name in ("vh", "vg"):
        port = world.show(name, "port")["port"][0]
        bad = {key: port[key] for key in ("bad_frames", "bad_checksums", "dropped", "lost_at_port")}
        if any(bad.values()):
            raise Failed(f"{name}: {bad}")
        # Segments, though it is runs that cross: 2,000 Writes of 64 KiB alone are 90,000.
        if max(port["frames_in"], port["frames_out"]) < 90000:
            raise Failed(f"{name} counts runs as frames: {port}")
