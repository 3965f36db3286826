"""Daemons, wires and stock programs for the end-to-end tests.

A Wire is two sides joined by something: what to put before a server's command, what before a client's,
and the address at which the client finds the server. Everything that is started is ended, by its pid.
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
BUILD = pathlib.Path(os.environ.get("RNIC_BUILD", ROOT / "build"))
RNIC = str(BUILD / "tools" / "rnic" / "rnic")


class Failed(Exception):
    """A test's claim does not hold; the text says which."""

    said = ""  # all that its programs said, where the text has only the end of it


class Skipped(Exception):
    """A test that cannot be done here; the text says what it needs. It counts as neither passed nor failed."""


def end_by_sigterm():
    """What was started ends with us, also where it is timeout(1) that ends us."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def descendants(pid):
    """The pids of everything that a process of ours has started, and what that has started."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                pass
    found, queue = [], [pid]
    while queue:
        parent = queue.pop()
        children = [child for child, of in parents.items() if of == parent]
        found += children
        queue += children
    return found


class Process:
    """A program in a group of its own, its output in a file."""

    def __init__(self, words, directory, env=None):
        self.words = [str(word) for word in words]
        self.out = tempfile.NamedTemporaryFile("w+b", dir=directory, suffix=".out", delete=False)
        self.started = time.monotonic()
        self.handle = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT,
                                       start_new_session=True, env=env)

    @property
    def pid(self):
        return self.handle.pid

    def text(self):
        return pathlib.Path(self.out.name).read_text(errors="replace")

    def wait(self, limit_s):
        """Its exit code; Failed when it is still there after the limit."""
        try:
            return self.handle.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failed(f"still running after {limit_s} s: {shlex.join(self.words[-12:])}\n{tail(self.text())}") from None

    def running(self):
        return self.handle.poll() is None

    def until(self, ready, what, limit_s=20):
        """Waits until it is ready, as `ready()` tells."""
        deadline = time.monotonic() + limit_s
        while not ready():
            if not self.running():
                raise Failed(f"ended at once: {shlex.join(self.words)}\n{tail(self.text())}")
            if time.monotonic() > deadline:
                self.end()
                raise Failed(f"never {what}: {shlex.join(self.words)}\n{tail(self.text())}")
            time.sleep(0.02)

    def end(self, with_signal=signal.SIGTERM):
        children = descendants(self.pid)  # fio's job, for one, is in a session of its own
        for each in (with_signal, signal.SIGKILL):
            if self.handle.poll() is not None:
                break
            try:
                os.killpg(self.pid, each)
            except ProcessLookupError:
                break
            try:
                self.handle.wait(timeout=3)
            except subprocess.TimeoutExpired:
                continue
        try:
            os.killpg(self.pid, signal.SIGKILL)  # what it left behind in its group
        except ProcessLookupError:
            pass
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass


def tail(text, lines=16):
    return "\n".join(text.strip().splitlines()[-lines:])


VETHS = itertools.count()


