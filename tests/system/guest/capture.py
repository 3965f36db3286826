"""What went over the tap, judged by two decoders, of which one is not ours: tshark."""
import collections
import json
import re
import signal
import struct
import subprocess
import time

from harness import RNIC, Failed, tail
from tshark import tshark


def fpdu_octets(ulpdu_octets):
    """Length field, ULPDU, pad and CRC (RFC 5044 s4.1)."""
    return (2 + ulpdu_octets + 3) // 4 * 4 + 4


class Capture:
    """Everything on an interface, from here to `finish`."""

    def __init__(self, world, inside, netdev, path):
        self.path = path
        self.process = world.start([*inside, "tcpdump", "-Z", "root", "-i", netdev, "-s", "0", "-B", "65536", "-w", path])
        self.process.until(lambda: "listening on" in self.process.text(), "captures", 60)

    def finish(self):
        time.sleep(0.5)  # what is on its way into the file
        self.process.end(signal.SIGINT)
        if "\n0 packets dropped by kernel" not in self.process.text():
            raise Failed(f"the capture is not whole:\n{tail(self.process.text())}")


def tcp_headers(capture):
    """(source, destination, where its TCP header is) of each TCP segment over Ethernet in a file of tcpdump's."""
    if struct.unpack_from("<I", capture)[0] != 0xA1B2C3D4:
        raise Failed("the capture is not as tcpdump writes it on this machine")
    at = 24
    while at + 16 <= len(capture):
        frame = at + 16
        at = frame + struct.unpack_from("<I", capture, at + 8)[0]
        kind, ip = capture[frame + 12:frame + 14], frame + 14
        if kind == b"\x08\x00" and capture[ip + 9] == 6:
            yield bytes(capture[ip + 12:ip + 16]), bytes(capture[ip + 16:ip + 20]), ip + (capture[ip] & 15) * 4
        elif kind == b"\x86\xdd" and capture[ip + 6] == 6:
            yield bytes(capture[ip + 8:ip + 24]), bytes(capture[ip + 24:ip + 40]), ip + 40


