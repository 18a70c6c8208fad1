// See program.h.
#include "memory_model/program.h"

namespace penstock::memory_model {

Word Program::word(const std::string& word_name, uint64_t value, bool updated) {
    word_names.push_back(word_name);
    word_values.push_back(value);
    word_updated.push_back(updated);
    return Word{static_cast<uint8_t>(word_names.size() - 1)};
}

Cell Program::cell(const std::string& cell_name, uint64_t value) {
    cell_names.push_back(cell_name);
    cell_values.push_back(value);
    return Cell{static_cast<uint8_t>(cell_names.size() - 1)};
}

void Program::thread(const std::string& thread_name, std::function<Next(Registers&)> body) {
    threads.push_back({thread_name, std::move(body), false});
}

void Program::server(const std::string& thread_name, std::function<Next(Registers&)> body) {
    threads.push_back({thread_name, std::move(body), true});
}

}  // namespace penstock::memory_model
