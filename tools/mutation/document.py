# SPDX-License-Identifier: Apache-2.0
"""What runs found: tables on the screen, figures.json, which keeps them for each folder, and docs/mutation.md, which is made of
it and of reasons.txt alone."""

import json
import re
from collections import Counter
from pathlib import Path

from folders import DECIDE, all_folders, folder_of
from tests import OUTER_OF

HERE = Path(__file__).resolve().parent
REASONS, FIGURES = HERE / "reasons.txt", HERE / "figures.json"
GOAL = 90  # percent, in each folder that decides
DRAW = 2  # how a seed chooses mutants; one more where the same seed chooses others of the same sources
EQUIVALENT = "Equivalent"  # how a reason begins where no test could tell the mutant from the original
NO_REASON = "**No reason yet.**"

TEXT = """\
<!-- Written by tools/mutate --write; the text stands in tools/mutation/document.py, the reasons in tools/mutation/reasons.txt. -->
# Do the tests notice a break?

`tools/mutate` breaks the program on purpose, one place at a time, and asks whether a test notices. Each folder has mutants of
its own, drawn from all that the tool finds there, as many of one file as of another where the file has them. Of {tried} breaks
(mutants) in {folder_count} the tests caught {caught}: {share} %. Every survivor is listed below with the reason why it is let live.

{folders}

*Equivalent* are survivors that no input can tell from the original, or that differ only in time, memory or the wording of what
nobody promises; somebody says so in each reason below. The last column is the share of the others that was caught. Its goal is {goal} %
in every folder that decides a verdict, reads what it is decided on or tells it{missed}.{beside} The other folders are the command line,
readers of tensors, and engines that repeat what has been decided; they have no goal. {unmeasured}

{kinds}

## How it was measured

- `tools/mutate --write` writes this page, and renews in it the folders that `--folder` names. The same sources, tests and seed give the
  same mutants of a folder, whatever other folders are measured: a header that a test includes has none.{dropped} {seeds} A row stands for the sources and tests as they were when its folder was measured.
- All mutants are compiled into one set of programs, in which an environment variable chooses one. Clang's syntax tree says where
  they can stand: another comparison, logical or arithmetic operator, another assignment, a constant one more or less, a negated
  condition, a lost sign, two swapped arguments of one type, a lower bound for an upper one, a missing statement. Left out is what
  only costs time or memory, or reports a broken invariant, and swapped arguments of what a coroutine awaits, which GCC 12 compiles wrongly.
- The tests: every Catch2 program, 200 random scenarios against the oracle (`tests/oracle`), every scenario that takes less than a
  second, and each file of {inner}. What has no goal meets {outer} as well{outer_of}. Files that take more than {longest} s of
  processor time are left out. Without a mutant each test ran once, to see which mutants it reaches and how much time it takes; a mutant then
  met the tests that reach it, the cheapest first.
- A mutant is caught when a test fails, crashes, or takes four times the processor time that it takes otherwise, and 10 s at least.{believed}
- What caught the mutants: {catchers}. {hung}

## Survivors

Where a survivor is not equivalent a test is missing, and it is said what it would cost.

{survivors}
"""


def describe(mutant, line=False):
    change = f"without: {mutant.old};" if mutant.statement else f"{mutant.old}  →  {mutant.new}"
    change += f"  in  {mutant.code}" if mutant.code else ""
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


def percent(caught, of):
    """Rounded down: what misses a goal is never printed as the goal."""
    return 100 * caught // of if of else 100


