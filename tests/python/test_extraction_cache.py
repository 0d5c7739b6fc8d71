# SPDX-License-Identifier: Apache-2.0
"""What `lockstep extract` takes of an earlier extraction, and what it does not: lockstep.extracting.cache, inputs, watching and answers."""

import json
import os
import subprocess
import sys
import time

import pytest

from test_extract import TRAINED, Extraction, formulas, judged, script
from torch_ranks import HERE, PROGRAM, clean_environment, forked, nightly, torch_python

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep.extracting import cache as caching
from lockstep.extracting.answers import Asked, Known, fingerprint
from lockstep.extracting.cache import TICK, Cache
from lockstep.extracting.watching import detail_of, is_of_the_caller

needs_torch = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")
SETTINGS = {"world": 2, "script": "train.py", "arguments": []}
NOTHING = Known({}, {}, {}, {})
SAID = "lockstep extract: 2 of 2 ranks were taken from the cache\n"


def watched(**own):
    return dict({"read": [], "absent": [], "written": [], "listed": [], "scanned": [], "there": {}, "details": {}, "accessible": {}, "links": {}, "variables": {},
                 "why": None, "folders": [], "mapped": []}, **own)


def opened(folder, **settings):
    """Of an extraction that begins now."""
    cache = Cache(folder, dict(SETTINGS, **settings))
    cache.inputs.begin += 1  # what this test has just written was there before
    return cache


def test_an_entry_is_found_with_its_key_alone(tmp_path):
    opened(tmp_path).keep(0, 1, {"rank": 0}, {}, watched())
    assert opened(tmp_path).find(0, 1, NOTHING) == {"rank": 0}
    for rank, draw, settings in ((1, 1, {}), (0, 0, {}), (0, 1, {"world": 3}), (0, 1, {"arguments": ["x"]}), (0, 1, {"script": "other.py"}), (0, 1, {"steps": 2})):
        assert opened(tmp_path, **settings).find(rank, draw, NOTHING) is None


def test_it_is_not_taken_where_what_the_rank_has_looked_at_is_something_else(tmp_path, monkeypatch):
    place = tmp_path / "place"
    (place / "listed").mkdir(parents=True)
    (place / "script.py").write_text("one")
    (place / "scanned" / "is").mkdir(parents=True)
    (place / "sized").write_text("12")
    os.utime(place / "sized", ns=(5, 5))
    (place / "link").symlink_to("one")
    there = {str(place / "no.txt"): False, str(place / "script.py"): 0o100000}
    monkeypatch.delenv("TERM", raising=False)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    inputs = watched(read=[str(place / "script.py")], mapped=[str(place / "script.py")], listed=[str(place / "listed")], folders=[str(place)], there=there,
                     variables={"TERM": None, "": sorted(name for name in os.environ if is_of_the_caller(name))}, written=[str(place / "own.txt")], scanned=[str(place / "scanned")], links={str(place / "link"): "one"},
                     details={str(place / "sized"): detail_of(os.stat(place / "sized"))}, accessible={"%d %s" % (os.X_OK, place / "sized"): False})
    (place / "own.txt").write_text("left")
    opened(tmp_path / "cache").keep(0, 0, {}, {}, inputs)

    def found():
        return opened(tmp_path / "cache").find(0, 0, NOTHING) is not None
    assert found()
    (place / "script.py").write_text("two")
    assert not found()
    (place / "script.py").write_text("one")
    os.utime(place / "script.py", ns=(1, 1))  # which a mapped file is told by
    assert not found()
    for make, undo in ((lambda: (place / "listed" / "new").write_text(""), lambda: (place / "listed" / "new").unlink()),
                       (lambda: (place / "numpy.py").write_text(""), lambda: (place / "numpy.py").unlink()),
                       (lambda: (place / "no.txt").write_text(""), lambda: (place / "no.txt").unlink()),
                       (lambda: (place / "own.txt").write_text("other"), lambda: (place / "own.txt").write_text("left")),
                       (lambda: (place / "scanned" / "is").rmdir() or (place / "scanned" / "is").write_text(""),
                        lambda: (place / "scanned" / "is").unlink() or (place / "scanned" / "is").mkdir()),
                       (lambda: os.utime(place / "sized", ns=(6, 6)), lambda: os.utime(place / "sized", ns=(5, 5))),
                       (lambda: (place / "link").unlink() or (place / "link").symlink_to("two"), lambda: (place / "link").unlink() or (place / "link").symlink_to("one")),
                       (lambda: monkeypatch.setenv("TERM", "x"), lambda: monkeypatch.delenv("TERM")),
                       (lambda: monkeypatch.setenv("CI_NEW", "x"), lambda: monkeypatch.delenv("CI_NEW"))):
        opened(tmp_path / "again").keep(0, 0, {}, {}, inputs)
        assert opened(tmp_path / "again").find(0, 0, NOTHING) is not None
        make()
        assert opened(tmp_path / "again").find(0, 0, NOTHING) is None
        undo()
        assert opened(tmp_path / "again").find(0, 0, NOTHING) is not None


