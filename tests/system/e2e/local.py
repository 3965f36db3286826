"""Queue pairs of one worker, over a pair and a loopback device: that they go without the wire between them, as is the
default there, and all by the wire (local = "wire")."""
import pathlib
import time

import programs as stock
from harness import RNIC, Failed, Wire, of_mtu


def _up(world, name, mtu, *devices):
    config = pathlib.Path(world.directory, name + ".toml")
    keys = 'local = "wire"\n' + (f"mtu = {mtu}\n" if mtu else "")
    config.write_text("".join(f'[[device]]\nport = "{port}"\naddress = "{address}"\n{keys}'
                              for port, address in devices))
    world.up(name, ["--config", str(config)])
    return [RNIC, "run", "--name", name]


def pair(world, mtu=None):
    run = _up(world, "wp", mtu, ("pair:v", "127.0.1.1/24"), ("pair:v", "127.0.1.2/24"))
    return Wire(world, "pair, by the wire" + of_mtu(mtu)[1], [*run, "--device", "rnic1"], [*run, "--device", "rnic0"], "127.0.1.2", local=True)


def loopback(world, mtu=None):
    run = _up(world, "wl", mtu, ("loopback", "127.0.1.1/24"))
    return Wire(world, "loopback, by the wire" + of_mtu(mtu)[1], run, run, "127.0.1.1", local=True)


WIRES = (pair, loopback)


def _messages(wire):
    """How many of the queue pairs' messages went without the wire, and how many there were."""
    rows = wire.world.show(wire.daemon_of(wire.server), "qp")["qp"]
    return (sum(row["direct_out"] for row in rows),
            sum(row["sends_out"] + row["writes_out"] + row["reads_out"] for row in rows))


def _port_counts(wire):
    ports = wire.world.show(wire.daemon_of(wire.server), "port")["port"]
    return {"direct": sum(port["direct_bytes_out"] for port in ports), "frames": sum(port["bytes_out"] for port in ports)}


def _goes(wire, seconds=0.3):
    """(direct, all) messages in that time."""
    first = _messages(wire)
    time.sleep(seconds)
    second = _messages(wire)
    return second[0] - first[0], second[1] - first[1]


def without_wire(wire):
    """Messages go without the wire; and by it while somebody captures."""
    def once():
        words = ["ib_write_bw", "-R", "-s", "65536", "-D", "6"]
        server = wire.start_server(words)
        client = wire.start_client([*words, wire.address])
        client.until(lambda: _messages(wire)[0] > 1000, "without the wire")
        device = wire.world.show(wire.daemon_of(wire.server), "port")["port"][0]["device"]
        capture = wire.world.start([RNIC, "capture", "--name", wire.daemon_of(wire.server), "--device", device,
                                    "/dev/null"])
        capture.until(lambda: "writes frames" in capture.text(), "rnic capture")
        seen = _goes(wire)
        if seen[0] != 0 or seen[1] == 0:
            raise Failed(f"with a capture {seen[0]} of {seen[1]} messages went without the wire")
        capture.end()
        capture.wait(10)
        client.until(lambda: _goes(wire, 0.05)[0] > 0, "without the wire again")
        wire.both_end(server, client, 30)
        return True, ""

    stock.with_a_clock("ib_write_bw", once)


def by_wire(wire):
    """None goes without it."""
    stock.bandwidth(wire, "ib_write_bw", "-n", "200")
    seen = _port_counts(wire)
    if seen["direct"] != 0 or seen["frames"] == 0:
        raise Failed(f"octets that went directly, and in frames: {seen}")


def suite(report, wire):
    def test(title, claim, tries=1):
        report.test(f"{wire.name}: {title}", claim, tries)

    for label, each in (("", wire), ("--fast-memory, ", wire.with_options("--fast-memory"))):
        test(f"{label}all of it by the wire", lambda w=each: by_wire(w))
        test(f"{label}rping -C 1000 -V -S 64", lambda w=each: stock.rping(w, 64, 1000))
        test(f"{label}rping -C 300 -V -S 65000", lambda w=each: stock.rping(w, 65000, 300))
        test(f"{label}fi_pingpong -p 'verbs' -e msg",
             lambda w=each: stock.fi_pingpong(w, "verbs", "msg"))
        for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
            test(f"{label}{program} -a", lambda w=each, p=program: stock.bandwidth(w, p, "-a", "-n", "24"))
        test(f"{label}ib_send_bw --use-srq", lambda w=each: stock.bandwidth(w, "ib_send_bw", "--use-srq"))
        test(f"{label}ib_write_bw -q 16", lambda w=each: stock.bandwidth(w, "ib_write_bw", "-q", "16", "-n", "1000"))
        for program in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
            test(f"{label}{program}", lambda w=each, p=program: stock.latency(w, p, "-n", "1000"))
        for atomic in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
            test(f"{label}ib_atomic_bw -A {atomic}",
                 lambda w=each, a=atomic: stock.bandwidth(w, "ib_atomic_bw", "-A", a))
