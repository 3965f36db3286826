"""librpma's examples, without persistent memory, as its own script runs them."""
import pathlib

from harness import Failed, tail

PORT = "7204"
SERVER = {"13-messages-ping-pong-with-srq": ("3",)}
# Of each client; more than one come one after the other, but those of 13.
CLIENTS = {
    "06-multiple-connections": (("8",), ("9",), ("11",), ("12",)),
    "06scch-multiple-connections": (("8",), ("9",), ("11",), ("12",)),
    "07-atomic-write": (("1st_word", "2nd_word", "3rd_word"),),
    "08-messages-ping-pong": (("7", "3"),),
    "08srq-simple-messages-ping-pong-with-srq": (("7", "3"),),
    "10-send-with-imm": (("1234", "1st_word"),),
    "11-write-with-imm": (("1234",),),
    "12-receive-completion-queue": (("7", "3"),),
    "12scch-receive-completion-queue": (("7", "3"),),
    "13-messages-ping-pong-with-srq": (("1", "3"), ("5", "3"), ("10", "3")),
}
GO_ON = ("06-", "06scch-")  # whose server waits for others
NOT_IWARP = {"10-send-with-imm": "Send with Immediate is not in RFC 7306, and rdma_cm may lead to anybody"}


def examples(directory):
    """Those that have been built."""
    return sorted(each.parent for each in pathlib.Path(directory).glob("[0-9]*-*/server"))


def run(wire, example, roce):
    name = example.name
    reason = None if roce else NOT_IWARP.get(name)
    server = wire.start_server([example / "server", wire.address, PORT, *SERVER.get(name, ())])
    clients = []
    failed = None
    try:
        for words in CLIENTS.get(name, ((),)):
            clients.append(wire.start_client([example / "client", wire.address, PORT, *words]))
            if not name.startswith("13"):
                clients[-1].wait(60)
        for each in clients:
            if each.wait(60) != 0:
                failed = f"client's exit code {each.handle.returncode}"
        if not name.startswith(GO_ON) and server.wait(30) != 0:
            failed = failed or f"server's exit code {server.handle.returncode}"
    except Failed as failure:
        failed = str(failure)
    finally:
        for each in (*clients, server):
            each.end()
    if failed and not reason:
        raise Failed("\n".join([failed, *(tail(each.text()) for each in clients), "--- server", tail(server.text())]))
    if reason and not failed:
        raise Failed(f"runs, and is known not to: {reason}")
    return f"does not run: {reason}" if reason else None