def test_another_machine_has_entries_of_its_own(tmp_path, monkeypatch):
    opened(tmp_path).keep(0, 0, {}, {}, watched())
    assert opened(tmp_path).find(0, 0, NOTHING) is not None
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(1000))  # as a script that asks sees it
    assert opened(tmp_path).find(0, 0, NOTHING) is None
    monkeypatch.undo()
    one = caching.machine()
    assert one == caching.machine() and one[-1]["model name" if "model name" in one[-1] else "CPU part"]
    monkeypatch.setattr(caching, "machine", lambda: [*one[:-1], {"flags": ["sse"]}])
    assert opened(tmp_path).find(0, 0, NOTHING) is None


def test_what_was_there_when_it_was_read_and_is_no_more_is_not_taken_for_what_never_was(tmp_path):
    gone = str(tmp_path / "gone.txt")
    cache = opened(tmp_path / "cache")
    cache.keep(0, 0, {}, {}, watched(read=[gone]))
    assert cache.why == {0: "%s was removed meanwhile" % gone} and cache.find(0, 0, NOTHING) is None
    cache.keep(1, 0, {}, {}, watched(read=[gone], absent=[gone], there={gone: False}))
    assert cache.find(1, 0, NOTHING) is not None
    (tmp_path / "gone.txt").write_text("")
    assert opened(tmp_path / "cache").find(1, 0, NOTHING) is None


def test_variables_count_but_for_those_of_the_caller(tmp_path, monkeypatch):
    opened(tmp_path).keep(0, 0, {}, {}, watched())
    monkeypatch.setenv("SSH_TTY", "other")
    monkeypatch.setenv("RANK", "7")  # each rank gets its own
    assert opened(tmp_path).find(0, 0, NOTHING) is not None
    monkeypatch.setenv("OF_THE_SCRIPT", "1")
    assert opened(tmp_path).find(0, 0, NOTHING) is None


def test_it_is_not_taken_where_others_have_left_something_else_that_it_has_looked_for(tmp_path):
    known = Known({"key": "00"}, {"call#1"}, {"call#2": [[3]]}, {"call#3": ["", []]})
    asked = known.asked()
    assert asked["stored"].get("key") == "00" and asked["stored"].get("no") is None and asked["told"].get("call#2") == [[3]]
    assert asked["carrying"].get("call#1") and asked["carrying"].get("call#9") is None
    opened(tmp_path).keep(0, 0, {}, {kind: own.found for kind, own in asked.items()}, watched())
    assert opened(tmp_path).find(0, 0, known) is not None
    same = Known({"key": "00", "more": "00"}, {"call#1", "call#7"}, {"call#2": [[3]], "call#8": []}, {})
    assert opened(tmp_path).find(0, 0, same) is not None
    for other in (Known({"key": "01"}, {"call#1"}, {"call#2": [[3]]}, {}), Known({"key": "00", "no": ""}, {"call#1"}, {"call#2": [[3]]}, {}),
                  Known({"key": "00"}, set(), {"call#2": [[3]]}, {}), Known({"key": "00"}, {"call#1", "call#9"}, {"call#2": [[3]]}, {}),
                  Known({"key": "00"}, {"call#1"}, {"call#2": [[4]]}, {})):
        assert opened(tmp_path).find(0, 0, other) is None
    counted = Asked({"key": "00"})
    assert len(counted) == 1 and not Known({}, {}, {}, {}).says({"stored": counted.found}) and fingerprint(None) is None


