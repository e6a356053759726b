// SPDX-License-Identifier: Apache-2.0
//
// The addresses of the server, one line each: who may ask there, what answers, what errors look like.
#pragma once

#include <string>
#include <string_view>

#include "api/errors.h"
#include "server/app.h"
#include "server/serving.h"

namespace longspec::server {

// What can be said before there is an engine.
struct ServerState {
  bool is_loading = false, is_stopping = false;
};

struct Route {
  std::string_view method;  // GET answers HEAD as well
  std::string_view path;    // one that ends in a slash and is more than that: any that begin so
  // One of the two.
  void (*with_engine)(Served&, CallPtr) = nullptr;
  void (*at_once)(const ServerState&, Call&) = nullptr;
  bool is_quick = false;   // needs no worker
  bool is_public = false;  // needs no key
  bool is_polled = false;  // programs ask again and again: no line in the log unless it fails
  api::ErrorForm errors = api::ErrorBody;
  bool AppOptions::*option = nullptr;  // that turns it on; none: it always is
  bool is_hidden_when_off = false;     // as if nothing were there; others say that they are turned off
};

// What is at a path.
struct RoutesAt {
  const Route* route = nullptr;            // which takes the method; null: none does
  std::string methods;                     // that are taken, as Allow lists them; empty: nothing is there
  bool is_public = false;                  // all that is there
  api::ErrorForm errors = api::ErrorBody;  // where nothing is: that of the addresses beside it
};

RoutesAt FindRoutes(std::string_view method, std::string_view path, const AppOptions& options);

}  // namespace longspec::server
