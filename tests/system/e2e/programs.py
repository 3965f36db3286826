"""What the stock programs must do over a wire: one function for each claim."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import BUILD, Failed, Skipped, Wire, tail

APPS = BUILD / "tests"


def devinfo(wire):
    text = wire.world.run([*wire.client, "ibv_devinfo", "-v"])
    for needed in ("iWARP (1)", "PORT_ACTIVE", "Ethernet"):
        if needed not in text:
            raise Failed(f"ibv_devinfo does not say {needed}:\n{tail(text, 60)}")
    if "rnic" not in wire.world.run([*wire.client, "ibv_devices"]):
        raise Failed("ibv_devices lists no rnic device")


def neighbours(wire):
    """What looks at the bus device behind an RDMA device: no provider of libibverbs' but ours takes it for its own,
    and hwloc and UCX find it, and everything else as without rnic."""
    run = wire.world.run
    listed = run([*wire.client, "ibv_devices"])
    if len(re.findall(r"^\s+rnic\d+\s", listed, re.M)) != listed.count("rnic") or "rnic" not in listed:
        raise Failed(f"ibv_devices:\n{tail(listed)}")
    others = run([*wire.client, "env", "RDMAV_DRIVERS=", "IBV_SHOW_WARNINGS=1", "ibv_devices"], expect=None)
    if "no userspace device-specific driver found for rnic" not in others:
        raise Failed(f"another provider claims the device:\n{tail(others)}")
    words = []
    if shutil.which("lstopo-no-graphics"):
        seen, without = (run([*prefix, "lstopo-no-graphics", "--whole-io", "--of", "console"]) for prefix in (wire.client, ()))
        left = [line for line in seen.splitlines() if "OpenFabrics" not in line]
        if 'OpenFabrics "rnic' not in seen or left != without.splitlines():
            raise Failed(f"lstopo:\n{seen}\n--- without rnic\n{without}")
        info = run([*wire.client, "hwloc-info", "--whole-io", "os=rnic" + re.search(r'"rnic(\d+)"', seen)[1]])
        if "OpenFabrics" not in info:
            raise Failed(f"hwloc-info:\n{tail(info)}")
    else:
        words.append("skipped: hwloc (package hwloc-nox)")
    if shutil.which("ucx_info"):
        text = run([*wire.client, "env", "UCX_LOG_LEVEL=debug", "ucx_info", "-d"])
        # As a device that it cannot use, iWARP's: with its ids, and with nobody else's place.
        found = re.search(r"(rnic\d+): bdf_name ffff:\d\d:00.0", text)
        if not found or f"{found[1]}: vendor_id 0x524e device_id 1" not in text or "Transport: tcp" not in text:
            raise Failed(f"ucx_info -d:\n{tail(text)}")
    else:
        words.append("skipped: UCX (package ucx-utils)")
    return "; ".join(words)


def rdma_tool(wire):
    """iproute2's `rdma`, which asks by netlink, beside an rping server that waits."""
    world = wire.world

    def rdma(*words):
        return json.loads(world.run([*wire.client, "rdma", "-j", *words]))

    names = re.findall(r"^\s+(rnic\d+)\s", world.run([*wire.client, "ibv_devices"]), re.M)
    for words in ("dev",), ("link",), ("resource",):
        if [row["ifname"] for row in rdma(*words)] != names:
            raise Failed(f"rdma {words[0]}: {rdma(*words)}, not {names}")
    if any(row["state"] != "ACTIVE" for row in rdma("link")):
        raise Failed(f"rdma link: {rdma('link')}")
    if "frames_in" not in rdma("statistic", "show", "link")[0]:
        raise Failed(f"rdma statistic: {rdma('statistic', 'show', 'link')}")
    server = world.start([*wire.server, "rping", "-s", "-a", wire.address, "-C", "1"])
    at_server = lambda *words: json.loads(world.run([*wire.server, "rdma", "-j", *words]))
    server.until(lambda: any(row["state"] == "LISTEN" and row["pid"] == server.pid
                             for row in at_server("resource", "show", "cm_id")), "rdma resource show cm_id")
    world.run([*wire.client, "rping", "-c", "-a", wire.address, "-C", "1"])
    server.wait(20)
    refused = world.run([*wire.client, "rdma", "dev", "set", names[0], "name", "other"], expect=None)
    if "not supported" not in refused:
        raise Failed(f"rdma dev set: {refused}")


