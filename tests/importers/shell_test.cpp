// SPDX-License-Identifier: Apache-2.0
#include "src/importers/shell.h"

#include <memory>

#include "tests/catch.h"

using namespace lockstep;

namespace {

/// The words of the last command, "?" for those that are not known, with | between them.
std::string last_command(const std::string& text, const std::map<std::string, std::string>& variables = {}) {
  Diagnostics diagnostics;
  const auto commands =
      importers::read_shell(std::make_shared<const Source>(Source{"run.sh", text}), variables, diagnostics);
  std::string result;
  if (!diagnostics.empty()) return render(diagnostics.sorted().front());
  if (commands.empty()) return "none";
  for (const importers::Word& word : commands.back().words) {
    result += (result.empty() ? "" : "|") + (word.unresolved.empty() ? word.text : std::string("?"));
  }
  return result;
}

/// What stands in the script at the places of the words of the last command, with | between them.
std::string places_in_last_command(const std::string& text) {
  Diagnostics diagnostics;
  const auto commands = importers::read_shell(std::make_shared<const Source>(Source{"run.sh", text}), {}, diagnostics);
  std::string result;
  for (const importers::Word& word : commands.back().words) {
    result += (result.empty() ? "" : "|") + text.substr(word.place.begin, word.place.end - word.place.begin);
  }
  return result;
}

/// What the last `run` rests on that is set behind its function, which stands in front of a colon.
std::string set_later(const std::string& text) {
  Diagnostics diagnostics;
  std::string result = "none";
  for (const auto& command :
       importers::read_shell(std::make_shared<const Source>(Source{"run.sh", text}), {}, diagnostics)) {
    if (command.words.front().text != "run") continue;
    result = command.function + ":";
    if (command.set_later == nullptr) continue;
    for (const auto& [name, line] : *command.set_later) result += name + "@" + std::to_string(line);
  }
  return result;
}

}  // namespace

TEST_CASE("what a function reads and something behind it sets is told, however it sets it") {
  const std::string start = "A=2\nstart() { run $A; }\n";
  for (const char* sets :
       {"A=4", "read A <<< 4", "let A=4", "((A*=2))", ": ${B:=1}; let A=4", "for A in 4; do start; done",
        "set() { A=4; }", "main() { local A=4; start; }", "unset A", "printf -v A 4", "A=4 start"})
    CHECK(set_later(start + sets).find("A@3") != std::string::npos);
  CHECK(set_later("A=1\nstart() { run $((A*2)); }\nA=2") == "start:A@3");
  CHECK(set_later("A=1\nstart() { run ${A:-3} \"${A[@]}\"; }\nA=2") == "start:A@3");
  CHECK(set_later("A=1\nstart() ( run $A )\nA=2") == "start:A@3");
}

TEST_CASE("a function reads nothing in comments, in single quotes and of what it declares") {
  CHECK(set_later("start() {\n  # $A names it\n  run '$A'\n}\nA=2") == "start:");
  CHECK(set_later("start() {\n  local A=1\n  run $A\n}\nA=2") == "start:");
  CHECK(set_later("start() {\n  local A=$A\n  run $A\n}\nA=2") == "start:A@5");
  CHECK(set_later("start() {\n  if x; then local A=1; fi\n  run $A\n}\nA=2") == "start:A@5");
  CHECK(set_later("start() {\n  declare -g A=1\n  run $A\n}\nA=2") == "start:A@5");
}

TEST_CASE("the body of a function is what stands behind its name, and no later one") {
  CHECK(set_later("A=1\nlog() ( echo hi )\n{\n  run $A\n}\nA=2") == ":");
  CHECK(set_later("A=1\nlog() if x; then echo hi; fi\n{\n  run $A\n}\nA=2") == ":");
  CHECK(set_later("A=1\nlog()\n\n{\n  run $A\n}\nA=2") == "log:A@7");
  CHECK(set_later("A=1\nlog() { (echo hi); { run $A; }; }\nA=2") == "log:A@3");
}

