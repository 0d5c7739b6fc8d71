// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/live/declarations.h"
#include "src/live/extraction.h"
#include "src/live/extraction_text.h"
#include "src/live/read_program.h"
#include "src/live/run_gaps.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

class ExtractionReader {
 public:
  explicit ExtractionReader(const std::shared_ptr<const Source>& source) : source_(source), text_(source) {
    extraction_.run.folder = source->name;
  }

  Extraction run() {
    const Json head = text_.head(mistakes_);
    stop_at_mistakes();
    events_ = head.find("events");
    read_head(Event(head, "lockstep_extract", mistakes_, "file"));
    const Json* programs = head.find("programs");
    if (programs != nullptr && programs->items().size() != text_.programs()) {
      for (const Json& item : programs->items()) {
        if (!item.is_null() && !item.is_object())
          mistakes_.add(item.place(), fmt::format("expected a program, found {}", item.describe()));
      }
      stop_at_mistakes();
      mistakes_.add(programs->place(), "\"programs\": expected a list of objects");
    }
    stop_at_mistakes();
    lay_out(extraction_.run);
    ExtractionTables tables(extraction_);
    extraction_.programs.program_of.assign(at(extraction_.run.header.world), -1);
    extraction_.run.ranks.resize(at(extraction_.run.header.world));
    for (std::size_t i = 0; i < text_.programs(); ++i) read_program(tables, i);
    const std::vector<int>& program_of = extraction_.programs.program_of;
    std::vector<int> without;
    for (std::size_t rank = 0; rank < program_of.size(); ++rank) {
      if (program_of[rank] < 0) without.push_back(static_cast<int>(rank));
    }
    if (!without.empty() && mistakes_.empty())
      mistakes_.add(programs->place(), fmt::format("no program is that of {}", rank_words(without)));
    stop_at_mistakes();
    for (int rank = 0; rank < extraction_.run.header.world; ++rank)
      extraction_.programs.data_of.push_back(extraction_.run.data_coordinate(rank));
    drop_gotten();
    find_gaps(extraction_.run);
    return std::move(extraction_);
  }

 private:
  void stop_at_mistakes() const {
    if (mistakes_.empty()) return;
    std::vector<Diagnostic> all = mistakes_.sorted();
    // What stands outside of the programs was read from a text that is like the whole but for them.
    for (Diagnostic& one : all) one.place.source = source_;
    std::stable_sort(all.begin(), all.end(),
                     [](const Diagnostic& a, const Diagnostic& b) { return a.place.begin < b.place.begin; });
    throw InputError(std::move(all));
  }

  void read_head(const Event& event) {
    Header& header = extraction_.run.header;
    const std::int64_t version = event.whole("lockstep_extract", 1);
    if (version > 1)
      event.mistake(
          *event.find("lockstep_extract"),
          fmt::format("it is of version {} of the format; this program reads 1: a newer one is needed", version));
    header.world = static_cast<int>(event.whole("world", 1, 1 << 20));
    header.adapter = event.text("adapter", "");
    header.versions = read_versions(event);
    header.collectives = true;
    read_mesh(event, header, false);
    header.loss = read_loss(event);
    if (const Json* extended = event.find("extended"); extended != nullptr && !extended->is_object()) {
      event.mistake(*extended, fmt::format("\"extended\": expected an object, found {}", extended->describe()));
    } else if (extended != nullptr) {
      const Event inner = event.inner(*extended);
      ChosenRanks& chosen = extraction_.chosen.emplace();
      chosen.complete = inner.texts("complete");
      chosen.even = inner.texts("even");
      for (const auto* names : {&chosen.complete, &chosen.even}) {
        for (const std::string& name : *names) {
          if (std::find(header.axes.begin(), header.axes.end(), name) == header.axes.end())
            event.mistake(*extended, fmt::format("\"extended\" names \"{}\", which is no axis of the mesh{}", name,
                                                 did_you_mean(name, header.axes)));
        }
      }
      if (chosen.even.empty())
        event.mistake(*extended, "\"extended\": expected an axis in \"even\", along which programs were told");
      for (const std::int64_t rank : inner.wholes("compared", 0, header.world - 1))
        chosen.compared.push_back(static_cast<int>(rank));
    }
    extraction_.sentences = event.texts("placements");
    for (std::string& note : event.texts("notes")) extraction_.sentences.push_back(std::move(note));
    if (event.find("counts_taken") != nullptr) extraction_.counts_taken = event.whole("counts_taken");
    if (events_ != nullptr && !events_->is_array())
      event.mistake(*events_, fmt::format("\"events\": expected a list, found {}", events_->describe()));
    const Json* programs = event.required("programs");
    if (programs != nullptr && !programs->is_array())
      event.mistake(*programs, fmt::format("\"programs\": expected a list, found {}", programs->describe()));
  }