def give_ports_of_their_own(path):
    """Where a client's port came again toward the same server, tshark goes on with what it knows of the connection
    before, and takes the startup frames for FPDUs: each later connection has a port in the file that nobody else has.
    How many there were."""
    with open(path, "rb") as file:
        capture = bytearray(file.read())
    segments = [(source, destination, *struct.unpack_from("!HHI", capture, tcp), capture[tcp + 13] & 0x12, tcp)
                for source, destination, tcp in tcp_headers(capture)]
    taken = {port for segment in segments for port in segment[2:4]}
    free = (port for port in range(20000, 65536) if port not in taken)
    began, later, count = {}, {}, 0
    for source, destination, source_port, destination_port, sequence, flags, tcp in segments:
        ends = (source, source_port), (destination, destination_port)
        connection = frozenset(ends)
        if flags == 0x02 and began.setdefault(connection, sequence) != sequence:  # a SYN, and not the first again
            began[connection] = sequence
            later[connection] = ends[0], next(free)
            count += 1
        if connection not in later:
            continue
        client, port = later[connection]
        where = tcp if ends[0] == client else tcp + 2
        old, checksum = struct.unpack_from("!H", capture, where)[0], struct.unpack_from("!H", capture, tcp + 16)[0]
        total = (~checksum & 0xFFFF) + (~old & 0xFFFF) + port  # RFC 1624
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into("!H", capture, where, port)
        struct.pack_into("!H", capture, tcp + 16, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
    if count:
        with open(path, "wb") as file:
            file.write(capture)
    return count


class Direction:
    """One direction of one connection, as tshark shows it."""

    def __init__(self):
        self.startup_octets = 0
        self.octets = 0
        self.crc_asked = False
        self.headers = {}  # FPDUs, by the sequence number of the segment in which tshark shows them


# What both decoders say of an FPDU, as tshark names it and as rnic decode does. The lists of one segment have a value
# for each FPDU that has such a field.
EVERY = {"iwarp_mpa.ulpdulength": "ulpdu_length", "iwarp_rdma.opcode": "opcode", "iwarp_ddp.tagged_flag": "tagged",
         "iwarp_ddp.last_flag": "last"}
TAGGED = {"iwarp_ddp.stag": "stag", "iwarp_ddp.tagged_offset": "to"}
UNTAGGED = {"iwarp_ddp.qn": "qn", "iwarp_ddp.msn": "msn", "iwarp_ddp.mo": "mo"}
READ_REQUEST = {"iwarp_rdma.sinkstag": "sink_stag", "iwarp_rdma.sinkto": "sink_to", "iwarp_rdma.rdmardsz": "size",
                "iwarp_rdma.srcstag": "source_stag", "iwarp_rdma.srcto": "source_to"}
TERMINATE = {"iwarp_rdma.term_layer": "layer"}
ALL = [*EVERY, *TAGGED, *UNTAGGED, *READ_REQUEST, *TERMINATE]


def number(text):
    return {"True": 1, "False": 0}.get(text) if text in ("True", "False") else int(text, 0)


def headers_of(lists):
    """The FPDUs of a segment from tshark's fields, each list in the order of the FPDUs."""
    left = {name: [number(value) for value in text.split(",")] if text else [] for name, text in lists.items()}
    headers = []
    for _ in range(len(left["iwarp_mpa.ulpdulength"])):
        header = {ours: left[theirs].pop(0) for theirs, ours in EVERY.items()}
        groups = [TAGGED if header["tagged"] else UNTAGGED]
        groups += [READ_REQUEST] if header["opcode"] == 1 else [TERMINATE] if header["opcode"] == 7 else []
        for group in groups:
            header.update({ours: left[theirs].pop(0) for theirs, ours in group.items()})
        headers.append(header)
    if over := {name: values for name, values in left.items() if values}:
        raise Failed(f"tshark shows more than there are FPDUs: {over}")
    return headers


def by_tshark(path):
    """{(stream, source, destination): Direction} of every MPA connection."""
    directions = collections.defaultdict(Direction)
    fields = ["tcp.stream", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport", "tcp.seq", "tcp.len",
              "iwarp_mpa.pdlength", "iwarp_mpa.crc_flag", *ALL]
    for line in tshark(path, "-Y", "tcp", "-T", "fields", *(word for field in fields for word in ("-e", field))).splitlines():
        stream, *addresses, source, destination, sequence, octets, private, crc = (values := line.split("\t"))[:11]
        from_v4, to_v4, from_v6, to_v6 = addresses
        ends = [f"{v4}:{port}" if v4 else f"[{v6}]:{port}"
                for v4, v6, port in ((from_v4, from_v6, source), (to_v4, to_v6, destination))]
        direction = directions[int(stream), *ends]
        if int(octets):
            direction.octets = max(direction.octets, int(sequence) - 1 + int(octets))
        if private:
            direction.startup_octets = 20 + int(private)
            direction.crc_asked = crc in ("1", "True")
        lists = dict(zip(ALL, values[11:]))
        if lists["iwarp_mpa.ulpdulength"]:
            direction.headers[int(sequence)] = headers_of(lists)
    return {key: direction for key, direction in directions.items() if direction.startup_octets}


def by_rnic(path):
    """The units that `rnic decode` finds in a capture."""
    with open(path + ".json", "w+", encoding="ascii") as out:
        done = subprocess.run([RNIC, "decode", path], stdout=out, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise Failed(f"rnic decode: {tail(done.stderr)}")
        out.seek(0)
        units = [json.loads(line) for line in out]
    if errors := [unit for unit in units if unit["kind"] == "error"]:
        raise Failed(f"rnic decode finds errors: {errors[:3]}")
    return units


def short(unit):
    """What tshark shows as well."""
    keys = [*EVERY.values(), *(TAGGED if unit["tagged"] else UNTAGGED).values()]
    header = {key: int(unit[key]) for key in keys}
    if unit["opcode"] == 1:
        header.update({key: unit["read_request"][key] for key in READ_REQUEST.values()})
    if unit["opcode"] == 7:
        header.update({key: unit["terminate"][key] for key in TERMINATE.values()})
    return header


def compare(directions, units):
    """Both show the same FPDUs, each header the same, in the same order."""
    theirs, ours = collections.defaultdict(list), collections.defaultdict(list)
    for (_, source, destination), direction in sorted(directions.items()):
        for _, headers in sorted(direction.headers.items()):
            theirs[source, destination] += headers
    for unit in units:
        if unit["kind"] == "fpdu":
            ours[unit["source"], unit["destination"]].append(short(unit))
    for ends in {*theirs, *ours}:
        for place, (one, other) in enumerate(zip(ours[ends], theirs[ends])):
            if one != other:
                raise Failed(f"FPDU {place} of {ends}: rnic decode {one}, tshark {other}")
        if len(ours[ends]) != len(theirs[ends]):
            raise Failed(f"FPDUs of {ends}: rnic decode {len(ours[ends])}, tshark {len(theirs[ends])}")


# proves: W-MPA-21
def responder_waits(units, ours):
    """No FPDU of rnic's, where it is the responder, before one of the initiator's."""
    spoken = set()
    for unit in units:
        if unit["kind"] == "mpa" and unit["type"] == "request":
            spoken.discard((unit["source"], unit["destination"]))
        if unit["kind"] != "fpdu":
            continue
        if unit["direction"] == "to_responder":
            spoken.add((unit["source"], unit["destination"]))
        elif unit["source"].startswith(ours) and (unit["destination"], unit["source"]) not in spoken:
            raise Failed(f"the responder has spoken first: {unit}")


def requests_are(units, ours, expected):
    """What each side's Requests ask for, as it is built and set. A direction that was not tried has none."""
    for unit in units:
        if unit["kind"] == "mpa" and unit["type"] == "request":
            who = "rnic" if unit["source"].startswith(ours) else "siw"
            if any(unit[key] != value for key, value in expected[who].items()):
                raise Failed(f"a Request of {who}'s, where {expected[who]} is expected: {unit}")


def judge(path, ours, requests):
    """Every octet of both directions is in an FPDU that both decode alike, and every CRC is good where one is asked
    for. `ours`: the addresses whose FPDUs are rnic's; `requests`: members of both sides' Requests."""
    give_ports_of_their_own(path)
    text = tshark(path, "-O", "iwarp_mpa", "-Y", "iwarp_mpa.fpdu || _ws.malformed")
    for frame in text.split("\n\n"):
        if "Malformed" in frame and any(f"Src: {address}," in frame for address in ours):
            raise Failed(f"a malformed frame of rnic's:\n{tail(frame)}")
    ours = (ours[0] + ":", f"[{ours[1]}]:")
    directions, units = by_tshark(path), by_rnic(path)
    counts = collections.Counter()
    with_crc = 0
    for (stream, source, _), direction in directions.items():
        headers = [header for some in direction.headers.values() for header in some]
        decoded = direction.startup_octets + sum(fpdu_octets(header["ulpdu_length"]) for header in headers)
        who = "rnic" if source.startswith(ours) else "siw"
        if decoded != direction.octets:
            raise Failed(f"connection {stream}: {who} sent {direction.octets} octets, of which tshark decodes {decoded}")
        counts[who] += len(headers)
        if any(d.crc_asked for (other, *_), d in directions.items() if other == stream):
            with_crc += len(headers)
    if not counts["rnic"] or not counts["siw"]:
        raise Failed(f"FPDUs: {dict(counts)}")
    compare(directions, units)
    responder_waits(units, ours)
    requests_are(units, ours, requests)
    verdicts = collections.Counter(unit["crc"] for unit in units if unit["kind"] == "fpdu")
    good, bad = len(re.findall("Good CRC32", text)), len(re.findall("Bad CRC32", text))  # segments sent twice twice
    if bad or verdicts["bad"] or verdicts["good"] != with_crc or good < with_crc:
        raise Failed(f"of {with_crc} FPDUs with CRC tshark finds {good} good, {bad} bad; rnic decode {dict(verdicts)}")
    return f"{counts['rnic']} FPDUs of rnic's, {counts['siw']} of siw's, {with_crc} with CRC"