TEST_CASE("the arguments of a function are not those of the script") {
  CHECK(last_command("start() { run ${1:-2} $1 $# \"$2\"; }") == "run|?|?|?|?");
  CHECK(last_command("start() { run $1; }", {{"1", "x"}}) == "run|?");
  CHECK(last_command("start() { run $1; }\nrun ${1:-2} $A", {{"A", "x"}}) == "run|2|x");
}

TEST_CASE("a call sets what its function sets") {
  CHECK(last_command("f() { A=4; }\nA=2\nf\nrun $A") == "run|?");
  CHECK(last_command("f() { local A=4; }\nA=2\nf\nrun $A") == "run|2");
  CHECK(last_command("f() ( A=4 )\nA=2\nf\nrun $A") == "run|2");
  CHECK(last_command("f() { A=4; }\ng() { f; }\nA=2\ng\nrun $A") == "run|?");
}

TEST_CASE("a word stands at its own characters, and what a variable holds where it was written") {
  CHECK(places_in_last_command("run one 'b c' $X\n") == "run|one|b c|$X");
  CHECK(places_in_last_command("X='a  bc'\nrun $X\n") == "run|a|bc");
  CHECK(places_in_last_command("X=\\\\\nrun $X\n") == "run|\\\\");  // as it is escaped
}

TEST_CASE("a dollar sign that begins no name is one") {
  CHECK(last_command("run out/$ x") == "run|out/$|x");
  CHECK(last_command("run \"$ $\" $") == "run|$ $|$");
}

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
  CHECK(importers::shell_arithmetic("-(2 - 5) * 7") == 21);
  CHECK(importers::shell_arithmetic("9223372036854775807 + 1") == std::nullopt);
}

TEST_CASE("nothing is executed: what needs it is not known") {
  CHECK(last_command("A=$(hostname)\nrun $A `date` x$A") == "run|?|?|?");
  CHECK(last_command("if true; then A=1; fi\nrun $A") == "run|?");
  CHECK(last_command("for i in 1 2; do B=$i; done\nrun $B") == "run|?");
  CHECK(last_command("run $1 $@ ${A%x}") == "run|?|?|?");
}

TEST_CASE("what is set behind &&, || or | or in brackets is not known") {
  CHECK(last_command("A=1\n[ -n x ] && A=2\nrun $A") == "run|?");
  CHECK(last_command("A=1\ntest x || export A=2\nrun $A") == "run|?");
  CHECK(last_command("A=1\ntest x &&\n\n  A=2\nrun $A") == "run|?");
  CHECK(last_command("A=1\necho x | A=2\nrun $A") == "run|?");
  CHECK(last_command("A=1\n( A=2; B=3 )\nrun $A $B") == "run|?|?");
  CHECK(last_command("A=1\n[ -n x ] && unset A\nrun $A") == "run|?");
  // The line behind is certain again.
  CHECK(last_command("test x && true\nA=2\nrun $A") == "run|2");
  CHECK(last_command("test x || { true; }\n(true) && (true)\nA=2; B=3\nrun $A $B") == "run|2|3");
  CHECK(last_command("sleep 1 & A=2\nrun $A") == "run|2");
}

TEST_CASE("what is set in the background is set in a shell of its own") {
  CHECK(last_command("A=2\nA=4 &\nrun $A") == "run|?");
  CHECK(last_command("A=(a)\nA+=(b) &\nrun ${A[@]}") == "run|?");
  CHECK(last_command("A=2\nexport A=4 & B=1\nrun $A $B") == "run|?|1");
  CHECK(last_command("A=2\nA=4 other &\nrun $A") == "run|2");
  CHECK(last_command("A=2 && run $A") == "run|2");
  CHECK(last_command("A=2 &> log\nrun $A &>> log") == "run|2");
}

TEST_CASE("a function with its keyword is executed when it is called") {
  CHECK(last_command("A=2\nfunction f { A=4; }\nf\nrun $A") == "run|?");
  CHECK(last_command("A=2\nfunction f {\n  A=4\n}\nf\nrun $A") == "run|?");
  CHECK(last_command("A=2\nfunction f() {\n  B=4\n}\nA=3\nrun $A") == "run|3");
  CHECK(last_command("A=2\nfunction f { B=4; }\nA=3\nrun $A $B") == "run|3|?");
}