def test_what_was_changed_meanwhile_or_cannot_be_looked_at_again_is_not_kept(tmp_path):
    (tmp_path / "script.py").write_text("one")
    cache = Cache(tmp_path / "cache", SETTINGS)
    cache.inputs.begin -= 60
    cache.keep(0, 0, {}, {}, watched(read=[str(tmp_path / "script.py")]))
    cache.keep(1, 0, {}, {}, watched(why="it connects to 10.0.0.1"))
    assert cache.why == {0: "%s was changed meanwhile" % (tmp_path / "script.py"), 1: "it connects to 10.0.0.1"}
    assert cache.find(0, 0, NOTHING) is None and cache.find(1, 0, NOTHING) is None


def test_a_broken_entry_or_another_file_is_none(tmp_path):
    for broken in (lambda content: content[:-1], lambda content: b"", lambda content: content[:70] + b"x" + content[71:], lambda content: b"\x00" * 200):
        opened(tmp_path).keep(0, 0, {"rank": 0}, {}, watched())
        assert opened(tmp_path).find(0, 0, NOTHING) == {"rank": 0}
        for path in tmp_path.iterdir():
            path.write_bytes(broken(path.read_bytes()))
        assert opened(tmp_path).find(0, 0, NOTHING) is None
        for path in tmp_path.iterdir():
            path.unlink()
    cache = opened(tmp_path)
    for content in ([], {"format": 2}, {"inputs": 3, "asked": [], "found": None}):
        cache.write("rank-%s-0" % cache.key(0, 0), content if isinstance(content, dict) else {"asked": content})
        assert cache.find(0, 0, NOTHING) is None


def test_what_was_used_longest_ago_goes_first(tmp_path, monkeypatch):
    cache = opened(tmp_path)
    for rank in range(4):
        cache.keep(rank, 0, {"content": os.urandom(3000).hex()}, {}, watched())
        name, = (path for path in tmp_path.iterdir() if path.name.startswith("rank-" + cache.key(rank, 0)))
        os.utime(name, (1000 + rank, 1000 + rank))
    assert cache.find(0, 0, NOTHING)  # and is used now
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    monkeypatch.setattr(caching, "MOST_BYTES", size - 1)
    cache.close()
    assert [cache.find(rank, 0, NOTHING) is not None for rank in range(4)] == [True, False, True, True]


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = opened(tmp_path / "file" / "cache")
    cache.keep(0, 0, {}, {}, watched())
    cache.close()
    assert cache.find(0, 0, NOTHING) is None and "Not a directory" in cache.why[0]


WATCHED = """
import json, os, socket, subprocess, sys, threading
sys.setswitchinterval(1e-6)
sys.path.insert(0, sys.argv[1])
from lockstep.extracting.watching import Watch
watch = Watch()
watch.busy = True
watch.install()
watch.begin("watched")
open("read.txt").read()
open("own.txt", "w").write("x")
open("own.txt").read()
if os.fork() == 0:
    open("forked.txt").read()
    os._exit(0)
os.wait()
os.listdir("listed")
os.path.exists("no.txt")
os.stat("sized.txt")
os.access("sized.txt", os.X_OK)
[entry.is_dir() for entry in os.scandir("listed")]
os.makedirs("listed", exist_ok=True)
open("listed/read.txt").read()
threads = [threading.Thread(target=lambda own=own: [open("%d-%d" % (own, n), "rb").close() for n in range(50)]) for own in range(8)]
for one in threads: one.start()
for one in threads: one.join()
os.environ.get("SSH_TTY")
os.environ.get("PATH")
subprocess.run(["uname"], stdout=subprocess.DEVNULL)
print(json.dumps([watch.end(), sorted(os.supports_follow_symlinks, key=str) is not None and os.stat in os.supports_follow_symlinks]))
"""


