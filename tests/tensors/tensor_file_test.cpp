// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor_file.h"

#include <sys/stat.h>

#include <string>
#include <vector>

#include "lockstep/diagnostic.h"
#include "tests/catch.h"
#include "tests/tensors/files.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// What opening a file with these bytes is answered with, without the file's name; "" where it opens.
std::string mistake(const std::string& bytes) {
  const Folder folder;
  const std::string path = folder.write("file", bytes);
  try {
    const TensorFile file(path);
  } catch (const InputError& error) {
    REQUIRE(error.diagnostics().size() == 1);
    const std::string message = error.diagnostics().front().message;
    REQUIRE(message.rfind(path + ": ", 0) == 0);
    return message.substr(path.size() + 2);
  }
  return "";
}

std::string mistake_in(const std::string& header, std::size_t data_bytes = 8) {
  return mistake(safetensors(header, std::string(data_bytes, 'x')));
}

std::string entry(const std::string& name, const std::string& shape, int begin, int end,
                  const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string npy_mistake(const std::string& header, std::size_t data_bytes = 8, int version = 1) {
  return mistake(npy(header, std::string(data_bytes, 'x'), version));
}

}  // namespace

TEST_CASE("a safetensors file is read as its writer leaves it: padded header, metadata, wide types first") {
  const Folder folder;
  const std::vector<double> wide = {1, 2};
  const std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  const std::vector<std::uint16_t> half = {0x3C00};
  const std::string path = folder.write(
      "model.safetensors",
      safetensors(
          "{\"__metadata__\":{\"format\":\"pt\"},\"wide\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
          "\"half\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[40,42]},"
          "\"brain\":{\"dtype\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[42,44]},"
          "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[16,16]},"
          "\"flag\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[44,47]},"
          "\"new\":{\"dtype\":\"F3\",\"shape\":[9],\"data_offsets\":[47,51]},"
          "\"matrix\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}}",
          bytes_of(wide) + bytes_of(matrix) + bytes_of(half) + bytes_of(half) + "abc" + "defg"));
  const TensorFile file(path);
  CHECK(file.format() == "safetensors");
  std::vector<std::string> names, dtypes;
  for (const StoredTensor& tensor : file.tensors()) {
    names.push_back(tensor.name);
    dtypes.push_back(tensor.dtype);
  }
  CHECK(names == std::vector<std::string>{"wide", "empty", "matrix", "half", "brain", "flag", "new"});
  CHECK(dtypes == std::vector<std::string>{"float64", "float32", "float32", "float16", "bfloat16", "BOOL", "F3"});
  CHECK(file.tensors()[2].shape == std::vector<std::uint64_t>{2, 3});
  CHECK(file.tensors()[2].count == 6);
  CHECK_FALSE(file.tensors()[5].hashed);
  CHECK_FALSE(file.tensors()[6].hashed);
  const auto hashes = hash_tensors({{&file, 0}, {&file, 1}, {&file, 2}, {&file, 3}, {&file, 4}}, 0);
  CHECK(hashes[0] == hash_elements(wide.data(), 2, 0));
  CHECK(hashes[1] == GradientHash{});
  CHECK(hashes[2] == hash_elements(matrix.data(), 6, 0));
  CHECK(hashes[3] == hash_float16(half.data(), 1, 0));
  CHECK(hashes[4] == hash_bfloat16(half.data(), 1, 0));
}

TEST_CASE("an .npy file is read as numpy writes it, in each version of the format") {
  const Folder folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  for (const int version : {1, 2, 3}) {
    const TensorFile file(folder.write("grad.npy", npy(npy_header("<f4", "(2, 3)"), bytes_of(values), version)));
    CHECK(file.format() == "npy");
    REQUIRE(file.tensors().size() == 1);
    CHECK(file.tensors()[0].name == "grad");
    CHECK(file.tensors()[0].shape == std::vector<std::uint64_t>{2, 3});
    CHECK(hash_tensors({{&file, 0}}, 7)[0] == hash_elements(values.data(), 6, 7));
  }
  const auto dtype = [&](const std::string& descr, const std::string& shape, std::size_t bytes) {
    const TensorFile file(folder.write("x.npy", npy(npy_header(descr, shape), std::string(bytes, '\0'))));
    return file.tensors()[0].dtype;
  };
  CHECK(dtype("<f8", "(3,)", 24) == "float64");
  CHECK(dtype("<f2", "()", 2) == "float16");
  CHECK(dtype("<f2", "(0, 5)", 0) == "float16");
  CHECK(dtype("<f4", "(2L, 1L)", 8) == "float32");  // Python 2
  CHECK(dtype("<i8", "(3,)", 24) == "<i8");
  CHECK(dtype("|b1", "(3,)", 3) == "|b1");
  CHECK(dtype("<U5", "(2,)", 40) == "<U5");
  // Fortran order of what is one row or one column is C order.
  CHECK(npy_mistake(npy_header("<f4", "(2, 1)", "True")).empty());
}

