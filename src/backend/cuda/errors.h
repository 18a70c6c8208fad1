// Translates error numbers of the driver and of the run-time library to errno. Pure; any thread.
//
// cudaError_t and CUresult share the numbers of the errors that both have, so one table serves
// both.
#pragma once

#include "penstock/status.h"

namespace penstock::backend::cuda {

// `origin` names the call ("cuMemAlloc_v2"). `code` 0 gives an ok Status.
Status status_of(int code, const char* origin);

// Returns whether a kernel caused this (bad address, trap, failed assert). The context is then
// lost, and each later call on the device returns the same error.
bool is_kernel_fault(int code);

}  // namespace penstock::backend::cuda
