// SPDX-License-Identifier: Apache-2.0
// The header of safetensors (github.com/huggingface/safetensors, "Format"): one JSON object, an entry per tensor and
// "__metadata__". It may be large, so that it is read as it comes and never stands in memory as a tree.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "src/tensors/header.h"

namespace lockstep::tensors {

namespace {

struct StoredDtype {
  std::string_view name;
  std::uint64_t bits;
  std::optional<Dtype> hashed = {};
};

constexpr std::array dtypes = {
    StoredDtype{"F32", 32, Dtype::float32},
    StoredDtype{"F64", 64, Dtype::float64},
    StoredDtype{"BF16", 16, Dtype::bfloat16},
    StoredDtype{"F16", 16, Dtype::float16},
    StoredDtype{"BOOL", 8},
    StoredDtype{"U8", 8},
    StoredDtype{"I8", 8},
    StoredDtype{"U16", 16},
    StoredDtype{"I16", 16},
    StoredDtype{"U32", 32},
    StoredDtype{"I32", 32},
    StoredDtype{"U64", 64},
    StoredDtype{"I64", 64},
    StoredDtype{"C64", 64},
    StoredDtype{"F8_E4M3", 8},
    StoredDtype{"F8_E5M2", 8},
    StoredDtype{"F8_E8M0", 8},
    StoredDtype{"F8_E4M3FNUZ", 8},
    StoredDtype{"F8_E5M2FNUZ", 8},
    StoredDtype{"F6_E2M3", 6},
    StoredDtype{"F6_E3M2", 6},
    StoredDtype{"F4", 4},
};

/// Takes the header's JSON value by value. Every function returns whether to go on; a mistake is thrown.
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<StoredTensor> tensors;  // begin and bytes are those of "data_offsets"

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return unexpected(fmt::format("the number {}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected("the number " + text); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::shape && at_ != At::offsets) return unexpected(fmt::format("the number {}", value));
    if (at_ == At::shape) {
      tensors.back().shape.push_back(value);
    } else {
      offsets_.push_back(value);
    }
    return true;
  }

  bool string(string_t& text) override {
    if (at_ == At::metadata) return true;
    if (at_ != At::tensor || key_ != Key::dtype) return unexpected("the string " + in_quotes(text));
    tensors.back().dtype = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::file) {
      at_ = At::names;
    } else if (at_ == At::names && in_metadata_) {
      at_ = At::metadata;
    } else if (at_ == At::names) {
      at_ = At::tensor;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    if (at_ == At::metadata) return true;
    if (at_ == At::names) {
      begin_entry(text);
      return true;
    }
    static constexpr std::array<std::string_view, 3> names = {"dtype", "shape", "data_offsets"};
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end())
      throw HeaderError(fmt::format("tensor {} has the key {}; expected dtype, shape and data_offsets",
                                    in_quotes(tensors.back().name), in_quotes(text)));
    key_ = static_cast<Key>(found - names.begin());
    const unsigned bit = 1u << static_cast<unsigned>(key_);
    if ((seen_ & bit) != 0)
      throw HeaderError(fmt::format("tensor {} has the key \"{}\" twice", in_quotes(tensors.back().name), text));
    seen_ |= bit;
    return true;
  }

  bool end_object() override {
    if (at_ == At::tensor) end_tensor();
    at_ = at_ == At::names ? At::end : At::names;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ != At::tensor || key_ == Key::dtype) return unexpected("an array");
    at_ = key_ == Key::shape ? At::shape : At::offsets;
    return true;
  }

  bool end_array() override {
    at_ = At::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw HeaderError(fmt::format("its header is no JSON: byte {} of it cannot stand there", position));
  }

 private:
  enum class At { file, names, metadata, tensor, shape, offsets, end };
  enum class Key { dtype, shape, data_offsets };

