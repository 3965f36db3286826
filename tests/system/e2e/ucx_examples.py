"""UCX's examples, from the sources that libucx-dev has, over devices of the RoCE face."""
import pathlib
import shutil

import programs as stock
from harness import Failed, Skipped, tail
from ucx import RC

SOURCES = pathlib.Path("/usr/share/doc/libucx-dev/examples")
PORT = 13337
SIZE = 5000


def built(wire, name):
    """Null where there is nothing to build it from."""
    program = pathlib.Path(wire.world.directory, name)
    if not shutil.which("cc") or not (SOURCES / f"{name}.c").exists():
        return None
    if not program.exists():
        wire.world.run(["cc", "-O1", "-o", program, SOURCES / f"{name}.c", "-lucp", "-luct", "-lucs"], 120)
    return program


def carried(wire, before, octets):
    if stock.octets_out(wire) - before < octets:
        raise Failed(f"the devices have sent {stock.octets_out(wire) - before} octets")


def client_server(wire):
    """By address: streams, tags and active messages."""
    program = built(wire, "ucp_client_server")
    if program is None:
        raise Skipped("needs the package libucx-dev")
    for kind in ("stream", "tag", "am"):
        words = ["env", f"UCX_TLS={RC}", "UCX_SOCKADDR_TLS_PRIORITY=rdmacm", program, "-c", kind, "-i", "20", "-s",
                 str(SIZE)]
        before = stock.octets_out(wire)
        server = wire.start_server([*words, "-l", wire.address])
        try:
            client = wire.start_client([*words, "-a", wire.address])
            if client.wait(60) != 0:
                raise Failed(f"{kind}: {tail(client.text())}\n--- server\n{tail(server.text())}")
        finally:
            server.end()
        carried(wire, before, 20 * SIZE)
    return None


def hello_world(wire):
    """They meet by the kernel's TCP, and wait in each of its ways."""
    program = built(wire, "ucp_hello_world")
    if program is None:
        raise Skipped("needs the package libucx-dev")
    for way in ("-b", "-w", "-f"):
        _meet(wire, ["env", f"UCX_TLS={RC}", program, way, "-s", str(SIZE)], (), ())
    return None


def transports(wire):
    program = built(wire, "uct_hello_world")
    if program is None:
        raise Skipped("needs the package libucx-dev")
    for transport in ("rc_verbs", "ud_verbs"):
        for way, size in (("-i", 16), ("-b", 1000), ("-z", 1000)):
            _meet(wire, [program, way, "-t", transport, "-s", str(size)],
                  *(("-d", f"{stock.device_of(side)}:1") for side in (wire.server, wire.client)), size)
    return None


def _meet(wire, words, of_server, of_client, size=SIZE):
    before = stock.octets_out(wire)
    server = wire.world.start([*wire.server, *words, *of_server])
    server.until(lambda: stock.kernel_listens(PORT), "listens")
    wire.both_end(server, wire.start_client([*words, *of_client, "-n", "127.0.0.1"]), 60)
    carried(wire, before, size)
