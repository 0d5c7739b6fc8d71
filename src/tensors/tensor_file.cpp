// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/diagnostic.h"
#include "src/base/counted.h"
#include "src/base/inputs.h"
#include "src/tensors/header.h"

namespace lockstep {

namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

TensorFile::TensorFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) {
    refuse(errno == ENOENT || errno == ENOTDIR ? std::string("there is no such file")
                                               : fmt::format("it cannot be opened: {}", std::strerror(errno)));
  }
  // Opening a pipe would wait for whoever writes into it.
  if (S_ISDIR(status.st_mode)) refuse("it is a folder; expected a safetensors or .npy file");
  if (!S_ISREG(status.st_mode)) refuse("it is no regular file, and tensors are read at their places in one");
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
    refuse(fmt::format("it cannot be opened: {}", std::strerror(errno)));
  note_input(descriptor_);
  size_ = static_cast<std::uint64_t>(status.st_size);
  try {
    read_header();
  } catch (const tensors::HeaderError& error) {
    close(descriptor_);
    refuse(error.what());
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

TensorFile::~TensorFile() { close(descriptor_); }

void TensorFile::refuse(const std::string& sentence) const {
  throw InputError({Diagnostic{{}, fmt::format("{}: {}", path_, sentence)}});
}

void TensorFile::read(std::uint64_t begin, void* to, std::size_t size) const {
  auto* out = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t count = pread(descriptor_, out, size, static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(fmt::format("it cannot be read: {}", std::strerror(errno)));
    if (count == 0) refuse("it has become shorter while it was read");
    out += count;
    begin += static_cast<std::uint64_t>(count);
    size -= static_cast<std::size_t>(count);
  }
}

void TensorFile::read_header() {
  std::string start(std::min<std::uint64_t>(size_, 12), '\0');
  read(0, start.data(), start.size());
  const auto header_of = [&](std::uint64_t begin, std::uint64_t length, std::uint64_t longest) {
    if (length > size_ - begin)
      throw tensors::HeaderError(
          fmt::format("its header should have {}, and the file has {} in all", counted(length, "byte"), size_));
    if (length > longest)
      throw tensors::HeaderError(fmt::format("its header has {} bytes; at most {} are read", length, longest));
    std::string header(length, '\0');
    read(begin, header.data(), header.size());
    return header;
  };
  if (start.starts_with(npy_magic)) {
    format_ = "npy";
    const bool short_length = start.size() > 6 && start[6] == 1;
    if (start.size() < 12) throw tensors::HeaderError("it ends within the header of an .npy file");
    if (start[6] < 1 || start[6] > 3)
      throw tensors::HeaderError(fmt::format("it is of version {} of the .npy format; known are 1, 2 and 3",
                                             static_cast<unsigned char>(start[6])));
    const std::uint64_t begin = short_length ? 10 : 12;
    const std::uint64_t length = little_endian(std::string_view(start).substr(8, begin - 8));
    const std::string header = header_of(begin, length, tensors::longest_npy_header);
    tensors_.push_back(tensors::read_npy_header(header, begin + length, size_));
    tensors_.back().name = std::filesystem::path(path_).stem().string();
    return;
  }
  if (start.size() >= 9 && start[8] == '{') {
    format_ = "safetensors";
    const std::uint64_t length = little_endian(std::string_view(start).substr(0, 8));
    const std::string header = header_of(8, length, tensors::longest_safetensors_header);
    tensors_ = tensors::read_safetensors_header(header, 8 + length, size_);
    return;
  }
  if (start.starts_with("PK"))
    throw tensors::HeaderError(
        "it is a zip archive, as torch.save and numpy.savez write; expected safetensors or .npy "
        "(safetensors.torch.save_file)");
  if (size_ == 0) throw tensors::HeaderError("it is empty; expected a safetensors or .npy file");
  throw tensors::HeaderError(fmt::format(
      "it is neither safetensors (a length of 8 bytes, then '{{') nor .npy (\"\\x93NUMPY\"); it begins with {}",
      tensors::in_quotes(start)));
}

}  // namespace lockstep