TEST_CASE("a header that contradicts itself or the file is refused with a sentence") {
  CHECK(mistake_in("{" + entry("a", "[2]", 0, 8) + "}").empty());
  CHECK(mistake_in("{" + entry("a", "[2]", 0, 8) + "}", 4) ==
        "tensor \"a\" ends at byte 8 of the data, and there are 4: the file is not complete");
  CHECK(mistake_in("{" + entry("a", "[2]", 0, 8) + "}", 12) == "bytes 8 to 12 of its data belong to no tensor");
  CHECK(mistake_in("{" + entry("a", "[1]", 4, 8) + "}") == "bytes 0 to 4 of its data belong to no tensor");
  CHECK(mistake_in("{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[1]", 4, 8) + "}") ==
        "tensors \"a\" and \"b\" overlap: one ends at byte 8 of the data, the other begins at 4");
  CHECK(mistake_in("{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 0, 8) + "}") ==
        "tensors \"a\" and \"b\" overlap: one ends at byte 8 of the data, the other begins at 0");
  CHECK(mistake_in("{" + entry("a", "[3]", 0, 8) + "}") ==
        "tensor \"a\" is F32 [3], which takes 12 bytes, and its \"data_offsets\" leave 8");
  CHECK(mistake_in("{" + entry("a", "[2]", 8, 0) + "}") ==
        "the \"data_offsets\" of tensor \"a\" are [8, 0]; expected where it begins and ends");
  CHECK(mistake_in("{" + entry("a", "[2]", -8, 0) + "}") ==
        "the \"data_offsets\" of tensor \"a\" hold the number -8; expected whole numbers from 0 on");
  CHECK(mistake_in("{" + entry("a", "[2.0]", 0, 8) + "}") ==
        "the \"shape\" of tensor \"a\" holds the number 2.0; expected whole numbers from 0 on");
  const std::string many = "4294967296";
  CHECK(mistake_in("{" + entry("a", "[" + many + ", " + many + "]", 0, 8) + "}") ==
        "the shape [4294967296, 4294967296] of tensor \"a\" has more elements than 64 bits can count");
  CHECK(mistake_in("{" + entry("a", "[0, 18446744073709551615]", 0, 0) + "}", 0) ==
        "the shape [0, 18446744073709551615] of tensor \"a\" has more elements than 64 bits can count");
  CHECK(mistake_in(
            "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[18446744073709551612,18446744073709551615]}}") ==
        "tensor \"a\" is F32 [2], which takes 8 bytes, and its \"data_offsets\" leave 3");
  CHECK(mistake_in("{" + entry("a", "[1]", 0, 4) + "," + entry("a", "[1]", 4, 8) + "}") ==
        "\"a\" has two entries in the header");
}

TEST_CASE("a header of another form is refused with a sentence") {
  CHECK(mistake_in("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}") == "tensor \"a\" has no \"data_offsets\"");
  CHECK(mistake_in("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F64\"}}") == "tensor \"a\" has the key \"dtype\" twice");
  CHECK(mistake_in("{\"a\":{\"strides\":[1]}}") ==
        "tensor \"a\" has the key \"strides\"; expected dtype, shape and data_offsets");
  CHECK(mistake_in("{\"a\":3}") == "the entry of tensor \"a\" is the number 3; expected an object");
  CHECK(mistake_in("{\"a\":true}") == "the entry of tensor \"a\" is true; expected an object");
  CHECK(mistake_in("{\"a\":false}") == "the entry of tensor \"a\" is false; expected an object");
  CHECK(mistake_in("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}") == "tensor \"a\" has no \"dtype\"");
  CHECK(mistake_in("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}") == "tensor \"a\" has no \"shape\"");
  CHECK(mistake_in("{\"a\":{\"dtype\":4}}") ==
        "the \"dtype\" of tensor \"a\" is the number 4; expected a string such as \"F32\"");
  CHECK(mistake_in("{\"a\":{\"shape\":{}}}") == "the \"shape\" of tensor \"a\" is an object; expected an array");
  CHECK(mistake_in("{\"a\":{\"shape\":[[2]]}}") ==
        "the \"shape\" of tensor \"a\" holds an array; expected whole numbers from 0 on");
  CHECK(mistake_in("{\"__metadata__\":{\"a\":{}}}") == "\"__metadata__\" holds an object; expected strings alone");
  CHECK(mistake_in("{\"__metadata__\":7}") == "\"__metadata__\" is the number 7; expected an object of strings");
  CHECK(mistake_in("{\"a\":").rfind("its header is no JSON: byte ", 0) == 0);
  CHECK(mistake_in("{} {}").rfind("its header is no JSON: byte ", 0) == 0);
  CHECK(mistake_in("{\"\xFF\":1}").rfind("its header is no JSON: byte ", 0) == 0);
  CHECK(mistake_in("{\"a\\u001b\\u0000\":3}") ==
        "the entry of tensor \"a\\x1b\\x00\" is the number 3; expected an object");
  std::string deep = "{\"a\":{\"shape\":";
  deep.append(1'000'000, '[');
  CHECK(mistake_in(deep) == "the \"shape\" of tensor \"a\" holds an array; expected whole numbers from 0 on");
}

