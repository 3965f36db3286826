"""Links between the kernel's TCP and ours: a veth whose one end is in a namespace with an address of the
kernel's, and whose other end has tcp_peer on it, by af_packet or af_xdp; with a man in the middle where asked for.

Both sides send the same pattern (tests/kit/octet_streams.hpp), so each can check each octet it gets.
"""
import contextlib
import copy
import ctypes
import json
import os
import pathlib
import queue
import random
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import BUILD, Failed  # noqa: E402

PATTERN_BYTES = 65521
KERNEL, OURS, NOBODY = "10.78.0.1", "10.78.0.2", "10.78.255.254"
KERNEL6, OURS6, NOBODY6 = "fd00:78::1", "fd00:78::2", "fd00:78::ff"
LIMIT_S = 60  # for anything at all
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32


def make_pattern():
    octets, state = bytearray(), 1
    for _ in range(PATTERN_BYTES):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        octets.append(state >> 24)
    return bytes(octets)


PATTERN = memoryview(make_pattern() * 3)


def pattern(position, size):
    """At most PATTERN_BYTES of them."""
    start = position % PATTERN_BYTES
    return PATTERN[start:start + size]


class Namespace:
    """Sockets made in `inside()` are this namespace's, whichever thread uses them."""

    libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, name):
        self.name = name
        self.fd = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def enter(self, fd):
        if self.libc.setns(fd, 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    @contextlib.contextmanager
    def inside(self):
        before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.enter(self.fd)
            yield
        finally:
            self.enter(before)
            os.close(before)


class Peer:
    """tcp_peer: a command a line, a line of JSON back."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.lock = threading.Lock()
        self.lines = queue.Queue()
        self.complaints = []
        threading.Thread(target=self.read_lines, daemon=True).start()
        threading.Thread(target=lambda: self.complaints.extend(self.process.stderr), daemon=True).start()

    def read_lines(self):
        for line in self.process.stdout:
            if line.startswith(("{", "[")):  # DPDK may have words of its own
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def answer(self):
        try:
            said = self.lines.get(timeout=LIMIT_S)
        except queue.Empty:
            raise Failed("tcp_peer does not answer") from None
        if said is None:
            self.process.wait(timeout=5)
            raise Failed(f"tcp_peer has ended, code {self.process.returncode}: {''.join(self.complaints)[-800:]}")
        if isinstance(said, dict) and "error" in said:
            raise Failed(f"tcp_peer: {said['error']}")
        return said

    def ask(self, *words):
        with self.lock:
            try:
                self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            except BrokenPipeError:
                pass
            return self.answer()

    def end(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return self.process.returncode


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=LIMIT_S)


class Link:
    """`mitm`: its options, if it is there. `sysctls`: of the kernel's end. `buffers`: of our end, one frame each.
    `merged`: frames cross as the kernel likes them, up to 64 KiB and without checksums; else as on a cable. `kind`: of
    our port."""

    ports = iter(range(4000, 60000))
    family, theirs, ours, nobody = socket.AF_INET, KERNEL, OURS, NOBODY

    def __init__(self, world, tag, mtu=1500, mitm=(), peer=(), sysctls=(), buffers=4096, merged=False,
                 kind="af_packet"):
        base = f"rnicT{os.getpid() % 100000}{tag}"
        kernel, ours = base + "k", base + "o"
        for name in (kernel, ours):
            world.namespace(name)
        if mitm:
            world.namespace(base + "m")
            run("ip", "link", "add", "k", "netns", kernel, "mtu", mtu, "type", "veth", "peer", "name", "km", "mtu", mtu, "netns", base + "m")
            run("ip", "link", "add", "o", "netns", ours, "mtu", mtu, "type", "veth", "peer", "name", "om", "mtu", mtu, "netns", base + "m")
        else:
            run("ip", "link", "add", "k", "netns", kernel, "mtu", mtu, "type", "veth", "peer", "name", "o", "mtu", mtu, "netns", ours)
        devices = [(kernel, "k"), (ours, "o")] + ([(base + "m", "km"), (base + "m", "om")] if mitm else [])
        for name, device in devices:
            if not merged:
                subprocess.run(["ip", "netns", "exec", name, "ethtool", "-K", device, "tx", "off", "rx", "off", "tso",
                                "off", "gso", "off", "gro", "off"], check=False, capture_output=True)
            if name != kernel:
                subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1"],
                               check=False, capture_output=True)
            run("ip", "-n", name, "link", "set", "dev", device, "up")
        run("ip", "-n", kernel, "address", "add", KERNEL + "/16", "dev", "k")
        if mtu >= 1280:  # RFC 8200 s5
            run("ip", "-n", kernel, "address", "add", KERNEL6 + "/64", "dev", "k", "nodad")
            peer = (*peer, "--address", OURS6 + "/64")
        for setting in sysctls:
            run("ip", "netns", "exec", kernel, "sysctl", "-qw", setting)
        if mitm:
            world.start(["ip", "netns", "exec", base + "m", BUILD / "tests" / "mitm", "km", "om", *mitm])
        self.world = world
        self.kernel = Namespace(kernel)
        self.peer = Peer(["ip", "netns", "exec", ours, str(BUILD / "tests" / "tcp_peer"), "--port", f"{kind}:o",
                          "--address", OURS + "/16", "--mtu", str(mtu), "--buffers", str(buffers), *peer])

    def ready(self):
        """Once, before all else: our end is up, and the kernel knows its way to it."""
        self.peer.answer()
        ping = ["ip", "netns", "exec", self.kernel.name, "ping", "-c", "1", "-W", "1", OURS]
        if not any(subprocess.run(ping, check=False, capture_output=True).returncode == 0 for _ in range(20)):
            raise Failed(f"{OURS} never answers a ping")  # one or two may be lost on a wire that loses some
        self.buffers = self.peer.ask("device")["buffers_free"]
        return self

    def over_ipv6(self):
        """The same link by other addresses."""
        other = copy.copy(self)
        other.family, other.theirs, other.ours, other.nobody = socket.AF_INET6, KERNEL6, OURS6, NOBODY6
        return other

    def end(self):
        return self.peer.end()

    def spray(self, *words, source=KERNEL):
        return self.world.start(["ip", "netns", "exec", self.kernel.name, BUILD / "tests" / "spray", source, OURS, *words])

    # ---- the kernel's end --------------------------------------------------------------------
    def socket(self, kind=socket.SOCK_STREAM, protocol=0, family=None):
        with self.kernel.inside():
            made = socket.socket(family or self.family, kind, protocol)
        made.settimeout(LIMIT_S)
        return made

    def call(self, port, prepare=lambda s: None, source_port=0):
        """A connection of the kernel's to a port of ours."""
        caller = self.socket()
        prepare(caller)
        if source_port:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            caller.bind((self.theirs, source_port))
        caller.connect((self.ours, port))
        return caller

    def answering(self, prepare=lambda s: None):
        """A listener of the kernel's, and its port."""
        listener = self.socket()
        prepare(listener)
        listener.bind((self.theirs, 0))
        listener.listen(16)
        return listener, listener.getsockname()[1]

    # ---- our end -----------------------------------------------------------------------------
    def listen(self, *plan, backlog=64):
        port = next(self.ports)
        if not self.peer.ask("listen", port, backlog, *plan)["listening"]:
            raise Failed("no listener")
        return port

    def connect(self, port, *plan, source_port=0, address=None):
        return self.peer.ask("connect", address or self.theirs, port, source_port, *plan)["stream"]

    def stream(self, stream):
        return self.peer.ask("stream", stream)

    def stream_at(self, port):
        """The one stream of a port of ours, when it is there."""
        return self.until(lambda: (self.peer.ask("port", port) or [None])[0], "a stream")

    def until(self, claim, what, limit_s=LIMIT_S):
        deadline = time.monotonic() + limit_s
        while not (found := claim()):
            if time.monotonic() > deadline:
                raise Failed(f"never {what}")
            time.sleep(0.02)
        return found

    def ended(self, stream, how="gracefully"):
        """Our end of a stream when it is over; it must be so."""
        last = {}

        def over():
            last.update(self.stream(stream))
            return last["ended"]

        try:
            self.until(over, "ends")
        except Failed as failure:
            raise Failed(f"{failure}: {last}") from None
        if last["how"] != how:
            raise Failed(f"ended {last['how']}, not {how}: {last}")
        if last["wrong"]:
            raise Failed(f"{last['wrong']} octets are wrong: {last}")
        return last


# ---- what the kernel's programs do -----------------------------------------------------------


def send_pattern(to, size, piece=65000, seed=None):
    chance = random.Random(seed) if seed is not None else None
    done = 0
    while done < size:
        now = min(chance.randint(1, piece) if chance else piece, size - done)
        to.sendall(pattern(done, now))
        done += now


def take_pattern(source, size=None, piece=65000, position=0):
    """Until the end of the stream, or so many octets; all of them as they must be."""
    done = position
    while size is None or done < position + size:
        octets = source.recv(min(piece, PATTERN_BYTES) if size is None else min(piece, position + size - done))
        if not octets:
            break
        if octets != pattern(done, len(octets)):
            raise Failed(f"wrong octets between {done} and {done + len(octets)}")
        done += len(octets)
    if size is not None and done < position + size:
        raise Failed(f"the stream ends after {done} octets of {position + size}")
    return done - position


class Beside:
    """A function on a thread of its own, beside what follows; its failure comes at the end."""

    def __init__(self, function, *arguments):
        self.failure = None
        self.value = None
        self.thread = threading.Thread(target=self.body, args=(function, arguments), daemon=True)

    def body(self, function, arguments):
        try:
            self.value = function(*arguments)
        except Exception as failure:  # pylint: disable=broad-except
            self.failure = failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.thread.join(LIMIT_S if kind is None else 1)
        if kind is None and self.thread.is_alive():
            raise Failed("what ran beside does not end")
        if kind is None and self.failure is not None:
            raise self.failure


# ---- by hand ---------------------------------------------------------------------------------


def checksum(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def inject(raw, source_port, port, sequence, acknowledgement, flags, payload=b""):
    """A segment to us in the kernel's name, by a raw socket."""
    header = struct.pack("!HHIIBBHHH", source_port, port, sequence & 0xFFFFFFFF, acknowledgement & 0xFFFFFFFF, 5 << 4,
                         flags, 64240, 0, 0)
    pseudo = socket.inet_aton(KERNEL) + socket.inet_aton(OURS) + struct.pack("!HH", 6, len(header) + len(payload))
    segment = header[:16] + struct.pack("!H", checksum(pseudo + header + payload)) + header[18:] + payload
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0, socket.inet_aton(KERNEL),
                     socket.inet_aton(OURS))
    raw.sendto(ip + segment, (OURS, 0))


class Sniffer:
    """The TCP segments that we send, as the kernel's end of the wire sees them."""

    def __init__(self, link):
        self.raw = link.socket(socket.SOCK_RAW, socket.htons(0x0800), socket.AF_PACKET)
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE if hasattr(socket, "SO_RCVBUFFORCE") else 33, 8 << 20)
        self.raw.bind(("k", 0x0800))
        self.raw.setblocking(False)

    def segments(self):
        """What has come since: (our port, its port, sequence, acknowledgement, flags)."""
        found = []
        while True:
            try:
                frame = self.raw.recv(65535)
            except BlockingIOError:
                return found
            if len(frame) < 54 or frame[23] != 6 or frame[26:30] != socket.inet_aton(OURS):
                continue
            at = 14 + (frame[14] & 15) * 4
            ours, its, sequence, acknowledgement, _, flags = struct.unpack_from("!HHIIBB", frame, at)
            found.append((ours, its, sequence, acknowledgement, flags))

    def close(self):
        self.raw.close()
