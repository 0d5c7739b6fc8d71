// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "lockstep/report.h"
#include "src/base/budget.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

namespace {

/// What stands between record separators.
std::vector<std::string> parts_of(std::string_view text) {
  constexpr std::size_t most = 8;
  std::vector<std::string> parts;
  while (parts.size() < most) {
    const std::size_t end = text.find('\x1e');
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

/// A folder of this process, of which every input uses the same files.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("lockstep-fuzz-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  std::string fill(const std::vector<std::string>& texts) {
    for (std::size_t rank = 0; rank < written_; ++rank) std::filesystem::remove(file(rank));
    written_ = texts.size();
    for (std::size_t rank = 0; rank < written_; ++rank) std::ofstream(file(rank), std::ios::binary) << texts[rank];
    return path_.string();
  }

 private:
  std::filesystem::path file(std::size_t rank) const { return path_ / fmt::format("rank-{:05}.jsonl", rank); }
  std::filesystem::path path_;
  std::size_t written_ = 0;
};

void write_all(const VerifyResult& result) {
  std::size_t written = 0;
  for (const std::string& kind : report_kinds()) {
    const auto reporter = make_reporter(kind, {}, [&](std::string_view text) { written += text.size(); });
    reporter->add(result);
    reporter->finish();
  }
  if (written == 0) throw Finding("reports of a run that say nothing");
  for (const VerifiedPiece& piece : result.pieces) {
    if ((piece.finding < 0) != (piece.verdict == VerifiedPiece::Verdict::right))
      throw Finding("a result that is not right and belongs to no finding");
  }
}

void verify(const std::vector<std::string>& texts) {
  static Folder folder;
  VerifyOptions options;
  options.threads = 1;
  write_all(verify_run(folder.fill(texts), options));
}

void compare_dumps(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) names.push_back(fmt::format("trace_{}.json", rank));
  const FlightResult result = read_flight_recorder(names, [&](const std::string& name) {
    return std::make_shared<const Source>(Source{name, texts[static_cast<std::size_t>(name[6] - '0')]});
  });
  std::string text;
  const auto write = [&](std::string_view part) { text += part; };
  flight_text(result, false, false, write);
  flight_json(result, write);
  const bool right = result.verdict() == VerifiedPiece::Verdict::right;
  if (right && (result.calls == 0 || result.ranks.size() != static_cast<std::size_t>(result.world)))
    throw Finding("dumps that say nothing match");
}

void compose(std::string_view text) {
  const Budget budget(Budget::run);
  try {
    write_all(verify_extraction(std::make_shared<const Source>(Source{"step.json", std::string(text)})));
  } catch (const OverBudget&) {  // a world of a million ranks takes a line
  }
}

}  // namespace

void read_runs(std::string_view input) {
  try {
    if (input.starts_with("X:")) {
      compose(input.substr(2));
    } else if (input.starts_with("D:")) {
      compare_dumps(parts_of(input.substr(2)));
    } else {
      verify(parts_of(input));
    }
  } catch (const InputError& error) {
    if (error.diagnostics().empty()) throw Finding("an InputError that says nothing");
    for (const Diagnostic& diagnostic : error.diagnostics()) render(diagnostic);
  }
}

}  // namespace lockstep::fuzz
