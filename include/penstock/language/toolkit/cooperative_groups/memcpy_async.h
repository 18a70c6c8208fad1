// CUDA's header of this name, for g++.
#pragma once

#include "penstock/language/cooperative_groups.h"
