# SPDX-License-Identifier: Apache-2.0
"""hash: files as numpy and safetensors write them, hashed and compared. The expected hashes come from docs/hash.md's Python."""

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "hash.md").read_text(encoding="utf-8"), re.DOTALL)[1]
DEFINITION = {}
exec(PROGRAM, DEFINITION)  # the definition that the document gives
gradient_hash = DEFINITION["gradient_hash"]

DTYPES = {"F32": ("<f", 4), "F64": ("<d", 8), "BF16": ("<H", 2), "F16": ("<H", 2), "I64": ("<q", 8)}
SHOWN = {"F32": "float32", "F64": "float64", "BF16": "bfloat16", "F16": "float16"}


def safetensors(tensors, metadata=None):
    """{name: (dtype, shape, values)} as the safetensors package lays it out."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, values) in tensors.items():
        begin = len(data)
        data += b"".join(struct.pack(DTYPES[dtype][0], value) for value in values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def npy(descr, shape, data, fortran=False):
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


MODEL = {
    "a.weight": ("F64", [3], [1.0, -0.0, 2.5]),
    "b.weight": ("F32", [2, 2], [1.0, 2.0, 3.0, 4.0]),
    "c.bias": ("BF16", [2], [0x3F80, 0x4000]),
    "d.half": ("F16", [2], [0x3C00, 0xFE00]),
    "step": ("I64", [1], [7]),
}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(safetensors(MODEL, {"format": "pt"}))
    return tmp_path


def test_every_tensor_has_the_hash_that_the_document_defines(run, model):
    done = run("hash", "model.safetensors")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["tensor", "dtype", "shape", "hash"]
    for line, (name, (dtype, shape, values)) in zip(lines[1:], MODEL.items()):
        expected = gradient_hash(SHOWN[dtype], values) if dtype in SHOWN else "skipped: this dtype has no hash"
        assert re.split(r"  +", line) == [name, SHOWN.get(dtype, dtype), str(shape), expected]


def test_json_holds_the_same(run, model):
    report = json.loads(run("hash", "-f", "json", "model.safetensors").stdout)
    assert report["lockstep"] == 1
    assert report["files"][0]["format"] == "safetensors"
    tensors = report["files"][0]["tensors"]
    assert tensors[1] == {"name": "b.weight", "dtype": "float32", "shape": [2, 2], "elements": 4,
                          "hash": gradient_hash("float32", [1, 2, 3, 4])}
    assert tensors[4]["hash"] is None


def test_shards_add_up_to_the_whole(run, tmp_path):
    values = [float(i * i) for i in range(1000)]
    (tmp_path / "0.npy").write_bytes(npy("<f4", (300,), floats(values[:300])))
    (tmp_path / "1.npy").write_bytes(npy("<f4", (700,), floats(values[300:])))
    hashes = []
    for file, offset in (("0.npy", 0), ("1.npy", 300)):
        report = json.loads(run("hash", "-f", "json", file, "--offset", str(offset)).stdout)
        hashes.append(report["files"][0]["tensors"][0]["hash"])
    lanes = [sum(int(text[16 * lane:16 * lane + 16], 16) for text in hashes) % 2**64 for lane in (0, 1)]
    assert "%016x%016x" % tuple(lanes) == gradient_hash("float32", values)


def test_tensors_are_chosen_by_name(run, model):
    done = run("hash", "model.safetensors", "--tensor", "*.weight", "--tensor", "!a*")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["b.weight"]
    done = run("hash", "model.safetensors", "--tensor", "b.wieght")
    assert done.returncode == 2
    assert 'no tensor fits --tensor b.wieght; did you mean "b.weight"?' in done.stderr
    done = run("hash", "model.safetensors", "--tensor", "zzzzzzzzzzzz*")
    assert "; there are a.weight, b.weight, c.bias, d.half, step\n" in done.stderr
    assert run("hash", "model.safetensors", "--tensor", "[").returncode == 2


def test_an_offset_is_for_one_tensor_and_within_64_bits(run, model):
    done = run("hash", "model.safetensors", "--offset", "4")
    assert done.returncode == 2
    assert "--offset says where one tensor begins, and 5 are chosen" in done.stderr
    last = str(2**64 - 4)
    done = run("hash", "model.safetensors", "--tensor", "b.weight", "--offset", last)
    assert gradient_hash("float32", [1, 2, 3, 4], 2**64 - 4) in done.stdout
    done = run("hash", "model.safetensors", "--tensor", "b.weight", "--offset", str(2**64 - 3))
    assert done.returncode == 2
    assert "pass the last index" in done.stderr
    for wrong in ("-1", "many", str(2**64)):
        assert run("hash", "model.safetensors", "--tensor", "b.weight", "--offset", wrong).returncode == 2


def test_nothing_that_has_a_hash_is_exit_status_4(run, tmp_path):
    (tmp_path / "step.npy").write_bytes(npy("<i8", (1,), bytes(8)))
    (tmp_path / "empty.safetensors").write_bytes(safetensors({}))
    for file in ("step.npy", "empty.safetensors"):
        assert run("hash", file).returncode == 4
        assert run("hash", "--compare", file, file).returncode == 4


def test_equal_files_compare_equal_whatever_their_order_and_zeros(run, model):
    other = {name: MODEL[name] for name in reversed(MODEL)}
    other["a.weight"] = ("F64", [3], [1.0, 0.0, 2.5])
    (model / "other.safetensors").write_bytes(safetensors(other))
    done = run("hash", "--compare", "model.safetensors", "other.safetensors")
    assert done.returncode == 0
    assert done.stdout == "skipped  step: I64 has no hash\n4 equal, 0 different, 1 skipped\n"


def test_a_comparison_names_tensors_and_ranges(run, tmp_path):
    values = [float(i) for i in range(1000)]
    changed = values[:]
    changed[5:9] = [0.5] * 4
    changed[700] = float("nan")
    a = {"same": ("F32", [2], [1, 2]), "w": ("F32", [10, 100], values), "kind": ("F32", [2], [1, 2]), "gone": ("F32", [1], [1])}
    b = {"same": ("F32", [2], [1, 2]), "w": ("F32", [10, 100], changed), "kind": ("BF16", [2], [1, 2]), "new": ("F32", [1], [1])}
    (tmp_path / "a").write_bytes(safetensors(a))
    (tmp_path / "b").write_bytes(safetensors(b))
    done = run("hash", "--compare", "a", "b")
    assert done.returncode == 1
    assert done.stdout == (
        "differs  w (float32 [10, 100]): 5 of 1000 elements, in 2 ranges\n"
        f"    {gradient_hash('float32', values)}  in a\n"
        f"    {gradient_hash('float32', changed)}  in b\n"
        "    [5, 9)  5 and 0.5, …\n"
        "    [700, 701)  700 and nan\n"
        "differs  kind: float32 [2] and bfloat16 [2]\n"
        "alone    gone (float32 [1]): only in a\n"
        "alone    new (float32 [1]): only in b\n"
        "1 equal, 2 different, 1 only in a, 1 only in b\n"
    )
    assert run("hash", "--compare", "-q", "a", "b").stdout == "1 equal, 2 different, 1 only in a, 1 only in b\n"
    report = json.loads(run("hash", "--compare", "-f", "json", "a", "b").stdout)
    assert report["equal"] is False
    found = {tensor["name"]: tensor for tensor in report["tensors"]}
    assert [found[name]["result"] for name in ("same", "w", "kind", "gone", "new")] == [
        "equal", "differs", "differs", "only in a", "only in b"]
    assert found["w"]["first_ranges"] == [{"begin": 5, "end": 9, "a": "5", "b": "0.5"},
                                          {"begin": 700, "end": 701, "a": "700", "b": "nan"}]
    assert found["gone"]["b"] is None
    only = run("hash", "--compare", "a", "b", "--tensor", "same")
    assert (only.returncode, only.stdout) == (0, "1 equal, 0 different\n")


def test_long_lists_are_cut_unless_verbose(run, tmp_path):
    zeros, ones = [0.0] * 100, [float(i % 2) for i in range(100)]
    for name, values in (("a", zeros), ("b", ones)):
        (tmp_path / name).write_bytes(safetensors({f"w{i:02}": ("F32", [100], values) for i in range(12)}))
    done = run("hash", "--compare", "a", "b")
    assert done.stdout.count("    and 42 more (--verbose lists them)\n") == 10
    assert done.stdout.endswith("\nand 2 more (--verbose lists them)\n0 equal, 12 different\n")
    verbose = run("hash", "--compare", "-v", "a", "b").stdout
    assert "more" not in verbose
    assert verbose.count("[99, 100)  0 and 1\n") == 12


def test_an_npy_file_meets_a_tensor_of_another_name(run, tmp_path):
    (tmp_path / "dump.npy").write_bytes(npy("<f4", (2, 2), floats([1, 2, 3, 4])))
    (tmp_path / "other.npy").write_bytes(npy("<f4", (2, 2), floats([1, 2, 3, 5])))
    (tmp_path / "model.safetensors").write_bytes(safetensors(MODEL))
    assert run("hash", "--compare", "dump.npy", "model.safetensors", "--tensor", "b.weight").returncode == 0
    done = run("hash", "--compare", "dump.npy", "other.npy")
    assert done.returncode == 1
    assert "    [3, 4)  4 and 5\n" in done.stdout


def test_wrong_usage_and_wrong_files_are_exit_status_2(run, model):
    assert run("hash").returncode == 2
    assert run("hash", "--compare", "model.safetensors").returncode == 2
    assert "--compare takes two files, found 3" in run("hash", "--compare", *["model.safetensors"] * 3).stderr
    for name, content, sentence in (
        ("objects.npy", npy("|O", (1,), b"\x80\x04N."), "it holds pickled Python objects"),
        ("big.npy", npy(">f4", (1,), bytes(4)), "its numbers are big-endian"),
        ("fortran.npy", npy("<f4", (2, 2), bytes(16), True), "its elements stand in Fortran order"),
        ("short.npy", npy("<f4", (2,), bytes(4)), "the file is not complete"),
        ("scenario.json", b'{"lockstep": 1}', "it is neither safetensors"),
        ("cut.safetensors", safetensors(MODEL)[:-1], "the file is not complete"),
    ):
        (model / name).write_bytes(content)
        for arguments in (["hash", name], ["hash", "model.safetensors", name], ["hash", "--compare", name, "model.safetensors"]):
            done = run(*arguments)
            assert done.returncode == 2, arguments
            assert f"{name}: {sentence}" in done.stderr or (name in done.stderr and sentence in done.stderr)
            assert done.stdout == ""


def test_names_cannot_move_the_cursor(run, tmp_path):
    (tmp_path / "a").write_bytes(safetensors({"w\x1b[2J\n": ("F32", [1], [1])}))
    done = run("hash", "a")
    assert done.returncode == 0
    assert "w\\x1b[2J\\x0a" in done.stdout
    assert "\x1b" not in done.stdout
    assert json.loads(run("hash", "-f", "json", "a").stdout)["files"][0]["tensors"][0]["name"] == "w\x1b[2J\n"


def test_a_large_file_takes_little_memory(binary, tmp_path):
    elements = 64 << 20
    with open(tmp_path / "large.npy", "wb") as file:
        file.write(npy("<f4", (elements,), b""))
        file.truncate(file.tell() + 4 * elements)  # zeros that take no place on the disk
    # From a small process: a child counts what its parent had when it was forked off.
    measured = (
        "import os, resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    )
    command = [sys.executable, "-c", measured, binary, "hash", "-f", "json", "large.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"][0]["tensors"][0]["elements"] == elements
    assert int(done.stderr) < 200 * 1024  # in KiB; the file has 256 MiB


def test_files_of_numpy_itself(run, tmp_path):
    numpy = pytest.importorskip("numpy")
    matrix = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    for dtype, name in (("float32", "float32"), ("float64", "float64")):
        numpy.save(tmp_path / "x.npy", matrix.astype(dtype))
        assert gradient_hash(name, [float(i) for i in range(12)]) in run("hash", "x.npy").stdout
    half = matrix.astype("float16")
    numpy.save(tmp_path / "x.npy", half)
    assert gradient_hash("float16", [int(bits) for bits in half.view("uint16").ravel()]) in run("hash", "x.npy").stdout
    numpy.save(tmp_path / "x.npy", numpy.asfortranarray(matrix))
    assert "Fortran order" in run("hash", "x.npy").stderr
    numpy.save(tmp_path / "x.npy", numpy.array(2.5))
    assert gradient_hash("float64", [2.5]) in run("hash", "x.npy").stdout
    numpy.savez(tmp_path / "x.npz", matrix)
    assert "it is a zip archive" in run("hash", "x.npz").stderr


def test_the_example_in_the_document_is_true(run, tmp_path, monkeypatch):
    pytest.importorskip("numpy")
    section = (ROOT / "docs" / "hash.md").read_text(encoding="utf-8").split("## Hashing files")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], {})
    commands = re.findall(r"^\$ lockstep ([^\n]*)\n((?:(?!\$ |```)[^\n]*\n)*)", section, re.MULTILINE)
    assert len(commands) == 5
    for command, output in commands:
        assert run(*command.split()).stdout == output


def lanes_of(text):
    return [int(text[16 * lane:16 * lane + 16], 16) for lane in (0, 1)]


def hash_of_shard(run, file, *options):
    done = run("hash", "-f", "json", file, *options)
    assert done.returncode == 0, done.stderr
    return lanes_of(json.loads(done.stdout)["files"][0]["tensors"][0]["hash"])


def cut(shape, values, ranges):
    """The elements of a row-major tensor whose coordinates lie in `ranges`, one (begin, end) for each dimension."""
    kept = []
    for index, value in enumerate(values):
        coordinates, rest = [], index
        for size in reversed(shape):
            coordinates.insert(0, rest % size)
            rest //= size
        if all(begin <= c < end for c, (begin, end) in zip(coordinates, ranges)):
            kept.append(value)
    return kept


@pytest.mark.parametrize("options", [
    [["0:0/2"], ["0:1/2"]],
    [["1:0/3"], ["1:1/3"], ["1:2/3"]],
    [["-1:0/5"], ["2:1/5"], ["-1:2/5"], ["2:3/5"], ["2:4/5"]],
    [["1:0@6"], ["1:1@6"], ["1:5@6"]],  # uneven
    [[f"0:{i}/2", f"-1:{k}/5"] for i in range(2) for k in range(5)],
    [["0:0/4", "1:0@6"], ["0:1/4", "1:0@6"], ["0:1/2", "1:0@6"], ["1:3@6"]],  # of different kinds
])
def test_shards_along_any_dimension_add_up_to_the_whole(run, tmp_path, options):
    shape, values = [4, 6, 5], [float(3 * i + 1) for i in range(120)]
    uneven_ends = {0: 1, 1: 5, 5: 6, 3: 6}
    total = [0, 0]
    for number, texts in enumerate(options):
        ranges = [(0, size) for size in shape]
        for text in texts:
            dim, place = text.split(":")
            dim = int(dim) % 3
            if "/" in place:
                index, count = map(int, place.split("/"))
                size = shape[dim] // count
                ranges[dim] = (index * size, (index + 1) * size)
            else:
                begin = int(place.split("@")[0])
                end = 3 if len(texts) > 1 else uneven_ends[begin]
                ranges[dim] = (begin, end)
        part = cut(shape, values, ranges)
        (tmp_path / f"{number}.npy").write_bytes(npy("<f4", tuple(end - begin for begin, end in ranges), floats(part)))
        arguments = [argument for text in texts for argument in ("--shard", text)]
        for lane, value in enumerate(hash_of_shard(run, f"{number}.npy", *arguments)):
            total[lane] = (total[lane] + value) % 2**64
    assert total == lanes_of(gradient_hash("float32", values))


def test_a_column_shard_of_many_parts_adds_up(run, tmp_path):
    # More than the megabyte that is read in one go, whose border lies within a row.
    rows, columns = 1003, 700
    data = floats([float(i % 9973) for i in range(rows * columns)])
    (tmp_path / "whole.npy").write_bytes(npy("<f4", (rows, columns), data))
    whole, total = hash_of_shard(run, "whole.npy"), [0, 0]
    for begin, end in ((0, 300), (300, 301), (301, 700)):
        part = b"".join(data[4 * (columns * r + begin):4 * (columns * r + end)] for r in range(rows))
        (tmp_path / "part.npy").write_bytes(npy("<f4", (rows, end - begin), part))
        for lane, value in enumerate(hash_of_shard(run, "part.npy", "--shard", f"1:{begin}@{columns}")):
            total[lane] = (total[lane] + value) % 2**64
    assert total == whole


@pytest.mark.parametrize("options, sentence", [
    (["--shard", "1"], "--shard takes DIM:INDEX/COUNT"),
    (["--shard", "1:2/"], 'found "1:2/"'),
    (["--shard", "1:2-3"], 'found "1:2-3"'),
    (["--shard", "1:8/8"], "parts are counted from 0, so that the last of 8 is 7"),
    (["--shard", "1:0/1", "--shard", "0:1/1"], "--shard 0:1/1: parts are counted from 0, so that the last of 1 is 0"),
    (["--shard", "1:0/0"], "--shard 1:0/0: COUNT is 0, but a dimension has at least 1 part, as 0:0/1"),
    (["--shard", "0:3/0"], "--shard 0:3/0: COUNT is 0, but a dimension has at least 1 part"),
    (["--shard", "2:0/2"], "tensor b.weight has shape [2, 2], dimensions 0 to 1"),
    (["--shard", "-3:0/2"], "dimensions 0 to 1"),
    (["--shard", "1:0/2", "--shard", "-1:1/2"], "dimension 1 was given twice"),
    (["--shard", "1:3@4"], "2 elements from 3 on pass the end of 4"),
    (["--shard", f"1:0/{2**63}"], "the whole passes 2^64 elements"),
    (["--shard", f"0:0@{2**63}", "--shard", f"1:0@{2**62}"], "passes 2^64 elements"),
    (["--shard", "1:0/2", "--offset", "4"], "--shard and --offset both say where a tensor begins"),
])
def test_a_shard_that_cannot_be_is_refused(run, model, options, sentence):
    done = run("hash", "model.safetensors", "--tensor", "b.weight", *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stdout == ""


def test_a_comparison_takes_no_shard(run, model):
    done = run("hash", "--compare", "model.safetensors", "model.safetensors", "--shard", "0:0/2")
    assert done.returncode == 2
    assert "leave out --shard" in done.stderr


def test_a_file_that_does_not_exist_has_a_near_one(run, model):
    for wrong in ("modle.safetensors", "model"):
        done = run("hash", wrong)
        assert done.returncode == 2
        assert f'there is no file or folder {wrong}; did you mean "model.safetensors"?' in done.stderr
    done = run("hash", "--compare", "modle.safetensors", "zzzzzzzzzzzzzz.npy")
    assert done.stderr.count("there is no file or folder") == 2  # both at once


def test_every_target_of_this_machine_hashes_alike_and_another_is_refused(run, model):
    targets = json.loads(run("version", "-f", "json").stdout)["targets"]
    assert targets[-1] == "portable"
    plain = run("hash", "model.safetensors").stdout
    for target in targets:
        assert run("hash", "model.safetensors", env={"LOCKSTEP_TARGET": target}).stdout == plain
        report = json.loads(run("version", "-f", "json", env={"LOCKSTEP_TARGET": target}).stdout)
        assert report["target"] == target
        assert f"{target} (used)" in run("version", env={"LOCKSTEP_TARGET": target}).stdout
    for command in (["hash", "model.safetensors"], ["version"], ["check", "none.json"], ["test", "none.json"]):
        done = run(*command, env={"LOCKSTEP_TARGET": "protable"})
        assert done.returncode == 2
        assert 'LOCKSTEP_TARGET is "protable"' in done.stderr
        assert 'did you mean "portable"?' in done.stderr
