// CUDA's header of this name, for g++: its device half, which language/cuda.h has.
#pragma once

#include "penstock/language/cuda.h"
