"""Programs that connect their queue pairs without rdma_cm: they tell each other GIDs, queue pair and packet numbers over
the kernel's TCP, and call ibv_modify_qp. Devices with oob_connect."""
import json
import pathlib
import re
import signal
import socket
import sys
import threading
import time

import programs as stock
from harness import RNIC, Failed, KernelLink, Wire, World, tail, veth_wire

EXCHANGE_PORT = 18515  # of ibverbs' examples and of perftest alike
WAITING_PORT = 18516   # of one that is beside others


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


def roce_pair(world):
    """Two devices with RoCE faces."""
    config = pathlib.Path(world.directory, "roce.toml")
    config.write_text("".join(f'[[device]]\nport = "pair:r"\naddress = "127.0.1.{host}/24"\nface = "roce"\n'
                              for host in (1, 2)))
    world.up("roce", ["--config", str(config)])
    run = [RNIC, "run", "--name", "roce"]
    return Wire(world, "pair", [*run, "--device", "rnic1"], [*run, "--device", "rnic0"], "127.0.1.2", local=True)


def told(wire, rounds, limit_s=300):
    """A Write, its completion, a word over the kernel's TCP, and the peer finds the data in its memory."""
    program = str(stock.APPS / "told")
    server = wire.world.start([*wire.server, program, str(EXCHANGE_PORT)])
    server.until(lambda: stock.kernel_listens(EXCHANGE_PORT, wire.inside), "listens")
    client = wire.start_client([program, wire.exchange, str(EXCHANGE_PORT), str(rounds)])
    try:
        if client.wait(limit_s) != 0 or server.wait(20) != 0 or f"{rounds} rounds, 0 stale" not in client.text():
            raise Failed(f"{tail(client.text())}\n--- server\n{tail(server.text())}")
    finally:
        server.end()


def af_packet(world, keys="oob_connect = true", lossy_permille=0):
    """Two daemons in namespaces of their own. The programs tell each other what they need over a wire besides."""
    label = "af_packet" + (", with loss" if lossy_permille else "")
    wire = veth_wire(world, "af_packet", lossy_permille, keys=keys, label=label)
    wire.exchange = "10.79.0.1"
    server, client = (side[side.index("exec") + 1] for side in (wire.server, wire.client))
    KernelLink.ip("link", "add", "xa", "netns", server, "type", "veth", "peer", "name", "xb", "netns", client)
    for namespace, device, address in ((server, "xa", "10.79.0.1/24"), (client, "xb", "10.79.0.2/24")):
        KernelLink.ip("-n", namespace, "addr", "add", address, "dev", device)
        KernelLink.ip("-n", namespace, "link", "set", "dev", device, "up")
    return wire


def meets(wire, words, good=(0,), client_words=None):
    """Runs both sides; what the client printed."""
    server = wire.world.start([*wire.server, *words])
    server.until(lambda: stock.kernel_listens(EXCHANGE_PORT, wire.inside), "listens")
    try:
        client = wire.start_client([*(client_words or words), wire.exchange])
        code = client.wait(900 if wire.slow else 60)  # a hang; what is slow has thousands of rounds
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
    with socket.create_server(("127.0.0.1", WAITING_PORT), reuse_port=False) as door:
        client = wire.start_client(["ibv_rc_pingpong", "-g", "1", "-p", str(WAITING_PORT), "127.0.0.1"])
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

    # It takes half a minute, in which it does nothing: beside the others.
    waits = threading.Thread(target=test, args=("ibv_rc_pingpong whose peer never comes", lambda: nobody_comes(wire)))
    if wire.name == "pair":
        waits.start()
    test("ibv_rc_pingpong -g 1", lambda: pingpong(wire, "ibv_rc_pingpong", "-g", "1"))
    test("ibv_rc_pingpong -g 0 -e", lambda: pingpong(wire, "ibv_rc_pingpong", "-g", "0", "-e"))
    test("ibv_rc_pingpong -g 1 -s 1000000 -n 20",
         lambda: pingpong(wire, "ibv_rc_pingpong", "-g", "1", "-s", "1000000", "-n", "20"))
    test("ibv_srq_pingpong -g 1", lambda: pingpong(wire, "ibv_srq_pingpong", "-g", "1"))
    test("ibv_rc_pingpong without -g", lambda: without_gid(wire))
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
    if wire.name == "pair":
        waits.join()


def suite_over_veth(report, wire):
    for options in (("-g", "1"), ("-g", "1", "-e"), ("-g", "1", "-s", "1000000", "-n", "20")):
        report.test(f"{wire.name}, without rdma_cm: ibv_rc_pingpong {' '.join(options)}",
                    lambda o=options: pingpong(wire, "ibv_rc_pingpong", *o))


# ---- who means no good ----