  void read_program(ExtractionTables& tables, std::size_t index) {
    Budget::checkpoint();
    Diagnostics own;
    const Json json = text_.program(index, own);
    ExtractedProgram& details = extraction_.details.emplace_back();
    symbolic::RankProgram& program = extraction_.programs.programs.emplace_back();
    if (own.empty()) {
      const Event event(json, "program", own, "object");
      read_ranks(event, static_cast<int>(index), details);
      ProgramReader reader(extraction_.run.header, tables, details, program);
      const Json* events = event.required("events");
      if (events != nullptr && !events->is_array())
        event.mistake(*events, fmt::format("\"events\": expected a list, found {}", events->describe()));
      if (events != nullptr && own.empty()) {
        for (const Json& one : events->items()) read_event(reader, index, one, own);
        reader.end(*events, own);
      }
      for (const int rank : details.ranks) give(rank, reader);
    }
    for (const Diagnostic& one : own.sorted()) {
      const bool is_shared = events_ != nullptr && one.place.source == events_->place().source;
      mistakes_.add(is_shared ? one.place : text_.place(index, one.place), one.message);
    }
  }

  /// `one`: an event, or the number of one that several programs have.
  void read_event(ProgramReader& reader, std::size_t program, const Json& one, Diagnostics& mistakes) {
    if (!one.is_number()) return reader.event(one, text_.line(program, one.place()), mistakes);
    const std::size_t count = events_ == nullptr ? 0 : events_->items().size();
    const std::optional<std::int64_t> number = whole_number_of(one);
    if (!number || *number < 0 || static_cast<std::size_t>(*number) >= count) {
      return mistakes.add(one.place(),
                          fmt::format("expected an event, or the number of one of the file's \"events\", of "
                                      "which there {} {}, found {}",
                                      count == 1 ? "is" : "are", count, one.describe()));
    }
    const Json& shared = events_->items()[static_cast<std::size_t>(*number)];
    constexpr std::size_t bytes_of_a_unit = 2;  // a number takes a few bytes, and may stand for much
    Budget::spend(1 + static_cast<std::int64_t>((shared.place().end - shared.place().begin) / bytes_of_a_unit));
    Budget::checkpoint();
    reader.event(shared, text_.line(shared.place()), mistakes);
  }

  /// What the run knows of one rank.
  void give(int rank, const ProgramReader& reader) {
    Budget::spend(1 + static_cast<std::int64_t>(reader.steps().size() + reader.gaps().size()));
    RankRecord& record = extraction_.run.ranks[at(rank)];
    record.file = extraction_.run.folder;
    record.header.rank = rank;
    record.header.world = extraction_.run.header.world;
    record.header.collectives = true;
    record.ended = true;
    record.steps = reader.steps();
    record.gaps = reader.gaps();
  }

  /// No parameter waits that an optimizer of any rank gets.
  void drop_gotten() {
    std::map<int, std::set<int>> gotten;  // parameters, by step
    for (const ExtractedProgram& program : extraction_.details) {
      std::map<int, std::set<int>> waiting;
      for (const auto& [step, content] : extraction_.run.ranks[at(program.ranks.front())].steps)
        waiting[step] = {content.waiting.begin(), content.waiting.end()};
      for (const ExtractedResult& one : program.results) {
        const int parameter = extraction_.regions[at(one.region)].parameter;
        if (!waiting.at(one.step).contains(parameter)) gotten[one.step].insert(parameter);
      }
    }
    for (RankRecord& rank : extraction_.run.ranks) {
      for (auto& [step, content] : rank.steps)
        std::erase_if(content.waiting, [&](int parameter) { return gotten[step].contains(parameter); });
    }
  }