def fi_info(wire):
    text = wire.world.run([*wire.client, "fi_info", "-p", "verbs"])
    if "FI_PROTO_IWARP" not in text:
        raise Failed(f"fi_info lists no iWARP domain:\n{tail(text)}")


def fi_info_msg(wire):
    """What libfabric offers for connections, without being told an address: it looks for 127.0.0.1 and ::1."""
    text = wire.world.run([*wire.client, "fi_info", "-p", "verbs", "-t", "FI_EP_MSG"])
    if "FI_PROTO_IWARP" not in text or not re.search(r"domain: rnic\d", text):
        raise Failed(f"fi_info offers no endpoint of a device:\n{tail(text)}")


def fi_pingpong(wire, provider, endpoint, largest=("1m", 1 << 20)):
    """Both sides meet by the kernel's TCP, and say there where the other finds them by verbs."""
    # rxm looks for the end of a connection every 10 ms. One that was off its core for longer does so at once, where it
    # may not have polled since, and then waits for ever for what has come meanwhile (docs/decisions.md). OpenMPI runs
    # over rxm as it is.
    patient = ["env", "FI_OFI_RXM_CM_PROGRESS_INTERVAL=200000"] if "rxm" in provider else []
    words = [*patient, "fi_pingpong", "-p", provider, "-e", endpoint, "-c"]
    before = octets_out(wire)
    server = wire.world.start([*wire.server, *words])
    server.until(lambda: kernel_listens(47592), "listens")
    try:
        code = wire.start_client([*words, wire.address]).wait(60)
        if code == 0:
            code = server.wait(20)
    except Failed as failure:
        raise Failed(f"{failure}\n--- server\n{tail(server.text())}") from None
    finally:
        server.end()
    rows = [line.split() for line in server.text().splitlines() if re.match(r"\d", line)]
    if code != 0 or not rows:
        raise Failed(f"exit code {code}\n--- server\n{tail(server.text())}")
    if rows[-1][0] != largest[0] or rows[-1][1] != "10" or rows[-1][2] != "=10":
        raise Failed(f"not all sizes came through:\n{tail(server.text())}")
    # Ten messages of it each way, and they went by a device.
    if octets_out(wire) - before < 20 * largest[1]:
        raise Failed(f"no device sent what came: {octets_out(wire) - before} octets")
    return f"{rows[0][0]} B: {rows[0][6]} us"


def octets_out(wire):
    """What the devices of the wire's daemons have sent, in frames or without."""
    return sum(port["bytes_out"] + port["direct_bytes_out"] for name in wire.daemons() for port in wire.world.show(name, "port")["port"])


def own_address(wire, side):
    """The first of the device's that programs of this side run on."""
    rows = wire.world.show(wire.daemon_of(side), "dev")["dev"]
    name = device_of(side)
    return next(row["addresses"][0].split("/")[0] for row in rows if row["name"] == name)


def device_of(side):
    return side[side.index("--device") + 1] if "--device" in side else "rnic0"


MPI_RUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
           "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm"]
# Debian's, as its mpi4py is.
MPI_WORK = ["/usr/bin/python3", str(pathlib.Path(__file__).resolve().parent / "mpi_work.py")]


def mpi(wire, ranks):
    """OpenMPI over libfabric over verbs, and nothing else: every octet that ranks gave each other was on a device.
    The ranks are on the server's and the client's side by turns."""
    sides = [wire.client, wire.server]
    if wire.client == wire.server:
        words = [*wire.client, *MPI_RUN, "-np", str(ranks), *MPI_WORK]
    else:
        words = MPI_RUN + [word for rank in range(ranks)
                           for word in ([":"] if rank else []) + ["-np", "1", *sides[rank % 2], *MPI_WORK]]
    before = octets_out(wire)
    text = wire.world.run(words, 240)
    said = re.search(r"(\d+) ranks, sent (\d+) octets", text)
    if not said or int(said[1]) != ranks:
        raise Failed(f"no result:\n{tail(text)}")
    if octets_out(wire) - before < int(said[2]):
        raise Failed(f"sent {said[2]} octets, but the devices only {octets_out(wire) - before}")
    return f"{said[2]} octets"


