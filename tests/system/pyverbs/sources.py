"""rdma-core's Python suite as Debian's python3-pyverbs brings it, and what is known of its tests."""
import fnmatch
import gzip
import pathlib
import re
import shutil

SUITE = pathlib.Path("/usr/share/doc/rdma-core/tests")
KNOWN = pathlib.Path(__file__).resolve().parent / "known"


def unpacked(directory):
    """The suite, as its authors have it: Debian compresses what is long."""
    for file in SUITE.iterdir():
        if file.suffix == ".gz":
            with gzip.open(file) as packed:
                pathlib.Path(directory, file.stem).write_bytes(packed.read())
        elif file.suffix == ".py":
            shutil.copy(file, directory)
    return directory


def told(way, row):
    """A line of a table: what became of a test, of which suite.py wrote `row`, and the last that it said."""
    why = row["why"].strip()
    return (f"{way:5} {row['name']:80} {row['outcome']:8} {row['seconds']:5} {why.splitlines()[-1] if why else ''}"
            ).rstrip()


class Known:
    """Lines of `known`: a pattern of names, what may become of these tests, and why. `WAY:` in front: that way only.
    `[siw skips, rxe passes]` behind: what becomes of them over Linux's devices."""

    OUTCOMES = {"skips": ("skipped",), "fails": ("failed",), "passes": ("ok",), "may-skip": ("skipped", "ok"),
                "may-fail": ("failed", "ok")}

    def __init__(self):
        self.rows = []
        for line in KNOWN.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                pattern, outcome, why = line.split(maxsplit=2)
                self.rows.append((pattern, self.OUTCOMES[outcome], why))
        self.used = set()

    def of(self, way, name):
        for row in self.rows:
            if any(fnmatch.fnmatchcase(each, row[0]) for each in (name, f"{way}:{name}")):
                self.used.add(row)
                return row
        return None

    def of_linux(self, device, ways, name):
        """What becomes of the test over siw or rxe, by the lines that it has for any of the ways."""
        rows = [row for row in (self.of(way, name) for way in ways) if row is not None]
        return {self.OUTCOMES[words.group(1)][0] for row in rows
                if (words := re.search(rf"\[.*\b{device} (\w+).*\]$", row[2]))}

    def unused(self):
        return [row[0] for row in self.rows if row not in self.used]
