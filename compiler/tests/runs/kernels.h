// The kernels of kernels.cu, for main.cc.
#pragma once

#include "penstock/device/handle.h"
#include "penstock/kernel.h"

PENSTOCK_GLOBAL void locals(const float* in, float* out, int n);
template <class T, int kTile>
PENSTOCK_GLOBAL void shared(const T* in, T* out, int n);
PENSTOCK_GLOBAL void reads(penstock::DeviceFileSystem fs, penstock::Descriptor file,
                           unsigned char* buffers, long long* out, int n);
PENSTOCK_GLOBAL void groups(const float* in, float* out, int n);
