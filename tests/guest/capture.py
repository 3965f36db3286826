"""What went over the tap, judged by decoders that are not the data plane: tshark."""
import collections
import re
import signal
import subprocess
import time

from harness import Failed, tail

TSHARK = ["tshark", "--disable-heuristic", "rpcrdma_iwarp"]


def fpdu_octets(ulpdu_octets):
    """Length field, ULPDU, pad and CRC (RFC 5044 s4.1)."""
    return (2 + ulpdu_octets + 3) // 4 * 4 + 4


class Capture:
    """Everything on an interface, from here to `finish`."""

    def __init__(self, world, inside, netdev, path):
        self.path = path
        self.process = world.start([*inside, "tcpdump", "-Z", "root", "-i", netdev, "-s", "0", "-B", "65536", "-w", path])
        self.process.until(lambda: "listening on" in self.process.text(), "captures")

    def finish(self):
        time.sleep(0.5)  # what is on its way into the file
        self.process.end(signal.SIGINT)
        if "\n0 packets dropped by kernel" not in self.process.text():
            raise Failed(f"the capture is not whole:\n{tail(self.process.text())}")


def tshark(path, *words):
    done = subprocess.run([*TSHARK, "-r", path, *words], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Failed(f"tshark: {tail(done.stderr)}")
    return done.stdout


class Direction:
    """One direction of one connection."""

    def __init__(self):
        self.startup_octets = 0
        self.octets = 0
        self.crc_asked = False
        self.fpdus = {}  # by the sequence number of the segment in which tshark shows them


def read(path, address_field="ip.src"):
    """{(stream, source): Direction} of every MPA connection."""
    directions = collections.defaultdict(Direction)
    fields = ["tcp.stream", address_field, "tcp.seq", "tcp.len", "iwarp_mpa.pdlength", "iwarp_mpa.crc_flag", "iwarp_mpa.ulpdulength"]
    for line in tshark(path, "-Y", "tcp", "-T", "fields", *(word for field in fields for word in ("-e", field))).splitlines():
        stream, source, sequence, octets, private, crc, ulpdus = line.split("\t")
        direction = directions[stream, source]
        direction.octets = max(direction.octets, int(sequence) - 1 + int(octets))
        if private:
            direction.startup_octets = 20 + int(private)
            direction.crc_asked = crc in ("1", "True")
        if ulpdus:
            direction.fpdus[sequence] = [int(octets) for octets in ulpdus.split(",")]
    return {key: direction for key, direction in directions.items() if direction.startup_octets}


def judge(path, ours):
    """Every octet of both directions is in an FPDU that tshark decodes, and every CRC is good where one is asked for.
    `ours`: the address whose FPDUs are rnic's."""
    if malformed := tshark(path, "-Y", f"_ws.malformed && ip.src == {ours}"):
        raise Failed(f"malformed frames of rnic's:\n{tail(malformed)}")
    directions = read(path)
    counts = collections.Counter()
    with_crc = 0
    for (stream, source), direction in directions.items():
        fpdus = [octets for some in direction.fpdus.values() for octets in some]
        decoded = direction.startup_octets + sum(fpdu_octets(octets) for octets in fpdus)
        who = "rnic" if source == ours else "siw"
        if decoded != direction.octets:
            raise Failed(f"connection {stream}: {who} sent {direction.octets} octets, of which tshark decodes {decoded}")
        counts[who] += len(fpdus)
        if any(d.crc_asked for (other, _), d in directions.items() if other == stream):
            with_crc += len(fpdus)
    if not counts["rnic"] or not counts["siw"]:
        raise Failed(f"FPDUs: {dict(counts)}")
    text = tshark(path, "-O", "iwarp_mpa", "-Y", "iwarp_mpa.fpdu")
    good, bad = len(re.findall("Good CRC32", text)), len(re.findall("Bad CRC32", text))
    if bad or good < with_crc:
        raise Failed(f"{good} good and {bad} bad CRCs, {with_crc} FPDUs with one")
    return f"{counts['rnic']} FPDUs of rnic's, {counts['siw']} of siw's, {good} with CRC"
