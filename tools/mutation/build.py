# SPDX-License-Identifier: Apache-2.0
"""Compiles sources that hold mutants, and links the test programs and lockstep with them, beside a finished build."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mutants as mutation

HERE = Path(__file__).resolve().parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


class Build:
    def __init__(self, root, build, out, folders, jobs):
        self.root, self.build, self.out, self.jobs = root, build, out, jobs
        commands = json.loads((build / "compile_commands.json").read_text())
        self.commands = {}
        for entry in commands:
            path = Path(entry["file"])
            if path.is_relative_to(root):
                self.commands[str(path.relative_to(root))] = shlex.split(entry["command"])
        self.sources = sorted(name for name in self.commands
                              if name.startswith("src/") and name.split("/")[1] in folders)
        self.include_list = None

    def private_headers(self):
        """{source: headers to be mutated with it}: those that nothing outside of the sources includes."""
        users = {}
        for path in [*self.root.glob("src/**/*.*"), *self.root.glob("tests/**/*.*"), *self.root.glob("benchmarks/*.*")]:
            if path.suffix not in (".cpp", ".h"):
                continue
            name = str(path.relative_to(self.root))
            for include in INCLUDE.findall(path.read_text()):
                header = include if "/" in include else str(Path(name).parent / include)
                users.setdefault(header, set()).add(name)
        result = {}
        for header, names in users.items():
            if header.startswith("src/") and names <= set(self.sources):
                result.setdefault(min(names), []).append(header)
        return result

    def find_mutants(self):
        headers = self.private_headers()
        found = []
        with ThreadPoolExecutor(self.jobs) as pool:
            def look(source):
                arguments = [a for a in self.commands[source] if a.startswith(("-I", "-D", "-std"))]
                return mutation.find(self.root, source, headers.get(source, []), arguments)
            for some in pool.map(look, self.sources):
                found += some
        return found

    def compile(self, chosen):
        """Builds with these mutants; returns those that compile. A mutant that does not is dropped, and so is what
        shares its line."""
        copy, objects = self.out / "source", self.out / "objects"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.root / "src", copy / "src")
        objects.mkdir(parents=True, exist_ok=True)
        headers = [path for folder in (copy / "src", self.root / "include", HERE) for path in sorted(folder.rglob("*.h"))]
        dropped = set()
        waiting = list(self.sources)
        while waiting:
            lines = {}
            for file in {mutant.file for mutant in chosen}:
                kept = [m for m in chosen if m.file == file and m.id not in dropped]
                text, lines[file] = mutation.write((self.root / file).read_bytes(), kept)
                (copy / file).write_text(text)
            digest = hashlib.sha256(b"".join(path.read_bytes() for path in headers))
            with ThreadPoolExecutor(self.jobs) as pool:
                results = list(pool.map(lambda source: self.compile_one(source, digest.copy()), waiting))
            again = []
            for source, errors in zip(waiting, results):
                if errors is None:
                    continue
                at = {(str(Path(file).relative_to(copy)), int(line))
                      for file, line in re.findall(r"^([^\s:]+):(\d+):", errors, re.MULTILINE)
                      if Path(file).is_relative_to(copy)}
                guilty = {id for file, of_file in lines.items() for id, (first, last) in of_file.items()
                          if any(file == name and first <= line <= last for name, line in at)} - dropped
                if not guilty:
                    raise RuntimeError(f"{source} does not compile:\n{errors}")
                dropped |= guilty
                again.append(source)
            waiting = again
        return [mutant for mutant in chosen if mutant.id not in dropped]

    def compile_one(self, source, digest):
        """None, or what the compiler said. `digest` is of all headers; an object of an earlier run that was made of the
        same texts is kept."""
        command = [a for a in self.commands[source] if not a.startswith("-W")]
        if Path(command[0]).name == "ccache":
            command = command[1:]
        command[-1] = str(self.out / "source" / source)
        command[command.index("-o") + 1] = str(self.object_of(source))
        # -O1: compiles in half of the time. The copy's headers come before the tree's.
        command[1:1] = ["-w", "-include", str(HERE / "mutant.h"), f"-I{self.out / 'source'}"]
        command.insert(len(command) - 4, "-O1")
        digest.update(" ".join(command).encode() + (self.out / "source" / source).read_bytes())
        stamp = self.object_of(source).with_suffix(".made_of")
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return None
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
        if done.returncode == 0:
            stamp.write_text(digest.hexdigest())
            return None
        return done.stderr

    def object_of(self, source):
        return self.out / "objects" / (source.replace("/", "_") + ".o")

    def link(self, targets):
        (self.out / "bin").mkdir(exist_ok=True)
        chooser = self.out / "objects" / "mutant.o"
        subprocess.run(["c++", "-O1", f"-I{HERE.parent.parent}", "-c", str(HERE / "mutant.cpp"), "-o", str(chooser)], check=True)
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda target: self.link_one(target, chooser), targets))

    def link_one(self, target, chooser):
        output = subprocess.run(["ninja", "-C", str(self.build), "-t", "commands", target], check=True,
                                capture_output=True, text=True).stdout
        line = output.rstrip().split("\n")[-1]
        command = shlex.split(line.split("&&")[1])
        ours = {}
        for source in self.sources:
            compiled = self.commands[source]
            ours[compiled[compiled.index("-o") + 1]] = str(self.object_of(source))
        command = [ours.get(word, word) for word in command]
        # In front of a library, objects win over the same ones inside of it.
        for i, word in enumerate(command):
            if word.endswith("liblockstep.a"):
                command[i:i + 1] = [*ours.values(), word]
                break
        at = command.index("-o") + 1
        command[at] = str(self.out / "bin" / Path(command[at]).name)
        subprocess.run([*command, str(chooser)], cwd=self.build, check=True, capture_output=True, text=True)