TEST_CASE("numbers and names in arithmetic that a shell reads in another way are not known") {
  CHECK(last_command("run $((010)) $((0)) $((10))") == "run|?|0|10");
  CHECK(last_command("A=1+1\nrun $(($A*2)) $((A*2)) $((${A}))") == "run|?|4|?");
  CHECK(last_command("A=08\nrun $((A))") == "run|?");
  CHECK(last_command("run $((0x4)) $(($1 * 2)) $((${1}))") == "run|?|?|?");
  CHECK(last_command("B=3\nrun $((2 + B)) $((2+$B*10))") == "run|5|32");
}

TEST_CASE("a line that goes on is joined with the next one") {
  CHECK(last_command("A=\\\n4\nrun $A") == "run|4");
  CHECK(last_command("run --x 1\\\n2 \"a\\\nb\"") == "run|--x|12|ab");
}

TEST_CASE("an assignment in front of a command is for that command alone") {
  CHECK(last_command("A=1\nA=2 B=3 true\nrun $A $B") == "run|1|?");
  CHECK(last_command("A=1\nA=2 run $A") == "run|1");
  CHECK(last_command("A=1\nA=2 > out\nrun $A") == "run|2");
}

TEST_CASE("a default that is doubled again and again stands once, and what it sets stays set") {
  std::string text = "A=\"${B:-}\"\n";
  for (int i = 0; i < 60; ++i) text += "A=\"$A$A\"\n";
  CHECK(last_command(text + "run \"$A\" end") == "run||end");
  CHECK(last_command("A=\"${B:-${C:=x}}\"\nrun $A $C") == "run|x|x");
}

