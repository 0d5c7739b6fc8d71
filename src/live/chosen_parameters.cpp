// SPDX-License-Identifier: Apache-2.0
#include "src/live/chosen_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "lockstep/diagnostic.h"
#include "src/schedule/selector_list.h"

namespace lockstep::live {

std::vector<char> chosen_parameters(const CapturedRun& run, const Selectors& selectors) {
  std::vector<char> all(run.parameters.size(), 1);
  if (selectors.items().empty()) return all;
  std::vector<std::string> names;
  const std::vector<std::string>& items = selectors.items();
  const schedule::SelectorList list(items);
  std::map<std::string, schedule::SelectorItem> unused;  // of those that choose
  for (const std::string& item : items) {
    schedule::SelectorItem read = schedule::SelectorItem::read(item);
    if (!read.excludes) unused.emplace(item, std::move(read));
  }
  bool any = false;
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const DeclaredParameter& declared = run.parameters[i].declared;
    Parameter parameter;
    parameter.shape = declared.shape;
    std::vector<std::string> own = declared.aliases;
    own.push_back(declared.name);
    bool chosen = false;
    for (const std::string& name : own) {
      parameter.name = name;
      chosen = chosen || list.chooses(parameter, parameter.numel());
      std::erase_if(unused, [&](const auto& one) { return one.second.fits(parameter, parameter.numel(), 0); });
      names.push_back(name);
    }
    all[i] = chosen ? 1 : 0;
    any = any || chosen;
  }
  if (any && unused.empty()) return all;
  const std::string item = unused.empty() ? fmt::format("{}", fmt::join(items, " ")) : unused.begin()->first;
  throw InputError({Diagnostic{
      {}, fmt::format("{}: no parameter fits --parameter {}{}", run.folder, item, did_you_mean(item, names))}});
}

}  // namespace lockstep::live
