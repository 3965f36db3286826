"""What librdmacm has of streams: rstream, riostream, rcopy."""
import glob
import os
import pathlib
import re

import programs as stock
from harness import Failed, Skipped, tail

PRELOADED = "/usr/lib/*/rsocket/librspreload.so"


def stream(wire, program, *options, size=65536, preloaded=False):
    """Both ends find the octets right (`-T v`), and the devices have carried them."""
    iterations, count = 20, 20
    words = [program, "-T", "v", *options, "-S", str(size), "-I", str(iterations), "-C", str(count)]
    if preloaded:
        libraries = glob.glob(PRELOADED)
        if not libraries:
            raise Skipped("there is no librspreload.so")
        words = ["sh", "-c", 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', libraries[0], *words, "-T", "s"]
    before = stock.octets_out(wire)
    _, text = wire.pair([*words, "-b", wire.address], [*words, "-s", wire.address], 120 if wire.slow else 60)
    found = re.search(rf"^custom\s+\S+\s+{count}\s+{iterations}\s.*?([\d.]+)\s+[\d.]+\s*$", text, re.M)
    if not found:
        raise Failed(f"no result:\n{tail(text)}")
    if stock.octets_out(wire) - before < 2 * size * iterations * count:
        raise Failed(f"the devices did not send what came: {stock.octets_out(wire) - before} octets")
    return f"{found[1]} Gb/s"


def rcopy(wire, octets=5_000_000):
    """Of its server one process serves copy after copy; what is there then is what was sent."""
    source = pathlib.Path(wire.world.directory, "rcopy.source")
    server = wire.start_server(["rcopy"])
    try:
        for turn in range(2):
            source.write_bytes(os.urandom(octets))
            copy = pathlib.Path(wire.world.directory, f"rcopy.{turn}")
            text = wire.world.run([*wire.client, "rcopy", source, f"{wire.address}:{copy}"], 60)
            server.until(lambda t=turn: server.text().count("done") > t, "done")
            if copy.read_bytes() != source.read_bytes():
                raise Failed(f"the copy is another:\n{tail(text)}\n--- server\n{tail(server.text())}")
    finally:
        server.end()
