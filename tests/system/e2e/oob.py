"""Programs that connect their queue pairs without rdma_cm: they tell each other GIDs, queue pair and packet numbers over
the kernel's TCP, and call ibv_modify_qp. Devices with oob_connect."""
import pathlib
import re
import socket
import time

import programs as stock
from harness import RNIC, Failed, Wire, tail

EXCHANGE_PORT = 18515  # of ibverbs' examples and of perftest alike


def _device(port, address):
    return f'[[device]]\nport = "{port}"\naddress = "{address}"\noob_connect = true\n'


def _up(world, name, *devices):
    config = pathlib.Path(world.directory, name + ".toml")
    config.write_text("".join(_device(*each) for each in devices))
    world.up(name, ["--config", str(config)])
    return [RNIC, "run", "--name", name]


def pair(world):
    run = _up(world, "op", ("pair:o", "127.0.1.1/24"), ("pair:o", "127.0.1.2/24"))
    return Wire(world, "pair", [*run, "--device", "rnic1"], [*run, "--device", "rnic0"], "127.0.1.2", local=True)


def loopback(world):
    run = _up(world, "ol", ("loopback", "127.0.1.1/24"))
    return Wire(world, "loopback", run, run, "127.0.1.1", local=True)


def memif(world):
    socket = world.directory + "/oob.sock"
    server = _up(world, "oa", (f"memif:{socket},role=server", "127.0.1.3/24"))
    client = _up(world, "ob", (f"memif:{socket},role=client", "127.0.1.4/24"))
    return Wire(world, "memif", server, client, "127.0.1.3", local=True)


WIRES = (pair, loopback, memif)


def meets(wire, words, good=(0,), client_words=None):
    """Runs both sides; what the client printed."""
    server = wire.world.start([*wire.server, *words])
    server.until(lambda: stock.kernel_listens(EXCHANGE_PORT), "listens")
    try:
        client = wire.start_client([*(client_words or words), "127.0.0.1"])
        code = client.wait(60)
        if code not in good or server.wait(20) not in good:
            raise Failed(f"exit codes {code}, {server.handle.returncode}\n{tail(client.text())}\n--- server\n"
                         f"{tail(server.text())}")
    finally:
        server.end()
    return client.text()


def pingpong(wire, program, *options):
    text = meets(wire, [program, *options])
    found = re.search(r"bytes in .* = (\S+) Mbit/sec\s+(\d+) iters", text)
    if not found:
        raise Failed(f"no result:\n{tail(text)}")
    return f"{found[2]} exchanges, {found[1]} Mb/s"


def perftest(wire, program, *options):
    # ib_send_bw over iWARP leaves its credits' region behind where it does not use rdma_cm, cannot free its domain
    # then, and says so at its very end (perftest 4.5).
    leaves = program == "ib_send_bw"
    text = meets(wire, [program, "-F", *options], good=(0, 1) if leaves else (0,))
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line)]
    if not rows:
        raise Failed(f"no result:\n{tail(text)}")
    return f"{rows[-1][0]} B: {rows[-1][3]}"


def without_gid(wire):
    """Who names no GID is refused at RTR, and the daemon's log says what to give the program."""
    server = wire.world.start([*wire.server, "ibv_rc_pingpong"])
    server.until(lambda: stock.kernel_listens(EXCHANGE_PORT), "listens")
    client = wire.start_client(["ibv_rc_pingpong", "127.0.0.1"])
    if client.wait(30) == 0 or "Failed to modify QP to RTR" not in client.text() + server.text():
        raise Failed(f"not refused:\n{tail(client.text())}\n--- server\n{tail(server.text())}")
    server.end()
    log = pathlib.Path(wire.world.directory, "run", wire.daemon_of(wire.server), "rnicd.log").read_text()
    if "-g 1" not in log or "-cm1" not in log:
        raise Failed(f"the log does not say what helps:\n{tail(log)}")


def nobody_comes(wire):
    """A peer that names a queue pair which it does not have: what is posted fails when the retry time is over."""
    with socket.create_server(("127.0.0.1", EXCHANGE_PORT), reuse_port=False) as door:
        client = wire.start_client(["ibv_rc_pingpong", "-g", "1", "127.0.0.1"])
        began = time.monotonic()
        peer, _ = door.accept()
        with peer:
            peer.recv(100)
            gid = "00000000000000000000ffff" + socket.inet_aton(wire.address).hex()
            peer.sendall(f"0000:abcdef:000123:{gid}".encode() + b"\0")
            code = client.wait(60)
    took = time.monotonic() - began
    if code == 0 or "transport retry counter exceeded (12)" not in client.text() or not 29 < took < 40:
        raise Failed(f"after {took:.1f} s, exit code {code}:\n{tail(client.text())}")
    return f"after {took:.1f} s"


def suite(report, wire):
    def test(title, claim, tries=1):
        report.test(f"{wire.name}, without rdma_cm: {title}", claim, tries)

    test("ibv_rc_pingpong -g 1", lambda: pingpong(wire, "ibv_rc_pingpong", "-g", "1"))
    test("ibv_rc_pingpong -g 0 -e", lambda: pingpong(wire, "ibv_rc_pingpong", "-g", "0", "-e"))
    test("ibv_rc_pingpong -g 1 -s 1000000 -n 20",
         lambda: pingpong(wire, "ibv_rc_pingpong", "-g", "1", "-s", "1000000", "-n", "20"))
    test("ibv_srq_pingpong -g 1", lambda: pingpong(wire, "ibv_srq_pingpong", "-g", "1"))
    test("ibv_rc_pingpong without -g", lambda: without_gid(wire))
    if wire.name == "pair":
        test("ibv_rc_pingpong whose peer never comes", lambda: nobody_comes(wire))
    test("ib_send_bw", lambda: perftest(wire, "ib_send_bw", "-n", "1000"))
    test("ib_send_lat", lambda: perftest(wire, "ib_send_lat", "-n", "200"))
    test("ib_write_bw -q 4", lambda: perftest(wire, "ib_write_bw", "-n", "400", "-q", "4"))
    test("ib_write_bw -b -x 1", lambda: perftest(wire, "ib_write_bw", "-n", "400", "-b", "-x", "1"))
    test("ib_write_lat", lambda: perftest(wire, "ib_write_lat", "-n", "200"))
    test("ib_read_bw", lambda: perftest(wire, "ib_read_bw", "-n", "400"))
    test("ib_read_lat", lambda: perftest(wire, "ib_read_lat", "-n", "200"))
    test("ib_atomic_bw", lambda: perftest(wire, "ib_atomic_bw", "-n", "400"))
    test("ib_atomic_lat", lambda: perftest(wire, "ib_atomic_lat", "-n", "200"))
    # And those that use rdma_cm do so as ever.
    test("rping", lambda: stock.rping(wire, 64, 100))