  [[noreturn]] bool unexpected(const std::string& found) const {
    const std::string of = tensors.empty() ? "" : " of tensor " + in_quotes(tensors.back().name);
    const char* expected = "an object with an entry for each tensor";
    switch (at_) {
      case At::file:
      case At::end:
        throw HeaderError(fmt::format("its header is {}; expected {}", found, expected));
      case At::names:
        throw HeaderError(in_metadata_ ? fmt::format("\"__metadata__\" is {}; expected an object of strings", found)
                                       : fmt::format("the entry{} is {}; expected an object", of, found));
      case At::metadata:
        throw HeaderError(fmt::format("\"__metadata__\" holds {}; expected strings alone", found));
      case At::tensor:
        expected = key_ == Key::dtype   ? "the \"dtype\"{} is {}; expected a string such as \"F32\""
                   : key_ == Key::shape ? "the \"shape\"{} is {}; expected an array"
                                        : "the \"data_offsets\"{} are {}; expected an array";
        break;
      case At::shape:
        expected = "the \"shape\"{} holds {}; expected whole numbers from 0 on";
        break;
      case At::offsets:
        expected = "the \"data_offsets\"{} hold {}; expected whole numbers from 0 on";
        break;
    }
    throw HeaderError(fmt::format(fmt::runtime(expected), of, found));
  }

  void begin_entry(const std::string& name) {
    if (!names_.insert(name).second)
      throw HeaderError(fmt::format("{} has two entries in the header", in_quotes(name)));
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) return;
    tensors.emplace_back().name = name;
    offsets_.clear();
    seen_ = 0;
  }

  void end_tensor() {
    StoredTensor& tensor = tensors.back();
    if (seen_ != 7)
      throw HeaderError(fmt::format("tensor {} has no \"{}\"", in_quotes(tensor.name),
                                    (seen_ & 1) == 0   ? "dtype"
                                    : (seen_ & 2) == 0 ? "shape"
                                                       : "data_offsets"));
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1])
      throw HeaderError(fmt::format("the \"data_offsets\" of tensor {} are {}; expected where it begins and ends",
                                    in_quotes(tensor.name), shape_text(offsets_)));
    const std::uint64_t bytes = offsets_[1] - offsets_[0];
    const auto dtype =
        std::find_if(dtypes.begin(), dtypes.end(), [&](const StoredDtype& one) { return one.name == tensor.dtype; });
    tensor.begin = offsets_[0];
    // A dtype of later versions: nothing is known of its size, and it is not read.
    count_elements(tensor, dtype == dtypes.end() ? 1 : dtype->bits);
    if (dtype != dtypes.end() && tensor.bytes != bytes)
      throw HeaderError(fmt::format("tensor {} is {} {}, which takes {} bytes, and its \"data_offsets\" leave {}",
                                    in_quotes(tensor.name), tensor.dtype, shape_text(tensor.shape), tensor.bytes,
                                    bytes));
    tensor.bytes = bytes;
    if (dtype == dtypes.end() || !dtype->hashed) return;
    tensor.hashed = dtype->hashed;
    tensor.dtype = name_of(*dtype->hashed);
  }

  At at_ = At::file;
  Key key_ = Key::dtype;
  bool in_metadata_ = false;
  unsigned seen_ = 0;  // a bit for each key of the tensor
  std::vector<std::uint64_t> offsets_;
  std::unordered_set<std::string> names_;
};

}  // namespace

std::vector<StoredTensor> read_safetensors_header(std::string_view header, std::uint64_t data_begin,
                                                  std::uint64_t file_size) {
  Reader reader;
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  std::vector<StoredTensor>& tensors = reader.tensors;
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.begin + a.bytes) < std::pair(b.begin, b.begin + b.bytes);
  });
  const std::uint64_t size = file_size - data_begin;
  std::uint64_t end = 0;
  const StoredTensor* last = nullptr;
  for (StoredTensor& tensor : tensors) {
    const std::uint64_t own_end = tensor.begin + tensor.bytes;
    if (tensor.begin < end)
      throw HeaderError(
          fmt::format("tensors {} and {} overlap: one ends at byte {} of the data, the other begins at {}",
                      in_quotes(last->name), in_quotes(tensor.name), end, tensor.begin));
    if (tensor.begin > end)
      throw HeaderError(fmt::format("bytes {} to {} of its data belong to no tensor", end, tensor.begin));
    if (own_end > size)
      throw HeaderError(fmt::format("tensor {} ends at byte {} of the data, and there are {}: the file is not complete",
                                    in_quotes(tensor.name), own_end, size));
    end = own_end;
    last = &tensor;
  }
  if (end < size) throw HeaderError(fmt::format("bytes {} to {} of its data belong to no tensor", end, size));
  for (StoredTensor& tensor : tensors) tensor.begin += data_begin;
  return std::move(tensors);
}

}  // namespace lockstep::tensors
