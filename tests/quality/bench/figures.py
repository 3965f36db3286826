"""What tools/bench measures: the kernel's TCP on this machine, and rnic over a wire of tests/system/e2e."""
import collections
import json
import os
import re
import subprocess
import threading
import time

import programs
from harness import BUILD, Failed


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Busiest:
    """The processes' share of a core, in the half second in which they had most: a run has parts in which they wait."""

    def __init__(self, pids):
        self.pids, self.percent = pids, 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        seen = collections.deque(maxlen=6)
        while True:
            seen.append((time.monotonic(), sum(cpu_seconds(pid) for pid in self.pids)))
            (then, before), (now, after) = seen[0], seen[-1]
            if len(seen) == seen.maxlen:
                self.percent = max(self.percent, 100 * (after - before) / (now - then))
            if self.over.wait(0.1):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Kernel:
    """The kernel's TCP: over its loopback, and over a veth between two namespaces, which needs root."""

    def __init__(self, world, veth):
        self.world = world
        self.sides, self.address = ([], []), "127.0.0.1"
        if veth:
            self._join()

    def _join(self):
        names = [f"benchA{os.getpid() % 10000}", f"benchB{os.getpid() % 10000}"]
        for name in names:
            self.world.namespace(name)

        def ip(*words):
            subprocess.run(["ip", *words], check=True, capture_output=True)

        ip("link", "add", "va", "netns", names[0], "type", "veth", "peer", "name", "vb", "netns", names[1])
        for name, device, address in ((names[0], "va", "10.78.0.1/24"), (names[1], "vb", "10.78.0.2/24")):
            ip("-n", name, "address", "add", address, "dev", device)
            ip("-n", name, "link", "set", "dev", device, "up")
        self.sides, self.address = tuple(["ip", "netns", "exec", name] for name in names), "10.78.0.1"

    def _pair(self, server, client, limit_s=60):
        serving = self.world.start([*self.sides[0], *server])
        time.sleep(0.5)
        try:
            return self.world.run([*self.sides[1], *client], limit_s)
        finally:
            serving.end()

    def iperf3_gbps(self, seconds):
        port = ["-p", "5788"]
        text = self._pair(["iperf3", "-s", "-1", "-B", self.address, *port],
                          ["iperf3", "-c", self.address, "-t", str(seconds), "-J", *port])
        return json.loads(text[text.index("{"):])["end"]["sum_received"]["bits_per_second"] / 1e9

    def qperf_tcp_lat_us(self):
        text = self._pair(["qperf"], ["qperf", self.address, "-t", "2", "-m", "8", "tcp_lat"])
        found = re.search(r"latency\s*=\s*([\d.]+)\s*(\w+)", text)
        return float(found[1]) * {"us": 1, "ms": 1000, "ns": 0.001}[found[2]]

    def fi_pingpong_us(self):
        # It polls at both ends: where others want the cores a round takes a time slice, so not too many.
        words = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-S", "8", "-I", "2000"]
        text = self._pair(words, [*words, self.address])
        return float([line for line in text.splitlines() if line.strip()][-1].split()[-2])


class Rnic:
    """rnic over a wire; `cpu` is the daemons' share of a core in the last figure's busiest half second, or None."""

    def __init__(self, world, wire, daemons):
        self.world, self.wire, self.daemons = world, wire, daemons
        self.pids = [world.daemon_pid(name) for name in daemons]
        self.cpu = None

    def _perftest(self, program, *options):
        words = [program, "-R", *options]
        with Busiest(self.pids) as busiest:
            _, text = self.wire.pair(words, [*words, self.wire.address], 120)
        self.cpu = busiest.percent
        rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line)]
        if not rows:
            raise Failed(f"{program} printed no result:\n{text}")
        return rows[-1]

    def bandwidth_gbps(self, program, seconds):
        return float(self._perftest(program, "--report_gbits", "-s", "65536", "-D", str(seconds))[3])

    def messages_per_us(self, seconds):
        return float(self._perftest("ib_write_bw", "-s", "8", "-D", str(seconds))[-1])

    def latency_us(self, program):
        return float(self._perftest(program, "-s", "8", "-n", "50000")[4])

    def pingpong_us(self):
        at = self.wire.client.index("--device")  # one process has both ends, and so sees both devices
        run = self.wire.client[:at] + self.wire.client[at + 2:]
        words = [*run, str(BUILD / "tests" / "pingpong"), self.wire.address, "7400", "8", "50000"]
        return float(re.search(r"median ([\d.]+)", self.world.run(words, 60))[1])

    def cmtime_s(self, connections):
        """All of them connected, by the client's clock."""
        return float(re.search(r"([\d.]+) ms", programs.cmtime(self.wire, connections))[1]) / 1000

    def scale(self, connections, messages, queue_pairs, regions):
        """What scale.cpp says of that many: its lines."""
        program, pid = str(BUILD / "tests" / "scale"), str(self.pids[0])
        at = [self.wire.address, "7404"]
        said, text = self.wire.pair([program, "server", *at, str(connections)],
                                    [program, "client", *at, str(connections), str(messages), pid], 900)
        sent = messages * text.count("Sends over")
        if f"{sent} Sends came" not in said:
            raise Failed(f"not all of {sent} Sends came:\n{said}")
        objects = [program, "objects", self.wire.address, str(queue_pairs), str(regions), pid]
        return [*text.splitlines(), *self.world.run([*self.wire.server, *objects], 900).splitlines()]

    def registration_us(self, regions, size):
        """Of fresh memory, beside so many regions that live: the median of 200."""
        words = ["registration", self.wire.address, str(size), str(regions), "200"]
        text = self.world.run([*self.wire.server, str(BUILD / "tests" / words[0]), *words[1:]], 120)
        return float(re.search(r"register ([\d.]+)", text)[1])

    def idle_percent(self):
        time.sleep(1)
        before = sum(cpu_seconds(pid) for pid in self.pids)
        time.sleep(3)
        return 100 * (sum(cpu_seconds(pid) for pid in self.pids) - before) / 3

    def rungs(self):
        """Which rungs serve perftest's regions, as the daemon says while it runs."""
        words = ["ib_write_bw", "-R", "-D", "2"]
        server = self.wire.start_server(words)
        client = self.world.start([*self.wire.client, *words, self.wire.address])
        time.sleep(1.2)
        rungs = sorted({str(row.get("rung")) for name in self.daemons for row in self.world.show(name, "mr")["mr"]})
        client.wait(20)
        server.wait(20)
        return ", ".join(rungs)
