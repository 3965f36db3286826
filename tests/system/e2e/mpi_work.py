"""What each rank of an MPI run does: traffic of every kind that programs use, each octet checked.

The last line of rank 0 says how many octets all ranks together gave to others: `sent N octets`.
"""
import array
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
sent = 0


def octets(length, seed):
    """A pattern of its own for each sender and use."""
    return bytearray((seed * 31 + at * 7 + (at >> 8)) & 0xFF for at in range(min(length, 4096))) * (length // 4096 or 1)


def check(got, wanted, what):
    if got != wanted:
        print(f"rank {rank}: {what}: not what was sent", flush=True)
        world.Abort(1)


def ring():
    """Eager and rendezvous, one after the other: from the left, to the right."""
    global sent
    right, left = (rank + 1) % size, (rank - 1) % size
    for length in (1, 64, 4096, 65536, 1 << 20):
        mine, theirs = octets(length, rank), bytearray(length)
        world.Sendrecv([mine, MPI.BYTE], right, 1, [theirs, MPI.BYTE], left, 1)
        check(theirs, octets(length, left), f"ring, {length} octets")
        sent += length


def unexpected():
    """Many messages that come before anybody asks for them, and are then asked for in another order."""
    global sent
    peers = [each for each in range(size) if each != rank]
    mine = {peer: [octets(512, rank * 64 + tag) for tag in range(64)] for peer in peers}
    pending = [world.Isend([mine[peer][tag], MPI.BYTE], peer, tag) for peer in peers for tag in range(64)]
    world.Barrier()
    for tag in reversed(range(64)):
        for peer in peers:
            theirs = bytearray(512)
            world.Recv([theirs, MPI.BYTE], peer, tag)
            check(theirs, octets(512, peer * 64 + tag), f"unexpected, tag {tag}")
    MPI.Request.Waitall(pending)
    sent += 64 * 512 * len(peers)


def everybody():
    global sent
    for length in (8, 4096, 262144):
        mine = bytearray().join(octets(length, rank * 16 + peer) for peer in range(size))
        theirs = bytearray(length * size)
        world.Alltoall([mine, length, MPI.BYTE], [theirs, length, MPI.BYTE])
        check(theirs, bytearray().join(octets(length, peer * 16 + rank) for peer in range(size)),
              f"alltoall, {length} octets")
        sent += length * (size - 1)


def sums():
    for count in (1, 1000, 100000):
        mine, total = array.array("q", [rank + 1] * count), array.array("q", [0] * count)
        world.Allreduce([mine, MPI.INT64_T], [total, MPI.INT64_T], MPI.SUM)
        check(total, array.array("q", [size * (size + 1) // 2] * count), f"allreduce, {count}")


if size < 2:
    sys.exit("one rank alone proves nothing")
for _ in range(3):
    for step in (ring, unexpected, everybody, sums):
        step()
        world.Barrier()
total = world.reduce(sent, MPI.SUM, 0)
if rank == 0:
    print(f"{size} ranks, sent {total} octets", flush=True)
