"""The copy of the tree that mutants are built and tried in."""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading

from places import ROOT, with_switches

# The test programs, in the order in which they are tried; each of the sources of these places in tests/,
# and, where it is not all of them, of these folders of dataplane/.
PROGRAMS = {
    "messages": ["unit/ddp", "unit/rdmap"],
    "tpt": ["unit/tpt"],
    "mpa": ["unit/mpa"],
    "tcp": ["unit/tcp", "unit/wire"],
    "qp": ["unit/qp"],
    "sim": ["sim/soak_test.cpp", "unit/core"],
}
MADE_OF = {
    "messages": {"base", "ddp", "rdmap", "tpt", "wire"},
    "tpt": {"base", "tpt", "wire"},
    "mpa": {"base", "mpa", "wire"},
    "tcp": {"base", "tcp", "wire"},
    "qp": {"base", "ddp", "mpa", "qp", "rdmap", "tcp", "tpt", "wire"},
}


def programs_of(folders, sim):
    """Those that have anything of these folders of dataplane/ in them."""
    return [name for name in PROGRAMS if name != "sim" and MADE_OF[name] & set(folders)] + ["sim"] * sim


# Of tests that are many of one kind, the first is enough.
LEFT_OUT = re.compile(r"random work over random wires: seeds (?!1 to )")
FLAGS = "-std=c++20 -g0 -mssse3 -msse4.2 -pthread -w -Idataplane -Iabi -Itests"


def sources(text, folder_of):
    """The C++ files named in a meson.build."""
    return [str(folder_of / name) for name in re.findall(r"'([\w/]+\.cpp)'", text)]


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
        meson = (ROOT / "dataplane" / "meson.build").read_text()
        linker = "-fuse-ld=lld" if shutil.which("ld.lld") else ""
        catch = subprocess.run(["pkg-config", "--libs", "catch2"], capture_output=True, text=True, check=True).stdout.strip()
        core = sources(re.search(r"core_sources = files\((.*?)\n\)", meson, re.S)[1], pathlib.Path("dataplane"))
        lines = ["ninja_required_version = 1.5",
                 "rule cxx", f"  command = c++ $o {FLAGS} $first -include quality/mutation/mutant.hpp -MD -MF $out.d -c $in -o $out",
                 "  deps = gcc", "  depfile = $out.d",
                 "rule pch", f"  command = c++ -O0 {FLAGS} -x c++-header $in -o $out",
                 "rule ar", "  command = rm -f $out && ar csrD $out $in",
                 "rule link", f"  command = c++ {linker} -pthread $in -o $out -lisal {catch}",
                 "build o/catch.hpp.gch: pch tests/kit/catch.hpp"]

        def compiled(files, optimize, pch=False):
            objects = []
            for file in files:
                out = "o/" + file.replace("/", "_") + ".o"
                lines.append(f"build {out}: cxx {file}" + (" | o/catch.hpp.gch" if pch else ""))
                lines.append(f"  o = {optimize}")
                if pch:
                    lines.append("  first = -include o/catch.hpp")
                objects.append(out)
            return objects

        def beside(folder):
            return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests" / folder).glob("*.cpp")
                          if not p.stem.endswith("_test") and p.stem not in ("main", "tcp_path"))

        core = dict(zip(core, compiled(core, "-O1")))
        for program in PROGRAMS:
            folders = MADE_OF.get(program)
            parts = [o for file, o in core.items() if not folders or file.split("/")[1] in folders]
            lines.append(f"build o/{program}.a: ar " + " ".join(parts))
        lines.append("build o/helpers.a: ar " + " ".join(compiled(beside("kit"), "-O0")))
        frame = compiled(["tests/kit/main.cpp", "tests/quality/mutation/witness.cpp"], "-O0")
        sim = compiled(beside("sim"), "-O1")
        for program, places in PROGRAMS.items():
            files = []
            for place in (ROOT / "tests" / p for p in places):
                files += [place] if place.is_file() else sorted(place.glob("*_test.cpp"))
            objects = compiled([str(p.relative_to(ROOT)) for p in files], "-O0", pch=True) + (sim if program == "sim" else [])
            lines.append(f"build {program}: link " + " ".join(objects + frame) + f" o/helpers.a o/{program}.a")
        self.put("build.ninja", ("\n".join(lines) + "\n").encode())
        self.put("o/catch.hpp", (ROOT / "tests" / "kit" / "catch.hpp").read_bytes())

    def ninja(self, *targets):
        done = subprocess.run(["ninja", "-k0", f"-j{self.jobs}", *targets], cwd=self.tree, capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    def build_switched(self, mutants):
        """Builds all with the mutants that can be switched; words if that fails. Where a switch does not
        compile, its line goes without."""
        while True:
            self.update(mutants)
            built, words = self.ninja(*self.programs)
            if built:
                return None
            wrong = {(m[1], int(m[2]) - 1) for m in re.finditer(r"^(\S+?):(\d+):\d+: error", words, re.M)}
            wrong |= {(m[1], int(m[2]) - 1) for m in re.finditer(r"^(\S+?):(\d+):\d+: note: in expansion of", words, re.M)}
            stuck = [m for m in mutants if m.switch and (m.path, m.number) in wrong]
            if not stuck:
                return words
            for mutant in stuck:
                mutant.switch = None

    # ---- runs ----

    def run(self, program, tests, mutant, seconds, first_only=True):
        """Runs these tests, all of them if None: (all passed, their log)."""
        chosen = self.tree / "chosen.txt"
        log = self.tree / "log.txt"
        log.unlink(missing_ok=True)
        command = [f"./{program}"] + (["-a"] if first_only else [])
        if tests is not None:
            chosen.write_text("".join('"' + re.sub(r'([\\",\[])', r"\\\1", t.name) + '"\n' for t in tests))
            command += ["-f", chosen.name]

        def bound():
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # a busy machine changes nothing
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        environment = {**os.environ, "RNIC_MUTANT": str(mutant), "RNIC_MUTANT_LOG": log.name}
        child = subprocess.Popen(command, cwd=self.tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 preexec_fn=bound, env=environment)
        watch = threading.Timer(60 + 60 * seconds, child.kill)  # should it sleep for ever
        watch.start()
        code = child.wait()
        watch.cancel()
        return code == 0, log.read_text(errors="replace") if log.exists() else ""

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
                shutil.copy2(kept, now)

    def keep_objects(self):
        """As they are now, to be gone back to."""
        shutil.rmtree(self.tree / "kept", ignore_errors=True)
        (self.tree / "kept").mkdir()
        for file in [*(self.tree / "o").glob("*.[oa]"), *(self.tree / p for p in self.programs)]:
            shutil.copy2(file, self.tree / "kept" / file.name)
