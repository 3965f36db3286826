"""DAPL's dapltest: transactions between two devices."""
import pathlib
import re
import shutil

import programs as stock
from harness import Failed, Skipped, tail

NAME = "ofa-v2-rnic"
LIBRARY = "libdaplofa.so.2"
TRANSACTIONS = (
    # (arguments, octets of each round of an end point that go to the other end)
    (("client", "SR", "4096", "server", "SR", "4096"), 8192),
    (("client", "SR", "256", "server", "RW", "8192", "3", "client", "RW", "4096", "server", "SR", "256"), 29184),
    (("client", "SR", "256", "server", "RR", "8192", "client", "RR", "4096", "server", "SR", "256"), 12800),
)
THREADS, ENDPOINTS = 2, 2


def dapltest(wire, rounds=50):
    if not shutil.which("dapltest"):
        raise Skipped("needs the package dapl2-utils")

    def words(side, address):
        table = pathlib.Path(wire.world.directory, f"dat-{address}.conf")
        table.write_text(f'{NAME} u2.0 nonthreadsafe default {LIBRARY} dapl.2.0 "{address} 0" ""\n')
        return [*side, "env", f"DAT_OVERRIDE={table}", "dapltest"]

    client = words(wire.client, stock.own_address(wire, wire.client))
    known = wire.listeners()
    server = wire.world.start([*words(wire.server, wire.address), "-T", "S", "-D", NAME])
    try:
        server.until(lambda: wire.listeners() - known, "listens")
        for each, octets in TRANSACTIONS:
            for checked in ((), ("-V",)):
                before = stock.octets_out(wire)
                text = wire.world.run([*client, "-T", "T", "-D", NAME, "-s", wire.address, "-i", str(rounds), "-t",
                                       str(THREADS), "-w", str(ENDPOINTS), *checked, *each], 120)
                if "error" in (text + server.text()).lower() or "End of Work" not in text:
                    raise Failed(f"{each}:\n{tail(text)}\n--- server\n{tail(server.text())}")
                if stock.octets_out(wire) - before < octets * rounds * THREADS * ENDPOINTS:
                    raise Failed(f"{each}: the devices have sent {stock.octets_out(wire) - before} octets")
        text = wire.world.run([*client, "-T", "Q", "-D", NAME, "-s", wire.address])
        if server.wait(30) != 0 or not re.search(r"DT_cs_Server .*Exiting", server.text()):
            raise Failed(f"{tail(text)}\n--- server\n{tail(server.text())}")
    finally:
        server.end()
    return f"{2 * len(TRANSACTIONS)} transactions of {THREADS} threads by {ENDPOINTS} end points"
