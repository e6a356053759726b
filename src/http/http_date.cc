// SPDX-License-Identifier: Apache-2.0
#include "http/http_date.h"

#include "base/print.h"

namespace longspec::http {

std::string HttpDate(std::time_t time) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm date{};
  gmtime_r(&time, &date);
  return Print("%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[date.tm_wday], date.tm_mday, kMonths[date.tm_mon],
               date.tm_year + 1900, date.tm_hour, date.tm_min, date.tm_sec);
}

}  // namespace longspec::http
