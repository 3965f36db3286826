"""Queue pairs of one worker that go without the wire between them (local = "direct"), over a pair and a loopback device."""
import pathlib
import time

import programs as stock
from harness import RNIC, Failed, Wire


def _up(world, name, *devices):
    config = pathlib.Path(world.directory, name + ".toml")
    config.write_text("".join(f'[[device]]\nport = "{port}"\naddress = "{address}"\nlocal = "direct"\n'
                              for port, address in devices))
    world.up(name, ["--config", str(config)])
    return [RNIC, "run", "--name", name]


def pair(world):
    run = _up(world, "dp", ("pair:d", "127.0.1.1/24"), ("pair:d", "127.0.1.2/24"))
    return Wire(world, "pair, direct", [*run, "--device", "rnic1"], [*run, "--device", "rnic0"], "127.0.1.2", local=True)


def loopback(world):
    run = _up(world, "dl", ("loopback", "127.0.1.1/24"))
    return Wire(world, "loopback, direct", run, run, "127.0.1.1", local=True)


WIRES = (pair, loopback)


def _messages(wire):
    """How many of the queue pairs' messages went without the wire, and how many there were."""
    rows = wire.world.show(wire.daemon_of(wire.server), "qp")["qp"]
    return (sum(row["direct_out"] for row in rows),
            sum(row["sends_out"] + row["writes_out"] + row["reads_out"] for row in rows))


def _goes(wire, seconds=0.3):
    """(direct, all) messages in that time."""
    first = _messages(wire)
    time.sleep(seconds)
    second = _messages(wire)
    return second[0] - first[0], second[1] - first[1]


def without_wire(wire):
    """Mapped memory goes without the wire; and by it while somebody captures."""
    fast = wire.with_options("--fast-memory")

    def once():
        words = ["ib_write_bw", "-R", "-s", "65536", "-D", "6"]
        server = fast.start_server(words)
        client = fast.start_client([*words, fast.address])
        client.until(lambda: _messages(fast)[0] > 1000, "without the wire")
        device = fast.world.show(fast.daemon_of(fast.server), "port")["port"][0]["device"]
        capture = fast.world.start([RNIC, "capture", "--name", fast.daemon_of(fast.server), "--device", device,
                                    "/dev/null"])
        capture.until(lambda: "writes frames" in capture.text(), "rnic capture")
        seen = _goes(fast)
        if seen[0] != 0 or seen[1] == 0:
            raise Failed(f"with a capture {seen[0]} of {seen[1]} messages went without the wire")
        capture.end()
        capture.wait(10)
        client.until(lambda: _goes(fast, 0.05)[0] > 0, "without the wire again")
        fast.both_end(server, client, 30)
        return True, ""

    stock.with_a_clock("ib_write_bw", once)


def suite(report, wire):
    def test(title, claim, tries=1):
        report.test(f"{wire.name}: {title}", claim, tries)

    test("mapped memory goes without the wire, but while somebody captures", lambda: without_wire(wire))
    for label, each in (("", wire), ("--fast-memory, ", wire.with_options("--fast-memory"))):
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
