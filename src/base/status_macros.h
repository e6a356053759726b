// SPDX-License-Identifier: Apache-2.0
//
// LS_TRY(expr): returns from the enclosing function if expr (a Status) is not ok.
// LS_ASSIGN(declaration, expr): unwraps a Result<T> into the declaration, or returns its Status.
#pragma once

#include "longspec/status.h"

#define LS_CONCAT_INNER_(a, b) a##b
#define LS_CONCAT_(a, b) LS_CONCAT_INNER_(a, b)

#define LS_TRY(expr)                         \
  do {                                       \
    ::longspec::Status ls_status_ = (expr);  \
    if (!ls_status_.ok()) return ls_status_; \
  } while (false)

#define LS_ASSIGN(declaration, expr) LS_ASSIGN_(LS_CONCAT_(ls_result_, __LINE__), declaration, expr)
#define LS_ASSIGN_(result, declaration, expr)                                                \
  auto result = (expr);                     /* NOLINT(bugprone-macro-parentheses): a name */ \
  if (!result.ok()) return result.status(); /* NOLINT(bugprone-macro-parentheses) */         \
  declaration = std::move(result).value()   /* NOLINT(bugprone-macro-parentheses): a declaration */
