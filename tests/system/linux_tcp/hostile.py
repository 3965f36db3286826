"""What must be so whatever somebody throws at us: scans, floods, and segments in another's name."""
import json
import random
import socket
import time

from claims import echoed, whole
from link import ACK, FIN, PSH, RST, SYN, URG, Failed, Sniffer, inject

KEPT_BYTES = 16 << 20  # of memory, that a flood may leave us with


class Honest:
    """An echo stream that was there before, and must be there after."""

    def __init__(self, link):
        self.link = link
        self.caller = link.call(port := link.listen("echo"))
        self.done = 0
        self.goes_on()
        self.stream = link.stream_at(port)["stream"]
        self.port = port

    def goes_on(self, size=3000):
        echoed(self.caller, size, None, self.done)
        self.done += size

    def end(self):
        self.goes_on()
        self.caller.close()
        return whole(self.link, self.stream, received=self.done, sent=self.done)


def sent(spray):
    """So many segments, when it has sent them."""
    if spray.wait(60) != 0:
        raise Failed(spray.text())
    return json.loads(spray.text())


def settled(link):
    """The counters of our device, when no more frames come."""
    before = link.peer.ask("device")
    while True:
        time.sleep(0.1)
        now = link.peer.ask("device")
        if now["frames_in"] == before["frames_in"]:
            return now
        before = now


# ---- scans -----------------------------------------------------------------------------------


def connect_scan(link):
    honest = Honest(link)
    for port in range(60000, 62000):
        caller = link.socket()
        if caller.connect_ex((link.ours, port)) != 111:
            raise Failed(f"port {port} does not refuse")
        caller.close()
    honest.end()


def scan(link, flags):
    honest = Honest(link)
    open_port = link.listen("echo")
    sniffer = Sniffer(link)
    before = settled(link)
    sent(link.spray("--count", 3000, "--flags", flags, "--ports", "60000-62999", "--rate", 10000))
    after = settled(link)
    answers = [segment for segment in sniffer.segments() if 60000 <= segment[0] < 63000]
    if any(not segment[4] & RST for segment in answers):
        raise Failed("a closed port says something else than RST")
    # RFC 9293 s3.10.7.1: without an ACK to go by it is <SEQ=0><ACK=…><CTL=RST,ACK>.
    for _, _, sequence, _, said in answers:
        if said != (RST if flags == "ACK" else RST | ACK) or (flags != "ACK" and sequence != 0):
            raise Failed(f"a RST of another form: {said}, sequence {sequence}")
    heard = after["no_listener"] - before["no_listener"]
    # A quarter of a turn's frames is answered at least; some of a burst may not fit the port.
    if heard < 1000 or len(answers) < 600:
        raise Failed(f"{heard} of 3000 heard, {len(answers)} answered")
    # Where somebody listens, what is neither SYN nor ACK is not answered at all (s3.10.7.2).
    sent(link.spray("--count", 50, "--flags", flags, "--ports", open_port, "--rate", 5000))
    settled(link)
    found = {segment[4] for segment in sniffer.segments() if segment[0] == open_port}
    wanted = {"SYN": {SYN | ACK}, "ACK": {RST}}.get(flags, set())
    if found != wanted:
        raise Failed(f"the open port answers {found}, not {wanted}")
    sniffer.close()
    if settled(link)["streams"] > before["streams"]:
        raise Failed("a scan leaves streams behind")
    honest.end()
    return f"{heard} heard, {len(answers)} answered"


# ---- floods ----------------------------------------------------------------------------------


