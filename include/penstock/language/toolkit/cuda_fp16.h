// CUDA's header of this name, for g++: half precision.
#pragma once

#include "penstock/language/half_conversions.h"