def test_a_watch_sees_what_a_script_looks_at(tmp_path):
    for name in ("read.txt", "forked.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "read.txt").write_text("")
    (tmp_path / "sized.txt").write_text("12")
    of_threads = {"%d-%d" % (own, number) for own in range(8) for number in range(50)}
    for name in of_threads:
        (tmp_path / name).write_text("")
    done = subprocess.run([sys.executable, "-c", WATCHED, str(HERE.parents[1] / "python")], cwd=tmp_path, capture_output=True, text=True, check=True,
                          env=dict(clean_environment(), SSH_TTY="mine"))
    found, is_supported = json.loads(done.stdout)
    assert {str(tmp_path / name) for name in ("read.txt", "forked.txt")} <= set(found["read"]) and str(tmp_path / "own.txt") not in found["read"]
    assert str(tmp_path / "own.txt") in found["written"] and found["listed"] == [str(tmp_path / "listed")] and is_supported
    assert {str(tmp_path / name) for name in of_threads} <= set(found["read"]) and str(tmp_path / "listed" / "read.txt") in found["read"]
    assert found["details"][str(tmp_path / "sized.txt")] == detail_of(os.stat(tmp_path / "sized.txt"))
    assert found["accessible"] == {"%d %s" % (os.X_OK, tmp_path / "sized.txt"): False} and found["scanned"] == [str(tmp_path / "listed")]
    assert found["there"][str(tmp_path / "no.txt")] is False and found["variables"] == {"SSH_TTY": "mine"} and found["why"] is None
    assert json.__file__ in found["read"] and any("libc" in path for path in found["mapped"]) and str(tmp_path) in found["folders"]
    text = WATCHED.replace('os.environ.get("SSH_TTY")', 'os.environ["TERM"] = "own"; dict(os.environ)')
    done = subprocess.run([sys.executable, "-c", text, str(HERE.parents[1] / "python")], cwd=tmp_path, capture_output=True, text=True, check=True,
                          env={"PATH": os.environ["PATH"], "SSH_TTY": "mine"})
    assert json.loads(done.stdout)[0]["variables"] == {"SSH_TTY": "mine", "": ["SSH_TTY"], "TERM": None}
    for line, why in (("subprocess.run(['ls'], stdout=subprocess.DEVNULL)", "it starts a program (ls)"),
                      ("os.system('uname; ls')", "it starts a program"),
                      ("open('own.c', 'w').close(); subprocess.run(['gcc', '-c', 'own.c'], stderr=subprocess.DEVNULL)", "it starts a program (gcc -c own.c)"),
                      ("subprocess.run(['gcc', '-Wl,-t', '-o', '/dev/null', '-lm'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)", None),
                      ("os.remove('read.txt'); open('read.txt', 'w').close()", "it removes %s, which was there before" % (tmp_path / "read.txt")),
                      ("os.remove('own.txt')", None), ("open('read.txt', 'a').close()", "it writes to %s, which it reads" % (tmp_path / "read.txt")),
                      ("try: open('late.txt')\nexcept OSError: pass\nif not os.path.exists('late.txt'): os.system('uname > late.txt')\nopen('late.txt')",
                       "it starts a program"),
                      ("import sqlite3; sqlite3.connect('own.db')", "it opens the database own.db"),
                      ("try: socket.create_connection(('127.0.0.1', 1))\nexcept OSError: pass", "it connects to 127.0.0.1")):
        text = WATCHED.replace("os.wait()", line)
        done = subprocess.run([sys.executable, "-c", text, str(HERE.parents[1] / "python")], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout.splitlines()[-1])[0]["why"] == why, line


def extracted(tmp_path, *arguments, **settings):
    """What it said, and what it has written."""
    time.sleep(2 * TICK)  # what was written is older than the extraction, which begins at once here
    done = Extraction(tmp_path / "step.json", tmp_path / "script.py", *arguments, ranks=2, loss="local_mean", quiet=False, cache=str(tmp_path / "cache"), **settings)
    assert done.status == 0, done.said
    return done.said, (tmp_path / "step.json").read_text()


OWN = "import helper\nn = torch.tensor(helper.NUMBER + int(open('%s/rank%d.txt' % (helper.FOLDER, dist.get_rank())).read()))\ndist.all_reduce(n)\n" \
      "for p in model.parameters():\n  dist.all_reduce(p.grad)\n  p.grad /= n\noptimizer.step()\n"


@needs_torch
def test_a_second_extraction_plays_what_has_changed_alone(tmp_path):
    script(tmp_path, TRAINED + OWN)
    (tmp_path / "helper.py").write_text("NUMBER = 0\nFOLDER = %r\n" % str(tmp_path))
    for rank in range(2):
        (tmp_path / ("rank%d.txt" % rank)).write_text("1")
    said, first = extracted(tmp_path)
    assert said == ""
    assert extracted(tmp_path) == (SAID, first)
    for file, was, new, divisor in (("script.py", "p.grad /= n", "p.grad /= n+1", 3), ("helper.py", "= 0", "= 1", 4), ("rank1.txt", "1", "2", 3)):
        path = tmp_path / file
        text = path.read_text()
        path.write_text(text.replace(was, new))
        said, _ = extracted(tmp_path)
        assert said == ""
        assert {formula for content in formulas(judged("check", tmp_path / "step.json")).values() for formula, _ in content} == {"(g0+g1)/%d" % divisor}, file
        path.write_text(text)
        assert extracted(tmp_path) == (SAID, first)
    assert extracted(tmp_path, "--an-argument")[0] == ""


@needs_torch
def test_broken_entries_and_another_extraction_at_once_change_nothing(tmp_path):
    script(tmp_path, TRAINED + "for p in model.parameters(): reduced(p.grad)\noptimizer.step()\n")
    settings = {"world": 2, "local_world": 8, "script": str(tmp_path / "script.py"), "module": False, "arguments": [], "steps": 1, "limit": 120, "every": False,
                "quiet": True, "loss": "local_mean", "cache": str(tmp_path / "cache")}
    statuses, said = forked("extracting_worker.py").run(tmp_path, 2, ["extract", json.dumps(settings), str(tmp_path / "step.json")], 480)
    assert statuses == (0, 0), said
    first = (tmp_path / "step.json").read_text()
    assert extracted(tmp_path) == (SAID, first)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert extracted(tmp_path) == ("", first)
    assert extracted(tmp_path) == (SAID, first)


@needs_torch
def test_what_cannot_be_keyed_is_said_and_played_again(tmp_path):
    script(tmp_path, TRAINED + "import subprocess\nsubprocess.run(['true'])\nfor p in model.parameters(): reduced(p.grad)\noptimizer.step()\n")
    for _ in range(2):
        assert extracted(tmp_path)[0] == "lockstep extract: rank 0 and 1 more are not kept in the cache: it starts a program (true)\n"


@nightly
@needs_torch
def test_the_command_has_a_cache_of_its_own_or_none(tmp_path):
    script(tmp_path, TRAINED + "for p in model.parameters(): reduced(p.grad)\noptimizer.step()\n")
    environment = dict(clean_environment(), LOCKSTEP_PYTHON=torch_python(), XDG_CACHE_HOME=str(tmp_path / "home"))

    def said(*options):
        done = subprocess.run([PROGRAM, "extract", "--ranks", "2", "-o", str(tmp_path / "step.json"), *options, "--", str(tmp_path / "script.py")],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=True)
        return done.stderr
    assert said("--no-cache") == "" and not (tmp_path / "home").exists()
    assert said() == "" and list((tmp_path / "home" / "lockstep" / "extract").iterdir())
    assert said() == SAID and said("--no-cache") == "" and said("-q") == ""
    assert said("--cache", str(tmp_path / "other")) == "" and said("--cache", str(tmp_path / "other")) == SAID


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
