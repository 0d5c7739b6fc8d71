# SPDX-License-Identifier: Apache-2.0
"""Compiles folders that hold mutants, and links the test programs and lockstep with them, beside a finished build."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import mutants as mutation
from folders import folder_of, library_of

HERE = Path(__file__).resolve().parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclass
class Unit:
    """What the compiler is called for: a source, or several as one."""
    library: str
    object: str  # as ninja names it
    command: list
    text: str
    sources: list  # of src/, relative to the root


class Build:
    def __init__(self, root, build, out, folders, jobs):
        self.root, self.build, self.out, self.jobs = root, build, out, jobs
        self.folders = folders
        libraries = {library_of(folder) for folder in folders}
        self.units = []
        for entry in json.loads((build / "compile_commands.json").read_text()):
            command = shlex.split(entry["command"])
            at = re.match(r"src/CMakeFiles/lockstep_(\w+)\.dir/", command[command.index("-o") + 1])
            if at and at[1] in libraries:
                self.units.append(self.unit(at[1], command, Path(entry["file"])))
        self.sources = [name for unit in self.units for name in unit.sources if folder_of(name) in folders]

    def unit(self, library, command, file):
        text = f'#include "{file}"\n' if file.is_relative_to(self.root / "src") else file.read_text()
        sources = [str(Path(name).relative_to(self.root)) for name in INCLUDE.findall(text)
                   if Path(name).is_relative_to(self.root / "src")]
        return Unit(library, command[command.index("-o") + 1], command, text, sources)

    def private_headers(self):
        """{library: headers that nothing outside of it includes}, which are mutated with its sources."""
        users = {}
        for path in [*self.root.glob("src/**/*.*"), *self.root.glob("tests/**/*.*"), *self.root.glob("benchmarks/*.*")]:
            if path.suffix not in (".cpp", ".h"):
                continue
            name = str(path.relative_to(self.root))
            for include in INCLUDE.findall(path.read_text()):
                header = include if "/" in include else str(Path(name).parent / include)
                users.setdefault(header, set()).add(name)
        result = {}
        for unit in self.units:
            inside = f"src/{unit.library}/"
            result[unit.library] = [header for header, names in sorted(users.items()) if header.startswith(inside)
                                    and (self.root / header).exists() and all(name.startswith(inside) for name in names)]
        return result

    def find_mutants(self):
        """{folder: its mutants}."""
        headers = self.private_headers()
        folder = self.out / "units"
        folder.mkdir(parents=True, exist_ok=True)

        def look(unit):
            file = folder / f"{self.name_of(unit)}.cpp"
            file.write_text(unit.text)
            wanted = [name for name in [*unit.sources, *headers[unit.library]] if folder_of(name) in self.folders]
            arguments = [a for before, a in zip(["", *unit.command], unit.command)
                         if a.startswith(("-I", "-D", "-std", "-isystem")) or before == "-isystem"]
            return mutation.find(self.root, file, wanted, arguments) if wanted else []

        found = {folder: {} for folder in self.folders}
        with ThreadPoolExecutor(self.jobs) as pool:
            for some in pool.map(look, self.units):
                for mutant in some:  # of a header once, whoever includes it
                    found[folder_of(mutant.file)].setdefault(mutation.identity(mutant), mutant)
        return {folder: list(of_folder.values()) for folder, of_folder in found.items()}

    def compile(self, chosen):
        """Builds with these mutants; returns those that compile. A mutant that does not is dropped, and so is what
        shares its line."""
        copy, objects = self.out / "source", self.out / "objects"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.root / "src", copy / "src")
        objects.mkdir(parents=True, exist_ok=True)
        headers = [path for folder in (self.root / "src", self.root / "include", HERE) for path in sorted(folder.rglob("*.h"))]
        common = hashlib.sha256(b"".join(path.read_bytes() for path in headers))
        dropped = set()
        waiting = list(self.units)
        while waiting:
            lines = {}
            for file in {mutant.file for mutant in chosen}:
                kept = [m for m in chosen if m.file == file and m.id not in dropped]
                text, lines[file] = mutation.write((self.root / file).read_bytes(), kept)
                (copy / file).write_text(text)
            with ThreadPoolExecutor(self.jobs) as pool:
                results = list(pool.map(lambda unit: self.compile_one(unit, sorted(lines), common.copy()), waiting))
            again, known = [], set(dropped)
            for unit, errors in zip(waiting, results):
                if errors is None:
                    continue
                at = {(str(Path(file).relative_to(copy)), int(line))
                      for file, line in re.findall(r"^([^\s:]+):(\d+):", errors, re.MULTILINE)
                      if Path(file).is_relative_to(copy)}
                guilty = {id for file, of_file in lines.items() for id, (first, last) in of_file.items()
                          if any(file == name and first <= line <= last for name, line in at)} - known  # several units may include a header
                if not guilty:
                    raise RuntimeError(f"{self.name_of(unit)} does not compile:\n{errors}")
                dropped |= guilty
                again.append(unit)
            waiting = again
        return [mutant for mutant in chosen if mutant.id not in dropped]

    def compile_one(self, unit, mutated, digest):
        """None, or what the compiler said. `digest` is of all headers; an object of an earlier run that was made of the
        same texts is kept."""
        copy = self.out / "source"
        text = f'#include "{HERE / "mutant.h"}"\n' + unit.text.replace(f'"{self.root}/src/', f'"{copy}/src/')
        source = self.out / "units" / f"{self.name_of(unit)}_mutated.cpp"
        source.write_text(text)
        command = [a for a in unit.command if not a.startswith("-W")]
        if Path(command[0]).name == "ccache":
            command = command[1:]
        command[-1] = str(source)
        command[command.index("-o") + 1] = str(self.object_of(unit))
        # -O1: compiles in half of the time. The copy's headers come before the tree's.
        command[1:1] = ["-w", f"-I{copy}"]
        command.insert(command.index("-o"), "-O1")
        headers = [name for name in mutated if name.endswith(".h") and name.split("/")[1] == unit.library]
        digest.update(" ".join(command).encode() + text.encode())
        for name in [*headers, *unit.sources]:
            digest.update((copy / name).read_bytes())
        stamp = self.object_of(unit).with_suffix(".made_of")
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return None
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
        if done.returncode == 0:
            stamp.write_text(digest.hexdigest())
            return None
        return done.stderr

    def name_of(self, unit):
        return re.sub(r"\W+", "_", unit.object.removeprefix("src/CMakeFiles/"))

    def object_of(self, unit):
        return self.out / "objects" / (self.name_of(unit) + ".o")

    def link(self, targets):
        """The targets into which a mutant goes; the others are as they were."""
        binaries = self.out / "bin"
        shutil.rmtree(binaries, ignore_errors=True)
        binaries.mkdir()
        for module in [*(self.build / "bin").glob("*.so"), self.build / "bin" / "test-modules"]:
            (binaries / module.name).symlink_to(module)  # the program looks for them beside itself
        chooser = self.out / "objects" / "mutant.o"
        subprocess.run(["c++", "-O1", f"-I{HERE.parent.parent}", "-c", str(HERE / "mutant.cpp"), "-o", str(chooser)], check=True)
        with ThreadPoolExecutor(self.jobs) as pool:
            linked = list(pool.map(lambda target: self.link_one(target, chooser), targets))
        return [target for target, is_linked in zip(targets, linked) if is_linked]

    def link_one(self, target, chooser):
        output = subprocess.run(["ninja", "-C", str(self.build), "-t", "commands", target], check=True,
                                capture_output=True, text=True).stdout
        line = output.rstrip().split("\n")[-1]
        command = shlex.split(line.split("&&")[1])
        ours = {unit.object: str(self.object_of(unit)) for unit in self.units}
        if not any(word in ours or word.endswith("liblockstep.a") for word in command):
            return False
        command = [ours.get(word, word) for word in command]
        # In front of a library, objects win over the same ones inside of it; those of the program itself are in none.
        for i, word in enumerate(command):
            if word.endswith("liblockstep.a"):
                command[i:i + 1] = [*(str(self.object_of(unit)) for unit in self.units if unit.library != "cli"), word]
                break
        at = command.index("-o") + 1
        command[at] = str(self.out / "bin" / Path(command[at]).name)
        subprocess.run([*command, str(chooser)], cwd=self.build, check=True, capture_output=True, text=True)
        return True