def syn_flood(link):
    honest = Honest(link)
    port = link.listen("echo")
    before = settled(link)
    flood = link.spray("--count", 100_000, "--flags", "SYN", "--ports", port, "--from-bits", 16, "--rate", 25_000)
    calls, longest = 0, 0.0
    while flood.running() or calls < 5:
        start = time.monotonic()
        caller = link.call(port)
        echoed(caller, 20_000, None)
        caller.close()
        calls += 1
        honest.goes_on()
        longest = max(longest, time.monotonic() - start)
    sent(flood)
    # Half-open connections stay for a minute. So this one comes by a cookie.
    after = settled(link)
    caller = link.call(port)
    echoed(caller, 20_000, None)
    caller.close()
    end = settled(link)
    heard = end["frames_in"] - before["frames_in"]
    if heard < 20_000:
        raise Failed(f"the flood has not come: {heard} frames")
    if end["half_open"] > 4096:
        raise Failed(f"{end['half_open']} half-open connections")
    if end["cookies_sent"] == 0 or end["cookies_good"] == after["cookies_good"]:
        raise Failed(f"no cookies: {end}")
    if end["streams"] > before["streams"] + 8:
        raise Failed(f"{end['streams']} streams, {before['streams']} before")
    if (grown := end["resident_bytes"] - before["resident_bytes"]) > KEPT_BYTES:
        raise Failed(f"{grown} octets of memory are gone")
    honest.end()
    return (f"{heard} frames came, {end['half_open']} half open, {end['cookies_sent']} cookies; {calls} honest calls, "
            f"the longest {longest:.2f} s; {max(grown, 0) >> 10} KiB")


def syn_flood_at_closed(link):
    honest = Honest(link)
    before = settled(link)
    flood = link.spray("--count", 100_000, "--flags", "SYN", "--ports", 63000, "--from-bits", 16, "--rate", 50_000)
    while flood.running():
        honest.goes_on()
    sent(flood)
    end = settled(link)
    if end["streams"] > before["streams"] or end["half_open"] > before["half_open"]:
        raise Failed(f"it leaves something behind: {end}")
    if (grown := end["resident_bytes"] - before["resident_bytes"]) > KEPT_BYTES:
        raise Failed(f"{grown} octets of memory are gone")
    honest.end()


# ---- in another's name -----------------------------------------------------------------------


class Victim(Honest):
    """One whose sequence numbers an attacker may know, or not."""

    def __init__(self, link):
        super().__init__(link)
        self.raw = link.socket(socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.sniffer = Sniffer(link)
        self.goes_on()
        self.source = self.caller.getsockname()[1]

        def said():
            ours = [segment for segment in self.sniffer.segments() if segment[0] == self.port and segment[1] == self.source]
            return ours[-1] if ours else None

        time.sleep(0.1)  # the last acknowledgement, too
        last = link.until(said, "is heard")
        self.sequence, self.expected = last[2], last[3]

    def says(self, sequence, flags, acknowledgement=0, payload=b""):
        inject(self.raw, self.source, self.port, sequence, acknowledgement, flags, payload)

    def lives(self):
        self.goes_on()
        record = self.link.stream(self.stream)
        if record["ended"]:
            raise Failed(f"ended: {record}")
        return record

    def end(self):
        self.raw.close()
        self.sniffer.close()
        return super().end()


def blind_injection(link):
    victim = Victim(link)
    chance = random.Random(5)
    for flags in (RST, RST | ACK, SYN, SYN | ACK, ACK, PSH | ACK, FIN | ACK, URG | FIN | PSH, 0):
        for _ in range(300):
            victim.says(chance.getrandbits(32), flags, chance.getrandbits(32), b"evil" if flags & PSH else b"")
        victim.lives()
    return victim.end()


def reset_off_by_one(link):
    victim = Victim(link)
    for offset in (1, 2, 1000, 100_000):
        victim.says(victim.expected + offset, RST)
    victim.says(victim.expected, SYN)  # RFC 5961 s4: one in the window, too, is only asked about
    settled(link)
    challenged = link.stream(victim.stream)["challenge_acks"]
    if challenged != 5:
        raise Failed(f"{challenged} challenges, not 5")
    victim.says(victim.expected - 1, RST)
    victim.says(victim.expected + (1 << 30), RST)
    # RFC 5961 s5: what it acknowledges nobody can have sent.
    victim.says(victim.expected, PSH | ACK, victim.sequence + 100_000_000, b"evil")
    victim.lives()
    victim.end()


def exact_reset(link):
    victim = Victim(link)
    victim.says(victim.expected, RST)
    link.ended(victim.stream, "reset")
    victim.caller.sendall(b"x")  # the kernel knows nothing of it yet
    try:
        while victim.caller.recv(4096):
            pass
        raise Failed("closed, not reset")
    except ConnectionResetError:
        pass
    victim.raw.close()
    victim.sniffer.close()
    victim.caller.close()