# Asks at oob_port of 10.77.0.1, from as many addresses, until it is told to end, and counts what it hears. `numbers`: of
# queue pairs that there are.
FLOOD = r"""
import json, select, signal, socket, struct, sys, time
kind, count, numbers = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
told_to_end = []
signal.signal(signal.SIGTERM, lambda *_: told_to_end.append(True))
TARGET = "10.77.0.1"
def gid(address):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(address)
def mark(own, meant, number, psn=7, due=9):
    return b"rnic-mpa" + struct.pack(">BBHII", 1, 1, 68, 1, 1) + gid(own) + gid(meant) + struct.pack(
        ">IIII", 0x80000000 | 0x123, number, psn, due)
def request(data):
    data = b"\x80\x10\xc0\x20" + data
    return b"MPA ID Req Frame" + struct.pack(">BBH", 0x50, 2, len(data)) + data
def private_data(own, turn):
    number = numbers[turn % len(numbers)] if numbers else turn & 0xffffff
    if kind == "without a mark":
        return b"hello"
    if kind == "half a mark":
        return mark(own, TARGET, number)[: 8 + turn % 60]
    if kind == "of a foreign queue pair":
        return mark(TARGET, TARGET, number)
    if kind == "of no queue pair":
        return mark(own, TARGET, 2 + turn % 0xfffff0)
    return mark(own, TARGET, number, turn & 0xffffff, turn >> 3 & 0xffffff)
heard = {"calls": 0, "refused": 0, "accepted": 0, "ended": 0}
under_way = {}
turn = 0
print("attacking", flush=True)
while not told_to_end:
    while len(under_way) < 200:
        own = "10.77.%d.%d" % (1 + turn % count // 200, 1 + turn % count % 200)
        call = socket.socket()
        call.setblocking(False)
        call.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        call.bind((own, 0))
        call.connect_ex((TARGET, 26580))
        under_way[call] = (request(private_data(own, turn)), time.monotonic())
        heard["calls"] += 1
        turn += 1
    wait_to_write = [each for each, (words, _) in under_way.items() if words]
    readable, writable, _ = select.select(list(under_way), wait_to_write, [], 0.05)
    for call in writable:
        words, since = under_way[call]
        try:
            call.send(words)
            under_way[call] = (b"", since)
        except OSError:
            heard["ended"] += 1
            del under_way[call]
            call.close()
    for call in readable:
        if call not in under_way:
            continue
        try:
            reply = call.recv(600)
        except BlockingIOError:
            continue
        except OSError:
            reply = b""
        heard["ended" if len(reply) < 20 else "refused" if reply[16] & 0x20 else "accepted"] += 1
        del under_way[call]
        call.close()
    for call in [each for each, (_, since) in under_way.items() if time.monotonic() - since > 2]:
        del under_way[call]
        call.close()
print(json.dumps(heard), flush=True)
"""


def strangers(report):
    """Requests of nobody's at oob_port, from the kernel's end of a veth, and two queue pairs that mean each other."""
    with World() as world:
        link = KernelLink(world, "s")

        def start():
            link.ip("-n", link.ours, "link", "set", "dev", "lo", "up")
            for number in range(400):
                link.ip("-n", link.theirs, "addr", "add", f"10.77.{1 + number // 200}.{1 + number % 200}/16", "dev",
                        "rb")
            config = pathlib.Path(world.directory, "strangers.toml")
            config.write_text(_device("af_packet:ra", link.OURS + "/16"))
            world.up(link.name, ["--config", str(config)], link.inside)

        def meanwhile(kind, addresses):
            wire = Wire(world, "veth", link.run, link.run, link.OURS)
            wire.inside = link.inside
            # One that waits in INIT, so that there is a number for which Requests are kept.
            waits = world.start([*link.run, "ibv_rc_pingpong", "-g", "1", "-p", "18600"])
            waits.until(lambda: stock.kernel_listens(18600, link.inside), "listens")
            numbers = [row["qp"] for row in world.show(link.name, "qp")["qp"]]
            flood = world.start([*link.kernel, sys.executable, "-c", FLOOD, kind, str(addresses),
                                 json.dumps(numbers)])
            flood.until(lambda: "attacking" in flood.text(), "attacks")
            time.sleep(1)
            said = [pingpong(wire, "ibv_rc_pingpong", "-g", "1") for _ in range(3)]
            time.sleep(1)
            flood.handle.send_signal(signal.SIGTERM)
            if flood.wait(30) != 0:
                raise Failed(tail(flood.text()))
            heard = json.loads(flood.text().strip().splitlines()[-1])
            if heard["accepted"] or heard["refused"] < 100:
                raise Failed(f"{heard}")
            # And the one that has waited meets its peer, too.
            client = world.start([*link.run, "ibv_rc_pingpong", "-g", "1", "-p", "18600", "127.0.0.1"])
            if client.wait(30) != 0 or waits.wait(30) != 0:
                raise Failed(f"{tail(client.text())}\n--- server\n{tail(waits.text())}")
            return f"{heard['calls']} calls, {heard['refused']} refused; {said[-1]}"

        report.test("oob_port and strangers: rnic up", start, always=True)
        for kind in ("for a queue pair that waits", "of a foreign queue pair", "of no queue pair", "without a mark",
                     "half a mark"):
            # Of one address where there is something that one caller could use up alone.
            for addresses in (1, 400) if kind == "for a queue pair that waits" else (400,):
                report.test(f"oob_port and strangers: Requests {kind}, of {addresses} address"
                            f"{'es' if addresses > 1 else ''}",
                            lambda k=kind, a=addresses: meanwhile(k, a))
