// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep::test {

/// A folder that is gone at the end.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("lockstep-tensors-" + std::to_string(std::random_device()()))) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// What `action` throws as InputError; "" where it throws none.
template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.diagnostics().front().message;
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::string little_endian(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

template <class Element>
std::string bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}

/// As safetensors writes it: the header padded with spaces to a multiple of eight bytes.
inline std::string safetensors(std::string header, const std::string& data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return little_endian(header.size(), 8) + header + data;
}

/// As numpy writes it: version 1, the header padded so that the data begin at a multiple of 64 bytes.
inline std::string npy(std::string header, const std::string& data, int version = 1) {
  const int length = version == 1 ? 2 : 4;
  const std::size_t before = 8 + static_cast<std::size_t>(length);
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' + little_endian(header.size(), length) + header +
         data;
}

inline std::string npy_header(const std::string& descr, const std::string& shape,
                              const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

}  // namespace lockstep::test