def figures_of(root, tried, results, facts):
    """What figures.json keeps of a folder."""
    kinds, catchers, survivors = {}, Counter(), []
    for mutant in tried:
        name, how = results[mutant.id]
        of_kind = kinds.setdefault(mutant.kind, [0, 0])
        of_kind[0] += 1
        of_kind[1] += bool(name)
        if not name:
            source = (root / mutant.file).read_bytes()
            line = source[source.rfind(b"\n", 0, mutant.begin) + 1 : source.find(b"\n", mutant.begin)].decode()
            change = f"without {code(mutant.old + ';')}" if mutant.statement else f"{code(mutant.old)} becomes {code(mutant.new)}"
            survivors.append({"mutant": describe(mutant), "text": f"- `{mutant.file}`, {code(line)}\n  {change}."})
        elif name.startswith("test_"):
            catchers["unit tests"] += 1
        else:
            catchers["/".join(name.split("/")[:2]) if name.startswith("tests/") else "the oracle"] += 1
    return {**facts, "mutants": len(tried), "caught": sum(catchers.values()),
            "hung": sum(results[mutant.id][1] == "took too long" for mutant in tried),
            "kinds": dict(sorted(kinds.items())), "caught_by": dict(catchers.most_common()), "survivors": survivors}


def equivalent(of_folder, reasons):
    return sum(reasons.get(entry["mutant"], "").startswith(EQUIVALENT) for entry in of_folder["survivors"])


def misses(folder, of_folder, reasons):
    """Whether a folder misses its goal."""
    judged = of_folder["mutants"] - equivalent(of_folder, reasons)
    return folder in DECIDE and percent(of_folder["caught"], judged) < GOAL


def folder_rows(figures, reasons):
    """[name, mutants, caught, equivalent, share of the others] for each folder, and for all."""
    rows = [[folder, figures[folder]["mutants"], figures[folder]["caught"], equivalent(figures[folder], reasons)]
            for folder in all_folders() if folder in figures]
    rows.append(["all", *(sum(row[column] for row in rows) for column in (1, 2, 3))])
    return [[*row, percent(row[2], row[1] - row[3])] for row in rows]


def print_tables(figures):
    reasons = read_reasons()
    print(f"\n{'':<24} {'mutants':>8} {'caught':>8} {'equivalent':>11} {'of others':>10}")
    for name, mutants, caught, same, share in folder_rows(figures, reasons):
        print(f"{name:<24} {mutants:>8} {caught:>8} {same:>11} {share:>8} %")
    for folder, of_folder in figures.items():
        print(f"{folder}: caught by " + ", ".join(f"{name} {count}" for name, count in of_folder["caught_by"].items()))
        for entry in of_folder["survivors"]:
            print(f"  {entry['mutant']}\n    {reasons.get(entry['mutant'], NO_REASON)}")
        if misses(folder, of_folder, reasons):
            print(f"{folder} misses its goal of {GOAL} %")


def code(text, most=110):
    text = re.sub(r"\s+", " ", text).strip()
    text = text if len(text) <= most else text[: most - 1] + "…"
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def read_figures():
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def listed(names):
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def code_list(names):
    return listed(f"`{name}`" for name in names)