class World:
    """A scratch directory and everything started in it."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="rnic-e2e-")
        self.env = dict(os.environ, RNIC_RUN_BASE=self.directory + "/run")
        self.processes = []
        self.daemons = []
        self.namespaces = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.end()
        for name, prefix in list(self.daemons):
            self.down(name, prefix)
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, words):
        process = Process(words, self.directory, self.env)
        self.processes.append(process)
        return process

    def run(self, words, limit_s=60, expect=0):
        process = self.start(words)
        code = process.wait(limit_s)
        if expect is not None and code != expect:
            raise Failed(f"exit code {code}: {shlex.join(process.words)}\n{tail(process.text())}")
        return process.text()

    def up(self, name, options, prefix=()):
        done = subprocess.run([*prefix, RNIC, "up", "--name", name, *options], env=self.env, capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise Failed(f"rnic up {shlex.join(options)}: {done.stdout}{done.stderr}")
        self.daemons.append((name, tuple(prefix)))

    def down(self, name, prefix=()):
        if (name, tuple(prefix)) in self.daemons:
            self.daemons.remove((name, tuple(prefix)))
        done = subprocess.run([*prefix, RNIC, "down", "--name", name], env=self.env, capture_output=True, text=True,
                              timeout=90, stdin=subprocess.DEVNULL, check=False)
        return done.returncode

    def daemon_pid(self, name):
        return int(pathlib.Path(self.directory, "run", name, "rnicd.pid").read_text())

    def show(self, name, what=""):
        done = subprocess.run([RNIC, "show", *([what] if what else []), "--json", "--name", name], env=self.env,
                              capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise Failed(f"rnic show: {done.stderr}")
        return json.loads(done.stdout)

    def namespace(self, name):
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        self.namespaces.append(name)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, capture_output=True)


def lost_rpings_race(program, code):
    """rping before rdma-core 59 may destroy its event channel after its thread has taken the last event and before that
    asks for the next: all was done, and the exit code is 255 (github.com/linux-rdma/rdma-core/pull/1622). This is so
    only where these lines are all that it says: it would say as well what else went wrong."""
    last = "rdma_get_cm_event: Bad file descriptor"
    said = (["client DISCONNECT EVENT...", last], ["server DISCONNECT EVENT...", "wait for RDMA_READ_ADV state 10", last])
    return code == 255 and "rping" in program.words and program.text().splitlines() in said


class Wire:
    """Two sides. `server` and `client` go before a command."""

    def __init__(self, world, name, server, client, address, local=False):
        self.world = world
        self.name = name
        self.server = list(server)
        self.client = list(client)
        self.address = address
        self.local = local  # the kernel serves the address too (qperf's control connection)
        self.slow = False
        self.inside = []   # before a command in the server's namespace
        self.exchange = "127.0.0.1"  # where programs that do without rdma_cm tell each other what they need
        self.netdev = None  # its interface there

    def with_options(self, *options):
        """The same wire, with more options of `rnic run`."""
        def more(words):
            at = words.index("run") + 1
            return [*words[:at], *options, *words[at:]]
        other = Wire(self.world, self.name, more(self.server), more(self.client), self.address, self.local)
        other.slow = self.slow
        return other

    @staticmethod
    def daemon_of(side):
        return side[side.index("--name") + 1] if "--name" in side else "default"

    def daemons(self):
        return {self.daemon_of(side) for side in (self.server, self.client)}

    def listeners(self):
        """By their ids: one may go as the next comes."""
        rows = self.world.show(self.daemon_of(self.server), "conn").get("cm", ())
        return {row["id"] for row in rows if row["state"] == "listening"}

    def start_server(self, words):
        """Comes back when it listens, by librdmacm."""
        before = self.listeners()
        server = self.world.start([*self.server, *words])
        server.until(lambda: self.listeners() - before, "listens")
        return server

    def start_client(self, words):
        return self.world.start([*self.client, *words])

    def start_working(self, words, client_words=None):
        """(server, client), started by the same words but for the address, or by the client's own. Comes back when
        they are at work: past the connection by which perftest greets, and 200 segments into another, or as many messages
        without the wire."""
        server = self.start_server(words)
        client = self.start_client(client_words or [*words, self.address])

        def at_work():
            if not server.running():
                raise Failed(f"the server ended at once:\n{tail(server.text())}\n--- client\n{tail(client.text())}")
            seen = self.world.show(self.daemon_of(self.client))
            return any(row["segments_in"] + row["segments_out"] > 200 for row in seen["conn"]) or any(
                row["direct_in"] + row["direct_out"] > 200 for row in seen["qp"])

        client.until(at_work, "at work")
        return server, client

    def start_pinging(self):
        """rping's two ends, which go on and on."""
        return self.start_working(["rping", "-s", "-a", self.address],
                                  ["rping", "-c", "-a", self.address, "-C", "100000000"])

    def served_well(self, code, _):
        """Of a server's exit code and words, where the client has ended well."""
        return code == 0

    def asked_well(self, code, _):
        """Of a client's exit code and words."""
        return code == 0

    def both_end(self, server, client, limit_s):
        """Waits for both; both must end well. Of those that do not, the last lines: who fails says there why."""
        try:
            try:
                code = client.wait(limit_s)
            except Failed as failure:
                server.end()
                raise Failed(f"{failure}\n--- server\n{tail(server.text())}") from None
            if not (self.asked_well(code, client.text()) or lost_rpings_race(client, code)):
                server.end()
                raise Failed(f"client's exit code {code}: {shlex.join(client.words)}\n{tail(client.text())}\n"
                             f"--- server\n{tail(server.text())}")
            code = server.wait(60 if self.slow else 15)
            if not (self.served_well(code, server.text()) or lost_rpings_race(server, code)):
                raise Failed(f"server's exit code {code}: {shlex.join(server.words)}\n{tail(server.text())}")
        except Failed as failure:
            failure.said = server.text() + client.text()
            raise

    def pair(self, server_words, client_words, limit_s=60):
        """Runs both; both must end well."""
        server = self.start_server(server_words)
        client = self.start_client(client_words)
        self.both_end(server, client, limit_s)
        return server.text(), client.text()


