// SPDX-License-Identifier: Apache-2.0
//
// What experiments and the tables of papers need and nobody else: what other programs and papers do, to be
// measured beside what is done here. It is no part of the library. A program that wants it adds it to the
// library's tables, which know nothing of it.
#pragma once

namespace longspec {

// Eager attention (lab/eager_attention.h), SpecPV's modes (lab/specpv.h) and drafts that are known before
// (lab/replay_drafter.h). Before there is an engine; once or more often.
void AddLab();

}  // namespace longspec
