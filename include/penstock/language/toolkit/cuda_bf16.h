// CUDA's header of this name, for g++: bfloat16.
#pragma once

#include "penstock/language/half_conversions.h"
