#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs check, show --resolved, prove, repair and diff on files as strangers could write them (splice.py), and prints what did not end well. tools/strangers
calls this.

Ends well: within the limits of time and memory, with a status that docs/commands.md has, and with a resolved file of the same verdict.
Exit status 1 if one does not; its file is kept.
"""

import argparse
import collections
import concurrent.futures
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from splice import Corpus

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
SECONDS, MEGABYTES = 10, 1024
# Of each command: right, wrong, mistake in the file or the call, nothing that could be said.
STATUSES = {0, 1, 2, 4}


@dataclass
class Done:
    status: int
    output: str
    errors: str
    seconds: float  # of one processor
    megabytes: float


def lockstep(*arguments):
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
        began = time.monotonic()
        process = subprocess.Popen([os.environ["LOCKSTEP_BINARY"], *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=output, stderr=errors, preexec_fn=limit)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read(1 << 20).decode(errors="replace"))
        # Some searches take several processors, and a busy machine lets each of them wait.
        return Done(process.returncode, *texts, min(used.ru_utime + used.ru_stime, time.monotonic() - began), used.ru_maxrss / 1024)


def verdict(done):
    return done.output.split("  ")[0] if done.output else ""


class One:
    """What the commands make of one file."""

    def __init__(self, file, original):
        self.findings, self.verdict = [], ""
        checked = self.run("check", "-q", file)
        self.verdict = verdict(checked) if checked.status != 2 else "not valid"
        self.run("check", file)
        resolved = file.with_name(file.stem + ".resolved.json")
        if self.run("show", "--resolved", file, "-o", resolved).status == 0:
            again = self.run("check", "-q", resolved)
            if verdict(again) != verdict(checked) or again.status != checked.status:
                self.findings.append(f"resolved: {checked.status} {verdict(checked)!r} is {again.status} {verdict(again)!r} {again.errors[:300]}")
        resolved.unlink(missing_ok=True)
        for arguments in (("prove", file), ("repair", file), ("diff", original, file)):
            self.run(*arguments)

    def run(self, *arguments):
        done = lockstep(*arguments)
        command = " ".join(part for part in arguments if isinstance(part, str))
        if done.status == 3 and re.search(r"needs about \S+ GiB of memory, and \S+ GiB are free here", done.errors):
            return done  # that is said before anything is done, of what this machine cannot do
        if done.status not in STATUSES:
            self.findings.append(f"{command}: status {done.status} after {done.seconds:.1f} s: {done.errors[-400:]}")
        elif done.seconds > SECONDS or done.megabytes > MEGABYTES:
            self.findings.append(f"{command}: {done.seconds:.1f} s, {done.megabytes:.0f} MB")
        elif done.status == 2 and not (done.errors or done.output).strip():
            self.findings.append(f"{command}: status 2 without a word")
        return done


_corpus = None


def work(folder, source, seed, keep):
    """The verdict of the file with this seed, and what did not end well."""
    global _corpus
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _corpus = _corpus or Corpus(source)
    name, text = _corpus.spliced(seed)
    original = Path(folder) / name
    file = original.with_name(f"spliced-{seed}{original.suffix}")
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    one = One(file, original)
    if one.findings:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, keep / f"{original.parent.name}-{file.name}")
    file.unlink()
    return seed, name, one.verdict, one.findings


def campaign(files, first, jobs, keep, say=print):
    """(Verdicts and how often, findings)."""
    verdicts, findings = collections.Counter(), []
    with tempfile.TemporaryDirectory(prefix="lockstep-strangers-") as folder:
        source = ROOT / "scenarios"
        shutil.copytree(source, folder, dirs_exist_ok=True)
        with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
            for seed, name, said, wrong in pool.map(work, *zip(*((folder, source, seed, keep) for seed in range(first, first + files))), chunksize=4):
                verdicts[said or "nothing"] += 1
                findings += wrong
                for one in wrong:
                    say(f"seed {seed} ({name}): {one}")
    return verdicts, findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--files", type=int, default=20000, metavar="N", help="how many files (default: 20000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first file; the others follow (default: 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="how many at a time")
    parser.add_argument("--keep", type=Path, default=Path("strangers"), metavar="DIR", help="where files are kept that do not end well")
    arguments = parser.parse_args()
    began = time.monotonic()
    verdicts, findings = campaign(arguments.files, arguments.seed, arguments.jobs, arguments.keep, lambda text: print(text, flush=True))
    print(f"{arguments.files} files, seeds {arguments.seed} to {arguments.seed + arguments.files - 1}, {time.monotonic() - began:.0f} s: "
          + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    print(f"{len(findings)} did not end well" + (f"; their files are in {arguments.keep}" if findings else ""))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
