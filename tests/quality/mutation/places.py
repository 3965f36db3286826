"""What can be changed in the code, and how all changes can be in one program, each behind a switch."""
import hashlib
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent

RULES = [(re.compile(pattern), made) for pattern, made in [
    (r" == ", " != "), (r" != ", " == "), (r" <= ", " < "), (r" >= ", " > "), (r" < ", " <= "), (r" > ", " >= "),
    (r" && ", " || "), (r" \|\| ", " && "), (r"(?<=[(& |=])!(?=[\w(])", ""), (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"), (r" \+ ", " - "), (r" - ", " + "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"),
    (r"(?<![\w.'\[])(?:0x[0-9A-Fa-f']+|\d[\d']*)(?![\w.'])u?", None),
]]
# What is no code, or says nothing by itself: an assertion that fails is a crash in any test.
PASSED_OVER = re.compile(r"^\s*(//|#|static_assert|RNIC_ASSERT|using |namespace |template|case .*: return \"|friend |"
                         r".*\) = 0;$)")
OPENING, CLOSING = "([{", ")]}"
# Where an expression with an operator ends on either side, in code laid out by clang-format.
ENDS = re.compile(r" (?:\?|:|=|\+=|-=|\*=|/=|\|=|&=|\^=|<<=|>>=)(?: |$)|[,;]|\breturn ")
ENDS_LOGIC = re.compile(ENDS.pattern + r"| (?:&&|\|\|)(?: |$)")
ENDS_STATEMENT = re.compile(r"[,;]|\breturn ")
OPERAND = re.compile(r"(?:::)?[A-Za-z_]\w*(?:(?:::|\.|->)[A-Za-z_]\w*)*")


def moved(number):
    digits = number.replace("'", "").rstrip("u")
    if re.match(r"0\d", digits):
        return f"0{int(digits, 8) ^ 1:o}"
    value = int(digits, 0)
    if number.startswith("0x"):
        return f"0x{value ^ 1:X}"
    return str(value + 1 if value != 1 else 0)


def closing(code, at):
    """Where the bracket that was opened before `at` is closed; None if not on this line."""
    depth = 1
    for i in range(at, len(code)):
        depth += (code[i] in OPENING) - (code[i] in CLOSING)
        if depth == 0:
            return i
    return None


def opening(code, at):
    """The same to the left: where the bracket was opened that is closed at `at`."""
    depth = 0
    for i in range(at, -1, -1):
        depth += (code[i] in CLOSING) - (code[i] in OPENING)
        if depth == 0:
            return i
    return None


def expression_around(code, start, end, ends):
    """The whole expression that code[start:end], an operator, is in; None if it cannot be told."""
    left, i = None, start - 1
    stops = {m.end(): m for m in ends.finditer(code, 0, start + 1) if m.end() <= start + 1}
    while i >= 0:
        if i + 1 in stops:
            left = i + 1
            break
        if code[i] in CLOSING:
            i = opening(code, i)
            if i is None:
                return None
            if re.search(r"\b(?:if|while|for|switch|if constexpr) $", code[:i]):
                left = closing(code, i + 1) + 1
                break
        elif code[i] in OPENING:
            left = i + 1
            break
        i -= 1
    if left is None:
        left = 0
    right, i = len(code.rstrip()), end
    stops = {m.start() for m in ends.finditer(code, end - 1)}
    while i < len(code):
        if i in stops or code[i] in CLOSING:
            right = i
            break
        if code[i] in OPENING:
            i = closing(code, i + 1)
            if i is None:
                return None
        i += 1
    text = code[left:right]
    left += len(text) - len(text.lstrip())
    right -= len(text) - len(text.rstrip())
    whole = code[left:right]
    ends_well = whole and (whole[-1] in "_)]}\"'" or whole[-1].isalnum())
    if not ends_well or re.match(r"[^\w\s(!*&~:\"'{-]|else |&&", whole):
        return None
    return left, right


class Mutant:
    def __init__(self, path, line, number, start, end, text, switch=None, once=False):
        self.path, self.line, self.number, self.once = path, line, number, once
        self.made = line[:start] + text + line[end:]
        self.start, self.end, self.text = start, end, text
        # (from, to, how): how the part of the line is written with both in it.
        self.switch = switch
        # The same line may stand twice in a file, and a change be possible at two places of it.
        self.key = f"{path}: {line.strip()} => {self.made.strip()}"

    @property
    def folder(self):
        return self.path.split("/")[1]

    def switched(self, number, original):
        begin, to, how = self.switch
        if how == "negated":
            return f"(RNIC_MUTANT({number}) != bool({original}))"
        if how == "declared":
            name = re.search(r"(\w+) = ", self.line[begin:to])[1]
            return f"{original}; RNIC_MUTANT({number}) != bool({name})"
        mutated = self.line[begin:self.start] + self.text + self.line[self.end:to]
        return f"(RNIC_MUTANT({number}) ? ({mutated}) : ({original}))"