  void read_ranks(const Event& event, int number, ExtractedProgram& details) {
    const int world = extraction_.run.header.world;
    const Json* ranks = event.required("ranks");
    if (ranks == nullptr) return;
    if (!ranks->is_array() || ranks->items().empty())
      return event.mistake(*ranks, fmt::format("\"ranks\": expected a list of [first, end), found {}",
                                               ranks->is_array() ? "an empty one" : ranks->describe()));
    for (const Json& interval : ranks->items()) {
      const auto first = interval.items().size() == 2 ? whole_number_of(interval.items()[0]) : std::nullopt;
      const auto end = interval.items().size() == 2 ? whole_number_of(interval.items()[1]) : std::nullopt;
      if (!first || !end || *first < 0 || *first >= *end || *end > world) {
        event.mistake(interval, fmt::format("\"ranks\": expected [first, end) within 0 and {}, found {}", world,
                                            interval.describe()));
        continue;
      }
      for (std::int64_t rank = *first; rank < *end; ++rank) {
        int& program = extraction_.programs.program_of[at(rank)];
        if (program >= 0) return event.mistake(interval, fmt::format("rank {} has a program already", rank));
        // What a result lists by rank is in their order.
        if (!details.ranks.empty() && rank < details.ranks.back())
          return event.mistake(interval,
                               fmt::format("\"ranks\": expected intervals that ascend, found rank {} after {}", rank,
                                           details.ranks.back()));
        program = number;
        details.ranks.push_back(static_cast<int>(rank));
      }
    }
    for (const std::int64_t rank : event.wholes("played", 0, world - 1))
      details.played.push_back(static_cast<int>(rank));
    std::sort(details.played.begin(), details.played.end());
    const Json* played = event.find("played");
    if (played == nullptr || !played->is_array()) return;
    const bool among =
        std::includes(details.ranks.begin(), details.ranks.end(), details.played.begin(), details.played.end());
    if (!among || (details.played.empty() && !extraction_.chosen))
      event.mistake(*played, "\"played\": expected some of the program's own ranks, each once");
  }

  std::shared_ptr<const Source> source_;
  ExtractionText text_;
  const Json* events_ = nullptr;  // that programs name by their numbers; while run() has the head
  Diagnostics mistakes_;
  Extraction extraction_;
};

}  // namespace

Extraction read_extraction(const std::shared_ptr<const Source>& source) { return ExtractionReader(source).run(); }

std::vector<int> played_ranks(const Extraction& extraction) {
  std::vector<int> played;
  for (const ExtractedProgram& program : extraction.details)
    played.insert(played.end(), program.played.begin(), program.played.end());
  std::sort(played.begin(), played.end());
  return played;
}

namespace {

/// Why these ranks were run, and what is taken of the others.
std::string chosen_words(const ChosenRanks& chosen) {
  std::string words = ": ";
  if (!chosen.complete.empty()) words += fmt::format("each along {}, there ", fmt::join(chosen.complete, " and "));
  words += fmt::format("the first two and the last along {}", fmt::join(chosen.even, " and "));
  words += chosen.compared.empty() ? "; none of the others was compared"
                                   : fmt::format("; {} that chance chose ({}) did what was predicted of them",
                                                 chosen.compared.size(), numbers_words(chosen.compared));
  return words + ". The others are taken to do the same at their coordinates.";
}

}  // namespace

std::string not_played_words(const Extraction& extraction) {
  const std::vector<int> played = played_ranks(extraction);
  if (std::ssize(played) == extraction.run.header.world) return "";
  std::string words =
      fmt::format("ran {} of {} ranks ({})", played.size(), extraction.run.header.world, numbers_words(played));
  if (extraction.chosen) {
    words += chosen_words(*extraction.chosen);
  } else {
    words += fmt::format("; the others are taken to run {}.",
                         extraction.details.size() == 1
                             ? fmt::format("the program of rank {}", extraction.details.front().played.front())
                             : "programs of these");
  }
  if (const std::int64_t counts = extraction.counts_taken; counts > 0)
    words +=
        fmt::format(" What others put into collectives as counts, {} {}, is taken from ranks at the same coordinates.",
                    counts, counts == 1 ? "time" : "times");
  return words;
}

}  // namespace lockstep::live
