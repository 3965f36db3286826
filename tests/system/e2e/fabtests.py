"""libfabric's own tests, its fabtests (1.17): those of connected end points over verbs, and those of reliable datagrams
over rxm, which makes these of connections. The arguments are those of its runfabtests.sh."""
import pathlib

import programs as stock
from harness import Failed, tail

MEETING_PORT = 3000
VERBS, RXM = "verbs", "verbs;ofi_rxm"

# What is known not to run, and why: it ends with that exit code, and with no other.
NO_DATA = 61
OF_VERBS = (NO_DATA, "asks for what libfabric's verbs does not have here")
OF_RXM = (NO_DATA, "asks for what libfabric's rxm has for no device")
# What runs on a RoCE face only: data in completions, which iWARP has no message for.
ON_ROCE = {(VERBS, "fi_cq_data -e msg"), (VERBS, "fi_rma_bw -e msg -o writedata -I 5"), (RXM, "fi_cq_data -e rdm")}

TESTS = {
    VERBS: {
        "fi_cm_data": None,
        "fi_cq_data -e msg": OF_VERBS,
        "fi_msg": None,
        "fi_msg_epoll": None,
        "fi_msg_sockets": None,
        "fi_shared_ctx -e msg": OF_VERBS,
        "fi_shared_ctx -e msg --no-tx-shared-ctx": None,
        "fi_shared_ctx -e msg --no-rx-shared-ctx": OF_VERBS,
        "fi_multi_mr -e msg -V": OF_VERBS,
        "fi_multi_ep -e msg -v": None,
        "fi_unexpected_msg -e msg -I 10": OF_VERBS,
        "fi_bw -e msg -v -T 1": None,
        "fi_msg_pingpong -I 5": None,
        "fi_msg_pingpong -I 5 -v": None,
        "fi_msg_bw -I 5": None,
        "fi_msg_bw -I 5 -v": None,
        "fi_rma_bw -e msg -o write -I 5": None,
        "fi_rma_bw -e msg -o read -I 5": None,
        "fi_rma_bw -e msg -o writedata -I 5": OF_VERBS,
        "fi_multi_recv -e msg -I 5": OF_VERBS,
    },
    RXM: {
        "fi_av_xfer -e rdm": None,
        "fi_cq_data -e rdm": (1, "says that there is no data in the completion; so over siw"),
        "fi_poll -t queue": None,
        "fi_poll -t counter": None,
        "fi_rdm": None,
        "fi_rdm -U": None,
        "fi_rdm_rma_event": OF_RXM,
        "fi_rdm_rma_trigger": OF_RXM,
        "fi_shared_ctx": OF_RXM,
        "fi_rdm_tagged_peek": None,
        "fi_scalable_ep": OF_RXM,
        "fi_rdm_shared_av": OF_RXM,
        "fi_multi_mr -e rdm -V": OF_RXM,
        "fi_multi_ep -e rdm -v": None,
        "fi_recv_cancel -e rdm -V": None,
        "fi_unexpected_msg -e rdm -I 10": None,
        "fi_msg_inject -A inject -v": None,
        "fi_msg_inject -N -A inject -v": None,
        "fi_msg_inject -A inj_complete -v": None,
        "fi_msg_inject -N -A inj_complete -v": None,
        "fi_bw -e rdm -v -T 1": None,
        "fi_bw -e rdm -v -T 1 -U": None,
        "fi_rdm_multi_client -C 10 -I 5": None,
        "fi_rdm_multi_client -C 10 -I 5 -U": None,
        "fi_rma_bw -e rdm -o write -I 5": None,
        "fi_rma_bw -e rdm -o read -I 5": None,
        "fi_rma_bw -e rdm -o writedata -I 5": None,
        "fi_rdm_atomic -I 5 -o all": None,
        "fi_rdm_cntr_pingpong -I 5": None,
        "fi_multi_recv -e rdm -I 5": None,
        "fi_rdm_pingpong -I 5": None,
        "fi_rdm_pingpong -I 5 -v": None,
        "fi_rdm_tagged_pingpong -I 5": None,
        "fi_rdm_tagged_pingpong -I 5 -v": None,
        "fi_rdm_tagged_bw -I 5 -v": None,
    },
}


def there(directory):
    return (pathlib.Path(directory) / "fi_msg").exists()


def all_tests():
    return [(provider, test) for provider, tests in TESTS.items() for test in tests]


def tries(test):
    """More than one where rxm loses its last message now and then (docs/applications.md)."""
    return 3 if test.startswith("fi_rdm_multi_client") else 1


def run(wire, directory, provider, test, on_roce=False):
    program, *options = test.split()
    # See stock.fi_pingpong().
    patient = ["env", "FI_OFI_RXM_CM_PROGRESS_INTERVAL=200000"] if provider == RXM else []
    words = [*patient, pathlib.Path(directory, program), *options, "-p", provider]
    before = wire.listeners()
    server = wire.world.start([*wire.server, *words, "-s", wire.address])

    def listens():
        # Some meet by the kernel's TCP first; who does not find what it asks for ends at once.
        return wire.listeners() - before or stock.kernel_listens(MEETING_PORT) or not server.running()

    client = None
    try:
        server.until(listens, "listens")
        if server.running():
            client = wire.start_client([*words, "-s", stock.own_address(wire, wire.client), wire.address])
            code = client.wait(180)
            code = code or server.wait(60)
        else:
            code = server.wait(1)
    finally:
        for each in (client, server):
            if each is not None:
                each.end()
    runs = on_roce and (provider, test) in ON_ROCE
    expected, reason = (None if runs else TESTS[provider][test]) or (0, None)
    if code != expected:
        said = tail(client.text()) if client else ""
        raise Failed(f"exit code {code}, not {expected} ({reason or 'it runs'})\n{said}\n--- server\n"
                     f"{tail(server.text())}")
    return f"does not run: {reason}" if reason else None
