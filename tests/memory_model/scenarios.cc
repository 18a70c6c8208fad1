// See scenarios.h.
#include "memory_model/scenarios.h"

#include <iterator>

namespace penstock::memory_model {

std::vector<Program> all_programs(bool nightly) {
    std::vector<Program> programs;
    for (const auto& make :
         {control_port_programs, preemption_programs, cache_programs, ring_programs,
          window_programs, write_programs, written_window_programs}) {
        std::vector<Program> more = make(nightly);
        std::move(more.begin(), more.end(), std::back_inserter(programs));
    }
    return programs;
}

}  // namespace penstock::memory_model
