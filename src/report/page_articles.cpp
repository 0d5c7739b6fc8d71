// SPDX-License-Identifier: Apache-2.0
#include "src/report/page_articles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "src/report/html.h"
#include "src/report/packed.h"

namespace lockstep::report {

namespace {

/// Stands between the packed parts of scenarios, and in none of them: HTML forbids it and JSON escapes it.
constexpr char separator = '\x1e';

std::string joined(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, "")); }

/// Like parts of the scenarios behind one another: that packs a third better than one scenario behind the other.
std::string packed_articles(const std::vector<Json>& reports, const std::vector<std::size_t>& chosen) {
  std::vector<std::string> streams;
  for (const std::size_t index : chosen) {
    const std::vector<std::string> parts = html_article(reports[index], Detail::whole, true);
    streams.resize(parts.size());
    for (std::size_t part = 0; part < parts.size(); ++part) {
      if (index != chosen.front()) streams[part] += separator;
      streams[part] += parts[part];
    }
  }
  std::string text = fmt::format("<script type=\"application/json\" id=\"packed\">{{\"rows\":[{}],\"streams\":[",
                                 fmt::join(chosen, ","));
  for (std::size_t stream = 0; stream < streams.size(); ++stream)
    text += fmt::format("{}\"{}\"", stream == 0 ? "" : ",\n", packed(streams[stream]));
  return text + "]}</script>\n";
}

class PageSpace {
 public:
  PageSpace(const std::vector<Json>& reports, std::size_t space)
      : reports_(reports), space_(space), order_(reports.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return page_priority(reports_[a]) < page_priority(reports_[b]);
    });
    articles_.details.assign(reports.size(), Detail::row);
    texts_.resize(reports.size());
  }

  PageArticles fill() {
    if (!all_whole()) {
      pack();
      for (const bool wrong : {true, false}) {
        for (const Detail detail : {Detail::findings, Detail::ranks, Detail::text, Detail::whole}) raise(wrong, detail);
      }
    }
    articles_.text = joined(texts_);
    return std::move(articles_);
  }

 private:
  bool all_whole() {
    std::size_t used = 0;
    for (std::size_t index = 0; index < reports_.size(); ++index) {
      texts_[index] = joined(html_article(reports_[index], Detail::whole, true));
      used += texts_[index].size();
      // A single scenario is shown whole, however large it is: nothing else would be left to look at.
      if (used > space_ && reports_.size() > 1) {
        texts_.assign(reports_.size(), "");
        return false;
      }
    }
    articles_.details.assign(reports_.size(), Detail::whole);
    return true;
  }

  /// As many as have room, the first of them by priority.
  void pack() {
    const auto some = [&](std::size_t count) {
      std::vector<std::size_t> chosen(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count));
      std::sort(chosen.begin(), chosen.end());
      return packed_articles(reports_, chosen);
    };
    std::size_t fits = 0, too_many = reports_.size() + 1;
    for (std::size_t count = reports_.size(); too_many - fits > 1; count = fits + (too_many - fits) / 2) {
      std::string data = some(count);
      if (data.size() > space_) {
        too_many = count;
        continue;
      }
      fits = count;
      articles_.data = std::move(data);
    }
    articles_.packed = fits;
    used_ = articles_.data.size();
  }

  void raise(bool wrong, Detail detail) {
    for (const std::size_t index : order_) {
      // Nothing is skipped: ranks without findings would be worth little.
      if (static_cast<int>(articles_.details[index]) != static_cast<int>(detail) - 1) continue;
      if ((page_priority(reports_[index]) < 2) != wrong) continue;
      std::string text = joined(html_article(reports_[index], detail, false));
      if (used_ - texts_[index].size() + text.size() > space_) continue;
      used_ = used_ - texts_[index].size() + text.size();
      texts_[index] = std::move(text);
      articles_.details[index] = detail;
    }
  }

  const std::vector<Json>& reports_;
  std::size_t space_, used_ = 0;
  std::vector<std::size_t> order_;  ///< by priority
  PageArticles articles_;
  std::vector<std::string> texts_;
};

}  // namespace

int page_priority(const Json& report) {
  const Json* expected = report.find("expected");
  if (expected != nullptr && expected->is_boolean() && !expected->as_boolean()) return 0;
  return text_at(report, "verdict") == "match" ? 2 : 1;
}

PageArticles page_articles(const std::vector<Json>& reports, std::size_t space) {
  return PageSpace(reports, space).fill();
}

}  // namespace lockstep::report
