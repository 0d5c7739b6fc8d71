// SPDX-License-Identifier: Apache-2.0
#include "src/cli/hash_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "src/base/counted.h"
#include "src/cli/command.h"
#include "src/cli/table.h"

namespace lockstep::cli {

namespace {

// Tensors that a comparison shows in full without --verbose.
constexpr std::size_t most_shown = 10;

std::string shape_of(const StoredTensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape, ", ")); }

std::string kind_of(const StoredTensor& tensor) {
  return fmt::format("{} {}", printable(tensor.dtype), shape_of(tensor));
}

void write_shape(report::JsonWriter& json, const std::vector<std::uint64_t>& shape) {
  json.begin_array(true);
  for (const std::uint64_t extent : shape) json.number(extent);
  json.end_array();
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

HashReport::HashReport(const std::string& path, const std::string& format)
    : output_(path, report::kind_of_format(format)), json_(output_.writer()), is_json_(format == "json") {
  if (!is_json_) return;
  json_.begin_object();
  json_.key("lockstep").number(1);
  json_.key("files").begin_array();
}

void HashReport::file(const TensorFile& file, const std::vector<TensorPlace>& tensors,
                      const std::vector<GradientHash>& hashes, bool head) {
  auto hash = hashes.begin();
  if (!is_json_) {
    if (head) output_.write(fmt::format("{}\n", file.path()));
    Table table({{"tensor", ""}, {"dtype", ""}, {"shape", ""}, {"hash", ""}});
    for (const TensorPlace& place : tensors) {
      const StoredTensor& tensor = place.stored();
      table.add({printable(tensor.name), printable(tensor.dtype), shape_of(tensor),
                 tensor.hashed ? (hash++)->to_string() : "skipped: this dtype has no hash"});
    }
    if (tensors.empty()) {
      output_.write("no tensor\n");
    } else {
      table.write(output_, "text");
    }
    output_.flush();
    return;
  }
  json_.begin_object();
  json_.key("file").string(file.path());
  json_.key("format").string(file.format());
  json_.key("tensors").begin_array();
  for (const TensorPlace& place : tensors) {
    const StoredTensor& tensor = place.stored();
    json_.begin_object();
    json_.key("name").string(tensor.name);
    json_.key("dtype").string(tensor.dtype);
    json_.key("shape");
    write_shape(json_, tensor.shape);
    json_.key("elements").number(tensor.count);
    json_.key("hash").string_or_null(tensor.hashed ? (hash++)->to_string() : "");
    json_.end_object();
  }
  json_.end_array();
  json_.end_object();
}

void HashReport::finish() {
  if (is_json_) {
    json_.end_array();
    json_.end_object();
    json_.finish();
  }
  output_.commit();
}

bool TensorPair::differs_in_kind() const {
  return !alone() && (a->stored().dtype != b->stored().dtype || a->stored().shape != b->stored().shape);
}

bool TensorPair::skipped() const { return !alone() && !differs_in_kind() && !a->stored().hashed; }

std::vector<TensorPair> pair_tensors(const std::vector<TensorPlace>& a, const std::vector<TensorPlace>& b) {
  const auto single_npy = [](const std::vector<TensorPlace>& places) {
    return places.size() == 1 && places.front().file->format() == "npy";
  };
  // An .npy file stores no name that could differ.
  if (a.size() == 1 && b.size() == 1 && (single_npy(a) || single_npy(b))) return {{a.front(), b.front()}};
  std::unordered_map<std::string, std::size_t> in_b;
  for (std::size_t i = 0; i < b.size(); ++i) in_b.emplace(b[i].stored().name, i);
  std::vector<TensorPair> pairs;
  std::vector<char> met(b.size(), 0);
  for (const TensorPlace& place : a) {
    const auto found = in_b.find(place.stored().name);
    if (found == in_b.end()) {
      pairs.push_back({place, std::nullopt});
      continue;
    }
    met[found->second] = 1;
    pairs.push_back({place, b[found->second]});
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (met[i] == 0) pairs.push_back({std::nullopt, b[i]});
  }
  return pairs;
}

namespace {

struct HashCounts {
  std::size_t equal = 0, different = 0, only_a = 0, only_b = 0, skipped = 0;
  bool right() const { return different + only_a + only_b == 0; }
};

enum class Found { equal, differs, other_kind, only_a, only_b, skipped };

Found found_in(const TensorPair& pair, const TensorDifference& difference) {
  if (!pair.b) return Found::only_a;
  if (!pair.a) return Found::only_b;
  if (pair.differs_in_kind()) return Found::other_kind;
  if (pair.skipped()) return Found::skipped;
  return difference.elements == 0 ? Found::equal : Found::differs;
}

void count(HashCounts& counts, Found found) {
  switch (found) {
    case Found::equal:
      ++counts.equal;
      break;
    case Found::differs:
    case Found::other_kind:
      ++counts.different;
      break;
    case Found::only_a:
      ++counts.only_a;
      break;
    case Found::only_b:
      ++counts.only_b;
      break;
    case Found::skipped:
      ++counts.skipped;
      break;
  }
}

std::string ranges_text(const TensorDifference& difference) {
  std::string text;
  for (const TensorDifference::Range& range : difference.first) {
    text += fmt::format("    [{}, {})  {} and {}{}\n", range.begin, range.end, range.first_a, range.first_b,
                        range.end - range.begin > 1 ? ", …" : "");
  }
  if (difference.ranges > difference.first.size())
    text += fmt::format("    and {} more (--verbose lists them)\n", difference.ranges - difference.first.size());
  return text;
}

std::string pair_text(const Comparison& comparison, const TensorPair& pair, const TensorDifference& difference,
                      Found found) {
  const std::string name = printable(pair.any().name);
  switch (found) {
    case Found::equal:
      return "";
    case Found::skipped:
      return fmt::format("skipped  {}: {} has no hash\n", name, printable(pair.any().dtype));
    case Found::only_a:
    case Found::only_b:
      return fmt::format("alone    {} ({}): only in {}\n", name, kind_of(pair.any()),
                         found == Found::only_a ? comparison.a.path() : comparison.b.path());
    case Found::other_kind:
      return fmt::format("differs  {}: {} and {}\n", name, kind_of(pair.a->stored()), kind_of(pair.b->stored()));
    case Found::differs:
      break;
  }
  return fmt::format("differs  {} ({}): {} of {}, in {}\n    {}  in {}\n    {}  in {}\n{}", name, kind_of(pair.any()),
                     difference.elements, counted(pair.any().count, "element"), counted(difference.ranges, "range"),
                     difference.hash_a.to_string(), comparison.a.path(), difference.hash_b.to_string(),
                     comparison.b.path(), ranges_text(difference));
}

void write_text(const Comparison& comparison, Output& output, const HashCounts& counts, bool quiet, bool verbose) {
  std::size_t shown = 0, left_out = 0;
  for (std::size_t i = 0; i < comparison.pairs.size() && !quiet; ++i) {
    const Found found = found_in(comparison.pairs[i], comparison.differences[i]);
    const std::string text = pair_text(comparison, comparison.pairs[i], comparison.differences[i], found);
    if (text.empty()) continue;
    if (shown == most_shown && !verbose) {
      ++left_out;
      continue;
    }
    ++shown;
    output.write(text);
  }
  if (left_out > 0) output.write(fmt::format("and {} more (--verbose lists them)\n", left_out));
  std::string line = fmt::format("{} equal, {} different", counts.equal, counts.different);
  if (counts.only_a > 0) line += fmt::format(", {} only in {}", counts.only_a, comparison.a.path());
  if (counts.only_b > 0) line += fmt::format(", {} only in {}", counts.only_b, comparison.b.path());
  if (counts.skipped > 0) line += fmt::format(", {} skipped", counts.skipped);
  output.write(line + "\n");
}

void write_pair(report::JsonWriter& json, const TensorPair& pair, const TensorDifference& difference, Found found) {
  static constexpr const char* words[] = {"equal", "differs", "differs", "only in a", "only in b", "skipped"};
  json.begin_object();
  json.key("name").string(pair.any().name);
  json.key("result").string(words[static_cast<int>(found)]);
  for (const auto& [key, place] : {std::pair("a", &pair.a), std::pair("b", &pair.b)}) {
    json.key(key);
    if (!*place) {
      json.null();
      continue;
    }
    const StoredTensor& tensor = (*place)->stored();
    json.begin_object(true);
    json.key("dtype").string(tensor.dtype);
    json.key("shape");
    write_shape(json, tensor.shape);
    json.key("hash");
    const GradientHash& hash = key[0] == 'a' ? difference.hash_a : difference.hash_b;
    json.string_or_null(pair.comparable() ? hash.to_string() : "");
    json.end_object();
  }
  if (found == Found::differs) {
    json.key("elements").number(difference.elements);
    json.key("ranges").number(difference.ranges);
    json.key("first_ranges").begin_array();
    for (const TensorDifference::Range& range : difference.first) {
      json.begin_object(true);
      json.key("begin").number(range.begin);
      json.key("end").number(range.end);
      json.key("a").string(range.first_a);
      json.key("b").string(range.first_b);
      json.end_object();
    }
    json.end_array();
  }
  json.end_object();
}

void write_json(const Comparison& comparison, Output& output, const HashCounts& counts) {
  report::JsonWriter json(output.writer());
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("a").string(comparison.a.path());
  json.key("b").string(comparison.b.path());
  json.key("equal").boolean(counts.right());
  json.key("tensors").begin_array();
  for (std::size_t i = 0; i < comparison.pairs.size(); ++i) {
    const Found found = found_in(comparison.pairs[i], comparison.differences[i]);
    write_pair(json, comparison.pairs[i], comparison.differences[i], found);
  }
  json.end_array();
  json.end_object();
  json.finish();
}

}  // namespace

int write_comparison(const Comparison& comparison, const std::string& path, const std::string& format, bool quiet,
                     bool verbose) {
  HashCounts counts;
  for (std::size_t i = 0; i < comparison.pairs.size(); ++i)
    count(counts, found_in(comparison.pairs[i], comparison.differences[i]));
  Output output(path, report::kind_of_format(format));
  if (format == "json") {
    write_json(comparison, output, counts);
  } else {
    write_text(comparison, output, counts, quiet, verbose);
  }
  output.commit();
  if (!counts.right()) return exit_wrong;
  return counts.equal == 0 ? exit_nothing : exit_right;
}

}  // namespace lockstep::cli
