"""Programs over devices of the RoCE face."""
import json
import os
import pathlib
import re
import shutil
import signal
import time

import programs as stock
import rsockets
import ucx
from harness import RNIC, Failed, Skipped, Wire, tail
from oob import EXCHANGE_PORT, meets, perftest, pingpong


HERE = pathlib.Path(__file__).resolve().parent


def _up(world, name, *devices):
    config = pathlib.Path(world.directory, name + ".toml")
    config.write_text("".join(f'[[device]]\nport = "{port}"\naddress = {json.dumps(addresses)}\nface = "roce"\n'
                              for port, *addresses in devices))
    world.up(name, ["--config", str(config)])
    return [RNIC, "run", "--name", name]


def pair(world):
    run = _up(world, "rp", ("pair:q", "127.0.1.1/24"), ("pair:q", "127.0.1.2/24"))
    return Wire(world, "pair", [*run, "--device", "rnic1"], [*run, "--device", "rnic0"], "127.0.1.2", local=True)


def pair6(world):
    run = _up(world, "r6", ("pair:q", "2001:db8::1/64"), ("pair:q", "2001:db8::2/64"))
    return Wire(world, "pair, IPv6", [*run, "--device", "rnic1"], [*run, "--device", "rnic0"], "2001:db8::2")


def loopback(world):
    run = _up(world, "rl", ("loopback", "127.0.1.1/24", "fd00:1::1/64"))
    return Wire(world, "loopback", run, run, "127.0.1.1", local=True)


def memif(world):
    socket = world.directory + "/roce.sock"
    server = _up(world, "ra", (f"memif:{socket},role=server", "127.0.1.3/24"))
    client = _up(world, "rb", (f"memif:{socket},role=client", "127.0.1.4/24"))
    return Wire(world, "memif", server, client, "127.0.1.3", local=True)


WIRES = (pair, loopback, memif)


def rejected(wire):
    """Nobody listens: InfiniBand's reason for that is 8."""
    text = wire.world.run([*wire.client, "rping", "-c", "-v", "-a", wire.address, "-p", "9", "-C", "1"], 20, expect=None)
    if "RDMA_CM_EVENT_REJECTED, error 8" not in text:
        raise Failed(f"not rejected so:\n{tail(text)}")


def ud_pingpong(wire, *options):
    text = meets(wire, ["ibv_ud_pingpong", "-g", "1", *options])
    found = re.search(r"bytes in .* = (\S+) Mbit/sec\s+(\d+) iters", text)
    if not found:
        raise Failed(f"no result:\n{tail(text)}")
    return f"{found[2]} exchanges, {found[1]} Mb/s"


def udaddy(wire, *options):
    """Both are to be told the same: how many, of what size."""
    wire.pair(["udaddy", "-b", wire.address, *options], ["udaddy", "-s", wire.address, *options])


def udaddy_beside_rping(wire):
    """Their default port is the same, and their port spaces are not."""
    rping = wire.start_server(["rping", "-s", "-a", wire.address])
    udaddy(wire)
    client = wire.start_client(["rping", "-c", "-a", wire.address, "-C", "10"])
    wire.both_end(rping, client, 60)


def unreachable(wire, status, *words):
    text = wire.world.run([*wire.client, "udaddy", *words], 60, expect=None)
    if f"RDMA_CM_EVENT_UNREACHABLE, error: {status}" not in text:
        raise Failed(f"not unreachable so:\n{tail(text)}")


def unanswered(wire):
    """A server that is stopped: nobody answers for it, and who asked hears of it."""
    server = wire.start_server(["udaddy", "-b", wire.address])
    os.killpg(server.pid, signal.SIGSTOP)
    try:
        unreachable(wire, -110, "-s", wire.address)
    finally:
        server.end()


def members(wire, group):
    """Queue pairs that are attached to it."""
    rows = [row for name in wire.daemons() for row in wire.world.show(name, "qp")["qp"]]
    return sum(group in row["groups"] for row in rows)


def to_group(wire, group, sender, *options):
    """`sender` sends to receivers on both devices, two of which are of one process."""
    receivers = []
    for side, more in ((wire.server, ["-c", "2"]), (wire.server, []), (wire.client, [])):
        receivers.append(wire.world.start([*side, "mckey", "-m", group, *options, *more]))
    receivers[-1].until(lambda: members(wire, group) == 4, "a member, nor the others")
    sends = wire.start_client(sender)
    for each in (sends, *receivers):
        if each.wait(30) != 0:
            raise Failed(f"{each.words}:\n{tail(each.text())}")
        if each is not sends and "data transfers complete" not in each.text():
            raise Failed(tail(each.text()))


