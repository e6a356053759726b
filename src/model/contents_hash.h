// SPDX-License-Identifier: Apache-2.0
//
// The hash of a model file's contents, read once and then remembered: hashing a file takes reading all of it,
// which from a disk is what loading it costs.
//
// Beside what is kept of models, a file of 64 bytes remembers the hash of a model file by its identity:
// device, inode, size and times of change, as build tools and version control know whether a file has
// changed. The hash of a file that was changed just now is not remembered: it could change again within the
// same tick of the file system's clock.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/thread_team.h"
#include "formats/gguf.h"

namespace longspec {

// Nothing if `on_progress` (share done; may be empty) returns false. A hash that cannot be remembered in
// `folder` is computed again next time. It is remembered of files whose last change is at least `settled`
// ago. Thread-safe.
std::optional<Hash128> HashContents(const GgufFile& file, const std::string& folder, ThreadTeam& team,
                                    const std::function<bool(double)>& on_progress,
                                    std::chrono::nanoseconds settled = std::chrono::seconds(2));

}  // namespace longspec