def of_mtu(mtu):
    """(options of a port, behind a wire's name): None is the default, the largest that there is in memory."""
    return (["--mtu", str(mtu)], f", MTU {mtu}") if mtu else ([], "")


def pair_wire(world, name="pair", mtu=None, mtu_of_server=None):
    mtu_of_server = mtu_of_server or mtu
    world.up(name, ["--port", "pair:w", "--address", "127.0.1.1/24", *of_mtu(mtu)[0],
                    "--port", "pair:w", "--address", "127.0.1.2/24", *of_mtu(mtu_of_server)[0]])
    run = [RNIC, "run", "--name", name]
    return Wire(world, "pair" + of_mtu(mtu_of_server)[1], [*run, "--device", "rnic1"], [*run, "--device", "rnic0"],
                "127.0.1.2", local=True)


def pair6_wire(world, name="pair6", mtu=None):
    """A pair whose ends have addresses of IPv6 only, which no kernel knows."""
    options, label = of_mtu(mtu)
    world.up(name, ["--port", "pair:w", "--address", "2001:db8::1/64", *options,
                    "--port", "pair:w", "--address", "2001:db8::2/64", *options])
    run = [RNIC, "run", "--name", name]
    return Wire(world, "pair, IPv6" + label, [*run, "--device", "rnic1"], [*run, "--device", "rnic0"], "2001:db8::2")


def loopback_wire(world, name="loop", mtu=None):
    options, label = of_mtu(mtu)
    world.up(name, ["--port", "loopback", *options] if options else [])
    run = [RNIC, "run", "--name", name]
    return Wire(world, "loopback" + label, run, run, "127.0.1.1", local=True)


def memif_wire(world, mtu=None):
    socket = world.directory + "/memif.sock"
    options, label = of_mtu(mtu)
    world.up("ma", ["--port", f"memif:{socket},role=server", "--address", "127.0.1.3/24", *options])
    world.up("mb", ["--port", f"memif:{socket},role=client", "--address", "127.0.1.4/24", *options])
    return Wire(world, "memif" + label, [RNIC, "run", "--name", "ma"], [RNIC, "run", "--name", "mb"], "127.0.1.3", local=True)


def veth_wire(world, kind, lossy_permille=0, addresses=("10.77.0.1/24", "10.77.0.2/24"), options=(), label=None,
              keys="", daemon_keys="", queues=1, mtu=1500):
    """Two namespaces joined by a veth of so many queues (or by two, with a man in the middle), no address on the
    kernel's side. `keys`: of the devices, and `daemon_keys` of the daemons, where they have more than options say.
    Frames are as the kernel likes them, merged and without checksums; the man in the middle sees what is on a cable."""
    tag = f"{os.getpid() % 10000}-{next(VETHS)}"
    a, b = f"rnicA{tag}", f"rnicB{tag}"
    world.namespace(a)
    world.namespace(b)

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    if lossy_permille:
        m = f"rnicM{tag}"
        world.namespace(m)
        ip("link", "add", "ra", "netns", a, "type", "veth", "peer", "name", "ma", "netns", m)
        ip("link", "add", "rb", "netns", b, "type", "veth", "peer", "name", "mb", "netns", m)
        for device in ("ma", "mb"):
            ip("-n", m, "link", "set", "dev", device, "up")
    else:
        of_queues = ("numrxqueues", str(queues), "numtxqueues", str(queues))
        ip("link", "add", "ra", "netns", a, "mtu", str(mtu), *of_queues, "type", "veth", "peer", "name", "rb", "netns", b,
           "mtu", str(mtu), *of_queues)
    for namespace, device in ((a, "ra"), (b, "rb")):
        inside = ["ip", "netns", "exec", namespace]
        subprocess.run([*inside, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], check=False, capture_output=True)
        ip("-n", namespace, "link", "set", "dev", device, "up")
        if lossy_permille:
            subprocess.run([*inside, "ethtool", "-K", device, "tx", "off", "rx", "off", "tso", "off", "gso", "off",
                            "gro", "off"], check=False, capture_output=True)
    if lossy_permille:
        world.start(["ip", "netns", "exec", m, str(BUILD / "tests" / "mitm"), "ma", "mb", "--loss-permille",
                     str(lossy_permille), "--seed", "7"])
        time.sleep(0.2)
    sides, starts = [], []
    # Each asks for its address for some seconds: together.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        for namespace, device, address, name in ((a, "ra", addresses[0], "va"), (b, "rb", addresses[1], "vb")):
            inside = ["ip", "netns", "exec", namespace]
            words = ["--port", f"{kind}:{device}", "--address", address, *options]
            if keys:
                config = pathlib.Path(world.directory, name + ".toml")
                config.write_text(f'{daemon_keys}\n[[device]]\nport = "{kind}:{device}"\naddress = "{address}"\n{keys}\n')
                words = ["--config", str(config)]
            starts.append(threads.submit(world.up, name + kind, words, inside))
            sides.append([*inside, RNIC, "run", "--name", name + kind])
    for start in starts:
        start.result()
    wire = Wire(world, label or kind + (" with loss" if lossy_permille else ""), sides[0], sides[1],
                addresses[0].split("/")[0])
    wire.inside = ["ip", "netns", "exec", a]
    wire.netdev = "ra"
    return wire