def mckey(wire, group, *options):
    to_group(wire, group, ["mckey", "-m", group, "-s", *options], *options)


def send_only(wire, group):
    address = wire.world.show(wire.daemon_of(wire.client), "dev")["dev"][0]["addresses"][0].split("/")[0]
    to_group(wire, group, [str(stock.BUILD / "tests" / "groups"), address, group])


def from_wc(wire, gids):
    """By rdma-core's Python, where it is."""
    if not pathlib.Path("/usr/lib/python3/dist-packages/pyverbs").exists():
        raise Skipped("there is no pyverbs")
    asks = wire.start_client(["/usr/bin/python3", HERE / "from_wc.py", str(gids)])
    if asks.wait(30) != 0 or asks.text().count("answered") != gids:
        raise Failed(tail(asks.text()))
    return None


def server_killed(wire):
    """What is under way fails; and not before its time is over."""
    words = ["ib_write_bw", "-F", "-D", "60"]
    server = wire.world.start([*wire.server, *words])
    server.until(lambda: stock.kernel_listens(EXCHANGE_PORT, wire.inside), "listens")
    client = wire.start_client([*words, wire.exchange])
    busy = lambda: any(qp["bytes_out"] > 1 << 20 for daemon in wire.daemons()
                       for qp in wire.world.show(daemon, "qp")["qp"])
    client.until(busy, "exchanges")
    os.killpg(server.pid, signal.SIGKILL)
    began = time.monotonic()
    code = client.wait(20)
    took = time.monotonic() - began
    if code == 0 or "Failed status 12:" not in client.text() or took < 0.5:
        raise Failed(f"after {took:.1f} s, exit code {code}:\n{tail(client.text())}")


def nothing_lost(wire):
    """What has arrived was taken: no datagram was damaged, or for nobody."""
    for daemon in wire.daemons():
        for port in wire.world.show(daemon, "port")["port"]:
            if port["datagrams_in"] == 0 or port["datagrams_bad"] != 0 or port["datagrams_without_way"] != 0:
                raise Failed(f"{port}")


def external_qp(wire):
    """A queue pair that librdmacm does not have: CONNECT_RESPONSE, rdma_establish, TIMEWAIT_EXIT; ECE both ways, and a
    rejection for it."""
    program = str(stock.APPS / "external_qp")
    wire.pair([program, "server", wire.address, "7303"], [program, "client", wire.address, "7303"])


