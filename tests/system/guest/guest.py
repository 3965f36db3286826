"""A guest: QEMU without hardware help, Debian's kernel, the host's root file system, one network card on a tap,
and an agent in it that runs programs. What it is made of is in image.py.
"""
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import image
from harness import Failed, Process, tail

HERE = pathlib.Path(__file__).resolve().parent
# Only hangs are ended: a guest on a busy machine may need minutes for what takes it seconds.
BOOT_LIMIT_S = 300
COMMAND_LIMIT_S = 120

# A tap that hands over whole segments with whole checksums, as a wire would.
NO_OFFLOADS = ",".join(f"{name}=off" for name in (
    "csum", "gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo",
    "guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"))

KERNEL_WORDS = ("console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on "
                "audit=0 apparmor=0 cryptomgr.notests raid=noautodetect net.ifnames=0 nowatchdog rcupdate.rcu_expedited=1")


def make_tap(name, namespace):
    """A tap interface in the namespace; the descriptor is its other end."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    iff_tap, iff_no_pi, tunsetiff = 0x0002, 0x1000, 0x400454CA
    fcntl.ioctl(descriptor, tunsetiff, struct.pack("16sH22x", name.encode(), iff_tap | iff_no_pi))
    subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True, capture_output=True)
    subprocess.run(["ip", "-n", namespace, "link", "set", name, "up"], check=True, capture_output=True)
    return descriptor


class GuestProcess(Process):
    """A program in the guest."""

    def __init__(self, guest, number, words):  # pylint: disable=super-init-not-called
        self.guest, self.number, self.words = guest, number, words
        self.code, self.output = None, ""
        self.over = threading.Event()

    def running(self):
        return not self.over.is_set()

    def text(self):
        if not self.over.is_set():
            self.guest.ask_text(self)
        return self.output

    def wait(self, limit_s):
        if not self.over.wait(limit_s):
            said = self.text()
            self.end()
            raise Failed(f"guest: still running after {limit_s} s: {' '.join(self.words[-12:])}\n{tail(said)}")
        return self.code

    def end(self, with_signal=signal.SIGTERM):
        for each in (with_signal, signal.SIGKILL):
            if self.over.is_set():
                return
            self.guest.tell(end=self.number, signal=int(each))
            self.over.wait(5)


class Guest:
    """Boots at once; `start` and `run` after `wait_ready`. `end` for every guest that was made."""

    def __init__(self, release, tap, directory):
        self.console = pathlib.Path(directory, "guest-console.log")
        self.processes, self.answered = {}, {}
        self.count = 0
        self.ready = threading.Event()
        self.gone = False
        self.port, theirs = socket.socketpair()
        words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                 "-machine", "q35,sata=off,smbus=off,usb=off,vmport=off", "-accel", "tcg,thread=multi", "-cpu", "max",
                 "-smp", "1", "-m", "2G", "-kernel", str(image.kernel(release)), "-initrd", str(image.initramfs(release)),
                 "-append", f"{KERNEL_WORDS} rnic.agent={HERE / 'agent'}", "-serial", f"file:{self.console}",
                 "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
                 "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,fd={theirs.fileno()}",
                 "-device", "virtserialport,chardev=agent,name=rnic.agent",
                 "-netdev", f"tap,id=net,fd={tap}", "-device", f"virtio-net-pci,netdev=net,{NO_OFFLOADS}"]
        self.log = open(pathlib.Path(directory, "qemu.log"), "w+b")
        # The guest does not outlive this process, however that ends.
        self.qemu = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], stdin=subprocess.DEVNULL, stdout=self.log,
                                     stderr=self.log, pass_fds=(tap, theirs.fileno()), start_new_session=True)
        theirs.close()
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        try:
            self.take_news()
        except OSError:
            pass  # the guest was ended
        self.gone = True
        self.ready.set()
        for process in list(self.processes.values()):
            process.code, process.output = -1, "the guest is gone"
            process.over.set()

    def take_news(self):
        with self.port.makefile("rb") as lines:
            for line in lines:
                said = json.loads(line)
                if "ready" in said:
                    self.ready.set()
                elif "exit" in said:
                    process = self.processes.pop(said["exit"])
                    process.code, process.output = said["code"], said["output"]
                    process.over.set()
                elif "text" in said:
                    process, told = self.answered.pop(said["text"])
                    if not process.over.is_set():
                        process.output = said["output"]
                    told.set()

    def tell(self, **words):
        try:
            self.port.sendall(json.dumps(words).encode() + b"\n")
        except OSError:
            raise Failed(f"the guest is gone:\n{self.last_words()}") from None

    def ask_text(self, process):
        told = threading.Event()
        self.answered[process.number] = (process, told)
        self.tell(text=process.number)
        told.wait(10)

    def last_words(self):
        self.log.seek(0)
        return tail(self.log.read().decode(errors="replace")) + "\n" + (
            tail(self.console.read_text(errors="replace"), 40) if self.console.exists() else "")

    def wait_ready(self):
        if not self.ready.wait(BOOT_LIMIT_S) or self.gone:
            raise Failed(f"the guest does not boot:\n{self.last_words()}")

    def start(self, words):
        if self.gone:
            raise Failed(f"the guest is gone:\n{self.last_words()}")
        self.count += 1
        process = GuestProcess(self, self.count, [str(word) for word in words])
        self.processes[self.count] = process
        self.tell(start=self.count, words=process.words)
        return process

    def listeners(self):
        """How many TCP sockets listen there. siw's are the kernel's."""
        tables = self.run("cat", "/proc/net/tcp", "/proc/net/tcp6")
        return sum(line.split()[3] == "0A" for line in tables.splitlines() if line.split()[1] != "local_address")

    def what_is_stuck(self):
        """What the guest's kernel has complained of, and which of its tasks wait for what."""
        try:
            self.tell(sysrq="w")
            time.sleep(1)
        except Failed:
            pass
        return tail(self.console.read_text(errors="replace"), 60)

    def run(self, *words, limit_s=COMMAND_LIMIT_S, expect=0):
        process = self.start(words)
        code = process.wait(limit_s)
        if expect is not None and code != expect:
            raise Failed(f"guest: exit code {code}: {' '.join(process.words)}\n{tail(process.output)}")
        return process.output

    def end(self):
        self.port.close()
        self.qemu.kill()
        self.qemu.wait()
        self.log.close()


def unavailable():
    """Why there can be no guest here, or nothing."""
    if os.geteuid() != 0:
        return "a tap in a network namespace needs root"
    if not os.path.exists("/dev/net/tun"):
        return "this machine's kernel has no /dev/net/tun"
    for program in ("qemu-system-x86_64", "ip", "setpriv", "tcpdump", "tshark"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return ""