TEST_CASE("files that are cut, too long in their header, or something else are refused with a sentence") {
  const std::string good = safetensors("{" + entry("a", "[2]", 0, 8) + "}", "12345678");
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO(size);
    CHECK_FALSE(mistake(good.substr(0, size)).empty());
  }
  const std::string array = npy(npy_header("<f4", "(2,)"), "12345678");
  for (std::size_t size = 0; size < array.size(); ++size) {
    INFO(size);
    CHECK_FALSE(mistake(array.substr(0, size)).empty());
  }
  CHECK(mistake(little_endian(1000, 8) + "{}") == "its header should have 1000 bytes, and the file has 10 in all");
  CHECK(mistake(std::string(8, '\xFF') + "{}") ==
        "its header should have 18446744073709551615 bytes, and the file has 10 in all");
  CHECK(mistake("") == "it is empty; expected a safetensors or .npy file");
  CHECK(mistake("PK\x03\x04 archive of numpy or torch").rfind("it is a zip archive", 0) == 0);
  CHECK(mistake("{\"lockstep\": 1}").rfind("it is neither safetensors", 0) == 0);
  CHECK(mistake("\x93NUMPY\x09").rfind("it ends within the header", 0) == 0);
  CHECK(mistake(npy(npy_header("<f4", "(2,)"), "12345678", 9)) ==
        "it is of version 9 of the .npy format; known are 1, 2 and 3");
  // A header that is allowed to be long, in a file that has no place on any disk: only its length is looked at.
  const Folder folder;
  const std::string large = folder.write("large", little_endian(100'000'001, 8) + "{");
  REQUIRE(truncate(large.c_str(), 200'000'000) == 0);
  CHECK(
      contains(refusal([&] { TensorFile file(large); }), "its header has 100000001 bytes; at most 100000000 are read"));
}

TEST_CASE("paths that are no files are refused and never waited for") {
  const Folder folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(contains(refusal([&] { TensorFile file(pipe); }), "it is no regular file"));
  CHECK(contains(refusal([&] { TensorFile file(folder.path()); }), "it is a folder"));
  CHECK(contains(refusal([&] { TensorFile file(folder.path() + "/none"); }), "there is no such file"));
}

TEST_CASE("a dictionary that numpy would not write is refused with a sentence") {
  CHECK(npy_mistake(npy_header(">f4", "(2,)")) == "its numbers are big-endian ('>f4'); save the array as '<f4'");
  CHECK(npy_mistake(npy_header("|O", "(2,)")).rfind("it holds pickled Python objects", 0) == 0);
  CHECK(npy_mistake("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,), }")
            .rfind("it is an array of records", 0) == 0);
  CHECK(npy_mistake(npy_header("<f4", "(2, 2)", "True"), 16).rfind("its elements stand in Fortran order", 0) == 0);
  CHECK(npy_mistake(npy_header("<f4", "(3,)")) ==
        "its array of shape [3] takes 12 bytes, and there are 8: the file is not complete");
  CHECK(npy_mistake(npy_header("<f4", "(1,)")) == "4 bytes stand after its array; expected one array");
  CHECK(npy_mistake(npy_header("float", "(2,)")) == "its 'descr' is \"float\"; expected a type such as '<f4'");
  CHECK(npy_mistake("{'descr': '<f4', 'shape': (2,)}") == "its header has no 'fortran_order'");
  CHECK(npy_mistake("{'descr': '<f4', 'descr': '<f8'}") == "its header has the key 'descr' twice");
  CHECK(npy_mistake("{'order': 1}") ==
        "its header has the key \"order\"; expected 'descr', 'fortran_order' and 'shape'");
  for (const std::string shape : {"(2)", "(-2,)", "[2]", "(2,", "(2 2)", "(18446744073709551616,)", "2", "(,)"}) {
    INFO(shape);
    CHECK(npy_mistake(npy_header("<f4", shape)).rfind("its header is no dictionary as numpy writes it: expected ", 0) ==
          0);
  }
  CHECK(npy_mistake(npy_header("<f4", "(2,)", "__import__('os')")).rfind("its header is no dictionary", 0) == 0);
  CHECK(npy_mistake(npy_header("<f4", "(4294967296, 4294967296)")).find("than 64 bits can count") != std::string::npos);
}
