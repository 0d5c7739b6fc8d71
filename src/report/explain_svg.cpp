// SPDX-License-Identifier: Apache-2.0
#include "src/report/explain_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/at.h"
#include "src/report/clean_text.h"
#include "src/report/html.h"
#include "src/report/parameter_history.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

// In pixels. A monospaced character of 13 pixels is about 7.8 wide.
constexpr int margin = 24, gap = 12, label = 56, line = 20, character = 8, panel_gap = 56;
constexpr std::size_t widest_box = 48;

constexpr std::string_view style = R"svg(<style>
  text { font: 13px ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; fill: #1f2328; }
  .title { font: 600 15px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
  .label, .note { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #59636e; }
  .paper { fill: #ffffff; }
  .box { fill: #f3f5fa; stroke: #c3cad6; }
  .stale { fill: url(#hatch); stroke: #c3cad6; stroke-dasharray: 4 3; }
  .wrong { fill: #fdeceb; stroke: #b42318; stroke-width: 2; }
  .faint { fill: #59636e; }
  .bad { fill: #b42318; font-weight: 600; }
  .hatch { stroke: #dfe3ea; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e8ec; }
    .label, .note, .faint { fill: #a3abb8; }
    .paper { fill: #14171c; }
    .box { fill: #1e232b; stroke: #434b58; }
    .stale { stroke: #434b58; }
    .wrong { fill: #35191a; stroke: #ff8f85; }
    .bad { fill: #ff8f85; }
    .hatch { stroke: #2a303a; }
  }
</style>
<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
  <line class="hatch" x1="0" y1="0" x2="0" y2="7" stroke-width="3"/></pattern></defs>
)svg";

/// What a rank holds of one range.
struct Held {
  std::string formula, marks;
};
/// By rank and range.
using State = std::map<std::pair<int, int>, Held>;

struct Panel {
  std::string title;
  State state;
};

std::string title_of(const CheckResult& result, const ParameterHistory::Entry& entry) {
  std::string title = "after " + entry.step->name;
  const bool several = result.scenario->schedule->batch.total_micro_batches() > 1;
  if (several && entry.micro_batch >= 0) title += fmt::format(", micro-batch {}", entry.micro_batch);
  return title;
}

/// Moments to draw: the one before the step at fault, and that one.
std::vector<std::size_t> chosen(const CheckResult& result, const ParameterHistory& history, const std::string& asked) {
  std::vector<std::size_t> changed, named;
  std::vector<std::string> names;
  for (std::size_t index = 0; index < history.entries.size(); ++index) {
    const ParameterHistory::Entry& entry = history.entries[index];
    names.push_back(entry.step->name);
    if (entry.changed) changed.push_back(index);
    if (entry.step->name == asked) named.push_back(index);
  }
  if (!asked.empty()) {
    if (named.empty()) {
      throw InputError({Diagnostic{
          {}, fmt::format("no step \"{}\" acts on {}{}", asked, history.parameter, did_you_mean(asked, names))}});
    }
    return {named.back()};
  }
  std::size_t last = changed.empty() ? 0 : changed.size() - 1;
  for (std::size_t index = 0; index < changed.size(); ++index) {
    for (const Blame& blame : result.blame) {
      if (blame.step == history.entries[changed[index]].step->name) last = index;
    }
  }
  if (changed.empty()) return {history.entries.size() - 1};
  if (last == 0) return {changed[0]};
  return {changed[last - 1], changed[last]};
}

class Drawing {
 public:
  Drawing(const CheckResult& result, const ParameterHistory& history, std::vector<Panel> panels)
      : result_(result), history_(history), panels_(std::move(panels)) {
    std::size_t widest = 8;
    for (const Panel& panel : panels_) {
      for (const auto& [place, held] : panel.state) widest = std::max(widest, text_width(line_of(place.second, held)));
    }
    box_width_ = static_cast<int>(std::min(widest, widest_box)) * character + 20;
    box_height_ = static_cast<int>(history_.ranges.size()) * line + 14;
  }

  std::string draw() {
    const int columns = static_cast<int>(history_.plan.columns.size()),
              rows = static_cast<int>(history_.plan.rows.size());
    const int panel_width = label + columns * (box_width_ + gap);
    const int block_height = line + rows * (box_height_ + gap);
    const int top = margin + 2 * line + gap;
    for (std::size_t panel = 0; panel < panels_.size(); ++panel) {
      const int left = margin + static_cast<int>(panel) * (panel_width + panel_gap);
      text("title", left, top, panels_[panel].title);
      for (std::size_t block = 0; block < history_.plan.blocks.size(); ++block)
        draw_block(panels_[panel].state, block, left, top + gap + static_cast<int>(block) * block_height);
      if (panel > 0) {
        text("title", left - panel_gap / 2 - 10, top + gap + line + (block_height - line) / 2, "→");
      }
    }
    int bottom = top + gap + static_cast<int>(history_.plan.blocks.size()) * block_height + line;
    for (std::size_t range = 0; range < history_.ranges.size(); ++range) {
      text("", margin, bottom, "one device has" + range_text(range) + "  " + history_.expected[range]);
      bottom += line;
    }
    text("note", margin, bottom,
         "* handed to the optimizer of this cell's rank · ✗ wrong · ~ stale: another rank owns it");
    if (!history_.plan.omitted.empty()) text("note", margin, bottom += line, "not shown: " + history_.plan.omitted);
    const int drawn = static_cast<int>(panels_.size()) * (panel_width + panel_gap) - panel_gap;
    const int width = 2 * margin + std::max(drawn, 620), height = bottom + margin;
    const std::string title = result_.scenario->title.empty() ? result_.scenario->name : result_.scenario->title;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
        "aria-labelledby=\"title description\">\n<title id=\"title\">{2}</title>\n<desc "
        "id=\"description\">{3}</desc>\n{4}<rect class=\"paper\" width=\"{0}\" height=\"{1}\"/>\n<text class=\"title\" "
        "x=\"{5}\" y=\"{6}\">{7}</text>\n{8}</svg>\n",
        width, height, html_text(clean_text(title)), html_text(clean_text(description_)), style, margin, margin + 14,
        html_text(clean_text(history_.parameter)), body_);
  }

 private:
  std::string range_text(std::size_t range) const {
    if (history_.ranges.size() == 1) return "";
    return fmt::format(" [{}, {})", history_.ranges[range].begin, history_.ranges[range].end);
  }

  std::string line_of(int range, const Held& held) const {
    std::string text = held.formula;
    for (const std::string_view mark : {"~", "*", "✗"}) {
      if (held.marks.find(mark) != std::string::npos) text += fmt::format(" {}", mark);
    }
    const std::string place = range_text(static_cast<std::size_t>(range));
    return place.empty() ? text : place.substr(1) + " " + text;
  }

  void text(std::string_view kind, int x, int y, const std::string& words) {
    body_ += fmt::format("<text{} x=\"{}\" y=\"{}\">{}</text>\n",
                         kind.empty() ? "" : fmt::format(" class=\"{}\"", kind), x, y, html_text(clean_text(words)));
  }

  void draw_block(const State& state, std::size_t block, int left, int top) {
    const GridPlan::Block& plan = history_.plan.blocks[block];
    if (!plan.title.empty()) text("label", left, top + 14, plan.title);
    for (std::size_t column = 0; column < history_.plan.columns.size(); ++column)
      text("label", left + label + static_cast<int>(column) * (box_width_ + gap) + 2, top + 14,
           history_.plan.columns[column]);
    for (std::size_t row = 0; row < history_.plan.rows.size(); ++row) {
      const int y = top + line + static_cast<int>(row) * (box_height_ + gap);
      text("label", left, y + box_height_ / 2 + 4, history_.plan.rows[row]);
      for (std::size_t column = 0; column < plan.ranks[row].size(); ++column)
        box(state, plan.ranks[row][column], left + label + static_cast<int>(column) * (box_width_ + gap), y);
    }
  }

  void box(const State& state, int rank, int x, int y) {
    if (rank < 0) return;
    std::vector<std::pair<std::string, std::string>> lines;  // class and text
    bool wrong = false, stale = true;
    for (std::size_t range = 0; range < history_.ranges.size(); ++range) {
      const auto held = state.find({rank, static_cast<int>(range)});
      if (held == state.end()) continue;
      const std::string& marks = held->second.marks;
      const bool bad = marks.find("✗") != std::string::npos, old = marks.find('~') != std::string::npos;
      wrong = wrong || bad;
      stale = stale && old;
      lines.emplace_back(bad ? "bad" : old ? "faint" : "", line_of(static_cast<int>(range), held->second));
    }
    if (lines.empty()) return;
    body_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"/>\n",
                         wrong   ? "wrong"
                         : stale ? "stale"
                                 : "box",
                         x, y, box_width_, box_height_);
    for (std::size_t index = 0; index < lines.size(); ++index) {
      text(lines[index].first, x + 10, y + 21 + static_cast<int>(index) * line, lines[index].second);
      description_ += fmt::format("rank {}: {}; ", rank, lines[index].second);
    }
  }

  const CheckResult& result_;
  const ParameterHistory& history_;
  std::vector<Panel> panels_;
  int box_width_ = 0, box_height_ = 0;
  std::string body_, description_;
};

}  // namespace

void explain_svg(const CheckResult& result, const ExplainOptions& options, const Write& write) {
  const Subject subject = subject_of(result, options.parameter);
  const std::vector<ParameterHistory> histories = histories_of(result, {subject});
  if (histories.empty()) throw InputError({Diagnostic{{}, "no step of the schedule acts on this parameter"}});
  const ParameterHistory& history = histories.front();
  const std::vector<std::size_t> drawn = chosen(result, history, options.step);
  std::map<std::string, State> states;  // by buffer
  std::vector<Panel> panels;
  for (std::size_t index = 0; index < history.entries.size(); ++index) {
    const ParameterHistory::Entry& entry = history.entries[index];
    State& state = states[entry.step->buffer];
    for (const ParameterHistory::Change& change : entry.changes) {
      state[{history.ranks[at(change.rank)], change.range}] = {history.formulas[at(change.formula)], change.marks};
    }
    if (std::find(drawn.begin(), drawn.end(), index) != drawn.end()) panels.push_back({title_of(result, entry), state});
  }
  write(Drawing(result, history, std::move(panels)).draw());
}

}  // namespace lockstep::report