def at_itself(wire, listens, calls):
    """Two processes on the client's side meet by 127.0.0.1 or ::1; nothing of it comes out at any other device."""
    side = Wire(wire.world, wire.name, wire.client, wire.client, calls)

    def octets():
        return {(name, port["device"]): port["bytes_in"] + port["direct_bytes_in"]
                for name in wire.daemons() for port in wire.world.show(name, "port")["port"]}

    before = octets()
    words = ["-C", "200", "-V", "-S", "3000"]
    side.pair(["rping", "-s", "-a", listens, *words], ["rping", "-c", "-a", calls, *words])
    moved = {device: count - before[device] for device, count in octets().items()}
    # A neighbour may be asked after meanwhile.
    if max(moved.values()) < 2 * 200 * 3000 or sum(count > 4000 for count in moved.values()) != 1:
        raise Failed(f"octets that came: {moved}")


def rping(wire, size, count=10000):
    common = ["-C", str(count), "-V", "-S", str(size)]
    limit = max(240, count // 10) if wire.slow else 90
    wire.pair(["rping", "-s", "-a", wire.address, *common], ["rping", "-c", "-a", wire.address, *common], limit)


def under_valgrind(wire):
    """Placed data is no uninitialised data, and what is sent to the daemon is none."""
    words = ["valgrind", "--error-exitcode=9", "rping", "-a", wire.address, "-C", "5", "-v"]
    for text in wire.pair([*words, "-s"], [*words, "-c"], 120):
        if "ERROR SUMMARY: 0 errors" not in text:
            raise Failed(f"valgrind complains:\n{tail(text, 60)}")


def rping_no_listener(wire):
    start = time.monotonic()
    text = wire.world.run([*wire.client, "rping", "-c", "-a", wire.address, "-p", "9", "-C", "1"], 20, expect=None)
    if "REJECTED" not in text and "error" not in text:
        raise Failed(f"no clear event:\n{tail(text)}")
    if time.monotonic() - start > 15:
        raise Failed("took too long")


def rping_wrong_address(wire):
    before, mark = (wire.address.rsplit(":", 1)[0], ":") if ":" in wire.address else (wire.address.rsplit(".", 1)[0], ".")
    address = before + mark + "77"
    text = wire.world.run([*wire.client, "rping", "-c", "-a", address, "-C", "1"], 60, expect=None)
    if not re.search("UNREACHABLE|ERROR|error|REJECTED", text):
        raise Failed(f"no clear event:\n{tail(text)}")


def rping_server_killed(wire):
    server, client = wire.start_pinging()
    os.killpg(server.pid, signal.SIGKILL)
    client.wait(20)
    # It may still have its listener: its queue pairs end with its helper thread, the rest with its last one.
    server.wait(20)
    rping(wire, 64, 100)


def local_sink(wire, what, *claims):
    """RDMA Reads into memory with Local Write only: the client's words are to have these."""
    program = str(APPS / "local_sink")
    _, text = wire.pair([program, "server", wire.address, "7302"], [program, "client", wire.address, "7302", what])
    for each in claims:
        if each not in text:
            raise Failed(f"the client does not say {each!r}:\n{tail(text)}")


def listens_again(wire):
    """Who calls while a server has closed its listener, and serves an earlier caller, gets in at the next."""
    words = [str(APPS / "listens_again")]
    wire.pair([*words, "server", wire.address, "7304"], [*words, "client", wire.address, "7304"])


def streaming(wire):
    """A handshake of the program's own on a TCP stream, and iWARP behind it, without rdma_cm."""
    program = str(APPS / "streaming")
    server = wire.world.start([*wire.server, program, "server", wire.address, "7303"])
    server.until(lambda: "listening" in server.text(), "listens")
    wire.both_end(server, wire.start_client([program, "client", wire.address, "7303"]), 60)
    if "all octets right" not in server.text():
        raise Failed(f"the server does not say so:\n{tail(server.text())}")


def results(text):
    """The words of each line of results that a program of perftest printed."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line)]


# On a busy machine perftest may fail to measure how fast its clock is ("Correlation coefficient r^2: ... < 0.9"). That is
# when it has sent everything, behind each size: a test of latency then calls every time infinite, and one of bandwidth
# ends by exit(1) without having closed, and its peer finds it gone. With -a it measures 23 times.
CLOCK_TRIES = 8


def with_a_clock(program, once):
    """What `once` returns, (result, words of its programs); again, where it has no result for want of a clock."""
    for left in reversed(range(CLOCK_TRIES)):
        try:
            result, text = once()
            if result or "Correlation coefficient" not in text or not left:
                return result, text
        except Failed as failure:
            if "Correlation coefficient" not in failure.said or not left:
                raise
        print(f"      {program} could not measure its clock; again", flush=True)
    raise AssertionError("no try is left")


def perftest(wire, program, *options, limit_s=None):
    words = [program, "-R", *options]
    # With 16 queue pairs and no -n perftest looks for its peak among all pairs of 80,000 completions.
    long = "-a" in options or ("-q" in options and "-n" not in options)
    limit = limit_s or (900 if long else 60 if wire.slow else 40)

    def once():
        _, text = wire.pair(words, [*words, wire.address], limit)
        return results(text), text

    rows, text = with_a_clock(program, once)
    if not rows:
        raise Failed(f"{program} printed no result:\n{tail(text)}")
    return rows


def deep_receives(count):
    """Options of ib_send_bw -e, which waits for ever when its client has sent as many as its server has receives (512,
    unless told) before the first credit comes, after a third of them: it sleeps for a completion, and a credit is an
    RDMA Write, which makes none. The later that is, the longer may the server be kept from its core."""
    return ("-n", str(count), "-r", str(count))


def bandwidth(wire, program, *options, limit_s=None):
    rows = perftest(wire, program, "--report_gbits", *options, limit_s=limit_s)
    return f"{rows[-1][0]} B: {rows[-1][3]} Gb/s"


def latency(wire, program, *options, limit_s=None):
    rows = perftest(wire, program, *options, limit_s=limit_s)
    return f"{rows[0][0]} B: {rows[0][4]} us typical"


def mapping_lines(pid):
    return pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()


def fast_memory(wire):
    """Buffers that become shared memory: the daemon says so, and no octet is wrong."""
    fast = wire.with_options("--fast-memory")
    name = fast.daemon_of(fast.server)

    def once():
        server = fast.start_server(["ib_write_bw", "-R", "-D", "2"])
        client = fast.start_client(["ib_write_bw", "-R", "-D", "2", fast.address])
        client.until(lambda: any(row["reach"] == "swapped" for row in fast.world.show(name, "mr")["mr"]),
                     "swapped a region")
        fast.both_end(server, client, 20)
        return True, ""

    with_a_clock("ib_write_bw", once)
    rping(fast, 65000, 300)
    fio(fast, "write")


def many_regions(wire, count=5000, descriptors=1024):
    """Thousands of small regions in a program that may have few descriptors: they are swapped, neither it nor the daemon
    runs out of descriptors or mappings, and it still opens files, maps memory and forks."""
    fast = wire.with_options("--fast-memory")
    name = fast.server[fast.server.index("--name") + 1] if "--name" in fast.server else "default"
    daemon = fast.world.daemon_pid(name)
    before = len(os.listdir(f"/proc/{daemon}/fd")), len(mapping_lines(daemon))
    limit = ["prlimit", f"--nofile={descriptors}:{descriptors}"]
    app = fast.world.start([*limit, *fast.server, str(BUILD / "tests" / "registration"), fast.address, "many", str(count)])
    app.until(lambda: "registered" in app.text(), "registered", 60)
    swapped = sum(row["reach"] == "swapped" for row in fast.world.show(name, "mr")["mr"])
    if swapped < count:
        raise Failed(f"{swapped} of {count} regions are swapped")
    ours = sum("rnic-fast-memory" in line for line in mapping_lines(app.pid))
    most = int(pathlib.Path("/proc/sys/vm/max_map_count").read_text()) // 4
    files = len([each for each in pathlib.Path(f"/proc/{app.pid}/fd").iterdir() if "rnic-fast-memory" in os.readlink(each)])
    if not 0 < 2 * ours <= most or not 0 < files <= descriptors // 4:
        raise Failed(f"{files} descriptors and {ours} mappings are ours")
    files, mappings = len(os.listdir(f"/proc/{daemon}/fd")), len(mapping_lines(daemon))
    if files > before[0] + 40 or mappings > before[1] + count // 20:
        raise Failed(f"the daemon has {files} descriptors and {mappings} mappings, before {before}")
    os.kill(app.pid, signal.SIGUSR1)
    if app.wait(60) != 0 or "well" not in app.text():
        raise Failed(tail(app.text()))
    left = sum("rnic-fast-memory" in line for line in mapping_lines(daemon))
    if left:
        raise Failed(f"the daemon has {left} of them mapped yet")


def remap(wire):
    """Memory that was registered is moved, grown and emptied as any other of the program's."""
    fast = wire.with_options("--fast-memory")
    fast.world.run([*fast.server, str(BUILD / "tests" / "remap"), fast.address], 30)


ALLOCATORS = {"glibc": "", "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}


def allocators(wire, name):
    """Memory of an allocator is registered, freed, given back and handed out again: calloc's is zeros."""
    library = ALLOCATORS[name]
    for side in (wire, wire.with_options("--fast-memory")):
        start = f'LD_PRELOAD="$LD_PRELOAD {library}" exec {BUILD}/tests/allocators {wire.address}'
        text = wire.world.run([*side.server, "sh", "-c", start], 60)
        if f"{name}: 420 pieces, well" not in text:
            raise Failed(f"it does not say so:\n{tail(text)}")


@contextlib.contextmanager
def huge_pages(count):
    """There are so many, while it lasts; where that is not ours to say, as many as there are."""
    setting = pathlib.Path("/proc/sys/vm/nr_hugepages")
    before = int(setting.read_text())
    changed = False
    if before < count:
        try:
            setting.write_text(str(count))
            changed = True
        except OSError:
            pass
    try:
        yield
    finally:
        if changed:
            setting.write_text(str(before))


def forks(wire, *options):
    """Every kind of memory by everything that a child does, and threads that work while another forks."""
    program = str(BUILD / "tests" / "forks")
    with huge_pages(64):
        texts = wire.pair([program, "server", wire.address, "7303", *options],
                          [program, "client", wire.address, "7303", *options])
    lacking = {found for text in texts for found in re.findall(r"\(no (.+) here: plain memory", text)}
    return f"skipped: {' and '.join(sorted(lacking))}, which there are none of" if lacking else "all kinds of memory"


def capacity(wire, *kinds):
    """As many objects as the device says that there are, and one more is refused."""
    text = wire.world.run([*wire.client, str(APPS / "capacity"), *kinds], 900)
    return "; ".join(line.split(",")[0] for line in text.splitlines())


def ucmatose(wire, connections=50, *options):
    words = ["ucmatose", "-c", str(connections), *options]
    wire.pair([*words, "-b", wire.address], [*words, "-s", wire.address], 180 if wire.slow else 60)


def cmtime(wire, connections):
    """So many callers at once of a server that takes them one by one: each gets through, and no SYN is dropped."""
    def dropped():
        return sum(port["syns_dropped"] for name, _ in wire.world.daemons for port in wire.world.show(name, "port")["port"])

    before, known = dropped(), wire.listeners()
    server = wire.world.start([*wire.server, "cmtime", "-b", wire.address, "-c", str(connections)])
    # From rdma-core 48 on the two talk by the kernel's TCP first.
    server.until(lambda: wire.listeners() - known or kernel_listens(7471), "listens")
    try:
        text = wire.world.run([*wire.client, "cmtime", "-s", wire.address, "-c", str(connections)], 120)
    finally:
        server.end()
    if "event:" in text or "error" in text or "failure" in text:
        raise Failed(f"not all got through:\n{tail(text)}")
    if dropped() != before:
        raise Failed(f"{dropped() - before} SYNs were dropped:\n{tail(text)}")
    result = re.search(r"connect\s*:?\s+([\d.]+)", text)
    if not result:
        raise Failed(f"cmtime printed no time to connect:\n{tail(text)}")
    return f"connect: {result[1]} ms in all"


def rdma_client(wire):
    at = ["-s", wire.address] if ":" in wire.address else []  # left out, it is 0.0.0.0
    wire.pair(["rdma_server", *at, "-p", "7471"], ["rdma_client", "-s", wire.address, "-p", "7471"])


def qp_states(wire):
    """A queue pair is INIT until something is made of it, and RESET after each connection."""
    words = [str(BUILD / "tests" / "qp_states")]
    _, text = wire.pair([*words, "server", wire.address, "7303"], [*words, "client", wire.address, "7303"])
    expected = ["new: INIT", "of librdmacm: INIT", "connected: RTS", "closed: RESET", "connected again: RTS", "closed again: RESET"]
    if text.split("\n")[:-1] != expected:
        raise Failed(f"other states:\n{tail(text)}")


def kernel_listens(port, inside=()):
    """Does anybody in this namespace, or in the one that the words `inside` lead to, listen at a TCP port of the
    kernel's?"""
    done = subprocess.run([*inside, "cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True,
                          check=False)
    rows = (row.split() for row in done.stdout.splitlines())
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows if len(row) > 3)


def qperf(wire, test):
    server = wire.world.start([*wire.server, "qperf"])
    server.until(lambda: kernel_listens(19765), "listens")
    try:
        text = wire.world.run([*wire.client, "qperf", wire.address, "-t", "1", "-cm1", test], 30)
    finally:
        server.end()
    result = re.search(r"(latency|bw|msg_rate)\s*=\s*(.*)", text)
    if not result:
        raise Failed(f"qperf printed no result:\n{tail(text)}")
    return f"{result[1]} {result[2]}"


def fio(wire, verb, thread=False):
    directory = wire.world.directory
    common = ["--ioengine=rdma", "--port=7777", "--bs=64k", "--size=64m", "--iodepth=8", "--name=job"]
    if thread:
        common.append("--thread")
    server = ["fio", *common, "--rw=read", f"--aux-path={directory}"]
    client = ["fio", *common, "--rw=write", f"--hostname={wire.address}", f"--verb={verb}", f"--aux-path={directory}"]
    _, text = wire.pair(server, client, 90)
    result = re.search(r"WRITE: bw=(\S+)", text) or re.search(r"bw=(\S+)", text)
    if not result:
        raise Failed(f"fio printed no result:\n{tail(text)}")
    return result[1]


def iser(wire):
    """iSER: tgt's disk, by libiscsi. All of its blocks are what is in its file, and what is written is read back."""
    if os.geteuid() != 0 or not shutil.which("tgtd") or not (APPS / "iscsi_blocks").exists():
        raise Skipped("needs root, and the packages tgt and libiscsi-dev")
    target, initiator = "iqn.2026-11.rnic:disk", "iqn.2026-11.rnic:reader"
    port = str(os.getpid() % 30000 + 2000)
    disk, copy = (pathlib.Path(wire.world.directory, name) for name in ("disk.img", "copy.img"))
    for file, data in ((disk, os.urandom(4 << 20)), (copy, None)):
        file.write_bytes(data or disk.read_bytes())

    def admin(*words):
        wire.world.run(["tgtadm", "-C", port, "--lld", "iser", "--mode", *words, "--tid", "1"], 20)

    # It serves the kernel's TCP, too, whatever it is told.
    server = wire.start_server(["tgtd", "-f", "-C", port, "--iscsi", "portal=127.0.0.1:13260"])
    try:
        server.until(lambda: pathlib.Path(f"/var/run/tgtd/socket.{port}").exists(), "takes commands")
        admin("target", "--op", "new", "-T", target)
        admin("logicalunit", "--op", "new", "--lun", "1", "-b", str(disk))
        # tgt's iSER wants an address that is let and a name that is, where its TCP wants one of them.
        admin("target", "--op", "bind", "-I", "ALL")
        admin("target", "--op", "bind", "-Q", initiator)
        text = wire.world.run([*wire.client, APPS / "iscsi_blocks", f"iser://{wire.address}:3260/{target}/1", initiator,
                               copy], 60)
    finally:
        server.end()
        for left in pathlib.Path("/var/run/tgtd").glob(f"socket.{port}*"):
            left.unlink()
    if "octets right" not in text or disk.read_bytes() == copy.read_bytes():
        raise Failed(f"{tail(text)}\n--- server\n{tail(server.text())}")
    return text.strip()
