"""UCX over devices of the RoCE face, MPIs on it, and gloo, which asks for such a device as well."""
import pathlib
import re
import shutil
import time

import programs as stock
from harness import Failed, tail

EXCHANGE_PORT = 13400
TURNS = 100  # of each of ucx_perftest's tests
IO_PORT = 13500

# Nothing else that it could take. RC needs UD (or TCP) to meet.
RC, UD = "rc_verbs,ud_verbs:aux,self", "ud_verbs,self"

# (test, size). Each as its protocols change with the size, and atomics.
UCT_RC = (("am_lat", 8), ("am_lat -D bcopy", 4000), ("put_lat", 8), ("put_bw -D zcopy", 100000), ("get -D bcopy", 8),
          ("get -D zcopy", 100000), ("add_lat", 8), ("add_mr", 8), ("fadd", 8), ("cswap", 8), ("am_bw", 64))
UCT_UD = (("am_lat", 8), ("am_lat -D bcopy", 1000), ("am_lat -D zcopy", 1000), ("am_bw", 64), ("am_bw -D bcopy", 1000))
ATOMICS = tuple((test, 8) for test in ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"))
UCP_RC = tuple((test, size) for test in ("tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "ucp_put_lat",
                                         "ucp_put_bw", "ucp_get", "stream_lat", "stream_bw", "ucp_am_lat", "ucp_am_bw")
               for size in (8, 100000)) + ATOMICS
UCP_UD = (("tag_lat", 8), ("tag_lat", 100000), ("tag_bw", 8), ("tag_sync_lat", 8), ("tag_sync_bw", 8),
          ("ucp_put_lat", 8), ("ucp_put_bw", 8), ("ucp_get", 8), ("stream_lat", 8), ("stream_bw", 20000),
          ("ucp_am_lat", 8), ("ucp_am_bw", 8)) + ATOMICS


def info(wire):
    text = wire.world.run([*wire.client, "ucx_info", "-d"])
    for transport in ("rc_verbs", "ud_verbs"):
        if not re.search(rf"Transport: {transport}\n#\s+Device: rnic\d:1\n", text):
            raise Failed(f"no {transport}:\n{tail(text, 60)}")


def perftest(wire, tests, transports, *options):
    """All of `tests`, one after the other, in the same two processes. They tell each other by the kernel's TCP what
    they need to meet."""
    batch = pathlib.Path(wire.world.directory, "ucx_batch")
    names = [f"{test.replace(' ', '_')}_{size}" for test, size in tests]
    batch.write_text("".join(f"{name} -t {test} -s {size}\n" for name, (test, size) in zip(names, tests)))
    words = ["env", f"UCX_TLS={transports}", "ucx_perftest", "-p", EXCHANGE_PORT, "-b", batch, "-n", str(TURNS), "-w", "10",
             *options]
    before = stock.octets_out(wire)
    server = wire.world.start([*wire.server, *words])
    server.until(lambda: stock.kernel_listens(EXCHANGE_PORT), "listens")
    try:
        client = wire.start_client([*words, "-f", "127.0.0.1"])
        if client.wait(90) != 0:
            raise Failed(f"{tail(client.text())}\n--- server\n{tail(server.text())}")
    finally:
        server.end()
    results = re.findall(rf"^\s*(\S+)\s+{TURNS}(?:\s+[\d.]+){{7}}", client.text(), re.M)
    if results != names:
        raise Failed(f"of {len(names)} only {results}:\n{tail(client.text())}")
    least = sum(TURNS * size for _, size in tests)
    if stock.octets_out(wire) - before < least:
        raise Failed(f"the devices did not send what came: {stock.octets_out(wire) - before} of {least} octets")
    return f"{len(names)} tests"


def uct(wire, transport, tests):
    """UCX's transports by themselves; the device is named, and both ends' is called so."""
    return perftest(wire, tests, f"{transport},self", "-d", "rnic0:1", "-x", transport)


def io_demo(wire):
    """Clients that find a server by its address, by rdma_cm, and check what they read. One is killed; the server goes
    on, and so does the other client's work; and whoever comes after it is served."""
    def ask(rounds):
        return wire.start_client([*words, "-i", str(rounds), wire.address])

    words = ["env", f"UCX_TLS={RC}", "UCX_SOCKADDR_TLS_PRIORITY=rdmacm", "io_demo", "-q", "-p", str(IO_PORT)]
    before = stock.octets_out(wire)
    server = wire.start_server(words)
    try:
        clients = [ask(10_000_000), ask(500)]
        clients[0].until(lambda: stock.octets_out(wire) - before > 5_000_000, "at work")
        clients[0].end()
        for client in (clients[1], ask(50)):
            if client.wait(60) != 0 or "Client exit with status 'OK'" not in client.text():
                raise Failed(f"{tail(client.text())}\n--- server\n{tail(server.text())}")
        time.sleep(0.2)
        if not server.running():
            raise Failed(f"the server is gone:\n{tail(server.text())}")
        for wrong in ("UCX  ERROR", "fatal"):
            if wrong in server.text():
                raise Failed(tail(server.text()))
    finally:
        server.end()


def mpi(wire, start, work, ranks):
    """`ranks` ranks, on the server's and the client's side by turns. Their octets went by the devices."""
    sides = [wire.client, wire.server]
    words = [word for rank in range(ranks) for word in ([":"] if rank else []) + ["-np", "1", *sides[rank % 2], *work]]
    before = stock.octets_out(wire)
    text = wire.world.run([*start, *words], 120)
    said = re.search(r"(\d+) ranks, sent (\d+) octets", text)
    if not said or int(said[1]) != ranks:
        raise Failed(f"no result:\n{tail(text)}")
    if "UCX  ERROR" in text or "UCX  WARN" in text:
        raise Failed(f"UCX complains:\n{tail(text)}")
    if stock.octets_out(wire) - before < int(said[2]):
        raise Failed(f"sent {said[2]} octets, but the devices only {stock.octets_out(wire) - before}")
    return f"{said[2]} octets"


def mpich(wire, transports, ranks):
    # Ranks of one host would speak by shared memory.
    start = ["env", f"UCX_TLS={transports}", "MPIR_CVAR_NOLOCAL=1", "mpirun.mpich"]
    return mpi(wire, start, [str(stock.APPS / "mpi_ranks"), "1"], ranks)


def openmpi(wire, transports, ranks):
    start = ["env", f"UCX_TLS={transports}", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to",
             "none", "--mca", "pml", "ucx", "--mca", "osc", "ucx"]
    return mpi(wire, start, [*stock.MPI_WORK, "one-sided"], ranks)


def gloo(wire, ranks):
    meeting = pathlib.Path(wire.world.directory, f"gloo{ranks}")
    meeting.mkdir(exist_ok=True)
    for stale in meeting.iterdir():
        stale.unlink()
    before = stock.octets_out(wire)
    started = []
    for rank in range(ranks):
        side = (wire.client, wire.server)[rank % 2]
        device = side[side.index("--device") + 1] if "--device" in side else "rnic0"
        started.append(wire.world.start([*side, stock.APPS / "gloo_ranks", rank, ranks, meeting, device]))
    octets = 0
    for rank, each in enumerate(started):
        code = each.wait(60)
        said = re.search(rf"rank {rank}: sent at least (\d+) octets", each.text())
        if code != 0 or not said:
            raise Failed(f"rank {rank}: exit code {code}\n{tail(each.text())}")
        octets += int(said[1])
    if stock.octets_out(wire) - before < octets:
        raise Failed(f"sent {octets} octets, but the devices only {stock.octets_out(wire) - before}")
    return f"{octets} octets"


def suite(test, wire):
    """Of two devices, as ranks are on both."""
    def there(program, package):
        if not (shutil.which(program) or (stock.APPS / program).exists()):
            print(f"      {wire.name}: skipped: {program} (package {package})", flush=True)
            return False
        return True

    if there("ucx_perftest", "ucx-utils"):
        test("ucx_info -d", lambda: info(wire))
        test(f"ucx_perftest, UCX_TLS={RC}: all of UCP's", lambda: perftest(wire, UCP_RC, RC))
        test(f"ucx_perftest, UCX_TLS={UD}", lambda: perftest(wire, UCP_UD, UD))
        # UCX puts an mremap of four parameters in the place of the C library's.
        test(f"--fast-memory, ucx_perftest, UCX_TLS={RC}: all of UCP's",
             lambda: perftest(wire.with_options("--fast-memory"), UCP_RC, RC))
        test("io_demo, by address", lambda: io_demo(wire))
    for name, run, needs, runs in (
            ("MPICH", mpich, ("mpi_ranks", "libmpich-dev"), ((RC, 2), (RC, 4), (UD, 4))),
            ("OpenMPI, pml ucx, osc ucx", openmpi, ("mpirun.openmpi", "openmpi-bin"), ((RC, 2), (RC, 4), (UD, 2)))):
        for transports, ranks in runs if there(*needs) else ():
            test(f"{name}, UCX_TLS={transports}, {ranks} ranks", lambda r=run, t=transports, n=ranks: r(wire, t, n))
    for ranks in (2, 4) if there("gloo_ranks", "libgloo-dev") else ():
        test(f"gloo, {ranks} ranks", lambda n=ranks: gloo(wire, n))