def switch_of(code, match, made):
    start, end = match.span()
    if made is None or made in ("true", "false"):
        return start, end, "either"
    if made == "":  # a `!` that goes; what it stands before need not be a bool
        if code[end] == "(":
            to = closing(code, end + 1)
            return (start, to + 1, "negated") if to is not None else None
        operand = OPERAND.match(code, end)
        to = operand.end() if operand else None
        while to is not None and to < len(code):
            if code[to] in "([":
                bracket = closing(code, to + 1)
                to = bracket + 1 if bracket is not None else None
            elif code[to] == "." and OPERAND.match(code, to + 1):
                to = OPERAND.match(code, to + 1).end()
            else:
                break
        return (start, to, "negated") if to is not None else None
    if made.startswith("std::"):
        bracket = code.find("(", end)
        to = closing(code, bracket + 1) if bracket >= 0 else None
        return (start, to + 1, "either") if to is not None else None
    ends = ENDS_STATEMENT if made.strip() in ("+=", "-=") else ENDS if made.strip() in ("&&", "||") else ENDS_LOGIC
    around = expression_around(code, start, end, ends)
    return (*around, "either") if around else None


def made_once(lines, number):
    """In what a static begins with: the first that comes by has it made for all others."""
    least = len(lines[number])
    for line in reversed(lines[:number + 1]):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent >= least:
            continue
        if re.match(r"\s+static (?!constexpr)[^(]* = ", line):
            return True
        least = indent
    return False


def mutants_in(path, text):
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if PASSED_OVER.match(line):
            continue
        code = line.split("//")[0]
        once = made_once(lines, number)
        code = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: '"' + " " * (len(m[0]) - 2) + '"', code)
        for rule, made in RULES:
            for match in rule.finditer(code):
                text = made if made is not None else moved(match[0])
                yield Mutant(path, line, number, match.start(), match.end(), text, switch_of(code, match, made),
                             once)
        for match in re.finditer(r"\b(?:if|while) \(", code):
            end = closing(code, match.end())
            if end is not None:
                begin = match.end() + code[match.end():end].rfind("; ") + 1
                begin += code[begin] == " "
                condition = line[begin:end]
                declared = re.match(r"(?:const )?auto[*&]? (\w+) = ", condition)
                if declared and match[0].startswith("while"):
                    continue  # no place for a condition beside it
                made = f"{condition}; !{declared[1]}" if declared else f"!({condition})"
                yield Mutant(path, line, number, begin, end, made, (begin, end, "declared" if declared else "negated"), once)


def all_mutants(only):
    seen = set()
    for top in only:
        place = ROOT / top
        files = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.suffix in {".cpp", ".hpp"})
        for file in files:
            for mutant in mutants_in(str(file.relative_to(ROOT)), file.read_text()):
                if mutant.key not in seen:
                    seen.add(mutant.key)
                    yield mutant


def sample(mutants, count, seed):
    """As many of each folder, as far as it has them; the same ones wherever else the code changes."""
    folders = {}
    for mutant in sorted(mutants, key=lambda m: hashlib.sha256(f"{seed} {m.key}".encode()).digest()):
        folders.setdefault(mutant.folder, []).append(mutant)
    chosen = []
    while len(chosen) < count and any(folders.values()):
        for folder in sorted(folders):
            if folders[folder] and len(chosen) < count:
                chosen.append(folders[folder].pop(0))
    return chosen


def with_switches(line, mutants):
    """The line with these mutants in it: pairs of number and mutant. And those that did not find room."""
    left_out = []

    def written(begin, to, inside):
        if not inside:
            return line[begin:to]
        number, widest = max(inside, key=lambda m: m[1].switch[1] - m[1].switch[0])
        a, b, _ = widest.switch
        others = [m for m in inside if m[1] is not widest]
        before = [m for m in others if m[1].switch[1] <= a]
        after = [m for m in others if m[1].switch[0] >= b]
        within = [m for m in others if m[1].switch[0] >= a and m[1].switch[1] <= b]
        left_out.extend(m for m in others if m not in before and m not in after and m not in within)
        return written(begin, a, before) + widest.switched(number, written(a, b, within)) + written(b, to, after)

    return written(0, len(line), mutants), left_out
