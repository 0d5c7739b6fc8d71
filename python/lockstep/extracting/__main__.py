# SPDX-License-Identifier: Apache-2.0
"""`python -m lockstep.extracting SETTINGS DESCRIPTOR`, as `lockstep extract` runs it: SETTINGS is a JSON object with the keys of playing.play, and
every, jobs, limit, quiet and cache. The extraction goes to the descriptor. Exit status 0, or 2 with a sentence on standard error."""

import json
import os
import signal
import sys

from lockstep.extracting.ranks import Failed, extract


def written(extraction):
    """Its text, in parts: an event in each line."""
    programs, texts = extraction.pop("programs"), {}  # texts: by the identity of an event, of which many programs have the same

    def text(event):
        if id(event) not in texts:
            texts[id(event)] = json.dumps(event)
        return texts[id(event)]
    head = ",\n  ".join('"%s": %s' % (key, json.dumps(value)) for key, value in extraction.items())
    yield "{\n  %s,\n  \"programs\": [\n" % head
    for number, program in enumerate(programs):
        events = ",\n      ".join(map(text, program["events"]))
        yield '%s    {"ranks": %s, "played": %s, "events": [\n      %s\n    ]}' % (
            ",\n" if number else "", json.dumps(program["ranks"]), json.dumps(program["played"]), events)
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
