// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/report.h"
#include "src/base/counted.h"
#include "src/report/clean_text.h"
#include "src/report/json_writer.h"
#include "src/report/run_words.h"
#include "src/report/style.h"

namespace lockstep {

void flight_text(const FlightResult& result, bool quiet, bool color, const Write& write) {
  const report::Style style(color);
  const auto line = [&](const std::string& before, const std::string& text) {
    write(before + report::one_line_text(text) + "\n");
  };
  const VerifiedPiece::Verdict verdict = result.verdict();
  const std::string word(report::verdict_word(verdict));
  write(fmt::format("{}  {} of {}\n",
                    verdict == VerifiedPiece::Verdict::right   ? style.good(word)
                    : verdict == VerifiedPiece::Verdict::wrong ? style.bad(word)
                                                               : style.bold(word),
                    counted(result.ranks.size(), "dump"), counted(result.world, "rank")));
  if (quiet) return;
  std::size_t groups = 0;
  for (const FlightGroup& group : result.groups) groups += group.last > 0 ? 1 : 0;
  line("  ", fmt::format("{} in {}, Flight Recorder {}", counted(result.calls, "collective"),
                         counted(groups, "process group"), fmt::join(result.versions, " and ")));
  for (const std::string& gap : result.gaps) line("  not complete: ", gap);
  for (const std::string& note : result.notes) line("  ", note);
  for (const std::string& one : result.collectives) line(style.bad("✗") + " ", one);
  for (const std::string& one : result.waiting) line("  ", one);
}

void flight_json(const FlightResult& result, const Write& write) {
  report::JsonWriter json(write);
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("verdict").string(report::verdict_word(result.verdict()));
  json.key("world").number(result.world);
  json.key("ranks").numbers(result.ranks);
  json.key("versions").strings(result.versions);
  json.key("calls").number(result.calls);
  json.key("groups").begin_array();
  for (const FlightGroup& group : result.groups) {
    json.begin_object(true);
    json.key("name").string(group.name);
    json.key("description").string(group.description);
    json.key("ranks").numbers(group.ranks);
    json.key("members_known").boolean(group.members_known);
    json.key("first").number(group.first);
    json.key("last").number(group.last);
    json.end_object();
  }
  json.end_array();
  json.key("collectives").strings(result.collectives);
  json.key("waiting").strings(result.waiting);
  json.key("gaps").strings(result.gaps);
  json.key("notes").strings(result.notes);
  json.end_object();
  json.finish();
}

}  // namespace lockstep