TEST_CASE("a script that stands for more text than anybody writes is a mistake in its line") {
  const std::string limit =
      "error: the variables of this script stand for more than 64 MiB of text; give the arguments after --\n";
  const auto doubled = [](const std::string& first, const std::string& again, int times) {
    std::string text = first + "\n";
    for (int i = 0; i < times; ++i) text += again + "\n";
    return text + "run $A\n";
  };
  const auto fails = [&](const std::string& text) { return last_command(text).find(limit) != std::string::npos; };
  // Words that a default holds, split where they are used.
  CHECK(fails(doubled("A=\"${B:-x }\"", "A=\"${B:-$A$A}\"", 40)));
  // Sentences on what is not known.
  CHECK(fails(doubled("A=\"$B\"", "A=\"$A$A\"", 40)));
  // Many variables with long texts.
  std::string text = "A=0123456789\n";
  for (int i = 0; i < 16; ++i) text += "A=$A$A\n";
  CHECK_FALSE(fails(text + "run 1\n"));
  for (int i = 0; i < 100; ++i) text += "A" + std::to_string(i) + "=$A\n";
  CHECK(fails(text + "run 1\n"));
  // Elements of arrays.
  text = "A=(0123456789)\n";
  for (int i = 0; i < 20; ++i) text += "A=(\"${A[@]}\" \"${A[@]}\")\n";
  CHECK(last_command(text + "run 1\n").starts_with("run.sh:18:1: error: "));
  CHECK(last_command("A=\"" + std::string(120'000, 'x') + "\"\nB=\"x \"\n" + doubled("C=1", "B=\"$B$B\"", 17) +
                     "run $B\n")
            .find("expected at most 100000 words in a command or an array, found more") != std::string::npos);
}

TEST_CASE("a text of very many small pieces is put together once") {
  std::string text = "A=";
  for (int i = 0; i < 200'000; ++i) text += "\\a";
  CHECK(last_command(text + "\nrun 1") == "run|1");
}

TEST_CASE("variables that arithmetic changes are not known") {
  CHECK(last_command("A=1 B=1 C=1 D=1\nlet A=2 B++ 'C += 3'\nrun $A $B $C $D") == "run|?|?|?|1");
  CHECK(last_command("A=1 B=2 C=1 D=1\n((A=4, ++B, C == 2, D <= B))\nrun $A $B $C $D") == "run|?|?|1|1");
  CHECK(last_command("A=1 B=3\ntrue $((A++)) $((B + 1)) $((B=2))\nrun $A $B") == "run|?|?");
  CHECK(last_command("A=3\nrun $((++A))") == "run|?");
  CHECK(last_command("A=1\nfor ((i=0; i<4; i++)); do A=2; done\nB=3\nrun $A $i $B") == "run|?|?|3");
}

TEST_CASE("appending again and again keeps text, elements and what is given") {
  std::string text = "A=0\nB=(0)\n";
  for (int i = 0; i < 500; ++i) text += "A+=1\nB+=(1)\n";
  CHECK(last_command(text + "run ${#B[@]}") == "run|501");
  CHECK(last_command("A=x\nA+=y\nA+=z\nrun $A") == "run|xyz");
  CHECK(last_command("A+=y\nrun $A", {{"A", "out"}}) == "run|out");
}

TEST_CASE("elements of arrays that are set or removed one by one make the array unknown") {
  CHECK(last_command("A=(--x 2)\nA[1]=4\nrun \"${A[@]}\"") == "run|?");
  CHECK(last_command("A=(--x 2)\nA[${#A[@]}]=--y\nrun \"${A[@]}\"") == "run|?");
  CHECK(last_command("A=(--x 2)\nA[1]+=4; B=1\nrun \"${A[@]}\" $B") == "run|?|1");
  CHECK(last_command("A=(--x 2)\ndeclare A[1]=4\nrun \"${A[@]}\"") == "run|?");
  CHECK(last_command("A=(--x 2)\nunset 'A[1]'\nrun \"${A[@]}\"") == "run|?");
  CHECK(last_command("A=(--x 2)\nrun A[1]=4 \"${A[@]}\"") == "run|A[1]=4|--x|2");
  CHECK(last_command("A[\nrun b") == "run|b");
}

TEST_CASE("variables that commands of the shell write are not known") {
  for (const char* writer : {"eval \"A=4\"",
                             "eval A=4",
                             "eval 'read A'",
                             "printf -v A 4",
                             "printf -vA 4",
                             "mapfile -t A < a",
                             "readarray A < a",
                             "mapfile -t A < <(echo 4)",
                             "getopts t: A",
                             "declare $N=4",
                             "export \"$N=4\"",
                             "export \"A=4\"",
                             "local $N=4",
                             "command read A",
                             "builtin printf -v A 4",
                             "trap 'A=4' DEBUG",
                             "declare -u A",
                             "read -r A",
                             "readonly A=1\nA=4",
                             "declare -r A\nA=4",
                             "declare -i A\nA+=1",
                             "trap 'A=4' ERR\nA=2",
                             "readonly A\nunset A"}) {
    INFO(writer);
    CHECK(last_command("A=2 N=A\n" + std::string(writer) + "\nrun $A end") == "run|?|end");
    CHECK(last_command("N=A\n" + std::string(writer) + "\nrun ${A:-2} end") == "run|?|end");
  }
  CHECK(last_command("A=2\neval \"python x.py --B=$A\"\nrun $A") == "run|2");
  CHECK(last_command("A=2\ntrap 'A=4' EXIT\nprintf '%s' A\nexport A\nrun $A") == "run|2");
  CHECK(last_command("A=2\nreadonly A\nrun $A") == "run|2");
  CHECK(last_command("A=2\neval A=4\nA=3\nrun $A", {}) == "run|3");
  CHECK(last_command("A=2\neval A=4\nrun $A", {{"A", "8"}}) == "run|8");
  const std::string unnamed = "sets a variable whose name is not known here";
  CHECK(last_command("A=2\nM=(A 4)\ndeclare \"${M[0]}=${M[1]}\"\nrun $A").find(unnamed) != std::string::npos);
  CHECK(last_command("A=2\nfor N in A; do read $N; done\nrun $A").find(unnamed) != std::string::npos);
  CHECK(last_command("A=2\nwhile getopts :t: opt \"$@\"; do true; done\nread -p \"$P\" B\nrun $A $B") == "run|2|?");
  CHECK(last_command("A=2\nexport $(cat .env)\nrun $A") == "run|2");  // with a note
  CHECK(last_command("A=2\ndeclare -n B=A\nB=4\nrun $A").find("gives a variable a second name") != std::string::npos);
}
