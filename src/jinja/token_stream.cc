// SPDX-License-Identifier: Apache-2.0
#include "jinja/token_stream.h"

#include "jinja/value.h"

namespace longspec::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "template text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator:
      break;
  }
  return InQuotes(token.text);
}

}  // namespace

bool TokenStream::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Advance();
  return true;
}

bool TokenStream::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Advance();
  return true;
}

Status TokenStream::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? Status() : Unexpected(InQuotes(op));
}

Status TokenStream::ExpectName(std::string_view name) {
  return SkipName(name) ? Status() : Unexpected(InQuotes(name));
}

Status TokenStream::Expect(TokenKind kind) {
  if (current().kind != kind) return Unexpected(Describe({kind, "", 0}));
  Advance();
  return {};
}

Result<std::string> TokenStream::TakeName() {
  if (current().kind != TokenKind::kName) return Unexpected("a name");
  std::string name = current().text;
  Advance();
  return name;
}

Status TokenStream::Unexpected(std::string_view expected) const {
  return Error("expected " + std::string(expected) + ", got " + Describe(current()));
}

Status TokenStream::TooDeep() const {
  return AtLine(ResourceExhausted("more than " + std::to_string(kMaxNesting) + " levels inside each other"),
                line());
}

}  // namespace longspec::jinja
