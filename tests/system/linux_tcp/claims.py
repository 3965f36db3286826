"""What must be so between two TCPs that mean each other well. Each is a function of a link."""
# proves: W-TCP-01
import errno
import re
import socket
import struct
import time

from link import LIMIT_S, Beside, Failed, pattern, run, send_pattern, take_pattern

SHUT_S = 20


def whole(link, stream, received=None, sent=None):
    """Our end is over, and had all of it."""
    record = link.ended(stream)
    for what, wanted in (("received", received), ("sent", sent)):
        if wanted is not None and record[what] != wanted:
            raise Failed(f"{what} {record[what]} of {wanted}: {record}")
    return words(record)


def words(record):
    """What a reader may want to know of a stream."""
    named = ("retransmitted", "timeouts", "fast_retransmits", "out_of_order", "window_probes")
    return ", ".join(f"{name} {record[name]}" for name in named if record[name])


# ---- bulk ------------------------------------------------------------------------------------


def kernel_sends(link, size):
    port = link.listen()
    caller = link.call(port)
    send_pattern(caller, size)
    caller.shutdown(socket.SHUT_WR)
    if caller.recv(1):
        raise Failed("octets from nowhere")
    caller.close()
    return whole(link, link.stream_at(port)["stream"], received=size)


def kernel_takes(link, size):
    port = link.listen(f"send={size}", "close=sent")
    caller = link.call(port)
    if (got := take_pattern(caller)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    return whole(link, link.stream_at(port)["stream"], sent=size)


def both_send(link, size):
    listener, port = link.answering()
    stream = link.connect(port, f"send={size}", "close=sent")
    answering, _ = listener.accept()
    answering.settimeout(LIMIT_S)

    def send():
        send_pattern(answering, size)
        answering.shutdown(socket.SHUT_WR)

    with Beside(send):
        if (got := take_pattern(answering)) != size:
            raise Failed(f"got {got} of {size}")
    answering.close()
    listener.close()
    return whole(link, stream, received=size, sent=size)


def echoed(caller, size, seed=1, position=0):
    """The pattern from `position` there and back."""
    with Beside(lambda: caller.sendall(pattern(position, size))) if seed is None else Beside(
            send_pattern, caller, size, 5000, seed):
        take_pattern(caller, size, position=position)


def echo(link):
    caller = link.call(port := link.listen("echo"))
    echoed(caller, 300_000)
    caller.shutdown(socket.SHUT_WR)
    if caller.recv(1):
        raise Failed("octets from nowhere")
    caller.close()
    return whole(link, link.stream_at(port)["stream"], received=300_000, sent=300_000)


def many(link):
    port = link.listen("echo")
    for _ in range(10):
        callers = [link.call(port) for _ in range(30)]
        for caller in callers:
            caller.sendall(pattern(0, 5000))
            caller.shutdown(socket.SHUT_WR)
        for caller in callers:
            if take_pattern(caller) != 5000:
                raise Failed("an echo is short")
            caller.close()
    link.until(lambda: all(record["ended"] for record in link.peer.ask("port", port)), "all end")
    good = sum(record["how"] == "gracefully" and record["received"] == 5000 for record in link.peer.ask("port", port))
    if good != 300:
        raise Failed(f"{good} of 300 ended well")


# ---- sizes -----------------------------------------------------------------------------------


def mss_of_socket(link, mss):
    caller = link.call(port := link.listen("send=100000", "close=sent"),
                       lambda s: s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss))
    return segments_of(link, port, caller, mss)


def mss_of_route(link, mss):
    route = ("dev", "k", "advmss", str(mss))
    run("ip", "-n", link.kernel.name, "route", "add", link.ours, *route)
    try:
        caller = link.call(port := link.listen("send=100000", "close=sent"))
        return segments_of(link, port, caller, mss)
    finally:
        run("ip", "-n", link.kernel.name, "route", "del", link.ours, *route)


def segments_of(link, port, caller, mss):
    if (got := take_pattern(caller)) != 100_000:
        raise Failed(f"got {got}")
    send_pattern(caller, 100_000)
    caller.close()
    stream = link.stream_at(port)["stream"]
    said = whole(link, stream, received=100_000)
    record = link.stream(stream)
    if record["mss"] != mss:
        raise Failed(f"our segments have {record['mss']} octets, not {mss}")
    if record["segments_out"] < 100_000 // mss:
        raise Failed(f"only {record['segments_out']} segments")
    return said


