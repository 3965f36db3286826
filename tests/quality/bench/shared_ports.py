"""What a message costs where a device has one worker, and where it has two: end to end, stock perftest, all that both
daemons and the kernel for them had of the cores."""
import os

import programs as stock
import workers
from harness import World, veth_wire

QUEUE_PAIRS = 16
MESSAGES = {64: 20_000, 4096: 5_000, 65536: 500}  # of each queue pair, by octets
TICK_NS = 1e9 / os.sysconf("SC_CLK_TCK")
KEYS = {1: "workers = 1", 2: workers.KEYS}


def veth(kind, count):
    return lambda world: veth_wire(world, kind, label=f"{kind}, {count}", keys=KEYS[count], daemon_keys=workers.CORES,
                                   queues=count)


SETUPS = {"af_packet": lambda count: veth("af_packet", count), "af_xdp": lambda count: veth("af_xdp", count),
          "memif": lambda count: lambda world: workers.memif_wire(world, KEYS[count])}

NEED_ROOT = ("af_packet", "af_xdp")  # between the ends of a veth


def cpu_ns(wire):
    total = 0
    for side in (wire.server, wire.client):
        pid = wire.world.daemon_pid(wire.daemon_of(side))
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total * TICK_NS


def message_ns(wire, program, octets):
    before = cpu_ns(wire)
    stock.perftest(wire, program, "-q", str(QUEUE_PAIRS), "-s", str(octets), "-n", str(MESSAGES[octets]), limit_s=120)
    return (cpu_ns(wire) - before) / (QUEUE_PAIRS * MESSAGES[octets])


def measure(table):
    figures = [(program, octets) for program in ("ib_write_bw", "ib_read_bw") for octets in MESSAGES]
    for port, make in SETUPS.items():
        names = {count: [f"{port}, {count} worker{'s' if count > 1 else ''}, {program} {octets} B, ns a message"
                         for program, octets in figures] for count in KEYS}
        if not any(map(table.wanted, sum(names.values(), []))):
            continue
        if port in NEED_ROOT and os.geteuid() != 0:
            table.say(f"  {port}, one worker and two, needs root; left out")
            continue
        # One after the other: both are there, and the one that is not asked sleeps.
        with World() as world, World() as other:
            wires = (make(1)(world), make(2)(other))
            for (program, octets), one, two in zip(figures, names[1], names[2]):
                table.take(*((row, lambda w=wire, p=program, o=octets: message_ns(w, p, o))
                             for row, wire in zip((one, two), wires)))
                table.ratio(f"{port}: {program} {octets} B, two workers / one", two, one, 1.15, False)
