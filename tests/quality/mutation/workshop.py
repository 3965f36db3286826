"""The copy of the tree that mutants are built and tried in."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading

from places import ROOT, with_switches

# The test programs, in the order in which they are tried: what of tests/ each is made of, of which folders of
# dataplane/, and which of these folders it is there to test, where that is not all of them.
PROGRAMS = {
    "messages": (["unit/ddp", "unit/rdmap"], "base ddp rdmap tpt wire", None),
    "tpt": (["unit/tpt"], "base tpt wire", None),
    "mpa": (["unit/mpa"], "base mpa wire", None),
    "tcp": (["unit/tcp", "unit/wire"], "base mpa tcp wire", "base tcp wire"),
    "qp": (["unit/qp"], "base ddp mpa qp rdmap tcp tpt wire", None),
    "ud": (["unit/ud"], "base ddp rdmap tpt ud wire", None),
    "ip": (["unit/ip"], "base ip wire", None),
    "host": (["unit/host"], "base host ip tcp wire", "host ip"),
    "core": (["unit/core"], "base core ddp host ip mpa port qp rdmap shm tcp tpt ud wire", "core host"),
    "shm": (["unit/shm"], "base ddp qp rdmap shm tpt ud wire", "shm"),
    "control": (["unit/control", "unit/abi"],
                "base control core ddp host ip mpa port qp rdmap shm tcp tpt ud wire", "control shm"),
    "sim": (["sim/soak_test.cpp"], "base core ddp host ip mpa port qp rdmap shm tcp tpt ud wire", ""),
}
# What tests and programs have of tests/sim/ in them.
WITH_SIM = ("host", "core", "sim")


def programs_of(folders, sim):
    """Those that test any of these folders of dataplane/."""
    return [name for name, (_, parts, tested) in PROGRAMS.items()
            if set((parts if tested is None else tested).split()) & set(folders)] + ["sim"] * sim


# Of tests that are many of one kind, the first is enough.
LEFT_OUT = re.compile(r"random work over random wires: seeds (?!1 to )")
FLAGS = "-std=c++20 -g0 -mssse3 -msse4.2 -pthread -w -Idataplane -Iabi -Itests"
# What some places want besides; the rest is compiled without knowing DPDK.
EXTRA = {
    "dataplane/control": '-DRNIC_VERSION=\\"0\\" -DTOML_HEADER_ONLY=1',
    "tests/unit/control": f'-DRNIC_SOURCE_DIR=\\"{ROOT}\\"',
}


def package(name, what):
    return subprocess.run(["pkg-config", what, name], capture_output=True, text=True, check=True).stdout.strip()


# Seconds for which nothing of a program has run, nor wanted to: it waits for what a mutant has taken from it.
ASLEEP_MAX = 20


def threads_of(process):
    """State and processor time of each thread."""
    threads = []
    for stat in pathlib.Path(f"/proc/{process}/task").glob("*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # has ended meanwhile
            continue
        threads.append((fields[0], int(fields[11]) + int(fields[12])))
    return sorted(threads)


class Test:
    """A test case as the run without mutants told of it."""

    def __init__(self, program, tags, name, failed, milliseconds, reached):
        self.program, self.tags, self.name = program, tags, name
        self.failed, self.milliseconds, self.reached = failed, milliseconds, reached


class Workshop:
    def __init__(self, place, programs, jobs):
        self.tree, self.programs, self.jobs = place / "tree", programs, jobs

    # ---- the copy ----

    def update(self, mutants):
        """The tree as it is now, with switches for the mutants: each has its place in the list as number, from 1."""
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "abi", "dataplane", "tests"], cwd=ROOT,
                                check=True, capture_output=True, text=True).stdout.split()
        wanted = {name for name in listed if name.endswith((".cpp", ".hpp", ".h", ".inc")) and (ROOT / name).exists()}
        at = {}
        for number, mutant in enumerate(mutants, 1):
            if mutant.switch:
                at.setdefault(mutant.path, {}).setdefault(mutant.number, []).append((number, mutant))
        for name in wanted:
            content = (ROOT / name).read_bytes()
            if name in at:
                lines = content.decode().split("\n")
                for line, here in at[name].items():
                    if lines[line] != here[0][1].line:
                        sys.exit(f"{name} has changed meanwhile")
                    lines[line], left_out = with_switches(lines[line], here)
                    for _, mutant in left_out:
                        mutant.switch = None
                content = "\n".join(lines).encode()
            self.put(name, content)
        for file in self.tree.rglob("*.?pp"):
            if str(file.relative_to(self.tree)) not in wanted and file.parent.name != "o":
                file.unlink()
        self.write_ninja()

    def put(self, name, content):
        to = self.tree / name
        if not to.exists() or to.read_bytes() != content:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(content)

    def write_ninja(self):
        linker = "-fuse-ld=lld" if shutil.which("ld.lld") else ""
        link_with = f"-lisal -lfmt {package('catch2', '--libs')}"
        extra = {**EXTRA, "dataplane/port": package("libdpdk", "--cflags")}
        lines = ["ninja_required_version = 1.5",
                 "rule cxx",
                 f"  command = c++ $o {FLAGS} $extra $first -include quality/mutation/mutant.hpp -MD -MF $out.d "
                 "-c $in -o $out",
                 "  deps = gcc", "  depfile = $out.d",
                 "rule pch", f"  command = c++ -O0 {FLAGS} -x c++-header $in -o $out",
                 "rule ar", "  command = rm -f $out && ar csrD $out $in",
                 "rule link",
                 f"  command = c++ {linker} -pthread -o $out -Wl,--start-group $in -Wl,--end-group {link_with} "
                 "$libraries",
                 "build o/catch.hpp.gch: pch tests/kit/catch.hpp"]

        def compiled(files, optimize, pch=False):
            objects = []
            for file in files:
                out = "o/" + file.replace("/", "_") + ".o"
                lines.append(f"build {out}: cxx {file}" + (" | o/catch.hpp.gch" if pch else ""))
                lines.append(f"  o = {optimize}")
                lines.extend(f"  extra = {words}" for place, words in extra.items() if file.startswith(place + "/"))
                if pch:
                    lines.append("  first = -include o/catch.hpp")
                objects.append(out)
            return objects

        def files_in(*places):
            return sorted(str(p.relative_to(ROOT)) for place in places for p in ROOT.glob(place))

        def beside(folder):
            return [p for p in files_in(f"tests/{folder}/*.cpp")
                    if not p.endswith(("_test.cpp", "/main.cpp", "/tcp_path.cpp"))]

        parts = files_in("dataplane/*/*.cpp", "dataplane/*/*/*.cpp")
        parts = dict(zip(parts, compiled(parts, "-O1")))
        for program, (_, folders, _) in PROGRAMS.items():
            mine = [o for file, o in parts.items() if file.split("/")[1] in folders.split()]
            lines.append(f"build o/{program}.a: ar " + " ".join(mine))
        lines.append("build o/helpers.a: ar " + " ".join(compiled(beside("kit"), "-O0")))
        lines.append("build o/worlds.a: ar " + " ".join(compiled(beside("sim"), "-O1")))
        frame = compiled(["tests/kit/main.cpp", "tests/quality/mutation/witness.cpp"], "-O0")
        for program, (places, folders, _) in PROGRAMS.items():
            files = [p for place in places for p in files_in(f"tests/{place}", f"tests/{place}/*_test.cpp")
                     if p.endswith(".cpp")]
            objects = compiled(files, "-O0", pch=True) + frame + ["o/helpers.a"]
            objects += ["o/worlds.a"] * (program in WITH_SIM) + [f"o/{program}.a"]
            lines.append(f"build {program}: link " + " ".join(objects))
            if "port" in folders.split():
                lines.append(f"  libraries = {package('libdpdk', '--libs')} -lrte_bus_vdev")
        self.put("build.ninja", ("\n".join(lines) + "\n").encode())
        self.put("o/catch.hpp", (ROOT / "tests" / "kit" / "catch.hpp").read_bytes())

    def ninja(self, *targets, failures=1):
        """Goes on until so many steps have failed; 0: whatever fails."""
        done = subprocess.run(["ninja", f"-k{failures}", f"-j{self.jobs}", *targets], cwd=self.tree,
                              capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    def build_switched(self, mutants):
        """Builds all with the mutants that can be switched; words if that fails. Where a switch does not
        compile, its line goes without."""
        while True:
            self.update(mutants)
            built, words = self.ninja(*self.programs, failures=0)
            if built:
                return None
            wrong = {(m[1], int(m[2]) - 1)
                     for m in re.finditer(r"^(\S+?):(\d+):\d+: (?:error|note: in expansion of)", words, re.M)}
            stuck = [m for m in mutants if m.switch and (m.path, m.number) in wrong]
            if not stuck:
                return words
            for mutant in stuck:
                mutant.switch = None

    # ---- runs ----

    def run(self, program, tests, mutant, seconds, first_only=True):
        """Runs these tests, all of them if None: (all passed, their log). Any number of threads may ask for it."""
        mine = threading.get_ident()
        chosen, log = self.tree / f"chosen.{mine}.txt", self.tree / f"log.{mine}.txt"
        command = [f"./{program}"] + (["-a"] if first_only else [])
        if tests is not None:
            chosen.write_text("".join('"' + re.sub(r'([\\",\[])', r"\\\1", t.name) + '"\n' for t in tests))
            command += ["-f", chosen.name]

        def bound():
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # a busy machine changes nothing
            resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        environment = {**os.environ, "RNIC_MUTANT": str(mutant), "RNIC_MUTANT_LOG": log.name}
        child = subprocess.Popen(command, cwd=self.tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 preexec_fn=bound, env=environment, start_new_session=True)
        before, asleep = None, 0
        while asleep < ASLEEP_MAX:
            try:
                child.wait(1)
                break
            except subprocess.TimeoutExpired:
                now = threads_of(child.pid)
                asleep = asleep + 1 if now == before and all(state == "S" for state, _ in now) else 0
                before = now
        try:
            os.killpg(child.pid, signal.SIGKILL)  # it may have left children behind
        except ProcessLookupError:
            pass
        words = log.read_text(errors="replace") if log.exists() else ""
        log.unlink(missing_ok=True)
        chosen.unlink(missing_ok=True)
        return child.wait() == 0, words

    def learn(self):
        """Runs all tests without a mutant: what they are, what they come by."""
        tests = []
        for program in self.programs:
            _, log = self.run(program, None, 0, 3600, first_only=False)
            tests += self.told(program, log)
        (self.tree / "tests.json").write_text(json.dumps([vars(t) for t in tests]))
        return tests

    @staticmethod
    def told(program, log):
        tests = []
        lines = log.splitlines()
        for begun, ended in zip(lines, lines[1:] + [""]):
            if not begun.startswith("S\t"):
                continue
            _, tags, name = begun.split("\t", 2)
            _, failed, milliseconds, reached = ended.split("\t") if ended.startswith("E\t") else ("E", "1", "0", "")
            tests.append(Test(program, tags, name, failed != "0", int(milliseconds), [int(n) for n in reached.split()]))
        return tests

    # ---- a mutant that has no switch ----

    def plant(self, mutant):
        file = self.tree / mutant.path
        self.kept = file, file.read_bytes(), file.stat()
        lines = self.kept[1].decode().split("\n")
        lines[mutant.number] = mutant.made
        file.write_text("\n".join(lines))

    def uproot(self):
        """All is as it was, objects too: nothing is compiled twice."""
        file, content, stat = self.kept
        file.write_bytes(content)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        for kept in (self.tree / "kept").glob("*"):
            now = (self.tree / "o" if kept.suffix in (".o", ".a") else self.tree) / kept.name
            if not now.exists() or now.stat().st_mtime_ns != kept.stat().st_mtime_ns:
                now.unlink(missing_ok=True)  # somebody may run it still
                shutil.copy2(kept, now)

    def keep_objects(self):
        """As they are now, to be gone back to."""
        shutil.rmtree(self.tree / "kept", ignore_errors=True)
        (self.tree / "kept").mkdir()
        for file in [*(self.tree / "o").glob("*.[oa]"), *(self.tree / p for p in self.programs)]:
            shutil.copy2(file, self.tree / "kept" / file.name)
