"""What the guest is made of: Debian's stock kernel as it is installed here, an initramfs with the few
modules that reach the root file system, and the siw modules. All of it is kept in a cache directory
(RNIC_GUEST_CACHE, else rnic/guest in the user's cache), so that only the first run makes it.
"""
import fcntl
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import zlib

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("RNIC_GUEST_CACHE") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "rnic" / "guest")

# What a build of siw is called here, and what is changed in its source (see build-siw).
SIW_BUILDS = {
    "default": [],
    "crc": ["mpa_crc_required=true"],
    "crc+p2p": ["mpa_crc_required=true", "peer_to_peer=true"],
    "mpa1": ["mpa_version=1"],
}


class Unavailable(Exception):
    """There can be no guest on this machine; the text says why."""


def mark(*parts):
    """A short name for what a cached file was made from: files by size and time, other things as they are."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, pathlib.Path):
            status = part.stat()
            part = f"{part} {status.st_size} {status.st_mtime_ns}"
        digest.update(str(part).encode() + b"\0")
    return digest.hexdigest()[:12]


def cached(name, make):
    """CACHE/name, made by make(temporary path) if it is not there. Two runs at once do not meet."""
    path = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = CACHE / f".{name}.{os.getpid()}"
            try:
                make(unfinished)
                unfinished.rename(path)
            finally:
                if unfinished.is_dir():
                    shutil.rmtree(unfinished)
                else:
                    unfinished.unlink(missing_ok=True)
    return path


def kernel_release():
    """The newest installed kernel that has its modules and what is needed to build one for it."""
    def number(release):
        return [int(part) for part in re.findall(r"\d+", release)]

    releases = [path.name.removeprefix("vmlinuz-") for path in pathlib.Path("/boot").glob("vmlinuz-*")]
    usable = [r for r in releases if pathlib.Path(f"/lib/modules/{r}/kernel").is_dir()
              and pathlib.Path(f"/lib/modules/{r}/build").is_dir()]
    if not usable:
        raise Unavailable("no kernel with modules and headers is installed")
    return max(usable, key=number)


def kernel(release):
    """The kernel as an ELF file. QEMU starts it at its PVH entry: nothing is unpacked under emulation."""
    image = pathlib.Path(f"/boot/vmlinuz-{release}")

    def unpack(path):
        octets = image.read_bytes()
        for magic, decompressor in ((b"\xfd7zXZ\0", lzma.LZMADecompressor), (b"\x1f\x8b\x08", lambda: zlib.decompressobj(31))):
            for start in (found.start() for found in re.finditer(re.escape(magic), octets)):
                try:
                    inside = decompressor().decompress(octets[start:])
                except (lzma.LZMAError, zlib.error):
                    continue
                if inside.startswith(b"\x7fELF"):
                    path.write_bytes(inside)
                    return
        shutil.copyfile(image, path)  # packed in another way: QEMU takes this too, more slowly

    return cached(f"kernel-{release}-{mark(image)}", unpack)


def module_paths(release, modules):
    """Files of modules and of what they need, each behind what it needs."""
    paths = []
    for module in modules:
        told = subprocess.run(["modprobe", "--set-version", release, "--show-depends", module], capture_output=True,
                              text=True, check=False)
        if told.returncode != 0:
            raise Unavailable(f"the kernel {release} has no module {module}")
        for line in told.stdout.splitlines():
            if line.startswith("insmod "):
                path = pathlib.Path(line.split()[1])
                if path not in paths:
                    paths.append(path)
    return paths


def newc(entries):
    """A cpio archive of (name, mode, contents, device): initramfs's format (kernel's buffer-format.rst)."""
    archive = bytearray()

    def align():
        archive.extend(bytes(-len(archive) % 4))

    for inode, (name, mode, contents, device) in enumerate([*entries, ("TRAILER!!!", 0, b"", (0, 0))], 1):
        label = name.encode() + b"\0"
        numbers = [inode, mode, 0, 0, 1, 0, len(contents), 0, 0, *device, len(label), 0]
        archive.extend(b"070701" + "".join(f"{number:08x}" for number in numbers).encode() + label)
        align()
        archive.extend(contents)
        align()
    return bytes(archive)


def initramfs(release):
    busybox = shutil.which("busybox")
    if busybox is None:
        raise Unavailable("there is no busybox")
    modules = module_paths(release, ["virtio_pci", "virtio_console", "virtio_net", "9p", "9pnet_virtio", "overlay"])

    def pack(path):
        entries = [(name, 0o040755, b"", (0, 0)) for name in ("bin", "dev", "proc", "sys", "modules", "host", "write", "root")]
        entries.append(("dev/console", 0o020600, b"", (5, 1)))
        entries.append(("bin/busybox", 0o100755, pathlib.Path(busybox).read_bytes(), (0, 0)))
        entries.append(("init", 0o100755, (HERE / "init").read_bytes(), (0, 0)))
        for place, module in enumerate(modules):
            entries.append((f"modules/{place:02}-{module.name}", 0o100644, module.read_bytes(), (0, 0)))
        path.write_bytes(newc(entries))

    return cached(f"initramfs-{release}-{mark((HERE / 'init').read_bytes(), pathlib.Path(busybox), *modules)}.cpio", pack)


def siw_source(release):
    """Debian's kernel comes without siw; the source package has it."""
    series = ".".join(release.split(".")[:2])
    package = pathlib.Path(f"/usr/src/linux-source-{series}.tar.xz")
    if not package.exists():
        raise Unavailable(f"the package linux-source-{series} is not installed")

    def unpack(path):
        path.mkdir()
        subprocess.run(["tar", "-C", path, "-xf", package, "--strip-components=5",
                        f"linux-source-{series}/drivers/infiniband/sw/siw"], check=True)

    return cached(f"siw-source-{mark(package)}", unpack)


def siw_modules(release):
    """The siw module of each build, by its name."""
    source = siw_source(release)

    def compile_them(path):
        path.mkdir()
        builds = [",".join((name, *settings)) for name, settings in SIW_BUILDS.items()]
        done = subprocess.run([HERE / "build-siw", release, source, path, *builds], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise Unavailable(f"siw does not build: {done.stdout[-800:]}{done.stderr[-800:]}")

    directory = cached(f"siw-{release}-{mark(source, (HERE / 'build-siw').read_bytes(), SIW_BUILDS)}", compile_them)
    return {name: directory / f"{name}.ko" for name in SIW_BUILDS}