def suite(report, wire):
    def test(title, claim, tries=1):
        report.test(f"{wire.name}, RoCE face: {title}", claim, tries)

    test("rping", lambda: stock.rping(wire, 64, 1000))
    test("rping 16384", lambda: stock.rping(wire, 16384, 200))
    test("rping, nobody listens", lambda: rejected(wire))
    test("rping, its server is killed", lambda: stock.rping_server_killed(wire))
    test("ucmatose", lambda: stock.ucmatose(wire))
    test("rdma_server, rdma_client", lambda: stock.rdma_client(wire))
    test("a queue pair of the application's own", lambda: external_qp(wire))
    test("cmtime", lambda: stock.cmtime(wire, 100))
    latencies = ("ib_send_lat", "ib_write_lat", "ib_read_lat") if wire.name == "pair" else ()
    for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw", *latencies):
        test(f"{program} -R", lambda p=program: stock.perftest(wire, p, "-n", "500")[-1][0] + " B")
    if wire.local:
        for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"):
            test(f"{program}, without rdma_cm", lambda p=program: perftest(wire, p, "-n", "500"))
        test("ibv_rc_pingpong -g 1", lambda: pingpong(wire, "ibv_rc_pingpong", "-g", "1"))
        test("ibv_srq_pingpong -g 1", lambda: pingpong(wire, "ibv_srq_pingpong", "-g", "1"))
        test("ib_write_bw, without rdma_cm, its server is killed", lambda: server_killed(wire))
    test("ibv_ud_pingpong -g 1", lambda: ud_pingpong(wire))
    test("ibv_ud_pingpong -g 1 -e -s 1024", lambda: ud_pingpong(wire, "-e", "-s", "1024"))
    test("ib_send_bw -c UD", lambda: perftest(wire, "ib_send_bw", "-c", "UD", "-n", "1000"))
    test("ib_send_bw -c UD -a", lambda: perftest(wire, "ib_send_bw", "-c", "UD", "-a", "-n", "200"))
    test("ib_send_lat -c UD", lambda: perftest(wire, "ib_send_lat", "-c", "UD", "-n", "200"))
    # perftest's server listens for datagrams when the client has been told to go on, who may be there first.
    for program in ("ib_send_bw", "ib_send_lat"):
        test(f"{program} -R -c UD",
             lambda p=program: stock.perftest(wire, p, "-c", "UD", "-n", "500", limit_s=20)[-1][0] + " B", tries=3)
    test("udaddy", lambda: udaddy(wire))
    test("udaddy -c 5 -C 20 -S 1000 -t 8", lambda: udaddy(wire, "-c", "5", "-C", "20", "-S", "1000", "-t", "8"))
    test("udaddy, and rping on the same port", lambda: udaddy_beside_rping(wire))
    test("udaddy, nobody listens", lambda: unreachable(wire, 1, "-s", wire.address))
    test("mckey", lambda: mckey(wire, "239.1.2.3"))
    test("mckey -p 2 -C 30 -S 1000", lambda: mckey(wire, "239.1.2.4", "-p", "2", "-C", "30", "-S", "1000"))
    test("groups, to send only", lambda: send_only(wire, "239.1.2.5"))
    if wire.name == "pair":
        test("fi_pingpong -p verbs -e dgram", lambda: stock.fi_pingpong(wire, "verbs", "dgram", ("4k", 4096)))
        test("fi_pingpong -p 'verbs;ofi_rxd' -e rdm", lambda: stock.fi_pingpong(wire, "verbs;ofi_rxd", "rdm"))
        test("udaddy, nobody answers", lambda: unanswered(wire))
        test("udaddy, nobody is there", lambda: unreachable(wire, -113, "-s", "127.0.1.77"))
    if wire.name == "loopback":
        test("ibv_create_ah_from_wc", lambda: from_wc(wire, 3))
    test("datagrams are counted", lambda: nothing_lost(wire))
    if wire.name == "pair":
        ucx.suite(test, wire)
        for program in ("rstream", "riostream"):
            test(f"{program} -T v", lambda p=program: rsockets.stream(wire, p))
        test("rcopy", lambda: rsockets.rcopy(wire))
        test("iSER: tgt and libiscsi", lambda: stock.iser(wire))
    if wire.name == "loopback" and shutil.which("ucx_perftest"):
        # The server takes the device by the name that the client's has.
        test("ucx_perftest -x rc_verbs", lambda: ucx.uct(wire, "rc_verbs", ucx.UCT_RC))
        test("ucx_perftest -x ud_verbs", lambda: ucx.uct(wire, "ud_verbs", ucx.UCT_UD))


def suite6(report, wire):
    def test(title, claim):
        report.test(f"{wire.name}, RoCE face: {title}", claim)

    test("rping", lambda: stock.rping(wire, 64, 1000))
    test("ucmatose", lambda: stock.ucmatose(wire, 10))
    test("rdma_server, rdma_client", lambda: stock.rdma_client(wire))
    test("udaddy", lambda: udaddy(wire))
    test("mckey", lambda: mckey(wire, "ff05::1234"))
    test("groups, to send only", lambda: send_only(wire, "ff05::1235"))


def faces(world):
    """A RoCE face and an iWARP face at the ends of a pair refuse each other, whoever calls, and rnicd says why."""
    config = pathlib.Path(world.directory, "faces.toml")
    config.write_text('[[device]]\nport = "pair:f"\naddress = "127.0.1.1/24"\nface = "roce"\n'
                      '[[device]]\nport = "pair:f"\naddress = "127.0.1.2/24"\n')
    world.up("faces", ["--config", str(config)])
    run = [RNIC, "run", "--name", "faces"]
    for client, address in (("rnic0", "127.0.1.2"), ("rnic1", "127.0.1.1")):
        wire = Wire(world, "faces", [*run, "--device", "rnic1" if client == "rnic0" else "rnic0"],
                    [*run, "--device", client], address)
        server = wire.start_server(["rping", "-s", "-a", address])
        text = world.run([*wire.client, "rping", "-c", "-a", address, "-C", "1"], 20, expect=None)
        server.end()
        if "RDMA_CM_EVENT_REJECTED" not in text:
            raise Failed(f"{client} is not rejected:\n{tail(text)}")
    log = pathlib.Path(world.directory, "run", "faces", "rnicd.log").read_text()
    for words in ("calls as a RoCE face", "calls as an iWARP device", "refuses a RoCE face's call"):
        if words not in log:
            raise Failed(f"the log does not say {words!r}:\n{tail(log)}")
