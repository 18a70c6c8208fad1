// From the driver's and the run-time library's error numbers to errno. Pure; any thread.
//
// cudaError_t and CUresult share their numbers where both know an error, so one table serves both.
#pragma once

#include "penstock/status.h"

namespace penstock::backend::cuda {

// `origin` names the call ("cuMemAlloc_v2"). 0 gives ok.
Status status_of(int code, const char* origin);

// Whether a kernel caused this (bad address, trap, failed assert): the context is lost, and every
// later call on the device returns the same.
bool is_kernel_fault(int code);

}  // namespace penstock::backend::cuda
