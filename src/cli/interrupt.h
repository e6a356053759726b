// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C. Once it is caught, the first one only raises a flag that long operations ask for; a second one
// before the flag was lowered ends the process with status 130. Process-wide; the functions may be called
// from any thread.
#pragma once

namespace longspec::cli {

// SIGPIPE and SIGXFSZ: a closed pipe and a file that may not grow are write errors like any other.
void IgnoreWriteSignals();

// SIGINT as above, for commands that ask for the flag. Others it ends at once, by the signal.
void CatchInterrupt();

// SIGTERM does what SIGINT does, for commands that run until they are told to stop.
void CatchTermination();

bool Interrupted();
void ClearInterrupt();

// Readable while the flag is up: what a wait for input polls beside the input.
int InterruptFd();

}  // namespace longspec::cli