def our_mss(link, mss):
    caller = link.call(port := link.listen())
    if (found := caller.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)) != mss:
        raise Failed(f"the kernel's segments have {found} octets, not {mss}")
    send_pattern(caller, 100_000)
    caller.close()
    return whole(link, link.stream_at(port)["stream"], received=100_000)


# ---- windows ---------------------------------------------------------------------------------


def small_buffer(size):
    return lambda s: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def kernel_tiny_window(link):
    size = 100_000
    port = link.listen(f"send={size}", "close=sent")
    caller = link.call(port, small_buffer(1))  # as small as it goes: 1152 octets
    if (got := take_pattern(caller, piece=700)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    stream = link.stream_at(port)["stream"]
    said = whole(link, stream, sent=size)
    if (segments := link.stream(stream)["segments_out"]) < size // 1200:
        raise Failed(f"{segments} segments: that was no tiny window")
    return said


def kernel_shuts_window(link):
    size = 1_000_000
    port = link.listen(f"send={size}", "close=sent")
    caller = link.call(port, small_buffer(8192))
    stream = link.stream_at(port)["stream"]
    link.until(lambda: link.stream(stream)["window_probes"] > 0, "a probe")
    before = link.stream(stream)
    time.sleep(SHUT_S)
    record = link.stream(stream)
    if record["ended"]:
        raise Failed(f"a shut window has ended it: {record}")
    # A probe after 1, 2, 4, … of what was waited first, which is 200 ms at least.
    probes = record["window_probes"]
    if not 4 <= probes <= 12:
        raise Failed(f"{probes} probes in {SHUT_S} s")
    if record["segments_out"] - before["segments_out"] > 2 * probes:
        raise Failed(f"more than probes: {before} {record}")
    if (got := take_pattern(caller)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    return whole(link, stream, sent=size)


def we_shut_window(link):
    size = 3_000_000
    caller = link.call(port := link.listen("unread"))
    stream = link.stream_at(port)["stream"]
    with Beside(send_pattern, caller, size) as sending:
        time.sleep(SHUT_S)
        record = link.stream(stream)
        if record["ended"] or record["received"] != 0 or not sending.thread.is_alive():
            raise Failed(f"the window was not shut: {record}")
        if record["duplicates"] + record["out_of_window"] < 4:
            raise Failed(f"the kernel has not probed: {record}")
        link.peer.ask("resume", stream)
    caller.close()
    return whole(link, stream, received=size)


# What is below looks at one direction while the other is shut. The kernel takes no segment beyond its edge, not even an
# ACK (tcp_sequence()), and an octet of ours is there, a probe.

BUSY = 8 << 20


def shut(link, size, close="peer"):
    """A stream of ours with `size` to send to a program of the kernel's that does not read; its window is shut."""
    caller = link.call(port := link.listen(f"send={size}", f"close={close}"), small_buffer(8192))
    stream = link.stream_at(port)["stream"]
    link.until(lambda: link.stream(stream)["window_probes"] > 0, "a probe")
    return caller, stream


def comes(link, caller, stream, size=BUSY):
    """The kernel's octets are all here."""
    send_pattern(caller, size)
    link.until(lambda: link.stream(stream)["received"] == size, "comes")


def kernel_shut_sends(link):
    size = 1_000_000
    caller, stream = shut(link, size)
    comes(link, caller, stream)
    if (record := link.stream(stream))["sent"] == size and not record["in_flight"]:
        raise Failed(f"its window was not shut: {record}")
    if (got := take_pattern(caller, size)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    return whole(link, stream, received=BUSY, sent=size)


def both_shut(link):
    size = 1_000_000
    caller = link.call(port := link.listen("unread", f"send={size}"), small_buffer(8192))
    stream = link.stream_at(port)["stream"]
    with Beside(send_pattern, caller, BUSY) as sending:
        time.sleep(SHUT_S / 2)
        record = link.stream(stream)
        if record["ended"] or record["received"] or not record["window_probes"] or not sending.thread.is_alive():
            raise Failed(f"the windows were not shut: {record}")
        link.peer.ask("resume", stream)
        link.until(lambda: link.stream(stream)["received"] == BUSY, "comes")
    if (got := take_pattern(caller, size)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    return whole(link, stream, received=BUSY, sent=size)


def kernel_edge(caller):
    """Where the kernel's window ends, in octets of our stream: bytes_received and rcv_wnd of its tcp_info."""
    info = caller.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 240)
    return struct.unpack_from("=Q", info, 128)[0] + struct.unpack_from("=I", info, 232)[0]


def kernel_shrinks_window(link):
    """A long path, and tcp_shrink_window: what is under way is dropped, and our SND.NXT beyond its edge."""
    size = 2_000_000
    caller = link.call(port := link.listen(f"send={size}"), small_buffer(400_000))
    stream = link.stream_at(port)["stream"]
    link.until(lambda: link.stream(stream)["sent"] > 150_000, "under way")
    before = kernel_edge(caller)
    small_buffer(1)(caller)
    link.until(lambda: kernel_edge(caller) < before, "shrinks")
    comes(link, caller, stream, 1 << 20)
    if not link.stream(stream)["in_flight"]:
        raise Failed("nothing was beyond its edge")
    small_buffer(400_000)(caller)
    if (got := take_pattern(caller, size)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    return whole(link, stream, received=1 << 20, sent=size)


def reset_into_shut(link):
    caller, stream = shut(link, 1_000_000)
    link.peer.ask("abort", stream)
    link.until(lambda: caller.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET, "hears of the reset")
    caller.close()
    link.ended(stream, "aborted")


def fin_into_shut(link):
    """Behind octets that wait for room: both directions go on to their end."""
    size = 1_000_000
    caller, stream = shut(link, size, close="sent")
    comes(link, caller, stream)
    caller.shutdown(socket.SHUT_WR)
    link.until(lambda: link.stream(stream)["peer_closed"], "hears of the FIN")
    if (got := take_pattern(caller)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    return whole(link, stream, received=BUSY, sent=size)


def kernel_fin_into_shut(link):
    """As many octets as our window has room for, and a FIN behind them."""
    caller = link.call(port := link.listen("unread"))
    stream = link.stream_at(port)["stream"]
    send_pattern(caller, BUSY // 8)
    caller.shutdown(socket.SHUT_WR)
    link.until(lambda: link.stream(stream)["peer_closed"] or link.stream(stream)["segments_in"] > 700, "comes")
    link.peer.ask("resume", stream)
    if caller.recv(1):
        raise Failed("octets from nowhere")
    caller.close()
    return whole(link, stream, received=BUSY // 8)


def keepalive(link):
    def prepare(caller):
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 5)):
            caller.setsockopt(socket.IPPROTO_TCP, option, value)

    caller = link.call(port := link.listen("echo"), prepare)
    echoed(caller, 1000)
    stream = link.stream_at(port)["stream"]
    time.sleep(SHUT_S)
    probes = link.stream(stream)["duplicates"]
    echoed(caller, 1000, None, 1000)
    caller.close()
    whole(link, stream, received=2000)
    if probes < 2:
        raise Failed(f"{probes} probes")


class Waiting:
    """A claim on a thread of its own from now on; what became of it, when asked."""

    def __init__(self, report, title, claim, link):
        self.report, self.title = report, title
        self.wanted = not report.only or re.search(report.only, title)
        self.beside = Beside(claim, link)
        if self.wanted:
            self.beside.thread.start()

    def end(self):
        def outcome():
            self.beside.__exit__(None)
            return self.beside.value

        if self.wanted:
            self.report.test(self.title, outcome)


# ---- after all of it -------------------------------------------------------------------------


def nothing_left(link):
    """Streams of the device end, and their buffers come back; no frame was misread."""
    def back():
        device.update(link.peer.ask("device"))
        # What is cached for control segments stays.
        return device["streams"] == 0 and device["buffers_free"] >= link.buffers - 64

    device = {}
    try:
        link.until(back, "all is given back")
    except Failed as failure:
        raise Failed(f"{failure}: {device}, of {link.buffers} buffers") from None
    if device["bad_frames"] or device["bad_checksums"] or device["no_buffer"]:
        raise Failed(f"{device}")


# ---- opening and closing ---------------------------------------------------------------------


def kernel_half_closes(link):
    size = 500_000
    caller = link.call(port := link.listen(f"send={size}", "close=peer"), small_buffer(16384))
    caller.shutdown(socket.SHUT_WR)
    stream = link.stream_at(port)["stream"]
    link.until(lambda: link.stream(stream)["peer_closed"], "hears of the FIN")
    if (got := take_pattern(caller)) != size:
        raise Failed(f"got {got} of {size}")
    caller.close()
    return whole(link, stream, received=0, sent=size)


def we_half_close(link):
    size = 500_000
    caller = link.call(port := link.listen("send=1000", "close=sent"))
    if (got := take_pattern(caller)) != 1000:
        raise Failed(f"got {got} of 1000")
    send_pattern(caller, size)
    caller.close()
    return whole(link, link.stream_at(port)["stream"], received=size, sent=1000)


def simultaneous_close(link):
    for tries in range(1, 9):
        caller = link.call(port := link.listen("send=1000", "close=never"))
        take_pattern(caller, 1000)
        stream = link.stream_at(port)["stream"]
        link.peer.ask("close", stream)
        caller.shutdown(socket.SHUT_WR)
        if caller.recv(1):
            raise Failed("octets from nowhere")
        record = link.ended(stream)
        caller.close()
        if record["was_closing"]:
            return f"at try {tries}"
    raise Failed("the two FINs never met")


# Nobody listens: what is connected has been called from both ends.
def simultaneous_open(link):
    for tries in range(1, 9):
        caller = link.socket()
        caller.bind((link.theirs, 0))
        ours = next(link.ports)
        caller.setblocking(False)
        caller.connect_ex((link.ours, ours))
        stream = link.connect(caller.getsockname()[1], "echo", source_port=ours)
        caller.settimeout(LIMIT_S)
        try:
            caller.sendall(pattern(0, 1))
        except (ConnectionRefusedError, BrokenPipeError):  # its SYN was here before we called
            caller.close()
            continue
        take_pattern(caller, 1)
        echoed(caller, 50_000, None, 1)
        caller.close()
        whole(link, stream, received=50_001, sent=50_001)
        return f"at try {tries}"
    raise Failed("the two SYNs never met")


def kernel_resets(link):
    caller = link.call(port := link.listen("send=1000000", "close=sent"))
    take_pattern(caller, 1000)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()
    link.ended(link.stream_at(port)["stream"], "reset")


def we_reset(link):
    caller = link.call(port := link.listen("echo"))
    echoed(caller, 1000)
    stream = link.stream_at(port)["stream"]
    link.peer.ask("abort", stream)
    try:
        caller.recv(1)
        raise Failed("no reset")
    except ConnectionResetError:
        pass
    link.ended(stream, "aborted")


def refused(link):
    listener, port = link.answering()
    listener.close()
    link.ended(link.connect(port), "refused")


def unreachable(link):
    link.ended(link.connect(7000, address=link.nobody), "no")  # by ARP, not by TCP


def time_wait_again(link):
    port = link.listen("send=2000", "close=sent")
    for _ in range(5):
        caller = link.call(port, source_port=33333)
        if take_pattern(caller) != 2000:
            raise Failed("short")
        caller.close()
        link.until(lambda: all(record["ended"] for record in link.peer.ask("port", port)), "ends")
    if len(link.peer.ask("port", port)) != 5:
        raise Failed("not five streams")
    # The kernel closes first, so it is the kernel that waits.
    listener, port = link.answering()
    ours = next(link.ports)
    for _ in range(5):
        stream = link.connect(port, source_port=ours)
        answering, _ = listener.accept()
        answering.close()
        whole(link, stream, received=0)


def fast_open(link):
    port = link.listen("echo")
    caller = link.socket()
    caller.sendto(pattern(0, 500), socket.MSG_FASTOPEN, (link.ours, port))
    take_pattern(caller, 500)
    echoed(caller, 5000, None, 500)
    caller.close()
    return whole(link, link.stream_at(port)["stream"], received=5500)
