# SPDX-License-Identifier: Apache-2.0
"""Lies to put into a proof: each changes what a report says so that it is no longer true, or says that it cannot."""

import random


class NotHere(Exception):
    """The report has nothing of which this could be said wrongly."""


def choose(chance, some):
    some = list(some)
    if not some:
        raise NotHere
    return chance.choice(some)


def cases(report):
    return [case for case in report["proof"] if case["classes"]]


def entries(report):
    return [entry for case in cases(report) for entry in case["classes"]]


def drop_a_case(report, chance):
    case = choose(chance, cases(report))
    report["proof"].remove(case)
    report["cases"] -= 1


def widen_a_case(report, chance):
    guard = choose(chance, [guard for case in cases(report) for guard in case["guards"]
                            if "exactly" in guard or guard["least"] > 1])
    if "most" in guard and chance.random() < 0.5:
        guard["most"] += 1
    else:
        guard["least"] = guard.pop("exactly") if "exactly" in guard else guard["least"] - 1


def narrow_a_case(report, chance):
    guard = choose(chance, [guard for case in cases(report) for guard in case["guards"] if "least" in guard])
    if "most" in guard and chance.random() < 0.5:
        guard["most"] -= 1
    else:
        guard["least"] += 1


def close_an_axis(report, chance):
    """All that is said of other sizes of an axis than one is left out, and that it is."""
    if report["verdict"] != "right" or len(report["open"]) < 2:
        raise NotHere
    axis = choose(chance, [size for size in report["open"] if size != "micro_batches"])
    size = choose(chance, {guard["exactly"] for case in cases(report) for guard in case["guards"] if guard["size"] == axis and "exactly" in guard})
    report["open"].remove(axis)
    guard = {"size": axis, "exactly": size}
    report["proof"] = [case for case in report["proof"] if guard in case["guards"]]
    for case in report["proof"]:
        case["guards"].remove(guard)
    report["cases"] = len(report["proof"])


def drop_a_class(report, chance):
    case = choose(chance, cases(report))
    case["classes"].remove(chance.choice(case["classes"]))


def drop_a_parameter(report, chance):
    entry = choose(chance, [entry for entry in entries(report) if entry["layout"] == 0 and len(entry["parameters"]) > 1])
    entry["parameters"].remove(chance.choice(entry["parameters"]))


def move_a_parameter(report, chance):
    """Into a class that goes through the schedule in another way."""
    one, other = choose(chance, [(one, other) for case in cases(report) for one in case["classes"] for other in case["classes"]
                                 if one is not other and one["layout"] == other["layout"] and len(one["parameters"]) > 1])
    other["parameters"].append(one["parameters"].pop())


def steps_of(report):
    return [(entry, number) for entry in entries(report) for number in range(len(entry["steps"]))]


def drop_a_step(report, chance):
    entry, number = choose(chance, steps_of(report))
    del entry["steps"][number]


def repeat_a_step(report, chance):
    entry, number = choose(chance, steps_of(report))
    entry["steps"].insert(number, {**entry["steps"][number], "after": {}})


def swap_two_steps(report, chance):
    entry, number = choose(chance, [(entry, number) for entry, number in steps_of(report) if number])
    steps = entry["steps"]
    steps[number - 1], steps[number] = steps[number], steps[number - 1]


def rename_a_step(report, chance):
    entry, number = choose(chance, [(entry, number) for entry, number in steps_of(report) if number])
    entry["steps"][number]["step"] = entry["steps"][number - 1]["step"] + "_"


def change_who_runs_a_step(report, chance):
    entry, number = choose(chance, steps_of(report))
    rows = entry["steps"][number]["on"]
    if rows:
        del rows[chance.randrange(len(rows))]
    else:
        rows.append({"value": "1"})


def change_a_factor(report, chance):
    step = choose(chance, [step for entry in entries(report) for step in entry["steps"] if "by" in step or step.get("adds")])
    where = step if "by" in step else choose(chance, [share for share in step["adds"] if share["on"]])
    where["by"] = f"{where['by']} + 1" if where["by"] != "-1" else "1"


def change_the_reduction(report, chance):
    step = choose(chance, [step for entry in entries(report) for step in entry["steps"] if "reduce" in step])
    step["reduce"] = "avg" if step["reduce"] == "sum" else "sum"


def change_the_group(report, chance):
    step = choose(chance, [step for entry in entries(report) for step in entry["steps"] if step.get("over")])
    step["over"].remove(chance.choice(step["over"]))


def call_two_cuts_equal(report, chance):
    step = choose(chance, [step for entry in entries(report) for step in entry["steps"]
                           if any((cut["owner"] or 0) > 1 for cut in step.get("cuts", []))])
    for cut in step["cuts"]:
        cut["owner"] = 1


def change_what_one_device_has(report, chance):
    rows = choose(chance, [rows for entry in entries(report) for end in entry["ends"] for rows in end["expected"].values() if rows])
    row = chance.choice(rows)
    if chance.random() < 0.5:
        rows.remove(row)
    else:
        row["value"] += " + 1"


def change_who_holds(report, chance):
    entry = choose(chance, entries(report))
    rows = entry["held_by"]
    del rows[chance.randrange(len(rows))]


def change_a_size(report, chance):
    axis = choose(chance, [axis for entry in entries(report) for axis in entry["axes"]])
    axis["least" if "least" in axis else "size"] += 1


def change_the_schedule(report, chance):
    """The Program that the proof says it is about is another one."""
    case = choose(chance, cases(report))
    steps = case["program"]["schedule"]["steps"]
    step = choose(chance, [step for step in steps if step["op"] not in ("each", "wait")])
    if "by" in step:
        step["by"] = f"({step['by']}) / 3"
    else:
        steps.remove(step)


def forget_that_it_is_undecided(report, chance):
    case = choose(chance, [case for case in report["proof"] if "undecided" in case])
    del case["undecided"]


LIES = [drop_a_case, widen_a_case, narrow_a_case, close_an_axis, drop_a_class, drop_a_parameter, move_a_parameter, drop_a_step,
        repeat_a_step, swap_two_steps, rename_a_step, change_who_runs_a_step, change_a_factor, change_the_reduction,
        change_the_group, call_two_cuts_equal, change_what_one_device_has, change_who_holds, change_a_size,
        change_the_schedule, forget_that_it_is_undecided]  # fmt: skip


def tell(report, number, chance=None):
    """Puts the lie of this number into a report; its name, or None where it cannot be told of it."""
    lie = LIES[number % len(LIES)]
    try:
        lie(report, chance or random.Random(number))
    except NotHere:
        return None
    return lie.__name__
