"""What each rank of an MPI run does: traffic of every kind that programs use, each octet checked.

The last line of rank 0 says how many octets all ranks together gave to others: `sent N octets`. With the word
`one-sided` they put, get and count in each other's windows, too.
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


def one_sided():
    """Each puts into its right neighbour's window, gets from it and adds to it; and all count at rank 0."""
    global sent
    length, numbers, turns = 1 << 18, 1000, 50
    right, left = (rank + 1) % size, (rank - 1) % size
    behind = 2 * length  # of what is put and what is got, in the window; a counter is behind the numbers
    window = MPI.Win.Allocate(behind + 8 * (numbers + 2), 1, MPI.INFO_NULL, world)
    held = memoryview(window).cast("B")
    held[:] = bytes(len(held))
    held[length:behind] = octets(length, 100 + rank)
    window.Fence()
    mine, theirs = octets(length, 200 + rank), bytearray(length)
    window.Put([mine, MPI.BYTE], right, [0, length, MPI.BYTE])
    window.Get([theirs, MPI.BYTE], right, [length, length, MPI.BYTE])
    added = array.array("q", range(rank, rank + numbers))
    window.Accumulate([added, MPI.INT64_T], right, [behind, numbers, MPI.INT64_T], MPI.SUM)
    window.Fence()
    check(theirs, octets(length, 100 + right), "get")
    check(bytes(held[:length]), octets(length, 200 + left), "put")
    check(array.array("q", bytes(held[behind:behind + 8 * numbers])), array.array("q", range(left, left + numbers)),
          "accumulate")
    counter, one, got, last = behind + 8 * numbers, array.array("q", [1]), array.array("q", [-1]), -1
    window.Lock_all()
    for _ in range(turns):
        window.Fetch_and_op([one, MPI.INT64_T], [got, MPI.INT64_T], 0, counter, MPI.SUM)
        window.Flush(0)
        check(got[0] > last, True, "fetch and add")
        last = got[0]
    own, nobody, found = array.array("q", [rank + 1]), array.array("q", [0]), array.array("q", [-1])
    while found[0] != 0:
        window.Compare_and_swap([own, MPI.INT64_T], [nobody, MPI.INT64_T], [found, MPI.INT64_T], 0, counter + 8)
        window.Flush(0)
    window.Compare_and_swap([nobody, MPI.INT64_T], [own, MPI.INT64_T], [found, MPI.INT64_T], 0, counter + 8)
    window.Flush(0)
    check(found, own, "compare and swap")
    window.Unlock_all()
    world.Barrier()
    if rank == 0:
        window.Lock(0, MPI.LOCK_SHARED)
        check(array.array("q", bytes(held[counter:counter + 8])), array.array("q", [turns * size]), "the counter")
        window.Unlock(0)
    held.release()
    window.Free()
    sent += 2 * length + 8 * numbers


if size < 2:
    sys.exit("one rank alone proves nothing")
for _ in range(3):
    for step in (ring, unexpected, everybody, sums, *((one_sided,) if "one-sided" in sys.argv else ())):
        step()
        world.Barrier()
total = world.reduce(sent, MPI.SUM, 0)
if rank == 0:
    print(f"{size} ranks, sent {total} octets", flush=True)
