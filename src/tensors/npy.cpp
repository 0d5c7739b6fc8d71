// SPDX-License-Identifier: Apache-2.0
// The header of .npy (numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a Python dictionary with
// 'descr', 'fortran_order' and 'shape'. Of Python's literals only those are read that can stand there.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "src/base/counted.h"
#include "src/tensors/header.h"

namespace lockstep::tensors {

namespace {

class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* where) {
    if (!take(c)) mistake(fmt::format("'{}' {}", c, where));
  }
  std::string_view string(const char* what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') mistake(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) mistake(fmt::format("a closing {}", quote));
    const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }
  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    mistake("True or False");
  }
  std::uint64_t number() {
    skip_space();
    std::uint64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) mistake("a whole number from 0 to 2^64 - 1");
    at_ += static_cast<std::size_t>(end - begin);
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote them
    return value;
  }
  bool begins_with(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  [[noreturn]] void mistake(const std::string& expected) {
    const std::string found =
        at_ < text_.size() ? "found " + in_quotes(text_.substr(at_, 20)) : std::string("and it ends there");
    throw HeaderError(fmt::format("its header is no dictionary as numpy writes it: expected {} at byte {} of it, {}",
                                  expected, at_, found));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::vector<std::uint64_t> read_shape(Literal& literal) {
  std::vector<std::uint64_t> shape;
  literal.expect('(', "where the shape begins");
  while (!literal.take(')')) {
    shape.push_back(literal.number());
    if (literal.take(',')) continue;
    // (3) is no tuple in Python; numpy writes (3,).
    if (shape.size() == 1) literal.mistake("',' after the only size of a shape");
    literal.expect(')', "where the shape ends");
    break;
  }
  return shape;
}

/// Size of an element in bits, from "<f4" and the like; 0 where the type does not say it.
std::uint64_t bits_of(std::string_view descr) {
  std::uint64_t size = 0;
  const char* end = descr.data() + descr.size();
  if (std::from_chars(descr.data() + std::min<std::size_t>(2, descr.size()), end, size).ec != std::errc()) return 0;
  const std::uint64_t letters = descr[1] == 'U' ? 4 : 1;  // a character of text takes four bytes
  if (size > (std::uint64_t{1} << 32)) return 0;
  return 8 * letters * size;
}

void read_descr(StoredTensor& tensor, std::string_view descr) {
  tensor.dtype = descr;
  static constexpr std::string_view kinds = "biufcmMOSUVa";
  const bool known = descr.size() >= 2 && std::string_view("<>|=").find(descr[0]) != std::string_view::npos &&
                     kinds.find(descr[1]) != std::string_view::npos;
  if (!known) throw HeaderError(fmt::format("its 'descr' is {}; expected a type such as '<f4'", in_quotes(descr)));
  if (descr[1] == 'O')
    throw HeaderError(
        "it holds pickled Python objects, and reading those would run what they say; save an array of numbers");
  if (descr[0] == '>')
    throw HeaderError(
        fmt::format("its numbers are big-endian ('{}'); save the array as '<{}'", descr, descr.substr(1)));
  if (descr == "<f4") tensor.hashed = Dtype::float32;
  if (descr == "<f8") tensor.hashed = Dtype::float64;
  if (descr == "<f2") tensor.hashed = Dtype::float16;
  if (tensor.hashed) tensor.dtype = name_of(*tensor.hashed);
}

}  // namespace

StoredTensor read_npy_header(std::string_view header, std::uint64_t data_begin, std::uint64_t file_size) {
  StoredTensor tensor;
  Literal literal(header);
  std::string_view descr;
  bool fortran = false;
  unsigned seen = 0;
  literal.expect('{', "where the header begins");
  while (!literal.take('}')) {
    const std::string_view key = literal.string("'descr', 'fortran_order' or 'shape'");
    literal.expect(':', "after a key");
    const unsigned bit = key == "descr" ? 1 : key == "fortran_order" ? 2 : key == "shape" ? 4 : 0;
    if (bit == 0)
      throw HeaderError(
          fmt::format("its header has the key {}; expected 'descr', 'fortran_order' and 'shape'", in_quotes(key)));
    if ((seen & bit) != 0) throw HeaderError(fmt::format("its header has the key '{}' twice", key));
    seen |= bit;
    if (bit == 1) {
      if (literal.begins_with('['))
        throw HeaderError("it is an array of records with fields; save each field as an array of its own");
      descr = literal.string("a type in quotes, such as '<f4'");
    } else if (bit == 2) {
      fortran = literal.boolean();
    } else {
      tensor.shape = read_shape(literal);
    }
    if (!literal.take(',') && !literal.begins_with('}')) literal.mistake("',' or '}'");
  }
  if (!literal.at_end()) literal.mistake("nothing more");
  if (seen != 7)
    throw HeaderError(fmt::format("its header has no '{}'", (seen & 1) == 0   ? "descr"
                                                            : (seen & 2) == 0 ? "fortran_order"
                                                                              : "shape"));
  read_descr(tensor, descr);
  const auto longer = std::count_if(tensor.shape.begin(), tensor.shape.end(), [](auto extent) { return extent != 1; });
  if (fortran && longer > 1)
    throw HeaderError(
        "its elements stand in Fortran order, and hashes count in C order; save numpy.ascontiguousarray of it");
  const std::uint64_t bits = bits_of(descr);
  count_elements(tensor, bits == 0 ? 8 : bits);
  tensor.begin = data_begin;
  const std::uint64_t size = file_size - data_begin;
  if (bits == 0) tensor.bytes = size;
  if (tensor.bytes > size)
    throw HeaderError(fmt::format("its array of shape {} takes {} bytes, and there are {}: the file is not complete",
                                  shape_text(tensor.shape), tensor.bytes, size));
  if (tensor.bytes < size)
    throw HeaderError(
        fmt::format("{} after its array; expected one array",
                    counted(size - tensor.bytes, "byte") + (size - tensor.bytes == 1 ? " stands" : " stand")));
  return tensor;
}

}  // namespace lockstep::tensors