class KernelLink:
    """A veth: on one end a daemon by af_packet, on the other the kernel, with its own addresses."""

    OURS, THEIRS = "10.77.0.1", "10.77.0.2"
    OURS6, THEIRS6 = "2001:db8:77::1", "2001:db8:77::2"

    def __init__(self, world, tag="k"):
        self.world = world
        end = f"{os.getpid() % 10000}{tag}"
        self.ours, self.theirs = f"rnicD{end}", f"rnicK{end}"
        world.namespace(self.ours)
        world.namespace(self.theirs)
        self.ip("link", "add", "ra", "netns", self.ours, "type", "veth", "peer", "name", "rb", "netns", self.theirs)
        for namespace, device in ((self.ours, "ra"), (self.theirs, "rb")):
            self.ip("-n", namespace, "link", "set", "dev", device, "up")
            subprocess.run(["ip", "netns", "exec", namespace, "ethtool", "-K", device, "tx", "off", "rx", "off", "tso",
                            "off", "gso", "off", "gro", "off", "txvlan", "off", "rxvlan", "off"],
                           check=False, capture_output=True)
        subprocess.run([*self.inside, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], check=False,
                       capture_output=True)
        self.ip("-n", self.theirs, "addr", "add", self.THEIRS + "/24", "dev", "rb")
        self.ip("-n", self.theirs, "addr", "add", self.THEIRS6 + "/64", "dev", "rb", "nodad")
        self.name = "kl" + tag

    @property
    def inside(self):
        return ["ip", "netns", "exec", self.ours]

    @property
    def kernel(self):
        return ["ip", "netns", "exec", self.theirs]

    @property
    def run(self):
        return [*self.inside, RNIC, "run", "--name", self.name]

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def up(self, *options):
        self.world.up(self.name, ["--port", "af_packet:ra", *options], self.inside)

    def down(self):
        self.world.down(self.name, self.inside)

    def port(self):
        return self.world.show(self.name, "port")["port"][0]


class Report:
    """What became of tests; they may be on several threads."""

    def __init__(self):
        end_by_sigterm()
        self.told = threading.Lock()
        self.passed = 0
        self.failed = 0
        self.only = os.environ.get("RNIC_E2E_ONLY")

    def test(self, title, claim, tries=1, always=False):
        """`tries`: more than one only for a program that is known to lose a race of its own. ib_send_bw -e
        waits for ever when its peer is late with its first credit (stock.deep_receives()). qperf 0.4.11 tells its client the port before it listens
        there, and the client's call is refused (one run in 30; later versions listen first). fi_pingpong over
        libfabric's rxm destroys its queue pair before it has polled what came between its last empty poll and the
        word of its peer's end, and waits for ever (docs/decisions.md). Each further try is said, never silent.
        `always`: also where only some are asked for; they need it."""
        if self.only and not always and not re.search(self.only, title):
            return
        start = time.monotonic()
        failures = []
        while len(failures) < tries:
            try:
                words = claim() or ""
                with self.told:
                    self.passed += 1
                    print(f"ok    {title} ({time.monotonic() - start:.1f} s) {words}", flush=True)
                    for failure in failures:
                        print("      not at the first try:\n      " + failure.replace("\n", "\n      "), flush=True)
                return
            except Skipped as why:
                with self.told:
                    print(f"skip  {title}: {why}", flush=True)
                return
            except (Failed, subprocess.SubprocessError, OSError, ValueError, KeyError, IndexError) as failure:
                failures.append(str(failure))
        with self.told:
            self.failed += 1
            print(f"FAIL  {title} ({time.monotonic() - start:.1f} s)", flush=True)
            print("      " + failures[-1].replace("\n", "\n      "), flush=True)

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0
