"""Devices of two workers each: the stock programs' connections are of either, their completion queues, shared receive
queues and regions of both. af_packet and af_xdp have a queue for each worker, and a memif a link."""
import os
import signal
import time

import programs as stock
from harness import RNIC, Failed, Wire, veth_wire
from tshark import tshark

CORES = "cores = [0, 1]"
KEYS = "workers = 2"


def memif_wire(world, workers=(2, 2)):
    """Workers of the server's device, and of the client's."""
    sides = []
    for name, role, address, count in (("ms", "server", "10.77.0.1/24", workers[0]),
                                       ("mc", "client", "10.77.0.2/24", workers[1])):
        config = f"{world.directory}/{name}.toml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'cores = {[0, 1, 0][:max(count, 2)]}\n[[device]]\nport = "memif:{world.directory}/workers.sock,role={role}"\n'
                       f'address = "{address}"\nworkers = {count}\n')
        world.up(name, ["--config", config])
        sides.append([RNIC, "run", "--name", name])
    return Wire(world, "memif, two workers", *sides, "10.77.0.1")


def busy_turns(wire, side):
    stats = wire.world.show(wire.daemon_of(side), "stats")["stats"]
    return [stats[f"worker{i}"]["busy_turns"] for i in (0, 1)]


def both_work(wire, claim):
    """Each worker of both daemons has a part in it."""
    before = [busy_turns(wire, side) for side in (wire.server, wire.client)]
    figure = claim()
    after = [busy_turns(wire, side) for side in (wire.server, wire.client)]
    done = [[b - a for a, b in zip(*pair)] for pair in zip(before, after)]
    if min(min(each) for each in done) < 100:
        raise Failed(f"busy turns: {done}")
    return figure


def both_connect(wire):
    """50 connections, of which each worker has some."""
    before = busy_turns(wire, wire.server)
    stock.ucmatose(wire)
    if min(b - a for a, b in zip(before, busy_turns(wire, wire.server))) < 20:
        raise Failed("one worker has done nothing")


def decodes(wire):
    """`rnic capture` has each frame of either worker once: every FPDU is decoded, and no segment is there twice."""
    capture = wire.world.directory + "/workers.pcap"
    listening = wire.world.start([RNIC, "capture", "--name", wire.daemon_of(wire.server), capture])
    listening.until(lambda: "writes frames" in listening.text(), "rnic capture")
    stock.perftest(wire, "ib_write_bw", "-q", "8", "-n", "50", "-s", "2000")
    time.sleep(0.5)
    os.kill(listening.pid, signal.SIGINT)
    listening.wait(30)
    if len(tshark(capture, "-Y", "iwarp_ddp").splitlines()) < 400:
        raise Failed("there are not as many FPDUs as messages")
    if malformed := tshark(capture, "-Y", "_ws.malformed"):
        raise Failed(f"malformed frames:\n{malformed[:1000]}")
    twice = tshark(capture, "-Y", "tcp.analysis.retransmission or tcp.analysis.out_of_order")
    arps = tshark(capture, "-Y", "arp.opcode == 2").splitlines()
    if len(twice.splitlines()) > 5 or len(arps) > 8:
        raise Failed(f"{len(twice.splitlines())} segments twice, {len(arps)} answers of ARP")


def shared(wire, program, *words):
    """tests/system/apps: what all connections have together is of both workers."""
    words = [str(stock.APPS / program), *words, wire.address]
    server = wire.start_server([*words, "-l"])
    wire.both_end(server, wire.start_client(words), 120)
    return server.text().splitlines()[-1]


def suite(report, wire):
    def test(title, claim):
        report.test(f"{wire.name}: {title}", claim)

    # Not ib_send_bw, which takes it that calls come in the order in which they were made; to two workers they do not.
    # Then a sender takes another queue pair's credits for its own. Where that one is ahead, `scnt + 1 - credit_buf` is
    # below 0 and has no sign (run_iter_bi, run_iter_bw): it never sends again.
    for program in ("ib_write_bw", "ib_read_bw"):
        test(f"{program} -q 16", lambda p=program: both_work(wire, lambda: stock.bandwidth(wire, p, "-q", "16", "-n",
                                                                                           "500")))
    for words in ("events", "events -s -n 4 -b 2", "events -1 -k 4", "srq", "srq -k 8 -1", "cq", "cq -1 -k 4"):
        test(f"sharers {words}", lambda w=words: both_work(wire, lambda: shared(wire, "sharers", *w.split())))
    test("closers", lambda: shared(wire, "closers", "-r", "8"))
    test("ib_send_bw --use-srq", lambda: stock.bandwidth(wire, "ib_send_bw", "--use-srq", "-n", "1000"))
    test("ib_send_lat -e", lambda: stock.latency(wire, "ib_send_lat", "-e", "-n", "500"))
    test("a server that listens again for its next callers", lambda: stock.listens_again(wire))
    test("rping -C 300 -V -S 65000", lambda: stock.rping(wire, 65000, 300))
    test("ucmatose -c 50", lambda: stock.ucmatose(wire))
    test("rping whose server is killed, and again", lambda: stock.rping_server_killed(wire))
    test("fio verb write", lambda: stock.fio(wire, "write"))


def several_workers(report, world_of):
    v4, v6 = ("10.77.0.1/24", "10.77.0.2/24"), ("2001:db8:77::1/64", "2001:db8:77::2/64")
    for kind, addresses in (("af_packet", v4), ("af_packet", v6), ("af_xdp", v4)):
        label = f"{kind}, two workers{', IPv6' if addresses is v6 else ''}"
        with world_of() as world:
            wire = None

            def start():
                nonlocal wire
                wire = veth_wire(world, kind, 0, addresses, (), label, KEYS, CORES, queues=2)

            report.test(f"{label}: rnic up in two namespaces", start, always=True)
            if wire is None:
                continue
            if kind == "af_packet" and addresses is v4:
                suite(report, wire)
                report.test(f"{label}: a capture has each frame once", lambda: decodes(wire))
            else:
                report.test(f"{label}: rping -C 300 -V -S 65000", lambda: stock.rping(wire, 65000, 300))
                report.test(f"{label}: ucmatose -c 50", lambda: both_connect(wire))
            if kind == "af_xdp":
                report.test(f"{label}: ib_write_bw -q 16",
                            lambda: both_work(wire, lambda: stock.bandwidth(wire, "ib_write_bw", "-q", "16", "-n", "500")))
    for workers in ((2, 2), (2, 1), (1, 3)):
        label = "memif, two workers" if workers == (2, 2) else f"memif, workers: {workers[0]} and {workers[1]}"
        with world_of() as world:
            wire = None

            def start_memif():
                nonlocal wire
                wire = memif_wire(world, workers)

            report.test(f"{label}: two daemons", start_memif, always=True)
            if wire is None:
                continue
            if workers == (2, 2):
                suite(report, wire)
                continue
            report.test(f"{label}: rping -C 300 -V -S 65000", lambda: stock.rping(wire, 65000, 300))
            report.test(f"{label}: ib_write_bw -q 16",
                        lambda: stock.bandwidth(wire, "ib_write_bw", "-q", "16", "-n", "200"))
            report.test(f"{label}: ib_send_lat -e", lambda: stock.latency(wire, "ib_send_lat", "-e"))
