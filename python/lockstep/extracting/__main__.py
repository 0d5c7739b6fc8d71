# SPDX-License-Identifier: Apache-2.0
"""`python -m lockstep.extracting SETTINGS DESCRIPTOR`, as `lockstep extract` runs it: SETTINGS is a JSON object with the keys of playing.play, and
every, jobs, limit, quiet and cache. The extraction goes to the descriptor. Exit status 0, or 2 with a sentence on standard error."""

import json
import os
import signal
import sys

from lockstep.extracting.ranks import Failed, extract


FEW = 64  # so many programs have all their events themselves


def shared(programs):
    """By identity: the number of each event that several programs have; and these events."""
    seen, numbers, events = set(), {}, []
    for event in (event for program in programs for event in program["events"]):
        if id(event) in seen and id(event) not in numbers:
            numbers[id(event)] = len(events)
            events.append(event)
        seen.add(id(event))
    return numbers, events


def written(extraction):
    """Its text, in parts: an event in each line. Where there are many programs, those that several have stand before all, and programs have their numbers:
    16,384 ranks would take hundreds of megabytes."""
    programs = extraction.pop("programs")
    numbers, events = shared(programs) if len(programs) > FEW else ({}, [])
    yield "{\n  " + "".join('"%s": %s,\n  ' % (key, json.dumps(value)) for key, value in extraction.items())
    if events:
        yield '"events": [\n      %s\n  ],\n  ' % ",\n      ".join(map(json.dumps, events))
    yield '"programs": [\n'
    for place, program in enumerate(programs):
        yield '%s    {"ranks": %s, "played": %s, "events": [\n      ' % (",\n" if place else "", json.dumps(program["ranks"]), json.dumps(program["played"]))
        before = ""
        for event in program["events"]:
            number = numbers.get(id(event))
            yield before + (json.dumps(event) if number is None else str(number))
            before = ", " if number is not None else ",\n      "
        yield "\n    ]}"
    yield "\n  ]\n}\n"


def main(settings, descriptor):
    settings = json.loads(settings)
    every, jobs, limit, quiet = settings.pop("every"), settings.pop("jobs", None), settings.pop("limit"), settings.pop("quiet")
    cache, said = settings.pop("cache", None), []
    shows = not quiet and sys.stderr.isatty()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # the ranks are ended on the way out

    def report(text):
        if shows:
            sys.stderr.write("\r\033[K" + text)
            sys.stderr.flush()

    try:
        extraction, unsaid = extract(settings, every, jobs, limit, lambda text: report("lockstep: " + text), int(descriptor), cache, said.append)
    except Failed as failure:
        report("")
        print("lockstep extract: %s" % failure, file=sys.stderr)
        return 2
    report("")
    for sentence in unsaid:
        print("lockstep extract: %s" % sentence, file=sys.stderr)
    for line in said if not quiet else ():
        print("lockstep extract: " + line, file=sys.stderr)
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as file:
        file.writelines(written(extraction))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
