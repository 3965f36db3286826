"""Valkey over RDMA: its own test's client, against a server with its RDMA module."""
import pathlib

import programs as stock
from harness import Failed, tail

PORT = "6379"
SERVER, MODULE, CLIENT = "src/valkey-server", "src/valkey-rdma.so", "tests/rdma/rdma-test"


def there(directory):
    return all((pathlib.Path(directory) / each).exists() for each in (SERVER, MODULE, CLIENT))


def test(wire, directory, threads=4):
    """Its clients set keys of random sizes and get them back, in pieces and at once."""
    server_program, module, client_program = (str(pathlib.Path(directory) / each) for each in (SERVER, MODULE, CLIENT))
    # Protected, it serves only who has its own address.
    before = stock.octets_out(wire)
    server = wire.start_server([server_program, "--port", "0", "--protected-mode", "no", "--appendonly", "no",
                                "--save", "", "--daemonize", "no", "--dir", wire.world.directory, "--loadmodule",
                                module, f"port={PORT}", f"bind={wire.address}"])
    try:
        client = wire.start_client([client_program, "--thread", str(threads), "-h", wire.address, "-p", PORT])
        if client.wait(600) != 0 or not server.running():
            raise Failed(f"exit code {client.handle.returncode}\n{tail(client.text())}\n--- server\n"
                         f"{tail(server.text())}")
    finally:
        server.end()
    return f"{stock.octets_out(wire) - before >> 20} MiB by the devices"