def folder_table(figures, reasons):
    lines = ["| folder of `src/` | sources | of so many | mutants | caught | equivalent | caught of the others | goal |",
             "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for name, mutants, caught, same, share in folder_rows(figures, reasons):
        of = list(figures.values()) if name == "all" else [figures[name]]
        goal = "" if name == "all" else "none" if name not in DECIDE else f"{'missed' if misses(name, figures[name], reasons) else 'met'}"
        lines.append(f"| {name} | {sum(f['sources'] for f in of)} | {sum(f['found'] for f in of)} | {mutants} | {caught}"
                     f" | {same} | {share} % | {goal} |")
    return "\n".join(lines)


def kind_table(figures):
    whole = {}
    for of_folder in figures.values():
        for kind, (mutants, caught) in of_folder["kinds"].items():
            before = whole.get(kind, (0, 0))
            whole[kind] = (before[0] + mutants, before[1] + caught)
    lines = ["| kind of break | mutants | caught | |", "|---|--:|--:|--:|"]
    lines += [f"| {kind} | {mutants} | {caught} | {percent(caught, mutants)} % |" for kind, (mutants, caught) in sorted(whole.items())]
    return "\n".join(lines)


def beside_text(figures, reasons):
    """Which folders were measured with another seed as well, and what was found."""
    seeds = {}
    for folder in all_folders():
        if beside := figures.get(folder, {}).get("beside"):
            judged = beside["mutants"] - equivalent(beside, reasons)
            seeds.setdefault(beside["seed"], []).append(f"{percent(beside['caught'], judged)} % of `{folder}` ({beside['caught']} of {judged})")
    return "".join(f" With seed {seed}, for whose mutants no test was written, it is {listed(of)}." for seed, of in sorted(seeds.items()))


def outer_of_text():
    """Which folders that have a goal meet some of those tests as well."""
    meeting = {}
    for folder, met in OUTER_OF.items():
        if met:
            meeting.setdefault(met, []).append(folder)
    return "".join(f", and mutants of {code_list(of)} meet {code_list(f'tests/{name}' for name in met)}" for met, of in meeting.items())


def page(figures, reasons, inner, outer, longest):
    """The text of docs/mutation.md."""
    rows = folder_rows(figures, reasons)
    _, tried, caught, *_ = rows[-1]
    missed = [folder for folder in figures if misses(folder, figures[folder], reasons)]
    drawn_before = [folder for folder in figures if figures[folder].get("draw") != DRAW]
    unmeasured = [folder for folder in all_folders() if folder not in figures]
    seeds = {}
    for folder in all_folders():
        if folder in figures:
            seeds.setdefault(figures[folder]["seed"], []).append(folder)
    catchers = Counter()
    for of_folder in figures.values():
        catchers.update(of_folder["caught_by"])
    dropped, hung, believed = (sum(of_folder[key] for of_folder in figures.values()) for key in ("dropped", "hung", "believed"))
    survivors = [f"{entry['text']}\n  {reasons.get(entry['mutant']) or NO_REASON}"
                 for folder in all_folders() if folder in figures for entry in figures[folder]["survivors"]]
    return TEXT.format(
        tried=tried, caught=caught, share=percent(caught, tried), goal=GOAL,
        folder_count=f"{len(figures)} folder{'' if len(figures) == 1 else 's'}",
        folders=folder_table(figures, reasons), kinds=kind_table(figures),
        beside=beside_text(figures, reasons),
        missed=f", which {code_list(missed)} {'misses' if len(missed) == 1 else 'miss'}" if missed else "",
        unmeasured=f"Not measured yet: {code_list(unmeasured)}." if unmeasured else "Every folder was measured.",
        seeds="Seed " + "; seed ".join(f"{seed} chose those of {'all folders' if len(seeds) == 1 else code_list(of)}"
                                       for seed, of in sorted(seeds.items())) + "."
        + (f" Mutants of {code_list(drawn_before)} were drawn in an earlier way: that seed draws others there now." if drawn_before else ""),
        believed=f" {believed} of the survivors did not meet every test (--believe, or the time was over)." if believed else "",
        dropped=f" Of all that were drawn {dropped} did not compile, and the next took their place." if dropped else "",
        inner=code_list(f"tests/{name}" for name in inner), outer_of=outer_of_text(), outer=code_list(f"tests/{name}" for name in outer), longest=longest,
        catchers=", ".join(f"{name} {count}" for name, count in catchers.most_common()),
        hung=f"{hung} of them hung." if hung else "None hung.",
        survivors="\n".join(survivors) or "None.")


def write(root, measured, beside, *tests):
    """Puts what was measured now in the place of what figures.json and docs/mutation.md said of the same folders; what was measured
    `beside`, with another seed, is added to that in a sentence."""
    figures = read_figures()
    for folder, found in measured.items():
        if not beside:
            figures[folder] = found
        elif folder in figures:
            figures[folder]["beside"] = {key: found[key] for key in ("seed", "mutants", "caught", "survivors")}
    figures = {folder: figures[folder] for folder in all_folders() if folder in figures}
    FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (root / "docs" / "mutation.md").write_text(page(figures, read_reasons(), *tests), encoding="utf-8")
