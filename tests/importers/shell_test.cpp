// SPDX-License-Identifier: Apache-2.0
#include "src/importers/shell.h"

#include <memory>

#include "tests/catch.h"

using namespace lockstep;

namespace {

/// The words of the last command, "?" for those that are not known, with | between them.
std::string last_command(const std::string& text, const std::map<std::string, std::string>& variables = {}) {
  const auto commands = read_shell(std::make_shared<const Source>(Source{"run.sh", text}), variables);
  std::string result;
  if (commands.empty()) return "none";
  for (const Word& word : commands.back().words) {
    result += (result.empty() ? "" : "|") + (word.unresolved.empty() ? word.text : std::string("?"));
  }
  return result;
}

}  // namespace

TEST_CASE("variables are put in and split as a shell does") {
  CHECK(last_command("A='x y'\nrun $A \"$A\" pre$A-post") == "run|x|y|x y|prex|y-post");
  CHECK(last_command("A=1 B=2\nrun ${A}$B '$A' \\$A \"\\$A\"") == "run|12|$A|$A|$A");
  CHECK(last_command("export A=1\nA+=0\nrun $A") == "run|10");
  CHECK(last_command("A=1\nunset A\nrun $A") == "run|?");
  CHECK(last_command("run ${A:-x} ${A-y} ${B:=z} $B", {}) == "run|x|y|z|z");
  CHECK(last_command("A=in\nrun $A", {{"A", "out"}}) == "run|out");
}

TEST_CASE("arrays keep their elements, comments and line ends are skipped") {
  CHECK(last_command("A=(\n  --x 1 # one\n  \"b c\"\n)\nA+=(d)\nrun \"${A[@]}\" ${#A[@]}") == "run|--x|1|b c|d|4");
  CHECK(last_command("run a \\\n  b # c\n") == "run|a|b");
  CHECK(last_command("run a > out.log 2>&1") == "run|a");
  CHECK(last_command("cat <<EOF\nA=1\nEOF\nrun b") == "run|b");
}

TEST_CASE("arithmetic is calculated") {
  CHECK(last_command("A=4\nrun $((A*2)) $(( $A + ${A} / 2 )) $((2**3 % 5))") == "run|8|6|3");
  CHECK(last_command("run $((1/0)) $((x y))") == "run|?|?");
  CHECK(shell_arithmetic("-(2 - 5) * 7") == 21);
  CHECK(shell_arithmetic("9223372036854775807 + 1") == std::nullopt);
}

TEST_CASE("nothing is executed: what needs it is not known") {
  CHECK(last_command("A=$(hostname)\nrun $A `date` x$A") == "run|?|?|?");
  CHECK(last_command("if true; then A=1; fi\nrun $A") == "run|?");
  CHECK(last_command("for i in 1 2; do B=$i; done\nrun $B") == "run|?");
  CHECK(last_command("run $1 $@ ${A%x}") == "run|?|?|?");
}
