// SPDX-License-Identifier: Apache-2.0
// The only file that includes CLI11, which compiles slowly.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>

#include "lockstep/diagnostic.h"
#include "src/cli/command.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

/// "[FILES...]" as "FILES".
std::string argument_name(const std::string& flags) {
  std::string name;
  for (const char c : flags) {
    if (c != '[' && c != ']' && c != '.') name += c;
  }
  return name;
}

void add_row(CLI::App& app, const OptionRow& row) {
  const std::string name = row.is_argument() ? argument_name(row.flags) : row.flags;
  CLI::Option* option = std::visit(
      [&](auto* target) -> CLI::Option* {
        if constexpr (std::is_same_v<decltype(target), bool*>) {
          return app.add_flag(name, *target, row.help);
        } else {
          return app.add_option(name, *target, row.help);
        }
      },
      row.target);
  const bool list = std::holds_alternative<std::vector<std::string>*>(row.target);
  if (row.is_argument() && row.flags.front() != '[') option->required();
  // An option takes one value at a time: --report A --report B FILE.
  if (!row.is_argument() && list)
    option->expected(1)->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (!row.is_argument() && !list) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

int complain(const Command& command, const std::string& message) {
  tell(fmt::format("lockstep {}: {}\nSee `lockstep {} --help`.\n", command.name, report::one_line_text(message),
                   command.name));
  return exit_usage;
}

/// An option that the command does not have, or one without its value, with an empty one, as a variable of a script
/// that is not set leaves it, or with one that it does not take, in words; "" where all are as they should be.
std::string wrong_option(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> known = {"-h", "--help"};
  std::map<std::string, std::string> with_value;  // what it is called
  for (const OptionRow& row : command.options) {
    if (row.is_argument()) continue;
    for (std::string& flag : split_at(',', row.flags)) {
      if (!row.is_flag()) with_value.emplace(flag, row.value);
      known.push_back(std::move(flag));
    }
  }
  const auto in = [](const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    const std::string& argument = arguments[index];
    if (argument == "--") break;
    if (const auto option = with_value.find(argument); option != with_value.end()) {
      ++index;  // its value may look like anything
      if (index == arguments.size()) return fmt::format("{} needs a value, {}", argument, option->second);
      if (arguments[index].empty()) return fmt::format("{} needs a value, {}; found \"\"", argument, option->second);
      continue;
    }
    if (argument.empty()) return "found \"\", an empty argument";
    if (argument.size() < 2 || argument[0] != '-') continue;
    const std::string name =
        argument.starts_with("--") ? argument.substr(0, argument.find('=')) : argument.substr(0, 2);
    if (in(known, name)) {
      const auto option = with_value.find(name);
      if (option != with_value.end() && argument.size() == name.size() + 1 && argument.ends_with('='))
        return fmt::format("{} needs a value, {}; found \"\"", name, option->second);
      if (name != argument && argument.starts_with("--") && with_value.count(name) == 0)
        return fmt::format("{} takes no value; found \"{}\"", name, argument.substr(name.size() + 1));
      continue;
    }
    std::vector<std::string> long_names;
    std::copy_if(known.begin(), known.end(), std::back_inserter(long_names),
                 [](const std::string& flag) { return flag.starts_with("--"); });
    return fmt::format("there is no option {}{}", name, did_you_mean(name, long_names));
  }
  return "";
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

/// "SHELL is required" goes on with what it may be.
std::string choices_of(const Command& command, const std::string& complaint) {
  for (const OptionRow& row : command.options) {
    if (row.is_argument() && !row.choices.empty() && complaint.starts_with(argument_name(row.flags)))
      return fmt::format(": one of {}", joined(row.choices));
  }
  return "";
}

/// A value that an option does not allow, in words; "" where all are fine.
std::string wrong_choice(const Command& command) {
  for (const OptionRow& row : command.options) {
    const auto* target = std::get_if<std::string*>(&row.target);
    if (row.choices.empty() || target == nullptr) continue;
    const std::string& value = **target;
    if (std::find(row.choices.begin(), row.choices.end(), value) != row.choices.end()) continue;
    return fmt::format("{} takes one of {}; found \"{}\"{}", split_at(',', row.flags).back(), joined(row.choices),
                       value, did_you_mean(value, row.choices));
  }
  return "";
}

}  // namespace

int parse_arguments(const Command& command, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "-h" || argument == "--help") {
      return print_text(command_help(command));
    }
  }
  const std::string wrong_one = wrong_option(command, arguments);
  if (!wrong_one.empty()) return complain(command, wrong_one);
  CLI::App app;
  app.set_help_flag();
  for (const OptionRow& row : command.options) add_row(app, row);
  auto end = arguments.end();
  if (command.rest != nullptr) {
    end = std::find(arguments.begin(), arguments.end(), "--");
    if (end != arguments.end()) command.rest->assign(end + 1, arguments.end());
  }
  // CLI11 takes the arguments in reverse.
  std::vector<std::string> reversed(std::make_reverse_iterator(end), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ConversionError& error) {
    // Numbers are the only values that need converting: "Could not convert: --seed = x".
    const std::string what = error.what();
    const std::size_t flag = what.find("--"), equals = what.find(" = ", flag);
    if (flag == std::string::npos || equals == std::string::npos) return complain(command, what);
    return complain(command, fmt::format("{} takes a whole number of at least 0; found \"{}\"",
                                         what.substr(flag, equals - flag), what.substr(equals + 3)));
  } catch (const CLI::ExtrasError& error) {
    // "The following argument was not expected: x"
    const std::string what = error.what();
    const std::size_t colon = what.find(": ");
    if (colon == std::string::npos) return complain(command, what);
    const std::string behind = command.rest == nullptr ? "" : fmt::format("; {} stands after --", command.rest_name);
    return complain(command, fmt::format("unexpected argument \"{}\"{}", what.substr(colon + 2), behind));
  } catch (const CLI::RequiredError& error) {
    return complain(command, error.what() + choices_of(command, error.what()));
  } catch (const CLI::ParseError& error) {
    return complain(command, error.what());
  }
  const std::string wrong = wrong_choice(command);
  return wrong.empty() ? -1 : complain(command, wrong);
}

}  // namespace lockstep::cli
