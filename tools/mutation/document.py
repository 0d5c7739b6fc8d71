# SPDX-License-Identifier: Apache-2.0
"""What a run found, as tables on the screen and as docs/mutation.md."""

import re
from collections import Counter
from pathlib import Path

REASONS = Path(__file__).resolve().parent / "reasons.txt"
GOAL = 90  # percent

TEXT = """\
<!-- Written by tools/mutate --write; the text stands in tools/mutation/document.py, the reasons in tools/mutation/reasons.txt. -->
# Do the tests notice a break?

`tools/mutate` breaks the engines on purpose, one place at a time, and asks whether a test notices. Of {tried} breaks
(mutants) the tests caught {caught}: **{share:.1f} %** (goal: {goal} %). Every survivor is listed below with the reason why it
is let live.

{folders}

{kinds}

## How it was measured

- `{command}`, which writes this page. Seed {seed} chose {tried} of the {found} mutants that the tool finds in {sources} sources, as
  many of one file as of another where the file has them.{dropped} The same sources and seed give the same mutants.
- All mutants are compiled into one set of programs, in which an environment variable chooses one. Clang's syntax tree says where
  they can stand: another comparison, logical or arithmetic operator, another assignment, a constant one more or less, a negated
  condition, a lost sign, two swapped arguments of one type, a missing statement. Left out is what only costs time or memory, or
  reports a broken invariant.
- The tests: every Catch2 program, {oracle} random scenarios against the oracle (`tests/oracle`), and each file of
  `tests/contract` and `tests/oracle`, and every scenario that takes less than a second. Without a mutant each ran once, to
  see which mutants it reaches and how much time it takes; a mutant then met the tests that reach it, the cheapest first.
- A mutant is caught when a test fails, crashes, or takes four times the processor time that it takes otherwise, and 10 s at least.
- {minutes} What caught the mutants: {catchers}. {how}

## Survivors

A survivor is *equivalent* when no input can tell it from the original, or when only time, memory or the wording of what nobody
promises differ. Otherwise a test is missing, and it is said what it would cost.

{survivors}
"""


def folder_of(mutant):
    return mutant.file.split("/")[1]


def describe(mutant, line=False):
    change = f"without: {mutant.old};" if mutant.statement else f"{mutant.old}  →  {mutant.new}"
    return f"{mutant.file}:{f'{mutant.line}:' if line else ''} {mutant.kind}: {change}"


def read_reasons():
    """{description without a line number: reason}. A reason stands indented below its mutant."""
    result, key = {}, None
    for line in REASONS.read_text(encoding="utf-8").splitlines() if REASONS.exists() else []:
        if line.startswith("#") or not line.strip():
            continue
        if not line[0].isspace():
            key = line
            result[key] = ""
        else:
            result[key] = f"{result[key]} {line.strip()}".strip()
    return result


def shares(tried, results, key):
    """(name, mutants, caught) for each name, and for all."""
    whole = Counter(map(key, tried))
    caught = Counter(key(mutant) for mutant in tried if results[mutant.id][0])
    rows = [(name, whole[name], caught[name]) for name in sorted(whole)]
    return rows + [("all", sum(whole.values()), sum(caught.values()))]


def print_tables(chosen, results, tests):
    """Returns the share of those that were caught, in percent."""
    tried = [mutant for mutant in chosen if mutant.id in results]
    print(f"\n{'':<24} {'mutants':>8} {'caught':>8}")
    for key in (folder_of, lambda m: m.kind):
        for name, whole, caught in shares(tried, results, key):
            print(f"{name:<24} {whole:>8} {100 * caught / max(1, whole):>6.0f} %")
    print("\ncaught by")
    for name, count in Counter(results[m.id][0] for m in tried if results[m.id][0]).most_common():
        print(f"  {count:>4}  {name}")
    for test in tests.left_out:
        print(f"left out, since it fails without any mutant: {test.name}")
    print("\nsurvivors")
    for mutant in tried:
        if not results[mutant.id][0]:
            print(f"  {describe(mutant, line=True)}" + (f" ({results[mutant.id][1]})" if results[mutant.id][1] else ""))
    caught = sum(bool(results[mutant.id][0]) for mutant in tried)
    share = 100 * caught / max(1, len(tried))
    print(f"\n{len(tried)} of {len(chosen)} mutants tried, {caught} caught: {share:.1f} % (goal {GOAL} %)")
    return share


def table(what, rows):
    lines = [f"| {what} | mutants | caught | |", "|---|--:|--:|--:|"]
    lines += [f"| {name} | {whole} | {caught} | {100 * caught / whole:.0f} % |" for name, whole, caught in rows]
    return "\n".join(lines)


def code(text, most=110):
    text = re.sub(r"\s+", " ", text).strip()
    text = text if len(text) <= most else text[: most - 1] + "…"
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def survivor(root, mutant, reason):
    source = (root / mutant.file).read_bytes()
    line = source[source.rfind(b"\n", 0, mutant.begin) + 1 : source.find(b"\n", mutant.begin)].decode()
    change = f"without {code(mutant.old + ';')}" if mutant.statement else f"{code(mutant.old)} becomes {code(mutant.new)}"
    return f"- `{mutant.file}`, {code(line)}\n  {change}.\n  {reason}"


def write(root, chosen, results, facts):
    """Writes docs/mutation.md; returns the survivors for which no reason is given."""
    reasons = read_reasons()
    tried = [mutant for mutant in chosen if mutant.id in results]
    alive = [mutant for mutant in tried if not results[mutant.id][0]]
    caught = len(tried) - len(alive)
    kinds_of_test = Counter()
    for mutant in tried:
        name = results[mutant.id][0]
        if name:
            kinds_of_test["unit tests" if name.startswith("test_") else "/".join(name.split("/")[:2])
                          if name.startswith("tests/") else "the oracle"] += 1
    slow = sum(results[mutant.id][1] == "took too long" for mutant in tried)
    dropped, minutes = facts.pop("dropped"), facts.pop("minutes")
    text = TEXT.format(
        tried=len(tried), caught=caught, share=100 * caught / len(tried), goal=GOAL,
        folders=table("folder of `src/`", shares(tried, results, folder_of)),
        kinds=table("kind of break", shares(tried, results, lambda m: m.kind)),
        catchers=", ".join(f"{name} {count}" for name, count in kinds_of_test.most_common()),
        how=f"{slow} of them hung." if slow else "None hung.",
        minutes=f"{minutes:.0f} minutes of processor time, from finding the mutants to the last survivor." if minutes else
                "The survivors of a first run were tried again after the tests that they asked for had been written; what was "
                "caught before was not.",
        dropped=f" Another {dropped} did not compile." if dropped else "",
        survivors="\n".join(survivor(root, m, reasons.get(describe(m)) or "**No reason yet.**") for m in alive) or "None.",
        **facts)
    (root / "docs" / "mutation.md").write_text(text, encoding="utf-8")
    return [mutant for mutant in alive if not reasons.get(describe(mutant))]
