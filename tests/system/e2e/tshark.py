"""The second decoder of what was on a wire, which is not ours."""
import shutil
import subprocess

from harness import Failed, tail

PRESENT = shutil.which("tshark") is not None

# MPA has no port of its own: tshark knows it by its startup frames. Asked first, because a client's port may be one that
# tshark knows something else by (48049 is one of the ephemeral ones). SUNRPC's own transport claims MPA streams too.
OPTIONS = ["-o", "tcp.try_heuristic_first:TRUE", "--disable-heuristic", "rpcrdma_iwarp"]


def tshark(file, *words, seconds=600):
    """What tshark prints of a capture with `words`."""
    done = subprocess.run(["tshark", *OPTIONS, "-r", file, *words], capture_output=True, text=True, timeout=seconds,
                          check=False)
    if done.returncode != 0:
        raise Failed(f"tshark: {tail(done.stderr)}")
    return done.stdout
