# SPDX-License-Identifier: Apache-2.0
"""`python -m lockstep.extracting SETTINGS`, as `lockstep extract` runs it: SETTINGS is a JSON object with the keys of playing.play, and output,
every, jobs, limit and quiet. Exit status 0, or 2 with a sentence on standard error."""

import json
import os
import sys
import tempfile

from lockstep.extracting.ranks import Failed, extract


def write(path, extraction):
    """Beside, and renamed; "-" is standard output."""
    lines = []
    for program in extraction.pop("programs"):
        events = ",\n      ".join(json.dumps(event, separators=(", ", ": ")) for event in program.pop("events"))
        lines.append('    {"ranks": %s, "played": %s, "events": [\n      %s\n    ]}' % (json.dumps(program["ranks"]), json.dumps(program["played"]), events))
    head = ",\n  ".join('"%s": %s' % (key, json.dumps(value)) for key, value in extraction.items())
    text = "{\n  %s,\n  \"programs\": [\n%s\n  ]\n}\n" % (head, ",\n".join(lines))
    if path == "-":
        sys.stdout.write(text)
        return
    folder = os.path.dirname(os.path.abspath(path))
    descriptor, part = tempfile.mkstemp(dir=folder, prefix="." + os.path.basename(path))
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(part, 0o666 & ~mask())
    os.replace(part, path)


def mask():
    own = os.umask(0)
    os.umask(own)
    return own


def main():
    settings = json.loads(sys.argv[1])
    output, every, jobs = settings.pop("output"), settings.pop("every", False), settings.pop("jobs", None)
    limit, quiet = settings.pop("limit", 300), settings.pop("quiet", False)

    def report(text):
        if not quiet and sys.stderr.isatty():
            sys.stderr.write("\r\033[Klockstep: " + text)
            sys.stderr.flush()

    try:
        extraction = extract(settings, every, jobs, limit, report)
    except Failed as failure:
        if not quiet and sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        print("lockstep extract: %s" % failure, file=sys.stderr)
        return 2
    if not quiet and sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    write(output, extraction)
    return 0


if __name__ == "__main__":
    sys.exit(main())
