// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/diagnostic.h"
#include "src/base/budget.h"
#include "src/expression/lexer.h"
#include "src/expression/node.h"

namespace lockstep::expression {
namespace {

bool is_comparison(const Token& token) {
  return token.kind == Token::Kind::symbol &&
         (token.text == "==" || token.text == "!=" || token.text[0] == '<' || token.text[0] == '>');
}

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokenize(text)) {}

  NodePointer whole() {
    if (here().kind == Token::Kind::end) throw ExpressionError("the expression is empty", 0);
    NodePointer result = disjunction();
    if (here().kind != Token::Kind::end) unexpected("an operator or the end of the expression");
    refuse_end(result);
    return result;
  }

 private:
  /// Counts brackets and prefix operators around what is parsed.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > nesting_limit) {
        throw ExpressionError("the expression is nested deeper than " + std::to_string(nesting_limit) + " levels",
                              parser_.here().offset);
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const Token& here() const { return tokens_[at_]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool accept(std::string_view symbol) {
    if (!here().is(symbol)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) unexpected("\"" + std::string(symbol) + "\"");
  }
  [[noreturn]] void unexpected(const std::string& expected) const {
    const std::string found = here().kind == Token::Kind::end ? "the expression ends" : "found \"" + here().text + "\"";
    throw ExpressionError("expected " + expected + ", but " + found, here().offset, here().length);
  }

  static std::shared_ptr<Node> make(Node::Kind kind, const Token& token) {
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->offset = token.offset;
    node->length = token.length;
    node->text = token.text;
    return node;
  }
  static NodePointer with_children(const std::shared_ptr<Node>& node, std::vector<NodePointer> children) {
    set_children(*node, std::move(children));
    if (node->depth > depth_limit) {
      throw ExpressionError("the expression has more than " + std::to_string(depth_limit) + " operators in a row",
                            node->offset, node->length);
    }
    return node;
  }

  /// first and last mean nothing by themselves.
  static void refuse_end(const NodePointer& node) {
    if (node->kind != Node::Kind::end) return;
    throw ExpressionError(
        "\"" + node->text +
            "\" can only be compared with rank.AXIS, micro_batch or step, as in \"rank.pp == " + node->text + "\"",
        node->offset, node->length);
  }

  template <typename Operand>
  NodePointer chain(std::initializer_list<std::string_view> operators, Operand operand) {
    NodePointer left = operand();
    while (std::any_of(operators.begin(), operators.end(), [&](std::string_view o) { return here().is(o); })) {
      const Token token = take();
      NodePointer right = operand();
      refuse_end(left);
      refuse_end(right);
      left = with_children(make(Node::Kind::binary, token), {left, right});
    }
    return left;
  }

  NodePointer disjunction() {
    return chain({"or"}, [this] { return conjunction(); });
  }
  NodePointer conjunction() {
    return chain({"and"}, [this] { return negation(); });
  }
  NodePointer negation() {
    if (!here().is("not")) return comparison();
    const Nesting nesting(*this);
    const Token token = take();
    NodePointer operand = negation();
    refuse_end(operand);
    return with_children(make(Node::Kind::logical_not, token), {operand});
  }

  NodePointer comparison() {
    NodePointer left = sum();
    if (!is_comparison(here())) return left;
    const Token token = take();
    NodePointer right = sum();
    if (is_comparison(here())) {
      throw ExpressionError("comparisons do not chain; write \"a < b and b < c\"", here().offset, here().length);
    }
    const auto has_ends = [](const NodePointer& node) {
      return node->kind == Node::Kind::rank_axis || node->kind == Node::Kind::micro_batch ||
             node->kind == Node::Kind::step;
    };
    if (!has_ends(right)) refuse_end(left);
    if (!has_ends(left)) refuse_end(right);
    return with_children(make(Node::Kind::binary, token), {left, right});
  }

  NodePointer sum() {
    return chain({"+", "-"}, [this] { return product(); });
  }
  NodePointer product() {
    return chain({"*", "/"}, [this] { return unary(); });
  }
  NodePointer unary() {
    if (!here().is("-")) return primary();
    const Nesting nesting(*this);
    const Token token = take();
    NodePointer operand = unary();
    refuse_end(operand);
    return with_children(make(Node::Kind::negate, token), {operand});
  }

  NodePointer primary() {
    const Token token = here();
    switch (token.kind) {
      case Token::Kind::number: {
        take();
        const std::optional<Rational> number = Rational::parse(token.text);
        if (!number)
          throw ExpressionError("the number \"" + token.text + "\" is out of range", token.offset, token.length);
        return value(token, *number);
      }
      case Token::Kind::string:
        take();
        return value(token, token.text);
      case Token::Kind::name:
        return name();
      case Token::Kind::symbol:
        if (token.text == "(") {
          const Nesting nesting(*this);
          take();
          NodePointer inner = disjunction();
          expect(")");
          return inner;
        }
        break;
      case Token::Kind::end:
        break;
    }
    unexpected("a value");
  }

  static NodePointer value(const Token& token, ExpressionValue content) {
    auto node = make(Node::Kind::value, token);
    node->value = std::move(content);
    return node;
  }

  NodePointer name() {
    if (here().is("and") || here().is("or") || here().is("not")) unexpected("a value");
    const Token token = take();
    const std::string& word = token.text;
    if (here().is("(")) return word == "sum" ? sum_of_tokens(token) : call(token);
    if (word == "sum" || std::find(functions().begin(), functions().end(), word) != functions().end()) {
      throw ExpressionError("\"" + word + "\" is a function; write \"" + word + "(…)\"", token.offset, token.length);
    }
    if (word == "true" || word == "false") return value(token, word == "true");
    if (word == "first" || word == "last") return make(Node::Kind::end, token);
    if (word == "micro_batch") return make(Node::Kind::micro_batch, token);
    if (word == "step") return make(Node::Kind::step, token);
    if (word == "rank" || word.starts_with("rank.")) {
      auto node = make(Node::Kind::rank_axis, token);
      node->axis = axis(word.size() > 5 ? word.substr(5) : "", token);
      return node;
    }
    if (word == "tokens" || word.starts_with("tokens.")) return tokens(token);
    return make(Node::Kind::name, token);
  }

  static Axis axis(const std::string& word, const Token& token) {
    if (const std::optional<Axis> found = axis_named(word)) return *found;
    if (word.empty()) {
      throw ExpressionError("\"rank\" by itself is no number; write \"rank.AXIS\", as in \"rank.pp\"", token.offset,
                            token.length);
    }
    const std::string hint = did_you_mean(word, axis_names());
    throw ExpressionError("there is no axis \"" + word + "\"" + hint, token.offset, token.length);
  }

  static std::shared_ptr<Node> tokens(const Token& token) {
    auto node = make(Node::Kind::tokens, token);
    node->text = token.text == "tokens" ? "main" : token.text.substr(7);
    return node;
  }

  NodePointer call(const Token& token) {
    if (std::find(functions().begin(), functions().end(), token.text) == functions().end()) {
      std::vector<std::string> known = functions();
      known.push_back("sum");
      const std::string hint = did_you_mean(token.text, known);
      throw ExpressionError("there is no function \"" + token.text + "\"" +
                                (hint.empty() ? "; there are lcm, min, max, floor, ceil and sum" : hint),
                            token.offset, token.length);
    }
    const Nesting nesting(*this);
    expect("(");
    std::vector<NodePointer> arguments;
    do {
      arguments.push_back(disjunction());
      refuse_end(arguments.back());
    } while (accept(","));
    expect(")");
    if ((token.text == "floor" || token.text == "ceil") && arguments.size() != 1) {
      throw ExpressionError("\"" + token.text + "\" takes one number, found " + std::to_string(arguments.size()),
                            token.offset, token.length);
    }
    return with_children(make(Node::Kind::call, token), std::move(arguments));
  }

  /// sum(tokens[.USE], AXES…, micro_batch)
  NodePointer sum_of_tokens(const Token& token) {
    expect("(");
    const Token what = take();
    if (!what.is("tokens") && !(what.kind == Token::Kind::name && what.text.starts_with("tokens."))) {
      throw ExpressionError("\"sum\" adds up tokens: write \"sum(tokens, AXES, micro_batch)\"", what.offset,
                            what.length);
    }
    auto node = make(Node::Kind::sum, token);
    node->text = tokens(what)->text;
    while (accept(",")) {
      const Token word = take();
      if (word.kind != Token::Kind::name) {
        throw ExpressionError("expected an axis or micro_batch to sum over", word.offset, word.length);
      }
      if (word.is("micro_batch")) {
        node->all_micro_batches = true;
        continue;
      }
      if (word.is("micro_batches")) {
        throw ExpressionError("to sum over the micro-batches, write \"micro_batch\"", word.offset, word.length);
      }
      const Axis over = axis(word.text, word);
      switch (over) {
        case Axis::dp:
        case Axis::cp:
        case Axis::sp:
        case Axis::dp_shard:
        case Axis::dp_replicate:
          node->axes.push_back(over);
          break;
        default:
          throw ExpressionError(
              "the tokens are not split along \"" + word.text + "\"; sum them over dp, cp, sp or micro_batch",
              word.offset, word.length);
      }
    }
    expect(")");
    if (node->axes.empty() && !node->all_micro_batches) {
      throw ExpressionError("\"sum\" needs what to sum over: axes (dp, cp, sp) or micro_batch", token.offset,
                            token.length);
    }
    return node;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

const std::vector<std::string>& functions() {
  static const std::vector<std::string> all = made_once([] {
    return std::vector<std::string>{"lcm", "min", "max", "floor", "ceil"};
  });
  return all;
}

NodePointer parse(std::string_view text) { return Parser(text).whole(); }

}  // namespace lockstep::expression
